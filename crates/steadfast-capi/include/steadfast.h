/* Steadfast: a transactional, power-fail-safe file system.
 *
 * The interface for C: volumes on functions of the program (RTOS) or in image files, in this process, without a mount.
 * Link with `pkg-config --libs steadfast`. docs/C-API.md has the guide, examples/c the examples.
 *
 * - Functions return 0 or a count, or a negative error number: -SF_ENOENT. The numbers are those of Linux' errno.h on
 *   every system. sf_strerror(number) names them, sf_last_error() says more about the last one of this thread.
 * - A volume, a file and a directory may be used by several threads at once, except for closing them.
 * - Paths are bytes with slashes between names, from the root of the volume, and end with a zero.
 * - Pointers that must not be NULL answer -SF_EFAULT when they are. Reserved fields are zero.
 * - After any power cut the volume is exactly the state at the last transaction point: sf_transact, and the events in
 *   the transaction mask. Several files change together or not at all.
 */

/* Made from the source by cbindgen: change that, then run
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

// No data, or no file, behind this offset.
#define SF_ENXIO 6

// A value is too long, or a structure is newer than the library.
#define SF_E2BIG 7

// The file is not open for this.
#define SF_EBADF 9

// Try again.
#define SF_EAGAIN 11

// Memory could not be allocated.
#define SF_ENOMEM 12

// No permission for an image file or device.
#define SF_EACCES 13

// A pointer that must not be NULL is NULL.
#define SF_EFAULT 14

// In use: files are open, or another process has the image.
#define SF_EBUSY 16

// The name exists already.
#define SF_EEXIST 17

// The files are on different volumes.
#define SF_EXDEV 18

// The medium has gone.
#define SF_ENODEV 19

// A directory was needed.
#define SF_ENOTDIR 20

// Does not work on directories.
#define SF_EISDIR 21

// An argument is out of range.
#define SF_EINVAL 22

// The file would be too large.
#define SF_EFBIG 27

// No space left. Delete something, or commit or roll back.
#define SF_ENOSPC 28

// The volume is read-only, or went read-only after a failure.
#define SF_EROFS 30

// Too many hard links.
#define SF_EMLINK 31

// The buffer is too small for the value.
#define SF_ERANGE 34

// A name is too long.
#define SF_ENAMETOOLONG 36

// The directory has entries, or there are newer snapshots.
#define SF_ENOTEMPTY 39

// Too many symbolic links on a path.
#define SF_ELOOP 40

// No such extended attribute.
#define SF_ENODATA 61

// Not supported: by this build, or a volume of a newer format.
#define SF_EOPNOTSUPP 95

// The file is gone: deleted, or rolled back to before it was made.
#define SF_ESTALE 116

// Metadata is damaged.
#define SF_EUCLEAN 117

// Not a Steadfast volume.
#define SF_EMEDIUMTYPE 124

// An internal error of the library. The volume can only be closed; what was acknowledged is safe on the medium.
#define SF_ENOTRECOVERABLE 131

// One request at a time: the library never calls two functions of this device at once.
#define SF_DEVICE_SERIAL 1

// Nothing survives a power cut (plain memory). Without this flag the device promises that what it has flushed stays.
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

// Make the file where it does not exist.
#define SF_CREATE 4

// With SF_CREATE: fail with -SF_EEXIST where it exists.
#define SF_EXCLUSIVE 8

// Empty the file; needs SF_WRITE.
#define SF_TRUNCATE 16

// `sf_write` writes to the end of the file.
#define SF_APPEND 32

// Each write is a transaction point, if the mask has SF_ON_SYNC_WRITE.
#define SF_SYNC 64

// `sf_seek`: from the start.
#define SF_SEEK_SET 0

// `sf_seek`: from the present position.
#define SF_SEEK_CUR 1

// `sf_seek`: from the end.
#define SF_SEEK_END 2

// `sf_seek`: the first data at or after this offset.
#define SF_SEEK_DATA 3

// `sf_seek`: the first hole at or after this offset; the end of the file is one.
#define SF_SEEK_HOLE 4

// `sf_allocate`: leave the size of the file as it is.
#define SF_KEEP_SIZE 1

// `sf_allocate`: make the range a hole instead, which frees its space; the size stays as it is.
#define SF_PUNCH_HOLE 2

// `sf_rename`: fail with -SF_EEXIST where the new name exists.
#define SF_RENAME_NOREPLACE 1

// `sf_rename`: both names exist and change places.
#define SF_RENAME_EXCHANGE 2

// In `sf_format_options.log_size`: choose by the size of the volume.
#define SF_LOG_AUTOMATIC 18446744073709551615ull

// Format over what is there already.
#define SF_FORMAT_OVERWRITE 1

// Open the volume for reading only: nothing is written to the medium.
#define SF_OPEN_READ_ONLY 1

// Do not keep access times.
#define SF_OPEN_NO_ATIME 2

// Do the background work in a thread of the library instead of in `sf_background`. The device's functions are called from
// it, too. Not in a library without an operating system.
#define SF_OPEN_BACKGROUND 4

// Where the newest state is damaged open an older one for writing, and give up what was newer. Without this such a volume
// opens for reading only.
#define SF_OPEN_RECOVER 8

// `sf_volume_info.flags`: opened for reading only.
#define SF_INFO_READ_ONLY 1

// `sf_volume_info.flags`: went read-only by itself; `failure` says why.
#define SF_INFO_FAILED 2

// `sf_volume_info.flags`: a copy of the superblock was found damaged.
#define SF_INFO_SUPERBLOCK_DAMAGED 4

// Longest name of a snapshot, bytes.
#define SF_SNAPSHOT_NAME_MAX 63

// `sf_snapshot_rollback`: newer snapshots are destroyed. Without it they make the call fail with -SF_ENOTEMPTY.
#define SF_DESTROY_NEWER 1

// `sf_change.flags`: made in between.
#define SF_CHANGE_CREATED 1

// `sf_change.flags`: removed in between.
#define SF_CHANGE_REMOVED 2

// `sf_change.flags`: data, size or target of a link.
#define SF_CHANGE_CONTENT 4

// `sf_change.flags`: permissions, owner, links or extended attributes.
#define SF_CHANGE_ATTRIBUTES 8

// `sf_change.flags`: names in this directory.
#define SF_CHANGE_ENTRIES 16

// `sf_change.flags`: times of modification or change.
#define SF_CHANGE_TIMES 32

// No transaction points but those of `sf_transact` and `sf_checkpoint`.
#define SF_MASK_MANUAL 0

// At a regular interval, while there is something to commit.
#define SF_ON_TIMER 1

// A file was made.
#define SF_ON_CREATE 2

// A name was removed.
#define SF_ON_UNLINK 4

// A directory was made.
#define SF_ON_MKDIR 8

// A directory was removed.
#define SF_ON_RMDIR 16

// A name was changed.
#define SF_ON_RENAME 32

// A hard link was made.
#define SF_ON_LINK 64

// A symbolic link was made.
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

// What a new volume has: timer, write to a synchronous file, fsync, sync, unmount and volume full.
#define SF_MASK_DEFAULT 124929

// Do not follow a symbolic link that is the last name of the path.
#define SF_NOFOLLOW 256

// In `sf_time.nanoseconds`: the present time.
#define SF_TIME_NOW 4294967295

// Version of the interface: the number in the name of the shared library. It changes when a program that was compiled with
// an older header would not work any more.
#define SF_ABI_VERSION 1

// `sf_xattr_set`: fail with -SF_EEXIST where the attribute exists.
#define SF_XATTR_CREATE 1

// `sf_xattr_set`: fail with -SF_ENODATA where it does not.
#define SF_XATTR_REPLACE 2

// An open directory. Threads that share one get each entry once between them.
typedef struct sf_dir sf_dir;

// An open file. Several threads may use it at once, except for closing it; `sf_read`, `sf_write` and `sf_seek` share one
// position and take turns.
typedef struct sf_file sf_file;

// An open volume. Several threads may use it at once, except for closing it.
typedef struct sf_volume sf_volume;

// An entry of a directory.
typedef struct sf_entry {
    // Number of the inode.
    uint64_t inode;
    // One of SF_KIND_…, the numbers of `d_type`.
    uint32_t kind;
    // Bytes of the name.
    uint32_t length;
    // The name, with a zero at its end.
    char name[256];
} sf_entry;

// A point in time.
typedef struct sf_time {
    // Seconds since 1970-01-01 UTC, negative before.
    int64_t seconds;
    // Nanoseconds within the second, below 1000000000; or SF_TIME_NOW.
    uint32_t nanoseconds;
    // Zero.
    uint32_t reserved;
} sf_time;

// What `sf_stat` shows of a file.
typedef struct sf_attributes {
    // Number of the inode; not reused within the life of a volume.
    uint64_t inode;
    // Bytes (file, symbolic link) or entries (directory).
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
    // Preferred size of reads and writes, bytes.
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

// Parameters of a new volume. Set them with `sf_format_options_init`, then change what should be different.
typedef struct sf_format_options {
    // Set by `sf_format_options_init`.
    uint32_t struct_size;
    // SF_FORMAT_OVERWRITE (images).
    uint32_t flags;
    // Bytes of the volume; 0: all of the device.
    uint64_t size;
    // Block size, bytes: a power of two from 128 to 65536, not below the device's atomic unit. Default 4096.
    uint32_t block_size;
    // Size of a tree node, bytes; 0: the block size, at least 512; at least 8192 from 16 MiB on.
    uint32_t node_size;
    // Copies of each metadata block, 1 or 2; 0: 2, or 1 on media below 128 KiB.
    uint32_t metadata_copies;
    // Transaction mask that is stored in the volume. Default SF_MASK_DEFAULT.
    uint32_t mask;
    // Bytes of the intent log; 0: none, every transaction point is a checkpoint. Default SF_LOG_AUTOMATIC.
    uint64_t log_size;
    // Interval of the transaction timer, milliseconds. Default 5000.
    uint32_t timer_ms;
    // Owner of the root directory.
    uint32_t root_uid;
    // Group of the root directory.
    uint32_t root_gid;
    // Permissions of the root directory. Default 0755.
    uint32_t root_mode;
    // Identity of the volume, which also keys the hash of names. All zeros: random bytes; without an operating system
    // give 16 random bytes.
    uint8_t uuid[16];
    // Label for people: UTF-8, at most 32 bytes and a zero.
    char label[40];
} sf_format_options;

// Parameters of opening a volume. Set them with `sf_open_options_init`, then change what should be different.
typedef struct sf_open_options {
    // Set by `sf_open_options_init`.
    uint32_t struct_size;
    // SF_OPEN_READ_ONLY, SF_OPEN_NO_ATIME, SF_OPEN_BACKGROUND, SF_OPEN_RECOVER.
    uint32_t flags;
    // Bytes of memory for the cache. Default 32 MiB, without an operating system 64 KiB.
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
    // Blocks not in use, with those that become usable at the next checkpoint.
    uint64_t blocks_free;
    // Blocks that files can still take.
    uint64_t blocks_available;
    // Freed blocks that become usable at the next checkpoint.
    uint64_t blocks_almost_free;
    // Inodes in use.
    uint64_t inodes;
    // Zero.
    uint64_t reserved[4];
} sf_space;

// What a volume is and how it is doing.
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
    // Label, with a zero at its end.
    char label[40];
    // Bytes of the volume.
    uint64_t size;
    // Bytes of the intent log; 0: there is none.
    uint64_t log_size;
    // Bytes of the log in use since the last checkpoint.
    uint64_t log_used;
    // Generation of the newest durable checkpoint.
    uint64_t generation;
    // Log records that opening replayed; 0 after a clean close.
    uint64_t replayed_records;
    // Transaction points since it was opened.
    uint64_t transaction_points;
    // Changes that a power cut now would lose.
    uint64_t uncommitted;
    // Reads of metadata that only the second copy could answer.
    uint64_t repaired_reads;
    // Rollbacks since it was opened.
    uint64_t rollbacks;
    // The transaction mask.
    uint32_t mask;
    // Interval of the timer, milliseconds.
    uint32_t timer_ms;
    // SF_INFO_….
    uint32_t flags;
    // Zero.
    uint32_t reserved_flags;
    // Why the volume went read-only by itself; empty where it did not.
    char failure[128];
    // Zero.
    uint64_t reserved[4];
} sf_volume_info;

// A snapshot.
typedef struct sf_snapshot {
    // Orders snapshots by age.
    uint64_t generation;
    // When it was taken: seconds since 1970.
    int64_t created_s;
    // And nanoseconds.
    uint32_t created_ns;
    // Zero.
    uint32_t reserved;
    // Inodes in it.
    uint64_t inodes;
    // Blocks that it refers to, most of them often shared with its neighbours in time.
    uint64_t used_blocks;
    // Its name, with a zero at its end.
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

// A block device as functions of the program.
//
// Offsets and lengths are multiples of `atomic_unit`, and requests lie within `size`. Functions return 0, or a negative
// error number: -SF_EAGAIN asks for another try, -SF_ENODEV says that the device has gone for good, any other that this
// request cannot be served. They must not call into the library with the volume that they serve.
//
// What the device promises: once `flush` has returned 0, everything that was written before survives a power cut; an
// aligned piece of `atomic_unit` bytes is old or new after one, never a mixture.
typedef struct sf_device {
    // `sizeof(sf_device)`.
    uint32_t struct_size;
    // SF_DEVICE_SERIAL, SF_DEVICE_VOLATILE.
    uint32_t flags;
    // Bytes of the device.
    uint64_t size;
    // Smallest unit that is written whole or not at all, bytes: a power of two up to 65536, the sector or page.
    uint32_t atomic_unit;
    // Zero.
    uint32_t reserved;
    // Handed to every function. Must stay valid until the volume is closed.
    void *user;
    // Fills `buffer` from `offset`.
    int (*read)(void *user, uint64_t offset, void *buffer, size_t length);
    // Writes `data` at `offset`. NULL: the device is read-only.
    int (*write)(void *user, uint64_t offset, const void *data, size_t length);
    // Makes everything that was written durable. NULL: a write is durable when it returns.
    int (*flush)(void *user);
    // Says that these bytes are not needed any more (TRIM, erase). NULL: nothing is to be done.
    int (*discard)(void *user, uint64_t offset, uint64_t length);
} sf_device;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Gives memory of `sf_bare_allocate` back.
extern void sf_bare_release(void *memory, size_t size, size_t alignment);

// The meaning of an error number, negative as functions return it or positive. Never NULL, never to be freed.
const char *sf_strerror(int code);

// Copies up to `length` bytes from one file to another (or the same) of one volume. Returns how many: fewer at the end of
// the source. Whole blocks at the same place within a block in both files are shared instead of copied and take no space
// until one of the files changes them. -SF_EINVAL: the ranges overlap in one file.
int64_t sf_copy_range(struct sf_file *from,
                      int64_t from_offset,
                      struct sf_file *to,
                      int64_t to_offset,
                      uint64_t length);

// Makes `length` bytes (0: up to the end of the source) of one file the same as those of another one (or the same) of one
// volume by sharing their blocks, or fails. Returns how many bytes that are. Offsets and length are multiples of the block
// size; only the end may be that of the source, where it is not before that of the target. -SF_EINVAL: they are not, or
// the ranges overlap in one file, or end behind the source.
int64_t sf_clone_range(struct sf_file *from,
                       int64_t from_offset,
                       struct sf_file *to,
                       int64_t to_offset,
                       uint64_t length);

// Opens a directory for reading its entries. On failure `*directory` is left alone.
int sf_dir_open(struct sf_volume *volume, const char *path, struct sf_dir **directory);

// Copies the next entry, without `.` and `..`, in no particular order. Returns 1, and 0 at the end. An entry that is there
// all the time is seen once, whatever else changes.
int sf_dir_read(struct sf_dir *directory,
                struct sf_entry *entry);

// Starts again with the first entry.
int sf_dir_rewind(struct sf_dir *directory);

// Closes a directory. NULL is allowed and does nothing.
int sf_dir_close(struct sf_dir *directory);

// A line about the last failure of this thread: the function, and what was wrong, where and what to do, as far as it is
// known. Empty where nothing has failed. Valid until the next call of this library on this thread. In a library without
// an operating system there is one line for all tasks.
const char *sf_last_error(void);

// Opens a regular file; symbolic links are followed. `flags`: SF_READ, SF_WRITE or both, with SF_CREATE, SF_EXCLUSIVE,
// SF_TRUNCATE, SF_APPEND, SF_SYNC. `mode`: permissions of a new file, such as 0644. On failure `*file` is left alone. A file
// that is open stays usable when its name is removed; after a rollback to before it was made it answers -SF_ESTALE.
int sf_file_open(struct sf_volume *volume,
                 const char *path,
                 uint32_t flags,
                 uint32_t mode,
                 struct sf_file **file);

// Closes a file. The pointer is not valid afterwards, whatever this returns. NULL is allowed and does nothing.
int sf_file_close(struct sf_file *file);

// Reads up to `length` bytes at `offset`. Returns how many: fewer only at the end of the file, where it is 0.
int64_t sf_pread(struct sf_file *file, void *buffer, size_t length, int64_t offset);

// Writes all of `data` at `offset`. Returns `length`, or an error, and then bytes at the start of it may be written.
int64_t sf_pwrite(struct sf_file *file,
                  const void *data,
                  size_t length,
                  int64_t offset);

// Reads up to `length` bytes at the position of the file, and moves it. Returns how many; 0 at the end.
int64_t sf_read(struct sf_file *file, void *buffer, size_t length);

// Writes all of `data` at the position of the file (with SF_APPEND: at its end), and moves it. Returns `length`, or an error,
// and then the position has not moved.
int64_t sf_write(struct sf_file *file,
                 const void *data,
                 size_t length);

// Moves the position of the file; `whence` is one of SF_SEEK_…. Returns the new one. -SF_ENXIO: no data follows.
int64_t sf_seek(struct sf_file *file,
                int64_t offset,
                int whence);

// Sets the size of a file: shorter cuts, longer leaves a hole.
int sf_file_truncate(struct sf_file *file, int64_t size);

// Reserves space for a range, so that writing there does not run out of it. `flags`: 0, SF_KEEP_SIZE, or SF_PUNCH_HOLE.
int sf_allocate(struct sf_file *file,
                int64_t offset,
                int64_t length,
                uint32_t flags);

// Makes everything accepted so far durable, if the mask has SF_ON_FSYNC; without it, returns at once.
int sf_fsync(struct sf_file *file);

// The attributes of an open file.
int sf_file_stat(struct sf_file *file, struct sf_attributes *attributes);

// Reads a whole file of at most `size` bytes. Returns its length. -SF_ERANGE: it has more, and nothing was read; with
// `size` 0 the length is all that is asked for.
int64_t sf_read_file(struct sf_volume *volume,
                     const char *path,
                     void *buffer,
                     size_t size);

// Makes a file hold exactly `data`; makes it with permissions 0644 where it does not exist. To change it and others as one,
// call `sf_transact` after the last of them and have no other event in the mask.
int sf_write_file(struct sf_volume *volume,
                  const char *path,
                  const void *data,
                  size_t length);

// Makes a volume in an image file, or on a block device of the system. A file that does not exist is made with
// `options->size` bytes. One that exists is refused with -SF_EEXIST unless `options->flags` has SF_FORMAT_OVERWRITE; then
// a size of 0 keeps its size. The file is synchronised when this returns.
int sf_format_image(const char *path,
                    const struct sf_format_options *options);

// Opens the volume in an image file or on a block device, and locks it: for this volume alone, or among readers where it
// is opened read-only. `options` may be NULL. On failure `*volume` is left alone.
int sf_open_image(const char *path,
                  const struct sf_open_options *options,
                  struct sf_volume **volume);

// Opens a snapshot of the volume in an image file or on a block device as a volume of its own, for reading. The image is
// locked as by `sf_open_image` with SF_OPEN_READ_ONLY: nobody may have it open for writing. Close it with `sf_close`.
// `options` may be NULL. On failure `*volume` is left alone.
int sf_snapshot_open_image(const char *path,
                           const char *name,
                           const struct sf_open_options *options,
                           struct sf_volume **volume);

// The attributes of what a path leads to. `flags`: 0 or SF_NOFOLLOW.
int sf_stat(struct sf_volume *volume, const char *path, uint32_t flags, struct sf_attributes *attributes);

// Makes a directory with permissions `mode`, such as 0755.
int sf_mkdir(struct sf_volume *volume, const char *path, uint32_t mode);

// Makes a directory and those above it that do not exist, with permissions 0755. That it exists is no error.
int sf_mkdir_all(struct sf_volume *volume, const char *path);

// Makes a file of the type in `mode` (the bits of `st_mode`: regular file, FIFO, socket, character or block device).
// `device`: number of a device, in Linux' 32-bit encoding.
int sf_mknod(struct sf_volume *volume,
             const char *path,
             uint32_t mode,
             uint32_t device);

// Makes a symbolic link at `path` that leads to `target`.
int sf_symlink(struct sf_volume *volume, const char *target, const char *path);

// Copies the target of a symbolic link, without a zero at its end. Returns its length. -SF_ERANGE: the buffer is too small;
// with `size` 0 the length is all that is asked for.
int64_t sf_readlink(struct sf_volume *volume,
                    const char *path,
                    void *buffer,
                    size_t size);

// Gives the file at `path` another name. A symbolic link as the last name of `path` gets the name itself.
int sf_link(struct sf_volume *volume, const char *path, const char *new_path);

// Removes a name. The space of the file comes back when the last name and the last open file are gone.
int sf_unlink(struct sf_volume *volume, const char *path);

// Removes an empty directory.
int sf_rmdir(struct sf_volume *volume, const char *path);

// Removes a file, or a directory with everything in it. An error leaves what was not reached yet.
int sf_remove_all(struct sf_volume *volume, const char *path);

// Renames; what has the new name is replaced. `flags`: 0, SF_RENAME_NOREPLACE or SF_RENAME_EXCHANGE.
int sf_rename(struct sf_volume *volume, const char *path, const char *new_path, uint32_t flags);

// Sets permissions: the low 12 bits of `mode`.
int sf_chmod(struct sf_volume *volume, const char *path, uint32_t mode);

// Sets owner and group; 0xffffffff leaves one as it is. `flags`: 0 or SF_NOFOLLOW.
int sf_chown(struct sf_volume *volume, const char *path, uint32_t uid, uint32_t gid, uint32_t flags);

// Sets the times of the last access and of the last change of the content; NULL leaves one as it is, SF_TIME_NOW in
// `nanoseconds` is the present. `flags`: 0 or SF_NOFOLLOW.
int sf_utimens(struct sf_volume *volume,
               const char *path,
               const struct sf_time *accessed,
               const struct sf_time *modified,
               uint32_t flags);

// Sets the size of a file: shorter cuts, longer leaves a hole.
int sf_truncate(struct sf_volume *volume, const char *path, int64_t size);

// Fills `options` with the defaults. `size` is `sizeof *options`.
int sf_format_options_init(struct sf_format_options *options, size_t size);

// Fills `options` with the defaults. `size` is `sizeof *options`.
int sf_open_options_init(struct sf_open_options *options, size_t size);

// Space and counts.
int sf_statistics(struct sf_volume *volume, struct sf_space *space);

// What the volume is and how it is doing.
int sf_info(struct sf_volume *volume, struct sf_volume_info *info);

// Takes a snapshot of the volume as it is now, which is a transaction point. The name has 1 to 63 bytes of UTF-8 without
// a slash. -SF_EEXIST: there is one of this name. -SF_ENOSPC: removing files under it might not find the room that it
// needs.
int sf_snapshot_create(struct sf_volume *volume,
                       const char *name);

// Copies up to `count` snapshots that are younger than generation `after` (0: all), the oldest first. Returns how many;
// fewer than `count`: there are no more.
int sf_snapshot_list(struct sf_volume *volume,
                     uint64_t after,
                     struct sf_snapshot *snapshots,
                     size_t count);

// Deletes a snapshot. Its space comes back in steps of `sf_background`. It must not be open. -SF_ENOENT: there is none of
// this name.
int sf_snapshot_delete(struct sf_volume *volume,
                       const char *name);

// Returns the volume to a snapshot, which stays. `flags`: SF_DESTROY_NEWER. Files that are open stay open; one that did
// not exist then answers -SF_ESTALE.
int sf_snapshot_rollback(struct sf_volume *volume,
                         const char *name,
                         uint32_t flags);

// Copies up to `count` inodes that differ between the snapshot `before` and the snapshot `after` (NULL: the live volume),
// from inode number `*next` on: 0 at first. Sets `*next` to where to go on, 0 at the end. Returns how many it has copied,
// which can be none before the end.
int sf_snapshot_diff(struct sf_volume *volume,
                     const char *before,
                     const char *after,
                     uint64_t *next,
                     struct sf_change *changes,
                     size_t count);

// Opens a snapshot of the volume on a device as a volume of its own, for reading; also while the volume itself is open.
// Close it with `sf_close`. It must not be deleted meanwhile. `options` may be NULL. On failure `*volume` is left alone.
int sf_snapshot_open(const struct sf_device *device,
                     const char *name,
                     const struct sf_open_options *options,
                     struct sf_volume **volume);

// Sets a transaction point: makes everything durable that was accepted so far, all of it together.
int sf_transact(struct sf_volume *volume);

// Returns the volume to the last transaction point: everything accepted since is dropped, of all writers. Files that are
// open stay open; one that did not exist then answers -SF_ESTALE.
int sf_rollback(struct sf_volume *volume);

// As `sf_transact`, and empties the intent log: space that was freed can be used again at once, and the next opening has
// nothing to replay.
int sf_checkpoint(struct sf_volume *volume);

// A transaction point, if the mask has SF_ON_SYNC.
int sf_sync(struct sf_volume *volume);

// One bounded step of what nobody waits for: the transaction timer, checkpoints, the space of deleted files. Returns 1
// while there is more to do at once, otherwise 0. Call it at least every 100 ms, from a task of its own or between
// operations; with SF_OPEN_BACKGROUND the library does.
int sf_background(struct sf_volume *volume);

// The transaction mask, and the interval of the timer in milliseconds. Either pointer may be NULL.
int sf_mask_get(struct sf_volume *volume, uint32_t *mask, uint32_t *timer_ms);

// Sets the transaction mask (SF_ON_… or SF_MASK_…) and the interval of the timer in milliseconds (0: leave it). Both hold
// at once, and are stored with the next transaction point.
int sf_mask_set(struct sf_volume *volume,
                uint32_t mask,
                uint32_t timer_ms);

// The version of the interface of the library that is linked or loaded: compare it with SF_ABI_VERSION.
uint32_t sf_abi_version(void);

// The version of the library as text, such as "0.1.0".
const char *sf_version(void);

// Makes a volume on a device. What the device holds is lost. `options` may be NULL.
int sf_format(const struct sf_device *device, const struct sf_format_options *options);

// Opens the volume on a device. The description is copied; its functions and `user` are used until the volume is closed.
// `options` may be NULL. On failure `*volume` is left alone.
int sf_open(const struct sf_device *device,
            const struct sf_open_options *options,
            struct sf_volume **volume);

// Closes a volume: sets a last transaction point where the mask has SF_ON_UNMOUNT, otherwise drops what is not committed.
// Refuses with -SF_EBUSY while files or directories are open, and then the volume stays open. In every other case, also
// after another error, the volume is closed and the pointer is not valid any more. NULL is allowed and does nothing.
int sf_close(struct sf_volume *volume);

// Copies the value of an attribute, such as "user.origin". Returns its length. -SF_ERANGE: the buffer is too small; with
// `size` 0 the length is all that is asked for. `flags`: 0 or SF_NOFOLLOW.
int64_t sf_xattr_get(struct sf_volume *volume,
                     const char *path,
                     const char *name,
                     void *buffer,
                     size_t size,
                     uint32_t flags);

// Sets an attribute. `flags`: SF_XATTR_CREATE, SF_XATTR_REPLACE, SF_NOFOLLOW. Names begin with "user.", "trusted.",
// "security." or "system.", as on Linux.
int sf_xattr_set(struct sf_volume *volume,
                 const char *path,
                 const char *name,
                 const void *value,
                 size_t length,
                 uint32_t flags);

// Removes an attribute. `flags`: 0 or SF_NOFOLLOW.
int sf_xattr_remove(struct sf_volume *volume, const char *path, const char *name, uint32_t flags);

// Copies the names of all attributes, each with a zero at its end. Returns how many bytes they have together; buffer and
// `flags` as for `sf_xattr_get`.
int64_t sf_xattr_list(struct sf_volume *volume,
                      const char *path,
                      void *buffer,
                      size_t size,
                      uint32_t flags);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* STEADFAST_H */

#ifdef STEADFAST_BARE
/* What a program brings along for the library without an operating system (built with --no-default-features). */
#ifdef __cplusplus
extern "C" {
#endif
/* Memory of `size` bytes at a multiple of `alignment` (a power of two), or NULL. */
void *sf_bare_allocate(size_t size, size_t alignment);
/* Gives memory of sf_bare_allocate back. */
void sf_bare_release(void *memory, size_t size, size_t alignment);
/* Nanoseconds since 1970-01-01 UTC, for time stamps. */
int64_t sf_bare_now_ns(void);
/* Milliseconds since any moment, never going backwards, for the transaction timer. */
uint64_t sf_bare_monotonic_ms(void);
/* Called again and again while another task holds a lock: let that task run. Empty in a program with one task. */
void sf_bare_yield(void);
/* An internal error, with a line about it. Must not return: reset the machine. */
void sf_bare_panic(const char *text);
#ifdef __cplusplus
}
#endif
#endif /* STEADFAST_BARE */
