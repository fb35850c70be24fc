//! Lists that are nearly always short: the first few items need no memory of their own.

use alloc::vec::Vec;
use core::ops::Deref;

use crate::error::{Error, Result};
use crate::memory;

/// A list of which up to `N` items lie in the list itself.
///
/// Invariant: once `many` has memory, it has all items.
#[derive(Debug, Clone)]
pub(crate) struct Short<T, const N: usize> {
    few: [T; N],
    count: usize,
    many: Vec<T>,
}

impl<T: Default, const N: usize> Default for Short<T, N> {
    fn default() -> Self {
        Short { few: core::array::from_fn(|_| T::default()), count: 0, many: Vec::new() }
    }
}

impl<T: Default, const N: usize> Short<T, N> {
    /// An empty list with room for `count` items.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn with_room(count: usize) -> Result<Self> {
        let mut list = Short::default();
        if count > N {
            list.many.try_reserve_exact(count).map_err(|_| Error::OutOfMemory)?;
        }
        Ok(list)
    }

    /// Appends one item.
    ///
    /// # Errors
    /// `OutOfMemory`; the list is unchanged then.
    pub fn push(&mut self, item: T) -> Result<()> {
        if self.many.capacity() == 0 {
            if let Some(place) = self.few.get_mut(self.count) {
                *place = item;
                self.count += 1;
                return Ok(());
            }
            self.many.try_reserve(N + 1).map_err(|_| Error::OutOfMemory)?;
            self.many.extend(self.few.iter_mut().map(core::mem::take));
        }
        memory::push(&mut self.many, item)
    }
}

impl<T: Default + Copy, const N: usize> Short<T, N> {
    /// A list of these items.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn of(items: &[T]) -> Result<Self> {
        let mut list = Short::default();
        list.extend(items)?;
        Ok(list)
    }

    /// Appends items.
    ///
    /// # Errors
    /// `OutOfMemory`; the list is unchanged then.
    pub fn extend(&mut self, items: &[T]) -> Result<()> {
        if self.many.capacity() == 0 {
            if let Some(places) = self.few.get_mut(self.count..self.count + items.len()) {
                places.copy_from_slice(items);
                self.count += items.len();
                return Ok(());
            }
            let all = self.count + items.len();
            self.many.try_reserve_exact(all).map_err(|_| Error::OutOfMemory)?;
            self.many.extend_from_slice(&self.few[..self.count]);
        }
        memory::extend(&mut self.many, items)
    }
}

impl<T, const N: usize> Deref for Short<T, N> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        if self.many.capacity() == 0 { &self.few[..self.count] } else { &self.many }
    }
}

impl<T, const N: usize> core::ops::DerefMut for Short<T, N> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        if self.many.capacity() == 0 { &mut self.few[..self.count] } else { &mut self.many }
    }
}

impl<T: PartialEq, const N: usize> PartialEq for Short<T, N> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Eq, const N: usize> Eq for Short<T, N> {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_like_a_list(
            parts in prop::collection::vec(prop::collection::vec(any::<u16>(), 0..5), 0..5),
            room in 0_usize..9,
        ) {
            let (mut list, mut pushed) = (Short::<u16, 3>::default(), Short::<u16, 3>::default());
            let mut with_room = Short::<u16, 3>::with_room(room).unwrap();
            let mut expected = Vec::new();
            for part in parts {
                list.extend(&part).unwrap();
                with_room.extend(&part).unwrap();
                part.iter().try_for_each(|item| pushed.push(*item)).unwrap();
                expected.extend(part);
                prop_assert_eq!(&*list, expected.as_slice());
                prop_assert_eq!(&list, &pushed);
                prop_assert_eq!(&list, &with_room);
                prop_assert_eq!(&list, &Short::of(&expected).unwrap());
            }
        }
    }
}
