// SPDX-License-Identifier: MIT OR Apache-2.0
/* Commands for snapshots. Going back to one is in sf_go_back. */
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "commands.h"
#include "steadfast.h"

static bool ends(const void *name)
{
	return strnlen(name, 64) < 64;
}

static long get(struct sfk_snapshot *snapshot, void __user *from)
{
	if (copy_from_user(snapshot, from, sizeof(*snapshot)))
		return -EFAULT;
	return ends(snapshot->name) ? 0 : -ENAMETOOLONG;
}

long sf_snapshot_create(struct sf_info *info, void __user *argument)
{
	struct sfk_snapshot snapshot;
	char name[64];
	long result = get(&snapshot, argument);

	if (result)
		return result;
	memcpy(name, snapshot.name, sizeof(name));
	sf_room_write_back(info);
	sf_room_spend(info, 0);
	mutex_lock(&info->taking);
	result = SF_CORE(info, sfk_snapshot_create(info->volume, name, &snapshot));
	mutex_unlock(&info->taking);
	if (!result && copy_to_user(argument, &snapshot, sizeof(snapshot)))
		result = -EFAULT;
	return result;
}

long sf_snapshot_delete(struct sf_info *info, void __user *argument)
{
	struct sfk_snapshot snapshot, found;
	long result = get(&snapshot, argument);
	struct sfk_name name = { snapshot.name };
	u64 unsure;

	if (result)
		return result;
	name.length = strnlen(snapshot.name, 64);
	sf_views_stop(info);
	result = SF_CORE(info, sfk_snapshot_find(info->volume, &name, &found));
	unsure = result == -ENOENT ? 0 : result ? SF_ANY_GENERATION : found.generation;
	result = SF_CORE(info, sfk_snapshot_delete(info->volume, snapshot.name));
	/* Also after an error: the core may have deleted it and failed then. */
	sf_views_go_on(info, unsure);
	return result;
}

static long go(struct sf_info *info, void *with)
{
	struct sfk_snapshot *to = with;
	long result;

	sf_views_stop(info);
	result = SF_CORE(info, sfk_snapshot_rollback(info->volume, to->name,
						     to->flags & SNAPSHOT_DESTROY_NEWER));
	sf_views_go_on(info, SF_ANY_GENERATION);
	return result;
}

/* Whether going back would be refused. It is asked before anything in memory goes. */
static long check(struct sf_info *info, const struct sfk_snapshot *to)
{
	struct snapshot_list *list = kzalloc(sizeof(*list), GFP_KERNEL);
	bool found = false;
	long count, i;

	if (!list)
		return -ENOMEM;
	do {
		count = SF_CORE(info, sfk_snapshot_list(info->volume, list->after,
							list->snapshots, 32));
		for (i = 0; i < count; i++) {
			if (found && !(to->flags & SNAPSHOT_DESTROY_NEWER))
				count = -ENOTEMPTY;
			else if (!strncmp(list->snapshots[i].name, to->name, 64))
				found = true;
		}
		if (count == 32)
			list->after = list->snapshots[31].generation;
	} while (count == 32);
	kfree(list);
	return count < 0 ? count : found ? 0 : -ENOENT;
}

long sf_snapshot_rollback(struct sf_info *info, void __user *argument)
{
	struct sfk_snapshot snapshot;
	long result = get(&snapshot, argument);

	if (!result)
		result = check(info, &snapshot);
	return result ?: sf_go_back(info, snapshot.flags & SNAPSHOT_FORCE, go, &snapshot);
}

long sf_snapshot_list(struct sf_info *info, void __user *argument)
{
	struct snapshot_list *list = kzalloc(sizeof(*list), GFP_KERNEL);
	long result = 0;

	if (!list)
		return -ENOMEM;
	if (get_user(list->after, (u64 __user *)argument))
		result = -EFAULT;
	else
		result = SF_CORE(info, sfk_snapshot_list(info->volume, list->after,
							 list->snapshots, 32));
	if (result >= 0) {
		list->count = result;
		result = copy_to_user(argument, list, sizeof(*list)) ? -EFAULT : 0;
	}
	kfree(list);
	return result;
}

long sf_snapshot_diff(struct sf_info *info, void __user *argument)
{
	struct snapshot_diff *diff = kzalloc(sizeof(*diff), GFP_KERNEL);
	long result = 0;

	if (!diff)
		return -ENOMEM;
	if (copy_from_user(diff, argument, offsetof(struct snapshot_diff, count)))
		result = -EFAULT;
	else if (!ends(diff->before) || !ends(diff->after))
		result = -ENAMETOOLONG;
	else
		result = SF_CORE(info, sfk_snapshot_diff(info->volume, diff->before, diff->after,
							 &diff->next, diff->changes, 256));
	if (result >= 0) {
		diff->count = result;
		result = copy_to_user(argument, diff, sizeof(*diff)) ? -EFAULT : 0;
	}
	kfree(diff);
	return result;
}
