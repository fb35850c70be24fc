/* Steadfast: commands for a mounted volume, for programs that use the mount and not the library.
 *
 * Each command is an ioctl on any file or directory of the mount, usually the mount point:
 *
 *     int fd = open("/mnt", O_RDONLY | O_DIRECTORY);
 *     if (ioctl(fd, SF_IOC_TRANSACT) != 0) perror("transact");
 *
 * ENOTTY: not a Steadfast mount. EPERM: only the mounting user and root may use the command. A test
 * compares this file with the mount.
 */
#ifndef STEADFAST_IOCTL_H
#define STEADFAST_IOCTL_H

#include <stdint.h>
#include <sys/ioctl.h>

#define SF_IOC_TYPE 0xd5

/* Argument of SF_IOC_ROLLBACK. */
struct sf_ioc_rollback {
    uint32_t force;    /* not 0: roll back even while files are open for writing */
    uint32_t reserved; /* 0 */
};

/* Argument of SF_IOC_MASK_GET and SF_IOC_MASK_SET. Setting SF_ON_WRITE fails with EOPNOTSUPP on a
 * mount with the write-back cache. Setting SF_ON_CLOSE fails with EBUSY if files were closed while
 * the mask did not have it. */
struct sf_ioc_mask {
    uint32_t mask;     /* SF_ON_... of steadfast.h */
    uint32_t timer_ms; /* interval of the transaction timer */
};

/* Argument of SF_IOC_INFO. Sizes are in bytes. Texts are padded with zeros; a text that fills its
 * field has no zero at the end. */
struct sf_ioc_info {
    uint32_t version;
    uint32_t block_size;
    uint32_t node_size;
    uint32_t metadata_copies;
    uint8_t uuid[16];
    char label[32];
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
    uint64_t incarnation; /* rollbacks since the mount */
    uint64_t uncommitted; /* changes that a power cut at this moment would lose */
    uint32_t mask;
    uint32_t timer_ms;
    uint32_t flags; /* SF_IOC_INFO_... */
    uint32_t reserved;
    char poisoned[128]; /* why the volume became read-only by itself */
};

#define SF_IOC_INFO_SUPERBLOCK_DAMAGED 1 /* one copy of the superblock is damaged */
#define SF_IOC_INFO_READ_ONLY 2          /* mounted read-only */
#define SF_IOC_INFO_POISONED 4           /* became read-only by itself */

/* Sets a transaction point: writes back the dirty pages of the kernel's cache, then makes all
 * changes durable. */
#define SF_IOC_TRANSACT _IO(SF_IOC_TYPE, 1)
/* Rolls back to the last durable transaction point. EBUSY: files are open for writing. */
#define SF_IOC_ROLLBACK _IOW(SF_IOC_TYPE, 2, struct sf_ioc_rollback)
/* Returns the transaction mask and the timer. */
#define SF_IOC_MASK_GET _IOR(SF_IOC_TYPE, 3, struct sf_ioc_mask)
/* Sets the transaction mask and the timer. EOPNOTSUPP: SF_ON_WRITE on a mount with a write-back
 * cache. */
#define SF_IOC_MASK_SET _IOW(SF_IOC_TYPE, 4, struct sf_ioc_mask)
/* Returns properties and state of the volume. */
#define SF_IOC_INFO _IOR(SF_IOC_TYPE, 5, struct sf_ioc_info)
/* Like SF_IOC_TRANSACT, and empties the intent log. */
#define SF_IOC_CHECKPOINT _IO(SF_IOC_TYPE, 6)

/* Changes several files atomically: open SF_CONTROL_FILE in the root directory of the mount, begin,
 * change files, then commit or abort on the same descriptor. Closing the descriptor without a
 * commit, for any reason, rolls back. In between other processes cannot set a transaction point
 * (EALREADY), and fsync returns immediately. Only the mounting user and root may begin. */
#define SF_CONTROL_FILE ".steadfast-control"
#define SF_IOC_ATOMIC_BEGIN _IO(SF_IOC_TYPE, 32)
#define SF_IOC_ATOMIC_COMMIT _IO(SF_IOC_TYPE, 33)
#define SF_IOC_ATOMIC_ABORT _IO(SF_IOC_TYPE, 34)

/* Argument of SF_IOC_ATOMIC_STATUS. */
struct sf_ioc_atomic {
    /* 1: an atomic change is under way; 2: the volume ran out of space during it */
    uint32_t flags;
    uint32_t process; /* id of the process that began it */
};
#define SF_IOC_ATOMIC_STATUS _IOR(SF_IOC_TYPE, 35, struct sf_ioc_atomic)

/* Grows the volume, and the image file below it, to this many bytes. */
#define SF_IOC_GROW _IOW(SF_IOC_TYPE, 36, uint64_t)

/* Argument of SF_IOC_DEFRAGMENT, on an open file. Zero for the first call; pass it again until
 * `done` is not 0. */
struct sf_ioc_defragment {
    uint64_t block;
    uint64_t goal;
    uint32_t done;
    uint32_t reserved;
};
#define SF_IOC_DEFRAGMENT _IOWR(SF_IOC_TYPE, 37, struct sf_ioc_defragment)

/* Argument of SF_IOC_FRAGMENTATION, on an open file. */
struct sf_ioc_fragmentation {
    uint64_t blocks;
    uint64_t extents;
    uint64_t runs; /* runs of adjacent blocks */
};
#define SF_IOC_FRAGMENTATION _IOR(SF_IOC_TYPE, 38, struct sf_ioc_fragmentation)

/* Argument of SF_IOC_LOST_WRITES: writes from the kernel's cache since the mount that could not be
 * stored. */
struct sf_ioc_lost_writes {
    uint64_t bytes;
    uint64_t writes;
    uint64_t errno_last; /* error of the last such write; 0: none */
};
#define SF_IOC_LOST_WRITES _IOR(SF_IOC_TYPE, 39, struct sf_ioc_lost_writes)
/* The same, of those whose error no call has returned, this command included. A transaction point
 * has what the volume could store: after SF_IOC_TRANSACT this tells whether that is all. */
#define SF_IOC_LOST_WRITES_NEW _IOR(SF_IOC_TYPE, 41, struct sf_ioc_lost_writes)

/* Updates access times (not 0), or no longer (0), until the unmount. */
#define SF_IOC_ACCESS_TIMES _IOW(SF_IOC_TYPE, 40, uint32_t)

/* A snapshot: argument of SF_IOC_SNAPSHOT_CREATE, _DELETE and _ROLLBACK. Fields that a command does
 * not use are zero. */
struct sf_ioc_snapshot {
    char name[64]; /* UTF-8, padded with zeros, at most 63 bytes */
    uint64_t generation;
    int64_t created_seconds;
    uint64_t inodes;
    uint64_t used_blocks;
    uint32_t created_nanoseconds;
    /* _ROLLBACK: 1: roll back even while files are open for writing; 2: destroy newer snapshots */
    uint32_t flags;
};
/* Takes a snapshot. In: the name. Out: all fields. EEXIST: the name exists. EINVAL, ENAMETOOLONG:
 * the name is invalid. */
#define SF_IOC_SNAPSHOT_CREATE _IOWR(SF_IOC_TYPE, 0x30, struct sf_ioc_snapshot)
/* Deletes a snapshot. ENOENT: no snapshot has this name. */
#define SF_IOC_SNAPSHOT_DELETE _IOW(SF_IOC_TYPE, 0x31, struct sf_ioc_snapshot)
/* Rolls back to a snapshot. EBUSY: files are open for writing. ENOTEMPTY: newer snapshots exist. */
#define SF_IOC_SNAPSHOT_ROLLBACK _IOW(SF_IOC_TYPE, 0x32, struct sf_ioc_snapshot)

/* Argument of SF_IOC_SNAPSHOT_LIST. */
struct sf_ioc_snapshots {
    uint64_t after; /* in: list snapshots of later generations; 0: all */
    uint64_t count; /* out: number of entries below; fewer than 32: the list ends here */
    struct sf_ioc_snapshot snapshots[32];
};
#define SF_IOC_SNAPSHOT_LIST _IOWR(SF_IOC_TYPE, 0x33, struct sf_ioc_snapshots)

/* Argument of SF_IOC_SNAPSHOT_DIFF. */
struct sf_ioc_snapshot_diff {
    char before[64];
    char after[64]; /* empty: the live volume */
    uint64_t next;  /* in: first inode. out: inode to continue from; 0: the list ends here */
    uint64_t count;
    struct {
        uint64_t inode;
        uint32_t kind;  /* as d_type */
        uint32_t flags; /* from bit 0: created, removed, content, attributes, entries, times */
    } changes[256];
};
#define SF_IOC_SNAPSHOT_DIFF _IOWR(SF_IOC_TYPE, 0x34, struct sf_ioc_snapshot_diff)

/* Starts a scrub pass in the background, which verifies all checksums. EBUSY: a pass is running. */
struct sf_ioc_scrub_start {
    uint64_t rate; /* bytes a second; 0: no limit */
};
#define SF_IOC_SCRUB_START _IOW(SF_IOC_TYPE, 0x50, struct sf_ioc_scrub_start)
#define SF_IOC_SCRUB_STOP _IO(SF_IOC_TYPE, 0x51)
/* Argument of SF_IOC_SCRUB_STATUS: progress of the running pass, or results of the last one. */
struct sf_ioc_scrub_status {
    uint32_t state; /* 0: never, 1: under way, 2: done, 3: stopped, 4: failed */
    uint32_t reserved;
    uint64_t rate;
    uint64_t elapsed_ms;
    uint64_t bytes;       /* read */
    uint64_t bytes_total; /* estimated total */
    uint64_t nodes;
    uint64_t data_blocks;
    uint64_t healed; /* bad copies that were rewritten */
    uint64_t bad;    /* damage that remains */
    char text[8192]; /* findings, one a line */
};
#define SF_IOC_SCRUB_STATUS _IOR(SF_IOC_TYPE, 0x52, struct sf_ioc_scrub_status)

/* Clones have no command here: copy_file_range(2) shares blocks. Counters are in `steadfast top
 * --json` and in the metrics. */

#endif /* STEADFAST_IOCTL_H */
