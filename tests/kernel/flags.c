// Flags of files and directories (chattr): what the POSIX suite does not look at. These are what
// statx shows, descriptors and maps from before the flag, and the state after a remount.
#include "check.h"

#define FLAGGED (FS_IMMUTABLE_FL | FS_NODUMP_FL | FS_NOATIME_FL)

static int set(int fd, int flags)
{
    return ioctl(fd, FS_IOC_SETFLAGS, &flags);
}

static int get(int fd)
{
    int flags = -1;

    return ioctl(fd, FS_IOC_GETFLAGS, &flags) ? -1 : flags;
}

static unsigned long shown(const char *name)
{
    struct statx found;

    CHECK(statx(AT_FDCWD, name, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &found) == 0);
    CHECK(found.stx_attributes_mask & STATX_ATTR_NODUMP);
    return found.stx_attributes &
           (STATX_ATTR_IMMUTABLE | STATX_ATTR_APPEND | STATX_ATTR_NODUMP);
}

static void of_a_file(void)
{
    struct stat before, after;
    int status, fd = open("flagged", O_CREAT | O_RDWR, 0644);

    CHECK(get(fd) == 0 && shown("flagged") == 0);
    CHECK(write(fd, "dirty", 5) == 5);
    char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    map[0] = 'D';
    CHECK(fstat(fd, &before) == 0);
    usleep(20000);
    CHECK(set(fd, FLAGGED) == 0 && get(fd) == FLAGGED);
    CHECK(shown("flagged") == (STATX_ATTR_IMMUTABLE | STATX_ATTR_NODUMP));
    CHECK(fstat(fd, &after) == 0 && after.st_ctim.tv_nsec != before.st_ctim.tv_nsec);
    FAILS(pwrite(fd, "late", 4, 0), EPERM);
    FAILS(ftruncate(fd, 0), EPERM);
    FAILS(fallocate(fd, 0, 0, 4096), EPERM);
    pid_t child = fork();
    if (child == 0) {
        map[1] = 'L';
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) &&
          WTERMSIG(status) == SIGBUS);
    CHECK(munmap(map, 4096) == 0);
    FAILS(set(fd, FLAGGED | FS_COMPR_FL), EOPNOTSUPP);
    CHECK(get(fd) == FLAGGED && same(fd, 0, "Dirty", 5));
    CHECK(fsync(fd) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
    CHECK(same(fd, 0, "Dirty", 5));
    /* Times that the kernel keeps reach the core all the same. */
    CHECK(set(fd, FS_APPEND_FL) == 0 && shown("flagged") == STATX_ATTR_APPEND);
    close(fd);
    fd = open("flagged", O_WRONLY | O_APPEND);
    CHECK(write(fd, " more", 5) == 5 && fsync(fd) == 0);
    close(fd);
    sync();
    fd = open("flagged", O_RDONLY);
    CHECK(same(fd, 0, "Dirty more", 10) && set(fd, 0) == 0 && get(fd) == 0);
    close(fd);
    CHECK(unlink("flagged") == 0);
}

/* A write by a user takes set-id bits and capabilities from an append-only file, too. */
static void privileges(void)
{
    static const char capability[20] = { [3] = 2, [4] = 1 };
    struct stat st;
    int status, fd = open("set-id", O_CREAT | O_RDWR, 0666);

    CHECK(fchmod(fd, 06777) == 0 && fsetxattr(fd, "security.capability", capability, 20, 0) == 0);
    CHECK(set(fd, FS_APPEND_FL) == 0);
    pid_t child = fork();
    if (child == 0) {
        int own = open("set-id", O_WRONLY | O_APPEND);

        if (setgid(1234) || setuid(1234) || write(own, "x", 1) != 1)
            _exit(1);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(fstat(fd, &st) == 0 && (st.st_mode & 07777) == 0777 && st.st_size == 1);
    FAILS(fgetxattr(fd, "security.capability", NULL, 0), ENODATA);
    CHECK(set(fd, 0) == 0 && close(fd) == 0 && unlink("set-id") == 0);
}

int flags(void)
{
    int dir;

    of_a_file();
    privileges();
    CHECK(mkdir("flags-kept", 0755) == 0 && (dir = open("flags-kept", O_RDONLY)) >= 0);
    CHECK(close(creat("flags-kept/f", 0644)) == 0 && set(dir, FLAGGED) == 0);
    FAILS(unlink("flags-kept/f"), EPERM);
    CHECK(close(dir) == 0);
    sync();
    return failures;
}

/* After a remount. */
int flags_again(void)
{
    int dir = open("flags-kept", O_RDONLY);

    CHECK(get(dir) == FLAGGED);
    CHECK(shown("flags-kept") == (STATX_ATTR_IMMUTABLE | STATX_ATTR_NODUMP));
    FAILS(set(dir, 0), EROFS);
    close(dir);
    return failures;
}
