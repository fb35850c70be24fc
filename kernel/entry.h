/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The way into the core and out of it.
 *
 * SF_CORE wraps every call. It forbids that the allocator comes back into this file system, and it
 * survives a panic of the core: Rust in the kernel cannot unwind, so the panic returns to SF_CORE
 * at once, with EIO. The locks that the task held are released, the volume is broken, and every
 * other entry that waits for a lock or comes later gets EIO. What the task had allocated is
 * lost. */
#ifndef STEADFAST_ENTRY_H
#define STEADFAST_ENTRY_H

#include <linux/types.h>

struct sf_info;
struct sf_mutex;
struct sf_rwsem;

/* Locks of the core that one task holds for reading at a time: look-ups take one or two. */
#define SF_READS 8

struct sf_entry {
	unsigned long saved[8];
	struct sf_info *info;
	void *outer;
	unsigned int nofs;
	/* The volume is open read-only, so a remount may put another one in its place. */
	bool may_end;
	int reader;
	unsigned int reads;
	struct sf_rwsem *read[SF_READS];
	struct sf_mutex *mutexes;
	struct sf_rwsem *writes;
	/* Where the core's part of the stack begins, and how deep it was; 0 if it is not
	 * measured. */
	unsigned long base;
	unsigned long deepest;
};

int sf_enter(struct sf_entry *entry, struct sf_info *info);
void sf_leave(struct sf_entry *entry, const char *name);
struct sf_entry *sf_entry_here(void);
void sf_check_broken(void);
void sf_wait_for_readers(void);
void sf_note_no_space(struct sf_info *info);

/* escape.S: sf_save returns 0, and once more, with 1, after sf_escape. */
long sf_save(unsigned long *saved) __attribute__((returns_twice));
/* Does not return, which objtool cannot know: its callers go on with BUG. */
void sf_escape(unsigned long *saved);

#define SF_CORE(info, call)                                       \
	({                                                        \
		struct sf_entry entry_;                           \
		long result_ = sf_enter(&entry_, info);           \
		if (!result_) {                                   \
			if (!sf_save(entry_.saved))               \
				result_ = (call);                 \
			else                                      \
				result_ = -EIO;                   \
			if (unlikely(result_ == -ENOSPC))         \
				sf_note_no_space(info);           \
			sf_leave(&entry_, __func__);              \
		}                                                 \
		result_;                                          \
	})

/* stack.c: how deep the core's stack is. */
extern bool sf_stack_measured;
void sf_stack_begin(struct sf_entry *entry);
void sf_stack_end(struct sf_entry *entry, const char *name);
/* Around what is not the core: the block layer, the allocator, waiting. */
void sf_stack_pause(void);
void sf_stack_resume(void);
void sf_stack_report(void);

/* locks.c */
void sf_locks_release(struct sf_entry *entry);

#endif
