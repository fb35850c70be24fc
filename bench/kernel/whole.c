// What concerns many files or the whole volume: an update of 100 files, and a mount after a cut.
#include "load.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define UPDATED 100
#define UPDATES 5
#define BLOCK 4096
#define COPY (1 << 20)
/* STEADFAST_IOC_TRANSACT and STEADFAST_IOC_MASK_SET of steadfast-ioctl.h. */
#define TRANSACT _IO(0xd5, 1)
#define MASK_SET _IOW(0xd5, 4, unsigned[2])

static char name[64];

static const char *path(int n)
{
    snprintf(name, sizeof(name), "update/%d", n);
    return name;
}

void whole_prepare(void)
{
    char *data = content(BLOCK, 5);

    MUST(mkdir("update", 0755));
    for (int n = 0; n < UPDATED; n++) {
        int fd = MUST(open(path(n), O_CREAT | O_EXCL | O_WRONLY, 0644));

        MUST(write(fd, data, BLOCK));
        MUST(close(fd));
    }
    sync();
}

/* The usual way: each file is old or new, but some may be old and others new. */
void whole_replace(void)
{
    double start = now();
    int dir = MUST(open("update", O_RDONLY | O_DIRECTORY));

    for (int version = 0; version < UPDATES; version++) {
        char *data = content(BLOCK, 6 + version);

        for (int n = 0; n < UPDATED; n++) {
            int fd = MUST(open("update/new", O_CREAT | O_TRUNC | O_WRONLY, 0644));

            MUST(write(fd, data, BLOCK));
            MUST(fdatasync(fd));
            MUST(close(fd));
            MUST(rename("update/new", path(n)));
        }
        MUST(fsync(dir));
        free(data);
    }
    report("update", start, UPDATES);
}

/* Steadfast's way: with only explicit transaction points, all files together or none. */
void whole_together(void)
{
    /* No event but the command; the interval is for a mask with the timer. */
    unsigned none[2] = { 0, 5000 };
    int dir = MUST(open("update", O_RDONLY | O_DIRECTORY));
    double start;

    MUST(ioctl(dir, MASK_SET, none));
    start = now();
    for (int version = 0; version < UPDATES; version++) {
        char *data = content(BLOCK, 6 + version);

        for (int n = 0; n < UPDATED; n++) {
            int fd = MUST(open(path(n), O_WRONLY));

            MUST(pwrite(fd, data, BLOCK, 0));
            MUST(close(fd));
        }
        MUST(ioctl(dir, TRANSACT));
        free(data);
    }
    report("update", start, UPDATES);
}

/* The power fails: what the device has at one moment is copied. In real-time class, on the only
 * processor, and with a memory disk that never waits, nothing else runs meanwhile. */
void whole_cut(const char *from, const char *to)
{
    struct sched_param priority = { .sched_priority = 99 };
    char *data = content(COPY, 0);
    int in, out;
    ssize_t done;

    MUST(sched_setscheduler(0, SCHED_FIFO, &priority));
    in = MUST(open(from, O_RDONLY | O_DIRECT));
    out = MUST(open(to, O_WRONLY | O_DIRECT));
    while ((done = MUST(read(in, data, COPY))) > 0)
        if (MUST(write(out, data, done)) != done)
            fail("a short write", __FILE_NAME__, __LINE__);
    MUST(close(in));
    MUST(close(out));
}

/* mount(2), and the first look at the volume. */
void whole_mount(const char *device, const char *type, const char *options)
{
    struct stat st;
    double start = now();

    MUST(mount(device, "/mnt", type, MS_NOATIME, options));
    MUST(stat("/mnt/names", &st));
    report("mount.cut", start, 1);
}
