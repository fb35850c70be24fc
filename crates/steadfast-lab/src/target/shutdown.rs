//! A power cut for a file system in the kernel: the ioctl with which XFS, ext4 and others stop at
//! once, without writing their log. It exists for tests of recovery.

use std::fs::File;
use std::path::Path;

use rustix::io::Errno;
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

use crate::trouble::Doing;
use crate::{Outcome, Trouble};

/// `XFS_IOC_GOINGDOWN`, which ext4 and f2fs have too: `_IOR('X', 125, u32)`.
const GOING_DOWN: Opcode = opcode::read::<u32>(b'X', 125);

/// The log is not written either.
const WITHOUT_LOG: u32 = 2;

/// Stops the file system on `directory` at once.
///
/// # Errors
/// `Skip` if it has no such call.
pub(super) fn shut_down(directory: &Path, name: &str) -> Outcome {
    let root = File::open(directory).doing(|| format!("open {}", directory.display()))?;
    // SAFETY: the request reads one u32 at the pointer and writes nothing; `Setter` passes a
    // pointer to the u32 it owns. A file system that does not know the request returns ENOTTY.
    #[allow(unsafe_code)]
    let done = unsafe { ioctl(&root, Setter::<GOING_DOWN, u32>::new(WITHOUT_LOG)) };
    done.map_err(|error| match error {
        Errno::NOTTY | Errno::OPNOTSUPP | Errno::INVAL => Trouble::Skip(format!(
            "the power of {name} cannot be cut: it has no call for that in this kernel"
        )),
        other => {
            Trouble::Io { doing: format!("shut {} down", directory.display()), error: other.into() }
        }
    })
}
