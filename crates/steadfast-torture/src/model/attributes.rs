//! Attributes and extended attributes.

use std::sync::Arc;

use steadfast::InodeNumber;
use steadfast::fs::{FileKind, SetAttributes, SetTime, SetXattrMode};

use super::{Body, FILE_SIZE_MAX, Model};
use crate::fault::{Fault, Faults, Objections};

/// Longest extended attribute name in bytes, as in Linux.
pub const XATTR_NAME_MAX: usize = 255;

impl Model {
    /// Changes attributes.
    ///
    /// # Errors
    /// See [`Faults`].
    pub fn set_attributes(
        &mut self,
        inode: InodeNumber,
        set: &SetAttributes,
    ) -> Result<(), Faults> {
        let node = self.living(inode)?;
        let mut objections = Objections::default();
        if let Some(size) = set.size {
            objections.any(
                node.kind == FileKind::Directory,
                &[Fault::IsADirectory, Fault::NotARegularFile, Fault::InvalidArgument],
            );
            objections.any(
                node.kind != FileKind::Regular,
                &[Fault::NotARegularFile, Fault::InvalidArgument],
            );
            objections.any(size > FILE_SIZE_MAX, &[Fault::FileTooLarge, Fault::InvalidArgument]);
        }
        objections.check()?;
        let now = self.now;
        let at = |time: SetTime| match time {
            SetTime::Now => now,
            SetTime::At(time) => time,
        };
        let Some(node) = self.state.change(inode) else { return Ok(()) };
        node.changed = set.changed.unwrap_or(now);
        if let (Some(size), Body::Regular(content)) = (set.size, &mut node.body) {
            content.set_size(size);
            node.modified = now;
        }
        if let Some(permissions) = set.permissions {
            node.permissions = permissions & 0o7777;
        }
        node.uid = set.uid.unwrap_or(node.uid);
        node.gid = set.gid.unwrap_or(node.gid);
        node.accessed = set.accessed.map_or(node.accessed, at);
        node.modified = set.modified.map_or(node.modified, at);
        if set.drop_privileges && node.kind != FileKind::Directory {
            node.permissions &= !0o4000;
            if node.permissions & 0o010 != 0 {
                node.permissions &= !0o2000;
            }
        }
        Ok(())
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// See [`Faults`].
    pub fn set_xattr(
        &mut self,
        inode: InodeNumber,
        name: &[u8],
        value: &[u8],
        mode: SetXattrMode,
    ) -> Result<(), Faults> {
        let node = self.living(inode)?;
        let exists = node.xattrs.contains_key(name);
        let mut objections = Objections::default();
        object_to_xattr_name(name, node.kind, &mut objections);
        objections.when(mode == SetXattrMode::Create && exists, Fault::AlreadyExists);
        objections.when(mode == SetXattrMode::Replace && !exists, Fault::NoAttribute);
        objections.check()?;
        if let Some(node) = self.state.change(inode) {
            node.xattrs.insert(name.to_vec(), Arc::new(value.to_vec()));
        }
        self.touch_attributes(inode);
        Ok(())
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// See [`Faults`].
    pub fn remove_xattr(&mut self, inode: InodeNumber, name: &[u8]) -> Result<(), Faults> {
        let node = self.living(inode)?;
        let exists = node.xattrs.contains_key(name);
        let mut objections = Objections::default();
        object_to_xattr_name(name, node.kind, &mut objections);
        objections.when(!exists, Fault::NoAttribute);
        objections.check()?;
        if let Some(node) = self.state.change(inode) {
            node.xattrs.remove(name);
        }
        self.touch_attributes(inode);
        Ok(())
    }
}

fn object_to_xattr_name(name: &[u8], kind: FileKind, objections: &mut Objections) {
    objections.any(
        name.is_empty(),
        &[Fault::InvalidName, Fault::InvalidArgument, Fault::NameTooLong, Fault::Unsupported],
    );
    objections.any(name.len() > XATTR_NAME_MAX, &[Fault::NameTooLong, Fault::InvalidArgument]);
    let known = [&b"user."[..], b"trusted.", b"security.", b"system."];
    let prefixed = known.iter().any(|prefix| name.starts_with(prefix) && name.len() > prefix.len());
    objections.any(
        !prefixed,
        &[Fault::Unsupported, Fault::InvalidName, Fault::InvalidArgument, Fault::NotPermitted],
    );
    // As in Linux: any user may write to a device or a FIFO, so it has no user attributes.
    let keeps = matches!(kind, FileKind::Regular | FileKind::Directory);
    objections.when(name.starts_with(b"user.") && !keeps, Fault::NotPermitted);
}
