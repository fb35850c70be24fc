//! Volume operations on attributes, plain and extended.

use alloc::vec::Vec;

use steadfast_media::Medium;

use crate::engine::keyspace::SpaceClass;
use crate::error::{Error, Result};
use crate::format::FEATURE_FILE_FLAGS;
use crate::format::inode::{FILE_SIZE_MAX, Inode};
use crate::fs::flags::FileFlags;
use crate::fs::parameters::Parameters;
use crate::fs::set_attributes::{set_attributes, set_flags};
use crate::fs::stat::{Attributes, SetAttributes, SetXattrMode};
use crate::fs::xattr;
use crate::mask::TransactionMask;
use crate::platform::Platform;
use crate::profile::{NO_XATTRS, XATTRS};
use crate::types::{InodeNumber, Timestamp};
use crate::volume::Volume;

/// Access times older than this are renewed by any access (relatime), seconds.
const ACCESS_RENEWAL_SECONDS: i64 = 24 * 60 * 60;

/// Whether relatime renews the access time at `now`.
fn access_is_due(attributes: &Inode, now: Timestamp) -> bool {
    attributes.accessed <= attributes.modified
        || attributes.accessed <= attributes.changed
        || now.seconds.saturating_sub(attributes.accessed.seconds) >= ACCESS_RENEWAL_SECONDS
}

impl<M: Medium, P: Platform> Volume<M, P> {
    /// The parameters that the semantics depend on.
    pub(crate) fn parameters(&self) -> Parameters {
        let superblock = self.engine.superblock();
        Parameters {
            block_size: superblock.block_size,
            granule: superblock.checksum_granule(),
            inline_max: superblock.inline_max(),
            name_max: superblock.name_max(),
            hash_key: superblock.hash_key,
        }
    }

    /// The attributes that `stat` shows.
    ///
    /// # Errors
    /// `Stale`.
    pub fn attributes(&self, inode: InodeNumber) -> Result<Attributes> {
        let parameters = self.parameters();
        let reader = self.engine.reader()?;
        Inode::load_with(&reader, inode, |found| Ok(found.attributes(inode, &parameters)))
    }

    /// Changes attributes in one operation. Reducing the size works on a full volume.
    ///
    /// # Errors
    /// `Stale`, `NotPermitted` (the inode's flags). With a size: `IsADirectory`, `NotARegularFile`,
    /// `FileTooLarge` (over 2^63 − 1).
    pub fn set_attributes(&self, inode: InodeNumber, set: &SetAttributes) -> Result<Attributes> {
        let parameters = self.parameters();
        // The new value replaces one of the same length.
        let mut class = SpaceClass::Rewrite;
        let guard = match set.size {
            None => None,
            Some(size) => {
                if size > FILE_SIZE_MAX {
                    return Err(Error::FileTooLarge);
                }
                let guard = self.inode_lock(inode);
                let old = Inode::load_regular(&self.engine.reader()?, inode)?;
                // Before anything is written for it.
                set.check(old.file_flags())?;
                if size > old.size {
                    self.prepare_write(inode, size, None)?;
                } else {
                    class = SpaceClass::Freeing;
                }
                Some(guard)
            }
        };
        let changed = self.update(class, |tx| set_attributes(tx, &parameters, inode, set))?;
        drop(guard);
        self.engine.event(match set.size {
            Some(_) => TransactionMask::TRUNCATE,
            None => TransactionMask::ATTRIBUTE,
        })?;
        Ok(changed.attributes(inode, &parameters))
    }

    /// Gives a file or directory these flags in place of those that it has. The caller checks who
    /// may do that: the owner, and for [`FileFlags::PROTECTING`] a caller with the right for it.
    ///
    /// The first flag of a volume also sets a feature bit in the superblock. The bit is durable
    /// before the flag is, and a rollback leaves it. Programs that do not know the flags then open
    /// the volume for reading only.
    ///
    /// # Errors
    /// `Unsupported`: an unknown flag, an inode that is neither a file nor a directory, or a medium
    /// that tears 512 bytes and is longer than the volume. `Stale`, `ReadOnly`, `Poisoned`,
    /// `NoSpace`, `Medium`.
    pub fn set_flags(&self, inode: InodeNumber, flags: FileFlags) -> Result<Attributes> {
        if flags.0 & !FileFlags::ALL.0 != 0 {
            return Err(Error::Unsupported("this flag"));
        }
        if flags != FileFlags::NONE {
            self.engine.use_feature(FEATURE_FILE_FLAGS)?;
        }
        let parameters = self.parameters();
        let changed = self.update(SpaceClass::Rewrite, |tx| set_flags(tx, inode, flags))?;
        self.engine.event(TransactionMask::ATTRIBUTE)?;
        Ok(changed.attributes(inode, &parameters))
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// `NoAttribute`, `Unsupported` (namespace), `Stale`.
    pub fn xattr(&self, inode: InodeNumber, name: &[u8]) -> Result<Vec<u8>> {
        xattr::get(&self.engine.reader()?, &self.parameters(), inode, name)
    }

    /// Sets an extended attribute. POSIX ACLs are checked. The access ACL and the permission bits
    /// update each other.
    ///
    /// # Errors
    /// `AlreadyExists` and `NoAttribute` as `mode` requires; `Unsupported` (namespace);
    /// `NotPermitted` (on this type, or by the flags); `InvalidArgument` (not an ACL);
    /// `NameTooLong`; `ValueTooLong`; `NoSpace`; `Stale`.
    pub fn set_xattr(
        &self,
        inode: InodeNumber,
        name: &[u8],
        value: &[u8],
        mode: SetXattrMode,
    ) -> Result<()> {
        if !XATTRS {
            return Err(NO_XATTRS);
        }
        let parameters = self.parameters();
        self.update(SpaceClass::Normal, |tx| {
            xattr::set(tx, &parameters, inode, name, value, mode)
        })?;
        self.engine.event(TransactionMask::ATTRIBUTE)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// `NoAttribute`, `Unsupported` (namespace), `NotPermitted` (the flags), `Stale`.
    pub fn remove_xattr(&self, inode: InodeNumber, name: &[u8]) -> Result<()> {
        if !XATTRS {
            return Err(NO_XATTRS);
        }
        let parameters = self.parameters();
        self.update(SpaceClass::Freeing, |tx| xattr::remove(tx, &parameters, inode, name))?;
        self.engine.event(TransactionMask::ATTRIBUTE)
    }

    /// The names of all extended attributes.
    ///
    /// # Errors
    /// `Stale`.
    pub fn list_xattrs(&self, inode: InodeNumber) -> Result<Vec<Vec<u8>>> {
        xattr::list(&self.engine.reader()?, inode)
    }

    /// Renews the access time as relatime does. A failure is ignored, because the access itself has
    /// succeeded.
    pub(crate) fn note_access(&self, inode: InodeNumber, seen: &Inode) {
        let now = self.platform().now();
        if seen.file_flags().intersects(FileFlags::NO_ACCESS_TIME) {
            return;
        }
        if !self.engine.access_times.are_stored() || !access_is_due(seen, now) {
            return;
        }
        let _ = self.update_if_room(|tx| {
            let mut attributes = Inode::load(tx, inode)?;
            if access_is_due(&attributes, now) {
                attributes.accessed = now;
                attributes.store(tx, inode)?;
            }
            Ok(())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::inode::FileKind;

    #[test]
    fn relatime() {
        let at = |seconds| Timestamp { seconds, nanoseconds: 0 };
        let mut inode = Inode::new(FileKind::Regular, 0, 0, 0, at(100));
        assert!(access_is_due(&inode, at(100)), "never read since it was written");
        inode.accessed = at(101);
        assert!(!access_is_due(&inode, at(102)));
        assert!(access_is_due(&inode, at(101 + ACCESS_RENEWAL_SECONDS)));
        inode.changed = at(103);
        assert!(access_is_due(&inode, at(104)));
    }
}
