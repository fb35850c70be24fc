// Going back to a transaction point or a snapshot, and changes of several files as one, by the
// ioctls of steadfast-ioctl.h.
#include "check.h"

#include "steadfast-ioctl.h"

static int root;

static void put(const char *name, const char *text)
{
    int fd = open(name, O_CREAT | O_TRUNC | O_WRONLY, 0644);

    CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text) && close(fd) == 0);
}

static int has(const char *name, const char *text)
{
    char data[64] = "";
    int fd = open(name, O_RDONLY);
    int found = fd >= 0 && read(fd, data, 63) >= 0 && !strcmp(data, text);

    close(fd);
    return found;
}

static int is_listed(const char *in, const char *name)
{
    DIR *dir = opendir(in);
    struct dirent *entry;
    int found = 0;

    while ((entry = readdir(dir)))
        found |= !strcmp(entry->d_name, name);
    closedir(dir);
    return found;
}

static void to_a_point(void)
{
    struct sf_ioc_rollback argument = { 0 };
    char data[10];
    struct stat st;

    CHECK(mkdir("back", 0755) == 0 && mkdir("back/in", 0755) == 0);
    put("back/kept", "one");
    put("back/removed", "one");
    put("back/moved", "one");
    put("back/linked", "one");
    CHECK(ioctl(root, SF_IOC_TRANSACT) == 0);
    put("back/kept", "two");
    put("back/new", "two");
    CHECK(unlink("back/removed") == 0 && rename("back/moved", "back/in/moved") == 0);
    CHECK(link("back/linked", "back/link") == 0 && chmod("back", 0700) == 0);
    CHECK(access("back/removed", F_OK) == -1);
    int reads = open("back/kept", O_RDONLY), dir = open("back", O_RDONLY | O_DIRECTORY);
    int writes = open("back/new", O_RDWR), gone = open("back/linked", O_RDWR);
    char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, gone, 0);
    map[0] = 'x';
    CHECK(unlink("back/linked") == 0 && unlink("back/link") == 0);
    CHECK(mkdir("back/later", 0755) == 0 && chdir("back/later") == 0);
    FAILS(ioctl(root, SF_IOC_ROLLBACK, &argument), EBUSY);
    CHECK(has("/mnt/back/kept", "two") && pwrite(writes, "2", 1, 0) == 1);
    argument.force = 1;
    CHECK(ioctl(root, SF_IOC_ROLLBACK, &argument) == 0);
    /* What is open is cut off; the directories are in the state of the point. */
    FAILS(read(reads, data, 10), ESTALE);
    FAILS(pwrite(writes, "x", 1, 0), ESTALE);
    FAILS(fsync(gone), ESTALE);
    FAILS(ftruncate(gone, 100), ESTALE);
    FAILS(creat("here", 0644), ENOENT);
    CHECK(faccessat(dir, "new", F_OK, 0) == -1 && faccessat(dir, "removed", F_OK, 0) == 0);
    CHECK(fstat(dir, &st) == 0 && (st.st_mode & 0777) == 0755 && st.st_nlink == 3);
    munmap(map, 4096);
    close(reads), close(writes), close(gone), close(dir);
    CHECK(chdir("/mnt") == 0);
    CHECK(has("back/kept", "one") && has("back/removed", "one") && has("back/moved", "one"));
    CHECK(has("back/linked", "one") && access("back/link", F_OK) == -1);
    CHECK(access("back/new", F_OK) == -1 && access("back/in/moved", F_OK) == -1);
    CHECK(!is_listed("back", "later") && is_listed("back", "moved"));
    /* Life goes on, and a second rollback without open files needs no force. */
    put("back/new", "three");
    argument.force = 0;
    CHECK(has("back/new", "three") && ioctl(root, SF_IOC_ROLLBACK, &argument) == 0);
    CHECK(access("back/new", F_OK) == -1 && has("back/kept", "one"));
}

static void together(void)
{
    int control = open(SF_CONTROL_FILE, O_RDONLY), second = open(SF_CONTROL_FILE, O_RDONLY), fd;
    struct sf_ioc_atomic status = { 0 };
    struct sf_ioc_rollback argument = { 0 };
    int waits[2], ended;

    CHECK(control >= 0 && !is_listed(".", SF_CONTROL_FILE));
    FAILS(ioctl(control, SF_IOC_ATOMIC_COMMIT), EINVAL);
    CHECK(ioctl(control, SF_IOC_ATOMIC_BEGIN) == 0);
    FAILS(ioctl(second, SF_IOC_ATOMIC_BEGIN), EALREADY);
    FAILS(ioctl(second, SF_IOC_ATOMIC_COMMIT), EINVAL);
    FAILS(ioctl(root, SF_IOC_ROLLBACK, &argument), EALREADY);
    FAILS(ioctl(root, SF_IOC_TRANSACT), EALREADY);
    CHECK(ioctl(root, SF_IOC_ATOMIC_STATUS, &status) == 0 && status.flags == 1);
    CHECK(status.process == (unsigned)getpid());
    put("back/kept", "four");
    put("back/together", "four");
    fd = open("back/kept", O_RDWR);
    CHECK(fsync(fd) == 0 && close(fd) == 0);
    CHECK(ioctl(control, SF_IOC_ATOMIC_COMMIT) == 0);
    put("back/kept", "five");
    CHECK(ioctl(root, SF_IOC_ROLLBACK, &argument) == 0);
    CHECK(has("back/kept", "four") && has("back/together", "four"));
    CHECK(ioctl(root, SF_IOC_ATOMIC_STATUS, &status) == 0 && status.flags == 0);
    /* Abort, with the descriptors of this program open. */
    CHECK(ioctl(second, SF_IOC_ATOMIC_BEGIN) == 0 && unlink("back/together") == 0);
    CHECK(ioctl(second, SF_IOC_ATOMIC_ABORT) == 0 && has("back/together", "four"));
    /* A program that is killed in between. */
    CHECK(close(control) == 0 && close(second) == 0 && pipe(waits) == 0);
    pid_t child = fork();
    if (!child) {
        fd = open(SF_CONTROL_FILE, O_RDONLY);
        CHECK(ioctl(fd, SF_IOC_ATOMIC_BEGIN) == 0);
        put("back/kept", "six");
        CHECK(write(waits[1], "x", 1) == 1);
        pause();
    }
    CHECK(read(waits[0], other, 1) == 1 && has("back/kept", "six"));
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &ended, 0) == child);
    CHECK(has("back/kept", "four"));
    close(waits[0]), close(waits[1]);
}

static struct sf_ioc_snapshots list;
static struct sf_ioc_snapshot_diff diff;

static void to_a_snapshot(void)
{
    struct sf_ioc_snapshot first = { .name = "first" }, later = { .name = "later" };
    struct sf_ioc_snapshot none = { .name = "none" };
    struct stat st;

    CHECK(ioctl(root, SF_IOC_SNAPSHOT_CREATE, &first) == 0 && first.generation > 0);
    FAILS(ioctl(root, SF_IOC_SNAPSHOT_CREATE, &first), EEXIST);
    put("back/kept", "seven");
    CHECK(stat("back/kept", &st) == 0);
    CHECK(ioctl(root, SF_IOC_SNAPSHOT_CREATE, &later) == 0);
    CHECK(ioctl(root, SF_IOC_SNAPSHOT_LIST, &list) == 0 && list.count == 2);
    CHECK(!strcmp(list.snapshots[1].name, "later"));
    strcpy(diff.before, "first");
    CHECK(ioctl(root, SF_IOC_SNAPSHOT_DIFF, &diff) == 0 && diff.count >= 1);
    CHECK(diff.changes[0].inode == st.st_ino && diff.changes[0].kind == DT_REG);
    FAILS(ioctl(root, SF_IOC_SNAPSHOT_ROLLBACK, &none), ENOENT);
    FAILS(ioctl(root, SF_IOC_SNAPSHOT_ROLLBACK, &first), ENOTEMPTY);
    CHECK(has("back/kept", "seven"));
    first.flags = 2;
    CHECK(ioctl(root, SF_IOC_SNAPSHOT_ROLLBACK, &first) == 0 && has("back/kept", "four"));
    list.after = 0;
    CHECK(ioctl(root, SF_IOC_SNAPSHOT_LIST, &list) == 0 && list.count == 1);
    CHECK(ioctl(root, SF_IOC_SNAPSHOT_DELETE, &first) == 0);
    FAILS(ioctl(root, SF_IOC_SNAPSHOT_DELETE, &first), ENOENT);
}

/* Going back while others look, write and remove. */
static void under_load(void)
{
    struct sf_ioc_rollback argument = { .force = 1 };
    pid_t children[4];
    char name[64];
    int ended;

    for (int i = 0; i < 4; i++) {
        children[i] = fork();
        for (int n = 0; !children[i]; n++) {
            sprintf(name, "back/load-%d-%d", i, n % 20);
            int fd = open(name, O_CREAT | O_RDWR, 0644);
            if (write(fd, buffer, 5000) < 0 || n % 3 == 0)
                unlink(name);
            close(fd);
            is_listed("back", "none");
        }
    }
    for (int i = 0; i < 12; i++) {
        usleep(50000);
        CHECK(ioctl(root, SF_IOC_ROLLBACK, &argument) == 0);
    }
    for (int i = 0; i < 4; i++)
        CHECK(kill(children[i], SIGKILL) == 0 && waitpid(children[i], &ended, 0) == children[i]);
    CHECK(ioctl(root, SF_IOC_ROLLBACK, &argument) == 0 && has("back/kept", "four"));
    CHECK(!is_listed("back", "load-0-0") && !is_listed("back", "load-3-19"));
}

int rollback(void)
{
    struct sf_ioc_mask mask, manual = { .timer_ms = 5000 };

    root = open(".", O_RDONLY | O_DIRECTORY);
    CHECK(ioctl(root, SF_IOC_MASK_GET, &mask) == 0 && ioctl(root, SF_IOC_MASK_SET, &manual) == 0);
    to_a_point();
    together();
    to_a_snapshot();
    under_load();
    CHECK(ioctl(root, SF_IOC_MASK_SET, &mask) == 0 && close(root) == 0);
    return failures;
}
