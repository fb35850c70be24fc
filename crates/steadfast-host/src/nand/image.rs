//! An image of a part in a file, for tools and device programmers.
//!
//! The file consists of the pages of the part in order, each as data followed by out-of-band bytes.
//! `nanddump --oob --bb=dumpbad` writes this format, and `nandwrite --oob --noecc` reads it. All
//! bits of an erased page are one. The bad-block mark of a block is in the first out-of-band bytes
//! of its first or second page. It has two bytes, and all its bits are one in a good block.
//!
//! The image enforces the rules of NAND: a page is programmed only when it is erased, and a block
//! is erased as a whole. It does not check the order of pages.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use steadfast_flash::ecc::{Code, EccMisfit, EccNand, flips_if_erased};
use steadfast_flash::nand::{
    BlockNumber, Ecc, EccStatus, Nand, NandError, NandGeometry, NandOperation, PageAddress,
};
use steadfast_flash::part::Part;

use super::{HostNand, NandOpenError};
use crate::OpenError;
use crate::file::{lock_file, owner};
use crate::whole::MODE_PRIVATE;

/// Bytes of the bad-block mark, at the start of the out-of-band bytes.
const MARK: usize = 2;

/// A part in a file. Locked like an image file of a volume.
///
/// The file contains raw bytes. For a part without an internal code, wrap it in an [`EccNand`],
/// which computes the parities in the file.
#[derive(Debug)]
pub struct NandImage {
    file: File,
    geometry: NandGeometry,
    /// Bytes of a page including all out-of-band bytes.
    stride: usize,
    /// Largest number of flipped bits in a page that still counts as erased.
    flips_max: u32,
    /// One page, as it is in the file.
    page: Vec<u8>,
}

impl NandImage {
    /// Creates an image of an erased part without bad blocks. The file must not exist.
    ///
    /// # Errors
    /// The file exists, or cannot be created or written.
    pub fn create(path: impl AsRef<Path>, part: &Part) -> Result<NandImage, NandOpenError> {
        let path = path.as_ref();
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(MODE_PRIVATE).open(path);
        let file = file.map_err(|error| open_error(path, true, error))?;
        let image = NandImage::over(file, part);
        lock(path, &image.file, true)?;
        for block in 0..image.geometry.blocks {
            image.fill(BlockNumber(block)).map_err(|source| {
                let (path, action) = (path.to_owned(), "write");
                NandOpenError::Io { path, action, source }
            })?;
        }
        Ok(image)
    }

    /// Opens an image of `part`.
    ///
    /// # Errors
    /// The file does not exist, permission is denied, it is in use, or its length is wrong. Nothing
    /// was written.
    pub fn open(
        path: impl AsRef<Path>,
        part: &Part,
        writing: bool,
    ) -> Result<NandImage, NandOpenError> {
        Self::open_with(path.as_ref(), part, writing, true)
    }

    /// Opens an image of `part` for reading without a lock, while another process may write it. So
    /// the bytes may be from different times.
    ///
    /// # Errors
    /// As for [`open`](Self::open), except for an image in use.
    pub fn watch(path: impl AsRef<Path>, part: &Part) -> Result<NandImage, NandOpenError> {
        Self::open_with(path.as_ref(), part, false, false)
    }

    fn open_with(
        path: &Path,
        part: &Part,
        writing: bool,
        locked: bool,
    ) -> Result<NandImage, NandOpenError> {
        let file = OpenOptions::new().read(true).write(writing).open(path);
        let file = file.map_err(|error| open_error(path, writing, error))?;
        let image = NandImage::over(file, part);
        if locked {
            lock(path, &image.file, writing)?;
        }
        let has = image
            .file
            .metadata()
            .map_err(|source| NandOpenError::Io {
                path: path.to_owned(),
                action: "look at",
                source,
            })?
            .len();
        let needed = image.stride as u64 * u64::from(image.geometry.pages());
        if has != needed {
            return Err(NandOpenError::Length {
                path: path.to_owned(),
                part: part.name,
                has,
                needed,
            });
        }
        Ok(image)
    }

    /// Adds the code that the part needs, in software if the part has none.
    ///
    /// # Errors
    /// The part has no room for the parities.
    pub fn with_code(self, part: &Part) -> Result<HostNand, EccMisfit> {
        if part.ecc_on_die {
            return Ok(Box::new(self));
        }
        let code = match part.geometry.ecc.bits {
            0 | 1 => Code::Hamming512,
            2..=4 => Code::Bch4,
            _ => Code::Bch8,
        };
        Ok(Box::new(EccNand::new(self, code, part.geometry.oob_size)?))
    }

    fn over(file: File, part: &Part) -> NandImage {
        // An on-die code is not in the image: the part computes it when it is programmed.
        let geometry = match part.ecc_on_die {
            true => part.geometry,
            false => NandGeometry {
                oob_size: part.oob_raw - MARK as u32,
                ecc: Ecc::NONE,
                ..part.geometry
            },
        };
        let stride = (geometry.page_size + part.oob_raw) as usize;
        let flips_max = geometry.page_size / 512 * u32::from(part.geometry.ecc.bits.max(1));
        NandImage { file, geometry, stride, flips_max, page: vec![0xff; stride] }
    }

    /// Makes all programmed and erased pages durable.
    ///
    /// # Errors
    /// The system's error.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn offset(&self, page: PageAddress) -> u64 {
        u64::from(page.0) * self.stride as u64
    }

    fn fill(&self, block: BlockNumber) -> io::Result<()> {
        let erased = vec![0xff; self.stride * self.geometry.pages_per_block as usize];
        self.file.write_all_at(&erased, self.offset(self.geometry.page(block, 0)))
    }

    fn io(&self, operation: NandOperation, block: u32, error: &io::Error) -> NandError {
        NandError::Io { operation, block, os_error: error.raw_os_error().unwrap_or(0) }
    }

    fn check_block(&self, operation: NandOperation, block: BlockNumber) -> Result<(), NandError> {
        if block.0 < self.geometry.blocks {
            return Ok(());
        }
        let rule = "the block is outside of the part";
        Err(NandError::Refused { operation, block: block.0, rule })
    }

    /// Reads a page as it is in the file, after checking the lengths of a request.
    fn load(
        &mut self,
        operation: NandOperation,
        page: PageAddress,
        data: usize,
        oob: usize,
    ) -> Result<(), NandError> {
        let block = self.geometry.block_of(page);
        self.check_block(operation, block)?;
        let no_data = data == 0 && operation == NandOperation::Read;
        if data != self.geometry.page_size as usize && !no_data {
            let rule = "data is not a page long";
            return Err(NandError::Refused { operation, block: block.0, rule });
        }
        if oob > self.geometry.oob_size as usize {
            let rule = "more out-of-band bytes than the page has";
            return Err(NandError::Refused { operation, block: block.0, rule });
        }
        let offset = self.offset(page);
        let read = self.file.read_exact_at(&mut self.page, offset);
        read.map_err(|error| self.io(operation, block.0, &error))
    }

    /// The out-of-band bytes of the loaded page, after the mark.
    fn free(&mut self) -> &mut [u8] {
        let start = self.geometry.page_size as usize + MARK;
        self.page.get_mut(start..).unwrap_or_default()
    }
}

fn open_error(path: &Path, writing: bool, error: io::Error) -> NandOpenError {
    let at: PathBuf = path.to_owned();
    match error.kind() {
        io::ErrorKind::NotFound => OpenError::NotFound(at).into(),
        io::ErrorKind::AlreadyExists => OpenError::AlreadyExists(at).into(),
        io::ErrorKind::PermissionDenied => OpenError::PermissionDenied { path: at, writing }.into(),
        io::ErrorKind::ReadOnlyFilesystem => OpenError::WriteProtected(at).into(),
        _ => NandOpenError::Io { path: at, action: "open", source: error },
    }
}

fn lock(path: &Path, file: &File, writing: bool) -> Result<(), NandOpenError> {
    match lock_file(file, writing) {
        Ok(true) => Ok(()),
        Ok(false) => Err(OpenError::InUse { path: path.to_owned(), owner: owner(file) }.into()),
        Err(errno) => {
            let source = Errno::into(errno);
            Err(NandOpenError::Io { path: path.to_owned(), action: "lock", source })
        }
    }
}

impl Nand for NandImage {
    fn geometry(&self) -> NandGeometry {
        self.geometry
    }

    fn read(
        &mut self,
        page: PageAddress,
        data: &mut [u8],
        oob: &mut [u8],
    ) -> Result<EccStatus, NandError> {
        self.load(NandOperation::Read, page, data.len(), oob.len())?;
        data.iter_mut().zip(&self.page).for_each(|(to, from)| *to = *from);
        oob.iter_mut().zip(self.free()).for_each(|(to, from)| *to = *from);
        Ok(EccStatus::Clean)
    }

    fn program(&mut self, page: PageAddress, data: &[u8], oob: &[u8]) -> Result<(), NandError> {
        self.load(NandOperation::Program, page, data.len(), oob.len())?;
        let block = self.geometry.block_of(page).0;
        let operation = NandOperation::Program;
        let size = self.geometry.page_size as usize;
        let (data_now, oob_now) = self.page.split_at_checked(size).unwrap_or_default();
        let oob_now = oob_now.get(MARK..).unwrap_or_default();
        // As on a part: the code corrects bits that have flipped since the page was erased.
        let flips = flips_if_erased(data_now, self.flips_max);
        if flips.is_none() || flips_if_erased(oob_now, self.flips_max).is_none() {
            return Err(NandError::Refused { operation, block, rule: "the page is not erased" });
        }
        self.page.iter_mut().zip(data).for_each(|(to, from)| *to &= *from);
        self.free().iter_mut().zip(oob).for_each(|(to, from)| *to &= *from);
        let written = self.file.write_all_at(&self.page, self.offset(page));
        written.map_err(|error| self.io(operation, block, &error))
    }

    fn erase(&mut self, block: BlockNumber) -> Result<(), NandError> {
        self.check_block(NandOperation::Erase, block)?;
        self.fill(block).map_err(|error| self.io(NandOperation::Erase, block.0, &error))
    }

    fn is_bad(&mut self, block: BlockNumber) -> Result<bool, NandError> {
        for page in 0..2 {
            self.load(
                NandOperation::IsBad,
                self.geometry.page(block, page),
                self.geometry.page_size as usize,
                0,
            )?;
            let mark = self.page.get(self.geometry.page_size as usize);
            if mark.is_some_and(|mark| *mark != 0xff) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn mark_bad(&mut self, block: BlockNumber) -> Result<(), NandError> {
        self.check_block(NandOperation::MarkBad, block)?;
        let mark = self.offset(self.geometry.page(block, 0)) + u64::from(self.geometry.page_size);
        let written = self.file.write_all_at(&[0; MARK], mark);
        written.map_err(|error| self.io(NandOperation::MarkBad, block.0, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part() -> Part {
        Part::SLC_1GBIT.with_blocks(4)
    }

    #[test]
    fn pages_stay_in_the_file_with_their_parities() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("nand.bin");
        let data: Vec<u8> = (0..2048).map(|i| (i % 251) as u8).collect();
        {
            let image = NandImage::create(&path, &part()).unwrap();
            let mut nand = EccNand::new(image, Code::Hamming512, 32).unwrap();
            nand.program(PageAddress(65), &data, b"spare").unwrap();
            let again = nand.program(PageAddress(65), &data, b"spare");
            assert!(matches!(
                again,
                Err(NandError::Refused { rule: "the page is not erased", .. })
            ));
            nand.raw().sync().unwrap();
        }
        // A flipped bit in the file. The layout is: mark, spare bytes, and parities at the end.
        let mut bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 4 * 64 * 2112);
        let page = &mut bytes[65 * 2112..][..2112];
        assert!(
            page[..2048] == data && page[2048..2050] == [0xff; 2] && page[2050..2055] == *b"spare"
        );
        assert!(page[2112 - 15..] != [0xff; 15]);
        page[700] ^= 4;
        std::fs::write(&path, &bytes).unwrap();

        let image = NandImage::open(&path, &part(), true).unwrap();
        let mut nand = EccNand::new(image, Code::Hamming512, 32).unwrap();
        let (mut read, mut oob) = (vec![0; 2048], [0; 5]);
        assert_eq!(nand.read(PageAddress(65), &mut read, &mut oob), Ok(EccStatus::Corrected(1)));
        assert!(read == data && oob == *b"spare");
        nand.erase(BlockNumber(1)).unwrap();
        assert_eq!(nand.read(PageAddress(65), &mut read, &mut oob), Ok(EccStatus::Clean));
        assert_eq!(read, vec![0xff; 2048]);
        nand.program(PageAddress(65), &data, &[]).unwrap();
    }

    #[test]
    fn bad_blocks_stay_bad() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("nand.bin");
        let mut nand = NandImage::create(&path, &part()).unwrap();
        nand.program(PageAddress(64), &[0; 2048], &[]).unwrap();
        nand.mark_bad(BlockNumber(1)).unwrap();
        let bad: Vec<bool> = (0..4).map(|block| nand.is_bad(BlockNumber(block)).unwrap()).collect();
        assert_eq!(bad, [false, true, false, false]);
        assert!(nand.is_bad(BlockNumber(4)).is_err() && nand.erase(BlockNumber(4)).is_err());
        assert!(nand.read(PageAddress(256), &mut [], &mut []).is_err());
        let line = NandImage::open(&path, &part(), true).unwrap_err().to_string();
        assert!(line.contains("in use by another process"), "{line}");
        assert!(NandImage::watch(&path, &part()).unwrap().is_bad(BlockNumber(1)).unwrap());
    }

    #[test]
    fn what_is_no_image_of_the_part_is_one_clear_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("nand.bin");
        std::fs::write(&path, [0; 100]).unwrap();
        let line = NandImage::open(&path, &part(), false).unwrap_err().to_string();
        assert!(
            line.ends_with(
                "has 100 bytes, an image of slc-1gbit has 540672; name the part that it is of"
            ),
            "{line}"
        );
        let line = NandImage::create(&path, &part()).unwrap_err().to_string();
        assert!(line.contains("exists already"), "{line}");
        for path in [path.as_path(), Path::new("/dev/null")] {
            let line = super::super::MtdNand::open(path, false).unwrap_err().to_string();
            assert!(line.contains("is no MTD character device"), "{line}");
        }
        let line = super::super::MtdNand::open("/dev/mtd-none", false).unwrap_err().to_string();
        assert!(line.contains("no such file"), "{line}");
    }
}
