// SPDX-License-Identifier: MIT OR Apache-2.0
/* Memory of the core's caches that goes back to the kernel when it lacks some: that of the volume,
 * and of the snapshots that are open. It is counted in pages. The core waits for no lock here, so
 * reclaim cannot wait for a task that waits for it. */
#include <linux/moduleparam.h>

#include "steadfast.h"

static atomic_long_t given_back = ATOMIC_LONG_INIT(0);

static int get_given_back(char *buffer, const struct kernel_param *parameter)
{
	return sysfs_emit(buffer, "%ld\n", atomic_long_read(&given_back));
}

static const struct kernel_param_ops counter = {
	.get = get_given_back,
};
module_param_cb(given_back, &counter, NULL, 0444);
MODULE_PARM_DESC(given_back, "pages of the core's caches that were given back to the kernel");

/* A task inside the core, or inside another file system, forbids it. */
static bool allowed(const struct shrink_control *control)
{
	return control->gfp_mask & __GFP_FS;
}

static unsigned long count(struct shrinker *shrinker, struct shrink_control *control)
{
	struct sf_info *info = sf_shrinker_owner(shrinker);
	long bytes = 0;

	if (allowed(control))
		bytes = max(SF_CORE(info, sfk_can_give_back(info->volume)), 0L) +
			sf_views_can_give_back(info);
	return bytes >> PAGE_SHIFT;
}

static unsigned long scan(struct shrinker *shrinker, struct shrink_control *control)
{
	struct sf_info *info = sf_shrinker_owner(shrinker);
	long wanted = min_t(unsigned long, control->nr_to_scan, LONG_MAX >> PAGE_SHIFT)
		      << PAGE_SHIFT;
	long bytes, live;

	if (!allowed(control))
		return SHRINK_STOP;
	/* What was read of snapshots goes before what is live. */
	bytes = sf_views_give_back(info, wanted);
	live = SF_CORE(info, sfk_give_back(info->volume, max(wanted - bytes, 0L)));
	if (live < 0)
		return SHRINK_STOP;
	bytes += live;
	atomic_long_add(bytes >> PAGE_SHIFT, &given_back);
	return bytes >> PAGE_SHIFT;
}

int sf_shrink_begin(struct sf_info *info)
{
	return sf_shrinker_register(&info->shrinker, count, scan, info, info->sb->s_id);
}

void sf_shrink_end(struct sf_info *info)
{
	sf_shrinker_unregister(&info->shrinker);
}
