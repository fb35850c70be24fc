// What the parts of the guest's test program share.
#ifndef CHECK_H
#define CHECK_H
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/falloc.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

/* Of this part of the program. */
static int failures;

#define CHECK(condition)                                                               \
    do {                                                                               \
        if (!(condition)) {                                                            \
            printf("FAILED %s:%d: %s (errno %d)\n", __FILE_NAME__, __LINE__,          \
                   #condition, errno);                                                 \
            failures++;                                                                \
        }                                                                              \
    } while (0)
#define FAILS(call, number) CHECK((call) == -1 && errno == (number))

static char buffer[1 << 20], other[1 << 20];

static inline void fill(char *data, size_t length, unsigned seed)
{
    for (size_t i = 0; i < length; i++)
        data[i] = (char)((i * 31 + seed) ^ (i >> 9));
}

static inline int same(int fd, off_t at, const char *data, size_t length)
{
    return pread(fd, other, length, at) == (ssize_t)length && !memcmp(other, data, length);
}

/* race.c */
int race(void);
/* rollback.c */
int rollback(void);
/* snapshots.c */
int snapshots(void);
/* tree.c */
int tree(void);
/* flags.c */
int flags(void);
int flags_again(void);
/* load.c */
int fill_up(void);
void write_for_ever(int n);
int panic(void);
int take_memory(void);

#endif
