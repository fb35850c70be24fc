// SPDX-License-Identifier: MIT OR Apache-2.0
/* Snapshots as volumes of their own beside the live one, and the inodes of each.
 *
 * `views` guards the table. A reader holds it while the core is in a view, and no longer. What may
 * take a snapshot away holds it for writing: from then on the view is gone, and its inodes return
 * ESTALE, so no block is read that the volume has freed. A view is in the table until it is gone,
 * and in memory while inodes have it. Only the last few are open, so memory is bounded. Pages and
 * directories may be locked when `views` is taken, so under it only the core is called. */
#include <linux/jiffies.h>
#include <linux/refcount.h>
#include <linux/slab.h>

#include "steadfast.h"

/* Views that stay open; each takes up to 1 MiB. */
#define OPEN_MAX 32
/* A number in a snapshot is that of the inode, with the snapshot's mark in the upper bits. */
#define MARK_SHIFT 48
#define NUMBER_MASK ((1ULL << MARK_SHIFT) - 1)

struct sf_view {
	struct list_head list;
	u64 generation;
	refcount_t users; /* the table, look-ups, and inodes in memory */
	bool gone;
	unsigned long used; /* when, in jiffies */
	struct sfk_volume *volume; /* NULL: not open */
	struct rcu_head rcu;
};

static void close_view(struct sf_info *info, struct sf_view *view)
{
	if (view->volume)
		(void)SF_CORE(info, (sfk_free(view->volume), 0));
	view->volume = NULL;
}

static void end_view(struct sf_info *info, struct sf_view *view)
{
	WRITE_ONCE(view->gone, true);
	close_view(info, view);
	list_del(&view->list);
	sf_view_put(view);
}

/* Closes the view that was not used for the longest time, if too many are open. */
static void make_place(struct sf_info *info)
{
	struct sf_view *view, *oldest = NULL;
	int count = 0;

	list_for_each_entry(view, &info->view_list, list) {
		if (!view->volume)
			continue;
		count++;
		if (!oldest || time_before(READ_ONCE(view->used), READ_ONCE(oldest->used)))
			oldest = view;
	}
	if (count >= OPEN_MAX)
		close_view(info, oldest);
}

static long open_view(struct sf_info *info, struct sf_view *view)
{
	long result;

	make_place(info);
	result = SF_CORE(info, sfk_view_open(info->volume, view->generation, &view->volume));
	return result == -ENOENT ? -ESTALE : result;
}

/* Before the core is asked about an inode of a view. Without an error sf_view_end follows. */
long sf_view_begin(struct sf_info *info, struct sf_view *view)
{
	long result = 0;

	down_read(&info->views);
	if (!view->gone && !view->volume) {
		up_read(&info->views);
		down_write(&info->views);
		if (!view->gone && !view->volume)
			result = open_view(info, view);
		downgrade_write(&info->views);
	}
	if (view->gone)
		result = -ESTALE;
	if (result)
		up_read(&info->views);
	else
		WRITE_ONCE(view->used, jiffies);
	return result;
}

void sf_view_end(struct sf_info *info)
{
	up_read(&info->views);
}

struct sfk_volume *sf_view_volume(const struct sf_view *view)
{
	return view->volume;
}

bool sf_view_is_gone(const struct sf_view *view)
{
	return READ_ONCE(view->gone);
}

/* The number that programs see. The live file has another one, or both would seem to be one file.
 * It is the same in every mount. */
u64 sf_generation_shows(u64 generation, u64 number)
{
	return (1 + generation % 0xffff) << MARK_SHIFT | (number & NUMBER_MASK);
}

u64 sf_view_shows(const struct sf_view *view, u64 number)
{
	return sf_generation_shows(view->generation, number);
}

bool sf_view_can_show(u64 number)
{
	return number <= NUMBER_MASK;
}

u64 sf_view_number(const struct inode *inode)
{
	return inode->i_ino & NUMBER_MASK;
}

void sf_view_get(struct sf_view *view)
{
	refcount_inc(&view->users);
}

/* Walks of paths without locks may still look at a view whose last inode has gone. */
void sf_view_put(struct sf_view *view)
{
	if (refcount_dec_and_test(&view->users))
		kfree_rcu(view, rcu);
}

/* The view of the snapshot with a name, if it is in the table. Else NULL. */
static struct sf_view *find_view(struct sf_info *info, const struct sfk_name *name,
				 u64 *generation)
{
	struct sfk_snapshot found;
	struct sf_view *view;
	long result = SF_CORE(info, sfk_snapshot_find(info->volume, name, &found));

	if (result)
		return ERR_PTR(result);
	*generation = found.generation;
	list_for_each_entry(view, &info->view_list, list) {
		if (view->generation == found.generation) {
			sf_view_get(view);
			return view;
		}
	}
	return NULL;
}

static struct sf_view *add_view(struct sf_info *info, u64 generation)
{
	struct sf_view *view = kzalloc(sizeof(*view), GFP_NOFS);

	if (!view)
		return ERR_PTR(-ENOMEM);
	view->generation = generation;
	refcount_set(&view->users, 2);
	list_add(&view->list, &info->view_list);
	return view;
}

/* The view of the snapshot with a name. sf_view_put follows. */
struct sf_view *sf_view_named(struct sf_info *info, const struct sfk_name *name)
{
	struct sf_view *view;
	u64 generation;

	down_read(&info->views);
	view = find_view(info, name, &generation);
	up_read(&info->views);
	if (view)
		return view;
	/* The core lists a new snapshot before the device has it. */
	mutex_lock(&info->taking);
	down_write(&info->views);
	view = find_view(info, name, &generation) ?: add_view(info, generation);
	up_write(&info->views);
	mutex_unlock(&info->taking);
	return view;
}

/* Around what may take snapshots away. */
void sf_views_stop(struct sf_info *info)
{
	down_write(&info->views);
}

/* A view whose snapshot is gone ends: its blocks may be free. Where the core cannot say so, because
 * memory is short, the snapshot with the generation `unsure` counts as gone. */
void sf_views_go_on(struct sf_info *info, u64 unsure)
{
	struct sf_view *view, *next;

	list_for_each_entry_safe(view, next, &info->view_list, list) {
		bool may_be_gone = unsure == SF_ANY_GENERATION || view->generation == unsure;
		long exists;

		exists = SF_CORE(info, sfk_snapshot_exists(info->volume, view->generation));
		if (!exists || (exists < 0 && may_be_gone))
			end_view(info, view);
	}
	up_write(&info->views);
}

/* Bytes that the caches of the views could give back. As the next function it is for the shrinker,
 * so it waits for no lock. */
long sf_views_can_give_back(struct sf_info *info)
{
	struct sf_view *view;
	long all = 0;

	if (!down_read_trylock(&info->views))
		return 0;
	list_for_each_entry(view, &info->view_list, list)
		if (view->volume)
			all += max(SF_CORE(info, sfk_can_give_back(view->volume)), 0L);
	up_read(&info->views);
	return all;
}

/* Gives about so many bytes back. Returns how many. */
long sf_views_give_back(struct sf_info *info, long wanted)
{
	struct sf_view *view;
	long all = 0;

	if (!down_read_trylock(&info->views))
		return 0;
	list_for_each_entry(view, &info->view_list, list)
		if (view->volume && all < wanted)
			all += max(SF_CORE(info, sfk_give_back(view->volume, wanted - all)), 0L);
	up_read(&info->views);
	return all;
}

/* Before the volume closes; no inode of a view is in memory any more. */
void sf_views_free(struct sf_info *info)
{
	struct sf_view *view, *next;

	list_for_each_entry_safe(view, next, &info->view_list, list)
		end_view(info, view);
}
