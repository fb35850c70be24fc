/* Firmware with a Steadfast volume, without an operating system.
 *
 * Each update changes two files, which must never contradict each other. The program cuts its own
 * power in the middle of an update: the chip loses what it has not flushed, and the machine resets.
 * It does so at the first write or flush of an update, then at the second, and so on, until an
 * update needs fewer. After each start both files must be those of one update, and never of one
 * older than the last that was acknowledged.
 */
#include "board/board.h"

#include <steadfast.h>
#include <steadfast-port.h>

#include <string.h>

#define UNIT 512u
#define CHIP_SIZE (256u * 1024u)
#define MAGIC 0x63686970u

/* An SD card, say. `stable` is what it has flushed. */
static struct chip {
    uint32_t magic;
    /* How far the program has come: the step of the present cut, and the newest update that the
     * library has acknowledged. */
    uint32_t cut_at, acknowledged;
    /* An update has needed fewer. */
    uint32_t finished;
    unsigned char stable[CHIP_SIZE];
    unsigned char working[CHIP_SIZE];
} chip BOARD_NOINIT;

/* Writes and flushes until the power fails; 0: it does not. */
static uint32_t steps_left;

static void step(void) {
    if (steps_left > 0u && --steps_left == 0u) {
        board_reset();
    }
}

static int chip_read(void *user, uint64_t offset, void *buffer, size_t length) {
    (void)user;
    memcpy(buffer, chip.working + offset, length);
    return 0;
}

static int chip_write(void *user, uint64_t offset, const void *data, size_t length) {
    (void)user;
    step();
    memcpy(chip.working + offset, data, length);
    return 0;
}

static int chip_flush(void *user) {
    (void)user;
    step();
    memcpy(chip.stable, chip.working, sizeof chip.stable);
    return 0;
}

static uint64_t now_ms(void *user) {
    (void)user;
    return board_ms();
}

static void panic(void *user, const char *text) {
    (void)user;
    board_print(text);
    board_print("\n");
    board_exit(0);
}

/* Ends the program where a call failed. */
static void must(int64_t result) {
    if (result < 0) {
        board_print(sf_last_error());
        board_print("\n");
        board_exit(0);
    }
}

/* Everything that the library keeps. */
static uint64_t arena[48 * 1024 / 8];

static sf_volume *start(void) {
    sf_port port = {0};
    port.struct_size = sizeof port;
    port.arena = arena;
    port.arena_size = sizeof arena;
    port.monotonic_ms = now_ms;
    port.panic = panic;
    must(sf_start(&port));

    sf_device device = {0};
    device.struct_size = sizeof device;
    device.size = CHIP_SIZE;
    device.atomic_unit = UNIT;
    device.read = chip_read;
    device.write = chip_write;
    device.flush = chip_flush;

    sf_open_options options;
    must(sf_open_options_init(&options, sizeof options));
    options.flags = SF_OPEN_NO_ATIME;
    options.cache_size = 0;
    sf_volume *volume = NULL;
    int result = sf_open(&device, &options, &volume);
    if (result == -SF_EMEDIUMTYPE) {
        /* Blank or foreign. Every other error is no reason to format. */
        sf_format_options format;
        must(sf_format_options_init(&format, sizeof format));
        format.block_size = UNIT;
        must(sf_format(&device, &format));
        result = sf_open(&device, &options, &volume);
    }
    must(result);
    return volume;
}

/* The number in a file; 0 if there is none. */
static uint32_t number_in(sf_volume *volume, const char *path) {
    uint32_t number = 0;
    int64_t result = sf_read_file(volume, path, &number, sizeof number);
    if (result != -SF_ENOENT) {
        must(result);
    }
    return number;
}

static void update(sf_volume *volume, uint32_t number) {
    static unsigned char samples[1500];
    sf_transaction *transaction;
    memset(samples, (int)number, sizeof samples);
    memcpy(samples, &number, sizeof number);
    must(sf_begin(volume, &transaction));
    must(sf_write_file(volume, "/settings", &number, sizeof number));
    must(sf_write_file(volume, "/samples", samples, sizeof samples));
    must(sf_commit(transaction));
}

int main(void) {
    if (chip.magic != MAGIC) {
        chip.magic = MAGIC;
        chip.cut_at = 0;
        chip.acknowledged = 0;
        chip.finished = 0;
        memset(chip.stable, 0xff, sizeof chip.stable);
    }
    /* The power has been off: what was not flushed is lost. */
    memcpy(chip.working, chip.stable, sizeof chip.working);

    sf_volume *volume = start();
    uint32_t settings = number_in(volume, "/settings");
    static unsigned char samples[1500];
    if (settings > 0u) {
        must(sf_read_file(volume, "/samples", samples, sizeof samples));
    }
    uint32_t copy;
    memcpy(&copy, samples, sizeof copy);
    board_print("start: update ");
    board_number(settings);
    board_print("\n");
    if (copy != settings || settings < chip.acknowledged || settings > chip.acknowledged + 1u) {
        board_print("WRONG\n");
        return 1;
    }
    chip.acknowledged = settings;

    if (chip.finished == 0u) {
        chip.cut_at++;
        steps_left = chip.cut_at;
        update(volume, settings + 1u);
        /* It came to its end before the power failed; what it did must be there after a reset. */
        steps_left = 0;
        chip.acknowledged = settings + 1u;
        chip.finished = 1u;
        board_reset();
    }
    board_print("an update without a cut has ");
    board_number(chip.cut_at - 1u);
    board_print(" writes and flushes\n");

    sf_memory_use memory;
    must(sf_memory(&memory));
    must(sf_close(volume));
    must(sf_stop());
    board_print("memory: ");
    board_number((long long)memory.peak);
    board_print(" bytes\n");
    return 0;
}
