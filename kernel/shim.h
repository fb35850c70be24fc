/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the core needs of the kernel; crates/steadfast-kernel/src/shim.rs has the same list. */
#ifndef STEADFAST_SHIM_H
#define STEADFAST_SHIM_H

#include "core.h"

void *sfk_shim_allocate(size_t size, size_t alignment);
void sfk_shim_release(void *memory);
void sfk_shim_panic(const u8 *text, size_t length);
void sfk_shim_now(s64 *seconds, u32 *nanoseconds);
u64 sfk_shim_monotonic_us(void);
void sfk_shim_yield(void);
u32 sfk_shim_crc32c(u32 crc, const u8 *data, size_t length);

void *sfk_shim_mutex_new(void);
void sfk_shim_mutex_free(void *lock);
void sfk_shim_mutex_lock(void *lock);
bool sfk_shim_mutex_try(void *lock);
void sfk_shim_mutex_unlock(void *lock);
bool sfk_shim_mutex_held(void *lock);
void *sfk_shim_rwsem_new(void);
void sfk_shim_rwsem_free(void *lock);
void sfk_shim_rwsem_read(void *lock);
bool sfk_shim_rwsem_try_read(void *lock);
void sfk_shim_rwsem_read_done(void *lock);
void sfk_shim_rwsem_write(void *lock);
bool sfk_shim_rwsem_try_write(void *lock);
void sfk_shim_rwsem_write_done(void *lock);
bool sfk_shim_rwsem_held(void *lock);

int sfk_shim_transfer(void *device, int kind, u64 offset, const struct sfk_piece *pieces,
		      size_t count);
int sfk_shim_flush(void *device);
int sfk_shim_discard(void *device, u64 offset, u64 length);
bool sfk_shim_emit(void *context, const char *name, size_t length, u64 inode, u32 kind,
		   u64 cookie);

#endif
