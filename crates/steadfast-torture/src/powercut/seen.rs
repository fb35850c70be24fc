//! Images that were already judged.

use std::collections::HashSet;

use steadfast::volume::KeptDeltas;

use crate::digest::Digest;
use crate::image::Image;
use crate::ledger::Point;

/// Remembers the images judged against given states. Many cuts leave the same bytes, for example if
/// nothing survived twice in a row. Judging them again would show nothing new.
#[derive(Debug, Default)]
pub struct JudgedImages(HashSet<u128>);

/// Most images remembered at once; 4 million take about 150 MB.
const SEEN_MAX: usize = 4 << 20;

impl JudgedImages {
    /// Whether this image, a written copy of `origin`, is new for these states and for what nodes
    /// keep. It counts as known afterwards.
    pub fn is_new(
        &mut self,
        image: &Image,
        origin: &Image,
        allowed: &[Point],
        kept: &[KeptDeltas],
    ) -> bool {
        let mut key = Digest::default();
        key.bytes(&image.digest_since(origin).to_le_bytes());
        for point in allowed {
            key.bytes(&point.digest().to_le_bytes());
        }
        for kept in kept {
            key.number(kept.sequence).shown(&(kept.durable, kept.sealed));
            for (_, payload) in &kept.payloads {
                key.bytes(payload);
            }
        }
        if self.0.len() >= SEEN_MAX {
            self.0.clear();
        }
        self.0.insert(key.value())
    }

    /// The number of images.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
