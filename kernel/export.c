// SPDX-License-Identifier: MIT OR Apache-2.0
/* File handles, for NFS and name_to_handle_at(2). They stay valid over a remount: the number of the
 * inode with a value that its time of creation gives. */
#include <linux/exportfs.h>

#include "steadfast.h"

/* Types of handles, which no other file system needs to know. */
#define ALONE 0x81
#define WITH_PARENT 0x82
#define IN_SNAPSHOT 0x83

static void put(__u32 *words, struct inode *inode)
{
	words[0] = inode->i_ino;
	words[1] = (u64)inode->i_ino >> 32;
	words[2] = inode->i_generation;
}

static int encode_fh(struct inode *inode, __u32 *words, int *length, struct inode *parent)
{
	/* A handle has no place for the snapshot, so this one only tells inodes apart. overlayfs
	 * and inotify take none at all for an error. */
	bool past = sf_inode(inode)->view || sf_is_listing(inode);
	int wanted = parent && !past ? 6 : 3;
	int room = *length;

	*length = wanted;
	if (room < wanted)
		return FILEID_INVALID;
	put(words, inode);
	if (past)
		return IN_SNAPSHOT;
	if (parent)
		put(words + 3, parent);
	return parent ? WITH_PARENT : ALONE;
}

static struct dentry *found(struct super_block *sb, __u32 *words)
{
	struct inode *inode = sf_iget_number(sb, words[0] | (u64)words[1] << 32);

	if (IS_ERR(inode))
		return ERR_PTR(PTR_ERR(inode) == -ENOENT ? -ESTALE : PTR_ERR(inode));
	if (inode->i_generation != words[2] || !inode->i_nlink || sf_has_left(inode)) {
		iput(inode);
		return ERR_PTR(-ESTALE);
	}
	return d_obtain_alias(inode);
}

static struct dentry *fh_to_dentry(struct super_block *sb, struct fid *fid, int length, int type)
{
	if (type == IN_SNAPSHOT)
		return ERR_PTR(-ESTALE);
	if ((type != ALONE && type != WITH_PARENT) || length < 3)
		return NULL;
	return found(sb, fid->raw);
}

static struct dentry *fh_to_parent(struct super_block *sb, struct fid *fid, int length, int type)
{
	if (type != WITH_PARENT || length < 6)
		return NULL;
	return found(sb, fid->raw + 3);
}

static struct dentry *get_parent(struct dentry *child)
{
	struct inode *inode = d_inode(child);
	struct sf_info *info = sf_info(inode->i_sb);
	struct sfk_name name = { "..", 2 };
	struct sfk_attributes attributes;
	struct dentry *parent;
	long result;

	down_read(&info->view);
	result = SF_CORE(info, sfk_lookup(info->volume, inode->i_ino, &name, &attributes));
	parent = d_obtain_alias(result ? ERR_PTR(result) : sf_iget(inode->i_sb, NULL, &attributes));
	up_read(&info->view);
	return parent;
}

const struct export_operations sf_export_operations = {
	.encode_fh = encode_fh,
	.fh_to_dentry = fh_to_dentry,
	.fh_to_parent = fh_to_parent,
	.get_parent = get_parent,
};
