// SPDX-License-Identifier: MIT OR Apache-2.0
/* Mount options. */
#include <linux/fs_parser.h>
#include <linux/kernel.h>
#include <linux/seq_file.h>
#include <linux/slab.h>

#include "steadfast.h"

#define CACHE_MIN (1UL << 20)

enum { OPT_CACHE, OPT_MASK, OPT_TIMER, OPT_SNAPSHOT, OPT_RECOVER, OPT_DISCARD };

const struct fs_parameter_spec sf_parameters[] = {
	fsparam_string("cache", OPT_CACHE),
	fsparam_string("mask", OPT_MASK),
	fsparam_string("timer", OPT_TIMER),
	fsparam_string("snapshot", OPT_SNAPSHOT),
	fsparam_flag("recover", OPT_RECOVER),
	fsparam_flag("discard", OPT_DISCARD),
	{}
};

/* A number with the unit ms or s. */
static int parse_interval(const char *text, unsigned int *milliseconds)
{
	char *unit;
	unsigned long number = simple_strtoul(text, &unit, 10);

	if (unit == text || !number || number > UINT_MAX / 1000)
		return -EINVAL;
	if (!strcmp(unit, "s"))
		number *= 1000;
	else if (strcmp(unit, "ms"))
		return -EINVAL;
	*milliseconds = number;
	return 0;
}

int sf_parse_param(struct fs_context *fc, struct fs_parameter *param)
{
	struct sf_info *info = fc->s_fs_info;
	struct sf_options *options = &info->options;
	struct fs_parse_result result;
	int option = fs_parse(fc, sf_parameters, param, &result);
	char *unit;
	u32 mask = 0;

	switch (option) {
	case OPT_CACHE:
		options->cache_size = memparse(param->string, &unit);
		/* KiB, MiB and GiB are what memparse reads as K, M and G. */
		if (!strcmp(unit, "iB"))
			unit += 2;
		if (*unit || options->cache_size < CACHE_MIN)
			return invalf(fc, "steadfast: cache=%s: a size of 1M or more",
				      param->string);
		return 0;
	case OPT_MASK:
		if (sfk_parse_mask(param->string, &mask))
			return invalf(fc, "steadfast: mask=%s: unknown event", param->string);
		kfree(options->mask);
		options->mask = param->string;
		param->string = NULL;
		return 0;
	case OPT_TIMER:
		if (parse_interval(param->string, &options->timer_ms))
			return invalf(fc, "steadfast: timer=%s: a time as 500ms or 5s",
				      param->string);
		return 0;
	case OPT_SNAPSHOT:
		kfree(options->snapshot);
		options->snapshot = param->string;
		param->string = NULL;
		return 0;
	case OPT_RECOVER:
		options->recover = true;
		return 0;
	case OPT_DISCARD:
		options->discard = true;
		return 0;
	default:
		return option;
	}
}

int sf_show_options(struct seq_file *seq, struct dentry *root)
{
	const struct sf_options *options = &sf_info(root->d_sb)->options;

	if (options->cache_size != SF_CACHE_DEFAULT)
		seq_printf(seq, ",cache=%zu", options->cache_size);
	if (options->mask)
		seq_show_option(seq, "mask", options->mask);
	if (options->timer_ms)
		seq_printf(seq, ",timer=%ums", options->timer_ms);
	if (options->snapshot)
		seq_show_option(seq, "snapshot", options->snapshot);
	if (options->recover)
		seq_puts(seq, ",recover");
	if (options->discard)
		seq_puts(seq, ",discard");
	return 0;
}
