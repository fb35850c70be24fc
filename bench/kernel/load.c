// The load of bench/kernel.sh: `load PART` runs one part in the present directory and prints lines
// `RESULT row microseconds`. The script unmounts and mounts between parts that need a cold volume.
// Counts come from the environment: FILES, MIB, RANDOM_COUNT, SYNCED.
#include "load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

long count_files, count_mib, count_random, count_synced;

void fail(const char *what, const char *file, int line)
{
    perror("FAILED");
    printf("FAILED %s:%d: %s\n", file, line, what);
    exit(1);
}

double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

void report(const char *row, double start, long count)
{
    printf("RESULT %s %.3f\n", row, (now() - start) / count);
}

unsigned random_number(unsigned n)
{
    n = (n ^ 61) ^ (n >> 16);
    n *= 9;
    n ^= n >> 4;
    n *= 0x27d4eb2d;
    return n ^ (n >> 15);
}

char *content(size_t size, unsigned seed)
{
    char *data = aligned_alloc(4096, size);

    for (size_t i = 0; i + 4 <= size; i += 4) {
        unsigned word = random_number(seed * 7919 + i);
        memcpy(data + i, &word, 4);
    }
    return data;
}

static long number(const char *name)
{
    const char *value = getenv(name);

    if (!value || atol(value) <= 0) {
        printf("FAILED: %s is not set\n", name);
        exit(1);
    }
    return atol(value);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } parts[] = {
        { "names-create", names_create }, { "names-warm", names_warm },
        { "names-cold-stat", names_cold_stat }, { "names-cold-read", names_cold_read },
        { "names-cold-list", names_cold_list }, { "names-change", names_change },
        { "names-synced", names_synced }, { "names-cut", names_cut },
        { "data-write", data_write },
        { "data-cached", data_cached }, { "data-cold", data_cold },
        { "data-cold-random", data_cold_random }, { "data-overwrite", data_overwrite },
        { "whole-prepare", whole_prepare }, { "whole-replace", whole_replace },
        { "whole-together", whole_together },
    };

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 4 && !strcmp(argv[1], "cut")) {
        whole_cut(argv[2], argv[3]);
        return 0;
    }
    if (argc == 5 && !strcmp(argv[1], "mount")) {
        whole_mount(argv[2], argv[3], argv[4]);
        return 0;
    }
    count_files = number("FILES");
    count_mib = number("MIB");
    count_random = number("RANDOM_COUNT");
    count_synced = number("SYNCED");
    for (size_t i = 0; argc == 2 && i < sizeof(parts) / sizeof(*parts); i++) {
        if (!strcmp(argv[1], parts[i].name)) {
            parts[i].run();
            return 0;
        }
    }
    printf("FAILED: no such part: %s\n", argc > 1 ? argv[1] : "");
    return 1;
}
