//! Sorting in place, on a small stack. The sort of the standard library keeps up to 48 elements on
//! the stack, which are kilobytes for large ones. It takes several kilobytes of code for each type.
//!
//! Short lists are sorted by insertion, long ones by heap sort (Williams 1964, with the bottom-up
//! heap construction of Floyd). Neither is stable.

/// Longest list that is sorted by insertion.
const SHORT: usize = 20;

/// Sorts a list.
pub(crate) fn sort<T: Ord>(list: &mut [T]) {
    sort_by(list, |a, b| a < b);
}

/// Sorts a list by a key of its elements.
pub(crate) fn sort_by_key<T, K: Ord>(list: &mut [T], key: impl Fn(&T) -> K) {
    sort_by(list, |a, b| key(a) < key(b));
}

fn sort_by<T>(list: &mut [T], less: impl Fn(&T, &T) -> bool) {
    if list.len() <= SHORT {
        return insertion_sort(list, less);
    }
    for root in (0..list.len() / 2).rev() {
        sift_down(list, root, &less);
    }
    for end in (1..list.len()).rev() {
        list.swap(0, end);
        sift_down(&mut list[..end], 0, &less);
    }
}

fn insertion_sort<T>(list: &mut [T], less: impl Fn(&T, &T) -> bool) {
    for end in 1..list.len() {
        let place = list[..end].iter().rposition(|before| !less(&list[end], before));
        let place = place.map_or(0, |before| before + 1);
        list[place..=end].rotate_right(1);
    }
}

/// Makes the subtree of `root` a heap, whose two parts are heaps.
fn sift_down<T>(list: &mut [T], mut root: usize, less: &impl Fn(&T, &T) -> bool) {
    loop {
        let mut child = 2 * root + 1;
        if child >= list.len() {
            return;
        }
        if child + 1 < list.len() && less(&list[child], &list[child + 1]) {
            child += 1;
        }
        if !less(&list[root], &list[child]) {
            return;
        }
        list.swap(root, child);
        root = child;
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lists_of_any_length_are_sorted(list in prop::collection::vec(any::<u16>(), 0..200)) {
            let mut expected = list.clone();
            expected.sort_unstable();
            let mut sorted = list.clone();
            sort(&mut sorted);
            prop_assert_eq!(&sorted, &expected);
            let mut large: Vec<(u16, [u8; 100])> =
                list.iter().map(|number| (*number, [*number as u8; 100])).collect();
            sort_by_key(&mut large, |(number, _)| core::cmp::Reverse(*number));
            prop_assert!(large.iter().map(|(number, _)| *number).eq(expected.into_iter().rev()));
            prop_assert!(large.iter().all(|(number, bytes)| *bytes == [*number as u8; 100]));
        }
    }
}
