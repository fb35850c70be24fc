//! The calls that set a transaction point, and those that must always succeed: the contract as
//! code.

use steadfast::TransactionMask;
use steadfast::fs::{NewNode, SetAttributes};

use crate::model::Model;
use crate::subject::{Call, Reply};

/// Whether a successful `call` sets a transaction point under this mask.
pub fn triggers(call: &Call<'_>, mask: TransactionMask) -> bool {
    let events = match call {
        Call::Transact
        | Call::Checkpoint
        | Call::SnapshotCreate { .. }
        | Call::SnapshotDelete { .. }
        | Call::SnapshotRollback { .. }
        | Call::Begin
        | Call::Commit
        | Call::Grow { .. }
        | Call::Shrink { .. } => return true,
        Call::Create { node: NewNode::Directory, .. } => TransactionMask::MKDIR,
        Call::Create { node: NewNode::Symlink(_), .. } => TransactionMask::SYMLINK,
        Call::Create { .. } | Call::CreateUnnamed { .. } => TransactionMask::CREATE,
        Call::Link { .. } => TransactionMask::LINK,
        Call::Unlink { .. } => TransactionMask::UNLINK,
        Call::RemoveDirectory { .. } => TransactionMask::RMDIR,
        Call::Rename { .. } => TransactionMask::RENAME,
        Call::SetAttributes { set, .. } => {
            let rest = SetAttributes { size: None, ..*set };
            match set.size {
                // Only the size changes, and no other attribute.
                Some(_) if rest == SetAttributes::default() => TransactionMask::TRUNCATE,
                Some(_) => TransactionMask::TRUNCATE.union(TransactionMask::ATTRIBUTE),
                None => TransactionMask::ATTRIBUTE,
            }
        }
        Call::SetXattr { .. } | Call::RemoveXattr { .. } => TransactionMask::ATTRIBUTE,
        Call::Write { sync, .. } | Call::Append { sync, .. } => {
            if *sync {
                TransactionMask::WRITE.union(TransactionMask::SYNC_WRITE)
            } else {
                TransactionMask::WRITE
            }
        }
        Call::CopyRange { .. } | Call::CloneRange { .. } => TransactionMask::WRITE,
        Call::Allocate { .. } => TransactionMask::TRUNCATE,
        Call::Closed { .. } => TransactionMask::CLOSE,
        Call::Fsync { .. } => TransactionMask::FSYNC,
        Call::Sync => TransactionMask::SYNC,
        Call::Acquire { .. }
        | Call::Release { .. }
        | Call::Rollback
        | Call::Abort
        | Call::Background
        | Call::SetMask { .. }
        | Call::SetTimer { .. } => return false,
    };
    mask.0 & events.0 != 0
}

/// Whether a successful call moved no bytes. It may then set a transaction point or not.
pub fn is_empty(call: &Call<'_>, reply: &Reply) -> bool {
    match call {
        Call::Write { data, .. } | Call::Append { data, .. } => data.is_empty(),
        Call::CopyRange { .. } | Call::CloneRange { .. } => *reply == Reply::Number(0),
        _ => false,
    }
}

/// Whether a call must always succeed, even on a full volume: deleting, truncating, committing,
/// rolling back.
pub fn is_freeing(call: &Call<'_>, model: &Model) -> bool {
    match call {
        Call::Unlink { .. } | Call::RemoveDirectory { .. } => true,
        Call::SetAttributes { inode, set: SetAttributes { size: Some(size), .. } } => {
            model.content(*inode).is_ok_and(|content| *size <= content.size())
        }
        call => is_commit(call),
    }
}

/// Whether a call commits, rolls back, or concerns only memory.
pub fn is_commit(call: &Call<'_>) -> bool {
    matches!(
        call,
        Call::Sync
            | Call::Transact
            | Call::Checkpoint
            | Call::Rollback
            | Call::Background
            | Call::Fsync { .. }
            | Call::Closed { .. }
            | Call::Acquire { .. }
            | Call::Release { .. }
            | Call::SetMask { .. }
            | Call::SetTimer { .. }
            | Call::Begin
            | Call::Commit
            | Call::Abort
    )
}
