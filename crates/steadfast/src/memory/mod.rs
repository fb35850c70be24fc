//! Allocation that reports lack of memory as an error of the operation instead of ending the
//! program.

mod short;

pub(crate) use short::Short;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem::MaybeUninit;
use core::ops::{Deref, DerefMut};

use steadfast_media::sync::Arc;

use crate::error::{Error, Result};

/// `length` zero bytes.
pub(crate) fn zeroed(length: usize) -> Result<Vec<u8>> {
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(length).map_err(|_| Error::OutOfMemory)?;
    buffer.resize(length, 0);
    Ok(buffer)
}

/// `length` times the same item.
pub(crate) fn filled<T: Copy>(item: T, length: usize) -> Result<Vec<T>> {
    let mut list = Vec::new();
    list.try_reserve_exact(length).map_err(|_| Error::OutOfMemory)?;
    list.resize(length, item);
    Ok(list)
}

/// A copy of `items`. They must own no memory, because copying that would allocate unchecked.
pub(crate) fn copy<T: Copy>(items: &[T]) -> Result<Vec<T>> {
    let mut buffer = Vec::new();
    extend(&mut buffer, items)?;
    Ok(buffer)
}

/// Appends `items`.
pub(crate) fn extend<T: Copy>(buffer: &mut Vec<T>, items: &[T]) -> Result<()> {
    buffer.try_reserve(items.len()).map_err(|_| Error::OutOfMemory)?;
    buffer.extend_from_slice(items);
    Ok(())
}

/// Moves everything from `items` to the end of `list`.
pub(crate) fn append<T>(list: &mut Vec<T>, items: &mut Vec<T>) -> Result<()> {
    list.try_reserve(items.len()).map_err(|_| Error::OutOfMemory)?;
    list.append(items);
    Ok(())
}

/// Appends one item.
#[inline]
pub(crate) fn push<T>(list: &mut Vec<T>, item: T) -> Result<()> {
    if list.len() == list.capacity() {
        list.try_reserve(1).map_err(|_| Error::OutOfMemory)?;
    }
    list.push(item);
    Ok(())
}

/// Collects the items of an iterator.
pub(crate) fn collect<T>(items: impl IntoIterator<Item = T>) -> Result<Vec<T>> {
    let items = items.into_iter();
    let mut list = Vec::new();
    list.try_reserve(items.size_hint().0).map_err(|_| Error::OutOfMemory)?;
    for item in items {
        push(&mut list, item)?;
    }
    Ok(list)
}

/// A value in memory of its own: large values in large values would need much stack to be made and
/// moved.
pub(crate) struct Boxed<T>(Box<[T; 1]>);

impl<T> Boxed<T> {
    /// The value that `make` returns. Not inlined, so that the caller's stack does not hold the
    /// value, too.
    #[inline(never)]
    pub fn new(make: impl FnOnce() -> T) -> Result<Boxed<T>> {
        let mut list = Vec::new();
        list.try_reserve_exact(1).map_err(|_| Error::OutOfMemory)?;
        list.push(make());
        list.into_boxed_slice().try_into().map(Boxed).map_err(|_| Error::OutOfMemory)
    }
}

impl<T> Deref for Boxed<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0[0]
    }
}

impl<T> DerefMut for Boxed<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0[0]
    }
}

/// Memory layout that an [`Arc`] allocates.
#[repr(C)]
struct Counted<T> {
    counts: [usize; 2],
    value: MaybeUninit<T>,
}

/// A shared value. [`Arc`] cannot report a lack of memory, so as much memory as it needs is
/// allocated and freed first. The remaining risk is another thread that takes the last bytes in
/// between.
pub(crate) fn shared<T>(value: T) -> Result<Arc<T>> {
    let mut probe: Vec<Counted<T>> = Vec::new();
    probe.try_reserve_exact(1).map_err(|_| Error::OutOfMemory)?;
    // Otherwise the compiler removes the allocation.
    core::hint::black_box(&mut probe);
    drop(probe);
    Ok(Arc::new(value))
}

/// Inserts one item.
pub(crate) fn insert<T>(list: &mut Vec<T>, at: usize, item: T) -> Result<()> {
    list.try_reserve(1).map_err(|_| Error::OutOfMemory)?;
    list.insert(at, item);
    Ok(())
}
