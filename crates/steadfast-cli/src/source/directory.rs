//! A directory of the host.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::io::Errno;
use steadfast::Timestamp;

use super::{Content, Entry, Node, SourceTree, device_number};
use crate::failure::{Failure, Outcome};

/// Extended attributes that volumes keep. Others (security modules, other file systems) belong to
/// the host.
const KEPT: [&[u8]; 4] = [b"user.", b"trusted.", b"security.capability", b"system.posix_acl_"];

/// Adds everything below `root`, which becomes the root directory.
///
/// # Errors
/// Those of reading the host.
pub fn add_directory(source: &mut SourceTree, root: &Path) -> Outcome {
    let mut links: HashMap<(u64, u64), Vec<u8>> = HashMap::new();
    let mut pending = vec![(root.to_owned(), Vec::new())];
    while let Some((place, path)) = pending.pop() {
        let cannot = |error: io::Error| Failure::host(&error, "read", &place);
        // The root may be a symbolic link.
        let metadata =
            if path.is_empty() { fs::metadata(&place) } else { fs::symlink_metadata(&place) }
                .map_err(cannot)?;
        let node = node(&place, &metadata).map_err(cannot)?;
        if metadata.is_dir() {
            let mut names = fs::read_dir(&place)
                .and_then(|entries| {
                    entries
                        .map(|entry| entry.map(|entry| entry.file_name()))
                        .collect::<io::Result<Vec<_>>>()
                })
                .map_err(cannot)?;
            // The stack takes the last name first. The host's order must not decide which of
            // several links becomes the file.
            names.sort_unstable_by(|a, b| b.cmp(a));
            for name in names {
                let mut below = path.clone();
                if !below.is_empty() {
                    below.push(b'/');
                }
                below.extend_from_slice(name.as_bytes());
                pending.push((place.join(&name), below));
            }
        }
        let mut entry = Entry {
            node,
            permissions: metadata.mode() & 0o7777,
            uid: metadata.uid(),
            gid: metadata.gid(),
            modified: Timestamp {
                seconds: metadata.mtime(),
                nanoseconds: u32::try_from(metadata.mtime_nsec()).unwrap_or(0),
            },
            xattrs: xattrs(&place).map_err(cannot)?,
        };
        if !metadata.is_dir() && metadata.nlink() > 1 {
            match links.get(&(metadata.dev(), metadata.ino())) {
                Some(first) => entry.node = Node::Hardlink(first.clone()),
                None => drop(links.insert((metadata.dev(), metadata.ino()), path.clone())),
            }
        }
        // The directory above it was added earlier.
        let _ = source.insert(path, entry);
    }
    Ok(())
}

fn node(place: &Path, metadata: &Metadata) -> io::Result<Node> {
    let kind = metadata.file_type();
    let device = || {
        let number = metadata.rdev();
        device_number(rustix::fs::major(number), rustix::fs::minor(number))
    };
    Ok(if kind.is_dir() {
        Node::Directory
    } else if kind.is_symlink() {
        Node::Symlink(fs::read_link(place)?.as_os_str().as_bytes().to_vec())
    } else if kind.is_fifo() {
        Node::Fifo
    } else if kind.is_socket() {
        Node::Socket
    } else if kind.is_char_device() {
        Node::CharDevice(device())
    } else if kind.is_block_device() {
        Node::BlockDevice(device())
    } else {
        Node::Regular { content: Content::Host(place.to_owned()), size: metadata.len() }
    })
}

fn xattrs(place: &Path) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut names = vec![0; 64 << 10];
    let length = match rustix::fs::llistxattr(place, &mut names[..]) {
        Ok(length) => length,
        Err(Errno::OPNOTSUPP | Errno::PERM) => 0,
        Err(error) => return Err(error.into()),
    };
    let mut found = BTreeMap::new();
    let mut value = vec![0; 64 << 10];
    for name in names[..length].split(|byte| *byte == 0) {
        if !KEPT.iter().any(|kept| name.starts_with(kept)) {
            continue;
        }
        match rustix::fs::lgetxattr(place, name, &mut value[..]) {
            Ok(length) => drop(found.insert(name.to_vec(), value[..length].to_vec())),
            // The attribute has been removed, or this process may not read it.
            Err(Errno::NODATA | Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}
