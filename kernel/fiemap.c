// SPDX-License-Identifier: MIT OR Apache-2.0
/* FIEMAP: where the data of a file lies. */
#include <linux/fiemap.h>
#include <linux/pagemap.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "steadfast.h"

/* Extents that the core is asked for at a time. */
#define BATCH 64

/* Whether `next` goes on where `extent` ends, in the file and on the device. */
static bool continues(const struct sfk_extent *extent, const struct sfk_extent *next)
{
	return extent->flags == next->flags && extent->offset + extent->length == next->offset &&
	       extent->place + extent->length == next->place;
}

/* Passes an extent to the caller. 1: there is no room for another one. */
static int pass(struct fiemap_extent_info *to, const struct sfk_extent *extent, bool last)
{
	u32 flags = last ? FIEMAP_EXTENT_LAST : 0;

	if (extent->flags & SFK_EXTENT_UNWRITTEN)
		flags |= FIEMAP_EXTENT_UNWRITTEN;
	if (extent->flags & SFK_EXTENT_SHARED)
		flags |= FIEMAP_EXTENT_SHARED;
	if (extent->flags & SFK_EXTENT_INLINE)
		flags |= FIEMAP_EXTENT_DATA_INLINE;
	return fiemap_fill_next_extent(to, extent->offset, extent->place, extent->length, flags);
}

/* Passes on what overlaps `start..end`. Each extent waits for the next one: both may be one run,
 * and only the last extent of the file is marked as such. */
static int walk(struct inode *inode, struct fiemap_extent_info *to, u64 start, u64 end,
		struct sfk_extent *batch)
{
	struct sfk_extent waiting = {};
	u64 at = start;
	long count, i;
	int result = 0;

	do {
		if (fatal_signal_pending(current))
			return -EINTR;
		count = SF_ASK(inode, sfk_extents, at, batch, BATCH);
		if (count < 0)
			return count;
		for (i = 0; i < count; i++) {
			at = batch[i].offset + batch[i].length;
			if (waiting.length && continues(&waiting, &batch[i])) {
				waiting.length += batch[i].length;
				continue;
			}
			if (waiting.length && waiting.offset + waiting.length > start)
				result = pass(to, &waiting, false);
			if (result || batch[i].offset >= end)
				return result;
			waiting = batch[i];
		}
		cond_resched();
	} while (count == BATCH);
	return waiting.length ? pass(to, &waiting, true) : 0;
}

int sf_fiemap(struct inode *inode, struct fiemap_extent_info *to, u64 start, u64 length)
{
	struct sfk_extent *batch;
	int result = fiemap_prep(inode, to, start, &length, 0);

	if (result)
		return result;
	if (sf_is_cut_off(inode))
		return -ESTALE;
	batch = kmalloc_array(BATCH, sizeof(*batch), GFP_KERNEL);
	if (!batch)
		return -ENOMEM;
	inode_lock_shared(inode);
	/* The core knows only what was written back, and no other extent has a place. */
	result = filemap_write_and_wait(inode->i_mapping);
	if (!result)
		result = walk(inode, to, start, start + length, batch);
	inode_unlock_shared(inode);
	kfree(batch);
	return min(result, 0);
}
