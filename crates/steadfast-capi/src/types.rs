//! Constants and structures that describe files to callers. A structure never changes its size: it
//! has reserved fields, which are zero.

use engine::Timestamp;
use engine::fs::{Attributes, SetTime};

/// Do not follow a symbolic link in the last name of the path.
pub const SF_NOFOLLOW: u32 = 0x100;

/// In `sf_time.nanoseconds`: the present time.
pub const SF_TIME_NOW: u32 = 0xffff_ffff;

/// A point in time.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct sf_time {
    /// Seconds since 1970-01-01 UTC; negative for earlier times.
    pub seconds: i64,
    /// Nanoseconds within the second, below 1000000000; or SF_TIME_NOW.
    pub nanoseconds: u32,
    /// Zero.
    pub reserved: u32,
}

impl From<Timestamp> for sf_time {
    fn from(time: Timestamp) -> sf_time {
        sf_time { seconds: time.seconds, nanoseconds: time.nanoseconds, reserved: 0 }
    }
}

impl sf_time {
    /// Converts the time to the core's form; `None` if the time is invalid.
    pub(crate) fn to_set(self) -> Option<SetTime> {
        match self.nanoseconds {
            SF_TIME_NOW => Some(SetTime::Now),
            nanoseconds if nanoseconds < 1_000_000_000 => {
                Some(SetTime::At(Timestamp { seconds: self.seconds, nanoseconds }))
            }
            _ => None,
        }
    }
}

/// Attributes of a file, as `sf_stat` returns them.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct sf_attributes {
    /// Number of the inode; never reused during the life of a volume.
    pub inode: u64,
    /// Size in bytes (file, symbolic link), or number of entries (directory).
    pub size: u64,
    /// Bytes allocated on the medium.
    pub allocated: u64,
    /// Type and permissions, with the bits of `st_mode`: 0100644 is a regular file.
    pub mode: u32,
    /// Hard links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of a device node, in Linux' 32-bit encoding.
    pub device: u32,
    /// Preferred size of reads and writes, in bytes.
    pub block_size: u32,
    /// Last access.
    pub accessed: sf_time,
    /// Last change of the content.
    pub modified: sf_time,
    /// Last change of the attributes.
    pub changed: sf_time,
    /// Creation.
    pub created: sf_time,
    /// Zero.
    pub reserved: [u64; 4],
}

impl From<&Attributes> for sf_attributes {
    fn from(attributes: &Attributes) -> sf_attributes {
        sf_attributes {
            inode: attributes.inode.0,
            size: attributes.size,
            allocated: attributes.allocated,
            mode: attributes.mode(),
            links: attributes.links,
            uid: attributes.uid,
            gid: attributes.gid,
            device: attributes.device,
            block_size: attributes.block_size,
            accessed: attributes.accessed.into(),
            modified: attributes.modified.into(),
            changed: attributes.changed.into(),
            created: attributes.created.into(),
            reserved: [0; 4],
        }
    }
}
