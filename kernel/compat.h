/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What differs between versions of the kernel; no other file asks for the version.
 *
 * 6.1 is compiled and tested. The branches for later versions follow their sources and have not
 * been compiled. */
#ifndef STEADFAST_COMPAT_H
#define STEADFAST_COMPAT_H

#include <linux/version.h>

#define SF_SINCE(major, minor) (LINUX_VERSION_CODE >= KERNEL_VERSION(major, minor, 0))

#if !SF_SINCE(6, 1)
#error "steadfast needs Linux 6.1 or later"
#endif
#if SF_SINCE(6, 12)
#error "write_begin and write_end of Linux 6.12 and later are not supported yet"
#endif

/* 6.4: the hint for code that no function ends has a new name. */
#if SF_SINCE(6, 4)
#define SF_UNWIND_NOTHING UNWIND_HINT_END_OF_STACK
#else
#define SF_UNWIND_NOTHING UNWIND_HINT_EMPTY
#endif

#ifndef __ASSEMBLY__
#include <linux/fs.h>
#include <linux/pagemap.h>
#include <linux/shrinker.h>
#include <linux/writeback.h>

/* 6.3: mounts map ids through their own type. */
#if SF_SINCE(6, 3)
#define SF_IDMAP struct mnt_idmap *
#define SF_NO_IDMAP (&nop_mnt_idmap)
#else
#define SF_IDMAP struct user_namespace *
#define SF_NO_IDMAP (&init_user_ns)
#endif

/* 6.6 and 6.7: times of inodes behind functions. */
#if SF_SINCE(6, 7)
#define sf_atime(inode) inode_get_atime(inode)
#define sf_mtime(inode) inode_get_mtime(inode)
#define sf_ctime(inode) inode_get_ctime(inode)
#define sf_set_atime(inode, time) inode_set_atime_to_ts(inode, time)
#define sf_set_mtime(inode, time) inode_set_mtime_to_ts(inode, time)
#define sf_set_ctime(inode, time) inode_set_ctime_to_ts(inode, time)
#else
#define sf_atime(inode) ((inode)->i_atime)
#define sf_mtime(inode) ((inode)->i_mtime)
#define sf_ctime(inode) ((inode)->i_ctime)
#define sf_set_atime(inode, time) ((inode)->i_atime = (time))
#define sf_set_mtime(inode, time) ((inode)->i_mtime = (time))
#define sf_set_ctime(inode, time) ((inode)->i_ctime = (time))
#endif

#if SF_SINCE(6, 6)
#define sf_fillattr(idmap, mask, inode, stat) generic_fillattr(idmap, mask, inode, stat)
#else
#define sf_fillattr(idmap, mask, inode, stat) generic_fillattr(idmap, inode, stat)
#endif

/* 6.5: splice from the page cache has a new name. */
#if SF_SINCE(6, 5)
#define sf_splice_read filemap_splice_read
#else
#define sf_splice_read generic_file_splice_read
#endif

/* 6.6: the call names the holder of the freeze. */
#if SF_SINCE(6, 6)
#define sf_freeze_super(sb) freeze_super(sb, FREEZE_HOLDER_KERNEL)
#define sf_thaw_super(sb) thaw_super(sb, FREEZE_HOLDER_KERNEL)
#else
#define sf_freeze_super(sb) freeze_super(sb)
#define sf_thaw_super(sb) thaw_super(sb)
#endif

/* 6.9: the VFS itself tells programs the uuid (FS_IOC_GETFSUUID), and wants its length. */
#if SF_SINCE(6, 9)
#define sf_set_uuid(sb, uuid) super_set_uuid(sb, uuid, sizeof((sb)->s_uuid))
#else
#define sf_set_uuid(sb, uuid) memcpy(&(sb)->s_uuid, uuid, sizeof((sb)->s_uuid))
#endif

/* 6.7: the kernel allocates shrinkers, and they know their owner. */
#if SF_SINCE(6, 7)
struct sf_shrinker {
	struct shrinker *kernel;
};
#define sf_shrinker_owner(shrinker) ((shrinker)->private_data)
#else
struct sf_shrinker {
	struct shrinker kernel;
	void *owner;
};
#define sf_shrinker_owner(shrinker) (container_of(shrinker, struct sf_shrinker, kernel)->owner)
#endif

typedef unsigned long sf_shrink(struct shrinker *shrinker, struct shrink_control *control);

static inline int sf_shrinker_register(struct sf_shrinker *own, sf_shrink *count, sf_shrink *scan,
				       void *owner, const char *name)
{
#if SF_SINCE(6, 7)
	own->kernel = shrinker_alloc(0, "steadfast:%s", name);
	if (!own->kernel)
		return -ENOMEM;
	own->kernel->count_objects = count;
	own->kernel->scan_objects = scan;
	own->kernel->private_data = owner;
	shrinker_register(own->kernel);
	return 0;
#else
	own->owner = owner;
	own->kernel.count_objects = count;
	own->kernel.scan_objects = scan;
	own->kernel.seeks = DEFAULT_SEEKS;
	return register_shrinker(&own->kernel, "steadfast:%s", name);
#endif
}

/* Also of a shrinker that was never registered. */
static inline void sf_shrinker_unregister(struct sf_shrinker *own)
{
#if SF_SINCE(6, 7)
	shrinker_free(own->kernel);
	own->kernel = NULL;
#else
	unregister_shrinker(&own->kernel);
#endif
}

/* 6.3: write_cache_pages passes folios. */
#if SF_SINCE(6, 3)
#define SF_WRITTEN struct folio *
#define sf_written_page(written) (&(written)->page)
#else
#define SF_WRITTEN struct page *
#define sf_written_page(written) (written)
#endif

/* 6.2: set_acl gets the dentry, get_acl has a new name, ACL handlers are the VFS's own. */
#if SF_SINCE(6, 2)
#define SF_ACL_OF struct dentry *
#define sf_acl_inode(of) d_inode(of)
#define SF_GET_ACL .get_inode_acl
#else
#define SF_ACL_OF struct inode *
#define sf_acl_inode(of) (of)
#define SF_GET_ACL .get_acl
#endif

#endif /* __ASSEMBLY__ */
#endif
