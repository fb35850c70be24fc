//! What there was no space for, and checkpoints that were made for it without success.

use crate::engine::keyspace::SpaceClass;

/// What there was no space for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shortage {
    /// A change of the tree; whether it fits after a checkpoint, if that was counted.
    Change(SpaceClass, Option<bool>),
    /// A number of data blocks, for a request as a whole.
    Data(SpaceClass, u64),
}

/// Checkpoints that freed too little: blocks that the working state used, and data blocks that were
/// wanted.
#[derive(Debug, Clone, Copy, Default)]
pub struct FutileCheckpoints {
    /// Whether one was made since the last [`note`](Self::note).
    made: bool,
    /// For new data and for rewrites.
    change: [Option<u64>; 2],
    data: [Option<(u64, u64)>; 2],
}

/// The place of a class in [`FutileCheckpoints`].
fn place(class: SpaceClass) -> usize {
    usize::from(class == SpaceClass::Rewrite)
}

impl FutileCheckpoints {
    /// A checkpoint is made for want of space.
    pub fn begin(&mut self) {
        self.made = true;
    }

    /// Whether a checkpoint for the same request would free too little again.
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

    /// Notes that there was no space after the last checkpoint.
    pub fn note(&mut self, wanted: Shortage, used: u64) {
        if !core::mem::take(&mut self.made) {
            return;
        }
        match wanted {
            Shortage::Change(class, _) => self.change[place(class)] = Some(used),
            Shortage::Data(class, blocks) => self.data[place(class)] = Some((used, blocks)),
        }
    }
}
