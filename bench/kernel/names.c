// One directory of many small files: names, attributes, and small contents. Rows that change names
// end with sync(2), so that what a file system puts off until then counts.
#include "load.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define SMALL 2048

static char name[64], other[64];

static const char *path(char *to, const char *kind, long n)
{
    snprintf(to, 64, "names/%s%ld", kind, n);
    return to;
}

static void create(const char *kind, long n, const char *data, int synced)
{
    int fd = MUST(open(path(name, kind, n), O_CREAT | O_EXCL | O_WRONLY, 0644));

    MUST(write(fd, data, SMALL));
    if (synced)
        MUST(fsync(fd));
    MUST(close(fd));
}

void names_create(void)
{
    char *data = content(SMALL, 1);
    double start;

    MUST(mkdir("names", 0755));
    sync();
    start = now();
    for (long n = 0; n < count_files; n++)
        create("f", n, data, 0);
    sync();
    report("create", start, count_files);
}

static void stat_all(const char *row)
{
    struct stat st;
    double start = now();

    for (long n = 0; n < count_files; n++)
        MUST(stat(path(name, "f", n), &st));
    report(row, start, count_files);
}

static void read_all(const char *row)
{
    char data[SMALL];
    double start = now();

    for (long n = 0; n < count_files; n++) {
        int fd = MUST(open(path(name, "f", n), O_RDONLY));

        if (MUST(read(fd, data, SMALL)) != SMALL)
            fail("a short read", __FILE_NAME__, __LINE__);
        MUST(close(fd));
    }
    report(row, start, count_files);
}

static void list(const char *row)
{
    double start = now();
    DIR *dir = opendir("names");
    long found = 0;

    while (readdir(dir))
        found++;
    closedir(dir);
    if (found < count_files)
        fail("a list that is too short", __FILE_NAME__, __LINE__);
    report(row, start, count_files);
}

void names_warm(void)
{
    stat_all("stat.first");
    stat_all("stat.warm");
    read_all("read.first");
    read_all("read.warm");
    list("list.first");
    list("list.warm");
}

void names_cold_stat(void) { stat_all("stat.cold"); }
void names_cold_read(void) { read_all("read.cold"); }
void names_cold_list(void) { list("list.cold"); }

void names_change(void)
{
    double start = now();

    for (long n = 0; n < count_files; n++)
        MUST(rename(path(name, "f", n), path(other, "g", n)));
    sync();
    report("rename", start, count_files);

    start = now();
    for (long n = 0; n < count_files; n++)
        MUST(link(path(name, "g", n), path(other, "h", n)));
    sync();
    report("link", start, count_files);

    for (long n = 0; n < count_files; n++)
        MUST(unlink(path(name, "h", n)));
    sync();
    start = now();
    for (long n = 0; n < count_files; n++)
        MUST(unlink(path(name, "g", n)));
    sync();
    report("unlink", start, count_files);

    start = now();
    for (long n = 0; n < count_files; n++)
        MUST(mkdir(path(name, "d", n), 0755));
    sync();
    report("mkdir", start, count_files);

    start = now();
    for (long n = 0; n < count_files; n++)
        MUST(rmdir(path(name, "d", n)));
    sync();
    report("rmdir", start, count_files);
}

void names_synced(void)
{
    char *data = content(SMALL, 2);
    double start = now();

    for (long n = 0; n < count_synced; n++)
        create("s", n, data, 1);
    report("create.fsync", start, count_synced);
}

/* What a cut finds: synced files, and others that no program waits for. */
void names_cut(void)
{
    char *data = content(SMALL, 3);

    for (long n = 0; n < count_synced; n++)
        create("c", n, data, 1);
    for (long n = 0; n < count_synced; n++)
        create("u", n, data, 0);
}
