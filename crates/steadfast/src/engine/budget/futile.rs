//! What there was no space for, and points that were set for it without success.

use crate::engine::keyspace::SpaceClass;

/// What there was no space for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shortage {
    /// A change of the tree; whether it fits after a transaction point, if that was counted.
    Change(SpaceClass, Option<bool>),
    /// A number of data blocks, for a request as a whole.
    Data(SpaceClass, u64),
}

/// Transaction points that freed too little: blocks that the working state used, and data blocks
/// that were wanted.
#[derive(Debug, Clone, Copy, Default)]
pub struct FutilePoints {
    /// Whether one was set since the last [`note`](Self::note).
    set: bool,
    /// For new data and for rewrites.
    change: [Option<u64>; 2],
    data: [Option<(u64, u64)>; 2],
}

/// The place of a class in [`FutilePoints`].
fn place(class: SpaceClass) -> usize {
    usize::from(class == SpaceClass::Rewrite)
}

impl FutilePoints {
    /// A point is set for want of space.
    pub fn begin(&mut self) {
        self.set = true;
    }

    /// Whether a point for the same request would free too little again.
    pub fn again(&self, wanted: Shortage, used: u64) -> bool {
        match wanted {
            Shortage::Change(SpaceClass::Freeing, _) => false,
            Shortage::Change(class, _) => {
                self.change[place(class)].is_some_and(|then| used >= then)
            }
            Shortage::Data(class, blocks) => {
                self.data[place(class)].is_some_and(|(then, few)| used >= then && blocks >= few)
            }
        }
    }

    /// Notes that there was no space after the last point.
    pub fn note(&mut self, wanted: Shortage, used: u64) {
        if !core::mem::take(&mut self.set) {
            return;
        }
        match wanted {
            Shortage::Change(class, _) => self.change[place(class)] = Some(used),
            Shortage::Data(class, blocks) => self.data[place(class)] = Some((used, blocks)),
        }
    }
}
