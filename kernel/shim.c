// SPDX-License-Identifier: MIT OR Apache-2.0
/* Memory, clock and checksum for the core. */
#include <linux/crc32c.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>

#include "steadfast.h"

/* The core reports a lack of memory, except in a few places that hold small values. Those must not
 * fail, so requests up to this size wait for memory instead. */
#define SURE_SIZE 512

static unsigned int fail_every;
module_param(fail_every, uint, 0644);
MODULE_PARM_DESC(fail_every, "for tests: every so many larger allocations of the core fail; "
			     "0: none");

static unsigned int failed;
module_param(failed, uint, 0444);
MODULE_PARM_DESC(failed, "how many have failed");

/* Debian's kernels have no fault injection of their own. */
static bool fails(size_t size)
{
	static atomic_t count = ATOMIC_INIT(0);
	unsigned int every = READ_ONCE(fail_every);

	if (likely(!every) || size <= SURE_SIZE ||
	    (unsigned int)atomic_inc_return(&count) % every)
		return false;
	failed++;
	return true;
}

void *sfk_shim_allocate(size_t size, size_t alignment)
{
	gfp_t flags = GFP_NOFS | __GFP_NOWARN;
	void *memory;

	/* kmalloc aligns powers of two to themselves, and the rest to 8 bytes. */
	if (alignment > 8)
		size = roundup_pow_of_two(max(size, alignment));
	if (size <= SURE_SIZE)
		flags |= __GFP_NOFAIL;
	if (fails(size))
		return NULL;
	sf_stack_pause();
	memory = kvmalloc(size, flags);
	sf_stack_resume();
	return memory;
}

void sfk_shim_release(void *memory)
{
	sf_stack_pause();
	kvfree(memory);
	sf_stack_resume();
}

void sfk_shim_now(s64 *seconds, u32 *nanoseconds)
{
	struct timespec64 now;

	ktime_get_coarse_real_ts64(&now);
	*seconds = now.tv_sec;
	*nanoseconds = now.tv_nsec;
}

u64 sfk_shim_monotonic_us(void)
{
	return ktime_to_us(ktime_get_boottime());
}

void sfk_shim_yield(void)
{
	sf_stack_pause();
	cond_resched();
	sf_stack_resume();
}

u32 sfk_shim_crc32c(u32 crc, const u8 *data, size_t length)
{
	/* The kernel's function leaves both inversions to the caller. */
	return ~crc32c(~crc, data, length);
}
