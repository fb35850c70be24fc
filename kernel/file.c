// SPDX-License-Identifier: MIT OR Apache-2.0
/* Regular files: reading, writing, fsync, holes. */
#include <linux/fs.h>
#include <linux/falloc.h>
#include <linux/slab.h>
#include <linux/uio.h>

#include "steadfast.h"

/* Bytes for which room is promised at a time. */
#define PROMISE_MAX (1 << 20)
/* Bytes of one piece that goes past the page cache. */
#define PIECE (256 << 10)
/* SF_ON_CLOSE of steadfast.h. */
#define ON_CLOSE (1 << 12)

/* Brings data and times of a file to the core, before a transaction point. */
static int settle(struct file *file, loff_t start, loff_t end, bool datasync)
{
	struct inode *inode = file_inode(file);
	int result = file_write_and_wait_range(file, start, end);

	if (sf_is_cut_off(inode))
		return -ESTALE;
	/* Without it the times may be those of the write-back. */
	if (!result && !datasync)
		result = sync_inode_metadata(inode, 1);
	return result;
}

int sf_fsync(struct file *file, loff_t start, loff_t end, int datasync)
{
	struct sf_info *info = sf_info(file_inode(file)->i_sb);
	int result = settle(file, start, end, datasync);

	return result ?: SF_CORE(info, sfk_fsync(info->volume));
}

/* After a write of `count` bytes with O_SYNC or O_DSYNC. It is an event of its own in the mask, so
 * generic_write_sync, which calls fsync, is of no use. */
static ssize_t write_sync(struct kiocb *iocb, ssize_t count)
{
	struct file *file = iocb->ki_filp;
	struct sf_info *info = sf_info(file_inode(file)->i_sb);
	int result;

	if (!iocb_is_dsync(iocb))
		return count;
	result = settle(file, iocb->ki_pos - count, iocb->ki_pos - 1,
			!(iocb->ki_flags & IOCB_SYNC));
	result = result ?: SF_CORE(info, sfk_synchronous_write(info->volume));
	return result ?: count;
}

/* A descriptor is closed: a transaction point, if the mask has the event. */
static int sf_flush(struct file *file, fl_owner_t owner)
{
	struct sf_info *info = sf_info(file_inode(file)->i_sb);
	int result;

	if (!(file->f_mode & FMODE_WRITE) || !(READ_ONCE(info->mask) & ON_CLOSE))
		return 0;
	result = filemap_write_and_wait(file->f_mapping);
	return result ?: SF_CORE(info, sfk_closed(info->volume));
}

/* O_DIRECT: through a buffer, because the core checks the data where it reads it. */
static ssize_t read_past_cache(struct kiocb *iocb, struct iov_iter *to)
{
	struct inode *inode = file_inode(iocb->ki_filp);
	ssize_t done = 0;
	long result = 0;
	u8 *buffer;

	if (!iov_iter_count(to))
		return 0;
	buffer = kvmalloc(PIECE, GFP_KERNEL);
	if (!buffer)
		return -ENOMEM;
	inode_lock_shared(inode);
	result = filemap_write_and_wait_range(inode->i_mapping, iocb->ki_pos,
					      iocb->ki_pos + iov_iter_count(to) - 1);
	while (!result && iov_iter_count(to) && iocb->ki_pos < i_size_read(inode)) {
		size_t wanted = min_t(u64, min_t(size_t, PIECE, iov_iter_count(to)),
				      i_size_read(inode) - iocb->ki_pos);
		size_t copied;

		result = SF_ASK(inode, sfk_read, iocb->ki_pos, buffer, wanted);
		if (result < 0)
			break;
		memset(buffer + result, 0, wanted - result);
		result = 0;
		copied = copy_to_iter(buffer, wanted, to);
		iocb->ki_pos += copied;
		done += copied;
		if (copied < wanted)
			result = -EFAULT;
	}
	inode_unlock_shared(inode);
	kvfree(buffer);
	file_accessed(iocb->ki_filp);
	return done ?: result;
}

ssize_t sf_read_iter(struct kiocb *iocb, struct iov_iter *to)
{
	if (sf_is_cut_off(file_inode(iocb->ki_filp)))
		return -ESTALE;
	if (iocb->ki_flags & IOCB_DIRECT)
		return read_past_cache(iocb, to);
	return generic_file_read_iter(iocb, to);
}

/* Writes to the core at once, up to the first error: O_DIRECT, and writes without a promise of
 * room. */
static ssize_t write_past_cache(struct kiocb *iocb, struct iov_iter *from)
{
	struct inode *inode = file_inode(iocb->ki_filp);
	struct address_space *mapping = inode->i_mapping;
	struct sf_info *info = sf_info(inode->i_sb);
	ssize_t done = 0;
	long result = 0;
	u8 *buffer = kvmalloc(PIECE, GFP_KERNEL);

	if (!buffer)
		return -ENOMEM;
	while (!result && iov_iter_count(from)) {
		loff_t at = iocb->ki_pos;
		size_t wanted = min_t(size_t, PIECE, iov_iter_count(from));
		size_t copied = copy_from_iter(buffer, wanted, from);

		if (!copied) {
			result = -EFAULT;
			break;
		}
		/* Before the lock: it waits for writers, which may need the lock for a page
		 * fault. */
		sf_room_take(info, copied);
		filemap_invalidate_lock(mapping);
		result = filemap_write_and_wait_range(mapping, at, at + copied - 1);
		if (!result)
			result = invalidate_inode_pages2_range(mapping, at >> PAGE_SHIFT,
							       (at + copied - 1) >> PAGE_SHIFT);
		if (!result)
			result = SF_CORE(info, sfk_write(info->volume, inode->i_ino, at, buffer,
							 copied));
		sf_blocks_changed(inode);
		if (!result) {
			iocb->ki_pos += copied;
			done += copied;
			if (iocb->ki_pos > i_size_read(inode))
				i_size_write(inode, iocb->ki_pos);
		}
		filemap_invalidate_unlock(mapping);
		sf_room_return(info, copied);
	}
	kvfree(buffer);
	if (done)
		mark_inode_dirty_sync(inode);
	return done ?: result;
}

/* Writes one promised piece into the page cache. */
static ssize_t write_piece(struct kiocb *iocb, struct iov_iter *from)
{
	struct sf_info *info = sf_info(file_inode(iocb->ki_filp)->i_sb);
	size_t all = iov_iter_count(from);
	size_t piece = min_t(size_t, PROMISE_MAX, all);
	loff_t at = iocb->ki_pos;
	u64 first = at >> PAGE_SHIFT;
	u64 last = (at + piece - 1) >> PAGE_SHIFT;
	u64 promise = (last - first + 1) * info->unit;
	ssize_t done;

	down_read(&info->pieces);
	if (sf_room_promise(info, promise, false)) {
		up_read(&info->pieces);
		return -ENOSPC;
	}
	iov_iter_truncate(from, piece);
	done = generic_perform_write(iocb, from);
	iov_iter_reexpand(from, all - (piece - iov_iter_count(from)));
	/* Whether the function above moves the position differs between kernels. */
	if (done > 0)
		iocb->ki_pos = at + done;
	/* The pages that became dirty have promises of their own now. */
	sf_room_return(info, promise);
	up_read(&info->pieces);
	return done;
}

static ssize_t write_cached(struct kiocb *iocb, struct iov_iter *from)
{
	ssize_t all = 0, done = 1;

	while (done > 0 && iov_iter_count(from)) {
		size_t before = iov_iter_count(from);

		done = write_piece(iocb, from);
		if (done == -ENOSPC)
			done = write_past_cache(iocb, from);
		if (done > 0)
			all += done;
		/* Less than was asked for: a fault, or no more room. */
		if (done > 0 && done < min_t(size_t, PROMISE_MAX, before))
			break;
		if (fatal_signal_pending(current))
			break;
	}
	return all ?: done;
}

static ssize_t sf_write_iter(struct kiocb *iocb, struct iov_iter *from)
{
	struct file *file = iocb->ki_filp;
	struct inode *inode = file_inode(file);
	ssize_t result;

	inode_lock(inode);
	result = sf_is_cut_off(inode) ? -ESTALE : generic_write_checks(iocb, from);
	/* A file that was open for writing when it became immutable. */
	if (result > 0 && IS_IMMUTABLE(inode))
		result = -EPERM;
	if (result > 0) {
		result = file_modified(file);
		if (!result && iocb->ki_pos > i_size_read(inode))
			sf_clear_tail(inode, i_size_read(inode));
		if (!result)
			result = iocb->ki_flags & IOCB_DIRECT ? write_past_cache(iocb, from) :
								write_cached(iocb, from);
	}
	inode_unlock(inode);
	if (result > 0)
		result = write_sync(iocb, result);
	return result;
}

loff_t sf_llseek(struct file *file, loff_t offset, int whence)
{
	struct inode *inode = file_inode(file);
	loff_t found;

	if (whence != SEEK_DATA && whence != SEEK_HOLE)
		return generic_file_llseek(file, offset, whence);
	if (offset < 0 || offset >= i_size_read(inode))
		return -ENXIO;
	inode_lock_shared(inode);
	/* The core knows only what was written back. */
	found = filemap_write_and_wait(inode->i_mapping);
	if (!found)
		found = SF_ASK(inode, sfk_seek, offset, whence == SEEK_HOLE);
	inode_unlock_shared(inode);
	return found < 0 ? found : vfs_setpos(file, found, inode->i_sb->s_maxbytes);
}

static long sf_fallocate(struct file *file, int mode, loff_t offset, loff_t length)
{
	struct inode *inode = file_inode(file);
	struct address_space *mapping = inode->i_mapping;
	struct sf_info *info = sf_info(inode->i_sb);
	bool keep_size = mode & FALLOC_FL_KEEP_SIZE;
	loff_t end = offset + length;
	u32 kind;
	long result;

	switch (mode & ~FALLOC_FL_KEEP_SIZE) {
	case 0:
		kind = SFK_ALLOCATE;
		break;
	case FALLOC_FL_PUNCH_HOLE:
		kind = SFK_PUNCH_HOLE;
		break;
	case FALLOC_FL_ZERO_RANGE:
		kind = SFK_ZERO_RANGE;
		break;
	default:
		return -EOPNOTSUPP;
	}
	if (!S_ISREG(inode->i_mode))
		return -ENODEV;
	inode_lock(inode);
	result = keep_size ? 0 : inode_newsize_ok(inode, end);
	if (!result)
		result = file_modified(file);
	/* What is dirty anywhere has a promise that allocation must not take. The write-back below
	 * also clears what maps have stored past the end. */
	if (!result && kind != SFK_PUNCH_HOLE && atomic64_read(&info->promised))
		sf_room_write_back(info);
	filemap_invalidate_lock(mapping);
	if (!result)
		result = filemap_write_and_wait(mapping);
	if (!result) {
		sf_room_spend(info, length);
		result = SF_CORE(info, sfk_allocate(info->volume, inode->i_ino, offset, length,
						    kind, keep_size));
		sf_blocks_changed(inode);
	}
	if (!result && kind != SFK_ALLOCATE)
		truncate_pagecache_range(inode, offset, end - 1);
	if (!result && !keep_size && kind != SFK_PUNCH_HOLE && end > i_size_read(inode))
		i_size_write(inode, end);
	filemap_invalidate_unlock(mapping);
	if (!result)
		mark_inode_dirty_sync(inode);
	inode_unlock(inode);
	return result;
}

const struct inode_operations sf_file_inode_operations = {
	.getattr = sf_getattr,
	.setattr = sf_setattr,
	.listxattr = sf_listxattr,
	.fiemap = sf_fiemap,
	.fileattr_get = sf_fileattr_get,
	.fileattr_set = sf_fileattr_set,
	SF_GET_ACL = sf_get_acl,
	.set_acl = sf_set_acl,
};

const struct file_operations sf_file_operations = {
	.open = sf_open,
	.flush = sf_flush,
	.read_iter = sf_read_iter,
	.write_iter = sf_write_iter,
	.splice_read = sf_splice_read,
	.splice_write = iter_file_splice_write,
	.llseek = sf_llseek,
	.mmap = sf_mmap,
	.fsync = sf_fsync,
	.fallocate = sf_fallocate,
	.copy_file_range = sf_copy_file_range,
	.remap_file_range = sf_remap_file_range,
	.unlocked_ioctl = sf_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};
