//! The calls with which a program requests durability.

use super::Element;
use crate::operation::{Name, Operation, Place};

/// A persistence call, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persistence {
    /// No call.
    None,
    /// fsync of the file or directory that the operation changed.
    FsyncTouched,
    /// fdatasync of it.
    FdatasyncTouched,
    /// fsync of the directory that contains it.
    FsyncParent,
    /// fsync of an unrelated file.
    FsyncOther,
    /// sync.
    Sync,
    /// `transact`.
    Transact,
    /// A small write to the file through a descriptor with O_SYNC.
    SyncWrite,
    /// close of a descriptor that was open for writing.
    Close,
}

impl Persistence {
    /// Every call.
    pub const CALLS: [Persistence; 8] = [
        Persistence::FsyncTouched,
        Persistence::FdatasyncTouched,
        Persistence::FsyncParent,
        Persistence::FsyncOther,
        Persistence::Sync,
        Persistence::Transact,
        Persistence::SyncWrite,
        Persistence::Close,
    ];

    /// Every call, or none.
    pub const ALL: [Persistence; 9] = [
        Persistence::None,
        Persistence::FsyncTouched,
        Persistence::FdatasyncTouched,
        Persistence::FsyncParent,
        Persistence::FsyncOther,
        Persistence::Sync,
        Persistence::Transact,
        Persistence::SyncWrite,
        Persistence::Close,
    ];

    /// The operation of this call after `element`.
    pub fn operations(self, element: &Element) -> Option<Operation> {
        let fsync = |place: &Place, data_only| Operation::Fsync { place: place.clone(), data_only };
        Some(match self {
            Persistence::None => return None,
            Persistence::FsyncTouched => fsync(&element.touched, false),
            Persistence::FdatasyncTouched => fsync(&element.touched, true),
            Persistence::FsyncParent => fsync(&element.parent, false),
            Persistence::FsyncOther => fsync(&Place::Path(vec![Name(2), Name(4)]), false),
            Persistence::Sync => Operation::Sync,
            Persistence::Transact => Operation::Transact,
            Persistence::SyncWrite => Operation::Write {
                place: element.touched.clone(),
                offset: 50,
                length: 20,
                fill: 9,
                sync: true,
            },
            Persistence::Close => Operation::Closed { place: element.touched.clone() },
        })
    }
}
