//! Identifies an MTD device and its other users, from its node, `/sys` and the tables of mounts.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::linux::fs::MetadataExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::str::FromStr;

use rustix::fs::{major, minor};
use rustix::io::Errno;
use steadfast_flash::ecc::Code;
use steadfast_flash::nand::{Ecc, NandGeometry, Pairing};

use super::NandOpenError;
use super::abi::{self, Info};
use crate::OpenError;
use crate::file::{lock_file, owner};

/// The major number of MTD character devices.
const MTD_MAJOR: u32 = 90;

/// The code for the free out-of-band bytes, which the codes of most drivers do not cover.
pub(super) const OOB_CODE: Code = Code::Hamming256;

/// Largest number of exposed out-of-band bytes.
const OOB_MAX: u32 = 64;

/// An open device and its properties.
pub(super) struct OpenMtd {
    pub(super) file: File,
    pub(super) geometry: NandGeometry,
}

/// Opens and identifies the device. `locked`: takes an exclusive lock for writing, a shared lock
/// for reading.
pub(super) fn open(path: &Path, writing: bool, locked: bool) -> Result<OpenMtd, NandOpenError> {
    let opened = OpenOptions::new().read(true).write(writing).open(path);
    let file = opened.map_err(|error| open_error(path, writing, error))?;
    let failed = |action| move |source| NandOpenError::Io { path: path.to_owned(), action, source };
    let metadata = file.metadata().map_err(failed("look at"))?;
    let device = metadata.st_rdev();
    if !metadata.file_type().is_char_device() || major(device) != MTD_MAJOR {
        return Err(NandOpenError::NotMtd(path.to_owned()));
    }
    let mut info = Info::default();
    // SAFETY: MEMGETINFO fills one `Info`, which contains no addresses.
    #[allow(unsafe_code)]
    let asked = unsafe { abi::call(&file, abi::MEMGETINFO, &mut info) };
    asked.map_err(|errno| failed("ask for the size of")(errno.into()))?;
    let what = match info.kind {
        abi::TYPE_NAND | abi::TYPE_MLC_NAND => None,
        1 | 2 => Some("RAM or ROM"),
        3 => Some("NOR flash"),
        6 => Some("data flash"),
        7 => Some("a volume of UBI"),
        _ => Some("of an unknown kind"),
    };
    if let Some(what) = what {
        return Err(NandOpenError::NotNand { path: path.to_owned(), what });
    }
    if writing && info.flags & abi::WRITEABLE == 0 {
        return Err(OpenError::WriteProtected(path.to_owned()).into());
    }
    // The minor numbers also count read-only devices.
    let number = minor(device) / 2;
    if writing && let Some(user) = user(number) {
        return Err(NandOpenError::UsedBy { path: path.to_owned(), user });
    }
    if locked {
        match lock_file(&file, writing) {
            Ok(true) => {}
            Ok(false) => {
                let owner = owner(&file);
                return Err(OpenError::InUse { path: path.to_owned(), owner }.into());
            }
            Err(errno) => return Err(failed("lock")(errno.into())),
        }
    }
    let geometry = geometry(path, number, &info)?;
    Ok(OpenMtd { file, geometry })
}

fn open_error(path: &Path, writing: bool, error: io::Error) -> NandOpenError {
    let path = path.to_owned();
    match Errno::from_io_error(&error) {
        Some(Errno::NOENT) => OpenError::NotFound(path).into(),
        Some(Errno::ACCESS | Errno::PERM) => OpenError::PermissionDenied { path, writing }.into(),
        Some(Errno::ROFS) => OpenError::WriteProtected(path).into(),
        // A UBI volume or another exclusive user holds it.
        Some(Errno::BUSY) => OpenError::DeviceInUse(path).into(),
        Some(Errno::NODEV | Errno::NXIO) => NandOpenError::NotMtd(path),
        _ => NandOpenError::Io { path, action: "open", source: error },
    }
}

fn attribute<T: FromStr>(number: u32, name: &str) -> Option<T> {
    fs::read_to_string(format!("/sys/class/mtd/mtd{number}/{name}")).ok()?.trim().parse().ok()
}

fn geometry(path: &Path, number: u32, info: &Info) -> Result<NandGeometry, NandOpenError> {
    let size: u64 = attribute(number, "size").unwrap_or_else(|| info.size.into());
    let available: u32 = attribute(number, "oobavail").unwrap_or(0);
    let parity = OOB_CODE.parity_bytes() as u32;
    // The translation layer itself checks whether the spare bytes suffice for its metadata.
    let oob_size = available.saturating_sub(parity).min(OOB_MAX) & !1;
    if oob_size == 0 {
        let path = path.to_owned();
        return Err(NandOpenError::OutOfBand { path, has: available, needed: parity + 2 });
    }
    let mlc = info.kind == abi::TYPE_MLC_NAND;
    let blocks = size.checked_div(info.erase_size.into()).unwrap_or(0);
    let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
    NandGeometry {
        page_size: info.write_size,
        oob_size,
        pages_per_block: info.erase_size.checked_div(info.write_size).unwrap_or(0),
        blocks,
        partial_programs: 1,
        in_order: true,
        ecc: Ecc {
            bits: attribute(number, "ecc_strength").unwrap_or(1),
            codeword: attribute(number, "ecc_step_size").unwrap_or(512),
        },
        pairing: if mlc { Pairing::Distance3 } else { Pairing::None },
        // The kernel does not report it: the usual rating of such parts.
        cycles: if mlc { 3_000 } else { 50_000 },
        bad_max: (blocks / 50).max(2),
    }
    .checked()
    .map_err(|why| NandOpenError::Geometry { path: path.to_owned(), why })
}

/// The other user of the device: UBI or a mount.
fn user(number: u32) -> Option<String> {
    let ubi = fs::read_dir("/sys/class/ubi").into_iter().flatten().flatten().find_map(|entry| {
        let mtd = fs::read_to_string(entry.path().join("mtd_num")).ok()?;
        let name = entry.file_name();
        (mtd.trim().parse() == Ok(number)).then(|| format!("UBI ({})", name.display()))
    });
    ubi.or_else(|| mount(&fs::read_to_string("/proc/self/mounts").ok()?, number))
}

/// The mount of MTD device `number` in a table of mounts.
fn mount(table: &str, number: u32) -> Option<String> {
    let sources =
        [format!("mtd{number}"), format!("/dev/mtdblock{number}"), format!("/dev/mtd{number}")];
    table.lines().find_map(|line| {
        let mut words = line.split(' ');
        let source = words.next()?;
        let directory = words.next()?;
        sources.iter().any(|known| known == source).then(|| format!("a mount on {directory}"))
    })
}

#[cfg(test)]
mod tests {
    use super::mount;

    #[test]
    fn mounts_of_the_device_are_found() {
        let table = "proc /proc proc rw 0 0\nmtd1 /data jffs2 rw,relatime 0 0\n/dev/mtdblock12 /x squashfs ro 0 0\n";
        assert_eq!(mount(table, 1).as_deref(), Some("a mount on /data"));
        assert_eq!(mount(table, 12).as_deref(), Some("a mount on /x"));
        assert_eq!(mount(table, 2), None);
    }
}
