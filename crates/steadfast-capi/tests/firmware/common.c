#include "common.h"

static int chip_read(void *user, uint64_t offset, void *buffer, size_t length) {
    struct chip *chip = user;
    if (chip->fail_read != 0) {
        return chip->fail_read;
    }
    memset(buffer, 0xff, length);
    if (chip->wraps) {
        memcpy(buffer, chip->bytes + offset % chip->real, length);
    } else if (offset + length <= chip->real) {
        memcpy(buffer, chip->bytes + offset, length);
    }
    return 0;
}

static int chip_write(void *user, uint64_t offset, const void *data, size_t length) {
    struct chip *chip = user;
    if (chip->inside != NULL) {
        chip->inside();
    }
    if (chip->fail_write != 0) {
        return chip->fail_write;
    }
    if (chip->wraps) {
        memcpy(chip->bytes + offset % chip->real, data, length);
    } else if (offset + length <= chip->real) {
        memcpy(chip->bytes + offset, data, length);
    }
    return 0;
}

static int chip_flush(void *user) {
    return ((struct chip *)user)->fail_flush;
}

sf_device device_on(struct chip *chip) {
    sf_device device = {0};
    device.struct_size = sizeof device;
    device.size = chip->size;
    device.atomic_unit = UNIT;
    device.user = chip;
    device.read = chip_read;
    device.write = chip_write;
    device.flush = chip_flush;
    return device;
}

void expect(const char *what, int line, long long found, long long expected) {
    if (found != expected) {
        board_print("line ");
        board_number(line);
        board_print(": ");
        board_print(what);
        board_print(" is ");
        board_number(found);
        board_print(", not ");
        board_number(expected);
        board_print(": ");
        board_print(sf_last_error());
        board_print("\n");
        board_exit(0);
    }
}

static void panic(void *user, const char *text) {
    (void)user;
    board_print("panic: ");
    board_print(text);
    board_print("\n");
    board_exit(0);
}

int start_with(size_t size) {
    static uint64_t arena[ARENA_MAX / 8u];
    sf_port port = {0};
    port.struct_size = sizeof port;
    port.arena = arena;
    port.arena_size = size;
    port.panic = panic;
    return sf_start(&port);
}
