//! Errors of a NAND part.

use core::fmt;

/// The operation that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum NandOperation {
    /// [`Nand::read`](super::Nand::read).
    Read,
    /// [`Nand::program`](super::Nand::program).
    Program,
    /// [`Nand::erase`](super::Nand::erase).
    Erase,
    /// [`Nand::is_bad`](super::Nand::is_bad).
    IsBad,
    /// [`Nand::mark_bad`](super::Nand::mark_bad).
    MarkBad,
}

/// Why an operation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum NandError {
    /// The part reports that the program or erasure failed: the block is worn out or damaged. Other
    /// blocks still work.
    Failed {
        /// The operation.
        operation: NandOperation,
        /// The block.
        block: u32,
    },
    /// The access to the part failed (bus, driver, file); a retry may succeed.
    Io {
        /// The operation.
        operation: NandOperation,
        /// The block.
        block: u32,
        /// The operating system's error number, 0 if there is none.
        os_error: i32,
    },
    /// The request breaks a rule of the part: outside it, a wrong length, a page out of order or
    /// programmed too often. This is a bug of the caller; nothing was done.
    Refused {
        /// The operation.
        operation: NandOperation,
        /// The block.
        block: u32,
        /// The rule.
        rule: &'static str,
    },
    /// The part is gone (unplugged; in the model: the power is cut).
    Gone,
}

impl fmt::Display for NandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |operation: &NandOperation| match operation {
            NandOperation::Read => "read",
            NandOperation::Program => "program",
            NandOperation::Erase => "erase",
            NandOperation::IsBad => "look for the bad-block mark",
            NandOperation::MarkBad => "mark bad",
        };
        match self {
            NandError::Failed { operation, block } => {
                write!(f, "{} of erase block {block}: the part reports failure", name(operation))
            }
            NandError::Io { operation, block, os_error } => {
                write!(f, "{} of erase block {block}: os error {os_error}", name(operation))
            }
            NandError::Refused { operation, block, rule } => {
                write!(f, "{} of erase block {block} refused: {rule}", name(operation))
            }
            NandError::Gone => f.write_str("the flash part is gone"),
        }
    }
}

impl core::error::Error for NandError {}
