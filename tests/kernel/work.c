// The operations of the VFS on a mounted volume, each compared with what it must do. One line for
// each failure; the exit code is their number.
//
// - `work DIR` runs all;
// - `work again DIR` opens the handle of an earlier run;
// - `work full DIR` fills the volume;
// - `work write DIR FIRST` writes for ever and acknowledges what fsync has confirmed;
// - `work panic DIR` makes the core panic while others use it;
// - `work memory DIR` takes memory until the caches shrink;
// - `work tree DIR` shows all files below a directory.
//
// The last one is in tree.c, the four before it in load.c. What several processes do to one name is
// in race.c, what flags (chattr) refuse to descriptors and maps in flags.c, and what `.snapshots`
// shows and refuses in snapshots.c.
#include "check.h"

static ino_t number(const char *name)
{
    struct stat st;
    return lstat(name, &st) ? 0 : st.st_ino;
}

static int links(const char *name)
{
    struct stat st;
    return lstat(name, &st) ? -1 : (int)st.st_nlink;
}

static void names(void)
{
    char target[100] = "";
    struct stat st;

    CHECK(mkdir("d", 0755) == 0);
    FAILS(mkdir("d", 0755), EEXIST);
    CHECK(links("d") == 2);
    CHECK(mkdir("d/e", 0700) == 0 && links("d") == 3);
    FAILS(rmdir("d"), ENOTEMPTY);
    CHECK(close(open("d/f", O_CREAT | O_EXCL | O_WRONLY, 0640)) == 0);
    FAILS(open("d/f", O_CREAT | O_EXCL | O_WRONLY, 0640), EEXIST);
    CHECK(stat("d/f", &st) == 0 && (st.st_mode & 07777) == 0640 && st.st_size == 0);
    CHECK(link("d/f", "d/g") == 0 && links("d/g") == 2 && number("d/f") == number("d/g"));
    CHECK(symlink("f", "d/s") == 0 && readlink("d/s", target, 99) == 1 && target[0] == 'f');
    CHECK(number("d/s") != number("d/f"));
    CHECK(mkfifo("d/p", 0600) == 0 && lstat("d/p", &st) == 0 && S_ISFIFO(st.st_mode));
    CHECK(mknod("d/c", S_IFCHR | 0600, 0x1234567) == 0 && lstat("d/c", &st) == 0 &&
          st.st_rdev == 0x1234567);
    CHECK(rename("d/g", "d/h") == 0 && number("d/h") == number("d/f"));
    FAILS(rename("d/none", "d/x"), ENOENT);
    CHECK(close(creat("d/i", 0644)) == 0);
    CHECK(syscall(316, AT_FDCWD, "d/i", AT_FDCWD, "d/h", 1) == -1 && errno == EEXIST);
    ino_t i = number("d/i"), h = number("d/h");
    CHECK(syscall(316, AT_FDCWD, "d/i", AT_FDCWD, "d/h", 2) == 0);
    CHECK(number("d/i") == h && number("d/h") == i);
    CHECK(syscall(316, AT_FDCWD, "d/i", AT_FDCWD, "d/w", 4) == 0 && lstat("d/i", &st) == 0 &&
          S_ISCHR(st.st_mode) && st.st_rdev == 0);
    FAILS(rename("d", "d/e/d"), EINVAL);
    CHECK(rename("d/e", "e") == 0 && links("d") == 2 && rename("e", "d/e") == 0 && links("d") == 3);
    CHECK(rename("d/h", "d/f") == 0);
    FAILS(unlink("d/e"), EISDIR);
    FAILS(rmdir("d/f"), ENOTDIR);
    CHECK(rmdir("d/e") == 0 && links("d") == 2);
    memset(buffer, 'n', 256);
    buffer[256] = 0;
    FAILS(open(buffer, O_CREAT | O_WRONLY, 0644), ENAMETOOLONG);
}

static void directory(void)
{
    char name[40], seen[1000] = "";
    int dots = 0;
    struct dirent *entry;

    CHECK(mkdir("many", 0755) == 0);
    for (int i = 0; i < 1000; i++) {
        sprintf(name, "many/a rather long name %d", i);
        CHECK(close(creat(name, 0600)) == 0);
    }
    DIR *dir = opendir("many");
    while ((entry = readdir(dir))) {
        int i = atoi(strrchr(entry->d_name, ' ') ?: "");
        if (entry->d_name[0] == '.')
            dots++;
        else if (seen[i]++)
            CHECK(!"an entry twice");
        else
            CHECK(entry->d_type == DT_REG);
    }
    CHECK(dots == 2 && memchr(seen, 0, 1000) == NULL);
    /* Removing while reading, and a position that is taken up again. */
    rewinddir(dir);
    readdir(dir), readdir(dir), readdir(dir);
    long at = telldir(dir);
    entry = readdir(dir);
    strcpy(name, entry->d_name);
    seekdir(dir, at);
    CHECK(strcmp(readdir(dir)->d_name, name) == 0);
    rewinddir(dir);
    CHECK(chdir("many") == 0);
    while ((entry = readdir(dir)))
        if (entry->d_name[0] != '.')
            CHECK(unlink(entry->d_name) == 0);
    CHECK(chdir("..") == 0);
    closedir(dir);
    CHECK(rmdir("many") == 0);
}

static void data(void)
{
    struct stat st;
    int fd = open("data", O_CREAT | O_RDWR, 0644);

    fill(buffer, sizeof(buffer), 1);
    CHECK(pwrite(fd, buffer, 1 << 20, 0) == 1 << 20 && same(fd, 0, buffer, 1 << 20));
    CHECK(fsync(fd) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
    CHECK(same(fd, 0, buffer, 1 << 20));
    CHECK(pwrite(fd, "in the middle", 13, 4090) == 13 && same(fd, 4090, "in the middle", 13));
    CHECK(fsync(fd) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
    memcpy(buffer + 4090, "in the middle", 13);
    CHECK(same(fd, 0, buffer, 1 << 20));
    CHECK(ftruncate(fd, 5000) == 0 && fstat(fd, &st) == 0 && st.st_size == 5000);
    CHECK(ftruncate(fd, 20000) == 0);
    memset(buffer + 5000, 0, 15000);
    CHECK(same(fd, 0, buffer, 20000));
    CHECK(pwrite(fd, "far", 3, 10 << 20) == 3 && fsync(fd) == 0);
    CHECK(lseek(fd, 0, SEEK_HOLE) <= 8192 && lseek(fd, 100000, SEEK_DATA) == 10 << 20);
    FAILS(lseek(fd, 11 << 20, SEEK_DATA), ENXIO);
    CHECK(fallocate(fd, 0, 1 << 20, 1 << 20) == 0 && fstat(fd, &st) == 0);
    CHECK(st.st_blocks >= (1 << 20) / 512);
    CHECK(fallocate(fd, FALLOC_FL_KEEP_SIZE, 12 << 20, 4096) == 0 && fstat(fd, &st) == 0 &&
          st.st_size == (10 << 20) + 3);
    CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 100, 200) == 0);
    memset(buffer + 100, 0, 200);
    CHECK(same(fd, 0, buffer, 20000));
    CHECK(fallocate(fd, FALLOC_FL_ZERO_RANGE, 4000, 300) == 0);
    memset(buffer + 4000, 0, 300);
    CHECK(same(fd, 0, buffer, 20000));
    close(fd);
    fd = open("data", O_WRONLY | O_APPEND);
    CHECK(write(fd, "end", 3) == 3 && fstat(fd, &st) == 0 && st.st_size == (10 << 20) + 6);
    close(fd);
    CHECK(truncate("data", 0) == 0 && stat("data", &st) == 0 && st.st_size == 0);
    /* O_DIRECT beside the page cache. */
    char *aligned = aligned_alloc(4096, 65536);
    fill(aligned, 65536, 7);
    fd = open("direct", O_CREAT | O_RDWR | O_DIRECT, 0644);
    int cached = open("direct", O_RDWR);
    CHECK(pwrite(cached, "cached", 6, 0) == 6);
    CHECK(pwrite(fd, aligned, 65536, 4096) == 65536 && same(cached, 4096, aligned, 65536));
    CHECK(pwrite(cached, "again", 5, 4096) == 5 && pread(fd, other, 4096, 4096) == 4096);
    CHECK(!memcmp(other, "again", 5) && !memcmp(other + 5, aligned + 5, 4091));
    CHECK(pwrite(fd, aligned + 1, 333, 777) == 333 && same(cached, 777, aligned + 1, 333));
    CHECK(pread(fd, other, 99, 801) == 99 && !memcmp(other, aligned + 25, 99));
    close(fd), close(cached), free(aligned);
}

static void maps(void)
{
    int fd = open("map", O_CREAT | O_RDWR, 0644);

    CHECK(ftruncate(fd, 100000) == 0);
    char *map = mmap(NULL, 100000, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED);
    fill(map, 100000, 3);
    fill(buffer, 100000, 3);
    CHECK(same(fd, 0, buffer, 100000));
    CHECK(msync(map, 100000, MS_SYNC) == 0);
    CHECK(pwrite(fd, "by write", 8, 50000) == 8 && !memcmp(map + 50000, "by write", 8));
    map[50000] = 'B';
    CHECK(munmap(map, 100000) == 0 && fsync(fd) == 0);
    CHECK(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0 && same(fd, 50000, "By write", 8));
    close(fd);
}

/* Each way in which a file of 100 bytes becomes longer within or past its only page. */
static int lengthen(int way, int fd, int from)
{
    loff_t a = 0, b = 250;

    switch (way) {
    case 0:
        return ftruncate(fd, 300);
    case 1:
        return pwrite(fd, "y", 1, 299) == 1 ? 0 : -1;
    case 2:
        return pwrite(fd, "y", 1, 8192) == 1 ? 0 : -1;
    case 3:
        return fallocate(fd, 0, 250, 50);
    default:
        return copy_file_range(from, &a, fd, &b, 50, 0) == 50 ? 0 : -1;
    }
}

/* What a program stores through a map past the end is no data: the file becomes longer by zeros,
 * in the page cache and in the volume. */
static void past_the_end(void)
{
    int from = open("tail-source", O_CREAT | O_RDWR, 0644);

    fill(buffer, 4096, 13);
    CHECK(write(from, buffer, 50) == 50);
    for (int way = 0; way < 5; way++) {
        int fd = open("tail", O_CREAT | O_TRUNC | O_RDWR, 0644);
        char zeros[149] = "";

        CHECK(write(fd, buffer, 100) == 100);
        char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        map[200] = 'x';
        CHECK(lengthen(way, fd, from) == 0 && map[200] == 0);
        CHECK(same(fd, 0, buffer, 100) && same(fd, 100, zeros, 149));
        CHECK(munmap(map, 4096) == 0 && fsync(fd) == 0);
        CHECK(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0 && same(fd, 100, zeros, 149));
        close(fd);
    }
    close(from);
    CHECK(unlink("tail-source") == 0 && unlink("tail") == 0);
}

static void removed(void)
{
    struct stat st;
    char path[64];
    int fd = open("gone", O_CREAT | O_RDWR, 0644);

    fill(buffer, 300000, 9);
    CHECK(write(fd, buffer, 300000) == 300000 && unlink("gone") == 0);
    sync();
    CHECK(fstat(fd, &st) == 0 && st.st_nlink == 0 && same(fd, 0, buffer, 300000));
    CHECK(write(fd, "more", 4) == 4 && fsync(fd) == 0 && same(fd, 300000, "more", 4));
    close(fd);
    fd = open(".", O_TMPFILE | O_RDWR, 0600);
    CHECK(fd >= 0 && write(fd, "unnamed", 7) == 7 && fstat(fd, &st) == 0 && st.st_nlink == 0);
    sprintf(path, "/proc/self/fd/%d", fd);
    CHECK(linkat(AT_FDCWD, path, AT_FDCWD, "named", AT_SYMLINK_FOLLOW) == 0);
    CHECK(links("named") == 1 && same(fd, 0, "unnamed", 7));
    close(fd);
    CHECK(mkdir("left", 0755) == 0 && chdir("left") == 0 && rmdir("../left") == 0);
    FAILS(creat("x", 0644), ENOENT);
    CHECK(chdir("/mnt") == 0);
}

static void attributes(void)
{
    struct stat st;
    struct statx sx;
    struct timespec times[2] = { { 1000, 123456789 }, { -5, 1 } };
    char value[70000];

    CHECK(close(creat("attr", 0644)) == 0 && chmod("attr", 04711) == 0);
    CHECK(chown("attr", 12, 34) == 0 && stat("attr", &st) == 0 && st.st_uid == 12);
    CHECK(utimensat(AT_FDCWD, "attr", times, 0) == 0 && stat("attr", &st) == 0);
    CHECK(st.st_atim.tv_nsec == 123456789 && st.st_mtim.tv_sec == -5 && st.st_mtim.tv_nsec == 1);
    CHECK(statx(AT_FDCWD, "attr", 0, STATX_BTIME, &sx) == 0 && (sx.stx_mask & STATX_BTIME) &&
          sx.stx_btime.tv_sec > 1500000000);
    CHECK(setxattr("attr", "user.a", "value", 5, XATTR_CREATE) == 0);
    FAILS(setxattr("attr", "user.a", "x", 1, XATTR_CREATE), EEXIST);
    FAILS(setxattr("attr", "user.b", "x", 1, XATTR_REPLACE), ENODATA);
    CHECK(getxattr("attr", "user.a", value, 100) == 5 && !memcmp(value, "value", 5));
    FAILS(getxattr("attr", "user.a", value, 2), ERANGE);
    CHECK(setxattr("attr", "trusted.t", "", 0, 0) == 0);
    CHECK(setxattr("attr", "security.s", "1", 1, 0) == 0);
    CHECK(listxattr("attr", value, 1000) == 7 + 10 + 11);
    fill(value, 60000, 5);
    CHECK(setxattr("attr", "user.big", value, 60000, 0) == 0);
    CHECK(getxattr("attr", "user.big", buffer, 65536) == 60000 && !memcmp(value, buffer, 60000));
    CHECK(removexattr("attr", "user.big") == 0);
    FAILS(removexattr("attr", "user.big"), ENODATA);
    /* user::rw-, user:7:r--, group::r--, mask::r--, other::--- */
    static const unsigned acl[] = { 2, 6u << 16 | 1, -1u, 4u << 16 | 2, 7, 4u << 16 | 4, -1u,
                                    4u << 16 | 16, -1u, 0u << 16 | 32, -1u };
    CHECK(setxattr("attr", "system.posix_acl_access", acl, sizeof(acl), 0) == 0);
    CHECK(stat("attr", &st) == 0 && (st.st_mode & 0777) == 0640);
    CHECK(chmod("attr", 0600) == 0);
    CHECK(getxattr("attr", "system.posix_acl_access", value, 100) == 44);
    CHECK(value[4 + 3 * 8 + 2] == 0);
    CHECK(mkdir("acl", 0755) == 0);
    CHECK(setxattr("acl", "system.posix_acl_default", acl, sizeof(acl), 0) == 0);
    CHECK(close(creat("acl/f", 0666)) == 0);
    CHECK(stat("acl/f", &st) == 0 && (st.st_mode & 0777) == 0640);
    CHECK(getxattr("acl/f", "system.posix_acl_access", value, 100) == 44);
    CHECK(setxattr("acl", "system.posix_acl_default", "", 0, 0) == -1 ||
          getxattr("acl", "system.posix_acl_default", value, 100) == -1);
}

static void handles(void)
{
    struct { struct file_handle h; char bytes[128]; } handle = { .h.handle_bytes = 128 };
    int mount, fd, dir = open("/mnt", O_RDONLY | O_DIRECTORY);

    CHECK(name_to_handle_at(AT_FDCWD, "attr", &handle.h, &mount, 0) == 0);
    CHECK((fd = open_by_handle_at(dir, &handle.h, O_RDONLY)) >= 0);
    struct stat a, b;
    CHECK(fstat(fd, &a) == 0 && stat("attr", &b) == 0 && a.st_ino == b.st_ino);
    close(fd);
    /* `work again` opens it after a remount. */
    int saved = creat("/handle", 0600);
    CHECK(write(saved, &handle, sizeof(handle)) == sizeof(handle) && close(saved) == 0);
    CHECK(close(creat("short", 0644)) == 0);
    handle.h.handle_bytes = 128;
    CHECK(name_to_handle_at(AT_FDCWD, "short", &handle.h, &mount, 0) == 0 && unlink("short") == 0);
    FAILS(open_by_handle_at(dir, &handle.h, O_RDONLY), ESTALE);
    close(dir);
}

static int handle_again(void)
{
    struct { struct file_handle h; char bytes[128]; } handle;
    int fd, saved = open("/handle", O_RDONLY), dir = open("/mnt", O_RDONLY | O_DIRECTORY);
    struct stat a, b;

    CHECK(read(saved, &handle, sizeof(handle)) == sizeof(handle));
    CHECK((fd = open_by_handle_at(dir, &handle.h, O_RDONLY)) >= 0);
    CHECK(fstat(fd, &a) == 0 && stat("attr", &b) == 0 && a.st_ino == b.st_ino);
    char got[FSLABEL_MAX];
    CHECK(ioctl(dir, FS_IOC_GETFSLABEL, got) == 0 && !strcmp(got, "kernel"));
    FAILS(ioctl(dir, FS_IOC_SETFSLABEL, "read-only"), EROFS);
    return failures + flags_again();
}

static void sharing(void)
{
    struct { struct file_dedupe_range range; struct file_dedupe_range_info info; } same_range = {
        .range = { .src_length = 491520, .dest_count = 1 } };
    int from = open("from", O_CREAT | O_RDWR, 0644), to = open("to", O_CREAT | O_RDWR, 0644);
    loff_t a = 0, b = 0;

    fill(buffer, 500000, 11);
    CHECK(write(from, buffer, 500000) == 500000);
    CHECK(copy_file_range(from, &a, to, &b, 500000, 0) == 500000 && same(to, 0, buffer, 500000));
    CHECK(pwrite(from, "changed", 7, 0) == 7 && same(to, 0, buffer, 500000));
    CHECK(ftruncate(to, 0) == 0 && ioctl(to, FICLONE, from) == 0 && same(to, 0, "changed", 7));
    CHECK(same(to, 7, buffer + 7, 499993));
    CHECK(ftruncate(to, 0) == 0 && pwrite(to, buffer, 500000, 0) == 500000);
    same_range.info.dest_fd = to;
    CHECK(ioctl(from, FIDEDUPERANGE, &same_range) == 0);
    CHECK(same_range.info.status == FILE_DEDUPE_RANGE_DIFFERS);
    CHECK(pwrite(to, "changed", 7, 0) == 7 && ioctl(from, FIDEDUPERANGE, &same_range) == 0);
    CHECK(same_range.info.status == 0 && same_range.info.bytes_deduped == 491520);
    CHECK(same(to, 7, buffer + 7, 499993));
    close(from), close(to);
}

static void commands(void)
{
    int dir = open("/mnt", O_RDONLY | O_DIRECTORY);
    unsigned mask[2];
    unsigned char info[304];

    CHECK(ioctl(dir, _IO(0xd5, 1)) == 0 && ioctl(dir, _IO(0xd5, 6)) == 0);
    CHECK(ioctl(dir, 0x8008d503, mask) == 0 && mask[1] == 5000);
    mask[1] = 4000;
    CHECK(ioctl(dir, 0x4008d504, mask) == 0);
    CHECK(ioctl(dir, 0x8008d503, mask) == 0 && mask[1] == 4000);
    CHECK(ioctl(dir, 0x8130d505, info) == 0 && *(unsigned *)(info + 4) == 4096);
    FAILS(ioctl(dir, _IO(0xd5, 99)), ENOTTY);
    CHECK(syncfs(dir) == 0 && fsync(dir) == 0);
    /* Changes that no transaction point covers: sync and a freeze leave none. */
#define UNCOMMITTED (ioctl(dir, 0x8130d505, info) ? -1L : *(long *)(info + 152))
    CHECK(mkdir("point", 0755) == 0 && UNCOMMITTED > 0);
    sync();
    CHECK(UNCOMMITTED == 0);
    CHECK(rmdir("point") == 0 && UNCOMMITTED > 0 && ioctl(dir, FIFREEZE, 0) == 0);
    CHECK(UNCOMMITTED == 0 && ioctl(dir, FITHAW, 0) == 0);
    close(dir);
}

static void label(void)
{
    int dir = open("/mnt", O_RDONLY | O_DIRECTORY);
    char text[FSLABEL_MAX] = "kernel", got[FSLABEL_MAX];

    memset(got, 'x', sizeof(got));
    CHECK(ioctl(dir, FS_IOC_SETFSLABEL, text) == 0 && ioctl(dir, FS_IOC_GETFSLABEL, got) == 0);
    CHECK(!memcmp(got, text, sizeof(got)));
    memset(text, 'y', 33);
    FAILS(ioctl(dir, FS_IOC_SETFSLABEL, text), EINVAL);
    memset(text, 'y', sizeof(text));
    FAILS(ioctl(dir, FS_IOC_SETFSLABEL, text), EINVAL);
    FAILS(ioctl(dir, FS_IOC_SETFSLABEL, "\xff"), EINVAL);
    FAILS(ioctl(dir, FS_IOC_SETFSLABEL, NULL), EFAULT);
    if (!fork()) {
        CHECK(setuid(1000) == 0);
        FAILS(ioctl(dir, FS_IOC_SETFSLABEL, "user"), EPERM);
        _exit(failures != 0);
    }
    int status;
    CHECK(wait(&status) > 0 && status == 0 && ioctl(dir, FS_IOC_GETFSLABEL, got) == 0);
    CHECK(!strcmp(got, "kernel"));
    close(dir);
}

/* The extents of a file from `start` on, at most 8. */
static struct { struct fiemap map; struct fiemap_extent extents[8]; } found;

static unsigned extents(int fd, unsigned long start, unsigned long length, unsigned flags)
{
    memset(&found, 0, sizeof(found));
    found.map = (struct fiemap){ start, length, flags, 0, 8, 0 };
    return ioctl(fd, FS_IOC_FIEMAP, &found) ? -1 : found.map.fm_mapped_extents;
}

static int extent(int n, unsigned long at, unsigned long length, unsigned flags)
{
    struct fiemap_extent *e = &found.extents[n];
    if (e->fe_logical == at && e->fe_length == length && e->fe_flags == flags)
        return flags & FIEMAP_EXTENT_DATA_INLINE || e->fe_physical % 4096 == 0;
    printf("extent %d: %llu + %llu, flags %x\n", n, e->fe_logical, e->fe_length, e->fe_flags);
    return 0;
}

static void where(void)
{
    const unsigned last = FIEMAP_EXTENT_LAST, shared = FIEMAP_EXTENT_SHARED;
    int fd = open("where", O_CREAT | O_RDWR, 0644), clone = open("clone", O_CREAT | O_RDWR, 0644);

    fill(buffer, 1 << 20, 17);
    CHECK(extents(fd, 0, -1, 0) == 0);
    CHECK(ftruncate(fd, 100) == 0 && extents(fd, 0, -1, 0) == 0);
    CHECK(pwrite(fd, "inline", 6, 0) == 6 && extents(fd, 0, -1, 0) == 1);
    CHECK(extent(0, 0, 100, last | FIEMAP_EXTENT_DATA_INLINE | FIEMAP_EXTENT_NOT_ALIGNED));
    CHECK(extents(fd, 50, 10, 0) == 1 && extent(0, 0, 100, found.extents[0].fe_flags));
    CHECK(extents(fd, 100, -1, 0) == 0 && extents(fd, 4096, -1, 0) == 0);
    /* Data that is only in memory so far, a hole, unwritten blocks, and some past the end. */
    CHECK(pwrite(fd, buffer, 1 << 20, 0) == 1 << 20 && fallocate(fd, 0, 2 << 20, 65536) == 0);
    CHECK(fallocate(fd, FALLOC_FL_KEEP_SIZE, 3 << 20, 4096) == 0);
    CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 65536, 4096) == 0);
    CHECK(extents(fd, 0, -1, FIEMAP_FLAG_SYNC) >= 4);
    unsigned n = found.map.fm_mapped_extents;
    CHECK(extent(0, 0, 65536, 0) && found.extents[1].fe_logical == 69632);
    CHECK(extent(n - 2, 2 << 20, 65536, FIEMAP_EXTENT_UNWRITTEN));
    CHECK(extent(n - 1, 3 << 20, 4096, FIEMAP_EXTENT_UNWRITTEN | last));
    for (unsigned i = 1; i < n - 2; i++)
        CHECK(found.extents[i].fe_flags == 0);
    /* A part: from within an extent, and not to the last one. */
    CHECK(extents(fd, 8192, 4096, 0) == 1 && extent(0, 0, 65536, 0));
    CHECK(extents(fd, 65536, 4096, 0) == 0 && extents(fd, 4 << 20, -1, 0) == 0);
    found.map = (struct fiemap){ 0, -1UL, 0, 0, 0, 0 };
    CHECK(ioctl(fd, FS_IOC_FIEMAP, &found) == 0 && found.map.fm_mapped_extents == n);
    found.map = (struct fiemap){ 0, -1UL, 0, 0, 2, 0 };
    CHECK(ioctl(fd, FS_IOC_FIEMAP, &found) == 0 && found.map.fm_mapped_extents == 2);
    CHECK(!(found.extents[1].fe_flags & last));
    CHECK(extents(fd, 0, -1, FIEMAP_FLAG_XATTR) == -1u && errno == EBADR);
    /* Blocks that two files share, and one that the clone has written again. */
    CHECK(ioctl(clone, FICLONE, fd) == 0 && pwrite(clone, buffer, 4096, 0) == 4096);
    CHECK(extents(clone, 0, 4096, 0) == 1 && !(found.extents[0].fe_flags & shared));
    CHECK(extents(clone, 4096, 4096, 0) == 1 && (found.extents[0].fe_flags & shared));
    close(fd), close(clone);
    CHECK(unlink("where") == 0 && unlink("clone") == 0);
}

/* Transaction points of one write to `fd`, and of an fsync, under a mask of one event. */
static void events(int dir, int fd, unsigned event, long of_write, long of_fsync)
{
    unsigned mask[2], before[2] = { event, 5000 };
    unsigned char info[304];
#define POINTS (ioctl(dir, 0x8130d505, info) ? -1L : *(long *)(info + 128))
    CHECK(ioctl(dir, 0x8008d503, mask) == 0 && ioctl(dir, 0x4008d504, before) == 0);
    long points = POINTS;
    CHECK(pwrite(fd, "by itself", 9, 0) == 9 && POINTS == points + of_write);
    points = POINTS;
    CHECK(pwrite(fd, "and more", 8, 9) == 8 && POINTS == points + of_write);
    points = POINTS;
    CHECK(close(creat("of-fsync", 0600)) == 0 && fsync(fd) == 0 && POINTS == points + of_fsync);
    CHECK(ioctl(dir, 0x4008d504, mask) == 0);
}

/* A synchronous write and an fsync are events of their own. */
static void synchronous(void)
{
    static const int flags[] = { 0, O_SYNC, O_DSYNC, O_DSYNC | O_DIRECT };
    int dir = open("/mnt", O_RDONLY | O_DIRECTORY);

    for (int i = 0; i < 4; i++) {
        int fd = open("synchronous", O_CREAT | O_RDWR | flags[i], 0644);
        events(dir, fd, 1 << 11, i > 0, 0);
        events(dir, fd, 1 << 13, 0, 1);
        close(fd);
    }
    close(dir);
}

/* A change of no option by fsconfig(2), as of mount(8) since util-linux 2.39. */
static int reconfigure(void)
{
    int context = syscall(SYS_fspick, AT_FDCWD, ".", 0);

    return context < 0 || syscall(SYS_fsconfig, context, 7 /* FSCONFIG_CMD_RECONFIGURE */, 0, 0, 0);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    umask(022);
    if (chdir(argv[argc > 2 ? 2 : 1]))
        return 99;
    if (argc > 3)
        write_for_ever(atoi(argv[3]));
    if (argc > 2 && argv[1][0] == 'a')
        return handle_again();
    if (argc > 2 && argv[1][0] == 'r')
        return reconfigure();
    if (argc > 2 && argv[1][0] == 'p')
        return panic();
    if (argc > 2 && argv[1][0] == 'm')
        return take_memory();
    if (argc > 2 && argv[1][0] == 't')
        return tree();
    if (argc > 2)
        return fill_up();
    names();
    directory();
    data();
    maps();
    past_the_end();
    removed();
    attributes();
    handles();
    sharing();
    commands();
    synchronous();
    label();
    where();
    return failures + flags() + race() + rollback() + snapshots();
}
