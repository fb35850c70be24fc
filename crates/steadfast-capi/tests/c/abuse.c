/* Misuses every function: NULL for each pointer, invalid lengths and flags, devices that fail or
 * give wrong answers, handles in use. Every call must return the right error and change nothing.
 * The address sanitizer also reports leaks of failed calls. */
#include <steadfast.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int line_of_failure(const char *what, int line, long long found, long long expected) {
    fprintf(stderr, "line %d: %s is %lld, not %lld: %s\n", line, what, found, expected,
            sf_last_error());
    exit(1);
}

#define IS(call, expected)                                                                         \
    do {                                                                                           \
        long long found_ = (call);                                                                 \
        if (found_ != (long long)(expected))                                                       \
            line_of_failure(#call, __LINE__, found_, (expected));                                  \
    } while (0)

#define SIZE (512u * 1024u)

struct disk {
    unsigned char bytes[SIZE];
    int fail_write, fail_read, fail_flush;
};

static int disk_read(void *user, uint64_t offset, void *buffer, size_t length) {
    struct disk *disk = user;
    if (offset + length > SIZE || offset % 512 || length % 512) {
        abort();
    }
    if (disk->fail_read) {
        return disk->fail_read;
    }
    memcpy(buffer, disk->bytes + offset, length);
    return 0;
}

static int disk_write(void *user, uint64_t offset, const void *data, size_t length) {
    struct disk *disk = user;
    if (offset + length > SIZE || offset % 512 || length % 512) {
        abort();
    }
    if (disk->fail_write) {
        return disk->fail_write;
    }
    memcpy(disk->bytes + offset, data, length);
    return 0;
}

static int disk_flush(void *user) {
    return ((struct disk *)user)->fail_flush;
}

static int disk_discard(void *user, uint64_t offset, uint64_t length) {
    struct disk *disk = user;
    if (offset + length > SIZE) {
        abort();
    }
    memset(disk->bytes + offset, 0xdd, length);
    return 0;
}

static sf_device device_on(struct disk *disk) {
    sf_device device;
    memset(&device, 0, sizeof device);
    device.struct_size = sizeof device;
    device.flags = SF_DEVICE_SERIAL;
    device.size = SIZE;
    device.atomic_unit = 512;
    device.user = disk;
    device.read = disk_read;
    device.write = disk_write;
    device.flush = disk_flush;
    device.discard = disk_discard;
    return device;
}

static void null_pointers(sf_volume *volume, const sf_device *device) {
    sf_volume *other = NULL;
    sf_file *file = NULL;
    sf_dir *directory = NULL;
    sf_attributes attributes;
    char byte;
    IS(sf_format(NULL, NULL), -SF_EFAULT);
    IS(sf_open(NULL, NULL, &other), -SF_EFAULT);
    IS(sf_open(device, NULL, NULL), -SF_EFAULT);
    IS(sf_format_image(NULL, NULL), -SF_EFAULT);
    IS(sf_open_image(NULL, NULL, &other), -SF_EFAULT);
    IS(sf_open_image("x", NULL, NULL), -SF_EFAULT);
    IS(sf_format_options_init(NULL, sizeof(sf_format_options)), -SF_EFAULT);
    IS(sf_open_options_init(NULL, sizeof(sf_open_options)), -SF_EFAULT);
    IS(sf_close(NULL), 0);
    IS(sf_file_close(NULL), 0);
    IS(sf_dir_close(NULL), 0);
    IS(sf_file_open(NULL, "f", SF_READ, 0, &file), -SF_EFAULT);
    IS(sf_file_open(volume, NULL, SF_READ, 0, &file), -SF_EFAULT);
    IS(sf_file_open(volume, "f", SF_READ, 0, NULL), -SF_EFAULT);
    IS(sf_pread(NULL, &byte, 1, 0), -SF_EFAULT);
    IS(sf_pwrite(NULL, &byte, 1, 0), -SF_EFAULT);
    IS(sf_read(NULL, &byte, 1), -SF_EFAULT);
    IS(sf_write(NULL, &byte, 1), -SF_EFAULT);
    IS(sf_seek(NULL, 0, 0), -SF_EFAULT);
    IS(sf_file_truncate(NULL, 0), -SF_EFAULT);
    IS(sf_allocate(NULL, 0, 1, 0), -SF_EFAULT);
    IS(sf_fsync(NULL), -SF_EFAULT);
    IS(sf_file_stat(NULL, &attributes), -SF_EFAULT);
    IS(sf_read_file(NULL, "f", &byte, 1), -SF_EFAULT);
    IS(sf_read_file(volume, NULL, &byte, 1), -SF_EFAULT);
    IS(sf_read_file(volume, "f", NULL, 1), -SF_EFAULT);
    IS(sf_write_file(NULL, "f", &byte, 1), -SF_EFAULT);
    IS(sf_write_file(volume, NULL, &byte, 1), -SF_EFAULT);
    IS(sf_write_file(volume, "f", NULL, 1), -SF_EFAULT);
    IS(sf_stat(NULL, "/", 0, &attributes), -SF_EFAULT);
    IS(sf_stat(volume, NULL, 0, &attributes), -SF_EFAULT);
    IS(sf_stat(volume, "/", 0, NULL), -SF_EFAULT);
    IS(sf_mkdir(NULL, "d", 0755), -SF_EFAULT);
    IS(sf_mkdir(volume, NULL, 0755), -SF_EFAULT);
    IS(sf_mkdir_all(NULL, "d"), -SF_EFAULT);
    IS(sf_mkdir_all(volume, NULL), -SF_EFAULT);
    IS(sf_mknod(NULL, "n", 0010644, 0), -SF_EFAULT);
    IS(sf_mknod(volume, NULL, 0010644, 0), -SF_EFAULT);
    IS(sf_symlink(NULL, "t", "s"), -SF_EFAULT);
    IS(sf_symlink(volume, NULL, "s"), -SF_EFAULT);
    IS(sf_symlink(volume, "t", NULL), -SF_EFAULT);
    IS(sf_readlink(NULL, "s", &byte, 1), -SF_EFAULT);
    IS(sf_readlink(volume, NULL, &byte, 1), -SF_EFAULT);
    IS(sf_link(NULL, "a", "b"), -SF_EFAULT);
    IS(sf_link(volume, NULL, "b"), -SF_EFAULT);
    IS(sf_link(volume, "a", NULL), -SF_EFAULT);
    IS(sf_unlink(NULL, "a"), -SF_EFAULT);
    IS(sf_unlink(volume, NULL), -SF_EFAULT);
    IS(sf_rmdir(NULL, "a"), -SF_EFAULT);
    IS(sf_rmdir(volume, NULL), -SF_EFAULT);
    IS(sf_remove_all(NULL, "a"), -SF_EFAULT);
    IS(sf_remove_all(volume, NULL), -SF_EFAULT);
    IS(sf_rename(NULL, "a", "b", 0), -SF_EFAULT);
    IS(sf_rename(volume, NULL, "b", 0), -SF_EFAULT);
    IS(sf_rename(volume, "a", NULL, 0), -SF_EFAULT);
    IS(sf_chmod(NULL, "a", 0), -SF_EFAULT);
    IS(sf_chmod(volume, NULL, 0), -SF_EFAULT);
    IS(sf_chown(NULL, "a", 0, 0, 0), -SF_EFAULT);
    IS(sf_chown(volume, NULL, 0, 0, 0), -SF_EFAULT);
    IS(sf_utimens(NULL, "a", NULL, NULL, 0), -SF_EFAULT);
    IS(sf_utimens(volume, NULL, NULL, NULL, 0), -SF_EFAULT);
    IS(sf_truncate(NULL, "a", 0), -SF_EFAULT);
    IS(sf_truncate(volume, NULL, 0), -SF_EFAULT);
    IS(sf_dir_open(NULL, "/", &directory), -SF_EFAULT);
    IS(sf_dir_open(volume, NULL, &directory), -SF_EFAULT);
    IS(sf_dir_open(volume, "/", NULL), -SF_EFAULT);
    IS(sf_dir_read(NULL, NULL), -SF_EFAULT);
    IS(sf_dir_rewind(NULL), -SF_EFAULT);
    IS(sf_xattr_get(NULL, "/", "user.a", &byte, 1, 0), -SF_EFAULT);
    IS(sf_xattr_get(volume, NULL, "user.a", &byte, 1, 0), -SF_EFAULT);
    IS(sf_xattr_get(volume, "/", NULL, &byte, 1, 0), -SF_EFAULT);
    IS(sf_xattr_set(NULL, "/", "user.a", &byte, 1, 0), -SF_EFAULT);
    IS(sf_xattr_set(volume, NULL, "user.a", &byte, 1, 0), -SF_EFAULT);
    IS(sf_xattr_set(volume, "/", NULL, &byte, 1, 0), -SF_EFAULT);
    IS(sf_xattr_set(volume, "/", "user.a", NULL, 1, 0), -SF_EFAULT);
    IS(sf_xattr_remove(NULL, "/", "user.a", 0), -SF_EFAULT);
    IS(sf_xattr_remove(volume, NULL, "user.a", 0), -SF_EFAULT);
    IS(sf_xattr_remove(volume, "/", NULL, 0), -SF_EFAULT);
    IS(sf_xattr_list(NULL, "/", &byte, 1, 0), -SF_EFAULT);
    IS(sf_xattr_list(volume, NULL, &byte, 1, 0), -SF_EFAULT);
    IS(sf_transact(NULL), -SF_EFAULT);
    IS(sf_rollback(NULL), -SF_EFAULT);
    IS(sf_checkpoint(NULL), -SF_EFAULT);
    IS(sf_sync(NULL), -SF_EFAULT);
    IS(sf_background(NULL), -SF_EFAULT);
    IS(sf_mask_get(NULL, NULL, NULL), -SF_EFAULT);
    IS(sf_mask_get(volume, NULL, NULL), 0);
    IS(sf_mask_set(NULL, 0, 0), -SF_EFAULT);
    IS(sf_statistics(NULL, NULL), -SF_EFAULT);
    IS(sf_statistics(volume, NULL), -SF_EFAULT);
    IS(sf_info(NULL, NULL), -SF_EFAULT);
    IS(sf_info(volume, NULL), -SF_EFAULT);
    if (other || file || directory) {
        abort();
    }
    if (strstr(sf_last_error(), "sf_info: info is NULL") == NULL) {
        fprintf(stderr, "last error: %s\n", sf_last_error());
        exit(1);
    }
}

static void wrong_values(sf_volume *volume, sf_device device) {
    sf_volume *other;
    sf_file *file;
    char byte = 'x', small[2];
    IS(sf_file_open(volume, "f", 0, 0, &file), -SF_EINVAL);
    IS(sf_file_open(volume, "f", 0x80000000u | SF_READ, 0, &file), -SF_EINVAL);
    IS(sf_file_open(volume, "f", SF_READ | SF_EXCLUSIVE, 0, &file), -SF_EINVAL);
    IS(sf_file_open(volume, "f", SF_READ | SF_TRUNCATE, 0, &file), -SF_EINVAL);
    IS(sf_file_open(volume, "absent", SF_READ, 0, &file), -SF_ENOENT);
    IS(sf_file_open(volume, "/", SF_READ, 0, &file), -SF_EISDIR);
    IS(sf_file_open(volume, "f", SF_WRITE | SF_CREATE, 0644, &file), 0);
    IS(sf_read(file, &byte, 1), -SF_EBADF);
    IS(sf_pread(file, &byte, 1, 0), -SF_EBADF);
    IS(sf_write(file, &byte, SIZE_MAX), -SF_EINVAL);
    IS(sf_write(file, NULL, 0), 0);
    IS(sf_pwrite(file, &byte, 1, -1), -SF_EINVAL);
    IS(sf_pwrite(file, &byte, 1, INT64_MAX), -SF_EFBIG);
    IS(sf_seek(file, -1, SF_SEEK_SET), -SF_EINVAL);
    IS(sf_seek(file, INT64_MAX, SF_SEEK_SET), INT64_MAX);
    IS(sf_seek(file, INT64_MAX, SF_SEEK_CUR), -SF_EINVAL);
    IS(sf_seek(file, 0, 9), -SF_EINVAL);
    IS(sf_seek(file, 0, SF_SEEK_DATA), -SF_ENXIO);
    IS(sf_file_truncate(file, -1), -SF_EINVAL);
    IS(sf_allocate(file, 0, -1, 0), -SF_EINVAL);
    IS(sf_allocate(file, 0, 1, 99), -SF_EINVAL);
    IS(sf_file_stat(file, NULL), -SF_EFAULT);
    IS(sf_close(volume), -SF_EBUSY);
    IS(sf_file_close(file), 0);
    IS(sf_write_file(volume, "f", "hello", 5), 0);
    IS(sf_read_file(volume, "f", small, 2), -SF_ERANGE);
    IS(sf_read_file(volume, "f", NULL, 0), 5);
    IS(sf_stat(volume, "/", 1, &(sf_attributes){0}), -SF_EINVAL);
    IS(sf_mkdir(volume, "/", 0755), -SF_EINVAL);
    IS(sf_mkdir(volume, "", 0755), -SF_EINVAL);
    IS(sf_mkdir(volume, "f/x", 0755), -SF_ENOTDIR);
    IS(sf_mkdir(volume, "a/b", 0755), -SF_ENOENT);
    IS(sf_mkdir(volume, "d/", 0755), 0);
    IS(sf_mkdir(volume, "d", 0755), -SF_EEXIST);
    IS(sf_unlink(volume, "d"), -SF_EISDIR);
    IS(sf_rmdir(volume, "f"), -SF_ENOTDIR);
    IS(sf_unlink(volume, "f/"), -SF_ENOTDIR);
    IS(sf_mknod(volume, "n", 0644, 0), -SF_EINVAL);
    IS(sf_symlink(volume, "loop", "loop"), 0);
    IS(sf_stat(volume, "loop", 0, &(sf_attributes){0}), -SF_ELOOP);
    IS(sf_stat(volume, "loop", SF_NOFOLLOW, &(sf_attributes){0}), 0);
    IS(sf_readlink(volume, "loop", small, 2), -SF_ERANGE);
    IS(sf_readlink(volume, "f", small, 2), -SF_EINVAL);
    IS(sf_rename(volume, "f", "g", 3), -SF_EINVAL);
    IS(sf_rename(volume, "f", "d", 0), -SF_EISDIR);
    IS(sf_rename(volume, "f", "loop", SF_RENAME_NOREPLACE), -SF_EEXIST);
    IS(sf_rename(volume, "d", "d/below", 0), -SF_EINVAL);
    IS(sf_utimens(volume, "f", &(sf_time){0, 1000000000u, 0}, NULL, 0), -SF_EINVAL);
    IS(sf_utimens(volume, "f", &(sf_time){1, SF_TIME_NOW, 0}, &(sf_time){7, 8, 0}, 0), 0);
    IS(sf_xattr_get(volume, "f", "user.none", NULL, 0, 0), -SF_ENODATA);
    IS(sf_xattr_set(volume, "f", "user.a", "value", 5, 3), -SF_EINVAL);
    IS(sf_xattr_set(volume, "f", "user.a", "value", 5, SF_XATTR_REPLACE), -SF_ENODATA);
    IS(sf_xattr_set(volume, "f", "user.a", "value", 5, SF_XATTR_CREATE), 0);
    IS(sf_xattr_get(volume, "f", "user.a", small, 2, 0), -SF_ERANGE);
    IS(sf_xattr_get(volume, "f", "user.a", NULL, 0, 0), 5);
    IS(sf_xattr_list(volume, "f", NULL, 0, 0), 7);
    IS(sf_mask_set(volume, 0x80000000u, 0), -SF_EINVAL);
    IS(sf_remove_all(volume, "/"), -SF_EINVAL);

    sf_format_options format;
    IS(sf_format_options_init(&format, 4), -SF_EINVAL);
    memset(&format, 0, sizeof format);
    IS(sf_format(&device, &format), -SF_EINVAL);
    IS(sf_format_options_init(&format, sizeof format), 0);
    format.block_size = 3;
    IS(sf_format(&device, &format), -SF_EINVAL);
    format.block_size = 512;
    memset(format.label, 'x', sizeof format.label);
    IS(sf_format(&device, &format), -SF_EINVAL);
    format.label[0] = 0;
    format.size = 4 * SIZE;
    if (sf_format(&device, &format) >= 0) {
        abort();
    }
    sf_open_options options;
    IS(sf_open_options_init(&options, sizeof options), 0);
    options.flags = 0x100;
    IS(sf_open(&device, &options, &other), -SF_EINVAL);
    device.struct_size = 1;
    IS(sf_open(&device, NULL, &other), -SF_EINVAL);
    device.struct_size = sizeof device;
    device.atomic_unit = 3;
    IS(sf_open(&device, NULL, &other), -SF_EINVAL);
    device.atomic_unit = 512;
    device.read = NULL;
    IS(sf_open(&device, NULL, &other), -SF_EFAULT);
}

/* An older and a newer program: structures with a different size. */
static void other_versions(const sf_device *device) {
    struct {
        sf_open_options known;
        uint64_t newer;
    } options;
    sf_volume *volume;
    IS(sf_open_options_init(&options.known, sizeof options), 0);
    options.known.flags = SF_OPEN_READ_ONLY;
    IS(sf_open(device, &options.known, &volume), 0);
    IS(sf_mkdir(volume, "x", 0755), -SF_EROFS);
    IS(sf_close(volume), 0);
    options.newer = 1;
    IS(sf_open(device, &options.known, &volume), -SF_E2BIG);
}

static void failing_device(struct disk *disk, const sf_device *device) {
    sf_volume *volume;
    IS(sf_open(device, NULL, &volume), 0);
    IS(sf_mask_set(volume, SF_MASK_MANUAL, 0), 0);
    IS(sf_transact(volume), 0);
    IS(sf_write_file(volume, "kept", "1", 1), 0);
    IS(sf_transact(volume), 0);
    disk->fail_write = -99;
    IS(sf_write_file(volume, "lost", "2", 1), 0);
    IS(sf_transact(volume), -99);
    disk->fail_write = 0;
    sf_volume_info info;
    IS(sf_info(volume, &info), 0);
    if (!(info.flags & SF_INFO_FAILED) || info.failure[0] == 0) {
        abort();
    }
    IS(sf_mkdir(volume, "x", 0755), -SF_EROFS);
    IS(sf_close(volume), 0);

    disk->fail_read = 17;
    IS(sf_open(device, NULL, &volume), -SF_EIO);
    disk->fail_read = 0;
    IS(sf_open(device, NULL, &volume), 0);
    char byte = 0;
    IS(sf_read_file(volume, "kept", &byte, 1), 1);
    IS(byte, '1');
    IS(sf_read_file(volume, "lost", &byte, 1), -SF_ENOENT);
    IS(sf_close(volume), 0);

    memset(disk->bytes, 0, SIZE);
    IS(sf_open(device, NULL, &volume), -SF_EMEDIUMTYPE);
}

static void full_volume(const sf_device *device) {
    sf_volume *volume;
    sf_format_options format;
    IS(sf_format_options_init(&format, sizeof format), 0);
    format.block_size = 512;
    IS(sf_format(device, &format), 0);
    IS(sf_open(device, NULL, &volume), 0);
    static char data[16384];
    char name[16];
    int written = 0, result = 0;
    while (result == 0 && written < 1000) {
        snprintf(name, sizeof name, "f%d", written);
        result = sf_write_file(volume, name, data, sizeof data);
        written++;
    }
    IS(result, -SF_ENOSPC);
    IS(sf_remove_all(volume, "f0"), 0);
    IS(sf_checkpoint(volume), 0);
    while (sf_background(volume) > 0) {
    }
    IS(sf_close(volume), 0);
}

/* Two writers on one device: the second one to set a point notices, at once. */
static void two_writers(const sf_device *device) {
    sf_volume *first, *second;
    sf_format_options format;
    sf_open_options options;
    IS(sf_format_options_init(&format, sizeof format), 0);
    format.block_size = 512;
    IS(sf_format(device, &format), 0);
    IS(sf_open_options_init(&options, sizeof options), 0);
    options.flags = SF_OPEN_SHARED;
    IS(sf_open(device, &options, &first), 0);
    IS(sf_open(device, &options, &second), 0);
    IS(sf_write_file(first, "f", "1", 1), 0);
    IS(sf_write_file(second, "f", "2", 1), 0);
    IS(sf_transact(first), 0);
    IS(sf_transact(second), -SF_EROFS);
    IS(sf_close(second), 0);
    IS(sf_close(first), 0);
    char byte = 0;
    IS(sf_open(device, NULL, &first), 0);
    IS(sf_read_file(first, "f", &byte, 1), 1);
    IS(byte, '1');
    IS(sf_close(first), 0);
}

static void image(const char *path) {
    sf_volume *volume, *second;
    sf_format_options format;
    sf_open_options options;
    IS(sf_open_image(path, NULL, &volume), -SF_ENOENT);
    IS(sf_format_image(path, NULL), -SF_EINVAL);
    IS(sf_format_options_init(&format, sizeof format), 0);
    format.size = 4 << 20;
    IS(sf_format_image("no/such/directory.img", &format), -SF_ENOENT);
    IS(sf_format_image(path, &format), 0);
    IS(sf_format_image(path, &format), -SF_EEXIST);
    format.size = 0;
    format.flags = SF_FORMAT_OVERWRITE;
    format.block_size = 128;
    format.node_size = 512;
    IS(sf_format_image(path, &format), 0);
    IS(sf_open_options_init(&options, sizeof options), 0);
    options.flags = SF_OPEN_BACKGROUND;
    IS(sf_open_image(path, &options, &volume), 0);
    IS(sf_open_image(path, NULL, &second), -SF_EBUSY);
    IS(sf_format_image(path, &format), -SF_EBUSY);
    IS(sf_write_file(volume, "f", "in the background", 17), 0);
    IS(sf_unlink(volume, "f"), 0);
    IS(sf_close(volume), 0);
}

int main(int count, char **arguments) {
    if (count != 2) {
        return 2;
    }
    struct disk *disk = calloc(1, sizeof *disk);
    if (disk == NULL) {
        return 1;
    }
    sf_device device = device_on(disk);
    sf_format_options format;
    sf_volume *volume;
    IS(strlen(sf_last_error()), 0);
    IS(sf_format_options_init(&format, sizeof format), 0);
    format.block_size = 512;
    IS(sf_format(&device, &format), 0);
    IS(sf_open(&device, NULL, &volume), 0);
    null_pointers(volume, &device);
    wrong_values(volume, device);
    IS(sf_close(volume), 0);
    other_versions(&device);
    failing_device(disk, &device);
    full_volume(&device);
    two_writers(&device);
    image(arguments[1]);
    for (int code = -200; code <= 200; code++) {
        if (sf_strerror(code) == NULL || strlen(sf_strerror(code)) == 0) {
            return 1;
        }
    }
    IS(strcmp(sf_strerror(-SF_ENOSPC), "no space left on the volume"), 0);
    (void)sf_strerror(INT32_MIN);
    free(disk);
    puts("ok");
    return 0;
}
