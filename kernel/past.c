// SPDX-License-Identifier: MIT OR Apache-2.0
/* The directory `.snapshots` in the root, and the inodes of the trees below it. Nothing there can
 * be changed. An inode of a snapshot has a view (views.c); that of the directory has none, and
 * lasts from one look-up until the name is forgotten. */
#include <linux/dcache.h>
#include <linux/slab.h>

#include "steadfast.h"

#define NAME ".snapshots"
#define ROOT 1
/* Positions in the directory: after `.`, after `..`, then this and a snapshot's generation. */
#define DOTS 2
/* Snapshots that the core is asked for at a time. */
#define BATCH 32

static const struct inode_operations listing_inode_operations;

bool sf_is_listing(const struct inode *inode)
{
	return inode->i_op == &listing_inode_operations;
}

bool sf_names_listing(struct inode *dir, const struct qstr *name)
{
	return dir == d_inode(dir->i_sb->s_root) && name->len == sizeof(NAME) - 1 &&
	       !memcmp(name->name, NAME, name->len);
}

/* No time of the inode changes. The flags of chattr are shown, but the VFS must not see them: it
 * would say EPERM where EROFS is the answer. */
static void freeze_inode(struct inode *inode)
{
	inode_set_flags(inode, S_NOATIME | S_NOCMTIME,
			S_NOATIME | S_NOCMTIME | S_IMMUTABLE | S_APPEND);
}

struct inode *sf_listing_inode(struct super_block *sb)
{
	struct sf_info *info = sf_info(sb);
	struct sfk_attributes found;
	long result = SF_CORE(info, sfk_snapshots_directory(info->volume, &found));
	struct inode *inode = result ? NULL : new_inode(sb);

	if (!inode)
		return ERR_PTR(result ?: -ENOMEM);
	inode->i_ino = SF_LISTING;
	sf_take(inode, &found);
	freeze_inode(inode);
	inode->i_op = &listing_inode_operations;
	inode->i_fop = &sf_listing_operations;
	return inode;
}

static int listing_getattr(SF_IDMAP idmap, const struct path *path, struct kstat *stat, u32 mask,
			   unsigned int flags)
{
	struct inode *inode = d_inode(path->dentry);
	struct sf_info *info = sf_info(inode->i_sb);
	struct sfk_attributes found;
	long result = SF_CORE(info, sfk_snapshots_directory(info->volume, &found));

	if (result)
		return result;
	/* Snapshots come and go without a change of this inode. */
	sf_fillattr(idmap, mask, inode, stat);
	stat->size = found.size;
	stat->nlink = found.links;
	stat->atime = stat->mtime = stat->ctime = sf_timespec(found.changed);
	return 0;
}

/* A snapshot of this name may be there by now, or another one. */
static int revalidate(struct dentry *dentry, unsigned int flags)
{
	struct inode *inode = d_inode_rcu(dentry);

	return inode && !sf_is_cut_off(inode);
}

static const struct dentry_operations name_operations = {
	.d_revalidate = revalidate,
};

static struct dentry *listing_lookup(struct inode *dir, struct dentry *dentry, unsigned int flags)
{
	struct sf_info *info = sf_info(dir->i_sb);
	struct sfk_name name = { dentry->d_name.name, dentry->d_name.len };
	struct sfk_attributes found;
	struct inode *inode;
	struct sf_view *view = sf_view_named(info, &name);
	long result;

	d_set_d_op(dentry, &name_operations);
	if (view == ERR_PTR(-ENOENT))
		return d_splice_alias(NULL, dentry);
	if (IS_ERR(view))
		return ERR_CAST(view);
	result = sf_view_begin(info, view);
	if (!result) {
		result = SF_CORE(info, sfk_attributes_get(sf_view_volume(view), ROOT, &found));
		sf_view_end(info);
	}
	inode = result ? ERR_PTR(result) : sf_iget(dir->i_sb, view, &found);
	sf_view_put(view);
	return d_splice_alias(inode, dentry);
}

static int listing_readdir(struct file *file, struct dir_context *context)
{
	struct sf_info *info = sf_info(file_inode(file)->i_sb);
	struct sfk_snapshot *batch;
	long count, i;

	if (!dir_emit_dots(file, context))
		return 0;
	batch = kmalloc_array(BATCH, sizeof(*batch), GFP_KERNEL);
	if (!batch)
		return -ENOMEM;
	do {
		count = SF_CORE(info, sfk_snapshot_list(info->volume, context->pos - DOTS, batch,
							BATCH));
		for (i = 0; i < count; i++) {
			if (!dir_emit(context, batch[i].name, strnlen(batch[i].name, 64),
				      sf_generation_shows(batch[i].generation, ROOT), DT_DIR)) {
				count = 0;
				break;
			}
			context->pos = batch[i].generation + DOTS;
		}
	} while (count == BATCH);
	kfree(batch);
	return min(count, 0L);
}

static ssize_t no_xattrs(struct dentry *dentry, char *buffer, size_t size)
{
	return 0;
}

/* Before the VFS looks at anything else, as on a file system that is read-only. Devices, pipes and
 * sockets lead elsewhere. */
static int permission(SF_IDMAP idmap, struct inode *inode, int mask)
{
	umode_t mode = inode->i_mode;

	if ((mask & MAY_WRITE) && (S_ISREG(mode) || S_ISDIR(mode) || S_ISLNK(mode)))
		return -EROFS;
	return generic_permission(idmap, inode, mask);
}

static int setattr(SF_IDMAP idmap, struct dentry *dentry, struct iattr *attr)
{
	return -EROFS;
}

static int set_acl(SF_IDMAP idmap, SF_ACL_OF of, struct posix_acl *acl, int type)
{
	return -EROFS;
}

static int fileattr_set(SF_IDMAP idmap, struct dentry *dentry, struct fileattr *wanted)
{
	return -EROFS;
}

/* The deletion of the snapshot need not wait for this: later reads return ESTALE. */
static int open(struct inode *inode, struct file *file)
{
	return sf_is_cut_off(inode) ? -ESTALE : generic_file_open(inode, file);
}

static const struct inode_operations listing_inode_operations = {
	.lookup = listing_lookup,
	.permission = permission,
	.getattr = listing_getattr,
	.setattr = setattr,
	.listxattr = no_xattrs,
	.fileattr_get = sf_fileattr_get,
	.fileattr_set = fileattr_set,
	.set_acl = set_acl,
};

const struct file_operations sf_listing_operations = {
	.iterate_shared = listing_readdir,
	.llseek = generic_file_llseek,
	.read = generic_read_dir,
	.fsync = noop_fsync,
};

static const struct inode_operations past_dir_inode_operations = {
	.lookup = sf_lookup,
	.permission = permission,
	.getattr = sf_getattr,
	.setattr = setattr,
	.listxattr = sf_listxattr,
	.fileattr_get = sf_fileattr_get,
	.fileattr_set = fileattr_set,
	SF_GET_ACL = sf_get_acl,
	.set_acl = set_acl,
};

static const struct file_operations past_dir_operations = {
	.open = open,
	.iterate_shared = sf_readdir,
	.llseek = generic_file_llseek,
	.read = generic_read_dir,
	.fsync = noop_fsync,
};

static const struct inode_operations past_file_inode_operations = {
	.permission = permission,
	.getattr = sf_getattr,
	.setattr = setattr,
	.listxattr = sf_listxattr,
	.fiemap = sf_fiemap,
	.fileattr_get = sf_fileattr_get,
	.fileattr_set = fileattr_set,
	SF_GET_ACL = sf_get_acl,
	.set_acl = set_acl,
};

static const struct file_operations past_file_operations = {
	.open = open,
	.read_iter = sf_read_iter,
	.splice_read = sf_splice_read,
	.llseek = sf_llseek,
	.mmap = generic_file_readonly_mmap,
	.fsync = noop_fsync,
	/* The VFS asks for the same function at both ends. */
	.copy_file_range = sf_copy_file_range,
};

static const struct inode_operations past_symlink_operations = {
	.permission = permission,
	.get_link = sf_get_link,
	.getattr = sf_getattr,
	.setattr = setattr,
	.listxattr = sf_listxattr,
};

static const struct inode_operations past_special_operations = {
	.permission = permission,
	.getattr = sf_getattr,
	.setattr = setattr,
	.listxattr = sf_listxattr,
	SF_GET_ACL = sf_get_acl,
	.set_acl = set_acl,
};

/* The operations of an inode of a snapshot, in place of those of the live one. */
void sf_make_past(struct inode *inode)
{
	freeze_inode(inode);
	switch (inode->i_mode & S_IFMT) {
	case S_IFREG:
		inode->i_op = &past_file_inode_operations;
		inode->i_fop = &past_file_operations;
		break;
	case S_IFDIR:
		inode->i_op = &past_dir_inode_operations;
		inode->i_fop = &past_dir_operations;
		break;
	case S_IFLNK:
		inode->i_op = &past_symlink_operations;
		break;
	default:
		inode->i_op = &past_special_operations;
	}
}
