//! The commands about snapshots.

use std::fs::File;
use std::io;

use steadfast::fs::FileKind;
use steadfast::{Generation, InodeChange, InodeNumber, Snapshot, SnapshotDiff, Timestamp};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::{READ, WRITE, call, number};

/// `_IOWR(TYPE, 0x30, SnapshotArgument)`: takes a snapshot, name in, all of it out.
pub const SNAPSHOT_CREATE: u32 = number(READ | WRITE, 0x30, size_of::<SnapshotArgument>());
/// `_IOW(TYPE, 0x31, SnapshotArgument)`: deletes the snapshot of this name.
pub const SNAPSHOT_DELETE: u32 = number(WRITE, 0x31, size_of::<SnapshotArgument>());
/// `_IOW(TYPE, 0x32, SnapshotArgument)`: returns the volume to the snapshot of this name; see
/// [`snapshot_flag`].
pub const SNAPSHOT_ROLLBACK: u32 = number(WRITE, 0x32, size_of::<SnapshotArgument>());
/// `_IOWR(TYPE, 0x33, SnapshotListArgument)`: the next snapshots of the list.
pub const SNAPSHOT_LIST: u32 = number(READ | WRITE, 0x33, size_of::<SnapshotListArgument>());

/// `_IOWR(TYPE, 0x34, SnapshotDiffArgument)`: the next inodes that differ between two states.
pub const SNAPSHOT_DIFF: u32 = number(READ | WRITE, 0x34, size_of::<SnapshotDiffArgument>());

/// Changes in one [`SnapshotDiffArgument`].
pub const SNAPSHOT_DIFF_MAX: usize = 256;

/// Snapshots in one [`SnapshotListArgument`].
pub const SNAPSHOT_LIST_MAX: usize = 32;

/// A snapshot: argument of [`SNAPSHOT_CREATE`], [`SNAPSHOT_DELETE`] and [`SNAPSHOT_ROLLBACK`].
/// Fields that a command does not take are zero.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SnapshotArgument {
    /// UTF-8, padded with zeros, at most 63 bytes.
    pub name: [u8; 64],
    /// Generation of the state; orders snapshots by age.
    pub generation: u64,
    /// When it was taken, seconds since 1970.
    pub created_seconds: i64,
    /// Inodes in it.
    pub inodes: u64,
    /// Blocks that it refers to.
    pub used_blocks: u64,
    /// And nanoseconds.
    pub created_nanoseconds: u32,
    /// Bits of [`snapshot_flag`].
    pub flags: u32,
}

/// Bits of [`SnapshotArgument::flags`] for [`SNAPSHOT_ROLLBACK`].
pub mod snapshot_flag {
    /// Also while files are open for writing.
    pub const FORCE: u32 = 1;
    /// Newer snapshots are destroyed.
    pub const DESTROY_NEWER: u32 = 2;
}

/// Argument of [`SNAPSHOT_LIST`].
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SnapshotListArgument {
    /// In: snapshots of later generations are wanted; 0: all.
    pub after: u64,
    /// Out: how many there are below. Fewer than [`SNAPSHOT_LIST_MAX`]: these are the last ones.
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
    /// In: inodes from this number on. Out: where to go on; 0: these were the last ones.
    pub next: u64,
    /// Out: how many changes there are below; there can be none before the end.
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

/// Takes a snapshot of everything that programs have written up to now, also what is only in the
/// kernel's cache.
///
/// # Errors
/// EEXIST; EINVAL, ENAMETOOLONG for the name; ENOSPC where removing files under a snapshot might
/// not find the room that it needs; EPERM; as [`transact`](super::transact).
pub fn snapshot_create(file: &File, name: &str) -> io::Result<Snapshot> {
    let mut argument = SnapshotArgument::named(name)?;
    call(file, SNAPSHOT_CREATE, &mut argument)?;
    Ok(Snapshot::from(&argument))
}

/// Deletes a snapshot. Its space comes back in the background.
///
/// # Errors
/// ENOENT; EPERM; as [`transact`](super::transact).
pub fn snapshot_delete(file: &File, name: &str) -> io::Result<()> {
    call(file, SNAPSHOT_DELETE, &mut SnapshotArgument::named(name)?)
}

/// Returns the volume to a snapshot, which stays. Files that are open become stale (ESTALE). For
/// the user who mounted, and root.
///
/// # Errors
/// ENOENT; EBUSY while files are open for writing, unless `force`; ENOTEMPTY where there are newer
/// snapshots, unless they are to be destroyed; EPERM; as [`transact`](super::transact).
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

/// The snapshots of the volume, oldest first.
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

/// Which inodes differ between the snapshot `before` and the snapshot `after`, or the live volume
/// (what the kernel still keeps to itself is not in it: see [`transact`](super::transact)).
///
/// # Errors
/// ENOENT where there is no such snapshot; EINVAL, ENAMETOOLONG for names; ENOTTY; EIO.
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
    /// Fills in a part of the answer.
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
        let bits = [
            change.created,
            change.removed,
            change.content,
            change.attributes,
            change.entries,
            change.times,
        ];
        let flags = bits.iter().enumerate().map(|(bit, set)| u32::from(*set) << bit).sum();
        SnapshotDiffChange { inode: change.inode.0, kind: change.kind as u32, flags }
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

/// A name as it is in an argument.
fn field(name: &str) -> io::Result<[u8; 64]> {
    // A NUL byte would end it; the last byte stays zero.
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

/// The name in a field; `None` where it is not UTF-8 or not ended.
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
