/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The numbers and arguments of steadfast-ioctl.h, as the kernel writes them. */
#ifndef STEADFAST_COMMANDS_H
#define STEADFAST_COMMANDS_H

#include <linux/ioctl.h>

#include "core.h"

struct rollback_argument {
	u32 force;
	u32 reserved;
};

struct mask_argument {
	u32 mask;
	u32 timer_ms;
};

struct atomic_argument {
	u32 flags;
	u32 process;
};

struct snapshot_list {
	u64 after;
	u64 count;
	struct sfk_snapshot snapshots[32];
};

struct snapshot_diff {
	char before[64];
	char after[64];
	u64 next;
	u64 count;
	struct sfk_difference changes[256];
};

#define TYPE 0xd5
#define TRANSACT _IO(TYPE, 1)
#define ROLLBACK _IOW(TYPE, 2, struct rollback_argument)
#define MASK_GET _IOR(TYPE, 3, struct mask_argument)
#define MASK_SET _IOW(TYPE, 4, struct mask_argument)
#define INFO _IOR(TYPE, 5, struct sfk_info)
#define CHECKPOINT _IO(TYPE, 6)
#define ATOMIC_BEGIN _IO(TYPE, 32)
#define ATOMIC_COMMIT _IO(TYPE, 33)
#define ATOMIC_ABORT _IO(TYPE, 34)
#define ATOMIC_STATUS _IOR(TYPE, 35, struct atomic_argument)
#define SNAPSHOT_CREATE _IOWR(TYPE, 0x30, struct sfk_snapshot)
#define SNAPSHOT_DELETE _IOW(TYPE, 0x31, struct sfk_snapshot)
#define SNAPSHOT_ROLLBACK _IOW(TYPE, 0x32, struct sfk_snapshot)
#define SNAPSHOT_LIST _IOWR(TYPE, 0x33, struct snapshot_list)
#define SNAPSHOT_DIFF _IOWR(TYPE, 0x34, struct snapshot_diff)
/* Not a command of FUSE: makes the next change panic, if the parameter `selftest` allows it. */
#define PANIC _IO(TYPE, 0xff)

/* Flags of ATOMIC_STATUS and SNAPSHOT_ROLLBACK. */
#define ATOMIC_RUNS 1
#define ATOMIC_NO_SPACE 2
#define SNAPSHOT_FORCE 1
#define SNAPSHOT_DESTROY_NEWER 2

#endif
