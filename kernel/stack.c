// SPDX-License-Identifier: MIT OR Apache-2.0
/* Measures how much stack the core needs, if the parameter `stack` asks for it: the stack below an
 * entry is painted, and what is not paint any more was used. */
#include <linux/module.h>
#include <linux/sched/task_stack.h>
#include <linux/spinlock.h>

#include "steadfast.h"

#define PAINT 0x5afe5afe5afe5afeULL
/* Kept clear of the end of the stack. */
#define MARGIN 1024
#define NAMES 96

bool sf_stack_measured;
module_param_named(stack, sf_stack_measured, bool, 0444);
MODULE_PARM_DESC(stack, "measure the stack of the core and report it at unmount (slow)");

static DEFINE_SPINLOCK(lock);
static struct {
	const char *name;
	unsigned long deepest;
} deepest[NAMES];

static u64 *end_of_paint(void)
{
	return (u64 *)((unsigned long)task_stack_page(current) + MARGIN);
}

/* Paints everything below its own frame. An interrupt may spoil some paint; it never lies deeper
 * than one frame of it. */
static noinline void paint(void)
{
	volatile u64 *at = (u64 *)(((unsigned long)__builtin_frame_address(0) & ~7UL) - 256);
	u64 *end = end_of_paint();

	while (at > end)
		*--at = PAINT;
}

static noinline void look(struct sf_entry *entry)
{
	u64 *at = end_of_paint();

	while ((unsigned long)at < entry->base && READ_ONCE(*at) == PAINT)
		at++;
	if (entry->base - (unsigned long)at > entry->deepest)
		entry->deepest = entry->base - (unsigned long)at;
}

void sf_stack_begin(struct sf_entry *entry)
{
	entry->base = (unsigned long)__builtin_frame_address(0);
	entry->deepest = 0;
	paint();
}

void sf_stack_pause(void)
{
	struct sf_entry *entry;

	if (likely(!sf_stack_measured))
		return;
	entry = sf_entry_here();
	if (entry && entry->base)
		look(entry);
}

void sf_stack_resume(void)
{
	struct sf_entry *entry;

	if (likely(!sf_stack_measured))
		return;
	entry = sf_entry_here();
	if (entry && entry->base)
		paint();
}

void sf_stack_end(struct sf_entry *entry, const char *name)
{
	int i;

	look(entry);
	spin_lock(&lock);
	for (i = 0; i < NAMES; i++) {
		if (!deepest[i].name)
			deepest[i].name = name;
		if (deepest[i].name == name) {
			deepest[i].deepest = max(deepest[i].deepest, entry->deepest);
			break;
		}
	}
	spin_unlock(&lock);
}

void sf_stack_report(void)
{
	int i;

	for (i = 0; sf_stack_measured && i < NAMES && deepest[i].name; i++)
		pr_info("steadfast: stack of %s: %lu bytes\n", deepest[i].name, deepest[i].deepest);
}
