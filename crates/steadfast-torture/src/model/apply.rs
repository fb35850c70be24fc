//! One entry point of the model for every call of the facade.

use steadfast::InodeNumber;

use super::{Model, NewName};
use crate::fault::{Fault, Faults};
use crate::subject::{Call, Reply};

impl Model {
    /// Applies `call`. The model cannot know inode numbers, or how much of a long copy was done at
    /// once. So it takes these from the `reply` of the volume. The caller compares the rest of the
    /// reply.
    ///
    /// # Errors
    /// The refusals that would have been correct; nothing has changed then.
    pub fn apply(&mut self, call: &Call<'_>, reply: Option<&Reply>) -> Result<(), Faults> {
        let made = match reply {
            Some(Reply::Attributes(attributes)) => attributes.inode,
            _ => InodeNumber(u64::MAX),
        };
        match *call {
            Call::Create { directory, name, node, permissions, ref caller } => {
                self.create(NewName { directory, name }, made, node, permissions, caller)
            }
            Call::CreateUnnamed { directory, permissions, ref caller } => {
                self.create_unnamed(directory, made, permissions, caller)
            }
            Call::Link { inode, directory, name } => self.link(inode, NewName { directory, name }),
            Call::Unlink { directory, name } => self.unlink(NewName { directory, name }),
            Call::RemoveDirectory { directory, name } => {
                self.remove_directory(NewName { directory, name })
            }
            Call::Rename { from, from_name, to, to_name, mode } => self.rename(
                NewName { directory: from, name: from_name },
                NewName { directory: to, name: to_name },
                mode,
            ),
            Call::SetAttributes { inode, ref set } => self.set_attributes(inode, set),
            Call::SetXattr { inode, name, value, mode } => self.set_xattr(inode, name, value, mode),
            Call::RemoveXattr { inode, name } => self.remove_xattr(inode, name),
            Call::Acquire { inode } => self.acquire(inode),
            Call::Release { inode } => {
                self.release(inode);
                Ok(())
            }
            Call::Write { inode, offset, data, .. } => self.write(inode, offset, data),
            Call::Append { inode, data, .. } => {
                let offset = self.append(inode, data)?;
                match reply {
                    // A wrong offset cannot be applied; the comparison of the whole volume reports
                    // it.
                    Some(Reply::Number(seen)) if *seen != offset => Err(Fault::Broken.into()),
                    _ => Ok(()),
                }
            }
            Call::Allocate { inode, offset, length, mode } => {
                self.allocate(inode, offset, length, mode)
            }
            Call::CopyRange { from, from_offset, to, to_offset, length } => {
                let most = self.copy_length(from, from_offset, to, to_offset, length)?;
                let count = match reply {
                    Some(Reply::Number(count)) => *count,
                    _ => most,
                };
                // A shorter copy than requested is allowed. An empty copy, or more than exists, is
                // wrong.
                if count > most || (count == 0 && most > 0) {
                    return Err(Fault::Broken.into());
                }
                self.copy_range(from, from_offset, to, to_offset, count)
            }
            Call::CloneRange { from, from_offset, to, to_offset, length } => {
                let count = self.clone_length(from, from_offset, to, to_offset, length)?;
                self.clone_range(from, from_offset, to, to_offset, count)
            }
            // A volume may accept or refuse these calls for an inode that no longer exists, because
            // they change nothing.
            Call::Closed { inode } | Call::Fsync { inode, .. } => match reply {
                Some(_) => Ok(()),
                None => self.living(inode).map(|_| ()),
            },
            Call::SnapshotCreate { name } => self.free().and_then(|()| self.snapshot_create(name)),
            Call::SnapshotDelete { name } => self.free().and_then(|()| self.snapshot_delete(name)),
            Call::SnapshotRollback { name, destroy_newer } => {
                self.free().and_then(|()| self.snapshot_rollback(name, destroy_newer))
            }
            Call::Begin => {
                self.free()?;
                self.held = true;
                Ok(())
            }
            Call::SetMask { mask } => {
                self.free()?;
                self.state.mask = Some(mask);
                Ok(())
            }
            Call::SetTimer { ms } => {
                self.free()?;
                self.state.timer_ms = Some(ms);
                Ok(())
            }
            Call::Commit | Call::Abort => {
                self.held = false;
                Ok(())
            }
            Call::Transact
            | Call::Checkpoint
            | Call::Rollback
            | Call::Grow { .. }
            | Call::Shrink { .. } => self.free(),
            Call::Sync | Call::Background => Ok(()),
        }
    }
}
