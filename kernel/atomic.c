// SPDX-License-Identifier: MIT OR Apache-2.0
/* The control file: changes of several files as one (`steadfast atomically`).
 *
 * It is in the root directory, but not listed and not part of the volume. A task that opens it and
 * begins holds the volume until it commits or aborts. If its last descriptor is closed before that,
 * for any reason, the volume goes back. `hold` guards the holder, and lets one task go back at a
 * time. */
#include <linux/capability.h>
#include <linux/mount.h>

#include "commands.h"
#include "steadfast.h"

#define NAME ".steadfast-control"
/* A number that no file gets. */
#define NUMBER 2

static long begin(struct sf_info *info, struct file *file)
{
	long result;

	if (info->holder)
		return -EALREADY;
	/* Earlier writes belong to the state that an abort returns to. */
	sf_room_write_back(info);
	info->hold_error = errseq_sample(&info->sb->s_wb_err);
	result = SF_CORE(info, sfk_atomic_begin(info->volume));
	if (result)
		return result;
	WRITE_ONCE(info->no_space, false);
	info->holder_process = task_tgid_vnr(current);
	info->holder = file;
	return 0;
}

static bool still_runs(struct sf_info *info)
{
	return SF_CORE(info, sfk_atomic_runs(info->volume)) == 1;
}

static long commit(struct sf_info *info)
{
	long result;

	sf_room_write_back(info);
	/* Data that could not be written is missing: the change would not be whole. */
	result = errseq_check(&info->sb->s_wb_err, info->hold_error);
	if (result)
		return result;
	result = SF_CORE(info, sfk_atomic_commit(info->volume));
	if (!result || !still_runs(info))
		info->holder = NULL;
	return result;
}

static long go(struct sf_info *info, void *with)
{
	return SF_CORE(info, sfk_atomic_roll_back(info->volume));
}

static long abort_change(struct sf_info *info)
{
	long result = sf_go_back(info, true, go, NULL);

	if (result)
		pr_err("steadfast (%s): an atomic change was not rolled back (error %ld): "
		       "nothing is durable until the next mount, which does it\n",
		       info->sb->s_id, result);
	info->holder = NULL;
	return result;
}

static long control(struct file *file, unsigned int command, unsigned long argument)
{
	struct sf_info *info = sf_info(file_inode(file)->i_sb);
	long result = 0;

	if (command != ATOMIC_BEGIN && command != ATOMIC_COMMIT && command != ATOMIC_ABORT)
		return -ENOTTY;
	if (command == ATOMIC_BEGIN) {
		if (!capable(CAP_SYS_ADMIN))
			return -EPERM;
		if (sb_rdonly(info->sb))
			return -EROFS;
	}
	mutex_lock(&info->hold);
	if (command != ATOMIC_BEGIN && info->holder != file) {
		result = -EINVAL;
	} else if (command == ATOMIC_ABORT) {
		result = abort_change(info);
	} else {
		/* A frozen file system stays as it is. */
		sb_start_write(info->sb);
		result = command == ATOMIC_BEGIN ? begin(info, file) : commit(info);
		sb_end_write(info->sb);
	}
	mutex_unlock(&info->hold);
	return result;
}

static int release(struct inode *inode, struct file *file)
{
	struct sf_info *info = sf_info(inode->i_sb);

	mutex_lock(&info->hold);
	if (info->holder == file) {
		pr_warn("steadfast (%s): an atomic change has ended without an answer: "
			"rolling back\n",
			info->sb->s_id);
		abort_change(info);
	}
	mutex_unlock(&info->hold);
	return 0;
}

static const struct file_operations control_operations = {
	.unlocked_ioctl = control,
	.compat_ioctl = compat_ptr_ioctl,
	.release = release,
};

bool sf_is_control(struct inode *inode)
{
	return inode->i_fop == &control_operations;
}

bool sf_names_control(struct inode *dir, const struct qstr *name)
{
	return dir == d_inode(dir->i_sb->s_root) && name->len == sizeof(NAME) - 1 &&
	       !memcmp(name->name, NAME, name->len);
}

/* An inode for one look-up of the control file. */
struct inode *sf_control_inode(struct super_block *sb)
{
	struct inode *inode = new_inode(sb);

	if (!inode)
		return ERR_PTR(-ENOMEM);
	inode->i_ino = NUMBER;
	inode->i_mode = S_IFREG | 0600;
	inode->i_fop = &control_operations;
	return inode;
}
