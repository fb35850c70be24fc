// SPDX-License-Identifier: MIT OR Apache-2.0
/* Room for dirty pages: write(2) reports a full volume, not the write-back that comes later.
 *
 * Each page that becomes dirty gets a promise of the room it needs, and keeps it until the core has
 * its data. A promise is given only while the core surely has room for all of them. Where it has
 * not, dirty pages are written back first, which makes the room known exactly. Where that does not
 * help, the write goes to the core at once (file.c), which alone decides. */
#include <linux/writeback.h>

#include "steadfast.h"

/* What an operation on names may take, with the nodes that it copies. */
#define NAMES_SPEND (256 << 10)
/* Beyond this the room is not asked for again. */
#define PLENTY (32 << 20)
#define TRIES 3

/* Notes that the core was asked to use up to `bytes`, or that it may have freed some (0). */
void sf_room_spend(struct sf_info *info, u64 bytes)
{
	/* New nodes on the way to the data come on top. */
	atomic64_add(bytes ? 2 * bytes + NAMES_SPEND : NAMES_SPEND, &info->spent);
}

/* Whether the core has room for the promises and `bytes` more. */
static bool has_room(struct sf_info *info, u64 bytes)
{
	u64 wanted = atomic64_read(&info->promised) + bytes;
	s64 room;

	if (READ_ONCE(info->room) > wanted + PLENTY + atomic64_read(&info->spent))
		return true;
	atomic64_set(&info->spent, 0);
	room = SF_CORE(info, sfk_available(info->volume));
	if (room < 0)
		room = 0;
	WRITE_ONCE(info->room, room);
	return room >= wanted;
}

/* Writes back all that is dirty on this volume, also where the flusher is at work already: the
 * functions of the VFS that only try return at once then. No page may be locked. */
void sf_room_write_back(struct sf_info *info)
{
	down_read(&info->sb->s_umount);
	sync_inodes_sb(info->sb);
	up_read(&info->sb->s_umount);
}

/* The same in a page fault. A freeze waits for faults with this lock held, so a fault must not wait
 * for the lock here. */
static bool try_write_back(struct sf_info *info)
{
	if (!down_read_trylock(&info->sb->s_umount))
		return false;
	sync_inodes_sb(info->sb);
	up_read(&info->sb->s_umount);
	return true;
}

/* Promises room. -ENOSPC: there may be none, and nothing is promised. -EAGAIN, for a page fault
 * only: the fault is to be repeated. */
int sf_room_promise(struct sf_info *info, u64 bytes, bool fault)
{
	bool again = false;
	int tries;

	for (tries = 0; tries < TRIES && !again; tries++) {
		atomic64_add(bytes, &info->promised);
		if (has_room(info, 0))
			return 0;
		atomic64_sub(bytes, &info->promised);
		mutex_lock(&info->full);
		if (tries > 0)
			(void)SF_CORE(info, sfk_make_room(info->volume,
					    atomic64_read(&info->promised) + bytes));
		else if (fault)
			again = !try_write_back(info);
		else
			sf_room_write_back(info);
		mutex_unlock(&info->full);
	}
	return again ? -EAGAIN : -ENOSPC;
}

/* Before `bytes` go to the core past the page cache; sf_room_return follows. The core takes room
 * without asking for promises. So they count as promised from here on, and if there is no room
 * for all promises, those from before are fulfilled first. */
void sf_room_take(struct sf_info *info, u64 bytes)
{
	atomic64_add(bytes, &info->promised);
	if (!has_room(info, 0)) {
		/* A promise may not have reached its pages yet. */
		down_write(&info->pieces);
		sf_room_write_back(info);
		up_write(&info->pieces);
	}
	sf_room_spend(info, bytes);
}

/* After a rollback nothing is known of the room. */
void sf_room_forget(struct sf_info *info)
{
	WRITE_ONCE(info->room, 0);
}

void sf_room_return(struct sf_info *info, u64 bytes)
{
	atomic64_sub(bytes, &info->promised);
}

/* Before an operation on names: what it takes must not be promised to pages. */
void sf_room_for_names(struct sf_info *info)
{
	sf_room_spend(info, 0);
	if (atomic64_read(&info->promised) && !has_room(info, NAMES_SPEND)) {
		mutex_lock(&info->full);
		sf_room_write_back(info);
		mutex_unlock(&info->full);
	}
}
