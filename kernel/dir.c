// SPDX-License-Identifier: MIT OR Apache-2.0
/* Directories: names of inodes. */
#include <linux/slab.h>

#include "steadfast.h"

/* Entries are collected here before they go to the user: that may fault, and must not do so inside
 * the core. */
#define LIST_SIZE 8192

struct entry {
	u64 inode;
	u64 cookie;
	u8 kind;
	u8 length;
	char name[];
};

struct list {
	char *memory;
	size_t used;
};

static struct sfk_name name_of(const struct dentry *dentry)
{
	return (struct sfk_name){ dentry->d_name.name, dentry->d_name.len };
}

static struct sfk_new new_inode_of(umode_t mode)
{
	return (struct sfk_new){
		.mode = mode,
		.uid = from_kuid(&init_user_ns, current_fsuid()),
		.gid = from_kgid(&init_user_ns, current_fsgid()),
		.umask = current_umask(),
	};
}

struct dentry *sf_lookup(struct inode *dir, struct dentry *dentry, unsigned int flags)
{
	struct sf_info *info = sf_info(dir->i_sb);
	struct sfk_name name = name_of(dentry);
	struct sfk_attributes found;
	struct inode *inode = NULL;
	struct dentry *alias;
	bool control;
	long result;

	/* Until the dentry has the inode: a rollback finds both then, or neither. */
	down_read(&info->view);
	result = SF_ASK(dir, sfk_lookup, &name, &found);
	control = result == -ENOENT && sf_names_control(dir, &dentry->d_name);
	if (!result)
		inode = sf_iget(dir->i_sb, sf_inode(dir)->view, &found);
	else if (control)
		inode = sf_control_inode(dir->i_sb);
	else if (result == -ENOENT && sf_names_listing(dir, &dentry->d_name))
		inode = sf_listing_inode(dir->i_sb);
	else if (result != -ENOENT)
		inode = ERR_PTR(result);
	alias = d_splice_alias(inode, dentry);
	/* A file of the volume may take the name. */
	if (control && !IS_ERR(alias))
		d_drop(dentry);
	up_read(&info->view);
	return alias;
}

bool sfk_shim_emit(void *context, const char *name, size_t length, u64 inode, u32 kind,
		   u64 cookie)
{
	struct list *list = context;
	struct entry *entry = (struct entry *)(list->memory + list->used);
	size_t size = ALIGN(sizeof(*entry) + length, 8);

	if (list->used + size > LIST_SIZE || length > U8_MAX)
		return false;
	entry->inode = inode;
	entry->cookie = cookie;
	entry->kind = kind;
	entry->length = length;
	memcpy(entry->name, name, length);
	list->used += size;
	return true;
}

/* The number of an entry that programs see. */
static u64 shown(struct inode *dir, const struct entry *entry)
{
	struct sf_view *view = sf_inode(dir)->view;

	if (!view)
		return entry->inode;
	/* The root of a snapshot is its own parent there. */
	if (entry->length == 2 && !memcmp(entry->name, "..", 2) &&
	    entry->inode == sf_view_number(dir))
		return SF_LISTING;
	return sf_view_shows(view, entry->inode);
}

int sf_readdir(struct file *file, struct dir_context *context)
{
	struct inode *dir = file_inode(file);
	struct list list = { kmalloc(LIST_SIZE, GFP_KERNEL), 0 };
	size_t at;
	long more;

	if (!list.memory)
		return -ENOMEM;
	do {
		list.used = 0;
		more = SF_ASK(dir, sfk_list, context->pos, &list);
		for (at = 0; more >= 0 && at < list.used;) {
			struct entry *entry = (struct entry *)(list.memory + at);

			if (!dir_emit(context, entry->name, entry->length, shown(dir, entry),
				      entry->kind)) {
				more = 0;
				break;
			}
			/* The position is the cookie of the last entry that the user has. */
			context->pos = entry->cookie;
			at += ALIGN(sizeof(*entry) + entry->length, 8);
		}
	} while (more > 0);
	kfree(list.memory);
	return min(more, 0L);
}

static int make(struct inode *dir, struct dentry *dentry, struct sfk_new *new)
{
	struct sf_info *info = sf_info(dir->i_sb);
	struct sfk_name name = name_of(dentry);
	struct sfk_attributes found;
	struct inode *inode;
	long result;

	sf_room_for_names(info);
	result = SF_CORE(info, sfk_create(info->volume, dir->i_ino, &name, new, &found));
	if (result)
		return result;
	inode = sf_iget(dir->i_sb, NULL, &found);
	if (IS_ERR(inode))
		return PTR_ERR(inode);
	d_instantiate(dentry, inode);
	sf_refresh(dir);
	return 0;
}

static int sf_create(SF_IDMAP idmap, struct inode *dir, struct dentry *dentry, umode_t mode,
		     bool exclusive)
{
	struct sfk_new new = new_inode_of(mode | S_IFREG);

	return make(dir, dentry, &new);
}

static int sf_mkdir(SF_IDMAP idmap, struct inode *dir, struct dentry *dentry, umode_t mode)
{
	struct sfk_new new = new_inode_of(mode | S_IFDIR);

	return make(dir, dentry, &new);
}

static int sf_mknod(SF_IDMAP idmap, struct inode *dir, struct dentry *dentry, umode_t mode,
		    dev_t device)
{
	struct sfk_new new = new_inode_of(mode);

	new.device = new_encode_dev(device);
	return make(dir, dentry, &new);
}

static int sf_symlink(SF_IDMAP idmap, struct inode *dir, struct dentry *dentry,
		      const char *target)
{
	struct sfk_new new = new_inode_of(S_IFLNK | 0777);

	new.umask = 0;
	new.target = (struct sfk_name){ target, strlen(target) };
	return make(dir, dentry, &new);
}

static int sf_tmpfile(SF_IDMAP idmap, struct inode *dir, struct file *file, umode_t mode)
{
	struct sf_info *info = sf_info(dir->i_sb);
	struct sfk_new new = new_inode_of(mode);
	struct sfk_attributes found;
	struct inode *inode;
	long result;

	sf_room_for_names(info);
	result = SF_CORE(info, sfk_create_unnamed(info->volume, dir->i_ino, &new, &found));
	if (result)
		return finish_open_simple(file, result);
	inode = sf_iget(dir->i_sb, NULL, &found);
	if (IS_ERR(inode)) {
		(void)SF_CORE(info, (sfk_release(info->volume, found.inode), 0));
		return finish_open_simple(file, PTR_ERR(inode));
	}
	/* The core counts a new file without a name as acquired. */
	sf_inode(inode)->acquired = true;
	/* d_tmpfile takes the link away that other file systems give it. */
	set_nlink(inode, 1);
	d_tmpfile(file, inode);
	return finish_open_simple(file, 0);
}

static int sf_link(struct dentry *old, struct inode *dir, struct dentry *dentry)
{
	struct inode *inode = d_inode(old);
	struct sf_info *info = sf_info(dir->i_sb);
	struct sfk_name name = name_of(dentry);
	struct sfk_attributes found;
	long result;

	if (sf_inode(inode)->view)
		return -EXDEV;
	sf_room_for_names(info);
	result = SF_CORE(info, sfk_link(info->volume, inode->i_ino, dir->i_ino, &name, &found));
	if (result)
		return result;
	set_nlink(inode, found.links);
	sf_set_ctime(inode, sf_timespec(found.changed));
	ihold(inode);
	d_instantiate(dentry, inode);
	sf_refresh(dir);
	return 0;
}

/* After the volume's own `.snapshots` went: the name is that of the snapshots again. */
static void uncover_listing(struct inode *dir, struct dentry *dentry)
{
	if (sf_names_listing(dir, &dentry->d_name))
		d_drop(dentry);
}

static int sf_unlink(struct inode *dir, struct dentry *dentry)
{
	struct inode *inode = d_inode(dentry);
	struct sf_info *info = sf_info(dir->i_sb);
	struct sfk_name name = name_of(dentry);
	bool leaves = inode->i_nlink == 1 && sf_leave_begin(dentry);
	long result = leaves ? 0 : sf_keep(inode);

	if (!result)
		result = SF_CORE(info, sfk_unlink(info->volume, dir->i_ino, &name));
	if (leaves)
		sf_leave_end(inode, !result);
	if (result)
		return result;
	sf_room_spend(info, 0);
	if (leaves)
		clear_nlink(inode);
	else
		sf_refresh(inode);
	sf_refresh(dir);
	uncover_listing(dir, dentry);
	return 0;
}

static int sf_rmdir(struct inode *dir, struct dentry *dentry)
{
	struct inode *inode = d_inode(dentry);
	struct sf_info *info = sf_info(dir->i_sb);
	struct sfk_name name = name_of(dentry);
	bool leaves;
	long result;

	if (sf_is_listing(inode))
		return -EROFS;
	leaves = sf_leave_begin(dentry);
	result = leaves ? 0 : sf_keep(inode);
	if (!result)
		result = SF_CORE(info, sfk_rmdir(info->volume, dir->i_ino, &name));
	if (leaves)
		sf_leave_end(inode, !result);
	if (result)
		return result;
	sf_room_spend(info, 0);
	clear_nlink(inode);
	sf_refresh(dir);
	uncover_listing(dir, dentry);
	return 0;
}

static int sf_rename(SF_IDMAP idmap, struct inode *from, struct dentry *old, struct inode *to,
		     struct dentry *new, unsigned int flags)
{
	struct sf_info *info = sf_info(from->i_sb);
	struct sfk_name old_name = name_of(old), new_name = name_of(new);
	struct sfk_new whiteout = new_inode_of(S_IFCHR);
	struct inode *target = d_inode(new);
	long result = 0;

	if (flags & ~(RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT))
		return -EINVAL;
	if (sf_is_listing(d_inode(old)) || (target && sf_is_listing(target)))
		return -EROFS;
	if (target && !(flags & RENAME_EXCHANGE))
		result = sf_keep(target);
	if (result)
		return result;
	sf_room_for_names(info);
	result = SF_CORE(info, sfk_rename(info->volume, from->i_ino, &old_name, to->i_ino,
					  &new_name, flags, &whiteout));
	if (result)
		return result;
	sf_refresh(d_inode(old));
	if (target) {
		if (S_ISDIR(target->i_mode) && !(flags & RENAME_EXCHANGE))
			clear_nlink(target);
		else
			sf_refresh(target);
	}
	if (to != from)
		sf_refresh(to);
	sf_refresh(from);
	return 0;
}

const struct inode_operations sf_dir_inode_operations = {
	.lookup = sf_lookup,
	.create = sf_create,
	.mkdir = sf_mkdir,
	.mknod = sf_mknod,
	.symlink = sf_symlink,
	.tmpfile = sf_tmpfile,
	.link = sf_link,
	.unlink = sf_unlink,
	.rmdir = sf_rmdir,
	.rename = sf_rename,
	.getattr = sf_getattr,
	.setattr = sf_setattr,
	.listxattr = sf_listxattr,
	.fileattr_get = sf_fileattr_get,
	.fileattr_set = sf_fileattr_set,
	SF_GET_ACL = sf_get_acl,
	.set_acl = sf_set_acl,
};

const struct file_operations sf_dir_operations = {
	.open = sf_open,
	.iterate_shared = sf_readdir,
	.llseek = generic_file_llseek,
	.read = generic_read_dir,
	.fsync = sf_fsync,
	.unlocked_ioctl = sf_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};
