/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the files of the VFS side share. */
#ifndef STEADFAST_H
#define STEADFAST_H

#include <linux/fs.h>
#include <linux/fs_context.h>
#include <linux/fs_parser.h>
#include <linux/mutex.h>
#include <linux/posix_acl.h>
#include <linux/rwsem.h>
#include <linux/xattr.h>

#include "compat.h"
#include "core.h"
#include "entry.h"
#include "shim.h"

#define SF_CACHE_DEFAULT (32UL << 20)
/* The number of an inode that a rollback has cut off; the core has none like it. */
#define SF_CUT_OFF (~0UL)
/* The number of the directory of snapshots, which no file gets. */
#define SF_LISTING 2

/* Options of a mount. */
struct sf_options {
	size_t cache_size;
	char *mask; /* NULL: that of the volume */
	char *snapshot; /* NULL: the volume itself */
	unsigned int timer_ms; /* 0: that of the volume */
	bool recover;
	bool discard;
};

/* A mounted volume. */
struct sf_info {
	struct super_block *sb;
	struct sfk_volume *volume;
	bool broken; /* the core has panicked */
	bool core_read_only; /* a remount may replace the volume (entry.c) */
	bool options_stored; /* mask and timer of the mount options are those of the volume */
	struct sf_options options;
	u32 mask; /* the live transaction mask */
	struct task_struct *background;
	struct sf_shrinker shrinker;
	/* room.c: bytes promised to dirty pages, and what is known of the room below them. */
	atomic64_t promised;
	atomic64_t spent;
	u64 room;
	u64 unit; /* what one dirty page may need */
	struct mutex full;
	struct rw_semaphore pieces; /* for reading: a write between promise and dirty pages */
	/* rollback.c: the task that takes the volume back, and for reading: a look-up between the
	 * core and the inode in memory. */
	struct task_struct *goes_back;
	struct rw_semaphore view;
	/* views.c: snapshots that inodes in memory belong to. */
	struct rw_semaphore views;
	struct list_head view_list;
	struct mutex taking; /* a snapshot is being taken */
	/* atomic.c: the open control file that holds the volume. */
	struct mutex hold;
	struct file *holder;
	pid_t holder_process;
	errseq_t hold_error;
	bool no_space;
};

/* What becomes of an inode whose last name is removed while only the caller uses it. */
enum sf_fate {
	SF_STAYS,
	SF_LEAVES, /* the core removes it now; its inode is in memory a little longer */
	SF_LEFT,
};

/* A snapshot as a volume beside the live one (views.c). */
struct sf_view;

/* An inode in memory. */
struct sf_inode {
	struct sf_view *view; /* NULL: of the volume itself */
	struct timespec64 created;
	atomic_t promised; /* pages with a promise of room */
	bool acquired; /* keeps its data although its last name is gone */
	u32 flags; /* flags.c: those of FS_IOC_GETFLAGS */
	enum sf_fate fate; /* i_lock protects it */
	/* Bytes on the medium, as they were after so many changes. */
	u64 allocated;
	u64 allocated_at;
	atomic64_t changes;
	struct inode vfs;
};

static inline struct sf_inode *sf_inode(struct inode *inode)
{
	return container_of(inode, struct sf_inode, vfs);
}

/* After the core has changed the blocks of an inode. */
static inline void sf_blocks_changed(struct inode *inode)
{
	atomic64_inc(&sf_inode(inode)->changes);
}

static inline struct sf_info *sf_info(struct super_block *sb)
{
	return sb->s_fs_info;
}

/* views.c */
long sf_view_begin(struct sf_info *info, struct sf_view *view);
void sf_view_end(struct sf_info *info);
struct sfk_volume *sf_view_volume(const struct sf_view *view);
bool sf_view_is_gone(const struct sf_view *view);
u64 sf_view_shows(const struct sf_view *view, u64 number);
u64 sf_generation_shows(u64 generation, u64 number);
bool sf_view_can_show(u64 number);
u64 sf_view_number(const struct inode *inode);
void sf_view_get(struct sf_view *view);
void sf_view_put(struct sf_view *view);
struct sf_view *sf_view_named(struct sf_info *info, const struct sfk_name *name);
void sf_views_stop(struct sf_info *info);
#define SF_ANY_GENERATION U64_MAX
void sf_views_go_on(struct sf_info *info, u64 unsure);
long sf_views_can_give_back(struct sf_info *info);
long sf_views_give_back(struct sf_info *info, long wanted);
void sf_views_free(struct sf_info *info);

/* Asks the core about an inode, which may be one of a snapshot: `function` gets the volume, the
 * number of the inode there, and the other arguments. */
#define SF_ASK(of_inode, function, ...)                                                    \
	({                                                                                 \
		struct inode *asked_ = (of_inode);                                         \
		struct sf_info *of_ = sf_info(asked_->i_sb);                               \
		struct sf_view *view_ = sf_inode(asked_)->view;                            \
		long answer_ = unlikely(view_) ? sf_view_begin(of_, view_) : 0;            \
		if (!answer_) {                                                            \
			answer_ = SF_CORE(                                                 \
				of_, function(view_ ? sf_view_volume(view_) : of_->volume, \
					      view_ ? sf_view_number(asked_) : asked_->i_ino, \
					      ##__VA_ARGS__));                             \
			if (unlikely(view_))                                               \
				sf_view_end(of_);                                          \
		}                                                                          \
		answer_;                                                                   \
	})

/* Also an inode of a snapshot that is gone. */
static inline bool sf_is_cut_off(struct inode *inode)
{
	struct sf_view *view = sf_inode(inode)->view;

	return READ_ONCE(inode->i_ino) == SF_CUT_OFF || (view && sf_view_is_gone(view));
}

static inline struct sfk_time sf_time(struct timespec64 time)
{
	return (struct sfk_time){ .seconds = time.tv_sec, .nanoseconds = time.tv_nsec };
}

static inline struct timespec64 sf_timespec(struct sfk_time time)
{
	return (struct timespec64){ .tv_sec = time.seconds, .tv_nsec = time.nanoseconds };
}

/* super.c */
extern struct kmem_cache *sf_inode_cache;
int sf_init_fs_context(struct fs_context *fc);
void sf_kill(struct super_block *sb);
void sf_read_mask(struct sf_info *info);

/* options.c */
extern const struct fs_parameter_spec sf_parameters[];
int sf_parse_param(struct fs_context *fc, struct fs_parameter *param);
int sf_show_options(struct seq_file *seq, struct dentry *root);

/* inode.c */
struct inode *sf_iget(struct super_block *sb, struct sf_view *view,
		      const struct sfk_attributes *found);
void sf_take(struct inode *inode, const struct sfk_attributes *found);
const char *sf_get_link(struct dentry *dentry, struct inode *inode, struct delayed_call *done);
struct inode *sf_iget_number(struct super_block *sb, u64 number);
int sf_refresh(struct inode *inode);
int sf_take_again(struct inode *inode);
int sf_keep(struct inode *inode);
bool sf_leave_begin(struct dentry *dentry);
void sf_leave_end(struct inode *inode, bool left);
bool sf_has_left(struct inode *inode);
int sf_open(struct inode *inode, struct file *file);
void sf_evict(struct inode *inode);
int sf_write_inode(struct inode *inode, struct writeback_control *wbc);
int sf_getattr(SF_IDMAP idmap, const struct path *path, struct kstat *stat, u32 mask,
	       unsigned int flags);
int sf_setattr(SF_IDMAP idmap, struct dentry *dentry, struct iattr *attr);

/* dir.c */
extern const struct inode_operations sf_dir_inode_operations;
extern const struct file_operations sf_dir_operations;
struct dentry *sf_lookup(struct inode *dir, struct dentry *dentry, unsigned int flags);
int sf_readdir(struct file *file, struct dir_context *context);

/* past.c */
extern const struct file_operations sf_listing_operations;
bool sf_is_listing(const struct inode *inode);
bool sf_names_listing(struct inode *dir, const struct qstr *name);
struct inode *sf_listing_inode(struct super_block *sb);
void sf_make_past(struct inode *inode);

/* file.c */
extern const struct inode_operations sf_file_inode_operations;
extern const struct file_operations sf_file_operations;
int sf_fsync(struct file *file, loff_t start, loff_t end, int datasync);
ssize_t sf_read_iter(struct kiocb *iocb, struct iov_iter *to);
loff_t sf_llseek(struct file *file, loff_t offset, int whence);

/* pages.c */
extern const struct address_space_operations sf_pages_operations;
bool sf_promise_page(struct page *page);
void sf_clear_tail(struct inode *inode, loff_t size);

/* mapped.c */
int sf_mmap(struct file *file, struct vm_area_struct *vma);

/* room.c */
void sf_room_spend(struct sf_info *info, u64 bytes);
int sf_room_promise(struct sf_info *info, u64 bytes, bool fault);
void sf_room_take(struct sf_info *info, u64 bytes);
void sf_room_return(struct sf_info *info, u64 bytes);
void sf_room_for_names(struct sf_info *info);
void sf_room_write_back(struct sf_info *info);
void sf_room_forget(struct sf_info *info);

/* shrink.c */
int sf_shrink_begin(struct sf_info *info);
void sf_shrink_end(struct sf_info *info);

/* xattr.c */
extern const struct xattr_handler *sf_xattr_handlers[];
ssize_t sf_listxattr(struct dentry *dentry, char *buffer, size_t size);
struct posix_acl *sf_get_acl(struct inode *inode, int type, bool rcu);
int sf_set_acl(SF_IDMAP idmap, SF_ACL_OF of, struct posix_acl *acl, int type);

/* ioctl.c */
long sf_ioctl(struct file *file, unsigned int command, unsigned long argument);

/* rollback.c */
long sf_go_back(struct sf_info *info, bool force, long (*go)(struct sf_info *info, void *with),
		void *with);

/* atomic.c */
bool sf_is_control(struct inode *inode);
bool sf_names_control(struct inode *dir, const struct qstr *name);
struct inode *sf_control_inode(struct super_block *sb);

/* snapshots.c */
long sf_snapshot_create(struct sf_info *info, void __user *argument);
long sf_snapshot_delete(struct sf_info *info, void __user *argument);
long sf_snapshot_rollback(struct sf_info *info, void __user *argument);
long sf_snapshot_list(struct sf_info *info, void __user *argument);
long sf_snapshot_diff(struct sf_info *info, void __user *argument);

/* flags.c */
void sf_take_flags(struct inode *inode, u32 flags);
void sf_fill_flags(struct inode *inode, struct kstat *stat);
int sf_fileattr_get(struct dentry *dentry, struct fileattr *to);
int sf_fileattr_set(SF_IDMAP idmap, struct dentry *dentry, struct fileattr *wanted);

/* export.c */
extern const struct export_operations sf_export_operations;

/* fiemap.c */
int sf_fiemap(struct inode *inode, struct fiemap_extent_info *to, u64 start, u64 length);

/* share.c */
ssize_t sf_copy_file_range(struct file *in, loff_t in_at, struct file *out, loff_t out_at,
			   size_t length, unsigned int flags);
loff_t sf_remap_file_range(struct file *in, loff_t in_at, struct file *out, loff_t out_at,
			   loff_t length, unsigned int flags);

#endif
