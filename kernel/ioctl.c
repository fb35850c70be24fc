// SPDX-License-Identifier: MIT OR Apache-2.0
/* Commands to a mounted volume, with the numbers that a FUSE mount has (steadfast-ioctl.h), and
 * those that the kernel has for the label and for fstrim. */
#include <linux/blkdev.h>
#include <linux/module.h>
#include <linux/mount.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/writeback.h>

#include "commands.h"
#include "steadfast.h"

static bool selftest;
module_param(selftest, bool, 0444);
MODULE_PARM_DESC(selftest, "allow an ioctl of root that makes the core panic");

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

static long get_label(struct sf_info *info, char __user *to)
{
	struct sfk_info *about = kmalloc(sizeof(*about), GFP_KERNEL);
	long result;

	if (!about)
		return -ENOMEM;
	result = SF_CORE(info, (sfk_info_get(info->volume, about), 0));
	if (!result && (copy_to_user(to, about->label, sizeof(about->label)) ||
			clear_user(to + sizeof(about->label), FSLABEL_MAX - sizeof(about->label))))
		result = -EFAULT;
	kfree(about);
	return result;
}

static long set_label(struct sf_info *info, const char __user *from)
{
	char *label = strndup_user(from, FSLABEL_MAX);
	long result;

	if (IS_ERR(label))
		return PTR_ERR(label);
	result = SF_CORE(info, sfk_set_label(info->volume, label));
	kfree(label);
	return result;
}

/* fstrim(8): free space goes back to the device, in steps. */
static long trim(struct sf_info *info, struct fstrim_range __user *argument)
{
	struct block_device *bdev = info->sb->s_bdev;
	struct fstrim_range range;
	u64 at, to, discarded = 0;
	long more;

	if (!bdev_max_discard_sectors(bdev))
		return -EOPNOTSUPP;
	if (copy_from_user(&range, argument, sizeof(range)))
		return -EFAULT;
	if (range.start >= bdev_nr_bytes(bdev))
		return -EINVAL;
	at = range.start;
	to = range.len < U64_MAX - at ? at + range.len : U64_MAX;
	more = SF_CORE(info, sfk_trim_begin(info->volume)) ?: 1;
	while (more > 0) {
		more = SF_CORE(info, sfk_trim_step(info->volume, &at, to, range.minlen,
						   &discarded));
		if (more > 0 && fatal_signal_pending(current))
			more = -EINTR;
		cond_resched();
	}
	range.len = discarded;
	if (more < 0)
		return more;
	return copy_to_user(argument, &range, sizeof(range)) ? -EFAULT : 0;
}

static long roll_back(struct sf_info *info, void *with)
{
	return SF_CORE(info, sfk_rollback(info->volume));
}

/* Commands that go back freeze the mount, so they must not hold it writable themselves. */
static long go_back(struct sf_info *info, unsigned int command, void __user *argument)
{
	struct rollback_argument wanted;
	long result;

	if (sb_rdonly(info->sb))
		return -EROFS;
	if (command == ROLLBACK && copy_from_user(&wanted, argument, sizeof(wanted)))
		return -EFAULT;
	mutex_lock(&info->hold);
	if (info->holder)
		result = -EALREADY;
	else if (command == ROLLBACK)
		result = sf_go_back(info, wanted.force, roll_back, NULL);
	else
		result = sf_snapshot_rollback(info, argument);
	mutex_unlock(&info->hold);
	return result;
}

static long atomic_status(struct sf_info *info, void __user *to)
{
	struct atomic_argument status = {};

	mutex_lock(&info->hold);
	if (info->holder) {
		status.flags = ATOMIC_RUNS;
		status.process = info->holder_process;
	}
	mutex_unlock(&info->hold);
	if (READ_ONCE(info->no_space))
		status.flags |= ATOMIC_NO_SPACE;
	return copy_to_user(to, &status, sizeof(status)) ? -EFAULT : 0;
}

/* Commands that change the volume. */
static long change(struct file *file, unsigned int command, void __user *argument)
{
	struct sf_info *info = sf_info(file_inode(file)->i_sb);

	switch (command) {
	case TRANSACT:
		sf_room_write_back(info);
		return SF_CORE(info, sfk_transact(info->volume));
	case CHECKPOINT:
		sf_room_write_back(info);
		return SF_CORE(info, sfk_checkpoint(info->volume));
	case MASK_SET:
		return set_mask(info, argument);
	case FS_IOC_SETFSLABEL:
		return set_label(info, argument);
	case FITRIM:
		return trim(info, argument);
	case SNAPSHOT_DELETE:
		return sf_snapshot_delete(info, argument);
	case SNAPSHOT_CREATE:
		return sf_snapshot_create(info, argument);
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
	case FS_IOC_GETFSLABEL:
		return get_label(info, argument);
	case ATOMIC_STATUS:
		return atomic_status(info, argument);
	case SNAPSHOT_LIST:
		return sf_snapshot_list(info, argument);
	case SNAPSHOT_DIFF:
		return capable(CAP_SYS_ADMIN) ? sf_snapshot_diff(info, argument) : -EPERM;
	case ROLLBACK:
	case SNAPSHOT_ROLLBACK:
		return capable(CAP_SYS_ADMIN) ? go_back(info, command, argument) : -EPERM;
	case PANIC:
		if (!selftest)
			return -ENOTTY;
		fallthrough;
	case TRANSACT:
	case CHECKPOINT:
	case MASK_SET:
	case FS_IOC_SETFSLABEL:
	case FITRIM:
	case SNAPSHOT_CREATE:
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
