// SPDX-License-Identifier: MIT OR Apache-2.0
/* Mounting, unmounting, and what concerns a volume as a whole. */
#include <linux/blkdev.h>
#include <linux/freezer.h>
#include <linux/kthread.h>
#include <linux/slab.h>
#include <linux/statfs.h>

#include "steadfast.h"

#define ROOT 1
/* The core asks for background work at least every 100 ms. */
#define BACKGROUND_MS 50

static struct inode *sf_alloc_inode(struct super_block *sb)
{
	struct sf_inode *inode = alloc_inode_sb(sb, sf_inode_cache, GFP_KERNEL);

	if (!inode)
		return NULL;
	inode->view = NULL;
	inode->acquired = false;
	inode->flags = 0;
	inode->fate = SF_STAYS;
	inode->allocated_at = 0;
	atomic64_set(&inode->changes, 1);
	atomic_set(&inode->promised, 0);
	return &inode->vfs;
}

static void sf_free_inode(struct inode *inode)
{
	kmem_cache_free(sf_inode_cache, sf_inode(inode));
}

/* Timer, steps of checkpoints, blocks of removed files. */
static int background(void *data)
{
	struct sf_info *info = data;

	set_freezable();
	while (!kthread_should_stop()) {
		long more = 0;

		try_to_freeze();
		/* A frozen file system is left alone. */
		if (sb_start_intwrite_trylock(info->sb)) {
			more = SF_CORE(info, sfk_background(info->volume));
			sb_end_intwrite(info->sb);
		}
		if (more > 0)
			cond_resched();
		else
			schedule_timeout_interruptible(msecs_to_jiffies(BACKGROUND_MS));
	}
	return 0;
}

static int start_background(struct sf_info *info)
{
	struct task_struct *task = kthread_run(background, info, "steadfast/%s", info->sb->s_id);

	if (IS_ERR(task))
		return PTR_ERR(task);
	info->background = task;
	return 0;
}

static void stop_background(struct sf_info *info)
{
	if (info->background)
		kthread_stop(info->background);
	info->background = NULL;
}

static void close_volume(struct sf_info *info)
{
	long result;

	stop_background(info);
	sf_shrink_end(info);
	if (!info->volume)
		return;
	sf_views_free(info);
	result = SF_CORE(info, sfk_close(info->volume));
	if (result)
		pr_err("steadfast (%s): closing failed with error %ld; "
		       "what was acknowledged is safe\n",
		       info->sb->s_id, result);
	/* The state of a broken volume is unknown, so its memory is not touched again. */
	(void)SF_CORE(info, (sfk_free(info->volume), 0));
	info->volume = NULL;
	sf_stack_report();
}

static void sf_put_super(struct super_block *sb)
{
	close_volume(sf_info(sb));
}

static int sf_sync_fs(struct super_block *sb, int wait)
{
	struct sf_info *info = sf_info(sb);

	if (!wait || sb_rdonly(sb) || READ_ONCE(info->goes_back) == current)
		return 0;
	return SF_CORE(info, sfk_sync(info->volume));
}

/* A copy of a frozen device is to have all of it, whatever the mask says. */
static int sf_freeze(struct super_block *sb)
{
	struct sf_info *info = sf_info(sb);

	if (sb_rdonly(sb) || READ_ONCE(info->goes_back) == current)
		return 0;
	return SF_CORE(info, sfk_transact(info->volume));
}

static int sf_statfs(struct dentry *dentry, struct kstatfs *out)
{
	struct sf_info *info = sf_info(dentry->d_sb);
	struct sfk_statistics found;
	u64 promised;
	long result = SF_CORE(info, sfk_statistics_get(info->volume, &found));

	if (result)
		return result;
	promised = atomic64_read(&info->promised) / found.block_size;
	out->f_type = dentry->d_sb->s_magic;
	out->f_bsize = found.block_size;
	out->f_frsize = found.block_size;
	out->f_namelen = found.name_max;
	out->f_blocks = found.blocks;
	out->f_bfree = found.blocks_free - min(found.blocks_free, promised);
	out->f_bavail = found.blocks_available - min(found.blocks_available, promised);
	/* Inodes have no table of their own: the free blocks limit their number. */
	out->f_files = found.inodes + out->f_bavail;
	out->f_ffree = out->f_bavail;
	out->f_fsid = uuid_to_fsid(dentry->d_sb->s_uuid.b);
	return 0;
}

static const struct super_operations sf_super_operations = {
	.alloc_inode = sf_alloc_inode,
	.free_inode = sf_free_inode,
	.write_inode = sf_write_inode,
	.evict_inode = sf_evict,
	.put_super = sf_put_super,
	.sync_fs = sf_sync_fs,
	.freeze_fs = sf_freeze,
	.statfs = sf_statfs,
	.show_options = sf_show_options,
};

static int open_volume(struct sf_info *info, struct fs_context *fc, bool read_only,
		       struct sfk_volume **volume)
{
	struct super_block *sb = info->sb;
	struct block_device *bdev = sb->s_bdev;
	struct sfk_options options = {
		.size = bdev_nr_bytes(bdev),
		.unit = bdev_logical_block_size(bdev),
		.discards = bdev_max_discard_sectors(bdev),
		.discards_freed = info->options.discard,
		.read_only = read_only,
		.recover = info->options.recover,
		.cache_size = info->options.cache_size,
		.snapshot = info->options.snapshot,
	};
	char *text = kzalloc(256, GFP_KERNEL);
	long result;

	if (!text)
		return -ENOMEM;
	result = SF_CORE(info, sfk_open(bdev, &options, volume, text, 256));
	if (result)
		errorf(fc, "steadfast (%s): %s", sb->s_id, text);
	kfree(text);
	return result;
}

/* After a rollback the mask may be another one. If it cannot be asked for, the old one stays. */
void sf_read_mask(struct sf_info *info)
{
	struct sfk_info *about = kmalloc(sizeof(*about), GFP_KERNEL | __GFP_NOFAIL);

	if (!SF_CORE(info, (sfk_info_get(info->volume, about), 0)))
		WRITE_ONCE(info->mask, about->mask);
	kfree(about);
}

/*
 * Properties that the VFS wants to know. With options for them, mask and timer are stored: a mount
 * that fails must leave them as they were, so that comes last.
 */
static int set_up(struct sf_info *info, bool store)
{
	struct super_block *sb = info->sb;
	struct sfk_info *about = kmalloc(sizeof(*about), GFP_KERNEL);
	long result;

	if (!about)
		return -ENOMEM;
	result = SF_CORE(info, (sfk_info_get(info->volume, about), 0));
	if (!result) {
		sf_set_uuid(sb, about->uuid);
		info->unit = max_t(u64, about->block_size, PAGE_SIZE);
		info->mask = about->mask;
	}
	if (!result && store && (info->options.mask || info->options.timer_ms)) {
		u32 mask = about->mask;

		if (info->options.mask)
			sfk_parse_mask(info->options.mask, &mask);
		result = SF_CORE(info, sfk_set_mask(info->volume, mask,
						    info->options.timer_ms ?: about->timer_ms));
		if (!result)
			info->mask = mask;
	}
	info->options_stored |= store && !result;
	kfree(about);
	return result;
}

static int sf_fill_super(struct super_block *sb, struct fs_context *fc)
{
	struct sf_info *info = sb->s_fs_info;
	struct sfk_attributes found;
	struct inode *root;
	int result;

	info->sb = sb;
	sb->s_magic = 0x53544653; /* "STFS" */
	sb->s_maxbytes = MAX_LFS_FILESIZE;
	sb->s_blocksize = PAGE_SIZE;
	sb->s_blocksize_bits = PAGE_SHIFT;
	sb->s_time_gran = 1;
	sb->s_op = &sf_super_operations;
	sb->s_xattr = sf_xattr_handlers;
	sb->s_export_op = &sf_export_operations;
	sb->s_flags |= SB_POSIXACL;
	/* The core takes checksums of pages and writes from them: no writer may change them
	 * then. */
	sb->s_iflags |= SB_I_STABLE_WRITES;
	info->core_read_only = sb_rdonly(sb) || bdev_read_only(sb->s_bdev);
	result = open_volume(info, fc, info->core_read_only, &info->volume);
	if (result)
		return result;
	result = set_up(info, false) ?: sf_shrink_begin(info);
	if (!result)
		result = SF_CORE(info, sfk_attributes_get(info->volume, ROOT, &found));
	if (result)
		goto fail;
	root = sf_iget(sb, NULL, &found);
	if (IS_ERR(root)) {
		result = PTR_ERR(root);
		goto fail;
	}
	sb->s_root = d_make_root(root);
	if (!sb->s_root) {
		result = -ENOMEM;
		goto fail;
	}
	if (!info->core_read_only)
		result = start_background(info) ?: set_up(info, true);
	/* With a root the VFS itself calls put_super. */
	return result;
fail:
	close_volume(info);
	return result;
}

static bool same_state(const struct sf_info *mounted, const struct sf_info *wanted)
{
	const char *shown = mounted->options.snapshot, *name = wanted->options.snapshot;

	return shown && name ? !strcmp(shown, name) : shown == name;
}

static int sf_get_tree(struct fs_context *fc)
{
	struct sf_info *wanted = fc->s_fs_info;
	struct super_block *sb;
	int result;

	if (wanted->options.snapshot)
		fc->sb_flags |= SB_RDONLY;
	result = get_tree_bdev(fc, sf_fill_super);
	/* A new superblock has taken the options over; one that is mounted already keeps its
	 * own. */
	if (result || !fc->s_fs_info || same_state(sf_info(fc->root->d_sb), wanted))
		return result;
	sb = fc->root->d_sb;
	errorf(fc, "steadfast (%s): another state of the device is mounted", sb->s_id);
	dput(fc->root);
	fc->root = NULL;
	deactivate_locked_super(sb);
	return -EBUSY;
}

/* From read-only to writable: the volume is opened once more, as by a new mount, with its rules for
 * what is damaged or too new. Opening writes no block that the state has, so readers go on. */
static int open_for_writing(struct sf_info *info, struct fs_context *fc)
{
	const struct sf_info *wanted = fc->s_fs_info;
	struct sfk_volume *old = info->volume, *new;
	bool recover = info->options.recover;
	int result;

	if (info->options.snapshot) {
		errorf(fc, "steadfast (%s): a snapshot is read-only", info->sb->s_id);
		return -EROFS;
	}
	info->options.recover |= wanted->options.recover;
	result = open_volume(info, fc, false, &new);
	if (result) {
		info->options.recover = recover;
		return result;
	}
	WRITE_ONCE(info->volume, new);
	/* An entry that sees false finds the new volume, and need not be waited for. */
	smp_store_release(&info->core_read_only, false);
	sf_wait_for_readers();
	/* An older state may lack snapshots that readers have found. */
	sf_views_stop(info);
	sf_views_go_on(info, SF_ANY_GENERATION);
	(void)SF_CORE(info, sfk_close(old));
	(void)SF_CORE(info, (sfk_free(old), 0));
	return 0;
}

static int sf_reconfigure(struct fs_context *fc)
{
	struct super_block *sb = fc->root->d_sb;
	struct sf_info *info = sf_info(sb);
	/* A change of other options only, by fsconfig(2), leaves this as it is. */
	bool read_only = fc->sb_flags_mask & SB_RDONLY ? fc->sb_flags & SB_RDONLY : sb_rdonly(sb);
	int result = 0;

	sync_filesystem(sb);
	if (read_only && !sb_rdonly(sb)) {
		stop_background(info);
		result = SF_CORE(info, sfk_checkpoint(info->volume));
		/* It stays writable then, as inside an atomic change. */
		return result ? (start_background(info) ?: result) : 0;
	}
	if (!read_only && info->core_read_only) {
		result = open_for_writing(info, fc);
		if (!result)
			result = start_background(info) ?: set_up(info, true);
		if (result)
			stop_background(info);
		return result;
	}
	if (!read_only && !info->background) {
		result = start_background(info);
		/* An earlier change to writable may have failed before that. */
		if (!result && !info->options_stored)
			result = set_up(info, true);
	}
	return result;
}

static void free_info(struct sf_info *info)
{
	if (!info)
		return;
	kfree(info->options.mask);
	kfree(info->options.snapshot);
	kfree(info);
}

static void sf_free_context(struct fs_context *fc)
{
	free_info(fc->s_fs_info);
}

static const struct fs_context_operations context_operations = {
	.parse_param = sf_parse_param,
	.get_tree = sf_get_tree,
	.reconfigure = sf_reconfigure,
	.free = sf_free_context,
};

int sf_init_fs_context(struct fs_context *fc)
{
	struct sf_info *info = kzalloc(sizeof(*info), GFP_KERNEL);

	if (!info)
		return -ENOMEM;
	info->options.cache_size = SF_CACHE_DEFAULT;
	mutex_init(&info->full);
	init_rwsem(&info->pieces);
	init_rwsem(&info->view);
	init_rwsem(&info->views);
	INIT_LIST_HEAD(&info->view_list);
	mutex_init(&info->taking);
	mutex_init(&info->hold);
	fc->s_fs_info = info;
	fc->ops = &context_operations;
	return 0;
}

void sf_kill(struct super_block *sb)
{
	struct sf_info *info = sb->s_fs_info;

	kill_block_super(sb);
	free_info(info);
}
