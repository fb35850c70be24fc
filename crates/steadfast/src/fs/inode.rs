//! Reading and writing the inode of a file, and what `stat` shows of it.

use crate::engine::keyspace::{Keyspace, KeyspaceRead};
use crate::error::{Error, Result};
use crate::format::inode::{FLAG_INLINE, FLAG_TRUNCATING, FileKind, Inode};
use crate::format::key::Key;
use crate::fs::parameters::Parameters;
use crate::fs::stat::Attributes;
use crate::fs::tx::Tx;
use crate::types::InodeNumber;

impl Inode {
    /// Reads an inode.
    ///
    /// # Errors
    /// `Stale` if no inode has this number.
    pub fn load(view: &impl KeyspaceRead, inode: InodeNumber) -> Result<Inode> {
        Inode::load_if(view, inode, |_| None)
    }

    /// Reads a directory.
    ///
    /// # Errors
    /// `NotADirectory`, `Stale`.
    pub fn load_directory(view: &impl KeyspaceRead, inode: InodeNumber) -> Result<Inode> {
        Inode::load_if(view, inode, |kind| match kind {
            FileKind::Directory => None,
            _ => Some(Error::NotADirectory),
        })
    }

    /// Reads a regular file.
    ///
    /// # Errors
    /// `IsADirectory`, `NotARegularFile`, `Stale`.
    pub fn load_regular(view: &impl KeyspaceRead, inode: InodeNumber) -> Result<Inode> {
        Inode::load_if(view, inode, |kind| match kind {
            FileKind::Regular => None,
            FileKind::Directory => Some(Error::IsADirectory),
            _ => Some(Error::NotARegularFile),
        })
    }

    /// Reads an inode, unless its kind is refused. Each copy of an inode takes stack, so the kind
    /// is looked at where the inode is decoded.
    fn load_if(
        view: &impl KeyspaceRead,
        inode: InodeNumber,
        refused: fn(FileKind) -> Option<Error>,
    ) -> Result<Inode> {
        Inode::load_with(view, inode, |found| match refused(found.kind) {
            Some(error) => Err(error),
            None => Ok(*found),
        })
    }

    /// What `take` makes of an inode, without a copy of the inode.
    ///
    /// # Errors
    /// `Stale` if no inode has this number; those of `take`.
    #[inline]
    pub fn load_with<T>(
        view: &impl KeyspaceRead,
        inode: InodeNumber,
        take: impl FnOnce(&Inode) -> Result<T>,
    ) -> Result<T> {
        let mut taken = Err(Error::Stale(inode));
        if inode != InodeNumber::SYSTEM {
            view.get_with(&Key::inode(inode), |value| {
                taken = match Inode::decode(value) {
                    Ok(ref found) => take(found),
                    Err(error) => Err(error),
                };
            })?;
        }
        taken
    }

    /// Writes the inode.
    pub fn store<K: Keyspace>(&self, tx: &mut Tx<'_, K>, inode: InodeNumber) -> Result<()> {
        tx.put(Key::inode(inode), self.encode_in(tx.blank())?)
    }

    /// The attributes that `stat` shows.
    pub fn attributes(&self, inode: InodeNumber, parameters: &Parameters) -> Attributes {
        // Data in the tree is reported as the 512-byte units that it would fill. Some programs take
        // a file with a size and no blocks for one that holds only zeros.
        let in_tree = self.kind == FileKind::Symlink || self.has(FLAG_INLINE);
        let allocated = match in_tree {
            true => self.size.min(parameters.inline_max.max(4096) as u64).next_multiple_of(512),
            false => self.blocks.saturating_mul(parameters.block()),
        };
        Attributes {
            inode,
            kind: self.kind,
            permissions: self.permissions,
            links: self.links,
            uid: self.uid,
            gid: self.gid,
            device: self.device,
            size: self.size,
            allocated,
            shrinking: self.has(FLAG_TRUNCATING),
            block_size: parameters.block_size.max(4096),
            accessed: self.accessed,
            modified: self.modified,
            changed: self.changed,
            created: self.created,
            flags: self.file_flags(),
        }
    }
}
