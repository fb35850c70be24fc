// SPDX-License-Identifier: MIT OR Apache-2.0
/* Inodes: bringing them into memory, attributes, and letting them go. */
#include <linux/slab.h>
#include <linux/writeback.h>

#include "steadfast.h"

const char *sf_get_link(struct dentry *dentry, struct inode *inode, struct delayed_call *done)
{
	char *target;
	long length;

	if (!dentry)
		return ERR_PTR(-ECHILD);
	target = kmalloc(PATH_MAX, GFP_KERNEL);
	if (!target)
		return ERR_PTR(-ENOMEM);
	length = SF_ASK(inode, sfk_read_link, target, PATH_MAX - 1);
	if (length < 0) {
		kfree(target);
		return ERR_PTR(length);
	}
	target[length] = 0;
	set_delayed_call(done, kfree_link, target);
	return target;
}

static const struct inode_operations symlink_operations = {
	.get_link = sf_get_link,
	.getattr = sf_getattr,
	.setattr = sf_setattr,
	.listxattr = sf_listxattr,
};

static const struct inode_operations special_operations = {
	.getattr = sf_getattr,
	.setattr = sf_setattr,
	.listxattr = sf_listxattr,
	SF_GET_ACL = sf_get_acl,
	.set_acl = sf_set_acl,
};

/* Keeps the number of blocks, which the core was asked for when the inode had `changes`. A
 * truncated file loses blocks in the background, so its number is not kept. */
static void note_blocks(struct inode *inode, const struct sfk_attributes *found, u64 changes)
{
	struct sf_inode *own = sf_inode(inode);

	if (found->shrinking)
		return;
	spin_lock(&inode->i_lock);
	if (atomic64_read(&own->changes) == changes) {
		own->allocated = found->allocated;
		WRITE_ONCE(own->allocated_at, changes);
	}
	spin_unlock(&inode->i_lock);
}

void sf_take(struct inode *inode, const struct sfk_attributes *found)
{
	inode->i_mode = found->mode;
	i_uid_write(inode, found->uid);
	i_gid_write(inode, found->gid);
	set_nlink(inode, found->links);
	i_size_write(inode, found->size);
	inode->i_blocks = found->allocated >> 9;
	inode->i_blkbits = ilog2(found->block_size);
	sf_take_flags(inode, found->flags);
	sf_set_atime(inode, sf_timespec(found->accessed));
	sf_set_mtime(inode, sf_timespec(found->modified));
	sf_set_ctime(inode, sf_timespec(found->changed));
}

static void set_operations(struct inode *inode, u32 device)
{
	switch (inode->i_mode & S_IFMT) {
	case S_IFREG:
		inode->i_op = &sf_file_inode_operations;
		inode->i_fop = &sf_file_operations;
		inode->i_mapping->a_ops = &sf_pages_operations;
		break;
	case S_IFDIR:
		inode->i_op = &sf_dir_inode_operations;
		inode->i_fop = &sf_dir_operations;
		break;
	case S_IFLNK:
		inode->i_op = &symlink_operations;
		inode_nohighmem(inode);
		break;
	default:
		inode->i_op = &special_operations;
		init_special_inode(inode, inode->i_mode, new_decode_dev(device));
	}
}

/* After a rollback: the attributes of the state that is now. */
int sf_take_again(struct inode *inode)
{
	struct sf_info *info = sf_info(inode->i_sb);
	struct sfk_attributes found;
	long result;

	sf_blocks_changed(inode);
	result = SF_CORE(info, sfk_attributes_get(info->volume, inode->i_ino, &found));
	if (!result)
		sf_take(inode, &found);
	forget_all_cached_acls(inode);
	return result;
}

/* What inodes are told apart by. */
struct identity {
	u64 shown;
	struct sf_view *view;
};

static int is_same(struct inode *inode, void *data)
{
	const struct identity *wanted = data;

	return inode->i_ino == wanted->shown && sf_inode(inode)->view == wanted->view;
}

static int set_identity(struct inode *inode, void *data)
{
	const struct identity *wanted = data;

	inode->i_ino = wanted->shown;
	sf_inode(inode)->view = wanted->view;
	if (wanted->view)
		sf_view_get(wanted->view);
	return 0;
}

/* The inode in memory with these attributes: of a snapshot if there is a view. What is in memory is
 * newer than they are. */
struct inode *sf_iget(struct super_block *sb, struct sf_view *view,
		      const struct sfk_attributes *found)
{
	struct identity wanted = { found->inode, view };
	struct inode *inode;
	u64 created;

	if (view && !sf_view_can_show(found->inode))
		return ERR_PTR(-EOVERFLOW);
	if (view)
		wanted.shown = sf_view_shows(view, found->inode);
	inode = iget5_locked(sb, wanted.shown, is_same, set_identity, &wanted);
	if (!inode)
		return ERR_PTR(-ENOMEM);
	if (!(inode->i_state & I_NEW))
		return inode;
	sf_take(inode, found);
	note_blocks(inode, found, atomic64_read(&sf_inode(inode)->changes));
	sf_inode(inode)->created = sf_timespec(found->created);
	/* A handle of NFS must not name another inode that gets the number later. */
	created = found->created.seconds * NSEC_PER_SEC + found->created.nanoseconds;
	inode->i_generation = (created ^ created >> 32) & 0x7fffffff;
	mapping_set_gfp_mask(inode->i_mapping, GFP_HIGHUSER_MOVABLE);
	set_operations(inode, found->device);
	if (view)
		sf_make_past(inode);
	unlock_new_inode(inode);
	return inode;
}

struct inode *sf_iget_number(struct super_block *sb, u64 number)
{
	struct sf_info *info = sf_info(sb);
	struct sfk_attributes found;
	struct inode *inode;
	long result;

	down_read(&info->view);
	result = SF_CORE(info, sfk_attributes_get(info->volume, number, &found));
	inode = result ? ERR_PTR(result) : sf_iget(sb, NULL, &found);
	up_read(&info->view);
	return inode;
}

/* After an operation that changed the inode by way of the core. The operation is done, so its
 * caller ignores an error: what the VFS then shows is as old as before. Size and times of a regular
 * file are the kernel's: its pages may not have been written yet. */
int sf_refresh(struct inode *inode)
{
	struct sf_info *info = sf_info(inode->i_sb);
	struct sfk_attributes found;
	long result = SF_CORE(info, sfk_attributes_get(info->volume, inode->i_ino, &found));

	if (result)
		return result;
	set_nlink(inode, found.links);
	inode->i_blocks = found.allocated >> 9;
	sf_set_ctime(inode, sf_timespec(found.changed));
	if (!S_ISREG(inode->i_mode)) {
		i_size_write(inode, found.size);
		sf_set_mtime(inode, sf_timespec(found.modified));
	}
	return 0;
}

/* Before the last name of an inode goes: it stays while it is in memory. */
int sf_keep(struct inode *inode)
{
	struct sf_info *info = sf_info(inode->i_sb);
	long result;

	if (sf_inode(inode)->acquired || (inode->i_nlink > 1 && !S_ISDIR(inode->i_mode)))
		return 0;
	result = SF_CORE(info, sfk_acquire(info->volume, inode->i_ino));
	if (!result)
		sf_inode(inode)->acquired = true;
	return result;
}

/* Whether only the caller uses the inode, whose last name it removes: it holds one reference of the
 * name, and maybe one of the inode. Then the core can delete the inode at once, and need not keep
 * it until sf_evict. A later task sees SF_LEAVES. */
bool sf_leave_begin(struct dentry *dentry)
{
	struct inode *inode = d_inode(dentry);
	bool alone;

	if (sf_inode(inode)->acquired)
		return false;
	spin_lock(&inode->i_lock);
	sf_inode(inode)->fate = SF_LEAVES;
	spin_unlock(&inode->i_lock);
	/* Before the counts are read; sf_open has the other half. */
	smp_mb();
	alone = d_count(dentry) == 1 && atomic_read(&inode->i_count) <= 2;
	if (!alone)
		sf_leave_end(inode, false);
	return alone;
}

void sf_leave_end(struct inode *inode, bool left)
{
	spin_lock(&inode->i_lock);
	WRITE_ONCE(sf_inode(inode)->fate, left ? SF_LEFT : SF_STAYS);
	spin_unlock(&inode->i_lock);
	wake_up_var(&sf_inode(inode)->fate);
}

/* Whether the core has no such inode any more, or is about to remove it. */
bool sf_has_left(struct inode *inode)
{
	return READ_ONCE(sf_inode(inode)->fate) != SF_STAYS;
}

/* An open that comes while the file is removed waits. After ESTALE the VFS looks the name up once
 * more. The name leads here until the VFS has finished the removal, so it is forgotten now. */
int sf_open(struct inode *inode, struct file *file)
{
	struct sf_inode *own = sf_inode(inode);

	smp_mb();
	if (unlikely(sf_has_left(inode))) {
		wait_var_event(&own->fate, READ_ONCE(own->fate) != SF_LEAVES);
		if (sf_has_left(inode)) {
			d_drop(file_dentry(file));
			return -ESTALE;
		}
	}
	return generic_file_open(inode, file);
}

void sf_evict(struct inode *inode)
{
	struct sf_info *info = sf_info(inode->i_sb);

	truncate_inode_pages_final(&inode->i_data);
	clear_inode(inode);
	if (sf_inode(inode)->acquired && info->volume)
		(void)SF_CORE(info, (sfk_release(info->volume, inode->i_ino), 0));
	if (sf_inode(inode)->view)
		sf_view_put(sf_inode(inode)->view);
}

/* Stores the times that the VFS keeps. */
int sf_write_inode(struct inode *inode, struct writeback_control *wbc)
{
	struct sf_info *info = sf_info(inode->i_sb);
	struct sfk_attributes found;
	struct sfk_change change = {
		.fields = SFK_SET_ACCESSED | SFK_SET_MODIFIED | SFK_SET_CHANGED,
		.accessed = sf_time(sf_atime(inode)),
		.modified = sf_time(sf_mtime(inode)),
		.changed = sf_time(sf_ctime(inode)),
	};

	/* Times of a file without a name end with it. */
	if (!inode->i_nlink)
		return 0;
	return SF_CORE(info, sfk_attributes_set(info->volume, inode->i_ino, &change, &found));
}

/* Bytes of the inode on the medium: what is known, or what the core says. */
static long find_allocated(struct inode *inode, u64 *allocated)
{
	u64 changes = atomic64_read(&sf_inode(inode)->changes);
	struct sfk_attributes found;
	long result;

	if (READ_ONCE(sf_inode(inode)->allocated_at) == changes) {
		*allocated = READ_ONCE(sf_inode(inode)->allocated);
		return 0;
	}
	result = SF_ASK(inode, sfk_attributes_get, &found);
	if (result)
		return result;
	note_blocks(inode, &found, changes);
	*allocated = found.allocated;
	return 0;
}

int sf_getattr(SF_IDMAP idmap, const struct path *path, struct kstat *stat, u32 mask,
	       unsigned int flags)
{
	struct inode *inode = d_inode(path->dentry);
	struct sf_info *info = sf_info(inode->i_sb);

	if (sf_is_cut_off(inode))
		return -ESTALE;
	if (mask & STATX_BLOCKS) {
		u64 waiting = atomic_read(&sf_inode(inode)->promised) * info->unit;
		u64 allocated;
		long result = find_allocated(inode, &allocated);

		if (result)
			return result;
		/* Dirty pages count where the file has no blocks for them yet. */
		waiting = min_t(u64, allocated + waiting,
				round_up((u64)i_size_read(inode), info->unit));
		inode->i_blocks = max(allocated, waiting) >> 9;
	}
	sf_fillattr(idmap, mask, inode, stat);
	stat->btime = sf_inode(inode)->created;
	stat->result_mask |= STATX_BTIME;
	sf_fill_flags(inode, stat);
	return 0;
}

static long change_size(struct inode *inode, struct sfk_change *change,
			struct sfk_attributes *found)
{
	struct sf_info *info = sf_info(inode->i_sb);
	loff_t old = i_size_read(inode);
	long result;

	/* Pages that shrink away are dropped first, or their write-back would make the file longer
	 * again; a file that grows is longer only when the core has agreed. */
	filemap_invalidate_lock(inode->i_mapping);
	if (change->size < old)
		truncate_setsize(inode, change->size);
	else if (change->size > old)
		sf_clear_tail(inode, old);
	result = SF_CORE(info, sfk_attributes_set(info->volume, inode->i_ino, change, found));
	if (!result && change->size > old)
		truncate_setsize(inode, change->size);
	filemap_invalidate_unlock(inode->i_mapping);
	return result;
}

int sf_setattr(SF_IDMAP idmap, struct dentry *dentry, struct iattr *attr)
{
	struct inode *inode = d_inode(dentry);
	struct sf_info *info = sf_info(inode->i_sb);
	struct sfk_change change = { .fields = SFK_SET_CHANGED };
	struct sfk_attributes found;
	long result = setattr_prepare(idmap, dentry, attr);

	if (result)
		return result;
	/* As for a write. */
	if (IS_IMMUTABLE(inode) && attr->ia_valid & ATTR_SIZE)
		return -EPERM;
	/* truncate(2) leaves the times to the file system, and wants none if the size stays. */
	if ((attr->ia_valid & ATTR_SIZE) && attr->ia_size != i_size_read(inode) &&
	    !(attr->ia_valid & ATTR_MTIME)) {
		attr->ia_valid |= ATTR_MTIME | ATTR_CTIME;
		attr->ia_mtime = attr->ia_ctime = current_time(inode);
	}
	change.changed = sf_time(attr->ia_valid & ATTR_CTIME ? attr->ia_ctime :
							      current_time(inode));
	if (attr->ia_valid & ATTR_MODE) {
		change.fields |= SFK_SET_PERMISSIONS;
		change.permissions = attr->ia_mode & 07777;
		/* As setattr_copy does: only a member of the group may keep its bit. */
		if (!in_group_p(attr->ia_valid & ATTR_GID ? attr->ia_gid : inode->i_gid) &&
		    !capable_wrt_inode_uidgid(SF_NO_IDMAP, inode, CAP_FSETID))
			change.permissions &= ~S_ISGID;
	}
	if (attr->ia_valid & ATTR_UID) {
		change.fields |= SFK_SET_UID;
		change.uid = from_kuid(&init_user_ns, attr->ia_uid);
	}
	if (attr->ia_valid & ATTR_GID) {
		change.fields |= SFK_SET_GID;
		change.gid = from_kgid(&init_user_ns, attr->ia_gid);
	}
	if (attr->ia_valid & ATTR_ATIME) {
		change.fields |= SFK_SET_ACCESSED;
		change.accessed = sf_time(attr->ia_atime);
	}
	if (attr->ia_valid & ATTR_MTIME) {
		change.fields |= SFK_SET_MODIFIED;
		change.modified = sf_time(attr->ia_mtime);
	}
	if (attr->ia_valid & ATTR_SIZE) {
		change.fields |= SFK_SET_SIZE;
		change.size = attr->ia_size;
		inode_dio_wait(inode);
		result = change_size(inode, &change, &found);
	} else {
		result = SF_CORE(info, sfk_attributes_set(info->volume, inode->i_ino, &change,
							  &found));
	}
	sf_blocks_changed(inode);
	if (result)
		return result;
	setattr_copy(idmap, inode, attr);
	inode->i_blocks = found.allocated >> 9;
	/* The core has changed the access ACL with the mode. */
	if (attr->ia_valid & ATTR_MODE)
		forget_all_cached_acls(inode);
	/* What the core did to the times on its own is undone by the VFS's times. */
	mark_inode_dirty_sync(inode);
	return 0;
}
