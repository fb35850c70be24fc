/* A data logger as a device without an operating system has it: a volume on the program's own block
 * functions, here over an array in RAM that can lose its power.
 *
 * Each measurement goes to two files, the samples and an index, which must never contradict each
 * other. The mask is manual: only sf_transact makes things durable, both files together. The
 * program cuts the power in the middle of an update and shows that both files are back at the last
 * transaction point.
 *
 *     cc examples/c/logger.c $(pkg-config --cflags --libs steadfast) -o logger && ./logger
 */
#include <steadfast.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECTOR 512u
#define DISK_SIZE (256u * 1024u)

/* What a flash chip or an SD card would be. `stable` is what has been flushed; the rest is lost
 * with the power. */
struct disk {
    unsigned char stable[DISK_SIZE];
    unsigned char working[DISK_SIZE];
    unsigned long reads, writes, flushes;
};

static int disk_read(void *user, uint64_t offset, void *buffer, size_t length) {
    struct disk *disk = user;
    memcpy(buffer, disk->working + offset, length);
    disk->reads++;
    return 0;
}

static int disk_write(void *user, uint64_t offset, const void *data, size_t length) {
    struct disk *disk = user;
    memcpy(disk->working + offset, data, length);
    disk->writes++;
    return 0;
}

static int disk_flush(void *user) {
    struct disk *disk = user;
    memcpy(disk->stable, disk->working, DISK_SIZE);
    disk->flushes++;
    return 0;
}

/* Ends the program where a call failed: what, and why. */
static void must(int64_t result) {
    if (result < 0) {
        fprintf(stderr, "logger: %s (%s)\n", sf_last_error(), sf_strerror((int)result));
        exit(1);
    }
}

struct sample {
    uint32_t sequence;
    int32_t value;
};

/* Two files change; nothing is durable before the caller says so. */
static void record(sf_volume *volume, uint32_t sequence) {
    struct sample sample = {sequence, (int32_t)(sequence * sequence % 1000)};
    sf_file *samples;
    must(sf_file_open(volume, "/log/samples", SF_WRITE | SF_CREATE | SF_APPEND, 0644, &samples));
    must(sf_write(samples, &sample, sizeof sample));
    must(sf_file_close(samples));
    must(sf_write_file(volume, "/log/newest", &sequence, sizeof sequence));
}

/* How many samples there are, and what the index says. They have to agree. */
static void report(sf_volume *volume, const char *when) {
    sf_attributes samples;
    uint32_t newest = 0;
    must(sf_stat(volume, "/log/samples", 0, &samples));
    must(sf_read_file(volume, "/log/newest", &newest, sizeof newest));
    printf("%s: %u samples, the newest is %u\n", when,
           (unsigned)(samples.size / sizeof(struct sample)), (unsigned)newest);
    if (samples.size / sizeof(struct sample) != newest) {
        fprintf(stderr, "logger: the files contradict each other\n");
        exit(1);
    }
}

int main(void) {
    static struct disk disk;
    sf_device device = {0};
    device.struct_size = sizeof device;
    device.size = DISK_SIZE;
    device.atomic_unit = SECTOR;
    device.user = &disk;
    device.read = disk_read;
    device.write = disk_write;
    device.flush = disk_flush;

    if (sf_abi_version() != SF_ABI_VERSION) {
        fprintf(stderr, "logger: compiled for another version of the library\n");
        return 1;
    }

    sf_format_options format;
    must(sf_format_options_init(&format, sizeof format));
    format.block_size = SECTOR;
    format.mask = SF_MASK_MANUAL;
    strcpy(format.label, "logger");
    must(sf_format(&device, &format));

    sf_open_options options;
    must(sf_open_options_init(&options, sizeof options));
    options.cache_size = 64 * 1024;
    sf_volume *volume;
    must(sf_open(&device, &options, &volume));
    must(sf_mkdir(volume, "/log", 0755));

    for (uint32_t sequence = 1; sequence <= 100; sequence++) {
        record(volume, sequence);
        if (sequence % 10 == 0) {
            must(sf_transact(volume));
            while (sf_background(volume) > 0) {
                /* Checkpoints and freed space, when there is time. */
            }
        }
    }
    report(volume, "running");

    /* Three more measurements, and half of a fourth; then the power fails. */
    for (uint32_t sequence = 101; sequence <= 103; sequence++) {
        record(volume, sequence);
    }
    sf_file *samples;
    must(sf_file_open(volume, "/log/samples", SF_WRITE | SF_APPEND, 0, &samples));
    must(sf_write(samples, "half", 4));
    must(sf_file_close(samples));
    struct disk *after = malloc(sizeof *after);
    if (after == NULL) {
        return 1;
    }
    memcpy(after->working, disk.stable, DISK_SIZE);
    memcpy(after->stable, disk.stable, DISK_SIZE);
    /* This machine is gone: its memory with it. */
    must(sf_close(volume));

    device.user = after;
    must(sf_open(&device, &options, &volume));
    report(volume, "after the power cut");
    must(sf_close(volume));
    printf("%lu reads, %lu writes, %lu flushes\n", disk.reads, disk.writes, disk.flushes);
    free(after);
    return 0;
}
