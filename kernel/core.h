/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The core of Steadfast, as the VFS side of the module calls it. cbindgen generates this file from
 * crates/steadfast-kernel: change the source, then run
 * STEADFAST_UPDATE=1 cargo test -p steadfast-kernel --test header
 *
 * Functions return 0 or a count, or a negative error number. They sleep. Every call goes through
 * SF_CORE of entry.h, which survives a panic of the core. */

#ifndef STEADFAST_CORE_H
#define STEADFAST_CORE_H

#include <linux/types.h>

struct sfk_volume;

// `sfk_change.fields`: permission bits.
#define SFK_SET_PERMISSIONS 1

// `sfk_change.fields`: owner.
#define SFK_SET_UID 2

// `sfk_change.fields`: group.
#define SFK_SET_GID 4

// `sfk_change.fields`: size.
#define SFK_SET_SIZE 8

// `sfk_change.fields`: time of the last access.
#define SFK_SET_ACCESSED 16

// `sfk_change.fields`: time of the last change of the content.
#define SFK_SET_MODIFIED 32

// `sfk_change.fields`: time of the last change of the attributes.
#define SFK_SET_CHANGED 64

// `sfk_allocate`: allocates holes.
#define SFK_ALLOCATE 0

// `sfk_allocate`: makes a hole.
#define SFK_PUNCH_HOLE 1

// `sfk_allocate`: makes zeros.
#define SFK_ZERO_RANGE 2

// `sfk_extent.flags`: allocated but never written.
#define SFK_EXTENT_UNWRITTEN 1

// `sfk_extent.flags`: a snapshot or another file has some of its blocks, too.
#define SFK_EXTENT_SHARED 2

// `sfk_extent.flags`: the data is kept with the attributes; `place` means nothing.
#define SFK_EXTENT_INLINE 4

// `sfk_rename`: fails if the new name exists (RENAME_NOREPLACE).
#define SFK_RENAME_NOREPLACE 1

// `sfk_rename`: both exist and are swapped (RENAME_EXCHANGE).
#define SFK_RENAME_EXCHANGE 2

// `sfk_rename`: leaves a whiteout (RENAME_WHITEOUT).
#define SFK_RENAME_WHITEOUT 4

// `sfk_shim_transfer`: reads.
#define SFK_READ 0

// `sfk_shim_transfer`: writes.
#define SFK_WRITE 1

// `sfk_shim_transfer`: writes, and returns when these bytes are durable.
#define SFK_WRITE_DURABLE 2

// A time.
struct sfk_time {
    // Seconds since 1970.
    int64_t seconds;
    // Nanoseconds, below 1,000,000,000.
    uint32_t nanoseconds;
};

// Attributes of an inode.
struct sfk_attributes {
    // Number of the inode.
    uint64_t inode;
    // Bytes, or entries of a directory.
    uint64_t size;
    // Bytes allocated on the medium.
    uint64_t allocated;
    // Last access.
    struct sfk_time accessed;
    // Last change of the content.
    struct sfk_time modified;
    // Last change of the attributes.
    struct sfk_time changed;
    // Creation.
    struct sfk_time created;
    // The whole st_mode.
    uint32_t mode;
    // Hard links.
    uint32_t links;
    // Owner.
    uint32_t uid;
    // Group.
    uint32_t gid;
    // Device number, in the kernel's 32-bit encoding.
    uint32_t device;
    // Preferred I/O size in bytes.
    uint32_t block_size;
    // Flags that users set, with the numbers of FS_IOC_GETFLAGS.
    uint32_t flags;
    // `allocated` still falls without a call: background work frees the blocks.
    bool shrinking;
};

// Attributes to change.
struct sfk_change {
    // Which of the following count: SFK_SET_...
    uint32_t fields;
    // The low 12 bits of st_mode.
    uint32_t permissions;
    // Owner.
    uint32_t uid;
    // Group.
    uint32_t gid;
    // Size of a regular file.
    uint64_t size;
    // Last access.
    struct sfk_time accessed;
    // Last change of the content.
    struct sfk_time modified;
    // Last change of the attributes.
    struct sfk_time changed;
};

// A range of a file with consecutive bytes of the device.
struct sfk_extent {
    // Its first byte in the file.
    uint64_t offset;
    // Its first byte on the device.
    uint64_t place;
    // Its length in bytes.
    uint64_t length;
    // SFK_EXTENT_...
    uint32_t flags;
};

// A name.
struct sfk_name {
    // Its bytes.
    const char *text;
    // Their number.
    size_t length;
};

// The caller and the mode of a new inode.
struct sfk_new {
    // st_mode: the type and the permission bits before umask or default ACL.
    uint32_t mode;
    // Owner.
    uint32_t uid;
    // Group, unless the directory has set-group-id.
    uint32_t gid;
    // File mode creation mask.
    uint32_t umask;
    // Device number, in the kernel's 32-bit encoding.
    uint32_t device;
    // Target of a symbolic link.
    struct sfk_name target;
};

// A snapshot.
struct sfk_snapshot {
    uint8_t name[64];
    uint64_t generation;
    int64_t created_seconds;
    uint64_t inodes;
    uint64_t used_blocks;
    uint32_t created_nanoseconds;
    uint32_t flags;
};

// An inode that differs between two states.
struct sfk_difference {
    // Its number.
    uint64_t inode;
    // As `d_type`.
    uint32_t kind;
    // From bit 0: created, removed, content, attributes, entries, times.
    uint32_t flags;
};

// One piece of memory of a request to the device.
struct sfk_piece {
    // Its first byte.
    uint8_t *data;
    // Its length in bytes.
    size_t length;
};

// How to open a volume.
struct sfk_options {
    // Size of the device in bytes.
    uint64_t size;
    // Its atomic unit in bytes.
    uint32_t unit;
    // It takes discards.
    bool discards;
    // What is freed is discarded in the background.
    bool discards_freed;
    // Nothing is written.
    bool read_only;
    // Gives up a newer state that is damaged.
    bool recover;
    // Memory for nodes, names and bitmaps, in bytes.
    size_t cache_size;
    // The name of a snapshot, which is opened instead of the volume; NULL: the volume.
    const char *snapshot;
};

// Space of a volume.
struct sfk_statistics {
    // Bytes of a block.
    uint32_t block_size;
    // Longest name in bytes.
    uint32_t name_max;
    // Blocks that files and metadata can use.
    uint64_t blocks;
    // Blocks that are not in use.
    uint64_t blocks_free;
    // Blocks that a new file can take.
    uint64_t blocks_available;
    // Inodes in use.
    uint64_t inodes;
};

// Properties and state of a volume, as the ioctl SF_IOC_INFO returns them.
struct sfk_info {
    uint32_t version;
    uint32_t block_size;
    uint32_t node_size;
    uint32_t metadata_copies;
    uint8_t uuid[16];
    uint8_t label[32];
    uint64_t size;
    uint64_t log_size;
    uint64_t features_compatible;
    uint64_t features_read_only;
    uint64_t features_incompatible;
    uint64_t generation;
    uint64_t replayed_records;
    uint64_t log_used;
    uint64_t transaction_points;
    uint64_t repaired_reads;
    uint64_t incarnation;
    uint64_t uncommitted;
    uint32_t mask;
    uint32_t timer_ms;
    uint32_t flags;
    uint32_t reserved;
    uint8_t poisoned[128];
};

// The attributes of an inode.
int sfk_attributes_get(const struct sfk_volume *volume, uint64_t inode, struct sfk_attributes *out);

// Changes attributes in one operation, and returns the new ones.
int sfk_attributes_set(const struct sfk_volume *volume,
                       uint64_t inode,
                       const struct sfk_change *change,
                       struct sfk_attributes *out);

// Gives a file or directory these flags in place of those that it has, and returns its attributes.
int sfk_flags_set(const struct sfk_volume *volume,
                  uint64_t inode,
                  uint32_t flags,
                  struct sfk_attributes *out);

// Fills `buffer` from `offset`. Returns the number of bytes, smaller at the end of the file only.
// The access time is the kernel's.
ptrdiff_t sfk_read(const struct sfk_volume *volume,
                   uint64_t inode,
                   uint64_t offset,
                   uint8_t *buffer,
                   size_t length);

// Writes all of `data` at `offset` or fails.
int sfk_write(const struct sfk_volume *volume,
              uint64_t inode,
              uint64_t offset,
              const uint8_t *data,
              size_t length);

// fallocate(2); `mode` is one of SFK_ALLOCATE, SFK_PUNCH_HOLE and SFK_ZERO_RANGE.
int sfk_allocate(const struct sfk_volume *volume,
                 uint64_t inode,
                 uint64_t offset,
                 uint64_t length,
                 uint32_t mode,
                 bool keep_size);

// The first byte of data (or of a hole) at or after `offset`.
int64_t sfk_seek(const struct sfk_volume *volume, uint64_t inode, uint64_t offset, bool hole);

// Up to `room` extents from the one on that holds byte `offset`, in order. Returns their number.
ptrdiff_t sfk_extents(const struct sfk_volume *volume,
                      uint64_t inode,
                      uint64_t offset,
                      struct sfk_extent *out,
                      size_t room);

// copy_file_range(2): shares whole blocks where it can. Returns the number of bytes.
int64_t sfk_copy(const struct sfk_volume *volume,
                 uint64_t from,
                 uint64_t from_offset,
                 uint64_t to,
                 uint64_t to_offset,
                 uint64_t length);

// FICLONERANGE: shares blocks or fails. Returns the number of bytes.
int64_t sfk_clone(const struct sfk_volume *volume,
                  uint64_t from,
                  uint64_t from_offset,
                  uint64_t to,
                  uint64_t to_offset,
                  uint64_t length);

// Keeps an inode without a name alive until `sfk_release`.
int sfk_acquire(const struct sfk_volume *volume, uint64_t inode);

// Undoes one `sfk_acquire`.
void sfk_release(const struct sfk_volume *volume, uint64_t inode);

// The inode that `name` in `directory` names; `..` works too.
int sfk_lookup(const struct sfk_volume *volume,
               uint64_t directory,
               const struct sfk_name *name,
               struct sfk_attributes *out);

// Passes entries after `cookie` to `sfk_shim_emit` until it refuses one. 1: the directory goes on;
// 0: it ended.
int sfk_list(const struct sfk_volume *volume, uint64_t directory, uint64_t cookie, void *context);

// Creates an inode of any type.
int sfk_create(const struct sfk_volume *volume,
               uint64_t directory,
               const struct sfk_name *name,
               const struct sfk_new *new_,
               struct sfk_attributes *out);

// A regular file without a name (O_TMPFILE), acquired once.
int sfk_create_unnamed(const struct sfk_volume *volume,
                       uint64_t directory,
                       const struct sfk_new *new_,
                       struct sfk_attributes *out);

// Gives an inode another name.
int sfk_link(const struct sfk_volume *volume,
             uint64_t inode,
             uint64_t directory,
             const struct sfk_name *name,
             struct sfk_attributes *out);

// Removes a name of anything but a directory.
int sfk_unlink(const struct sfk_volume *volume, uint64_t directory, const struct sfk_name *name);

// Removes an empty directory.
int sfk_rmdir(const struct sfk_volume *volume, uint64_t directory, const struct sfk_name *name);

// Renames; `flags` are SFK_RENAME_..., and `whiteout` has the owner of a whiteout.
int sfk_rename(const struct sfk_volume *volume,
               uint64_t from,
               const struct sfk_name *from_name,
               uint64_t to,
               const struct sfk_name *to_name,
               uint32_t flags,
               const struct sfk_new *whiteout);

// Copies the target of a symbolic link to `buffer` of `room` bytes. Returns its length.
ptrdiff_t sfk_read_link(const struct sfk_volume *volume, uint64_t inode, char *buffer, size_t room);

// Returns the volume to the last transaction point.
int sfk_rollback(const struct sfk_volume *volume);

// Sets a transaction point, and from here on `sfk_atomic_commit` alone sets the next one.
int sfk_atomic_begin(const struct sfk_volume *volume);

// Whether an atomic change is under way.
bool sfk_atomic_runs(const struct sfk_volume *volume);

// Makes everything since `sfk_atomic_begin` durable. After an error it may still run.
int sfk_atomic_commit(const struct sfk_volume *volume);

// Returns the volume to `sfk_atomic_begin`. After an error it may still run.
int sfk_atomic_roll_back(const struct sfk_volume *volume);

// Takes a snapshot of everything accepted so far.
int sfk_snapshot_create(const struct sfk_volume *volume,
                        const char *name,
                        struct sfk_snapshot *out);

// Deletes a snapshot.
int sfk_snapshot_delete(const struct sfk_volume *volume, const char *name);

// Returns the volume to a snapshot. `newer`: newer snapshots may be deleted.
int sfk_snapshot_rollback(const struct sfk_volume *volume, const char *name, bool newer);

// Writes up to `room` snapshots of later generations than `after` to `out`. Returns their number.
ptrdiff_t sfk_snapshot_list(const struct sfk_volume *volume,
                            uint64_t after,
                            struct sfk_snapshot *out,
                            size_t room);

// Writes up to `room` inodes from `next` on that differ between the snapshots `before` and
// `after`. If `after` is empty, the live volume stands for it. Returns their number. `next` is
// then where the list goes on; 0: it has ended.
ptrdiff_t sfk_snapshot_diff(const struct sfk_volume *volume,
                            const char *before,
                            const char *after,
                            uint64_t *next,
                            struct sfk_difference *out,
                            size_t room);

// Frees memory of `sfk_shim_allocate`.
extern void sfk_shim_release(void *memory);

// Reports the text and leaves the core; see the crate. It does not return, but is not declared
// so, because objtool would then find code that ends in the middle.
extern void sfk_shim_panic(const uint8_t *text, size_t length);

// The wall clock, coarse like that of the VFS.
extern void sfk_shim_now(int64_t *seconds, uint32_t *nanoseconds);

// Continues a CRC-32C.
extern uint32_t sfk_shim_crc32c(uint32_t crc, const uint8_t *data, size_t length);

extern void sfk_shim_mutex_free(void *mutex);

extern void sfk_shim_mutex_lock(void *mutex);

extern bool sfk_shim_mutex_try(void *mutex);

extern void sfk_shim_mutex_unlock(void *mutex);

extern bool sfk_shim_mutex_held(void *mutex);

extern void sfk_shim_rwsem_free(void *rwsem);

extern void sfk_shim_rwsem_read(void *rwsem);

extern bool sfk_shim_rwsem_try_read(void *rwsem);

extern void sfk_shim_rwsem_read_done(void *rwsem);

extern void sfk_shim_rwsem_write(void *rwsem);

extern bool sfk_shim_rwsem_try_write(void *rwsem);

extern void sfk_shim_rwsem_write_done(void *rwsem);

extern bool sfk_shim_rwsem_held(void *rwsem);

// One request for consecutive bytes of the device. 0 or a negative error number.
extern int sfk_shim_transfer(void *device,
                             int kind,
                             uint64_t offset,
                             const struct sfk_piece *pieces,
                             size_t count);

// Makes completed writes durable. 0 or a negative error number.
extern int sfk_shim_flush(void *device);

// Discards bytes. 0 or a negative error number.
extern int sfk_shim_discard(void *device, uint64_t offset, uint64_t length);

// Passes one entry of a directory on. `false`: no room for it.
extern bool sfk_shim_emit(void *context,
                          const char *name,
                          size_t length,
                          uint64_t inode,
                          uint32_t kind,
                          uint64_t cookie);

// The snapshot with this name.
int sfk_snapshot_find(const struct sfk_volume *volume,
                      const struct sfk_name *name,
                      struct sfk_snapshot *out);

// Whether the volume has the snapshot of this generation: 1 or 0.
int sfk_snapshot_exists(const struct sfk_volume *volume, uint64_t generation);

// Attributes of the directory that lists the snapshots. The caller knows its number.
int sfk_snapshots_directory(const struct sfk_volume *volume, struct sfk_attributes *out);

// Opens the snapshot of a generation beside the volume. ENOENT if there is none.
int sfk_view_open(const struct sfk_volume *volume, uint64_t generation, struct sfk_volume **out);

// Opens the volume on a device. After an error `text` of `room` bytes says what and where.
int sfk_open(void *device,
             const struct sfk_options *options,
             struct sfk_volume **out,
             char *text,
             size_t room);

// Closes the volume: a checkpoint if the mask has `unmount`. `sfk_free` follows.
int sfk_close(const struct sfk_volume *volume);

// Frees the memory of a volume, which no caller uses any more.
void sfk_free(struct sfk_volume *volume);

// One bounded step of background work. 1: there is more to do at once.
int sfk_background(const struct sfk_volume *volume);

// Sets a transaction point.
int sfk_transact(const struct sfk_volume *volume);

// Sets a transaction point and empties the log.
int sfk_checkpoint(const struct sfk_volume *volume);

// fsync(2): a transaction point if the mask has the event.
int sfk_fsync(const struct sfk_volume *volume);

// A write with O_SYNC or O_DSYNC has arrived: a transaction point if the mask has the event.
int sfk_synchronous_write(const struct sfk_volume *volume);

// sync(2): a transaction point if the mask has the event.
int sfk_sync(const struct sfk_volume *volume);

// A file that was open for writing was closed: a transaction point if the mask has the event.
int sfk_closed(const struct sfk_volume *volume);

// Bytes of data for which there is surely room.
int64_t sfk_available(const struct sfk_volume *volume);

// Frees what removed files still hold, until so many bytes are available or nothing is left.
int sfk_make_room(const struct sfk_volume *volume, uint64_t bytes);

// Bytes of memory that `sfk_give_back` could free now. Waits for no lock.
ptrdiff_t sfk_can_give_back(const struct sfk_volume *volume);

// Frees about so many bytes of the caches. Returns how many. Waits for no lock.
ptrdiff_t sfk_give_back(const struct sfk_volume *volume, size_t bytes);

// Before a trim: frees what may be freed. `sfk_trim_step` follows until it returns 0.
int sfk_trim_begin(const struct sfk_volume *volume);

// Discards free runs of at least `least` bytes from byte `at` on, in a bounded step that stays
// below `to`. Moves `at`, and adds to `discarded`. 1: there is more.
int sfk_trim_step(const struct sfk_volume *volume,
                  uint64_t *at,
                  uint64_t to,
                  uint64_t least,
                  uint64_t *discarded);

// Space and counts.
int sfk_statistics_get(const struct sfk_volume *volume, struct sfk_statistics *out);

// Properties and state.
void sfk_info_get(const struct sfk_volume *volume, struct sfk_info *out);

// Sets the transaction mask and the timer, and keeps them where that publishes no change.
int sfk_set_mask(const struct sfk_volume *volume, uint32_t mask, uint32_t timer_ms);

// Changes the label, which is durable when this returns.
int sfk_set_label(const struct sfk_volume *volume, const char *label);

// The bits of a mask as text: `default`, `manual`, `all`, or names with colons between them. A
// name with `+` or `-` in front changes `mask`.
int sfk_parse_mask(const char *text, uint32_t *mask);

// The next change panics under the core's locks. For the test of what a panic does.
void sfk_test_panic(const struct sfk_volume *volume);

// Copies the value to `buffer` of `room` bytes and returns its length; `room` 0 only asks for it.
ptrdiff_t sfk_xattr_get(const struct sfk_volume *volume,
                        uint64_t inode,
                        const char *name,
                        uint8_t *buffer,
                        size_t room);

// Sets an attribute; `flags` are those of setxattr(2).
int sfk_xattr_set(const struct sfk_volume *volume,
                  uint64_t inode,
                  const char *name,
                  const uint8_t *value,
                  size_t length,
                  int flags);

// Removes an attribute.
int sfk_xattr_remove(const struct sfk_volume *volume, uint64_t inode, const char *name);

// Copies the names, each with a zero after it, to `buffer` of `room` bytes. Returns their length;
// `room` 0 only asks for it. `all`: names of `trusted.` too.
ptrdiff_t sfk_xattr_list(const struct sfk_volume *volume,
                         uint64_t inode,
                         uint8_t *buffer,
                         size_t room,
                         bool all);

#endif  /* STEADFAST_CORE_H */
