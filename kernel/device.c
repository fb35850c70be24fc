// SPDX-License-Identifier: MIT OR Apache-2.0
/* The block device below a volume: requests of the core as bios. */
#include <linux/bio.h>
#include <linux/blkdev.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "steadfast.h"

/* The page at an address, or NULL if a device cannot reach it. */
static struct page *page_of(const void *data)
{
	if (is_vmalloc_addr(data))
		return vmalloc_to_page(data);
	return virt_addr_valid(data) ? virt_to_page(data) : NULL;
}

static bool reachable(struct block_device *bdev, const struct sfk_piece *piece)
{
	unsigned long mask = bdev_dma_alignment(bdev) | (SECTOR_SIZE - 1);

	return !(((unsigned long)piece->data | piece->length) & mask) && page_of(piece->data);
}

/* One request of reachable memory, in as many bios as it needs. */
static int transfer(struct block_device *bdev, blk_opf_t operation, sector_t sector,
		    const struct sfk_piece *pieces, size_t count)
{
	struct bio *bio = NULL;
	size_t i, done;
	int result;

	for (i = 0; i < count; i++) {
		for (done = 0; done < pieces[i].length;) {
			u8 *at = pieces[i].data + done;
			unsigned int length = min_t(size_t, PAGE_SIZE - offset_in_page(at),
						    pieces[i].length - done);

			if (!bio) {
				bio = bio_alloc(bdev, BIO_MAX_VECS, operation, GFP_NOFS);
				bio->bi_iter.bi_sector = sector;
			}
			if (bio_add_page(bio, page_of(at), length, offset_in_page(at)) == length) {
				done += length;
				sector += length >> SECTOR_SHIFT;
				continue;
			}
			result = submit_bio_wait(bio);
			bio_put(bio);
			bio = NULL;
			if (result)
				return result;
		}
	}
	if (!bio)
		return 0;
	result = submit_bio_wait(bio);
	bio_put(bio);
	return result;
}

/* A piece that the device cannot reach goes through pages of its own. */
static int bounce(struct block_device *bdev, blk_opf_t operation, sector_t sector,
		  const struct sfk_piece *piece)
{
	void *page = (void *)__get_free_page(GFP_NOFS);
	size_t done;
	int result = page ? 0 : -ENOMEM;

	for (done = 0; !result && done < piece->length; done += PAGE_SIZE) {
		struct sfk_piece part = { page, min_t(size_t, PAGE_SIZE, piece->length - done) };

		if (op_is_write(operation))
			memcpy(page, piece->data + done, part.length);
		result = transfer(bdev, operation, sector + (done >> SECTOR_SHIFT), &part, 1);
		if (!result && !op_is_write(operation))
			memcpy(piece->data + done, page, part.length);
	}
	free_page((unsigned long)page);
	return result;
}

int sfk_shim_transfer(void *device, int kind, u64 offset, const struct sfk_piece *pieces,
		      size_t count)
{
	struct block_device *bdev = device;
	blk_opf_t operation = kind == SFK_READ ? REQ_OP_READ : REQ_OP_WRITE | REQ_SYNC;
	sector_t sector = offset >> SECTOR_SHIFT;
	size_t i, run;
	int result = 0;

	if (kind == SFK_WRITE_DURABLE)
		operation |= REQ_FUA;
	sf_stack_pause();
	for (i = 0; !result && i < count; i += run) {
		size_t length = 0;

		for (run = 0; i + run < count && reachable(bdev, &pieces[i + run]); run++)
			length += pieces[i + run].length;
		if (run) {
			result = transfer(bdev, operation, sector, &pieces[i], run);
		} else {
			run = 1;
			length = pieces[i].length;
			result = bounce(bdev, operation, sector, &pieces[i]);
		}
		sector += length >> SECTOR_SHIFT;
	}
	sf_stack_resume();
	return result;
}

int sfk_shim_flush(void *device)
{
	int result;

	sf_stack_pause();
	result = blkdev_issue_flush(device);
	sf_stack_resume();
	return result;
}

int sfk_shim_discard(void *device, u64 offset, u64 length)
{
	int result;

	sf_stack_pause();
	result = blkdev_issue_discard(device, offset >> SECTOR_SHIFT, length >> SECTOR_SHIFT,
				      GFP_NOFS);
	sf_stack_resume();
	return result;
}
