//! Other mounts of a file system that is mounted: bind mounts, and the copies that a new mount
//! namespace begins with.
//!
//! The kernel ends a FUSE file system when its last mount is gone, in whatever namespace. Until
//! then the daemon serves it.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::mounts::unescape;

const OWN: &str = "/proc/self/mountinfo";

/// A mounted file system.
pub struct FileSystem {
    /// `MAJOR:MINOR` of its device number.
    device: Vec<u8>,
    source: Vec<u8>,
}

/// Another mount of it.
#[derive(Debug, PartialEq, Eq)]
pub enum OtherMount {
    /// In the same mount namespace.
    Here(PathBuf),
    /// In the mount namespace of this process.
    Elsewhere {
        /// Its number.
        process: u32,
        /// Its name.
        name: String,
    },
}

impl fmt::Display for OtherMount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OtherMount::Here(directory) => {
                write!(f, "it is also mounted on {}", directory.display())
            }
            OtherMount::Elsewhere { process, name } => {
                write!(f, "process {process} ({name}) has it in another mount namespace")
            }
        }
    }
}

impl FileSystem {
    /// The one whose root is mounted on `directory`; the last of several.
    ///
    /// # Errors
    /// `/proc` is not mounted.
    pub fn at(directory: &Path) -> io::Result<Option<FileSystem>> {
        let table = fs::read(OWN)?;
        let found = lines(&table).filter(|line| line.directory() == directory).last();
        Ok(found
            .map(|line| FileSystem { device: line.device.to_vec(), source: line.source.to_vec() }))
    }

    /// Another mount in the mount namespace of this process.
    pub fn copy_here(&self) -> Option<OtherMount> {
        self.directory_in(&fs::read(OWN).ok()?).map(OtherMount::Here)
    }

    /// Another mount, as far as this process may see.
    pub fn copy(&self) -> Option<OtherMount> {
        if let Some(here) = self.copy_here() {
            return Some(here);
        }
        fs::read_dir("/proc").ok()?.filter_map(Result::ok).find_map(|entry| {
            let process = entry.file_name().to_str()?.parse().ok()?;
            let folder = entry.path();
            self.directory_in(&fs::read(folder.join("mountinfo")).ok()?)?;
            let name = fs::read_to_string(folder.join("comm")).unwrap_or_default();
            Some(OtherMount::Elsewhere { process, name: name.trim().to_owned() })
        })
    }

    fn directory_in(&self, table: &[u8]) -> Option<PathBuf> {
        let mut lines = lines(table);
        let found = lines.find(|line| line.device == self.device && line.source == self.source);
        found.map(|line| line.directory().into())
    }
}

struct Line<'a> {
    device: &'a [u8],
    directory: &'a [u8],
    source: &'a [u8],
}

impl Line<'_> {
    fn directory(&self) -> OsString {
        unescape(self.directory)
    }
}

/// The lines of a table such as `36 35 0:30 / /mnt rw shared:1 - fuse.steadfast /images/a.img rw`.
fn lines(table: &[u8]) -> impl Iterator<Item = Line<'_>> {
    table.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ');
        let device = fields.nth(2)?;
        let directory = fields.nth(1)?;
        let source = fields.skip_while(|field| *field != b"-").nth(2)?;
        Some(Line { device, directory, source })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn found_by_device_and_source() {
        let table = b"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
            90 22 0:50 / /mnt/my\\040disk rw shared:3 - fuse.steadfast /img/a.img rw,user_id=0\n\
            92 22 0:50 /sub /mnt/bind ro - fuse.steadfast /img/a.img ro\n\
            93 22 0:51 / /mnt/c rw - fuse.steadfast /img/c.img rw\n\
            broken line\n";
        let of = |device: &[u8], source: &[u8]| {
            let file_system = FileSystem { device: device.to_vec(), source: source.to_vec() };
            file_system.directory_in(table)
        };
        assert_eq!(of(b"0:50", b"/img/a.img"), Some("/mnt/my disk".into()));
        assert_eq!(of(b"0:51", b"/img/c.img"), Some("/mnt/c".into()));
        // A number that was given away again.
        assert_eq!(of(b"0:51", b"/img/a.img"), None);
    }
}
