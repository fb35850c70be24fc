//! Inodes in a map: the entire state of a null file system.

use std::collections::{BTreeMap, HashMap};

use steadfast::fs::{Attributes, DirectoryEntry, FileFlags, FileKind};
use steadfast::{InodeNumber, Timestamp};

use crate::abi::ROOT_ID;
use crate::errno::Errno;

/// First cookie of directory entries; 1 and 2 are `.` and `..`.
const COOKIE_FIRST: u64 = 3;
/// Block size of the reported allocation, in bytes.
const BLOCK: u64 = 4096;

/// All inodes by node id.
#[derive(Debug)]
pub(super) struct Tree {
    nodes: HashMap<u64, Node>,
    next: u64,
    /// Largest number of data bytes.
    pub(super) capacity: u64,
    /// Present number of data bytes.
    pub(super) used: u64,
}

/// An inode.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) attributes: Attributes,
    pub(super) body: Body,
    /// Number of the kernel's references. The inode must stay while there are any.
    lookups: u64,
}

/// The contents of an inode.
#[derive(Debug)]
pub(super) enum Body {
    /// Data of a regular file.
    Data(Vec<u8>),
    /// A directory.
    Names(Names),
    /// Target of a symbolic link.
    Target(Vec<u8>),
    /// A FIFO, socket or device.
    Nothing,
}

/// An entry of a directory with the attributes of its inode.
type Listed = (DirectoryEntry, Option<Attributes>);

/// Parameters of a new inode.
#[derive(Debug, Clone, Copy)]
pub(super) struct New<'a> {
    pub(super) kind: FileKind,
    pub(super) permissions: u32,
    /// User and group.
    pub(super) owner: (u32, u32),
    /// Device number, for a device node.
    pub(super) device: u32,
    /// Target, for a symbolic link.
    pub(super) target: &'a [u8],
}

/// Names in a directory, in the order of their creation.
#[derive(Debug, Default)]
pub(super) struct Names {
    parent: u64,
    by_name: HashMap<Box<[u8]>, (u64, u64)>,
    by_cookie: BTreeMap<u64, Box<[u8]>>,
    next: u64,
}

impl Tree {
    /// Creates an empty root directory.
    pub(super) fn new(capacity: u64, (uid, gid): (u32, u32)) -> Tree {
        let mut tree = Tree { nodes: HashMap::new(), next: ROOT_ID, capacity, used: 0 };
        let (kind, owner) = (FileKind::Directory, (uid, gid));
        tree.add(New { kind, permissions: 0o755, owner, device: 0, target: b"" }, ROOT_ID);
        tree
    }

    fn add(&mut self, new: New<'_>, parent: u64) -> u64 {
        let New { kind, permissions, owner, device, target } = new;
        let body = match kind {
            FileKind::Regular => Body::Data(Vec::new()),
            FileKind::Directory => Body::Names(Names { parent, ..Names::default() }),
            FileKind::Symlink => Body::Target(target.to_vec()),
            _ => Body::Nothing,
        };
        let now = now();
        let attributes = Attributes {
            inode: InodeNumber(self.next),
            kind,
            permissions,
            links: if kind == FileKind::Directory { 2 } else { 1 },
            uid: owner.0,
            gid: owner.1,
            device,
            size: target.len() as u64,
            allocated: 0,
            shrinking: false,
            block_size: BLOCK as u32,
            accessed: now,
            modified: now,
            changed: now,
            created: now,
            flags: FileFlags::NONE,
        };
        let id = self.next;
        self.next += 1;
        self.nodes.insert(id, Node { attributes, body, lookups: 0 });
        id
    }

    /// The inode with this id.
    pub(super) fn node(&self, id: u64) -> Result<&Node, Errno> {
        self.nodes.get(&id).ok_or(Errno(libc::ESTALE))
    }

    /// The inode with this id, for a change.
    pub(super) fn node_mut(&mut self, id: u64) -> Result<&mut Node, Errno> {
        self.nodes.get_mut(&id).ok_or(Errno(libc::ESTALE))
    }

    fn names(&self, id: u64) -> Result<&Names, Errno> {
        match &self.node(id)?.body {
            Body::Names(names) => Ok(names),
            _ => Err(Errno(libc::ENOTDIR)),
        }
    }

    fn names_mut(&mut self, id: u64) -> Result<&mut Names, Errno> {
        match &mut self.node_mut(id)?.body {
            Body::Names(names) => Ok(names),
            _ => Err(Errno(libc::ENOTDIR)),
        }
    }

    /// The id of the inode with this name, if there is one.
    pub(super) fn lookup(&self, directory: u64, name: &[u8]) -> Result<Option<u64>, Errno> {
        match name {
            b"." => Ok(Some(directory)),
            b".." => Ok(Some(self.names(directory)?.parent)),
            _ => Ok(self.names(directory)?.by_name.get(name).map(|(id, _)| *id)),
        }
    }

    /// The attributes of an inode for an answer to the kernel; counts one lookup.
    pub(super) fn enter(&mut self, id: u64) -> Result<Attributes, Errno> {
        let node = self.node_mut(id)?;
        node.lookups += 1;
        Ok(node.attributes)
    }

    /// The kernel drops references. An inode without references and names is removed.
    pub(super) fn forget(&mut self, id: u64, lookups: u64) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.lookups = node.lookups.saturating_sub(lookups);
        }
        self.drop_unused(id);
    }

    fn drop_unused(&mut self, id: u64) {
        let unused = |node: &Node| node.lookups == 0 && node.attributes.links == 0;
        if self.nodes.get(&id).is_some_and(unused)
            && let Some(Node { body: Body::Data(data), .. }) = self.nodes.remove(&id)
        {
            self.used -= data.len() as u64;
        }
    }

    /// Creates an inode with a name.
    pub(super) fn make(&mut self, directory: u64, name: &[u8], new: New<'_>) -> Result<u64, Errno> {
        if self.names(directory)?.by_name.contains_key(name) {
            return Err(Errno(libc::EEXIST));
        }
        let id = self.add(new, directory);
        self.insert(directory, name, id)?;
        if new.kind == FileKind::Directory {
            self.node_mut(directory)?.attributes.links += 1;
        }
        Ok(id)
    }

    fn insert(&mut self, directory: u64, name: &[u8], id: u64) -> Result<(), Errno> {
        let names = self.names_mut(directory)?;
        let cookie = COOKIE_FIRST + names.next;
        names.next += 1;
        names.by_name.insert(name.into(), (id, cookie));
        names.by_cookie.insert(cookie, name.into());
        self.touch(directory)
    }

    fn take(&mut self, directory: u64, name: &[u8]) -> Result<u64, Errno> {
        let names = self.names_mut(directory)?;
        let (id, cookie) = names.by_name.remove(name).ok_or(Errno(libc::ENOENT))?;
        names.by_cookie.remove(&cookie);
        self.touch(directory)?;
        Ok(id)
    }

    fn touch(&mut self, id: u64) -> Result<(), Errno> {
        let now = now();
        let attributes = &mut self.node_mut(id)?.attributes;
        attributes.modified = now;
        attributes.changed = now;
        Ok(())
    }

    /// Adds a name to an inode.
    pub(super) fn link(&mut self, id: u64, directory: u64, name: &[u8]) -> Result<(), Errno> {
        if self.names(directory)?.by_name.contains_key(name) {
            return Err(Errno(libc::EEXIST));
        }
        let attributes = &mut self.node_mut(id)?.attributes;
        if attributes.kind == FileKind::Directory {
            return Err(Errno(libc::EPERM));
        }
        attributes.links += 1;
        attributes.changed = now();
        self.insert(directory, name, id)
    }

    /// Removes the name of a directory (`rmdir`) or of another inode.
    pub(super) fn remove(&mut self, directory: u64, name: &[u8], rmdir: bool) -> Result<(), Errno> {
        let id = self.lookup(directory, name)?.ok_or(Errno(libc::ENOENT))?;
        let is_directory = self.node(id)?.attributes.kind == FileKind::Directory;
        match (is_directory, rmdir) {
            (true, false) => return Err(Errno(libc::EISDIR)),
            (false, true) => return Err(Errno(libc::ENOTDIR)),
            (true, true) if !self.names(id)?.by_name.is_empty() => {
                return Err(Errno(libc::ENOTEMPTY));
            }
            _ => {}
        }
        self.take(directory, name)?;
        self.unnamed(directory, id)
    }

    /// An inode has lost a name in a directory.
    fn unnamed(&mut self, directory: u64, id: u64) -> Result<(), Errno> {
        let attributes = &mut self.node_mut(id)?.attributes;
        attributes.changed = now();
        if attributes.kind == FileKind::Directory {
            attributes.links = 0;
            let links = &mut self.node_mut(directory)?.attributes.links;
            *links = links.saturating_sub(1);
        } else {
            attributes.links = attributes.links.saturating_sub(1);
        }
        self.drop_unused(id);
        Ok(())
    }

    /// Renames. An inode with the new name is replaced, unless `keep` forbids it.
    pub(super) fn rename(
        &mut self,
        (from, from_name): (u64, &[u8]),
        (to, to_name): (u64, &[u8]),
        keep: bool,
    ) -> Result<(), Errno> {
        let id = self.lookup(from, from_name)?.ok_or(Errno(libc::ENOENT))?;
        let is_directory = self.node(id)?.attributes.kind == FileKind::Directory;
        match self.lookup(to, to_name)? {
            Some(_) if keep => return Err(Errno(libc::EEXIST)),
            Some(same) if same == id => return Ok(()),
            Some(other) => {
                let replaced = self.node(other)?.attributes.kind == FileKind::Directory;
                match (is_directory, replaced) {
                    (true, false) => return Err(Errno(libc::ENOTDIR)),
                    (false, true) => return Err(Errno(libc::EISDIR)),
                    _ => self.remove(to, to_name, replaced)?,
                }
            }
            None => {}
        }
        self.take(from, from_name)?;
        self.insert(to, to_name, id)?;
        if is_directory && from != to {
            self.names_mut(id)?.parent = to;
            let links = &mut self.node_mut(from)?.attributes.links;
            *links = links.saturating_sub(1);
            self.node_mut(to)?.attributes.links += 1;
        }
        self.node_mut(id)?.attributes.changed = now();
        Ok(())
    }

    /// The entries after a cookie, with `.` and `..` first.
    pub(super) fn list(
        &self,
        directory: u64,
        cookie: u64,
        count: usize,
    ) -> Result<Vec<Listed>, Errno> {
        let names = self.names(directory)?;
        let entry = |id: u64, name: &[u8], cookie| -> Result<Listed, Errno> {
            let attributes = self.node(id)?.attributes;
            let (inode, kind) = (attributes.inode, attributes.kind);
            Ok((DirectoryEntry { name: name.to_vec(), inode, kind, cookie }, Some(attributes)))
        };
        let dots = [(1, directory, &b"."[..]), (2, names.parent, &b".."[..])];
        let dots = dots.into_iter().filter(|(number, ..)| *number > cookie);
        let mut found = dots
            .map(|(cookie, id, name)| entry(id, name, cookie))
            .collect::<Result<Vec<_>, _>>()?;
        let after = names.by_cookie.range(cookie.saturating_add(1).max(COOKIE_FIRST)..);
        for (cookie, name) in after.take(count.saturating_sub(found.len())) {
            // Both maps contain the same names.
            let Some((id, _)) = names.by_name.get(name) else { continue };
            found.push(entry(*id, name, *cookie)?);
        }
        Ok(found)
    }

    /// Writes to a file and extends it if necessary.
    pub(super) fn write(&mut self, id: u64, offset: u64, data: &[u8]) -> Result<(), Errno> {
        let start = usize::try_from(offset).map_err(|_| Errno(libc::EFBIG))?;
        let end = start.checked_add(data.len()).ok_or(Errno(libc::EFBIG))?;
        self.resize(id, end as u64, false)?;
        let node = self.node_mut(id)?;
        let Body::Data(file) = &mut node.body else { return Err(Errno(libc::EINVAL)) };
        file.get_mut(start..end).ok_or(Errno(libc::EIO))?.copy_from_slice(data);
        let now = now();
        node.attributes.modified = now;
        node.attributes.changed = now;
        Ok(())
    }

    /// Makes a file at least this long, or with `cut` exactly this long.
    pub(super) fn resize(&mut self, id: u64, size: u64, cut: bool) -> Result<(), Errno> {
        let free = self.capacity.saturating_sub(self.used);
        let node = self.node_mut(id)?;
        let Body::Data(file) = &mut node.body else { return Err(Errno(libc::EINVAL)) };
        let before = file.len() as u64;
        if size > before && size - before > free {
            return Err(Errno(libc::ENOSPC));
        }
        if size > before || cut {
            file.resize(usize::try_from(size).map_err(|_| Errno(libc::EFBIG))?, 0);
            node.attributes.size = size;
            node.attributes.allocated = size.next_multiple_of(BLOCK);
            self.used = self.used + size - before;
        }
        Ok(())
    }
}

/// The system's time.
pub(super) fn now() -> Timestamp {
    let since =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Timestamp { seconds: since.as_secs() as i64, nanoseconds: since.subsec_nanos() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make(tree: &mut Tree, directory: u64, name: &str, kind: FileKind) -> Result<u64, Errno> {
        let new = New { kind, permissions: 0o644, owner: (0, 0), device: 0, target: b"" };
        tree.make(directory, name.as_bytes(), new)
    }

    #[test]
    fn names_come_move_and_go() {
        let mut tree = Tree::new(1 << 20, (0, 0));
        let directory = make(&mut tree, ROOT_ID, "d", FileKind::Directory).unwrap();
        let file = make(&mut tree, directory, "f", FileKind::Regular).unwrap();
        assert_eq!(make(&mut tree, directory, "f", FileKind::Regular), Err(Errno(libc::EEXIST)));
        assert_eq!(tree.lookup(directory, b"f"), Ok(Some(file)));
        assert_eq!(tree.remove(ROOT_ID, b"d", true), Err(Errno(libc::ENOTEMPTY)));
        assert_eq!(tree.remove(ROOT_ID, b"d", false), Err(Errno(libc::EISDIR)));
        tree.rename((directory, b"f"), (ROOT_ID, b"g"), false).unwrap();
        tree.link(file, directory, b"h").unwrap();
        assert_eq!(tree.node(file).unwrap().attributes.links, 2);
        tree.remove(ROOT_ID, b"g", false).unwrap();
        tree.remove(directory, b"h", false).unwrap();
        // The inode is removed, because the kernel never had a reference.
        assert_eq!(tree.node(file).unwrap_err(), Errno(libc::ESTALE));
        tree.remove(ROOT_ID, b"d", true).unwrap();
        assert_eq!(tree.node(ROOT_ID).unwrap().attributes.links, 2);
    }

    #[test]
    fn what_the_kernel_knows_stays_until_it_forgets() {
        let mut tree = Tree::new(8192, (0, 0));
        let file = make(&mut tree, ROOT_ID, "f", FileKind::Regular).unwrap();
        tree.enter(file).unwrap();
        tree.write(file, 4090, b"0123456789").unwrap();
        assert_eq!((tree.used, tree.node(file).unwrap().attributes.size), (4100, 4100));
        assert_eq!(tree.write(file, 8000, &[0; 1000]), Err(Errno(libc::ENOSPC)));
        tree.remove(ROOT_ID, b"f", false).unwrap();
        assert!(tree.node(file).is_ok());
        tree.forget(file, 1);
        assert!(tree.node(file).is_err());
        assert_eq!(tree.used, 0);
    }

    #[test]
    fn lists_go_on_where_they_were() {
        let mut tree = Tree::new(0, (0, 0));
        for name in ["a", "b", "c"] {
            make(&mut tree, ROOT_ID, name, FileKind::Regular).unwrap();
        }
        let first = tree.list(ROOT_ID, 0, 3).unwrap();
        let names = |list: &[Listed]| -> Vec<String> {
            list.iter()
                .map(|(entry, _)| String::from_utf8_lossy(&entry.name).into_owned())
                .collect()
        };
        assert_eq!(names(&first), [".", "..", "a"]);
        tree.remove(ROOT_ID, b"b", false).unwrap();
        let rest = tree.list(ROOT_ID, first[2].0.cookie, 10).unwrap();
        assert_eq!(names(&rest), ["c"]);
    }
}
