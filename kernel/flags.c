// SPDX-License-Identifier: MIT OR Apache-2.0
/* Flags of files and directories (chattr). The VFS checks who may change them, and refuses what
 * they refuse; it reads them from the inode in memory. */
#include <linux/fs.h>
#include <linux/fileattr.h>

#include "steadfast.h"

#define KNOWN (FS_IMMUTABLE_FL | FS_APPEND_FL | FS_NODUMP_FL | FS_NOATIME_FL)

/* What the core says becomes what the VFS sees. */
void sf_take_flags(struct inode *inode, u32 flags)
{
	unsigned int own = 0;

	if (flags & FS_IMMUTABLE_FL)
		own |= S_IMMUTABLE;
	if (flags & FS_APPEND_FL)
		own |= S_APPEND;
	if (flags & FS_NOATIME_FL)
		own |= S_NOATIME;
	inode_set_flags(inode, own, S_IMMUTABLE | S_APPEND | S_NOATIME);
	WRITE_ONCE(sf_inode(inode)->flags, flags);
}

/* For statx(2). */
void sf_fill_flags(struct inode *inode, struct kstat *stat)
{
	u32 flags = READ_ONCE(sf_inode(inode)->flags);

	stat->attributes_mask |= STATX_ATTR_IMMUTABLE | STATX_ATTR_APPEND | STATX_ATTR_NODUMP;
	if (flags & FS_IMMUTABLE_FL)
		stat->attributes |= STATX_ATTR_IMMUTABLE;
	if (flags & FS_APPEND_FL)
		stat->attributes |= STATX_ATTR_APPEND;
	if (flags & FS_NODUMP_FL)
		stat->attributes |= STATX_ATTR_NODUMP;
}

int sf_fileattr_get(struct dentry *dentry, struct fileattr *to)
{
	fileattr_fill_flags(to, READ_ONCE(sf_inode(d_inode(dentry))->flags));
	return 0;
}

int sf_fileattr_set(SF_IDMAP idmap, struct dentry *dentry, struct fileattr *wanted)
{
	struct inode *inode = d_inode(dentry);
	struct sf_info *info = sf_info(inode->i_sb);
	struct sfk_attributes found;
	long result = 0;

	if (sf_is_cut_off(inode))
		return -ESTALE;
	if (fileattr_has_fsx(wanted) || wanted->flags & ~KNOWN)
		return -EOPNOTSUPP;
	/* What was written is in the file before nothing can be. A page of a map that is clean asks
	 * before it is changed again. */
	if (S_ISREG(inode->i_mode) && wanted->flags & FS_IMMUTABLE_FL) {
		inode_dio_wait(inode);
		result = filemap_write_and_wait(inode->i_mapping);
	}
	if (!result)
		result = SF_CORE(info, sfk_flags_set(info->volume, inode->i_ino, wanted->flags,
						     &found));
	if (result)
		return result;
	sf_take_flags(inode, found.flags);
	sf_set_ctime(inode, current_time(inode));
	mark_inode_dirty_sync(inode);
	return 0;
}
