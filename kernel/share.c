// SPDX-License-Identifier: MIT OR Apache-2.0
/* Files that share blocks: copy_file_range, FICLONE and FICLONERANGE. */
#include <linux/mm.h>

#include "steadfast.h"

/* Both files as the core must see them, and the target's pages dropped. The locks of both are
 * held. */
static int prepare(struct inode *in, struct inode *out, loff_t at, loff_t length)
{
	int result = filemap_write_and_wait(in->i_mapping);

	if (!result)
		result = filemap_write_and_wait(out->i_mapping);
	if (!result && length)
		result = invalidate_inode_pages2_range(out->i_mapping, at >> PAGE_SHIFT,
						       (at + length - 1) >> PAGE_SHIFT);
	return result;
}

static void finish(struct inode *out, loff_t end)
{
	if (end > i_size_read(out))
		i_size_write(out, end);
	mark_inode_dirty_sync(out);
}

ssize_t sf_copy_file_range(struct file *in, loff_t in_at, struct file *out, loff_t out_at,
			   size_t length, unsigned int flags)
{
	struct inode *source = file_inode(in), *target = file_inode(out);
	struct sf_info *info = sf_info(target->i_sb);
	ssize_t result;

	/* Between two file systems, and out of a snapshot, the VFS copies by way of the page
	 * cache. */
	if (source->i_sb != target->i_sb || sf_inode(source)->view)
		return generic_copy_file_range(in, in_at, out, out_at, length, flags);
	length = min_t(size_t, length, 1 << 30);
	lock_two_nondirectories(source, target);
	result = file_modified(out);
	if (!result && atomic64_read(&info->promised))
		sf_room_write_back(info);
	filemap_invalidate_lock_two(source->i_mapping, target->i_mapping);
	if (!result)
		result = prepare(source, target, out_at, length);
	if (!result) {
		sf_room_spend(info, length);
		result = SF_CORE(info, sfk_copy(info->volume, source->i_ino, in_at, target->i_ino,
						out_at, length));
		sf_blocks_changed(target);
	}
	if (result > 0)
		finish(target, out_at + result);
	filemap_invalidate_unlock_two(source->i_mapping, target->i_mapping);
	unlock_two_nondirectories(source, target);
	return result;
}

loff_t sf_remap_file_range(struct file *in, loff_t in_at, struct file *out, loff_t out_at,
			   loff_t length, unsigned int flags)
{
	struct inode *source = file_inode(in), *target = file_inode(out);
	struct sf_info *info = sf_info(target->i_sb);
	loff_t result;

	if (flags & ~(REMAP_FILE_DEDUP | REMAP_FILE_ADVISORY))
		return -EINVAL;
	if (sf_inode(source)->view)
		return -EXDEV;
	lock_two_nondirectories(source, target);
	filemap_invalidate_lock_two(source->i_mapping, target->i_mapping);
	/* Checks, write-back, and for FIDEDUPERANGE the comparison. */
	result = generic_remap_file_range_prep(in, in_at, out, out_at, &length, flags);
	if (!result && length)
		result = prepare(source, target, out_at, length);
	if (!result && length) {
		sf_room_spend(info, 0);
		result = SF_CORE(info, sfk_clone(info->volume, source->i_ino, in_at,
						 target->i_ino, out_at, length));
		sf_blocks_changed(target);
		if (result > 0)
			finish(target, out_at + result);
	}
	filemap_invalidate_unlock_two(source->i_mapping, target->i_mapping);
	unlock_two_nondirectories(source, target);
	return result;
}
