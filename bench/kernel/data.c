// Large files: written, overwritten, and read from the cache, through a map and cold. `large` has
// random overwrites after it; `fresh` was written from front to back.
#include "load.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define MIB (1 << 20)
#define BLOCK 4096

static off_t random_block(unsigned n)
{
    return (off_t)(random_number(n) % (count_mib * (MIB / BLOCK))) * BLOCK;
}

void data_write(void)
{
    int fd = MUST(open("large", O_CREAT | O_EXCL | O_RDWR, 0644));
    char *data = content(MIB, 3);
    double start;

    sync();
    start = now();
    for (long n = 0; n < count_mib; n++)
        MUST(pwrite(fd, data, MIB, n * (off_t)MIB));
    MUST(fsync(fd));
    report("write.sequential", start, count_mib);

    start = now();
    for (long n = 0; n < count_random; n++)
        MUST(pwrite(fd, data, BLOCK, random_block(n)));
    report("write.random", start, count_random);
    MUST(fsync(fd));
    report("write.random+fsync", start, count_random);
    MUST(close(fd));

    fd = MUST(open("fresh", O_CREAT | O_EXCL | O_WRONLY, 0644));
    for (long n = 0; n < count_mib; n++)
        MUST(pwrite(fd, data, MIB, n * (off_t)MIB));
    MUST(fsync(fd));
    MUST(close(fd));
}

static void read_all(const char *row, int fd, size_t piece)
{
    char *data = content(piece, 0);
    double start = now();

    for (off_t at = 0; at < count_mib * (off_t)MIB; at += piece)
        if (MUST(pread(fd, data, piece, at)) != (ssize_t)piece)
            fail("a short read", __FILE_NAME__, __LINE__);
    report(row, start, count_mib);
}

void data_cached(void)
{
    int fd = MUST(open("large", O_RDONLY));
    size_t length = count_mib * (size_t)MIB;
    const uint64_t *map;
    volatile uint64_t sum = 0;
    double start;

    read_all("read.first-cached", fd, MIB);
    read_all("read.cached", fd, MIB);
    read_all("read.cached-4k", fd, BLOCK);
    start = now();
    map = mmap(NULL, length, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        fail("mmap", __FILE_NAME__, __LINE__);
    /* One word of each line of the processor's cache: faults count, not the loop. */
    for (size_t i = 0; i < length / sizeof(*map); i += 8)
        sum += map[i];
    report("read.mapped", start, count_mib);
    MUST(munmap((void *)map, length));
    MUST(close(fd));
}

void data_cold(void)
{
    int fd = MUST(open("fresh", O_RDONLY));

    read_all("read.cold-sequential", fd, MIB);
    MUST(close(fd));
    fd = MUST(open("large", O_RDONLY));
    read_all("read.cold-overwritten", fd, MIB);
    MUST(close(fd));
}

void data_cold_random(void)
{
    int fd = MUST(open("large", O_RDONLY));
    long count = count_random / 4;
    char data[BLOCK];
    double start;

    MUST(posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM));
    start = now();
    for (long n = 0; n < count; n++)
        MUST(pread(fd, data, BLOCK, random_block(n)));
    report("read.cold-random", start, count);
    MUST(close(fd));
}

void data_overwrite(void)
{
    int fd = MUST(open("large", O_RDWR));
    char *data = content(BLOCK, 4);
    double start = now();

    for (long n = 0; n < count_synced; n++) {
        MUST(pwrite(fd, data, BLOCK, random_block(n)));
        MUST(fdatasync(fd));
    }
    report("overwrite.fdatasync", start, count_synced);
    MUST(close(fd));
}
