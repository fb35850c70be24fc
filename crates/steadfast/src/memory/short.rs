//! Lists that are nearly always short: the first few items need no memory of their own.

use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};

use crate::error::{Error, Result};
use crate::memory;

/// A list of which up to `N` items lie in the list itself, with their number.
#[derive(Debug, Clone)]
pub(crate) enum Short<T, const N: usize> {
    Few([T; N], u8),
    Many(Vec<T>),
}

impl<T: Default, const N: usize> Default for Short<T, N> {
    fn default() -> Self {
        Short::Few(core::array::from_fn(|_| T::default()), 0)
    }
}

impl<T: Default, const N: usize> Short<T, N> {
    /// An empty list with room for `count` items.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn with_room(count: usize) -> Result<Self> {
        if count <= N {
            return Ok(Short::default());
        }
        let mut many = Vec::new();
        many.try_reserve_exact(count).map_err(|_| Error::OutOfMemory)?;
        Ok(Short::Many(many))
    }

    /// A list of what an iterator gives, which tells their number.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn collect(items: impl ExactSizeIterator<Item = T>) -> Result<Self> {
        let mut list = Short::with_room(items.len())?;
        match &mut list {
            Short::Few(few, count) => {
                for (place, item) in few.iter_mut().zip(items) {
                    *place = item;
                    *count += 1;
                }
            }
            Short::Many(many) => many.extend(items),
        }
        Ok(list)
    }

    /// Appends one item.
    ///
    /// # Errors
    /// `OutOfMemory`; the list is unchanged then.
    pub fn push(&mut self, item: T) -> Result<()> {
        match self {
            Short::Few(few, count) if usize::from(*count) < N => {
                few[usize::from(*count)] = item;
                *count += 1;
                Ok(())
            }
            _ => memory::push(self.many(1)?, item),
        }
    }

    /// The list in memory of its own, with room for `more` items.
    fn many(&mut self, more: usize) -> Result<&mut Vec<T>> {
        if let Short::Few(few, count) = self {
            let mut many = Vec::new();
            many.try_reserve(usize::from(*count) + more).map_err(|_| Error::OutOfMemory)?;
            many.extend(few.iter_mut().take(usize::from(*count)).map(core::mem::take));
            *self = Short::Many(many);
        }
        match self {
            Short::Many(many) => Ok(many),
            Short::Few(..) => Err(Error::OutOfMemory),
        }
    }
}

impl<T: Default + Copy, const N: usize> Short<T, N> {
    /// A list of these items.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn of(items: &[T]) -> Result<Self> {
        Short::collect(items.iter().copied())
    }

    /// Appends items.
    ///
    /// # Errors
    /// `OutOfMemory`; the list is unchanged then.
    pub fn extend(&mut self, items: &[T]) -> Result<()> {
        if let Short::Few(few, count) = self
            && let Some(places) =
                few.get_mut(usize::from(*count)..usize::from(*count) + items.len())
        {
            places.copy_from_slice(items);
            *count += items.len() as u8;
            return Ok(());
        }
        memory::extend(self.many(items.len())?, items)
    }
}

impl<T, const N: usize> Deref for Short<T, N> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match self {
            Short::Few(few, count) => &few[..usize::from(*count)],
            Short::Many(many) => many,
        }
    }
}

impl<T, const N: usize> DerefMut for Short<T, N> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Short::Few(few, count) => &mut few[..usize::from(*count)],
            Short::Many(many) => many,
        }
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
