//! The source of an image: a tree of entries in memory. The contents of files stay where they come
//! from.
//!
//! A directory, an archive and a manifest all become the same tree, and later entries replace
//! earlier ones. The tree is sorted by path, so the order of the input does not change the image. A
//! directory always comes before its contents.

mod archive;
mod directory;
mod manifest;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};
use steadfast::Timestamp;

use crate::failure::{Exit, Failure, Outcome};

pub use archive::add_archive;
pub use directory::add_directory;
pub use manifest::add_manifest;

/// The bytes of a regular file.
#[derive(Debug, Clone)]
pub enum Content {
    /// A file of the host, opened when needed.
    Host(PathBuf),
    /// Part of an open file: an archive.
    Part {
        /// The archive.
        file: Arc<File>,
        /// Where the part starts, bytes.
        offset: u64,
    },
    /// These bytes.
    Bytes(Vec<u8>),
    /// Only zeros.
    Hole,
}

/// The type of an entry, with what depends on the type.
#[derive(Debug, Clone)]
pub enum Node {
    /// A directory.
    Directory,
    /// A regular file of `size` bytes.
    Regular {
        /// Its bytes.
        content: Content,
        /// Number of bytes.
        size: u64,
    },
    /// A symbolic link to this target.
    Symlink(Vec<u8>),
    /// Another name for the entry at this path.
    Hardlink(Vec<u8>),
    /// A FIFO.
    Fifo,
    /// A socket.
    Socket,
    /// A character device with this number.
    CharDevice(u32),
    /// A block device with this number.
    BlockDevice(u32),
}

/// One entry of the tree.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The type.
    pub node: Node,
    /// Permission bits, the low twelve.
    pub permissions: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Modification time.
    pub modified: Timestamp,
    /// Extended attributes by name.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Entry {
    /// A directory with default attributes.
    pub fn directory() -> Entry {
        Entry {
            node: Node::Directory,
            permissions: 0o755,
            uid: 0,
            gid: 0,
            modified: Timestamp::default(),
            xattrs: BTreeMap::new(),
        }
    }

    /// Bytes of data.
    pub fn size(&self) -> u64 {
        match self.node {
            Node::Regular { size, .. } => size,
            _ => 0,
        }
    }
}

/// The tree: entries by path, without a slash at either end. The root has the empty path.
#[derive(Debug, Default)]
pub struct SourceTree {
    /// See the type.
    pub entries: BTreeMap<Vec<u8>, Entry>,
}

impl SourceTree {
    /// Adds or replaces an entry, and makes missing directories on its path.
    ///
    /// # Errors
    /// The part of the path that is not a directory.
    pub fn insert(&mut self, path: Vec<u8>, entry: Entry) -> Result<(), Vec<u8>> {
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        let mut above: Vec<usize> = if path.is_empty() { Vec::new() } else { vec![0] };
        above.extend(slashes);
        for end in above {
            let parent = self.entries.entry(path[..end].to_vec()).or_insert_with(Entry::directory);
            if !matches!(parent.node, Node::Directory) {
                return Err(path[..end].to_vec());
            }
        }
        if !matches!(entry.node, Node::Directory) {
            // The entries below a directory are dropped if another type replaces it.
            let mut below = path.clone();
            below.push(b'/');
            self.entries.retain(|known, _| !known.starts_with(&below));
        }
        self.entries.insert(path, entry);
        Ok(())
    }

    /// The newest modification time.
    pub fn newest(&self) -> Timestamp {
        self.entries.values().map(|entry| entry.modified).max().unwrap_or_default()
    }

    /// Lowers later times to `latest`.
    pub fn clamp_times(&mut self, latest: Timestamp) {
        for entry in self.entries.values_mut() {
            entry.modified = entry.modified.min(latest);
        }
    }

    /// A UUID (version 8) derived from everything except the contents of files, and from `seed`.
    pub fn uuid(&self, seed: &str) -> [u8; 16] {
        let mut hash = Sha256::new();
        let mut add = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        add(seed.as_bytes());
        for (path, entry) in &self.entries {
            add(path);
            let (kind, text, number): (u8, &[u8], u64) = match &entry.node {
                Node::Directory => (b'd', b"", 0),
                Node::Regular { size, .. } => (b'f', b"", *size),
                Node::Symlink(target) => (b'l', target, 0),
                Node::Hardlink(target) => (b'h', target, 0),
                Node::Fifo => (b'p', b"", 0),
                Node::Socket => (b's', b"", 0),
                Node::CharDevice(number) => (b'c', b"", u64::from(*number)),
                Node::BlockDevice(number) => (b'b', b"", u64::from(*number)),
            };
            add(&[kind]);
            add(text);
            add(&number.to_le_bytes());
            for number in [entry.permissions, entry.uid, entry.gid, entry.modified.nanoseconds] {
                add(&number.to_le_bytes());
            }
            add(&entry.modified.seconds.to_le_bytes());
            for (name, value) in &entry.xattrs {
                add(name);
                add(value);
            }
        }
        let digest = hash.finalize();
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&digest[..16]);
        uuid[6] = uuid[6] & 0x0f | 0x80;
        uuid[8] = uuid[8] & 0x3f | 0x80;
        uuid
    }
}

/// Converts a path from outside to the form of the tree: without `.` and without slashes at the
/// ends.
///
/// # Errors
/// A path with `..`, a NUL, or a name of more than 255 bytes.
pub fn normal_path(path: &[u8], place: &Path) -> Outcome<Vec<u8>> {
    let mut normal: Vec<u8> = Vec::with_capacity(path.len());
    for name in path.split(|byte| *byte == b'/') {
        if name.is_empty() || name == b"." {
            continue;
        }
        if name == b".." || name.contains(&0) || name.len() > 255 {
            return Err(Failure::new(
                Exit::Failed,
                format!("'{}' cannot be a path in an image", String::from_utf8_lossy(path)),
                place.display(),
                "take out '..' and names of more than 255 bytes",
            ));
        }
        if !normal.is_empty() {
            normal.push(b'/');
        }
        normal.extend_from_slice(name);
    }
    Ok(normal)
}

/// A device number in the form of the kernel's `new_encode_dev`.
pub fn device_number(major: u32, minor: u32) -> u32 {
    minor & 0xff | (major & 0xfff) << 8 | (minor & !0xff) << 12
}

/// Reads the bytes of a regular file.
pub struct ContentReader<'a> {
    inner: Inner<'a>,
    left: u64,
}

enum Inner<'a> {
    Host(File),
    Part { file: &'a File, offset: u64 },
    Bytes(&'a [u8]),
    Hole,
}

impl<'a> ContentReader<'a> {
    /// Opens the content to read its first `size` bytes.
    ///
    /// # Errors
    /// Those of the host.
    pub fn open(content: &'a Content, size: u64) -> io::Result<ContentReader<'a>> {
        let inner = match content {
            Content::Host(path) => Inner::Host(File::open(path)?),
            Content::Part { file, offset } => Inner::Part { file, offset: *offset },
            Content::Bytes(bytes) => Inner::Bytes(bytes),
            Content::Hole => Inner::Hole,
        };
        Ok(ContentReader { inner, left: size })
    }
}

impl Read for ContentReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let want = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let buffer = &mut buffer[..want];
        let got = match &mut self.inner {
            Inner::Host(file) => file.read(buffer)?,
            Inner::Part { file, offset } => {
                let got = file.read_at(buffer, *offset)?;
                *offset += got as u64;
                got
            }
            Inner::Bytes(bytes) => bytes.read(buffer)?,
            Inner::Hole => {
                buffer.fill(0);
                want
            }
        };
        self.left -= got as u64;
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(size: u64) -> Entry {
        Entry { node: Node::Regular { content: Content::Hole, size }, ..Entry::directory() }
    }

    #[test]
    fn parents_come_into_being_and_replaced_directories_go() {
        let mut source = SourceTree::default();
        source.insert(b"a/b/c".to_vec(), file(1)).unwrap();
        let paths: Vec<&[u8]> = source.entries.keys().map(Vec::as_slice).collect();
        assert_eq!(paths, [&b""[..], b"a", b"a/b", b"a/b/c"]);
        assert_eq!(source.insert(b"a/b/c/d".to_vec(), file(1)), Err(b"a/b/c".to_vec()));
        source.insert(b"a/bc".to_vec(), file(1)).unwrap();
        source.insert(b"a/b".to_vec(), file(2)).unwrap();
        let paths: Vec<&[u8]> = source.entries.keys().map(Vec::as_slice).collect();
        assert_eq!(paths, [&b""[..], b"a", b"a/b", b"a/bc"]);
    }

    #[test]
    fn paths_and_devices() {
        let place = Path::new("x");
        assert_eq!(normal_path(b"./a//b/.", place).unwrap(), b"a/b");
        assert_eq!(normal_path(b"/", place).unwrap(), b"");
        assert!(
            normal_path(b"a/../b", place).is_err() && normal_path(&[b'n'; 256], place).is_err()
        );
        assert_eq!(device_number(5, 1), 0x501);
        assert_eq!(device_number(259, 0x12345), 0x1231_0345);
    }

    #[test]
    fn the_uuid_depends_on_everything_but_contents() {
        let mut source = SourceTree::default();
        source.insert(b"f".to_vec(), file(1)).unwrap();
        let first = source.uuid("");
        assert_eq!(first, source.uuid(""));
        assert_ne!(first, source.uuid("other"));
        assert_eq!((first[6] >> 4, first[8] >> 6), (8, 2));
        source.insert(b"f".to_vec(), file(2)).unwrap();
        assert_ne!(first, source.uuid(""));
    }
}
