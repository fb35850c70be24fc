// SPDX-License-Identifier: MIT OR Apache-2.0
/* Extended attributes and ACLs. The core keeps ACLs in the form of setxattr(2), and keeps the
 * permission bits in step with them. */
#include <linux/fs.h>
#include <linux/posix_acl_xattr.h>
#include <linux/slab.h>

#include "steadfast.h"

static int get(const struct xattr_handler *handler, struct dentry *dentry, struct inode *inode,
	       const char *name, void *buffer, size_t size)
{
	if (sf_is_listing(inode))
		return -ENODATA;
	return SF_ASK(inode, sfk_xattr_get, xattr_full_name(handler, name), buffer, size);
}

static int set(const struct xattr_handler *handler, SF_IDMAP idmap, struct dentry *dentry,
	       struct inode *inode, const char *name, const void *value, size_t size, int flags)
{
	struct sf_info *info = sf_info(inode->i_sb);
	const char *full = xattr_full_name(handler, name);
	struct timespec64 changed;
	long result;

	if (sf_inode(inode)->view || sf_is_listing(inode))
		return -EROFS;
	sf_room_for_names(info);
	if (value)
		result = SF_CORE(info, sfk_xattr_set(info->volume, inode->i_ino, full, value, size,
						     flags));
	else
		result = SF_CORE(info, sfk_xattr_remove(info->volume, inode->i_ino, full));
	if (!result) {
		changed = current_time(inode);
		sf_set_ctime(inode, changed);
	}
	return result;
}

#define HANDLER(space)                            \
	{                                         \
		.prefix = space, .get = get, .set = set, \
	}

static const struct xattr_handler user = HANDLER(XATTR_USER_PREFIX);
static const struct xattr_handler trusted = HANDLER(XATTR_TRUSTED_PREFIX);
static const struct xattr_handler security = HANDLER(XATTR_SECURITY_PREFIX);

const struct xattr_handler *sf_xattr_handlers[] = {
	&user,
	&trusted,
	&security,
#if !SF_SINCE(6, 4)
	&posix_acl_access_xattr_handler,
	&posix_acl_default_xattr_handler,
#endif
	NULL
};

ssize_t sf_listxattr(struct dentry *dentry, char *buffer, size_t size)
{
	bool all = capable(CAP_SYS_ADMIN);

	return SF_ASK(d_inode(dentry), sfk_xattr_list, buffer, size, all);
}

static const char *acl_name(int type)
{
	return type == ACL_TYPE_ACCESS ? XATTR_NAME_POSIX_ACL_ACCESS :
					 XATTR_NAME_POSIX_ACL_DEFAULT;
}

struct posix_acl *sf_get_acl(struct inode *inode, int type, bool rcu)
{
	struct posix_acl *acl;
	u8 *value;
	long length;

	if (rcu)
		return ERR_PTR(-ECHILD);
	length = SF_ASK(inode, sfk_xattr_get, acl_name(type), NULL, 0);
	if (length == -ENODATA || length == -EOPNOTSUPP)
		return NULL;
	if (length < 0)
		return ERR_PTR(length);
	value = kmalloc(length, GFP_KERNEL);
	if (!value)
		return ERR_PTR(-ENOMEM);
	length = SF_ASK(inode, sfk_xattr_get, acl_name(type), value, length);
	if (length < 0)
		acl = ERR_PTR(length == -ENODATA || length == -ERANGE ? -EAGAIN : length);
	else
		acl = posix_acl_from_xattr(&init_user_ns, value, length);
	kfree(value);
	return acl;
}

static long store_acl(struct inode *inode, struct posix_acl *acl, int type)
{
	struct sf_info *info = sf_info(inode->i_sb);
	int length = posix_acl_xattr_size(acl->a_count);
	u8 *value = kmalloc(length, GFP_KERNEL);
	long result;

	if (!value)
		return -ENOMEM;
	result = posix_acl_to_xattr(&init_user_ns, acl, value, length);
	if (result >= 0)
		result = SF_CORE(info, sfk_xattr_set(info->volume, inode->i_ino, acl_name(type),
						     value, length, 0));
	kfree(value);
	return result;
}

int sf_set_acl(SF_IDMAP idmap, SF_ACL_OF of, struct posix_acl *acl, int type)
{
	struct inode *inode = sf_acl_inode(of);
	struct sf_info *info = sf_info(inode->i_sb);
	struct sfk_change change = { .fields = SFK_SET_PERMISSIONS };
	struct sfk_attributes found;
	long result;

	sf_room_for_names(info);
	if (acl) {
		result = store_acl(inode, acl, type);
	} else {
		result = SF_CORE(info, sfk_xattr_remove(info->volume, inode->i_ino,
							acl_name(type)));
		if (result == -ENODATA)
			result = 0;
	}
	if (!result)
		result = SF_CORE(info, sfk_attributes_get(info->volume, inode->i_ino, &found));
	if (result)
		return result;
	/* As for chmod(2): a caller outside the group cannot keep its bit. */
	if (acl && type == ACL_TYPE_ACCESS && (found.mode & S_ISGID) &&
	    !in_group_p(inode->i_gid) &&
	    !capable_wrt_inode_uidgid(SF_NO_IDMAP, inode, CAP_FSETID)) {
		change.permissions = found.mode & 07777 & ~S_ISGID;
		result = SF_CORE(info, sfk_attributes_set(info->volume, inode->i_ino, &change,
							  &found));
		if (result)
			return result;
	}
	inode->i_mode = found.mode;
	sf_set_ctime(inode, sf_timespec(found.changed));
	/* The core keeps no ACL that the bits express. */
	forget_all_cached_acls(inode);
	return 0;
}
