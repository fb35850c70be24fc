/* What a program can do wrong without an operating system. Each mistake has its own answer, and
 * the volume keeps what was acknowledged. */
#include "common.h"

static unsigned char bytes[CHIP_MAX];
static struct chip chip = {CHIP_MAX, CHIP_MAX, 0, 0, 0, 0, NULL, bytes};
static sf_volume *volume;

static sf_format_options wishes(void) {
    sf_format_options options;
    IS(sf_format_options_init(&options, sizeof options), 0);
    options.block_size = UNIT;
    return options;
}

static void ports(void) {
    static uint64_t memory[1024];
    sf_port port = {0};
    sf_memory_use use;
    sf_format_options options;
    IS(sf_stop(), -SF_EINVAL);
    IS(sf_memory(&use), -SF_EINVAL);
    IS(sf_format_options_init(&options, sizeof options), -SF_EINVAL);
    IS(sf_open(NULL, NULL, &volume), -SF_EINVAL);
    IS(sf_start(NULL), -SF_EFAULT);
    IS(sf_start(&port), -SF_EINVAL);
    port.struct_size = sizeof port;
    IS(sf_start(&port), -SF_EINVAL); /* no memory */
    port.arena = memory;
    port.arena_size = 4; /* less than one unit: every request is refused */
    IS(sf_start(&port), 0);
    IS(sf_memory(&use), 0);
    IS(use.size, 0);
    options = wishes();
    sf_device device = device_on(&chip);
    IS(sf_format(&device, &options), -SF_ENOBUFS);
    IS(sf_start(&port), -SF_EBUSY);
    IS(sf_stop(), 0);
    port.reserved = 1;
    IS(sf_start(&port), -SF_EINVAL);
    port.reserved = 0;
    port.struct_size += 4u;
    IS(sf_start(&port), -SF_EINVAL);
}

/* A device that has less than it says. */
static void sizes(void) {
    sf_format_options options = wishes();
    sf_device device = device_on(&chip);
    for (uint64_t real = UNIT; real < CHIP_MAX; real *= 2u) {
        chip.real = real;
        chip.wraps = 1;
        IS(sf_format(&device, &options), -SF_EOVERFLOW);
        chip.wraps = 0;
        IS(sf_format(&device, &options), -SF_EOVERFLOW);
    }
    chip.real = CHIP_MAX - UNIT;
    IS(sf_format(&device, &options), -SF_EOVERFLOW);
    chip.real = CHIP_MAX;
    IS(sf_format(&device, &options), 0);
    /* Options that are refused leave the volume as it is. */
    options.block_size = 384;
    IS(sf_format(&device, &options), -SF_EINVAL);
    IS(sf_open(&device, NULL, &volume), 0);
    IS(sf_close(volume), 0);
    /* The volume is larger than what the driver says now. */
    device.size = CHIP_MAX / 2u;
    IS(sf_open(&device, NULL, &volume), -SF_EOVERFLOW);
    device.size = CHIP_MAX;
    memset(bytes, 0xff, sizeof bytes);
    IS(sf_open(&device, NULL, &volume), -SF_EMEDIUMTYPE);
}

/* Calls of the library from inside a device function. */
static int answers[4];

static void call_back(void) {
    uint32_t value = 9;
    sf_memory_use use;
    answers[0] = sf_write_file(volume, "/inside", &value, sizeof value);
    answers[1] = sf_transact(volume);
    answers[2] = sf_memory(&use);
    answers[3] = sf_stop();
}

static void inside(void) {
    uint32_t value = 1;
    sf_attributes attributes;
    chip.inside = call_back;
    IS(sf_write_file(volume, "/outside", &value, sizeof value), 0);
    IS(sf_transact(volume), 0);
    chip.inside = NULL;
    for (unsigned call = 0; call < 4u; call++) {
        IS(answers[call], -SF_EDEADLK);
    }
    IS(sf_stat(volume, "/inside", 0, &attributes), -SF_ENOENT);
    IS(sf_stat(volume, "/outside", 0, &attributes), 0);
}

/* A recursive lock, as an RTOS has it. */
static int depth, takes;

static void take(void *user) {
    (void)user;
    depth++;
    takes++;
}

static void give(void *user) {
    (void)user;
    depth--;
}

static int random_bytes(void *user, void *buffer, size_t length) {
    (void)user;
    memset(buffer, 0xa5, length);
    return 0;
}

static int no_random_bytes(void *user, void *buffer, size_t length) {
    (void)user;
    (void)buffer;
    (void)length;
    return -SF_EAGAIN;
}

static void locks(void) {
    static uint64_t memory[12 * 1024];
    sf_port port = {0};
    sf_volume_info info;
    sf_device device = device_on(&chip);
    port.struct_size = sizeof port;
    port.arena = memory;
    port.arena_size = sizeof memory;
    port.lock = take;
    IS(sf_start(&port), -SF_EINVAL);
    port.unlock = give;
    port.entropy = no_random_bytes;
    IS(sf_start(&port), 0);
    sf_format_options options = wishes();
    IS(sf_format(&device, &options), -SF_EAGAIN);
    IS(sf_stop(), 0);
    port.entropy = random_bytes;
    IS(sf_start(&port), 0);
    IS(sf_format(&device, &options), 0);
    IS(sf_open(&device, NULL, &volume), 0);
    IS(sf_info(volume, &info), 0);
    IS(info.uuid[0], 0xa5);
    inside();
    IS(depth, 0);
    IS(takes > 10, 1);
    IS(sf_stop(), -SF_EBUSY);
    IS(sf_close(volume), 0);
    IS(sf_stop(), 0);
}

/* Drivers that fail. The volume becomes read-only, and the next mount has what was acknowledged. */
static void failures(void) {
    uint32_t value = 7, found = 0;
    sf_device device = device_on(&chip);
    sf_format_options options = wishes();
    IS(sf_format(&device, &options), 0);
    IS(sf_open(&device, NULL, &volume), 0);
    IS(sf_write_file(volume, "/kept", &value, sizeof value), 0);
    IS(sf_transact(volume), 0);
    value = 8;
    IS(sf_write_file(volume, "/kept", &value, sizeof value), 0);
    chip.fail_write = -SF_EIO;
    IS(sf_transact(volume), -SF_EIO);
    IS(sf_write_file(volume, "/other", &value, sizeof value), -SF_EROFS);
    chip.fail_write = 0;
    (void)sf_close(volume);
    chip.fail_read = -SF_ENODEV;
    IS(sf_open(&device, NULL, &volume), -SF_ENODEV);
    chip.fail_read = 77; /* no number of this interface, and not negative */
    IS(sf_open(&device, NULL, &volume), -SF_EIO);
    chip.fail_read = 0;
    IS(sf_open(&device, NULL, &volume), 0);
    IS(sf_read_file(volume, "/kept", &found, sizeof found), sizeof found);
    IS(found == 7u || found == 8u, 1);
    chip.fail_flush = -SF_EIO;
    IS(sf_write_file(volume, "/kept", &value, sizeof value), 0);
    IS(sf_transact(volume), -SF_EIO);
    chip.fail_flush = 0;
    (void)sf_close(volume);
    IS(sf_open(&device, NULL, &volume), 0);
    IS(sf_close(volume), 0);
}

int main(void) {
    ports();
    IS(start_with(ARENA_MAX), 0);
    sizes();
    failures();
    IS(sf_stop(), 0);
    locks();
    IS(start_with(64u * 1024u), 0);
    sf_device device = device_on(&chip);
    IS(sf_open(&device, NULL, &volume), 0);
    inside(); /* without a lock, too */
    IS(sf_close(volume), 0);
    IS(sf_stop(), 0);
    board_print("ok\n");
    return 0;
}
