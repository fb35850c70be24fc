/* Snapshots, clones and transactions on block functions, under the address sanitizer. Snapshots are
 * created, listed, compared, opened beside the live volume, rolled back to and deleted. Files share
 * blocks. A transaction ends by commit or abort. */
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

#define SIZE (8u * 1024u * 1024u)

static int disk_read(void *user, uint64_t offset, void *buffer, size_t length) {
    memcpy(buffer, (unsigned char *)user + offset, length);
    return 0;
}

static int disk_write(void *user, uint64_t offset, const void *data, size_t length) {
    memcpy((unsigned char *)user + offset, data, length);
    return 0;
}

static int disk_flush(void *user) {
    (void)user;
    return 0;
}

static void contents_are(sf_volume *volume, const char *path, const char *expected) {
    char buffer[64] = {0};
    IS(sf_read_file(volume, path, buffer, sizeof buffer), strlen(expected));
    IS(strcmp(buffer, expected), 0);
}

static void snapshots(const sf_device *device, sf_volume *volume) {
    IS(sf_write_file(volume, "/a", "one", 3), 0);
    IS(sf_snapshot_create(volume, "first"), 0);
    IS(sf_write_file(volume, "/a", "two!", 4), 0);
    IS(sf_write_file(volume, "/b", "new", 3), 0);
    IS(sf_snapshot_create(volume, "second"), 0);
    IS(sf_snapshot_create(volume, "second"), -SF_EEXIST);
    IS(sf_snapshot_create(volume, "a/b"), -SF_EINVAL);
    IS(sf_snapshot_create(volume, "\xff"), -SF_EINVAL);
    IS(sf_snapshot_create(volume, NULL), -SF_EFAULT);
    IS(sf_snapshot_create(NULL, "x"), -SF_EFAULT);

    sf_snapshot list[4];
    memset(list, 0xee, sizeof list);
    IS(sf_snapshot_list(volume, 0, list, 4), 2);
    IS(strcmp(list[0].name, "first") | strcmp(list[1].name, "second"), 0);
    IS(list[0].inodes, 2);
    IS(list[1].inodes, 3);
    IS(sf_snapshot_list(volume, 0, list, 1), 1);
    IS(sf_snapshot_list(volume, list[0].generation, list, 4), 1);
    IS(strcmp(list[0].name, "second"), 0);
    IS(sf_snapshot_list(volume, 0, NULL, 0), 0);
    IS(sf_snapshot_list(volume, 0, NULL, 1), -SF_EFAULT);
    IS(sf_snapshot_list(volume, 0, list, (size_t)-1), -SF_EINVAL);

    /* One entry a call: the root, a and b. */
    sf_change change;
    uint64_t next = 0;
    unsigned flags = 0, changes = 0;
    do {
        int count = sf_snapshot_diff(volume, "first", "second", &next, &change, 1);
        if (count == 1) {
            flags |= change.flags;
            changes++;
        } else {
            IS(count, 0);
        }
    } while (next != 0);
    IS(changes, 3);
    IS(flags & (SF_CHANGE_CREATED | SF_CHANGE_CONTENT | SF_CHANGE_ENTRIES),
       SF_CHANGE_CREATED | SF_CHANGE_CONTENT | SF_CHANGE_ENTRIES);
    IS(sf_snapshot_diff(volume, "second", NULL, &next, &change, 1), 0);
    IS(sf_snapshot_diff(volume, "none", NULL, &next, &change, 1), -SF_ENOENT);
    IS(sf_snapshot_diff(volume, "first", NULL, NULL, &change, 1), -SF_EFAULT);
    IS(sf_snapshot_diff(volume, "first", NULL, &next, NULL, 1), -SF_EFAULT);

    sf_volume *then = NULL;
    IS(sf_snapshot_open(device, "none", NULL, &then), -SF_ENOENT);
    IS(sf_snapshot_open(device, "first", NULL, NULL), -SF_EFAULT);
    IS(then != NULL, 0);
    IS(sf_snapshot_open(device, "first", NULL, &then), 0);
    contents_are(then, "/a", "one");
    contents_are(volume, "/a", "two!");
    IS(sf_write_file(then, "/a", "x", 1), -SF_EROFS);
    IS(sf_snapshot_create(then, "x"), -SF_EROFS);
    IS(sf_close(then), 0);

    IS(sf_snapshot_rollback(volume, "first", 0), -SF_ENOTEMPTY);
    IS(sf_snapshot_rollback(volume, "first", 2), -SF_EINVAL);
    IS(sf_snapshot_rollback(volume, "none", 0), -SF_ENOENT);
    IS(sf_snapshot_rollback(volume, "first", SF_DESTROY_NEWER), 0);
    contents_are(volume, "/a", "one");
    IS(sf_snapshot_list(volume, 0, list, 4), 1);
    IS(sf_snapshot_delete(volume, "second"), -SF_ENOENT);
    IS(sf_snapshot_delete(volume, "first"), 0);
    while (sf_background(volume) == 1) {
    }
    IS(sf_snapshot_list(volume, 0, list, 4), 0);
}

static uint64_t used(sf_volume *volume) {
    sf_space space;
    IS(sf_checkpoint(volume), 0);
    IS(sf_checkpoint(volume), 0);
    IS(sf_statistics(volume, &space), 0);
    return space.blocks - space.blocks_free;
}

static void clones(const sf_device *device, sf_volume *volume) {
    static unsigned char data[400000], found[400000];
    for (size_t at = 0; at < sizeof data; at++) {
        data[at] = (unsigned char)(at / 4096 + at);
    }
    sf_file *from = NULL, *to = NULL, *reader = NULL;
    IS(sf_write_file(volume, "/from", data, sizeof data), 0);
    IS(sf_file_open(volume, "/from", SF_READ | SF_WRITE, 0, &from), 0);
    IS(sf_file_open(volume, "/to", SF_WRITE | SF_CREATE, 0644, &to), 0);
    IS(sf_file_open(volume, "/to", SF_READ, 0, &reader), 0);
    uint64_t before = used(volume);
    IS(sf_clone_range(from, 0, to, 0, 0), sizeof data);
    IS(used(volume) < before + 20, 1);
    IS(sf_pread(reader, found, sizeof found, 0), sizeof data);
    IS(memcmp(found, data, sizeof data), 0);
    /* The ends are partial blocks, which are copied; the rest is shared. */
    IS(sf_copy_range(from, 100, to, 400000 + 100 - 400000 % 4096, 300000), 300000);
    IS(used(volume) < before + 20, 1);

    IS(sf_clone_range(from, 1, to, 0, 4096), -SF_EINVAL);
    IS(sf_clone_range(from, 0, from, 4096, 8192), -SF_EINVAL);
    IS(sf_copy_range(from, 0, from, 1, 100), -SF_EINVAL);
    IS(sf_copy_range(from, -1, to, 0, 1), -SF_EINVAL);
    IS(sf_copy_range(from, 400000, to, 0, 1), 0);
    IS(sf_copy_range(to, 0, from, 0, 1), -SF_EBADF);
    IS(sf_copy_range(from, 0, reader, 0, 1), -SF_EBADF);
    IS(sf_copy_range(NULL, 0, to, 0, 1), -SF_EFAULT);
    IS(sf_clone_range(from, 0, NULL, 0, 1), -SF_EFAULT);

    /* Files of another volume, here a snapshot. */
    sf_volume *then = NULL;
    sf_file *old = NULL;
    IS(sf_snapshot_create(volume, "s"), 0);
    IS(sf_snapshot_open(device, "s", NULL, &then), 0);
    IS(sf_file_open(then, "/from", SF_READ, 0, &old), 0);
    IS(sf_copy_range(old, 0, to, 0, 10), -SF_EXDEV);
    IS(sf_file_close(old) | sf_close(then), 0);
    IS(sf_file_close(from) | sf_file_close(to) | sf_file_close(reader), 0);
}

static void transactions(const sf_device *device, sf_volume *volume) {
    sf_transaction *transaction = NULL, *second = NULL;
    sf_volume *after = NULL;
    IS(sf_begin(NULL, &transaction), -SF_EFAULT);
    IS(sf_begin(volume, NULL), -SF_EFAULT);
    IS(sf_commit(NULL), -SF_EFAULT);
    IS(sf_abort(NULL), 0);
    IS(sf_write_file(volume, "/t", "old", 3), 0);

    IS(sf_begin(volume, &transaction), 0);
    IS(sf_write_file(volume, "/t", "dropped", 7), 0);
    IS(sf_begin(volume, &second), -SF_EBUSY);
    IS(second != NULL, 0);
    IS(sf_transact(volume), -SF_EBUSY);
    IS(sf_rollback(volume), -SF_EBUSY);
    IS(sf_close(volume), -SF_EBUSY);
    IS(sf_abort(transaction), 0);
    contents_are(volume, "/t", "old");

    IS(sf_begin(volume, &transaction), 0);
    IS(sf_write_file(volume, "/t", "new", 3), 0);
    IS(sf_sync(volume), 0);
    sf_open_options look;
    IS(sf_open_options_init(&look, sizeof look), 0);
    look.flags = SF_OPEN_READ_ONLY;
    IS(sf_open(device, &look, &after), 0);
    contents_are(after, "/t", "old");
    IS(sf_close(after), 0);
    IS(sf_commit(transaction), 0);
    IS(sf_open(device, &look, &after), 0);
    contents_are(after, "/t", "new");
    IS(sf_close(after), 0);
    IS(sf_unlink(volume, "/t"), 0);
}

int main(void) {
    static unsigned char disk[SIZE];
    sf_device device = {0};
    device.struct_size = sizeof device;
    device.size = SIZE;
    device.atomic_unit = 512;
    device.user = disk;
    device.read = disk_read;
    device.write = disk_write;
    device.flush = disk_flush;
    sf_volume *volume = NULL;
    IS(sf_format(&device, NULL), 0);
    IS(sf_open(&device, NULL, &volume), 0);
    snapshots(&device, volume);
    clones(&device, volume);
    transactions(&device, volume);
    IS(sf_close(volume), 0);
    IS(sf_snapshot_open_image("no such image", "s", NULL, &volume), -SF_ENOENT);
    puts("ok");
    return 0;
}
