// Loads of the guest: a full volume, writing until the power goes, a panic of the core, and little
// memory.
#include "check.h"

/* Fills the volume: write reports it, and what was accepted is there. */
int fill_up(void)
{
    char name[40];
    long long accepted[1000];
    int files = 0, full = 0;
    struct statfs fs;

    fill(buffer, sizeof(buffer), 21);
    int hole = open("hole", O_CREAT | O_RDWR, 0644), status;
    CHECK(ftruncate(hole, 4 << 20) == 0);
    for (; !full && files < 1000; files++) {
        sprintf(name, "full%d", files);
        int fd = open(name, O_CREAT | O_RDWR, 0644);
        accepted[files] = 0;
        while (fd >= 0 && accepted[files] < 3 << 20) {
            ssize_t done = write(fd, buffer, 100000);
            if (done < 0) {
                CHECK(errno == ENOSPC);
                full = 1;
                break;
            }
            accepted[files] += done;
        }
        if (fd < 0) {
            CHECK(errno == ENOSPC);
            full = 1;
        } else {
            CHECK(close(fd) == 0);
        }
    }
    sync();
    /* A store into a map has no room: a signal, and no data that is lost later. */
    if (!fork()) {
        char *map = mmap(NULL, 4 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, hole, 0);
        memset(map, 1, 4 << 20);
        _exit(0);
    }
    CHECK(wait(&status) > 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
    CHECK(fsync(hole) == 0);
    CHECK(full && statfs(".", &fs) == 0);
    printf("full: %d files, %llu blocks left\n", files, (unsigned long long)fs.f_bavail);
    for (int i = 0; i < files; i++) {
        struct stat st;
        sprintf(name, "full%d", i);
        int fd = open(name, O_RDWR);
        if (fd < 0)
            continue;
        /* The page cache is of no help here. */
        CHECK(fsync(fd) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
        CHECK(fstat(fd, &st) == 0 && st.st_size == accepted[i]);
        for (long long at = 0; at < accepted[i]; at += 100000)
            CHECK(same(fd, at, buffer, accepted[i] - at < 100000 ? accepted[i] - at : 100000));
        if (i < 5)
            CHECK(pwrite(fd, buffer, 4096, 8192) == 4096 && fsync(fd) == 0);
        close(fd);
    }
    for (int i = 0; i < files; i++) {
        sprintf(name, "full%d", i);
        CHECK(unlink(name) == 0 || errno == ENOENT);
    }
    int fd = creat("after", 0644);
    CHECK(fd >= 0 && write(fd, buffer, 1 << 20) == 1 << 20 && fsync(fd) == 0 && close(fd) == 0);
    return failures;
}

/* File N has 12,000 bytes of the number; the last 50 stay. */
void write_for_ever(int n)
{
    char name[40], text[12000];

    for (;; n++) {
        sprintf(name, "n%d", n - 50);
        unlink(name);
        sprintf(name, "n%d", n);
        for (size_t i = 0; i + 10 <= sizeof(text); i += 10)
            sprintf(text + i, "%9d", n), text[i + 9] = '\n';
        int fd = creat(name, 0644);
        if (fd < 0 || write(fd, text, sizeof(text)) != sizeof(text) || fsync(fd) || close(fd)) {
            printf("FAILED to write: errno %d\n", errno);
            exit(1);
        }
        printf("ACK %d\n", n);
        fflush(stdout);
    }
}

/* Several processes work while one makes the core panic: all of them end with EIO. */
int panic(void)
{
    int dir = open(".", O_RDONLY | O_DIRECTORY), status;
    char name[40];

    for (int i = 0; i < 4; i++) {
        if (fork())
            continue;
        for (int n = 0;; n++) {
            sprintf(name, "p%d-%d", i, n);
            int fd = creat(name, 0644);
            if (fd < 0 || fsync(fd) || close(fd))
                _exit(errno == EIO ? 0 : 1);
        }
    }
    usleep(300000);
    CHECK(ioctl(dir, _IO(0xd5, 0xff)) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(wait(&status) > 0 && status == 0);
    FAILS(mkdir("after", 0755), EIO);
    FAILS(fsync(dir), EIO);
    return failures;
}

static long pages_given_back(void)
{
    char text[32] = "";
    int fd = open("/sys/module/steadfast/parameters/given_back", O_RDONLY);
    CHECK(fd >= 0 && read(fd, text, 31) > 0 && close(fd) == 0);
    return atol(text);
}

/* Takes memory, a MiB at a time, until the core has given 100 pages back. */
int take_memory(void)
{
    long before = pages_given_back();

    for (int n = 0; n < 128 && pages_given_back() < before + 100; n++) {
        char *map = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(map != MAP_FAILED);
        memset(map, n + 1, 1 << 20);
    }
    return failures;
}
