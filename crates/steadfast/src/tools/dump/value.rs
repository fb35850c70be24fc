//! The content of a value, in one line.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::format::Superblock;
use crate::format::dirent::Dirent;
use crate::format::extent::Extent;
use crate::format::inode::Inode;
use crate::format::key::{Key, Kind};
use crate::fs::FileFlags;
use crate::tools::dump::hex;
use crate::tools::dump::structures::time_text;

/// Bytes of unknown or long values that are shown.
const SHOWN: usize = 48;
/// Checksums of an extent that are shown.
const CHECKSUMS_SHOWN: usize = 8;

/// The value of `key` for people; a value that does not decode is shown in hexadecimal.
pub(super) fn text(superblock: &Superblock, key: &Key, value: &[u8]) -> String {
    let known = match key.kind() {
        Some(Kind::Inode) => Inode::decode(value).ok().map(|inode| inode_text(&inode)),
        Some(Kind::Dirent) => Dirent::decode(value).ok().map(|entry| {
            format!("{:?} {} inode {}", entry.kind, name_text(&entry.name), entry.inode.0)
        }),
        Some(Kind::Xattr) => {
            Some(format!("piece {}: {}", key.suffix() & 0xffff, bytes_text(value)))
        }
        Some(Kind::Symlink | Kind::Inline) => Some(bytes_text(value)),
        Some(Kind::Extent) => {
            let per_block = superblock.block_size / superblock.checksum_granule().max(1);
            Extent::decode(value, per_block).ok().map(|extent| extent_text(&extent))
        }
        Some(Kind::Group) => group_text(value),
        Some(Kind::Orphan) => Some(format!("inode {}", key.suffix())),
        _ => None,
    };
    known.unwrap_or_else(|| format!("{} bytes: {}", value.len(), shown(value)))
}

fn inode_text(inode: &Inode) -> String {
    let mut text = format!(
        "{:?} mode {:04o} uid {} gid {} links {} size {} blocks {} flags {:#x} atime {} mtime {} ctime {} created {}",
        inode.kind,
        inode.permissions,
        inode.uid,
        inode.gid,
        inode.links,
        inode.size,
        inode.blocks,
        inode.flags,
        time_text(&inode.accessed),
        time_text(&inode.modified),
        time_text(&inode.changed),
        time_text(&inode.created),
    );
    let names = [
        (FileFlags::IMMUTABLE, " immutable"),
        (FileFlags::APPEND_ONLY, " append-only"),
        (FileFlags::NO_DUMP, " no-dump"),
        (FileFlags::NO_ACCESS_TIME, " no-access-time"),
    ];
    for (flag, name) in names {
        if inode.file_flags().intersects(flag) {
            text += name;
        }
    }
    if inode.device != 0 {
        text += &format!(" device {:#x}", inode.device);
    }
    if inode.parent.0 != 0 {
        text += &format!(" parent {}", inode.parent.0);
    }
    text
}

fn extent_text(extent: &Extent) -> String {
    let run = extent.run();
    let place = format!("blocks {}..{} birth {}", run.start.0, run.end(), extent.birth.0);
    if extent.unwritten {
        return format!("{place} unwritten");
    }
    let sums: Vec<String> =
        extent.checksums.iter().take(CHECKSUMS_SHOWN).map(|crc| format!("{crc:08x}")).collect();
    let more = if extent.checksums.len() > CHECKSUMS_SHOWN { " ..." } else { "" };
    format!("{place} crc {}{more}", sums.join(" "))
}

fn group_text(value: &[u8]) -> Option<String> {
    match value {
        [1] => Some("everything in use".into()),
        [2, bitmap @ ..] => {
            let used: u32 = bitmap.iter().map(|byte| byte.count_ones()).sum();
            Some(format!("{used} blocks in use: {}", shown(bitmap)))
        }
        _ => None,
    }
}

fn bytes_text(bytes: &[u8]) -> String {
    match core::str::from_utf8(bytes) {
        Ok(text) if bytes.len() <= SHOWN && !text.chars().any(char::is_control) => {
            format!("{text:?}")
        }
        _ => format!("{} bytes: {}", bytes.len(), shown(bytes)),
    }
}

fn name_text(name: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(name))
}

fn shown(bytes: &[u8]) -> String {
    let more = if bytes.len() > SHOWN { "..." } else { "" };
    format!("{}{more}", hex(&bytes[..bytes.len().min(SHOWN)]))
}
