//! How the bytes of an image are spread over objects.

use std::ops::Range;

/// The part of a request that lies in one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stripe {
    /// Number of the object.
    pub object: u64,
    /// Where the part begins in the object.
    pub offset: u64,
    /// The part within the request.
    pub range: Range<usize>,
}

/// The parts of a request of `length` bytes at `offset`, in order.
pub fn stripes(object_size: u64, offset: u64, length: usize) -> impl Iterator<Item = Stripe> {
    let mut done = 0;
    std::iter::from_fn(move || {
        (done < length).then(|| {
            let at = offset + done as u64;
            let into = at % object_size;
            let count = (object_size - into).min((length - done) as u64) as usize;
            let range = done..done + count;
            done += count;
            Stripe { object: at / object_size, offset: into, range }
        })
    })
}

/// The name of a data object.
pub fn object_name(image: &str, object: u64) -> String {
    format!("{image}.{object:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_the_request() {
        for (offset, length) in [(0, 0), (0, 10), (3, 7), (3, 8), (9, 1), (10, 25), (7, 30)] {
            let mut next = (offset, 0);
            for part in stripes(10, offset, length) {
                assert_eq!((part.object * 10 + part.offset, part.range.start), next);
                assert!(!part.range.is_empty() && part.offset + part.range.len() as u64 <= 10);
                next = (next.0 + part.range.len() as u64, part.range.end);
            }
            assert_eq!(next.1, length);
        }
    }

    #[test]
    fn names_sort_as_numbers() {
        assert_eq!(object_name("disk", 0x1f), "disk.000000000000001f");
    }
}
