//! The directory in which a mount shows the snapshots. It has no inode in the volume.

use steadfast_media::Medium;

use crate::error::Result;
use crate::fs::flags::FileFlags;
use crate::fs::stat::Attributes;
use crate::platform::Platform;
use crate::types::{InodeNumber, Timestamp};
use crate::volume::Volume;

impl<M: Medium, P: Platform> Volume<M, P> {
    /// Attributes of the directory in which a mount shows the snapshots: it is root's, and all may
    /// read it. Its times are those of the newest snapshot. The mount gives it an inode number.
    ///
    /// # Errors
    /// As [`snapshots`](Self::snapshots).
    pub fn snapshots_directory(&self) -> Result<Attributes> {
        let root = self.attributes(InodeNumber::ROOT)?;
        let snapshots = self.snapshots()?;
        let time = snapshots.last().map_or(Timestamp::default(), |newest| newest.created);
        let count = u32::try_from(snapshots.len()).unwrap_or(u32::MAX);
        Ok(Attributes {
            permissions: 0o555,
            links: count.saturating_add(2),
            uid: 0,
            gid: 0,
            size: u64::from(count),
            allocated: 0,
            shrinking: false,
            accessed: time,
            modified: time,
            changed: time,
            created: time,
            flags: FileFlags::NONE,
            ..root
        })
    }
}
