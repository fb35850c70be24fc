// SPDX-License-Identifier: MIT OR Apache-2.0
/* Loading and unloading the module. */
#include <linux/module.h>
#include <linux/slab.h>

#include "steadfast.h"

struct kmem_cache *sf_inode_cache;

static struct file_system_type steadfast = {
	.owner = THIS_MODULE,
	.name = "steadfast",
	.init_fs_context = sf_init_fs_context,
	.parameters = sf_parameters,
	.kill_sb = sf_kill,
	.fs_flags = FS_REQUIRES_DEV,
};

static void init_once(void *inode)
{
	inode_init_once(&((struct sf_inode *)inode)->vfs);
}

static int __init sf_init(void)
{
	int result;

	sf_inode_cache = kmem_cache_create("steadfast_inode", sizeof(struct sf_inode), 0,
					   SLAB_RECLAIM_ACCOUNT | SLAB_ACCOUNT, init_once);
	if (!sf_inode_cache)
		return -ENOMEM;
	result = register_filesystem(&steadfast);
	if (result)
		kmem_cache_destroy(sf_inode_cache);
	return result;
}

static void __exit sf_exit(void)
{
	unregister_filesystem(&steadfast);
	/* Inodes are freed after a grace period. */
	rcu_barrier();
	kmem_cache_destroy(sf_inode_cache);
}

module_init(sf_init);
module_exit(sf_exit);
MODULE_DESCRIPTION("Steadfast, a transactional, power-fail-safe file system");
MODULE_LICENSE("Dual MIT/GPL");
MODULE_ALIAS_FS("steadfast");
