//! Paths on a volume that is open in this process: from bytes to an inode, by the rules of a
//! kernel.

use steadfast::fs::{Attributes, DirectoryEntry, FileKind};
use steadfast::{Error, InodeNumber, Result};

use crate::medium::HostVolume;

/// Symbolic links followed in one path before it counts as a loop.
const LINKS_MAX: usize = 40;

/// Entries requested at a time.
const ENTRIES: usize = 1024;

/// What to do with a symbolic link at the end of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastLink {
    /// Use what it points to.
    Follow,
    /// Use the link itself.
    Keep,
}

/// Finds the object that `path` names. Paths start at the root, with or without a slash.
///
/// # Errors
/// `NotFound`, `NotADirectory`, and `InvalidArgument` for too many symbolic links.
pub fn resolve(volume: &HostVolume, path: &[u8], last: LastLink) -> Result<Attributes> {
    // Directories from the root to the present one; `..` goes back.
    let mut stack = vec![volume.attributes(InodeNumber::ROOT)?];
    let mut pending: Vec<Vec<u8>> = Vec::new();
    push_components(&mut pending, path);
    let mut links = 0;
    while let Some(component) = pending.pop() {
        let Some(here) = stack.last().copied() else { return Err(Error::NotFound) };
        if here.kind != FileKind::Directory {
            return Err(Error::NotADirectory);
        }
        match component.as_slice() {
            b"." => continue,
            b".." => {
                if stack.len() > 1 {
                    stack.pop();
                }
                continue;
            }
            _ => {}
        }
        let found = volume.lookup(here.inode, &component)?;
        if found.kind == FileKind::Symlink && (!pending.is_empty() || last == LastLink::Follow) {
            links += 1;
            if links > LINKS_MAX {
                return Err(Error::InvalidArgument("too many symbolic links in the path"));
            }
            let target = volume.read_link(found.inode)?;
            if target.starts_with(b"/") {
                stack.truncate(1);
            }
            push_components(&mut pending, &target);
        } else {
            stack.push(found);
        }
    }
    match stack.last() {
        Some(found) if path.ends_with(b"/") && found.kind != FileKind::Directory => {
            Err(Error::NotADirectory)
        }
        Some(found) => Ok(*found),
        None => Err(Error::NotFound),
    }
}

/// Splits a path into the directory that holds its last component, and that component.
///
/// # Errors
/// `InvalidName` if the path has no last component (`/`, `a/..`), and as [`resolve`].
pub fn resolve_parent<'a>(volume: &HostVolume, path: &'a [u8]) -> Result<(Attributes, &'a [u8])> {
    let trimmed = trim_slashes(path);
    let (parent, name) = match trimmed.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&trimmed[..slash], &trimmed[slash + 1..]),
        None => (&b""[..], trimmed),
    };
    if matches!(name, b"" | b"." | b"..") {
        return Err(Error::InvalidName);
    }
    let parent = resolve(volume, parent, LastLink::Follow)?;
    if parent.kind != FileKind::Directory {
        return Err(Error::NotADirectory);
    }
    Ok((parent, name))
}

/// Calls `visit` for every entry of a directory except `.` and `..`, in the order of the cookies.
///
/// # Errors
/// Those of reading the directory, and what `visit` returns.
pub fn for_each_entry<E: From<Error>>(
    volume: &HostVolume,
    directory: InodeNumber,
    mut visit: impl FnMut(DirectoryEntry, Attributes) -> Result<(), E>,
) -> Result<(), E> {
    let mut cookie = 0;
    loop {
        let entries = volume.read_directory_plus(directory, cookie, ENTRIES)?;
        let Some((last, _)) = entries.last() else { return Ok(()) };
        cookie = last.cookie;
        for (entry, attributes) in entries {
            if !matches!(entry.name.as_slice(), b"." | b"..") {
                visit(entry, attributes)?;
            }
        }
    }
}

/// The entries of a directory except `.` and `..`, sorted by name.
///
/// # Errors
/// Those of reading the directory.
pub fn sorted_entries(
    volume: &HostVolume,
    directory: InodeNumber,
) -> Result<Vec<(DirectoryEntry, Attributes)>> {
    let mut entries = Vec::new();
    for_each_entry::<Error>(volume, directory, |entry, attributes| {
        entries.push((entry, attributes));
        Ok(())
    })?;
    entries.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
    Ok(entries)
}

/// Returns `directory/name` without a doubled slash.
pub fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = trim_slashes_end(directory).to_vec();
    path.push(b'/');
    path.extend_from_slice(name);
    path
}

/// The last component of a path, empty for the root.
pub fn file_name(path: &[u8]) -> &[u8] {
    let trimmed = trim_slashes(path);
    trimmed.rsplit(|byte| *byte == b'/').next().unwrap_or(trimmed)
}

fn trim_slashes(path: &[u8]) -> &[u8] {
    let start = path.iter().position(|byte| *byte != b'/').unwrap_or(path.len());
    trim_slashes_end(&path[start..])
}

fn trim_slashes_end(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    &path[..end]
}

/// Pushes the components of `path` onto the stack of components still to walk, the first on top.
fn push_components(pending: &mut Vec<Vec<u8>>, path: &[u8]) {
    pending.extend(
        path.rsplit(|byte| *byte == b'/').filter(|part| !part.is_empty()).map(<[u8]>::to_vec),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        assert_eq!(join(b"/", b"a"), b"/a");
        assert_eq!(join(b"", b"a"), b"/a");
        assert_eq!(join(b"/d/", b"a"), b"/d/a");
        assert_eq!(file_name(b"/d/a//"), b"a");
        assert_eq!(file_name(b"/"), b"");
        let mut pending = Vec::new();
        push_components(&mut pending, b"//a/b/");
        assert_eq!(pending, [b"b".to_vec(), b"a".to_vec()]);
    }
}
