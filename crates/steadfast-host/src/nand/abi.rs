//! The used part of the kernel's interface to MTD character devices:
//! `linux/include/uapi/mtd/mtd-abi.h`.

use std::fs::File;

use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl, opcode};

/// The driver places data and out-of-band bytes; the free bytes are contiguous.
pub(super) const AUTO_OOB: u8 = 1;
/// `mtd_info_user.type` of NAND with one bit per cell.
pub(super) const TYPE_NAND: u8 = 4;
/// `mtd_info_user.type` of NAND with several bits per cell.
pub(super) const TYPE_MLC_NAND: u8 = 8;
/// Flag: the device is writable.
pub(super) const WRITEABLE: u32 = 0x400;

/// `struct mtd_info_user`.
#[repr(C)]
#[derive(Default)]
pub(super) struct Info {
    pub(super) kind: u8,
    pub(super) flags: u32,
    /// Wrong from 4 GiB; sysfs has the correct size.
    pub(super) size: u32,
    pub(super) erase_size: u32,
    pub(super) write_size: u32,
    pub(super) oob_size: u32,
    pub(super) padding: u64,
}

/// `struct erase_info_user64`.
#[repr(C)]
pub(super) struct Range {
    pub(super) start: u64,
    pub(super) length: u64,
}

/// `struct mtd_write_req`, which is also the start of `struct mtd_read_req`.
#[repr(C)]
#[derive(Default)]
pub(super) struct Request {
    pub(super) start: u64,
    pub(super) length: u64,
    pub(super) oob_length: u64,
    pub(super) data: u64,
    pub(super) oob: u64,
    pub(super) mode: u8,
    pub(super) padding: [u8; 7],
}

/// `struct mtd_read_req`.
#[repr(C)]
#[derive(Default)]
pub(super) struct ReadRequest {
    pub(super) request: Request,
    pub(super) uncorrectable: u32,
    pub(super) corrected: u32,
    /// Bit flips in the worst codeword.
    pub(super) bitflips_max: u32,
    pub(super) end: u32,
}

/// `struct mtd_ecc_stats`: totals since the driver was loaded.
#[repr(C)]
#[derive(Default, Clone, Copy)]
pub(super) struct Statistics {
    pub(super) corrected: u32,
    pub(super) failed: u32,
    pub(super) bad_blocks: u32,
    pub(super) table_blocks: u32,
}

/// `struct mtd_oob_buf64`.
#[repr(C)]
#[derive(Default)]
pub(super) struct OobRequest {
    pub(super) start: u64,
    pub(super) padding: u32,
    pub(super) length: u32,
    pub(super) pointer: u64,
}

/// `struct nand_ecclayout_user`.
#[repr(C)]
pub(super) struct Layout {
    ecc_bytes: u32,
    ecc_positions: [u32; 64],
    pub(super) available: u32,
    /// Offset and length of each run of free bytes.
    pub(super) free: [[u32; 2]; 8],
}

impl Default for Layout {
    fn default() -> Layout {
        Layout { ecc_bytes: 0, ecc_positions: [0; 64], available: 0, free: [[0; 2]; 8] }
    }
}

pub(super) const MEMGETINFO: Opcode = opcode::read::<Info>(b'M', 1);
pub(super) const MEMGETBADBLOCK: Opcode = opcode::write::<u64>(b'M', 11);
pub(super) const MEMSETBADBLOCK: Opcode = opcode::write::<u64>(b'M', 12);
pub(super) const ECCGETLAYOUT: Opcode = opcode::read::<Layout>(b'M', 17);
pub(super) const ECCGETSTATS: Opcode = opcode::read::<Statistics>(b'M', 18);
pub(super) const MEMERASE64: Opcode = opcode::write::<Range>(b'M', 20);
pub(super) const MEMREADOOB64: Opcode = opcode::read_write::<OobRequest>(b'M', 22);
pub(super) const MEMWRITE: Opcode = opcode::read_write::<Request>(b'M', 24);
pub(super) const MEMREAD: Opcode = opcode::read_write::<ReadRequest>(b'M', 26);

/// A request with a structure that the kernel reads and may write. Its output is the result of the
/// system call.
struct Call<'a, T> {
    opcode: Opcode,
    argument: &'a mut T,
}

// SAFETY: the pointer is that of a live `T`. `call` is only used with the structure of the opcode.
#[allow(unsafe_code)]
unsafe impl<T> Ioctl for Call<'_, T> {
    type Output = IoctlOutput;
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        self.opcode
    }

    fn as_ptr(&mut self) -> *mut rustix::ffi::c_void {
        std::ptr::from_mut(self.argument).cast()
    }

    unsafe fn output_from_ptr(
        out: IoctlOutput,
        _: *mut rustix::ffi::c_void,
    ) -> Result<Self::Output, Errno> {
        Ok(out)
    }
}

/// Makes the request `opcode` with its structure `T`. An address in the structure must be that of a
/// buffer of the stated length that outlives the call. Returns the result of the system call, 0 or
/// more.
///
/// # Errors
/// The kernel's error.
///
/// # Safety
/// `T` is the structure of `opcode`. Addresses in it point to live buffers of the lengths in it,
/// which the kernel may read, or write if the request reads.
#[allow(unsafe_code)]
pub(super) unsafe fn call<T>(
    device: &File,
    opcode: Opcode,
    argument: &mut T,
) -> Result<IoctlOutput, Errno> {
    // SAFETY: the caller keeps the contract in `# Safety`.
    unsafe { ioctl(device, Call { opcode, argument }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers that C computes from the header on a 64-bit machine.
    #[test]
    fn structures_are_as_long_as_the_kernels() {
        assert_eq!(size_of::<Info>(), 32);
        assert_eq!(size_of::<Request>(), 48);
        assert_eq!(size_of::<ReadRequest>(), 64);
        assert_eq!(size_of::<OobRequest>(), 24);
        assert_eq!(size_of::<Statistics>(), 16);
        assert_eq!(size_of::<Layout>(), 328);
        assert_eq!(MEMGETINFO, 0x8020_4d01);
        assert_eq!(MEMGETBADBLOCK, 0x4008_4d0b);
        assert_eq!(MEMERASE64, 0x4010_4d14);
        assert_eq!(MEMWRITE, 0xc030_4d18);
        assert_eq!(MEMREAD, 0xc040_4d1a);
        assert_eq!(MEMREADOOB64, 0xc018_4d16);
        assert_eq!(ECCGETSTATS, 0x8010_4d12);
    }
}
