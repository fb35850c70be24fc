//! Linux MTD character devices (`/dev/mtdN`) as NAND.
//!
//! The kernel contains the driver and the code. Data and free out-of-band bytes are transferred
//! together if the kernel supports that (MEMREAD, since Linux 6.1; MEMWRITE). The codes of most
//! drivers do not cover the free bytes. So this module adds a Hamming code: its parity occupies the
//! last of the used free bytes, after those that it exposes.
//!
//! A read with more flips than the kernel's code corrects is not an error. It returns
//! [`EccStatus::Uncorrectable`] and the bytes as they were read.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::io::Errno;
use rustix::ioctl::Opcode;
use steadfast_flash::nand::{
    BlockNumber, EccStatus, Nand, NandError, NandGeometry, NandOperation, PageAddress,
};

use super::NandOpenError;
use super::abi::{self, Layout, OobRequest, Range, ReadRequest, Request, Statistics};
use super::mtd_open::{OOB_CODE, OpenMtd, open};

/// An MTD device. While open it is locked against other Steadfast programs. Opening it for writing
/// fails while UBI or a mount uses it.
#[derive(Debug)]
pub struct MtdNand {
    device: File,
    geometry: NandGeometry,
    /// The used free bytes: the exposed bytes and their parity.
    oob: Vec<u8>,
    /// The way of reading pages.
    reading: Reading,
}

/// Ways to read data and out-of-band bytes.
#[derive(Debug)]
enum Reading {
    /// Both in one request, which also returns the result of the code.
    Together,
    /// In two requests, on older kernels: the out-of-band bytes as they are on the part, and the
    /// positions of the free ones.
    Apart { raw: Vec<u8>, free: Vec<(usize, usize)> },
}

impl MtdNand {
    /// Opens the device.
    ///
    /// # Errors
    /// The device does not exist, permission is denied, it is not NAND, it is in use, or its
    /// geometry is unusable. Nothing was written.
    pub fn open(path: impl AsRef<Path>, writing: bool) -> Result<MtdNand, NandOpenError> {
        Self::open_with(path.as_ref(), writing, true)
    }

    /// Opens the device for reading without a lock, while another process may write it. So the
    /// bytes may be from different times.
    ///
    /// # Errors
    /// As for [`open`](Self::open), except for a device in use.
    pub fn watch(path: impl AsRef<Path>) -> Result<MtdNand, NandOpenError> {
        Self::open_with(path.as_ref(), false, false)
    }

    fn open_with(path: &Path, writing: bool, locked: bool) -> Result<MtdNand, NandOpenError> {
        let OpenMtd { file, geometry } = open(path, writing, locked)?;
        let oob = vec![0xff; geometry.oob_size as usize + OOB_CODE.parity_bytes()];
        let mut nand = MtdNand { device: file, geometry, oob, reading: Reading::Together };
        // Kernels that do not know the request refuse it regardless of its contents.
        if let Err(Errno::NOTTY | Errno::INVAL | Errno::OPNOTSUPP) = nand.read_together(0, &mut [])
        {
            nand.reading = nand.reading_apart(path)?;
        }
        Ok(nand)
    }

    fn reading_apart(&self, path: &Path) -> Result<Reading, NandOpenError> {
        let failed = |errno: Errno| NandOpenError::Io {
            path: path.to_owned(),
            action: "ask for the layout of",
            source: errno.into(),
        };
        let mut info = abi::Info::default();
        let mut layout = Layout::default();
        // SAFETY: each request fills the structure that it names, and neither structure contains
        // addresses.
        #[allow(unsafe_code)]
        unsafe {
            abi::call(&self.device, abi::MEMGETINFO, &mut info).map_err(failed)?;
            abi::call(&self.device, abi::ECCGETLAYOUT, &mut layout).map_err(failed)?;
        }
        let free: Vec<(usize, usize)> = layout
            .free
            .iter()
            .filter(|[_, length]| *length != 0)
            .map(|[offset, length]| (*offset as usize, *length as usize))
            .collect();
        let has: usize = free.iter().map(|(_, length)| length).sum();
        let inside = free.iter().all(|(offset, length)| offset + length <= info.oob_size as usize);
        if has < self.oob.len() || !inside {
            let (has, needed) = (has as u32, self.oob.len() as u32);
            return Err(NandOpenError::OutOfBand { path: path.to_owned(), has, needed });
        }
        Ok(Reading::Apart { raw: vec![0; info.oob_size as usize], free })
    }

    /// Corrected codewords, failed codewords and bad blocks since the driver was loaded, as the
    /// kernel counts them.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn statistics(&self) -> std::io::Result<[u32; 3]> {
        let statistics = self.counts()?;
        Ok([statistics.corrected, statistics.failed, statistics.bad_blocks])
    }

    fn counts(&self) -> Result<Statistics, Errno> {
        let mut statistics = Statistics::default();
        // SAFETY: ECCGETSTATS fills one `Statistics`, which contains no addresses.
        #[allow(unsafe_code)]
        unsafe {
            abi::call(&self.device, abi::ECCGETSTATS, &mut statistics)?
        };
        Ok(statistics)
    }

    fn address(&self, page: PageAddress) -> u64 {
        u64::from(page.0) * u64::from(self.geometry.page_size)
    }

    /// Checks that lengths and address are those of a page.
    fn check(
        &self,
        operation: NandOperation,
        page: PageAddress,
        data: usize,
        oob: usize,
    ) -> Result<(), NandError> {
        let block = self.geometry.block_of(page).0;
        let refused = |rule| Err(NandError::Refused { operation, block, rule });
        let empty_data = data == 0 && operation == NandOperation::Read;
        if page.0 >= self.geometry.pages() {
            return refused("the page is outside of the part");
        }
        if data != self.geometry.page_size as usize && !empty_data {
            return refused("data is not a page long");
        }
        if oob > self.geometry.oob_size as usize {
            return refused("more out-of-band bytes than the page has");
        }
        Ok(())
    }

    /// Reads data and the used free out-of-band bytes in one request. Returns the result of the
    /// kernel's code for the data.
    fn read_together(&mut self, address: u64, data: &mut [u8]) -> Result<EccStatus, Errno> {
        let mut read = ReadRequest {
            request: Request {
                start: address,
                length: data.len() as u64,
                oob_length: self.oob.len() as u64,
                data: if data.is_empty() { 0 } else { data.as_mut_ptr() as u64 },
                oob: self.oob.as_mut_ptr() as u64,
                mode: abi::AUTO_OOB,
                ..Request::default()
            },
            ..ReadRequest::default()
        };
        // SAFETY: MEMREAD takes a `ReadRequest`. Its addresses and lengths are those of `data` and
        // `oob`, both borrowed for writing. An address of zero means none.
        #[allow(unsafe_code)]
        let answer = unsafe { abi::call(&self.device, abi::MEMREAD, &mut read) };
        match answer {
            Ok(_) | Err(Errno::UCLEAN) if read.uncorrectable == 0 => Ok(match read.bitflips_max {
                0 => EccStatus::Clean,
                bits => EccStatus::Corrected(u16::try_from(bits).unwrap_or(u16::MAX)),
            }),
            Ok(_) | Err(Errno::UCLEAN | Errno::BADMSG) => Ok(EccStatus::Uncorrectable),
            Err(errno) => Err(errno),
        }
    }

    /// The same in two requests. The number of corrected bits in the worst codeword is then
    /// unknown, but at most the increase of the kernel's count.
    fn read_in_turn(&mut self, address: u64, data: &mut [u8]) -> Result<EccStatus, Errno> {
        let before = self.counts()?;
        if !data.is_empty() {
            match self.device.read_exact_at(data, address) {
                Ok(()) => {}
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::UCLEAN | Errno::BADMSG) => {}
                    Some(errno) => return Err(errno),
                    None => return Err(Errno::IO),
                },
            }
        }
        let after = self.counts()?;
        let Reading::Apart { raw, free } = &mut self.reading else { return Err(Errno::INVAL) };
        let mut request = OobRequest {
            start: address,
            length: raw.len() as u32,
            pointer: raw.as_mut_ptr() as u64,
            ..OobRequest::default()
        };
        // SAFETY: MEMREADOOB64 takes an `OobRequest`. Its address and length are those of `raw`,
        // which is borrowed for writing.
        #[allow(unsafe_code)]
        unsafe {
            abi::call(&self.device, abi::MEMREADOOB64, &mut request)?
        };
        let bytes =
            free.iter().filter_map(|(offset, length)| raw.get(*offset..offset + length)).flatten();
        self.oob.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        Ok(if after.failed != before.failed {
            EccStatus::Uncorrectable
        } else {
            match after.corrected.wrapping_sub(before.corrected) {
                0 => EccStatus::Clean,
                bits => EccStatus::Corrected(
                    u16::try_from(bits).unwrap_or(u16::MAX).min(self.geometry.ecc.bits.max(1)),
                ),
            }
        })
    }

    /// Makes a request for a whole block, whose structure contains no addresses.
    fn block_request<T>(
        &self,
        operation: NandOperation,
        block: BlockNumber,
        request: (Opcode, T),
    ) -> Result<i32, NandError> {
        let (opcode, mut argument) = request;
        if block.0 >= self.geometry.blocks {
            let rule = "the block is outside of the part";
            return Err(NandError::Refused { operation, block: block.0, rule });
        }
        // SAFETY: the callers pass the structure of each opcode, and none of these contains an
        // address.
        #[allow(unsafe_code)]
        let answer = unsafe { abi::call(&self.device, opcode, &mut argument) };
        answer.map_err(|errno| self.error(operation, block, errno))
    }

    fn offset(&self, block: BlockNumber) -> u64 {
        u64::from(block.0) * self.geometry.block_bytes()
    }

    /// The meaning of a failed request.
    fn error(&self, operation: NandOperation, block: BlockNumber, errno: Errno) -> NandError {
        let writes = matches!(operation, NandOperation::Program | NandOperation::Erase);
        match errno {
            Errno::NODEV | Errno::NXIO => NandError::Gone,
            // The driver reports a failure of the part itself like this.
            Errno::IO if writes => NandError::Failed { operation, block: block.0 },
            _ => NandError::Io { operation, block: block.0, os_error: errno.raw_os_error() },
        }
    }
}

impl Nand for MtdNand {
    fn geometry(&self) -> NandGeometry {
        self.geometry
    }

    fn read(
        &mut self,
        page: PageAddress,
        data: &mut [u8],
        oob: &mut [u8],
    ) -> Result<EccStatus, NandError> {
        self.check(NandOperation::Read, page, data.len(), oob.len())?;
        let address = self.address(page);
        let read = match self.reading {
            Reading::Together => self.read_together(address, data),
            Reading::Apart { .. } => self.read_in_turn(address, data),
        };
        let block = self.geometry.block_of(page);
        let mut status = read.map_err(|errno| self.error(NandOperation::Read, block, errno))?;
        if !oob.is_empty() {
            let (shown, parity) = self.oob.split_at_mut(self.geometry.oob_size as usize);
            status = status.worst(match OOB_CODE.decode(shown, &mut [], parity) {
                Ok(0) => EccStatus::Clean,
                Ok(bits) => EccStatus::Corrected(bits as u16),
                Err(_) => EccStatus::Uncorrectable,
            });
            oob.iter_mut().zip(shown).for_each(|(to, from)| *to = *from);
        }
        Ok(status)
    }

    fn program(&mut self, page: PageAddress, data: &[u8], oob: &[u8]) -> Result<(), NandError> {
        self.check(NandOperation::Program, page, data.len(), oob.len())?;
        let block = self.geometry.block_of(page);
        self.oob.fill(0xff);
        let (shown, parity) = self.oob.split_at_mut(self.geometry.oob_size as usize);
        shown.iter_mut().zip(oob).for_each(|(to, from)| *to = *from);
        if OOB_CODE.encode(shown, &[], parity).is_err() {
            let rule = "too many out-of-band bytes";
            return Err(NandError::Refused {
                operation: NandOperation::Program,
                block: block.0,
                rule,
            });
        }
        let mut request = Request {
            start: self.address(page),
            length: data.len() as u64,
            oob_length: self.oob.len() as u64,
            data: data.as_ptr() as u64,
            oob: self.oob.as_ptr() as u64,
            mode: abi::AUTO_OOB,
            ..Request::default()
        };
        // SAFETY: MEMWRITE takes a `Request`. Its addresses and lengths are those of `data` and
        // `oob`, which the kernel reads.
        #[allow(unsafe_code)]
        let answer = unsafe { abi::call(&self.device, abi::MEMWRITE, &mut request) };
        answer.map(drop).map_err(|errno| self.error(NandOperation::Program, block, errno))
    }

    fn erase(&mut self, block: BlockNumber) -> Result<(), NandError> {
        let range = Range { start: self.offset(block), length: self.geometry.block_bytes() };
        self.block_request(NandOperation::Erase, block, (abi::MEMERASE64, range)).map(drop)
    }

    fn is_bad(&mut self, block: BlockNumber) -> Result<bool, NandError> {
        let request = (abi::MEMGETBADBLOCK, self.offset(block));
        Ok(self.block_request(NandOperation::IsBad, block, request)? > 0)
    }

    fn mark_bad(&mut self, block: BlockNumber) -> Result<(), NandError> {
        let request = (abi::MEMSETBADBLOCK, self.offset(block));
        self.block_request(NandOperation::MarkBad, block, request).map(drop)
    }
}
