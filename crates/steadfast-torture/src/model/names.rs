//! Names: creating, linking, removing and renaming.

use std::sync::Arc;

use steadfast::InodeNumber;
use steadfast::fs::{Caller, FileKind, NewNode, RenameMode};

use super::{Body, Content, Model, Node};
use crate::fault::{Fault, Faults, Objections};

/// A name that is to appear or disappear.
#[derive(Debug, Clone, Copy)]
pub struct NewName<'a> {
    /// The directory.
    pub directory: InodeNumber,
    /// The name in it.
    pub name: &'a [u8],
}

const SET_GROUP_ID: u32 = 0o2000;

impl Model {
    /// Notes the objections to any use of `name` in `directory`.
    fn object_to_name(&self, at: NewName<'_>, objections: &mut Objections) {
        match self.state.node(at.directory) {
            None => objections.any(true, &[Fault::Stale, Fault::NotFound]),
            Some(node) => objections.when(node.kind != FileKind::Directory, Fault::NotADirectory),
        };
        let dots = at.name == b"." || at.name == b"..";
        objections.any(dots, &[Fault::InvalidName, Fault::InvalidArgument]);
        let bad = at.name.is_empty() || at.name.contains(&b'/') || at.name.contains(&0);
        objections.when(bad, Fault::InvalidName);
        objections.when(at.name.len() > self.limits.name_max, Fault::NameTooLong);
    }

    /// Notes the objections to a new entry with the name `at`.
    fn object_to_new_name(&self, at: NewName<'_>, objections: &mut Objections) {
        self.object_to_name(at, objections);
        objections.when(self.state.entry(at.directory, at.name).is_some(), Fault::AlreadyExists);
        let dots = at.name == b"." || at.name == b"..";
        objections.when(dots, Fault::AlreadyExists);
        // A removed directory that is held open accepts no new entries.
        let removed = self.state.node(at.directory).is_some_and(|node| node.links == 0);
        objections.any(removed, &[Fault::NotFound, Fault::Stale]);
    }

    fn new_node(
        &self,
        parent: InodeNumber,
        node: NewNode<'_>,
        permissions: u32,
        caller: &Caller,
    ) -> Option<Node> {
        let directory = self.state.node(parent)?;
        let (kind, device, body) = match node {
            NewNode::Regular => (FileKind::Regular, 0, Body::Regular(Content::default())),
            NewNode::Directory => {
                (FileKind::Directory, 0, Body::Directory { entries: Default::default(), parent })
            }
            NewNode::Symlink(target) => (FileKind::Symlink, 0, Body::Symlink(target.to_vec())),
            NewNode::Fifo => (FileKind::Fifo, 0, Body::Special),
            NewNode::Socket => (FileKind::Socket, 0, Body::Special),
            NewNode::CharDevice(number) => (FileKind::CharDevice, number, Body::Special),
            NewNode::BlockDevice(number) => (FileKind::BlockDevice, number, Body::Special),
        };
        let mut made = Node::directory(kind, self.now, parent);
        made.links = if kind == FileKind::Directory { 2 } else { 1 };
        made.permissions =
            if kind == FileKind::Symlink { 0o777 } else { permissions & !caller.umask & 0o7777 };
        made.uid = caller.uid;
        made.gid = caller.gid;
        made.device = device;
        made.body = body;
        if directory.permissions & SET_GROUP_ID != 0 {
            made.gid = directory.gid;
            if kind == FileKind::Directory {
                made.permissions |= SET_GROUP_ID;
            }
        }
        Some(made)
    }

    /// Makes an inode with a name and with the number `inode`.
    ///
    /// # Errors
    /// See [`Faults`].
    pub fn create(
        &mut self,
        at: NewName<'_>,
        inode: InodeNumber,
        node: NewNode<'_>,
        permissions: u32,
        caller: &Caller,
    ) -> Result<(), Faults> {
        let mut objections = Objections::default();
        self.object_to_new_name(at, &mut objections);
        if let NewNode::Symlink(target) = node {
            objections.any(
                target.is_empty(),
                &[Fault::InvalidArgument, Fault::NotFound, Fault::InvalidName],
            );
        }
        objections.check()?;
        if let Some(made) = self.new_node(at.directory, node, permissions, caller) {
            let is_directory = made.kind == FileKind::Directory;
            self.state.nodes.insert(inode, Arc::new(made));
            self.insert(at, inode, is_directory);
        }
        Ok(())
    }

    /// Makes a regular file without a name, acquired once.
    ///
    /// # Errors
    /// See [`Faults`].
    pub fn create_unnamed(
        &mut self,
        directory: InodeNumber,
        inode: InodeNumber,
        permissions: u32,
        caller: &Caller,
    ) -> Result<(), Faults> {
        let parent = self.living(directory)?;
        Objections::default()
            .when(parent.kind != FileKind::Directory, Fault::NotADirectory)
            .any(parent.links == 0, &[Fault::NotFound, Fault::Stale])
            .check()?;
        if let Some(mut made) = self.new_node(directory, NewNode::Regular, permissions, caller) {
            made.links = 0;
            made.nameable = true;
            self.state.nodes.insert(inode, Arc::new(made));
            self.open.insert(inode, 1);
        }
        Ok(())
    }

    /// Adds a name to an inode.
    ///
    /// # Errors
    /// See [`Faults`].
    pub fn link(&mut self, inode: InodeNumber, at: NewName<'_>) -> Result<(), Faults> {
        let mut objections = Objections::default();
        match self.state.node(inode) {
            None => objections.any(true, &[Fault::Stale, Fault::NotFound]),
            Some(node) => {
                objections.any(
                    node.kind == FileKind::Directory,
                    &[Fault::NotPermitted, Fault::IsADirectory],
                );
                objections.any(node.links == 0 && !node.nameable, &[Fault::NotFound, Fault::Stale])
            }
        };
        self.object_to_new_name(at, &mut objections);
        objections.check()?;
        self.insert(at, inode, false);
        let now = self.now;
        if let Some(node) = self.state.change(inode) {
            node.links += 1;
            node.nameable = false;
            node.changed = now;
        }
        Ok(())
    }

    /// Removes a name that does not belong to a directory.
    ///
    /// # Errors
    /// See [`Faults`].
    pub fn unlink(&mut self, at: NewName<'_>) -> Result<(), Faults> {
        let inode = self.existing(at, Objections::default())?;
        let is_directory = self.is_directory(inode);
        Objections::default()
            .any(is_directory, &[Fault::IsADirectory, Fault::NotPermitted])
            .check()?;
        self.remove(at, false);
        self.drop_link(inode);
        Ok(())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// See [`Faults`].
    pub fn remove_directory(&mut self, at: NewName<'_>) -> Result<(), Faults> {
        let mut objections = Objections::default();
        objections.when(at.name == b"..", Fault::DirectoryNotEmpty);
        let inode = self.existing(at, objections)?;
        Objections::default()
            .when(!self.is_directory(inode), Fault::NotADirectory)
            .any(self.has_entries(inode), &[Fault::DirectoryNotEmpty, Fault::AlreadyExists])
            .check()?;
        self.remove(at, true);
        self.drop_link(inode);
        Ok(())
    }

    /// Renames, or exchanges two names.
    ///
    /// # Errors
    /// See [`Faults`].
    pub fn rename(
        &mut self,
        from: NewName<'_>,
        to: NewName<'_>,
        mode: RenameMode,
    ) -> Result<(), Faults> {
        let mut objections = Objections::default();
        self.object_to_name(from, &mut objections);
        self.object_to_name(to, &mut objections);
        let source = self.state.entry(from.directory, from.name);
        let target = self.state.entry(to.directory, to.name);
        objections.when(source.is_none(), Fault::NotFound);
        if mode == RenameMode::NoReplace {
            let dots = to.name == b"." || to.name == b"..";
            objections.when(target.is_some() || dots, Fault::AlreadyExists);
        }
        objections.when(mode == RenameMode::Exchange && target.is_none(), Fault::NotFound);
        let removed = self.state.node(to.directory).is_some_and(|node| node.links == 0);
        objections.any(removed, &[Fault::NotFound, Fault::Stale]);
        let moves_directory = source.is_some_and(|inode| self.is_directory(inode));
        let moves_back =
            mode == RenameMode::Exchange && target.is_some_and(|inode| self.is_directory(inode));
        let into_self = source
            .is_some_and(|inode| moves_directory && self.is_at_or_above(inode, to.directory))
            || target.is_some_and(|inode| moves_back && self.is_at_or_above(inode, from.directory));
        objections.any(into_self, &[Fault::MoveIntoSelf, Fault::InvalidArgument]);
        if let (Some(source), Some(target), RenameMode::Replace) = (source, target, mode)
            && source != target
        {
            let onto_directory = self.is_directory(target);
            objections.when(moves_directory && !onto_directory, Fault::NotADirectory);
            objections.when(!moves_directory && onto_directory, Fault::IsADirectory);
            let full = onto_directory && self.has_entries(target);
            objections.any(full, &[Fault::DirectoryNotEmpty, Fault::AlreadyExists]);
        }
        objections.check()?;
        let Some(source) = source else { return Ok(()) };
        if target == Some(source) {
            // For two names of one file, or the same name twice, POSIX requires that nothing
            // happens.
            return Ok(());
        }
        self.remove(from, moves_directory);
        if let Some(target) = target {
            self.remove(to, self.is_directory(target));
            if mode == RenameMode::Exchange {
                self.insert(from, target, moves_back);
                self.touch_attributes(target);
            } else {
                self.drop_link(target);
            }
        }
        self.insert(to, source, moves_directory);
        self.touch_attributes(source);
        Ok(())
    }

    /// The inode with this name.
    fn existing(&self, at: NewName<'_>, mut objections: Objections) -> Result<InodeNumber, Faults> {
        self.object_to_name(at, &mut objections);
        let entry = self.state.entry(at.directory, at.name);
        objections.when(entry.is_none(), Fault::NotFound);
        objections.check()?;
        entry.ok_or_else(|| Fault::NotFound.into())
    }

    fn is_directory(&self, inode: InodeNumber) -> bool {
        self.state.node(inode).is_some_and(|node| node.kind == FileKind::Directory)
    }

    fn has_entries(&self, inode: InodeNumber) -> bool {
        self.is_directory(inode) && self.state.node(inode).is_some_and(|node| node.size() > 0)
    }

    /// Whether `upper` is `inode` itself or a directory above it.
    fn is_at_or_above(&self, upper: InodeNumber, inode: InodeNumber) -> bool {
        let mut at = inode;
        for _ in 0..=self.state.nodes.len() {
            if at == upper {
                return true;
            }
            match self.state.node(at).map(|node| &node.body) {
                Some(Body::Directory { parent, .. }) if at != InodeNumber::ROOT => at = *parent,
                _ => return false,
            }
        }
        false
    }

    /// Adds a name to a directory; a subdirectory counts as a link of its parent.
    fn insert(&mut self, at: NewName<'_>, inode: InodeNumber, is_directory: bool) {
        self.touch(at.directory);
        if let Some(directory) = self.state.change(at.directory) {
            directory.links += u32::from(is_directory);
            if let Body::Directory { entries, .. } = &mut directory.body {
                entries.insert(at.name.to_vec(), inode);
            }
        }
        if let Some(Body::Directory { parent, .. }) =
            self.state.change(inode).map(|node| &mut node.body)
        {
            *parent = at.directory;
        }
    }

    /// Removes a name from a directory.
    fn remove(&mut self, at: NewName<'_>, is_directory: bool) {
        self.touch(at.directory);
        if let Some(directory) = self.state.change(at.directory) {
            directory.links -= u32::from(is_directory);
            if let Body::Directory { entries, .. } = &mut directory.body {
                entries.remove(at.name);
            }
        }
    }

    /// Removes one link; a directory loses its only name and its own `.`.
    fn drop_link(&mut self, inode: InodeNumber) {
        self.touch_attributes(inode);
        if let Some(node) = self.state.change(inode) {
            node.links = if node.kind == FileKind::Directory { 0 } else { node.links - 1 };
        }
        self.state.reap(&self.open);
    }
}
