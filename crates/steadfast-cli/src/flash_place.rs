//! Where NAND is: an MTD device, or an image of a part in a file. Either the whole of it or a range
//! of its erase blocks.
//!
//! `/dev/mtd0` is a whole device, `/dev/mtd0@64..512` its erase blocks 64 to 511. An image is
//! recognised by its length and by an anchor of the translation layer in it. For an image without
//! an anchor the part has to be named.

use std::fs::{self, File};
use std::ops::Range;
use std::os::linux::fs::MetadataExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};

use steadfast_flash::ftl::{self, Shape};
use steadfast_flash::nand::{Nand, NandGeometry, Partition};
use steadfast_flash::part::Part;
use steadfast_host::nand::{HostNand, MtdNand, NandImage};

use crate::failure::{Exit, Failure, Outcome};
use crate::open_failure;

/// The major number of MTD character devices.
const MTD_MAJOR: u32 = 90;
/// Erase blocks at the start of a volume that may hold its anchors.
const ANCHORS_WITHIN: u32 = 16;

/// How the NAND is accessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backing {
    /// Through the kernel's driver.
    Mtd,
    /// Through a file, which is an image of this part.
    Image(Part),
}

/// How NAND is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NandAccess {
    /// For reading, shared with other readers.
    Read,
    /// For reading, even while another process writes.
    Watch,
    /// For writing, exclusively.
    Write,
}

/// A place where NAND is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlashPlace {
    /// The device or file, without a range of blocks.
    pub path: PathBuf,
    /// Its erase blocks, if not all of them.
    pub blocks: Option<Range<u32>>,
    /// The access to it.
    pub backing: Backing,
}

impl FlashPlace {
    /// The NAND at `path`; `None` if the path is something else or does not exist.
    pub fn find(path: &Path) -> Option<FlashPlace> {
        let (path, blocks) = split(path);
        let metadata = fs::metadata(&path).ok()?;
        let kind = metadata.file_type();
        if kind.is_char_device() && rustix::fs::major(metadata.st_rdev()) == MTD_MAJOR {
            return Some(FlashPlace { path, blocks, backing: Backing::Mtd });
        }
        if !kind.is_file() {
            return None;
        }
        let part = part_of_image(&path, metadata.st_size(), blocks.clone())?;
        Some(FlashPlace { path, blocks, backing: Backing::Image(part) })
    }

    /// Whether a device or file exists at `path`, which may include a range of blocks.
    pub fn exists(path: &Path) -> bool {
        split(path).0.exists()
    }

    /// The NAND at `path`. An image counts as one of `part`, whatever it contains. The number of
    /// its erase blocks follows from the length of the file.
    ///
    /// # Errors
    /// It is neither a device nor an image of this part.
    pub fn named(path: &Path, part: &Part) -> Outcome<FlashPlace> {
        let (file, blocks) = split(path);
        let metadata = fs::metadata(&file).map_err(|error| Failure::host(&error, "open", path))?;
        if !metadata.is_file() {
            return Self::find(path).ok_or_else(|| not_flash(path));
        }
        let count = metadata.st_size() / block_raw(part);
        let whole = metadata.st_size().is_multiple_of(block_raw(part));
        let count = u32::try_from(count).ok().filter(|count| *count > 0 && whole);
        let Some(count) = count.filter(|count| *count <= NandGeometry::BLOCKS_MAX) else {
            return Err(Failure::new(
                Exit::NotAVolume,
                format!("{} bytes are no image of {}", metadata.st_size(), part.name),
                path.display(),
                format!(
                    "an erase block of it has {} bytes in an image: name the right part",
                    block_raw(part)
                ),
            ));
        };
        Ok(FlashPlace { path: file, blocks, backing: Backing::Image(part.with_blocks(count)) })
    }

    /// Opens the NAND.
    ///
    /// # Errors
    /// It cannot be used, or lacks some of the given erase blocks; nothing was written.
    pub fn open(&self, access: NandAccess) -> Outcome<HostNand> {
        let failed = |error| open_failure::of_flash(error, &self.path);
        let writing = access == NandAccess::Write;
        let nand: HostNand = match (&self.backing, access) {
            (Backing::Mtd, NandAccess::Watch) => {
                Box::new(MtdNand::watch(&self.path).map_err(failed)?)
            }
            (Backing::Mtd, _) => Box::new(MtdNand::open(&self.path, writing).map_err(failed)?),
            (Backing::Image(part), access) => {
                let image = match access {
                    NandAccess::Watch => NandImage::watch(&self.path, part),
                    _ => NandImage::open(&self.path, part, writing),
                };
                self.with_code(image.map_err(failed)?, part)?
            }
        };
        self.partition(nand)
    }

    /// Makes the image of an erased part, in a new file.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn create(path: &Path, part: &Part) -> Outcome<(FlashPlace, HostNand)> {
        let (file, blocks) = split(path);
        let place = FlashPlace { path: file, blocks, backing: Backing::Image(*part) };
        let image = NandImage::create(&place.path, part);
        let nand =
            place.with_code(image.map_err(|error| open_failure::of_flash(error, path))?, part)?;
        let nand = place.partition(nand);
        if nand.is_err() {
            let _ = fs::remove_file(&place.path);
        }
        Ok((place, nand?))
    }

    fn with_code(&self, image: NandImage, part: &Part) -> Outcome<HostNand> {
        image.with_code(part).map_err(|error| {
            Failure::new(Exit::Failed, error.to_string(), self.path.display(), "use another part")
        })
    }

    fn partition(&self, nand: HostNand) -> Outcome<HostNand> {
        let Some(blocks) = self.blocks.clone() else { return Ok(nand) };
        let last = nand.geometry().blocks;
        let partition = Partition::new(nand, blocks).map_err(|error| {
            let advice = format!("name a range within 0..{last}");
            Failure::new(Exit::Usage, error.to_string(), self.path.display(), advice)
        })?;
        Ok(Box::new(partition))
    }

    /// The name of the part, or "NAND" if it is unknown.
    pub fn part_name(&self) -> String {
        match &self.backing {
            Backing::Image(part) => part.name.to_owned(),
            Backing::Mtd => {
                let device = self.path.file_name().unwrap_or_default().display();
                let name =
                    fs::read_to_string(format!("/sys/class/mtd/{device}/name")).unwrap_or_default();
                let name = name.trim().replace(|c: char| c.is_control(), "?");
                if name.is_empty() { "NAND".to_owned() } else { name }
            }
        }
    }
}

/// The failure for a path without NAND.
pub fn not_flash(path: &Path) -> Failure {
    if let Err(error) = fs::metadata(split(path).0) {
        return Failure::host(&error, "open", path);
    }
    Failure::new(
        Exit::NotAVolume,
        "neither an MTD device nor an image of a NAND part with a flash volume",
        path.display(),
        "give a device such as /dev/mtd0, name the part of the image (--part), or make a volume ('flash format')",
    )
}

/// Bytes of an erase block in an image.
fn block_raw(part: &Part) -> u64 {
    u64::from(part.geometry.page_size + part.oob_raw) * u64::from(part.geometry.pages_per_block)
}

/// Splits a path and the range of blocks after its last `@`. If the whole text is an existing path,
/// it is not split.
fn split(path: &Path) -> (PathBuf, Option<Range<u32>>) {
    let whole = || (path.to_owned(), None);
    if fs::symlink_metadata(path).is_ok() {
        return whole();
    }
    let bytes = path.as_os_str().as_bytes();
    let Some(at) = bytes.iter().rposition(|byte| *byte == b'@') else { return whole() };
    let (device, range) = bytes.split_at(at);
    let Some(range) = range.get(1..).and_then(|range| std::str::from_utf8(range).ok()) else {
        return whole();
    };
    let parsed = range
        .split_once("..")
        .and_then(|(start, end)| Some(start.parse().ok()?..end.parse().ok()?));
    match parsed {
        Some(range) => (PathBuf::from(std::ffi::OsStr::from_bytes(device)), Some(range)),
        None => whole(),
    }
}

/// The part that the file is an image of: the length matches, and an anchor in the file confirms
/// it.
fn part_of_image(path: &Path, length: u64, blocks: Option<Range<u32>>) -> Option<Part> {
    let file = File::open(path).ok()?;
    Part::ALL.into_iter().find_map(|part| {
        let raw = block_raw(&part);
        let count = u32::try_from(length / raw).ok().filter(|_| length.is_multiple_of(raw))?;
        let seen = blocks.clone().unwrap_or(0..count);
        let mut page = vec![0; part.geometry.page_size as usize];
        let fits = |shape: Shape| {
            let Shape { blocks, pages_per_block, page_size } = shape;
            let geometry = part.geometry;
            (pages_per_block, page_size) == (geometry.pages_per_block, geometry.page_size)
                && Some(blocks) == seen.end.checked_sub(seen.start)
        };
        let anchors = seen.start..seen.end.min(seen.start.saturating_add(ANCHORS_WITHIN));
        let mut found = anchors.map(|block| {
            file.read_exact_at(&mut page, u64::from(block) * raw).ok()?;
            ftl::shape(&page)
        });
        found.any(|shape| shape.is_some_and(fits)).then(|| part.with_blocks(count))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_told_from_names() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| split(&directory.path().join(name));
        let plain = directory.path().join("mtd0");
        assert_eq!(at("mtd0@64..512"), (plain.clone(), Some(64..512)));
        assert_eq!(at("mtd0"), (plain, None));
        for name in ["mtd0@64", "mtd0@..", "mtd0@a..b", "mtd0@-1..4", "mtd0@5000000000..6000000000"]
        {
            assert_eq!(at(name), (directory.path().join(name), None));
        }
        fs::write(directory.path().join("mtd0@1..2"), "").unwrap();
        assert_eq!(at("mtd0@1..2"), (directory.path().join("mtd0@1..2"), None));
    }
}
