// The trees below `.snapshots`: what they show, what they refuse, and what a deletion leaves.
#include "check.h"

#include "steadfast-ioctl.h"

#define PAST ".snapshots/one/past/"
#define BIG 300000

static int root;
static char old[BIG], now[BIG];

/* Inodes, pages and names that are not in use go. */
static void forget(void)
{
    int fd = open("/proc/sys/vm/drop_caches", O_WRONLY);

    CHECK(write(fd, "3", 1) == 1 && close(fd) == 0);
}

static int take(const char *name)
{
    struct sf_ioc_snapshot snapshot = { 0 };

    strcpy((char *)snapshot.name, name);
    return ioctl(root, SF_IOC_SNAPSHOT_CREATE, &snapshot);
}

static int drop(const char *name)
{
    struct sf_ioc_snapshot snapshot = { 0 };

    strcpy((char *)snapshot.name, name);
    return ioctl(root, SF_IOC_SNAPSHOT_DELETE, &snapshot);
}

static void put(const char *name, const void *data, size_t length)
{
    int fd = open(name, O_CREAT | O_TRUNC | O_WRONLY, 0640);

    CHECK(write(fd, data, length) == (ssize_t)length && close(fd) == 0);
}

static int has(const char *name, const char *data, size_t length, int flags)
{
    int fd = open(name, O_RDONLY | flags);
    int found = fd >= 0 && same(fd, 0, data, length) && pread(fd, other, 1, length) == 0;

    close(fd);
    return found;
}

/* Entries of a directory, whose numbers must be those of stat. */
static int entries(const char *name, const char *wanted)
{
    DIR *dir = opendir(name);
    struct dirent *entry;
    struct stat st;
    int count = 0;

    while (dir && (entry = readdir(dir))) {
        if (wanted && strcmp(entry->d_name, wanted))
            continue;
        count++;
        CHECK(fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
              st.st_ino == entry->d_ino && st.st_mode >> 12 == entry->d_type);
    }
    return dir && closedir(dir) == 0 ? count : -1;
}

/* A user's rights that the bits do not express: rw for user 7. */
static const struct {
    unsigned version;
    struct {
        unsigned short tag, bits;
        unsigned id;
    } entries[5];
} acl = { 2, { { 1, 6, -1 }, { 2, 6, 7 }, { 4, 4, -1 }, { 16, 6, -1 }, { 32, 0, -1 } } };

static void make(void)
{
    int flags = FS_IMMUTABLE_FL, fd;

    fill(old, BIG, 1), fill(now, BIG, 2);
    CHECK(mkdir("past", 0755) == 0 && mkdir("past/d", 0700) == 0);
    put("past/big", old, BIG);
    put("past/small", "small", 5);
    put("past/fixed", "fixed", 5);
    CHECK(link("past/small", "past/d/linked") == 0 && symlink("small", "past/s") == 0);
    CHECK(mkfifo("past/pipe", 0600) == 0);
    CHECK(setxattr("past/big", "user.a", "value", 5, 0) == 0);
    CHECK(setxattr("past/big", "trusted.t", "", 0, 0) == 0);
    CHECK(setxattr("past/small", "system.posix_acl_access", &acl, sizeof(acl), 0) == 0);
    fd = open("past/fixed", O_RDONLY);
    CHECK(ioctl(fd, FS_IOC_SETFLAGS, &flags) == 0 && take("one") == 0);
    flags = 0;
    CHECK(ioctl(fd, FS_IOC_SETFLAGS, &flags) == 0 && close(fd) == 0);
    put("past/big", now, BIG);
    CHECK(chmod("past/big", 0600) == 0 && removexattr("past/big", "user.a") == 0);
    CHECK(unlink("past/small") == 0 && unlink("past/d/linked") == 0 && rmdir("past/d") == 0);
    CHECK(unlink("past/s") == 0 && symlink("elsewhere", "past/s") == 0);
    CHECK(ioctl(root, SF_IOC_CHECKPOINT) == 0);
}

static void shown(void)
{
    struct stat live, st;
    struct statx more;
    char text[sizeof(acl)] = "";

    CHECK(entries(".", ".snapshots") == 0 && entries(".", "past") == 1);
    CHECK(stat(".snapshots", &st) == 0 && st.st_mode == (S_IFDIR | 0555) && st.st_size == 1);
    CHECK(st.st_nlink == 3 && st.st_uid == 0 && entries(".snapshots", NULL) == 3);
    CHECK(listxattr(".snapshots", text, sizeof(text)) == 0);
    FAILS(getxattr(".snapshots", "user.a", text, sizeof(text)), ENODATA);
    FAILS(stat(".snapshots/none", &st), ENOENT);
    CHECK(entries(".snapshots/one", "past") == 1 && entries(PAST, NULL) == 8);
    CHECK(entries(".snapshots/one", "..") == 1 && entries(".snapshots", "..") == 1);
    CHECK(entries(PAST "d", "linked") == 1);
    FAILS(stat(PAST "d/none", &st), ENOENT);
    CHECK(has(PAST "big", old, BIG, 0) && has(PAST "big", old, BIG, O_DIRECT));
    CHECK(has("past/big", now, BIG, 0) && has(PAST "d/linked", "small", 5, 0));
    CHECK(stat("past/big", &live) == 0 && stat(PAST "big", &st) == 0);
    CHECK(st.st_mode == (S_IFREG | 0640) && st.st_ino != live.st_ino && st.st_dev == live.st_dev);
    CHECK((st.st_ino & 0xffffffffffff) == live.st_ino && st.st_blocks >= BIG / 512);
    CHECK(stat(PAST "small", &st) == 0 && st.st_nlink == 2 && access(PAST "pipe", W_OK) == 0);
    CHECK(readlink(PAST "s", text, 20) == 5 && !memcmp(text, "small", 5));
    CHECK(has(PAST "s", "small", 5, 0));
    CHECK(getxattr(PAST "big", "user.a", text, 20) == 5 && !memcmp(text, "value", 5));
    CHECK(listxattr(PAST "big", NULL, 0) == 17);
    CHECK(getxattr(PAST "small", "system.posix_acl_access", text, sizeof(acl)) == sizeof(acl));
    CHECK(!memcmp(text, &acl, sizeof(acl)));
    CHECK(statx(AT_FDCWD, PAST "fixed", 0, STATX_BASIC_STATS, &more) == 0 &&
          (more.stx_attributes & STATX_ATTR_IMMUTABLE));
    int fd = open(PAST "big", O_RDONLY), copy = open("past/copy", O_CREAT | O_RDWR, 0600);
    char *map = mmap(NULL, BIG, PROT_READ, MAP_SHARED, fd, 0);
    char *own = mmap(NULL, BIG, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    CHECK(map != MAP_FAILED && !memcmp(map, old, BIG));
    own[5000] ^= 1;
    CHECK(own[5000] != map[5000] && !memcmp(map, old, BIG));
    FAILS(mmap(NULL, BIG, PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED ? -1 : 0, EACCES);
    CHECK(lseek(fd, 0, SEEK_HOLE) == BIG && lseek(fd, 0, SEEK_DATA) == 0 && fsync(fd) == 0);
    CHECK(lseek(fd, 0, SEEK_SET) == 0 && copy_file_range(fd, 0, copy, 0, BIG, 0) == BIG);
    CHECK(has("past/copy", old, BIG, 0));
    FAILS(ioctl(copy, FICLONE, fd), EOPNOTSUPP);
    munmap(map, BIG), munmap(own, BIG);
    close(fd), close(copy);
}

static void refused(void)
{
    int flags = 0, fd = open(PAST "big", O_RDONLY);
    struct {
        struct file_handle handle;
        char bytes[64];
    } room = { .handle.handle_bytes = 64 };
    int mount;

    FAILS(open(PAST "big", O_WRONLY), EROFS);
    FAILS(open(PAST "big", O_RDWR), EROFS);
    FAILS(open(PAST "big", O_RDONLY | O_TRUNC), EROFS);
    FAILS(open(PAST "fixed", O_WRONLY), EROFS);
    FAILS(open(PAST "new", O_CREAT | O_WRONLY, 0600), EROFS);
    FAILS(open(PAST, O_TMPFILE | O_WRONLY, 0600), EROFS);
    FAILS(access(PAST "big", W_OK), EROFS);
    FAILS(truncate(PAST "big", 0), EROFS);
    FAILS(mkdir(PAST "new", 0700), EROFS);
    FAILS(mkdir(".snapshots/two", 0700), EROFS);
    FAILS(symlink("x", PAST "new"), EROFS);
    FAILS(mkfifo(PAST "new", 0600), EROFS);
    FAILS(unlink(PAST "big"), EROFS);
    FAILS(rmdir(PAST "d"), EROFS);
    FAILS(rmdir(".snapshots/one"), EROFS);
    FAILS(rmdir(".snapshots"), EROFS);
    FAILS(mkdir(".snapshots", 0700), EEXIST);
    FAILS(rename(PAST "big", PAST "new"), EROFS);
    FAILS(rename(PAST "big", "past/new"), EROFS);
    FAILS(rename("past/big", PAST "new"), EROFS);
    FAILS(rename(".snapshots", "past/new"), EROFS);
    FAILS(rename("past", ".snapshots"), EROFS);
    FAILS(link(PAST "big", PAST "new"), EROFS);
    FAILS(link("past/big", PAST "new"), EROFS);
    FAILS(link(PAST "big", "past/new"), EXDEV);
    FAILS(chmod(PAST "big", 0600), EROFS);
    FAILS(chmod(".snapshots", 0700), EROFS);
    FAILS(fchmod(fd, 0600), EROFS);
    FAILS(lchown(PAST "s", 1, 1), EROFS);
    FAILS(chown(PAST "fixed", 1, 1), EROFS);
    FAILS(utimensat(AT_FDCWD, PAST "big", NULL, 0), EROFS);
    FAILS(setxattr(PAST "big", "user.b", "", 0, 0), EROFS);
    FAILS(setxattr(PAST "big", "trusted.b", "", 0, 0), EROFS);
    FAILS(setxattr(".snapshots", "user.b", "", 0, 0), EROFS);
    FAILS(removexattr(PAST "big", "user.a"), EROFS);
    FAILS(setxattr(PAST "big", "system.posix_acl_access", &acl, sizeof(acl), 0), EROFS);
    FAILS(ioctl(fd, FS_IOC_SETFLAGS, &flags), EROFS);
    FAILS(ioctl(fd, SF_IOC_TRANSACT), ENOTTY);
    CHECK(name_to_handle_at(AT_FDCWD, PAST "big", &room.handle, &mount, 0) == 0);
    FAILS(open_by_handle_at(fd, &room.handle, O_RDONLY), ESTALE);
    CHECK(pread(fd, other, 10, 0) == 10 && !memcmp(other, old, 10) && close(fd) == 0);
}

/* Requests for reading that the device has finished. */
static long device_reads(void)
{
    struct stat st;
    char path[60];
    long reads = -1;

    CHECK(fstat(root, &st) == 0);
    sprintf(path, "/sys/dev/block/%u:%u/stat", major(st.st_dev), minor(st.st_dev));
    FILE *file = fopen(path, "r");
    CHECK(file && fscanf(file, "%ld", &reads) == 1);
    fclose(file);
    return reads;
}

/* Names that eight snapshots do not have are looked up in turns; each is known to be absent
 * then. */
static void look_in_turns(int round)
{
    char path[60];
    struct stat st;

    for (int i = 0; i < 8; i++) {
        sprintf(path, ".snapshots/many-%d/past/none-%d", i, round);
        FAILS(stat(path, &st), ENOENT);
    }
}

/* Snapshots that stay open need nothing of the device. Those that memory was taken from need it
 * again. */
static void stays_open(void)
{
    look_in_turns(0);
    long before = device_reads();
    for (int round = 1; round < 5; round++)
        look_in_turns(round);
    CHECK(device_reads() - before < 8);
    forget();
    before = device_reads();
    look_in_turns(5);
    CHECK(device_reads() - before >= 8);
}

/* Eight snapshots, each with its own content, read in turns past the cache. */
static void many(void)
{
    char name[20], path[60];
    int fds[8];

    for (int i = 0; i < 8; i++) {
        sprintf(name, "many-%d", i);
        sprintf(path, ".snapshots/%s/past/many", name);
        fill(buffer, 50000, 100 + i);
        put("past/many", buffer, 50000);
        CHECK(take(name) == 0 && (fds[i] = open(path, O_RDONLY | O_DIRECT)) >= 0);
    }
    CHECK(entries(".snapshots", NULL) == 11);
    stays_open();
    for (int i = 0; i < 24; i++) {
        if (i % 8 == 0)
            forget();
        fill(buffer, 50000, 100 + i * 3 % 8);
        CHECK(same(fds[i * 3 % 8], 0, buffer, 50000));
    }
    for (int i = 0; i < 8; i++) {
        sprintf(name, "many-%d", i);
        CHECK(drop(name) == 0);
        FAILS(pread(fds[i], other, 100, 0), ESTALE);
        close(fds[i]);
        forget();
        CHECK(entries(".snapshots/one", "past") == 1);
    }
}

static void deleted(void)
{
    int fd = open(PAST "big", O_RDONLY), dir = open(PAST, O_RDONLY | O_DIRECTORY);
    struct sf_ioc_rollback point = { .force = 1 };
    struct sf_ioc_snapshot to = { .name = "older", .flags = 3 };
    struct stat st;
    char text[20];

    CHECK(same(fd, 0, old, 5000) && chdir(PAST "d") == 0 && drop("one") == 0);
    FAILS(pread(fd, other, 10, 0), ESTALE);
    FAILS(fstat(fd, &st), ESTALE);
    FAILS(fgetxattr(fd, "user.a", text, 20), ESTALE);
    FAILS(openat(dir, "small", O_RDONLY), ESTALE);
    FAILS(readlinkat(dir, "s", text, 20), ESTALE);
    FAILS(syscall(SYS_getdents64, dir, other, 1000), ESTALE);
    FAILS(stat(".", &st), ESTALE);
    FAILS(open("linked", O_RDONLY), ESTALE);
    CHECK(fchdir(root) == 0);
    FAILS(stat(".snapshots/one", &st), ENOENT);
    /* Another one of the name, while files of the first are open. */
    CHECK(take("one") == 0 && has(PAST "big", now, BIG, 0) && stat(PAST "d", &st) == -1);
    FAILS(pread(fd, other, 10, 0), ESTALE);
    close(fd), close(dir);
    /* A rollback to a point leaves snapshots alone; one to a snapshot ends the newer ones. */
    CHECK(take("older") == 0 && take("newer") == 0);
    fd = open(".snapshots/newer/past/big", O_RDONLY);
    dir = open(".snapshots/older/past/big", O_RDONLY);
    CHECK(chdir(".snapshots") == 0 && ioctl(root, SF_IOC_ROLLBACK, &point) == 0);
    CHECK(same(fd, 0, now, BIG) && has("newer/past/big", now, BIG, 0) && fchdir(root) == 0);
    CHECK(has(".snapshots/newer/past/big", now, BIG, 0));
    CHECK(ioctl(root, SF_IOC_SNAPSHOT_ROLLBACK, &to) == 0);
    FAILS(pread(fd, other, 10, 0), ESTALE);
    FAILS(stat(".snapshots/newer", &st), ENOENT);
    CHECK(same(dir, 0, now, BIG) && entries(".snapshots", NULL) == 4);
    close(fd), close(dir);
}

/* Reads snapshots that come and go: either what was stored, or an error. */
static void look_for_ever(int child)
{
    char path[60];

    for (int n = child;; n++) {
        sprintf(path, ".snapshots/load-%d/past/load", n % 3);
        int fd = open(path, O_RDONLY | (n & 4 ? O_DIRECT : 0));
        ssize_t length = fd < 0 ? -1 : pread(fd, other, 40000, 0);
        if (length < 0 && errno != ENOENT && errno != ESTALE)
            printf("FAILED reader of %s: errno %d\n", path, errno);
        for (ssize_t at = 0; at < length; at++)
            if (other[at] != other[0] || length != 40000) {
                printf("FAILED reader of %s: wrong data at %zd\n", path, at);
                break;
            }
        if (fd >= 0)
            close(fd);
        errno = 0;
    }
}

/* A snapshot that is listed can be read, also while it is being taken. */
static void appear(void)
{
    char name[20];
    int ended;
    pid_t child = fork();

    while (!child)
        entries(".snapshots", NULL);
    for (int i = 0; i < 20; i++) {
        sprintf(name, "new-%d", i);
        put("past/new", name, strlen(name));
        CHECK(take(name) == 0);
    }
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &ended, 0) == child);
    for (int i = 0; i < 20; i++) {
        sprintf(name, "new-%d", i);
        CHECK(drop(name) == 0);
    }
}

/* More snapshots than stay open. */
static void more_than_stay_open(void)
{
    char name[20], path[60];
    int fds[40];

    for (int i = 0; i < 40; i++) {
        sprintf(name, "more-%d", i);
        sprintf(path, ".snapshots/%s/past/more", name);
        put("past/more", name, strlen(name));
        CHECK(take(name) == 0 && (fds[i] = open(path, O_RDONLY | O_DIRECT)) >= 0);
    }
    for (int i = 0; i < 120; i++) {
        sprintf(name, "more-%d", i * 7 % 40);
        CHECK(same(fds[i * 7 % 40], 0, name, strlen(name)));
    }
    for (int i = 0; i < 40; i++) {
        sprintf(name, "more-%d", i);
        CHECK(drop(name) == 0);
        FAILS(pread(fds[i], other, 1, 0), ESTALE);
        close(fds[i]);
    }
    CHECK(entries(".snapshots", NULL) == 3);
}

/* A name that no snapshot has stays absent while snapshots are taken and deleted. */
static void absent(void)
{
    volatile long *looked =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct stat st;
    pid_t child = fork();
    int ended;

    while (!child) {
        if (stat(".snapshots/none", &st) != -1 || errno != ENOENT)
            _exit(1);
        ++*looked;
    }
    for (int i = 0; i < 20; i++) {
        long count = *looked;
        CHECK(take("taken") == 0);
        while (*looked < count + 2 && !waitpid(child, NULL, WNOHANG))
            usleep(100);
        CHECK(drop("taken") == 0);
    }
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &ended, 0) == child && WIFSIGNALED(ended));
    CHECK(munmap((void *)looked, 4096) == 0);
}

static void under_load(void)
{
    pid_t children[3];
    char name[20];
    int ended;

    for (int i = 0; i < 3; i++)
        if (!(children[i] = fork()))
            look_for_ever(i);
    for (int i = 0; i < 60; i++) {
        sprintf(name, "load-%d", i % 3);
        memset(buffer, i, 40000);
        put("past/load", buffer, 40000);
        CHECK(take(name) == 0);
        usleep(20000);
        sprintf(name, "load-%d", (i + 1) % 3);
        CHECK(i < 2 || drop(name) == 0);
        /* Its blocks are used again. */
        CHECK(ioctl(root, SF_IOC_CHECKPOINT) == 0);
        if (i % 5 == 0)
            forget();
    }
    for (int i = 0; i < 3; i++)
        CHECK(kill(children[i], SIGKILL) == 0 && waitpid(children[i], &ended, 0) == children[i]);
    for (int i = 0; i < 3; i++) {
        sprintf(name, "load-%d", i);
        drop(name);
    }
    CHECK(drop("one") == 0 && drop("older") == 0 && entries(".snapshots", NULL) == 2);
}

int snapshots(void)
{
    root = open(".", O_RDONLY | O_DIRECTORY);
    make();
    shown();
    refused();
    many();
    more_than_stay_open();
    absent();
    deleted();
    appear();
    under_load();
    CHECK(close(root) == 0);
    return failures;
}
