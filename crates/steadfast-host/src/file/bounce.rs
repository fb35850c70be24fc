//! Aligned bounce buffers for direct I/O of callers with unaligned memory.
//!
//! Invariant: a buffer starts at a multiple of its alignment and has [`LENGTH`] bytes. A few
//! buffers are kept for later requests. Beyond these at most one exists for each running request.

use parking_lot::Mutex;
use rustix::io::Errno;

/// Bytes of a buffer; longer requests are split. A multiple of every alignment.
pub(super) const LENGTH: usize = 256 << 10;
/// Largest number of unused buffers.
const KEPT_MAX: usize = 8;

/// Plain bytes, with enough room for an aligned start, so no unsafe allocation is needed.
struct Buffer {
    storage: Vec<u8>,
    start: usize,
}

impl Buffer {
    fn new(alignment: usize) -> Result<Self, Errno> {
        let mut storage = Vec::new();
        storage.try_reserve_exact(LENGTH + alignment).map_err(|_| Errno::NOMEM)?;
        storage.resize(LENGTH + alignment, 0);
        let start = storage.as_ptr().addr().next_multiple_of(alignment) - storage.as_ptr().addr();
        Ok(Buffer { storage, start })
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.storage[self.start..self.start + LENGTH]
    }
}

/// The buffers of one medium.
pub(super) struct Pool {
    alignment: usize,
    free: Mutex<Vec<Buffer>>,
}

impl Pool {
    /// A pool of buffers that start at a multiple of `alignment` bytes (at least 1).
    pub(super) fn new(alignment: usize) -> Self {
        Pool { alignment: alignment.max(1), free: Mutex::new(Vec::new()) }
    }

    /// Lends a buffer to `work`. The buffer has the contents of an earlier use.
    pub(super) fn with<T>(
        &self,
        work: impl FnOnce(&mut [u8]) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let kept = self.free.lock().pop();
        let mut buffer = match kept {
            Some(buffer) => buffer,
            None => Buffer::new(self.alignment)?,
        };
        let result = work(buffer.bytes());
        let mut free = self.free.lock();
        if free.len() < KEPT_MAX {
            free.push(buffer);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_used_again() {
        for alignment in [1, 4, 512, 4096, 65_536] {
            let pool = Pool::new(alignment);
            let first = pool.with(|bytes| {
                assert_eq!((bytes.as_ptr().addr() % alignment, bytes.len()), (0, LENGTH));
                Ok(bytes.as_ptr().addr())
            });
            assert_eq!(first, pool.with(|bytes| Ok(bytes.as_ptr().addr())));
        }
    }
}
