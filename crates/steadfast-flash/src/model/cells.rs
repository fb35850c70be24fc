//! Contents of the cells of an erase block: the programmed data, and the damage to it.

use alloc::vec;
use alloc::vec::Vec;

use steadfast_media::sync::Arc;

/// How reliably a page holds its programmed data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quality {
    /// Reliable.
    Good,
    /// Sometimes readable, sometimes beyond correction: its program was interrupted, or the block
    /// was not fully erased.
    Unstable,
    /// Beyond correction.
    Garbage,
}

/// A page that was programmed.
#[derive(Debug, Clone)]
pub(super) struct Programmed {
    /// Data, then OOB.
    pub bytes: Arc<[u8]>,
    pub quality: Quality,
    /// Flipped bits in the worst codeword.
    pub flips: u16,
    /// Programs since the erasure.
    pub times: u32,
}

/// A page.
#[derive(Debug, Clone)]
pub(super) enum Cells {
    /// Reads as all ones.
    Erased {
        /// A program had begun: all ones, but a later program there is unreliable.
        touched: bool,
    },
    /// Programmed.
    Programmed(Programmed),
}

/// An erase block.
#[derive(Debug, Clone)]
pub(super) struct Block {
    pub pages: Vec<Cells>,
    /// One after the last programmed page: the next page in order.
    pub next: u32,
    pub erases: u32,
    /// Page reads since the erasure.
    pub reads: u32,
    /// An erasure was interrupted: all ones, but later programs there are unreliable.
    pub weak: bool,
    /// Has the bad-block mark.
    pub bad: bool,
    /// Erasures after which the block fails.
    pub life: u32,
}

impl Block {
    pub fn new(pages: u32, life: u32, bad: bool) -> Block {
        let pages = vec![Cells::Erased { touched: false }; pages as usize];
        Block { pages, next: 0, erases: 0, reads: 0, weak: false, bad, life }
    }

    pub fn erase(&mut self) {
        self.pages.fill(Cells::Erased { touched: false });
        (self.next, self.reads, self.weak) = (0, 0, false);
        self.erases += 1;
    }
}
