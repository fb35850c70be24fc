//! Growing memory so that running out of it is an error of the operation and not the end of the program.

use alloc::vec::Vec;

use crate::error::{Error, Result};

/// `length` zero bytes.
pub(crate) fn zeroed(length: usize) -> Result<Vec<u8>> {
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(length).map_err(|_| Error::OutOfMemory)?;
    buffer.resize(length, 0);
    Ok(buffer)
}

/// A copy of `bytes`.
pub(crate) fn copy<T: Clone>(items: &[T]) -> Result<Vec<T>> {
    let mut buffer = Vec::new();
    extend(&mut buffer, items)?;
    Ok(buffer)
}

/// Appends `items`.
pub(crate) fn extend<T: Clone>(buffer: &mut Vec<T>, items: &[T]) -> Result<()> {
    buffer.try_reserve(items.len()).map_err(|_| Error::OutOfMemory)?;
    buffer.extend_from_slice(items);
    Ok(())
}

/// Appends one item.
pub(crate) fn push<T>(list: &mut Vec<T>, item: T) -> Result<()> {
    list.try_reserve(1).map_err(|_| Error::OutOfMemory)?;
    list.push(item);
    Ok(())
}

/// Inserts one item.
pub(crate) fn insert<T>(list: &mut Vec<T>, at: usize, item: T) -> Result<()> {
    list.try_reserve(1).map_err(|_| Error::OutOfMemory)?;
    list.insert(at, item);
    Ok(())
}
