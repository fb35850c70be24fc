// SPDX-License-Identifier: MIT OR Apache-2.0
/* Entering the core, leaving it, and what a panic does. */
#include <linux/sched.h>
#include <linux/sched/mm.h>
#include <linux/srcu.h>

#include "steadfast.h"

/* Entries to volumes that are open read-only. */
DEFINE_STATIC_SRCU(readers);

int sf_enter(struct sf_entry *entry, struct sf_info *info)
{
	if (READ_ONCE(info->broken))
		return -EIO;
	entry->info = info;
	entry->outer = current->journal_info;
	entry->reads = 0;
	entry->mutexes = NULL;
	entry->writes = NULL;
	entry->base = 0;
	/* With false comes the volume that is open for writing. */
	entry->may_end = smp_load_acquire(&info->core_read_only);
	if (unlikely(entry->may_end))
		entry->reader = srcu_read_lock(&readers);
	entry->nofs = memalloc_nofs_save();
	current->journal_info = entry;
	if (unlikely(READ_ONCE(sf_stack_measured)))
		sf_stack_begin(entry);
	return 0;
}

void sf_leave(struct sf_entry *entry, const char *name)
{
	if (unlikely(entry->base))
		sf_stack_end(entry, name);
	current->journal_info = entry->outer;
	memalloc_nofs_restore(entry->nofs);
	if (unlikely(entry->may_end))
		srcu_read_unlock(&readers, entry->reader);
}

/* Waits until no entry uses a volume that was replaced before this call. */
void sf_wait_for_readers(void)
{
	synchronize_srcu(&readers);
}

struct sf_entry *sf_entry_here(void)
{
	return current->journal_info;
}

static void escape(struct sf_entry *entry)
{
	sf_locks_release(entry);
	sf_escape(entry->saved);
	BUG();
}

/* After waiting for a lock: what it protects may be half changed by the task that panicked. */
void sf_check_broken(void)
{
	struct sf_entry *entry = sf_entry_here();

	if (unlikely(READ_ONCE(entry->info->broken)))
		escape(entry);
}

/* `steadfast atomically` says so where its command has failed. */
void sf_note_no_space(struct sf_info *info)
{
	if (READ_ONCE(info->holder))
		WRITE_ONCE(info->no_space, true);
}

void sfk_shim_panic(const u8 *text, size_t length)
{
	struct sf_entry *entry = sf_entry_here();

	pr_crit("steadfast (%s): internal error, the volume is out of use until it is "
		"unmounted: %.*s\n",
		entry->info->sb->s_id, (int)length, text);
	WRITE_ONCE(entry->info->broken, true);
	/* Before the locks are released, or a waiter could miss it. */
	smp_mb();
	escape(entry);
}
