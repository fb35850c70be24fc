// SPDX-License-Identifier: MIT OR Apache-2.0
/* Files in memory of programs. */
#include <linux/mm.h>
#include <linux/pagemap.h>

#include "steadfast.h"

/* A page of a shared map is about to be changed: it needs a promise of room. Without one the
 * program gets SIGBUS, as on other file systems. */
static vm_fault_t sf_page_mkwrite(struct vm_fault *fault)
{
	struct page *page = fault->page;
	struct inode *inode = file_inode(fault->vma->vm_file);
	struct sf_info *info = sf_info(inode->i_sb);
	bool promised = false;
	int result;

	if (unlikely(IS_IMMUTABLE(inode)))
		return VM_FAULT_SIGBUS;
	sb_start_pagefault(inode->i_sb);
	file_update_time(fault->vma->vm_file);
	/* A page that is dirty has its promise; whether it still has is seen under its lock. */
	if (!PagePrivate(page)) {
		result = sf_room_promise(info, info->unit, true);
		if (result) {
			sb_end_pagefault(inode->i_sb);
			return result == -EAGAIN ? VM_FAULT_NOPAGE : VM_FAULT_SIGBUS;
		}
		promised = true;
	}
	lock_page(page);
	wait_for_stable_page(page);
	if (page_mkwrite_check_truncate(page, inode) < 0 || (!promised && !PagePrivate(page))) {
		/* Truncated, or its promise went with a write-back: the fault is repeated. */
		unlock_page(page);
		if (promised)
			sf_room_return(info, info->unit);
		sb_end_pagefault(inode->i_sb);
		return VM_FAULT_NOPAGE;
	}
	sf_promise_page(page);
	set_page_dirty(page);
	if (promised)
		sf_room_return(info, info->unit);
	sb_end_pagefault(inode->i_sb);
	return VM_FAULT_LOCKED;
}

static const struct vm_operations_struct map_operations = {
	.fault = filemap_fault,
	.map_pages = filemap_map_pages,
	.page_mkwrite = sf_page_mkwrite,
};

int sf_mmap(struct file *file, struct vm_area_struct *vma)
{
	file_accessed(file);
	vma->vm_ops = &map_operations;
	return 0;
}
