/* Steadfast: a transactional, power-fail-safe file system.
 *
 * The interface for C opens volumes in the process of the program, without a mount. A volume lies
 * in an image file or on functions of the program (RTOS). Link with `pkg-config --libs steadfast`.
 * docs/C-API.md is the guide; examples/c has examples. Firmware without an operating system also
 * includes steadfast-port.h.
 *
 * - Functions return 0, a count, or a negative error number such as -SF_ENOENT. The numbers are
 *   those of Linux' errno.h on every system. sf_strerror(number) names an error.
 *   sf_last_error() describes the last error of this thread.
 * - Several threads may use a volume, a file or a directory at the same time, except for closing
 *   it.
 * - Paths are zero-terminated bytes: names from the root of the volume, separated by slashes.
 * - A required pointer that is NULL gives -SF_EFAULT. Reserved fields are zero.
 * - After any power cut the volume is exactly in the state of the last transaction point.
 *   sf_transact and the events in the transaction mask set transaction points. Several files change
 *   together or not at all.
 */

/* cbindgen generates this file from the source: change the source, then run
 * STEADFAST_UPDATE=1 cargo test -p steadfast-capi --test header */

#ifndef STEADFAST_H
#define STEADFAST_H

#include <stddef.h>
#include <stdint.h>

// Not allowed on this object.
#define SF_EPERM 1

// No such file or directory.
#define SF_ENOENT 2

// The medium failed, or data does not match its checksum.
#define SF_EIO 5

// No data, or no file, at or after this offset.
#define SF_ENXIO 6

// A value is too long, or a structure is newer than the library.
#define SF_E2BIG 7

// The file is not open for this operation.
#define SF_EBADF 9

// Temporary failure: try again.
#define SF_EAGAIN 11

// Memory could not be allocated.
#define SF_ENOMEM 12

// No permission for an image file or device.
#define SF_EACCES 13

// A pointer that must not be NULL is NULL.
#define SF_EFAULT 14

// In use: files are open, or another process has locked the image.
#define SF_EBUSY 16

// The name exists already.
#define SF_EEXIST 17

// The files are on different volumes.
#define SF_EXDEV 18

// The device has been removed.
#define SF_ENODEV 19

// The path must lead to a directory.
#define SF_ENOTDIR 20

// The operation does not work on directories.
#define SF_EISDIR 21

// An argument is out of range.
#define SF_EINVAL 22

// The file would be too large.
#define SF_EFBIG 27

// No space left. Delete files, or commit, or roll back.
#define SF_ENOSPC 28

// The volume is read-only, or became read-only after a failure.
#define SF_EROFS 30

// Too many hard links.
#define SF_EMLINK 31

// The buffer is too small for the value.
#define SF_ERANGE 34

// A function that the library has called calls the library (without an operating system).
#define SF_EDEADLK 35

// A name is too long.
#define SF_ENAMETOOLONG 36

// The directory is not empty, or newer snapshots exist.
#define SF_ENOTEMPTY 39

// Too many symbolic links on a path.
#define SF_ELOOP 40

// No such extended attribute.
#define SF_ENODATA 61

// The medium is smaller than its description says, or than the volume on it.
#define SF_EOVERFLOW 75

// Not supported by this build, or the volume has a newer format.
#define SF_EOPNOTSUPP 95

// The arena is too small to make or open this volume (without an operating system).
#define SF_ENOBUFS 105

// The file does not exist any more: it was deleted, or a rollback went back to before its
// creation.
#define SF_ESTALE 116

// Metadata is damaged.
#define SF_EUCLEAN 117

// Not a Steadfast volume.
#define SF_EMEDIUMTYPE 124

// An internal error of the library. The volume can only be closed. Acknowledged data is safe on
// the medium.
#define SF_ENOTRECOVERABLE 131

// The library never calls two functions of this device at the same time.
#define SF_DEVICE_SERIAL 1

// The device is plain memory: nothing survives a power cut. Without this flag the device
// guarantees that flushed data survives.
#define SF_DEVICE_VOLATILE 2

// Longest name, bytes.
#define SF_NAME_MAX 255

// `sf_entry.kind`: FIFO.
#define SF_KIND_FIFO 1

// `sf_entry.kind`: character device.
#define SF_KIND_CHAR_DEVICE 2

// `sf_entry.kind`: directory.
#define SF_KIND_DIRECTORY 4

// `sf_entry.kind`: block device.
#define SF_KIND_BLOCK_DEVICE 6

// `sf_entry.kind`: regular file.
#define SF_KIND_FILE 8

// `sf_entry.kind`: symbolic link.
#define SF_KIND_SYMLINK 10

// `sf_entry.kind`: socket.
#define SF_KIND_SOCKET 12

// Open for reading.
#define SF_READ 1

// Open for writing.
#define SF_WRITE 2

// Create the file if it does not exist.
#define SF_CREATE 4

// With SF_CREATE: fail with -SF_EEXIST if the file exists.
#define SF_EXCLUSIVE 8

// Truncate the file to 0 bytes; needs SF_WRITE.
#define SF_TRUNCATE 16

// `sf_write` appends to the end of the file.
#define SF_APPEND 32

// Each write is a transaction point, if the mask has SF_ON_SYNC_WRITE.
#define SF_SYNC 64

// `sf_seek`: from the start.
#define SF_SEEK_SET 0

// `sf_seek`: from the current position.
#define SF_SEEK_CUR 1

// `sf_seek`: from the end.
#define SF_SEEK_END 2

// `sf_seek`: the first data at or after this offset.
#define SF_SEEK_DATA 3

// `sf_seek`: the first hole at or after this offset; the end of the file counts as a hole.
#define SF_SEEK_HOLE 4

// `sf_allocate`: keep the size of the file.
#define SF_KEEP_SIZE 1

// `sf_allocate`: make the range a hole, which frees its space. The size of the file stays the
// same.
#define SF_PUNCH_HOLE 2

// `sf_rename`: fail with -SF_EEXIST if the new name exists.
#define SF_RENAME_NOREPLACE 1

// `sf_rename`: both names exist and are exchanged.
#define SF_RENAME_EXCHANGE 2

// In `sf_format_options.log_size`: choose the size of the log by the size of the volume.
#define SF_LOG_AUTOMATIC 18446744073709551615ull

// Format even if the image exists already.
#define SF_FORMAT_OVERWRITE 1

// Open the volume read-only: nothing is written to the medium.
#define SF_OPEN_READ_ONLY 1

// Do not update access times.
#define SF_OPEN_NO_ATIME 2

// Run the background work in a thread of the library, not in `sf_background`. This thread also
// calls the functions of the device. Not available without an operating system.
#define SF_OPEN_BACKGROUND 4

// If the newest state is damaged, open an older state for writing and discard the newer one.
// Without this flag such a volume opens read-only.
#define SF_OPEN_RECOVER 8

// Other machines can write to the device: check for another writer around every log record and
// metaroot, not only once a second.
#define SF_OPEN_SHARED 16

// `sf_volume_info.flags`: opened for reading only.
#define SF_INFO_READ_ONLY 1

// `sf_volume_info.flags`: became read-only after a failure; `failure` has the cause.
#define SF_INFO_FAILED 2

// `sf_volume_info.flags`: one copy of the superblock is damaged.
#define SF_INFO_SUPERBLOCK_DAMAGED 4

// Longest name of a snapshot, bytes.
#define SF_SNAPSHOT_NAME_MAX 63

// `sf_snapshot_rollback`: destroy newer snapshots. Without this flag the call fails with
// -SF_ENOTEMPTY if newer snapshots exist.
#define SF_DESTROY_NEWER 1

// `sf_change.flags`: created between the two states.
#define SF_CHANGE_CREATED 1

// `sf_change.flags`: removed between the two states.
#define SF_CHANGE_REMOVED 2

// `sf_change.flags`: data, size or link target changed.
#define SF_CHANGE_CONTENT 4

// `sf_change.flags`: permissions, owner, links or extended attributes changed.
#define SF_CHANGE_ATTRIBUTES 8

// `sf_change.flags`: names in this directory changed.
#define SF_CHANGE_ENTRIES 16

// `sf_change.flags`: modification time or change time changed.
#define SF_CHANGE_TIMES 32

// Only `sf_transact` and `sf_checkpoint` set transaction points.
#define SF_MASK_MANUAL 0

// The timer elapsed and there are changes to commit.
#define SF_ON_TIMER 1

// A file was created.
#define SF_ON_CREATE 2

// A name was removed.
#define SF_ON_UNLINK 4

// A directory was created.
#define SF_ON_MKDIR 8

// A directory was removed.
#define SF_ON_RMDIR 16

// A name was changed.
#define SF_ON_RENAME 32

// A hard link was created.
#define SF_ON_LINK 64

// A symbolic link was created.
#define SF_ON_SYMLINK 128

// Permissions, owner, times or extended attributes were changed.
#define SF_ON_ATTRIBUTE 256

// The size of a file was set, or its allocation.
#define SF_ON_TRUNCATE 512

// Data was written.
#define SF_ON_WRITE 1024

// Data was written to a file that was opened with SF_SYNC.
#define SF_ON_SYNC_WRITE 2048

// A file that was open for writing was closed.
#define SF_ON_CLOSE 4096

// `sf_fsync`.
#define SF_ON_FSYNC 8192

// `sf_sync`.
#define SF_ON_SYNC 16384

// The volume is closed.
#define SF_ON_UNMOUNT 32768

// Space ran out, and a transaction point would free some.
#define SF_ON_VOLUME_FULL 65536

// The mask of a new volume: timer, synchronous write, fsync, sync, unmount and volume full.
#define SF_MASK_DEFAULT 124929

// Do not follow a symbolic link in the last name of the path.
#define SF_NOFOLLOW 256

// In `sf_time.nanoseconds`: the present time.
#define SF_TIME_NOW 4294967295

// Version of the interface, which is the number in the name of the shared library. It changes when
// programs compiled with an older header stop working.
#define SF_ABI_VERSION 1

// `sf_xattr_set`: fail with -SF_EEXIST if the attribute exists.
#define SF_XATTR_CREATE 1

// `sf_xattr_set`: fail with -SF_ENODATA if the attribute does not exist.
#define SF_XATTR_REPLACE 2

// An open directory. Threads that share it share one position: each entry is returned once in
// total.
typedef struct sf_dir sf_dir;

// An open file. Several threads may use it at the same time, except for closing it. `sf_read`,
// `sf_write` and `sf_seek` share one position and run one at a time.
typedef struct sf_file sf_file;

// An open transaction. Use it from one thread at a time.
typedef struct sf_transaction sf_transaction;

// An open volume. Several threads may use it at the same time, except for closing it.
typedef struct sf_volume sf_volume;

// An entry of a directory.
typedef struct sf_entry {
    // Number of the inode.
    uint64_t inode;
    // One of SF_KIND_…, the numbers of `d_type`.
    uint32_t kind;
    // Bytes of the name.
    uint32_t length;
    // The name, zero-terminated.
    char name[256];
} sf_entry;

// A point in time.
typedef struct sf_time {
    // Seconds since 1970-01-01 UTC; negative for earlier times.
    int64_t seconds;
    // Nanoseconds within the second, below 1000000000; or SF_TIME_NOW.
    uint32_t nanoseconds;
    // Zero.
    uint32_t reserved;
} sf_time;

// Attributes of a file, as `sf_stat` returns them.
typedef struct sf_attributes {
    // Number of the inode; never reused during the life of a volume.
    uint64_t inode;
    // Size in bytes (file, symbolic link), or number of entries (directory).
    uint64_t size;
    // Bytes allocated on the medium.
    uint64_t allocated;
    // Type and permissions, with the bits of `st_mode`: 0100644 is a regular file.
    uint32_t mode;
    // Hard links.
    uint32_t links;
    // Owner.
    uint32_t uid;
    // Group.
    uint32_t gid;
    // Number of a device node, in Linux' 32-bit encoding.
    uint32_t device;
    // Preferred size of reads and writes, in bytes.
    uint32_t block_size;
    // Last access.
    struct sf_time accessed;
    // Last change of the content.
    struct sf_time modified;
    // Last change of the attributes.
    struct sf_time changed;
    // Creation.
    struct sf_time created;
    // Zero.
    uint64_t reserved[4];
} sf_attributes;

// Parameters of a new volume. Call `sf_format_options_init` first, then change the fields that
// differ.
typedef struct sf_format_options {
    // Set by `sf_format_options_init`.
    uint32_t struct_size;
    // SF_FORMAT_OVERWRITE (images).
    uint32_t flags;
    // Size of the volume in bytes; 0: the whole device.
    uint64_t size;
    // Block size in bytes: a power of two from 128 to 65536, not smaller than the device's atomic
    // unit. Default 4096.
    uint32_t block_size;
    // Size of a tree node in bytes; 0: the block size, but at least 512, and at least 8192 for
    // volumes from 16 MiB.
    uint32_t node_size;
    // Copies of each metadata block, 1 or 2; 0: 2, or 1 on media below 128 KiB.
    uint32_t metadata_copies;
    // Transaction mask to store in the volume. Default SF_MASK_DEFAULT.
    uint32_t mask;
    // Size of the intent log in bytes; 0: no log, so every transaction point is a checkpoint.
    // Default SF_LOG_AUTOMATIC.
    uint64_t log_size;
    // Interval of the transaction timer, milliseconds. Default 5000.
    uint32_t timer_ms;
    // Owner of the root directory.
    uint32_t root_uid;
    // Group of the root directory.
    uint32_t root_gid;
    // Permissions of the root directory. Default 0755.
    uint32_t root_mode;
    // Identity of the volume, which is also the key of the hash of names. All zeros: random bytes.
    // Without an operating system they come from `sf_port.entropy`.
    uint8_t uuid[16];
    // Label of the volume: UTF-8, at most 32 bytes and a zero.
    char label[40];
} sf_format_options;

// Parameters for opening a volume. Call `sf_open_options_init` first, then change the fields that
// differ.
typedef struct sf_open_options {
    // Set by `sf_open_options_init`.
    uint32_t struct_size;
    // SF_OPEN_READ_ONLY, SF_OPEN_NO_ATIME, SF_OPEN_BACKGROUND, SF_OPEN_RECOVER,
    // SF_OPEN_SHARED.
    uint32_t flags;
    // Cache memory in bytes. Default 32 MiB, without an operating system 64 KiB.
    uint64_t cache_size;
} sf_open_options;

// Space and counts of a volume.
typedef struct sf_space {
    // Block size, bytes.
    uint32_t block_size;
    // Longest name, bytes.
    uint32_t name_max;
    // Blocks that files and metadata can use.
    uint64_t blocks;
    // Free blocks, including those that become usable at the next checkpoint.
    uint64_t blocks_free;
    // Blocks still available to files.
    uint64_t blocks_available;
    // Freed blocks that become usable at the next checkpoint.
    uint64_t blocks_almost_free;
    // Inodes in use.
    uint64_t inodes;
    // Zero.
    uint64_t reserved[4];
} sf_space;

// Properties and state of a volume.
typedef struct sf_volume_info {
    // Version of the format on the medium.
    uint32_t format_version;
    // Block size, bytes.
    uint32_t block_size;
    // Size of a tree node, bytes.
    uint32_t node_size;
    // Copies of each metadata block.
    uint32_t metadata_copies;
    // Identity of the volume.
    uint8_t uuid[16];
    // Label, zero-terminated.
    char label[40];
    // Bytes of the volume.
    uint64_t size;
    // Size of the intent log in bytes; 0: there is no log.
    uint64_t log_size;
    // Bytes of the log in use since the last checkpoint.
    uint64_t log_used;
    // Generation of the newest durable checkpoint.
    uint64_t generation;
    // Records that opening found in the log; 0 after a clean close.
    uint64_t replayed_records;
    // Transaction points since the volume was opened.
    uint64_t transaction_points;
    // Changes that a power cut at this moment would lose.
    uint64_t uncommitted;
    // Metadata reads that needed the second copy.
    uint64_t repaired_reads;
    // Rollbacks since the volume was opened.
    uint64_t rollbacks;
    // The transaction mask.
    uint32_t mask;
    // Interval of the timer, milliseconds.
    uint32_t timer_ms;
    // SF_INFO_….
    uint32_t flags;
    // Zero.
    uint32_t reserved_flags;
    // Why the volume became read-only by itself; otherwise empty.
    char failure[128];
    // Zero.
    uint64_t reserved[4];
} sf_volume_info;

// A snapshot.
typedef struct sf_snapshot {
    // Orders snapshots by age.
    uint64_t generation;
    // Creation time: seconds since 1970.
    int64_t created_s;
    // Creation time: nanoseconds within the second.
    uint32_t created_ns;
    // Zero.
    uint32_t reserved;
    // Inodes in the snapshot.
    uint64_t inodes;
    // Blocks that the snapshot refers to. Most of them are usually shared with neighbouring
    // snapshots.
    uint64_t used_blocks;
    // Name, zero-terminated.
    char name[64];
} sf_snapshot;

// An inode that differs between two states.
typedef struct sf_change {
    // Number of the inode.
    uint64_t inode;
    // One of SF_KIND_….
    uint32_t kind;
    // SF_CHANGE_….
    uint32_t flags;
} sf_change;

// A block device that the program implements with functions.
//
// Offsets and lengths are multiples of `atomic_unit`, and requests lie within `size`. Functions
// return 0 or a negative error number. -SF_EAGAIN: the library tries again. -SF_ENODEV: the device
// has been removed. Any other: this request failed. The functions must not call the library with
// the volume that uses this device.
//
// The device guarantees: after `flush` has returned 0, everything written before survives a power
// cut. After a power cut each aligned unit of `atomic_unit` bytes is old or new, never a mixture.
typedef struct sf_device {
    // `sizeof(sf_device)`.
    uint32_t struct_size;
    // SF_DEVICE_SERIAL, SF_DEVICE_VOLATILE.
    uint32_t flags;
    // Bytes of the device.
    uint64_t size;
    // Smallest unit that is written completely or not at all (sector or page), in bytes: a power
    // of two up to 65536.
    uint32_t atomic_unit;
    // Zero.
    uint32_t reserved;
    // Passed to every function. Must stay valid until the volume is closed.
    void *user;
    // Fills `buffer` from `offset`.
    int (*read)(void *user, uint64_t offset, void *buffer, size_t length);
    // Writes `data` at `offset`. NULL: the device is read-only.
    int (*write)(void *user, uint64_t offset, const void *data, size_t length);
    // Makes all earlier writes durable. NULL: a write is durable when it returns.
    int (*flush)(void *user);
    // The given range is no longer needed (TRIM, erase). NULL: the device needs no such hint.
    int (*discard)(void *user, uint64_t offset, uint64_t length);
} sf_device;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns the meaning of an error number, which may be negative (as functions return it) or
// positive. Never NULL; do not free it.
const char *sf_strerror(int code);

// Copies up to `length` bytes between two files of one volume, or within one file. Returns the
// number of bytes: less than `length` only at the end of the source. Blocks that the range covers
// completely at the same offset within a block in both files are shared, not copied. Shared blocks
// take no extra space until one of the files changes them. -SF_EINVAL: the ranges overlap in one
// file.
int64_t sf_copy_range(struct sf_file *from,
                      int64_t from_offset,
                      struct sf_file *to,
                      int64_t to_offset,
                      uint64_t length);

// Makes a range of one file equal to a range of another file of the same volume, or of the same
// file, by sharing blocks. Fails if sharing is impossible. `length` 0 means up to the end of the
// source. Returns the number of bytes. Offsets and length must be multiples of the block size. The
// range may end off a block boundary only at the end of the source, if the target does not
// continue after it. Fails with -SF_EINVAL if this rule is violated, if the ranges overlap in one
// file, or if the range ends beyond the source.
int64_t sf_clone_range(struct sf_file *from,
                       int64_t from_offset,
                       struct sf_file *to,
                       int64_t to_offset,
                       uint64_t length);

// Opens a directory for reading its entries. On failure `*directory` is unchanged.
int sf_dir_open(struct sf_volume *volume, const char *path, struct sf_dir **directory);

// Copies the next entry, in no particular order and without `.` and `..`. Returns 1, or 0 at the
// end. An entry that exists during the whole listing is returned exactly once, whatever else
// changes.
int sf_dir_read(struct sf_dir *directory, struct sf_entry *entry);

// Continues with the first entry.
int sf_dir_rewind(struct sf_dir *directory);

// Closes a directory. NULL is allowed and does nothing.
int sf_dir_close(struct sf_dir *directory);

// Returns a line about the last failure of this thread: the function, the cause, the place and the
// remedy, as far as they are known. Empty if nothing has failed. Valid until the next call of this
// library on this thread. In a library without an operating system all tasks share one line.
const char *sf_last_error(void);

// Opens a regular file and follows symbolic links. `flags`: SF_READ, SF_WRITE or both, with
// SF_CREATE, SF_EXCLUSIVE, SF_TRUNCATE, SF_APPEND, SF_SYNC. `mode`: permissions of a new file,
// such as 0644. On failure `*file` is unchanged. An open file stays usable after its name is
// removed. After a rollback to before its creation it returns -SF_ESTALE.
int sf_file_open(struct sf_volume *volume,
                 const char *path,
                 uint32_t flags,
                 uint32_t mode,
                 struct sf_file **file);

// Closes a file. The pointer becomes invalid, whatever this function returns. NULL is allowed and
// does nothing.
int sf_file_close(struct sf_file *file);

// Reads up to `length` bytes at `offset`. Returns the number of bytes: less than `length` only at
// the end of the file, 0 at or after the end.
int64_t sf_pread(struct sf_file *file, void *buffer, size_t length, int64_t offset);

// Writes all of `data` at `offset`. Returns `length` or an error. After an error a first part of
// `data` may be written.
int64_t sf_pwrite(struct sf_file *file, const void *data, size_t length, int64_t offset);

// Reads up to `length` bytes at the position of the file and advances it. Returns the number of
// bytes; 0 at the end.
int64_t sf_read(struct sf_file *file, void *buffer, size_t length);

// Writes all of `data` at the position of the file (with SF_APPEND: at its end) and advances it.
// Returns `length` or an error. After an error the position is unchanged.
int64_t sf_write(struct sf_file *file, const void *data, size_t length);

// Moves the position of the file; `whence` is one of SF_SEEK_…. Returns the new position.
// -SF_ENXIO: no data follows.
int64_t sf_seek(struct sf_file *file, int64_t offset, int whence);

// Sets the size of a file. A smaller size cuts the file; a larger size adds a hole.
int sf_file_truncate(struct sf_file *file, int64_t size);

// Allocates space for a range, so that writes to it do not run out of space. `flags`: 0,
// SF_KEEP_SIZE, or SF_PUNCH_HOLE.
int sf_allocate(struct sf_file *file, int64_t offset, int64_t length, uint32_t flags);

// Makes everything accepted so far durable if the mask has SF_ON_FSYNC. Otherwise returns
// immediately.
int sf_fsync(struct sf_file *file);

// Returns the attributes of an open file.
int sf_file_stat(struct sf_file *file, struct sf_attributes *attributes);

// Reads a whole file of at most `size` bytes. Returns its length. -SF_ERANGE: the file is longer,
// and nothing was read. With `size` 0 the function only returns the length.
int64_t sf_read_file(struct sf_volume *volume, const char *path, void *buffer, size_t size);

// Makes a file hold exactly `data`. Creates the file with permissions 0644 if it does not exist.
// To change several files atomically, call `sf_transact` after the last one, with no other event
// in the mask.
int sf_write_file(struct sf_volume *volume, const char *path, const void *data, size_t length);

// Creates a volume in an image file, or on a block device of the system. A file that does not
// exist is created with `options->size` bytes. An existing file fails with -SF_EEXIST unless
// `options->flags` has SF_FORMAT_OVERWRITE; then a size of 0 keeps the file's size. The file is
// synchronised when the function returns.
int sf_format_image(const char *path, const struct sf_format_options *options);

// Opens the volume in an image file or on a block device, and locks it. The lock is exclusive, or
// shared if the volume is opened read-only. `options` may be NULL. On failure `*volume` is
// unchanged.
int sf_open_image(const char *path, const struct sf_open_options *options, struct sf_volume **volume);

// Opens a snapshot of the volume in an image file or on a block device as a separate read-only
// volume. The image is locked as `sf_open_image` does with SF_OPEN_READ_ONLY: it must not be open
// for writing. Close the snapshot with `sf_close`. `options` may be NULL. On failure `*volume` is
// unchanged.
int sf_snapshot_open_image(const char *path,
                           const char *name,
                           const struct sf_open_options *options,
                           struct sf_volume **volume);

// Returns the attributes of the object at a path. `flags`: 0 or SF_NOFOLLOW.
int sf_stat(struct sf_volume *volume, const char *path, uint32_t flags, struct sf_attributes *attributes);

// Creates a directory with permissions `mode`, such as 0755.
int sf_mkdir(struct sf_volume *volume, const char *path, uint32_t mode);

// Creates a directory and its missing parents, with permissions 0755. An existing directory is no
// error.
int sf_mkdir_all(struct sf_volume *volume, const char *path);

// Creates a file of the type in `mode` (the bits of `st_mode`: regular file, FIFO, socket,
// character or block device). `device`: the device number, in Linux' 32-bit encoding.
int sf_mknod(struct sf_volume *volume, const char *path, uint32_t mode, uint32_t device);

// Creates a symbolic link at `path` that leads to `target`.
int sf_symlink(struct sf_volume *volume, const char *target, const char *path);

// Copies the target of a symbolic link, without a zero at its end. Returns its length. -SF_ERANGE:
// the buffer is too small. With `size` 0 the function only returns the length.
int64_t sf_readlink(struct sf_volume *volume, const char *path, void *buffer, size_t size);

// Adds the name `new_path` to the file at `path`. If the last name of `path` is a symbolic link,
// the link itself gets the new name.
int sf_link(struct sf_volume *volume, const char *path, const char *new_path);

// Removes a name. The space of the file is freed after its last name is removed and its last open
// handle is closed.
int sf_unlink(struct sf_volume *volume, const char *path);

// Removes an empty directory.
int sf_rmdir(struct sf_volume *volume, const char *path);

// Removes a file, or a directory with all its contents. After an error the part that was not
// reached remains.
int sf_remove_all(struct sf_volume *volume, const char *path);

// Renames a file or directory. An object that has the new name is replaced. `flags`: 0,
// SF_RENAME_NOREPLACE or SF_RENAME_EXCHANGE.
int sf_rename(struct sf_volume *volume, const char *path, const char *new_path, uint32_t flags);

// Sets the permissions to the low 12 bits of `mode`.
int sf_chmod(struct sf_volume *volume, const char *path, uint32_t mode);

// Sets owner and group; 0xffffffff keeps the present value. `flags`: 0 or SF_NOFOLLOW.
int sf_chown(struct sf_volume *volume, const char *path, uint32_t uid, uint32_t gid, uint32_t flags);

// Sets the times of the last access and of the last content change. NULL keeps a time. SF_TIME_NOW
// in `nanoseconds` means the present time. `flags`: 0 or SF_NOFOLLOW.
int sf_utimens(struct sf_volume *volume,
               const char *path,
               const struct sf_time *accessed,
               const struct sf_time *modified,
               uint32_t flags);

// Sets the size of a file. A smaller size cuts the file; a larger size adds a hole.
int sf_truncate(struct sf_volume *volume, const char *path, int64_t size);

// Fills `options` with the defaults. `size` is `sizeof *options`.
int sf_format_options_init(struct sf_format_options *options, size_t size);

// Fills `options` with the defaults. `size` is `sizeof *options`.
int sf_open_options_init(struct sf_open_options *options, size_t size);

// Returns space and counts of the volume.
int sf_statistics(struct sf_volume *volume, struct sf_space *space);

// Returns properties and state of the volume.
int sf_info(struct sf_volume *volume, struct sf_volume_info *info);

// Takes a snapshot of the present state of the volume, which becomes a transaction point. The name
// has 1 to 63 bytes of UTF-8 without a slash. Fails with -SF_EEXIST if a snapshot of this name
// exists. Fails with -SF_ENOSPC if later removals of files might then lack space.
int sf_snapshot_create(struct sf_volume *volume, const char *name);

// Copies up to `count` snapshots younger than generation `after` (0: all), oldest first. Returns
// their number. Fewer than `count` means that no more exist.
int sf_snapshot_list(struct sf_volume *volume, uint64_t after, struct sf_snapshot *snapshots, size_t count);

// Deletes a snapshot, which must not be open. Steps of `sf_background` free its space. -SF_ENOENT:
// no snapshot has this name.
int sf_snapshot_delete(struct sf_volume *volume, const char *name);

// Rolls the volume back to a snapshot, which remains. `flags`: SF_DESTROY_NEWER. Open files stay
// open. A file that did not exist at the time of the snapshot returns -SF_ESTALE.
int sf_snapshot_rollback(struct sf_volume *volume, const char *name, uint32_t flags);

// Copies up to `count` inodes that differ between the snapshot `before` and the snapshot `after`
// (NULL: the live volume). Begins at inode number `*next`, which is 0 for the first call. Sets
// `*next` to the inode number to continue from, or 0 at the end. Returns the number of copied
// entries, which can be 0 before the end.
int sf_snapshot_diff(struct sf_volume *volume,
                     const char *before,
                     const char *after,
                     uint64_t *next,
                     struct sf_change *changes,
                     size_t count);

// Opens a snapshot of the volume on a device as a separate read-only volume. The volume itself may
// be open at the same time. Close the snapshot with `sf_close`. The snapshot must not be deleted
// while it is open. `options` may be NULL. On failure `*volume` is unchanged.
int sf_snapshot_open(const struct sf_device *device,
                     const char *name,
                     const struct sf_open_options *options,
                     struct sf_volume **volume);

// Begins a transaction of the whole volume. Changes that were accepted before are durable when it
// returns. From then on only `sf_commit` makes changes durable. `sf_transact`, `sf_rollback`,
// `sf_mask_set` and a second `sf_begin` return -SF_EBUSY, and the events of the mask do nothing.
// Changes of other threads belong to the transaction. After a power cut the volume is in the state
// of the beginning or of the commit. On failure `*transaction` is unchanged.
int sf_begin(struct sf_volume *volume, struct sf_transaction **transaction);

// Makes all changes since `sf_begin` durable, all of them or none. The transaction has ended in
// every case, and the pointer becomes invalid. After an error it is rolled back, as by
// `sf_rollback`. One error is different: if the device fails, the volume becomes read-only and
// shows the changes. Opened again, it has all of them or none.
int sf_commit(struct sf_transaction *transaction);

// Drops all changes since `sf_begin`, as `sf_rollback` does, and ends the transaction. The pointer
// becomes invalid. After an error the changes may still be seen, but never become durable. The
// volume accepts nothing more then, unless a second try has dropped them. NULL is allowed and does
// nothing.
int sf_abort(struct sf_transaction *transaction);

// Sets a transaction point: makes everything accepted so far durable, atomically.
int sf_transact(struct sf_volume *volume);

// Rolls the volume back to the last transaction point. Everything accepted since then is dropped,
// for all writers. Open files stay open. A file that did not exist at that point returns
// -SF_ESTALE.
int sf_rollback(struct sf_volume *volume);

// Like `sf_transact`, and empties the intent log. Freed space is usable again immediately, and the
// next opening replays nothing.
int sf_checkpoint(struct sf_volume *volume);

// Sets a transaction point if the mask has SF_ON_SYNC.
int sf_sync(struct sf_volume *volume);

// Does one bounded step of the background work: the transaction timer, checkpoints, and freeing
// the space of deleted files. Returns 1 while more work is due immediately, otherwise 0. Call it
// at least every 100 ms, from a task of its own or between operations. With SF_OPEN_BACKGROUND the
// library calls it.
int sf_background(struct sf_volume *volume);

// Returns the transaction mask and the interval of the timer in milliseconds. Either pointer may
// be NULL.
int sf_mask_get(struct sf_volume *volume, uint32_t *mask, uint32_t *timer_ms);

// Sets the transaction mask (SF_ON_… or SF_MASK_…) and the interval of the timer in milliseconds
// (0: keep it). Both take effect immediately and are stored with the next transaction point.
int sf_mask_set(struct sf_volume *volume, uint32_t mask, uint32_t timer_ms);

// Returns the interface version of the linked or loaded library. Compare it with SF_ABI_VERSION.
uint32_t sf_abi_version(void);

// Returns the version of the library as text, such as "0.1.0".
const char *sf_version(void);

// Creates a volume on a device. All data on the device is lost. `options` may be NULL.
// -SF_EOVERFLOW: the device has fewer bytes than its `size`; nothing has changed.
// -SF_ENOBUFS: as for `sf_open`.
int sf_format(const struct sf_device *device, const struct sf_format_options *options);

// Opens the volume on a device. The description is copied; its functions and `user` are used until
// the volume is closed. `options` may be NULL. On failure `*volume` is unchanged. Fails with
// -SF_EOVERFLOW if the volume is larger than the device. Without an operating system it fails with
// -SF_ENOBUFS if the arena is too small to open the volume; nothing is lost.
int sf_open(const struct sf_device *device, const struct sf_open_options *options, struct sf_volume **volume);

// Closes a volume. Sets a last transaction point if the mask has SF_ON_UNMOUNT; otherwise
// uncommitted changes are dropped. Fails with -SF_EBUSY if files, directories or a transaction are
// open; the volume stays open. In every other case, even after another error, the volume is closed
// and the pointer becomes invalid. NULL is allowed and does nothing.
int sf_close(struct sf_volume *volume);

// Copies the value of an attribute, such as "user.origin". Returns its length. -SF_ERANGE: the
// buffer is too small. With `size` 0 the function only returns the length. `flags`: 0 or
// SF_NOFOLLOW.
int64_t sf_xattr_get(struct sf_volume *volume,
                     const char *path,
                     const char *name,
                     void *buffer,
                     size_t size,
                     uint32_t flags);

// Sets an attribute. `flags`: SF_XATTR_CREATE, SF_XATTR_REPLACE, SF_NOFOLLOW. Names begin with
// "user.", "trusted.", "security." or "system.", as on Linux.
int sf_xattr_set(struct sf_volume *volume,
                 const char *path,
                 const char *name,
                 const void *value,
                 size_t length,
                 uint32_t flags);

// Removes an attribute. `flags`: 0 or SF_NOFOLLOW.
int sf_xattr_remove(struct sf_volume *volume, const char *path, const char *name, uint32_t flags);

// Copies the names of all attributes, each zero-terminated. Returns the total length in bytes.
// Buffer and `flags` are as for `sf_xattr_get`.
int64_t sf_xattr_list(struct sf_volume *volume, const char *path, void *buffer, size_t size, uint32_t flags);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* STEADFAST_H */
