//! Images that were judged already.

use std::collections::HashSet;

use crate::digest::Digest;
use crate::image::Image;
use crate::ledger::Point;

/// Remembers which images were judged against which states. Many cuts leave the same bytes (nothing
/// survived, twice in a row); opening and comparing them again would show nothing.
#[derive(Debug, Default)]
pub struct Seen(HashSet<u128>);

/// Images that are remembered at once: 4 million take some 150 MB.
const SEEN_MAX: usize = 4 << 20;

impl Seen {
    /// Whether this image, which was copied from `origin` and written, is new for these states. It
    /// is known from now on.
    pub fn is_new(&mut self, image: &Image, origin: &Image, allowed: &[Point]) -> bool {
        let mut key = Digest::default();
        key.bytes(&image.digest_since(origin).to_le_bytes());
        for point in allowed {
            key.bytes(&point.digest().to_le_bytes());
        }
        if self.0.len() >= SEEN_MAX {
            self.0.clear();
        }
        self.0.insert(key.value())
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
