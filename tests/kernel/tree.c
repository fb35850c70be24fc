// `work tree DIR`: one line for all that programs can see of each file below a directory.
#include "check.h"

static unsigned sum(unsigned sum, const char *data, ssize_t length)
{
    for (ssize_t i = 0; i < length; i++)
        sum = sum * 31 + (unsigned char)data[i];
    return sum;
}

static unsigned content(const char *name)
{
    unsigned all = 0;
    ssize_t length;
    int fd = open(name, O_RDONLY);

    while ((length = read(fd, buffer, sizeof(buffer))) > 0)
        all = sum(all, buffer, length);
    return close(fd) || length ? -1 : all;
}

/* Names and values together; file systems may list them in any order. */
static unsigned attributes(const char *name)
{
    ssize_t length = llistxattr(name, other, sizeof(other));
    unsigned all = length < 0;

    for (char *at = other; at < other + length; at += strlen(at) + 1) {
        ssize_t size = lgetxattr(name, at, buffer, sizeof(buffer));
        all += sum(sum(size, at, strlen(at)), buffer, size);
    }
    return all;
}

static int show(const char *directory)
{
    struct dirent **found;
    int count = scandir(".", &found, NULL, alphasort), failed = count < 0;
    struct stat st;

    for (int i = 0; i < count; i++) {
        const char *name = found[i]->d_name;
        char path[PATH_MAX], target[PATH_MAX] = "";

        if (lstat(name, &st) ||
            snprintf(path, PATH_MAX, "%s/%s", directory, name) >= PATH_MAX) {
            failed++;
            continue;
        }
        if (!strcmp(name, "..")) {
            if (st.st_ino != found[i]->d_ino)
                failed += printf("FAILED %s: %lx is listed as %lx\n", path, st.st_ino,
                                 found[i]->d_ino);
            continue;
        }
        if (S_ISLNK(st.st_mode))
            failed += readlink(name, target, PATH_MAX - 1) < 0;
        printf("TREE %s %lx %lx %o %lu %u:%u %lx %ld %ld %ld.%09ld %ld.%09ld %x %x %s\n", path,
               st.st_ino, found[i]->d_ino, st.st_mode, st.st_nlink, st.st_uid, st.st_gid,
               st.st_rdev, st.st_size, st.st_blocks, st.st_mtim.tv_sec, st.st_mtim.tv_nsec,
               st.st_ctim.tv_sec, st.st_ctim.tv_nsec, attributes(name),
               S_ISREG(st.st_mode) ? content(name) : 0, target);
        if (S_ISDIR(st.st_mode) && strcmp(name, ".")) {
            failed += chdir(name) != 0 || show(path);
            failed += chdir("..") != 0;
        }
    }
    return failed;
}

int tree(void)
{
    return show(".");
}
