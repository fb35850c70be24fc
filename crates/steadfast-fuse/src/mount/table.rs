//! The mount table of this process (`/proc/self/mountinfo`).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountEntry {
    /// Device number of the file system, major and minor.
    pub(crate) device: (u32, u32),
    /// The mount point.
    pub(crate) directory: PathBuf,
}

/// The topmost mount at exactly this canonical path.
pub(crate) fn find(directory: &Path) -> Option<MountEntry> {
    let table = std::fs::read("/proc/self/mountinfo").ok()?;
    table.split(|byte| *byte == b'\n').filter_map(parse).rfind(|entry| entry.directory == directory)
}

fn parse(line: &[u8]) -> Option<MountEntry> {
    // "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw"
    let mut fields = line.split(|byte| *byte == b' ').skip(2);
    let (major, minor) = std::str::from_utf8(fields.next()?).ok()?.split_once(':')?;
    let device = (major.parse().ok()?, minor.parse().ok()?);
    let directory = unescape(fields.nth(1)?);
    Some(MountEntry { device, directory: PathBuf::from(OsString::from_vec(directory)) })
}

/// The table has space, tab, newline and backslash as three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        if *first == b'\\'
            && let Some(digits) = tail.get(..3)
            && digits.iter().all(|digit| (b'0'..=b'7').contains(digit))
        {
            out.push(
                digits
                    .iter()
                    .fold(0u8, |value, digit| value.wrapping_mul(8).wrapping_add(digit - b'0')),
            );
            rest = &tail[3..];
        } else {
            out.push(*first);
            rest = tail;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_a_line_with_escapes() {
        let entry =
            parse(br"36 35 0:51 / /mnt/a\040b\134c rw,noatime master:1 - fuse.steadfast x rw")
                .unwrap();
        assert_eq!(entry, MountEntry { device: (0, 51), directory: PathBuf::from(r"/mnt/a b\c") });
    }

    #[test]
    fn ignores_what_it_does_not_understand() {
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"1 2 x / /"), None);
    }

    #[test]
    fn finds_proc() {
        assert!(find(Path::new("/proc")).is_some());
        assert!(find(Path::new("/proc/self/nonsense")).is_none());
    }
}
