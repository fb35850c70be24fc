//! Requests to block devices other than reading and writing.

use std::fs::File;
use std::io::{Seek, SeekFrom};

use rustix::fs::{Advice, fadvise, ioctl_blkpbszget, ioctl_blksszget};
use rustix::io::Errno;
use rustix::ioctl::{NoArg, Opcode, Setter, ioctl};

/// `_IO(0x12, 119)`: discard the range `[offset, length]` in bytes.
const BLKDISCARD: Opcode = rustix::ioctl::opcode::none(0x12, 119);

/// `_IO(0x12, 97)`: write back what is cached of the device, and forget it.
const BLKFLSBUF: Opcode = rustix::ioctl::opcode::none(0x12, 97);

/// Length in bytes.
pub(super) fn size(device: &File) -> std::io::Result<u64> {
    // The end of a block device is its size; nothing else uses the descriptor's position.
    let mut device = device;
    device.seek(SeekFrom::End(0))
}

/// Bytes of a logical block: the alignment of requests.
pub(super) fn logical_block(device: &File) -> Result<u32, Errno> {
    ioctl_blksszget(device)
}

/// Bytes of a physical block: the unit that the device writes at once.
pub(super) fn physical_block(device: &File) -> Result<u32, Errno> {
    ioctl_blkpbszget(device)
}

/// Tells the device that the bytes are no longer needed.
pub(super) fn discard(device: &File, offset: u64, length: u64) -> Result<(), Errno> {
    // SAFETY: BLKDISCARD reads exactly two u64 (offset and length in bytes) through its pointer and
    // writes nothing. The setter points to a `[u64; 2]`. The caller owns the contents of the
    // device.
    #[allow(unsafe_code)]
    unsafe {
        ioctl(device, Setter::<BLKDISCARD, [u64; 2]>::new([offset, length]))
    }
}

/// Has the kernel forget what it has cached of the device. It keeps pages while any program has the
/// device open, and does not see what another machine writes to the same disk. Pages that are in use
/// at this moment stay: no request forgets those.
pub(super) fn forget_cached(device: &File) {
    // SAFETY: BLKFLSBUF has no argument and writes no memory of this process.
    #[allow(unsafe_code)]
    let forgot = unsafe { ioctl(device, NoArg::<BLKFLSBUF>::new()) };
    // Only root may do that, and not every driver knows it. The advice needs no right.
    if forgot.is_err() {
        let _ = fadvise(device, 0, None, Advice::DontNeed);
    }
}
