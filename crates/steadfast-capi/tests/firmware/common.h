/* What the test programs for firmware share. */
#ifndef COMMON_H
#define COMMON_H

#include "board/board.h"

#include <steadfast.h>
#include <steadfast-port.h>

#include <string.h>

#define UNIT 512u
#define CHIP_MAX (1024u * 1024u)

/* A chip in memory. `size` is what it says, `real` what it has. */
struct chip {
    uint64_t size, real;
    /* Whether addresses beyond the end lead to the beginning, or nowhere. */
    int wraps;
    /* Answers of the next requests, unless 0. */
    int fail_read, fail_write, fail_flush;
    /* Called inside each write, if it is not NULL. */
    void (*inside)(void);
    unsigned char *bytes;
};

sf_device device_on(struct chip *chip);

/* Ends the program where the result is another than the expected one. */
void expect(const char *what, int line, long long found, long long expected);
#define IS(call, expected) expect(#call, __LINE__, (call), (expected))

/* Starts the library with an arena of this size. */
int start_with(size_t size);
/* The largest arena. */
#define ARENA_MAX (384u * 1024u)

#endif
