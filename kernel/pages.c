// SPDX-License-Identifier: MIT OR Apache-2.0
/* The page cache of regular files. A page with private data has a promise of room (room.c). */
#include <linux/backing-dev.h>
#include <linux/highmem.h>
#include <linux/pagevec.h>
#include <linux/vmalloc.h>
#include <linux/writeback.h>

#include "steadfast.h"

/* Pages that one call of the core reads or writes. */
#define BATCH 64

struct batch {
	struct inode *inode;
	unsigned int count;
	int error;
	struct page *pages[BATCH];
};

/* The pages side by side, for the core. */
static void *mapped(struct page **pages, unsigned int count)
{
	return count == 1 ? kmap(pages[0]) : vm_map_ram(pages, count, NUMA_NO_NODE);
}

static void unmapped(struct page **pages, unsigned int count, void *memory)
{
	if (count == 1)
		kunmap(pages[0]);
	else
		vm_unmap_ram(memory, count);
}

/* Before a file with the size `size` becomes longer than it, with a gap: bytes that a program has
 * stored through a map past the end must not become data. Write-back clears them too, but may
 * not have come yet. */
void sf_clear_tail(struct inode *inode, loff_t size)
{
	struct page *page = NULL;

	if (offset_in_page(size))
		page = find_lock_page(inode->i_mapping, size >> PAGE_SHIFT);
	if (!page)
		return;
	/* The core sums what it writes, so the page must not change meanwhile. */
	wait_on_page_writeback(page);
	zero_user_segment(page, offset_in_page(size), PAGE_SIZE);
	unlock_page(page);
	put_page(page);
}

/* Gives a locked page a promise of room that the caller already has, so it does not fail. Returns
 * whether the page needed one. */
bool sf_promise_page(struct page *page)
{
	struct sf_info *info = sf_info(page->mapping->host->i_sb);

	if (PagePrivate(page))
		return false;
	attach_page_private(page, (void *)1);
	atomic_inc(&sf_inode(page->mapping->host)->promised);
	atomic64_add(info->unit, &info->promised);
	return true;
}

static void unpromise(struct inode *inode, struct folio *folio)
{
	struct sf_info *info = sf_info(inode->i_sb);

	if (!folio_test_private(folio))
		return;
	folio_detach_private(folio);
	atomic_dec(&sf_inode(inode)->promised);
	sf_room_return(info, info->unit);
}

/* Fills consecutive pages of one file. Bytes past its end are zeros. */
static int read_pages(struct inode *inode, struct page **pages, unsigned int count)
{
	size_t length = (size_t)count << PAGE_SHIFT;
	void *memory = mapped(pages, count);
	long done;

	if (!memory)
		return -ENOMEM;
	done = SF_ASK(inode, sfk_read, page_offset(pages[0]), memory, length);
	if (done >= 0)
		memset(memory + done, 0, length - done);
	unmapped(pages, count, memory);
	return min(done, 0L);
}

static int sf_read_folio(struct file *file, struct folio *folio)
{
	struct page *page = &folio->page;
	int result = read_pages(folio->mapping->host, &page, 1);

	if (!result)
		folio_mark_uptodate(folio);
	folio_unlock(folio);
	return result;
}

static void sf_readahead(struct readahead_control *control)
{
	struct inode *inode = control->mapping->host;
	struct page *pages[BATCH];
	unsigned int count, i;

	while ((count = readahead_page_batch(control, pages))) {
		int result = read_pages(inode, pages, count);

		for (i = 0; i < count; i++) {
			/* A page that is not up to date is read again, alone, when it is needed. */
			if (!result)
				SetPageUptodate(pages[i]);
			unlock_page(pages[i]);
			put_page(pages[i]);
		}
	}
}

static int sf_write_begin(struct file *file, struct address_space *mapping, loff_t at,
			  unsigned int length, struct page **out, void **data)
{
	struct inode *inode = mapping->host;
	struct page *page = grab_cache_page_write_begin(mapping, at >> PAGE_SHIFT);
	int result = 0;

	if (!page)
		return -ENOMEM;
	if (!PageUptodate(page) && length < PAGE_SIZE) {
		if (page_offset(page) >= i_size_read(inode))
			zero_user(page, 0, PAGE_SIZE);
		else
			result = read_pages(inode, &page, 1);
		if (!result)
			SetPageUptodate(page);
	}
	if (result) {
		unlock_page(page);
		put_page(page);
		return result;
	}
	*out = page;
	return 0;
}

static int sf_write_end(struct file *file, struct address_space *mapping, loff_t at,
			unsigned int length, unsigned int copied, struct page *page, void *data)
{
	struct inode *inode = mapping->host;

	/* Half of a page whose other half is unknown: the caller tries again with less. */
	if (!PageUptodate(page) && copied < length)
		copied = 0;
	if (copied) {
		SetPageUptodate(page);
		sf_promise_page(page);
		set_page_dirty(page);
		if (at + copied > i_size_read(inode))
			i_size_write(inode, at + copied);
	}
	unlock_page(page);
	put_page(page);
	return copied;
}

/* Writes the pages of a batch, which are under write-back. */
static void write_batch(struct batch *batch)
{
	struct inode *inode = batch->inode;
	struct sf_info *info = sf_info(inode->i_sb);
	loff_t start, size = i_size_read(inode);
	size_t length;
	void *memory;
	unsigned int i;
	long result = 0;

	if (!batch->count)
		return;
	start = page_offset(batch->pages[0]);
	length = min_t(loff_t, (loff_t)batch->count << PAGE_SHIFT, max_t(loff_t, size - start, 0));
	memory = mapped(batch->pages, batch->count);
	sf_room_spend(info, length);
	if (!memory)
		result = -ENOMEM;
	else if (length)
		result = SF_CORE(info, sfk_write(info->volume, inode->i_ino, start, memory,
						 length));
	sf_blocks_changed(inode);
	/* The file was removed meanwhile: its data goes with it. */
	if (result == -ESTALE && sf_has_left(inode))
		result = 0;
	if (memory)
		unmapped(batch->pages, batch->count, memory);
	for (i = 0; i < batch->count; i++) {
		struct folio *folio = page_folio(batch->pages[i]);

		/* While memory is short the data stays; the page cannot be taken away before its
		 * write-back ends. */
		if (result == -ENOMEM)
			filemap_dirty_folio(inode->i_mapping, folio);
		else
			unpromise(inode, folio);
		folio_end_writeback(folio);
		folio_put(folio);
	}
	batch->count = 0;
	if (result && result != -ENOMEM)
		mapping_set_error(inode->i_mapping, result);
	if (result && !batch->error)
		batch->error = result;
	/* The core has set its own times; those of the VFS follow. */
	if (!result)
		mark_inode_dirty_sync(inode);
}

static int collect(SF_WRITTEN written, struct writeback_control *wbc, void *data)
{
	struct batch *batch = data;
	struct page *page = sf_written_page(written);
	loff_t size = i_size_read(batch->inode);

	if (batch->count == BATCH ||
	    (batch->count && batch->pages[batch->count - 1]->index + 1 != page->index))
		write_batch(batch);
	if (page_offset(page) >= size) {
		/* Truncated meanwhile, and about to be dropped. */
		unpromise(batch->inode, page_folio(page));
		unlock_page(page);
		return 0;
	}
	if (page_offset(page) + PAGE_SIZE > size)
		zero_user_segment(page, offset_in_page(size), PAGE_SIZE);
	get_page(page);
	set_page_writeback(page);
	unlock_page(page);
	batch->pages[batch->count++] = page;
	return 0;
}

static int sf_writepages(struct address_space *mapping, struct writeback_control *wbc)
{
	struct batch *batch = kmalloc(sizeof(*batch), GFP_NOFS | __GFP_NOFAIL);
	int result;

	batch->inode = mapping->host;
	batch->count = 0;
	batch->error = 0;
	result = write_cache_pages(mapping, wbc, collect, batch);
	write_batch(batch);
	if (batch->error)
		result = batch->error;
	kfree(batch);
	return result;
}

static void sf_invalidate_folio(struct folio *folio, size_t offset, size_t length)
{
	if (offset == 0 && length == folio_size(folio))
		unpromise(folio->mapping->host, folio);
}

static bool sf_release_folio(struct folio *folio, gfp_t flags)
{
	if (folio_test_dirty(folio) || folio_test_writeback(folio))
		return false;
	unpromise(folio->mapping->host, folio);
	return true;
}

const struct address_space_operations sf_pages_operations = {
	.read_folio = sf_read_folio,
	.readahead = sf_readahead,
	.write_begin = sf_write_begin,
	.write_end = sf_write_end,
	.writepages = sf_writepages,
	.dirty_folio = filemap_dirty_folio,
	.invalidate_folio = sf_invalidate_folio,
	.release_folio = sf_release_folio,
	.migrate_folio = filemap_migrate_folio,
	/* O_DIRECT is served by read_iter and write_iter; this allows the flag. */
	.direct_IO = noop_direct_IO,
};
