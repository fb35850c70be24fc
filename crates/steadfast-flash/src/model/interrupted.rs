//! What a power cut leaves of the operation in flight.

use alloc::vec::Vec;

use crate::nand::{BlockNumber, NandOperation};

/// State of the program or erasure in flight after a power cut. Real parts show all of these, and
/// not in order of the time of the cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupted {
    /// The operation had no effect.
    NotBegun,
    /// The page looks as before (program), or the block looks erased (erase). But a later program
    /// there is unreliable.
    Invisible,
    /// A page is beyond correction. A block has old, erased and uncorrectable pages.
    Half,
    /// A page is sometimes readable and sometimes beyond correction. A block is as with `Half`.
    Unstable,
    /// The operation is complete, but the caller does not know.
    Done,
}

impl Interrupted {
    /// Every outcome.
    pub const ALL: [Interrupted; 5] = [
        Interrupted::NotBegun,
        Interrupted::Invisible,
        Interrupted::Half,
        Interrupted::Unstable,
        Interrupted::Done,
    ];
}

/// The operation that a power cut has interrupted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Struck {
    /// A program, an erasure, or the marking of a bad block.
    pub operation: NandOperation,
    /// The block.
    pub block: BlockNumber,
    /// Out-of-band bytes of the page that was being programmed.
    pub oob: Vec<u8>,
}
