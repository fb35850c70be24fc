//! Commands for snapshots.

use std::fs::File;
use std::io;

use steadfast::fs::FileKind;
use steadfast::{Generation, InodeChange, InodeNumber, Snapshot, SnapshotDiff, Timestamp};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::call::{READ, WRITE, call, number};

/// `_IOWR(TYPE, 0x30, SnapshotArgument)`: takes a snapshot. In: the name. Out: all fields.
pub const SNAPSHOT_CREATE: u32 = number(READ | WRITE, 0x30, size_of::<SnapshotArgument>());
/// `_IOW(TYPE, 0x31, SnapshotArgument)`: deletes the snapshot with this name.
pub const SNAPSHOT_DELETE: u32 = number(WRITE, 0x31, size_of::<SnapshotArgument>());
/// `_IOW(TYPE, 0x32, SnapshotArgument)`: rolls the volume back to the snapshot with this name; see
/// [`snapshot_flag`].
pub const SNAPSHOT_ROLLBACK: u32 = number(WRITE, 0x32, size_of::<SnapshotArgument>());
/// `_IOWR(TYPE, 0x33, SnapshotListArgument)`: returns the next snapshots of the list.
pub const SNAPSHOT_LIST: u32 = number(READ | WRITE, 0x33, size_of::<SnapshotListArgument>());

/// `_IOWR(TYPE, 0x34, SnapshotDiffArgument)`: returns the next inodes that differ between two
/// states.
pub const SNAPSHOT_DIFF: u32 = number(READ | WRITE, 0x34, size_of::<SnapshotDiffArgument>());

/// Changes in one [`SnapshotDiffArgument`].
pub const SNAPSHOT_DIFF_MAX: usize = 256;

/// Snapshots in one [`SnapshotListArgument`].
pub const SNAPSHOT_LIST_MAX: usize = 32;

/// A snapshot: argument of [`SNAPSHOT_CREATE`], [`SNAPSHOT_DELETE`] and [`SNAPSHOT_ROLLBACK`].
/// Fields that a command does not use are zero.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SnapshotArgument {
    /// UTF-8, padded with zeros, at most 63 bytes.
    pub name: [u8; 64],
    /// Generation of the state; orders snapshots by age.
    pub generation: u64,
    /// Creation time, seconds since 1970.
    pub created_seconds: i64,
    /// Inodes in the snapshot.
    pub inodes: u64,
    /// Blocks that the snapshot refers to.
    pub used_blocks: u64,
    /// Creation time, nanoseconds within the second.
    pub created_nanoseconds: u32,
    /// Bits of [`snapshot_flag`].
    pub flags: u32,
}

/// Bits of [`SnapshotArgument::flags`] for [`SNAPSHOT_ROLLBACK`].
pub mod snapshot_flag {
    /// Roll back even while files are open for writing.
    pub const FORCE: u32 = 1;
    /// Destroy newer snapshots.
    pub const DESTROY_NEWER: u32 = 2;
}

/// Argument of [`SNAPSHOT_LIST`].
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SnapshotListArgument {
    /// In: list snapshots of later generations; 0: all.
    pub after: u64,
    /// Out: number of entries below. Fewer than [`SNAPSHOT_LIST_MAX`]: the list ends here.
    pub count: u64,
    /// Out: the snapshots, oldest first.
    pub snapshots: [SnapshotArgument; SNAPSHOT_LIST_MAX],
}

/// Argument of [`SNAPSHOT_DIFF`].
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SnapshotDiffArgument {
    /// In: name of the earlier snapshot, as in [`SnapshotArgument::name`].
    pub before: [u8; 64],
    /// In: name of the later one; empty: the live volume.
    pub after: [u8; 64],
    /// In: the first inode number. Out: the inode number to continue from; 0: the list ends here.
    pub next: u64,
    /// Out: number of changes below, which can be 0 before the end.
    pub count: u64,
    /// Out: the changes, by inode number.
    pub changes: [SnapshotDiffChange; SNAPSHOT_DIFF_MAX],
}

/// An inode that differs, see [`InodeChange`].
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SnapshotDiffChange {
    /// Inode number.
    pub inode: u64,
    /// As `d_type`.
    pub kind: u32,
    /// From bit 0: created, removed, content, attributes, entries, times.
    pub flags: u32,
}

/// Takes a snapshot of all data that programs have written so far, including data that is only in
/// the kernel's cache.
///
/// # Errors
/// EEXIST; EINVAL, ENAMETOOLONG for the name; ENOSPC if, with the snapshot, later removals might
/// not find the space that they need; EPERM; as for [`transact`](super::transact).
pub fn snapshot_create(file: &File, name: &str) -> io::Result<Snapshot> {
    let mut argument = SnapshotArgument::named(name)?;
    call(file, SNAPSHOT_CREATE, &mut argument)?;
    Ok(Snapshot::from(&argument))
}

/// Deletes a snapshot. Its space is freed in the background.
///
/// # Errors
/// ENOENT; EPERM; as for [`transact`](super::transact).
pub fn snapshot_delete(file: &File, name: &str) -> io::Result<()> {
    call(file, SNAPSHOT_DELETE, &mut SnapshotArgument::named(name)?)
}

/// Rolls the volume back to a snapshot, which remains. Open files become stale (ESTALE). Only the
/// mounting user and root may use it.
///
/// # Errors
/// ENOENT; EBUSY while files are open for writing, unless `force`; ENOTEMPTY if newer snapshots
/// exist and shall not be destroyed; EPERM; as for [`transact`](super::transact).
pub fn snapshot_rollback(
    file: &File,
    name: &str,
    force: bool,
    destroy_newer: bool,
) -> io::Result<()> {
    let mut argument = SnapshotArgument::named(name)?;
    argument.flags = if force { snapshot_flag::FORCE } else { 0 };
    argument.flags |= if destroy_newer { snapshot_flag::DESTROY_NEWER } else { 0 };
    call(file, SNAPSHOT_ROLLBACK, &mut argument)
}

/// Returns the snapshots of the volume, oldest first.
///
/// # Errors
/// ENOTTY; EIO.
pub fn snapshots(file: &File) -> io::Result<Vec<Snapshot>> {
    let mut list = Vec::new();
    let mut argument = SnapshotListArgument::new_zeroed();
    loop {
        call(file, SNAPSHOT_LIST, &mut argument)?;
        let count = (argument.count as usize).min(SNAPSHOT_LIST_MAX);
        list.extend(argument.snapshots[..count].iter().map(Snapshot::from));
        match argument.snapshots[..count].last() {
            Some(last) if count == SNAPSHOT_LIST_MAX => argument.after = last.generation,
            _ => return Ok(list),
        }
    }
}

/// Returns the inodes that differ between the snapshot `before` and the snapshot `after` or the
/// live volume. Data that is only in the kernel's cache is not included; see
/// [`transact`](super::transact).
///
/// # Errors
/// ENOENT if a snapshot does not exist; EINVAL, ENAMETOOLONG for names; ENOTTY; EIO.
pub fn snapshot_diff(
    file: &File,
    before: &str,
    after: Option<&str>,
) -> io::Result<Vec<InodeChange>> {
    let mut changes = Vec::new();
    let mut argument = SnapshotDiffArgument::new_zeroed();
    argument.before = field(before)?;
    argument.after = field(after.unwrap_or_default())?;
    loop {
        call(file, SNAPSHOT_DIFF, &mut argument)?;
        let count = (argument.count as usize).min(SNAPSHOT_DIFF_MAX);
        changes.extend(argument.changes[..count].iter().filter_map(SnapshotDiffChange::decode));
        if argument.next == 0 {
            return Ok(changes);
        }
    }
}

impl SnapshotDiffArgument {
    /// Fills in one part of the answer.
    pub(crate) fn answer(&mut self, diff: &SnapshotDiff) {
        self.count = 0;
        for (place, change) in self.changes.iter_mut().zip(&diff.changes) {
            *place = SnapshotDiffChange::encode(change);
            self.count += 1;
        }
        self.next = diff.next.map_or(0, |next| next.0);
    }
}

impl SnapshotDiffChange {
    fn encode(change: &InodeChange) -> SnapshotDiffChange {
        SnapshotDiffChange { inode: change.inode.0, kind: change.kind as u32, flags: change.bits() }
    }

    fn decode(&self) -> Option<InodeChange> {
        let bit = |bit: u32| self.flags >> bit & 1 != 0;
        Some(InodeChange {
            inode: InodeNumber(self.inode),
            kind: FileKind::from_u8(u8::try_from(self.kind).ok()?)?,
            created: bit(0),
            removed: bit(1),
            content: bit(2),
            attributes: bit(3),
            entries: bit(4),
            times: bit(5),
        })
    }
}

/// Converts a name to its form in an argument.
fn field(name: &str) -> io::Result<[u8; 64]> {
    // A NUL byte would end the name early, and the last byte must stay zero.
    if name.contains('\0') {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut field = [0; 64];
    let place = field.get_mut(..name.len()).filter(|place| place.len() < 64);
    place
        .ok_or_else(|| io::Error::from_raw_os_error(libc::ENAMETOOLONG))?
        .copy_from_slice(name.as_bytes());
    Ok(field)
}

/// The name in a field; `None` if it is not UTF-8 or has no end.
pub(crate) fn text(field: &[u8; 64]) -> Option<&str> {
    let end = field.iter().position(|byte| *byte == 0)?;
    std::str::from_utf8(&field[..end]).ok()
}

impl SnapshotArgument {
    fn named(name: &str) -> io::Result<SnapshotArgument> {
        Ok(SnapshotArgument { name: field(name)?, ..SnapshotArgument::new_zeroed() })
    }
}

impl From<&Snapshot> for SnapshotArgument {
    fn from(snapshot: &Snapshot) -> SnapshotArgument {
        let mut name = [0; 64];
        let bytes = snapshot.name.as_bytes();
        let length = bytes.len().min(63);
        name[..length].copy_from_slice(&bytes[..length]);
        SnapshotArgument {
            name,
            generation: snapshot.generation.0,
            created_seconds: snapshot.created.seconds,
            inodes: snapshot.inodes,
            used_blocks: snapshot.used_blocks,
            created_nanoseconds: snapshot.created.nanoseconds,
            flags: 0,
        }
    }
}

impl From<&SnapshotArgument> for Snapshot {
    fn from(argument: &SnapshotArgument) -> Snapshot {
        Snapshot {
            name: text(&argument.name).unwrap_or_default().to_owned(),
            generation: Generation(argument.generation),
            created: Timestamp {
                seconds: argument.created_seconds,
                nanoseconds: argument.created_nanoseconds,
            },
            inodes: argument.inodes,
            used_blocks: argument.used_blocks,
        }
    }
}
