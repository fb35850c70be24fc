// SPDX-License-Identifier: MIT OR Apache-2.0
/* Taking a mounted volume back to an earlier state.
 *
 * The volume is frozen meanwhile, so nothing changes it. What is in memory of the state that ends
 * goes: all that is not in use. Files in use are cut off from the volume and return ESTALE from
 * then on, as under FUSE. Directories in use show the earlier state, if they are in it. */
#include <linux/dcache.h>

#include "steadfast.h"

/* Calls `visit` for every inode in memory but the root, control files and snapshots' inodes: a
 * snapshot stays what it is. */
static void each_inode(struct super_block *sb, void (*visit)(struct inode *inode))
{
	struct inode *inode, *held = NULL;

	spin_lock(&sb->s_inode_list_lock);
	list_for_each_entry(inode, &sb->s_inodes, i_sb_list) {
		spin_lock(&inode->i_lock);
		if ((inode->i_state & (I_NEW | I_FREEING | I_WILL_FREE)) ||
		    inode == d_inode(sb->s_root) || sf_is_control(inode) ||
		    sf_inode(inode)->view) {
			spin_unlock(&inode->i_lock);
			continue;
		}
		__iget(inode);
		spin_unlock(&inode->i_lock);
		spin_unlock(&sb->s_inode_list_lock);
		/* The one before stays until the next one is held. */
		iput(held);
		held = inode;
		visit(inode);
		cond_resched();
		spin_lock(&sb->s_inode_list_lock);
	}
	spin_unlock(&sb->s_inode_list_lock);
	iput(held);
}

static bool open_for_writing(struct super_block *sb)
{
	struct inode *inode;
	bool found = false;

	spin_lock(&sb->s_inode_list_lock);
	list_for_each_entry(inode, &sb->s_inodes, i_sb_list)
		found |= S_ISREG(inode->i_mode) && !sf_is_control(inode) && !sf_is_cut_off(inode) &&
			 inode_is_open_for_write(inode);
	spin_unlock(&sb->s_inode_list_lock);
	return found;
}

/* From here on the core knows no inode of this number, so reads find nothing of either state. */
static void cut_off(struct inode *inode)
{
	struct sf_info *info = sf_info(inode->i_sb);

	if (S_ISDIR(inode->i_mode) || sf_is_cut_off(inode))
		return;
	if (sf_inode(inode)->acquired)
		(void)SF_CORE(info, (sfk_release(info->volume, inode->i_ino), 0));
	sf_inode(inode)->acquired = false;
	remove_inode_hash(inode);
	WRITE_ONCE(inode->i_ino, SF_CUT_OFF);
	sf_blocks_changed(inode);
}

/* The names in memory may be others now. */
static void forget_names(struct inode *inode)
{
	struct dentry *dentry;

	while ((dentry = d_find_alias(inode)) && !d_unhashed(dentry)) {
		d_drop(dentry);
		dput(dentry);
	}
	dput(dentry);
}

static void show_new_state(struct inode *inode)
{
	/* Of the directory of snapshots only the name: the volume may have a file of it now. */
	if (S_ISDIR(inode->i_mode) && !sf_is_cut_off(inode) && !sf_is_listing(inode)) {
		if (sf_take_again(inode)) {
			remove_inode_hash(inode);
			WRITE_ONCE(inode->i_ino, SF_CUT_OFF);
			inode->i_flags |= S_DEAD;
			clear_nlink(inode);
		}
	} else if (!S_ISDIR(inode->i_mode)) {
		clear_nlink(inode);
		i_size_write(inode, 0);
		truncate_pagecache(inode, 0);
	}
	forget_names(inode);
}

/* Takes the volume back with `go`. -EBUSY: files are open for writing, or the file system is
 * frozen. `force` goes on with open files. */
long sf_go_back(struct sf_info *info, bool force, long (*go)(struct sf_info *info, void *with),
		void *with)
{
	struct super_block *sb = info->sb;
	long result;

	/* Freezing calls sync_fs and freeze_fs, which must not set a transaction point now. */
	WRITE_ONCE(info->goes_back, current);
	result = sf_freeze_super(sb);
	if (result)
		goto out;
	down_write(&info->view);
	if (!force && open_for_writing(sb)) {
		result = -EBUSY;
		goto thaw;
	}
	shrink_dcache_sb(sb);
	evict_inodes(sb);
	each_inode(sb, cut_off);
	result = go(info, with);
	/* Also after an error: the core may have gone back and failed then. */
	each_inode(sb, show_new_state);
	(void)sf_take_again(d_inode(sb->s_root));
	sf_room_forget(info);
	sf_read_mask(info);
thaw:
	up_write(&info->view);
	(void)sf_thaw_super(sb);
out:
	WRITE_ONCE(info->goes_back, NULL);
	return result;
}
