// SPDX-License-Identifier: MIT OR Apache-2.0
/* Commands to a mounted volume, with the numbers that a FUSE mount has (steadfast-ioctl.h). */
#include <linux/module.h>
#include <linux/mount.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/writeback.h>

#include "steadfast.h"

struct mask_argument {
	u32 mask;
	u32 timer_ms;
};

struct snapshot_argument {
	char name[64];
	u64 generation;
	s64 created_seconds;
	u64 inodes;
	u64 used_blocks;
	u32 created_nanoseconds;
	u32 flags;
};

#define TYPE 0xd5
#define TRANSACT _IO(TYPE, 1)
#define MASK_GET _IOR(TYPE, 3, struct mask_argument)
#define MASK_SET _IOW(TYPE, 4, struct mask_argument)
#define INFO _IOR(TYPE, 5, struct sfk_info)
#define CHECKPOINT _IO(TYPE, 6)
#define SNAPSHOT_DELETE _IOW(TYPE, 0x31, struct snapshot_argument)
/* Not a command of FUSE: makes the next change panic, if the parameter `selftest` allows it. */
#define PANIC _IO(TYPE, 0xff)

static bool selftest;
module_param(selftest, bool, 0444);
MODULE_PARM_DESC(selftest, "allow an ioctl of root that makes the core panic");

/* Dirty pages are part of what becomes durable. */
static void write_back(struct super_block *sb)
{
	down_read(&sb->s_umount);
	sync_inodes_sb(sb);
	up_read(&sb->s_umount);
}

static long copy_info(struct sf_info *info, void __user *to)
{
	struct sfk_info *about = kmalloc(sizeof(*about), GFP_KERNEL);
	long result;

	if (!about)
		return -ENOMEM;
	result = SF_CORE(info, (sfk_info_get(info->volume, about), 0));
	if (!result && copy_to_user(to, about, sizeof(*about)))
		result = -EFAULT;
	kfree(about);
	return result;
}

static long get_mask(struct sf_info *info, void __user *to)
{
	struct sfk_info *about = kmalloc(sizeof(*about), GFP_KERNEL);
	struct mask_argument argument;
	long result;

	if (!about)
		return -ENOMEM;
	result = SF_CORE(info, (sfk_info_get(info->volume, about), 0));
	argument.mask = about->mask;
	argument.timer_ms = about->timer_ms;
	kfree(about);
	if (!result && copy_to_user(to, &argument, sizeof(argument)))
		result = -EFAULT;
	return result;
}

static long set_mask(struct sf_info *info, void __user *from)
{
	struct mask_argument argument;
	long result;

	if (copy_from_user(&argument, from, sizeof(argument)))
		return -EFAULT;
	result = SF_CORE(info, sfk_set_mask(info->volume, argument.mask, argument.timer_ms));
	if (!result)
		WRITE_ONCE(info->mask, argument.mask);
	return result;
}

static long delete_snapshot(struct sf_info *info, void __user *from)
{
	struct snapshot_argument argument;

	if (copy_from_user(&argument, from, sizeof(argument)))
		return -EFAULT;
	if (strnlen(argument.name, sizeof(argument.name)) >= sizeof(argument.name))
		return -ENAMETOOLONG;
	return SF_CORE(info, sfk_snapshot_delete(info->volume, argument.name));
}

/* Commands that change the volume. */
static long change(struct file *file, unsigned int command, void __user *argument)
{
	struct sf_info *info = sf_info(file_inode(file)->i_sb);

	switch (command) {
	case TRANSACT:
		write_back(info->sb);
		return SF_CORE(info, sfk_transact(info->volume));
	case CHECKPOINT:
		write_back(info->sb);
		return SF_CORE(info, sfk_checkpoint(info->volume));
	case MASK_SET:
		return set_mask(info, argument);
	case SNAPSHOT_DELETE:
		return delete_snapshot(info, argument);
	case PANIC:
		return SF_CORE(info, (sfk_test_panic(info->volume), 0));
	default:
		return -ENOTTY;
	}
}

long sf_ioctl(struct file *file, unsigned int command, unsigned long number)
{
	struct sf_info *info = sf_info(file_inode(file)->i_sb);
	void __user *argument = (void __user *)number;
	long result;

	switch (command) {
	case INFO:
		return copy_info(info, argument);
	case MASK_GET:
		return get_mask(info, argument);
	case PANIC:
		if (!selftest)
			return -ENOTTY;
		fallthrough;
	case TRANSACT:
	case CHECKPOINT:
	case MASK_SET:
	case SNAPSHOT_DELETE:
		if (!capable(CAP_SYS_ADMIN))
			return -EPERM;
		result = mnt_want_write_file(file);
		if (result)
			return result;
		result = change(file, command, argument);
		mnt_drop_write_file(file);
		return result;
	default:
		return -ENOTTY;
	}
}
