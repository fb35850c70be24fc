//! The operations that run while memory runs out.

use steadfast::fs::{
    AllocateMode, Caller, DefragmentCursor, NewNode, RenameMode, SetAttributes, SetXattrMode,
};
use steadfast::testing::TestPlatform;
use steadfast::{Error, InodeNumber, Result, Transaction};

use super::Device;
use super::allocator::Chip;

/// How an operation is judged, beside the rules for all.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// All or nothing.
    Whole,
    /// Works in steps; an error may come between two of them.
    Steps,
    /// Returns to another state. If memory runs out in the middle, nothing is shown until another
    /// rollback.
    Back,
}

pub struct Operation {
    pub name: &'static str,
    pub kind: Kind,
    pub run: fn(&Device<'_>) -> Result<()>,
}

const fn whole(name: &'static str, run: fn(&Device<'_>) -> Result<()>) -> Operation {
    Operation { name, kind: Kind::Whole, run }
}

const fn steps(name: &'static str, run: fn(&Device<'_>) -> Result<()>) -> Operation {
    Operation { name, kind: Kind::Steps, run }
}

/// The operations. A refused operation can be repeated.
const fn back(name: &'static str, run: fn(&Device<'_>) -> Result<()>) -> Operation {
    Operation { name, kind: Kind::Back, run }
}

pub static OPERATIONS: &[Operation] = &[
    whole("create", |volume| {
        let parent = volume.resolve("/d3", true)?.inode;
        done(volume.create(parent, b"new", NewNode::Regular, 0o640, &Caller::default()))
    }),
    whole("write, inline", |volume| {
        volume.write(volume.resolve("/d3/new", true)?.inode, 3, b"hello", false)
    }),
    steps("write, blocks", |volume| {
        volume.write(volume.resolve("/d3/new", true)?.inode, 100, &[7; 30_000], false)
    }),
    steps("overwrite", |volume| {
        volume.write(volume.resolve("/d1/f9", true)?.inode, 1000, &[8; 3000], false)
    }),
    whole("synchronous write", |volume| {
        volume.write(volume.resolve("/d0/f4", true)?.inode, 10, &[9; 700], true)
    }),
    whole("append", |volume| match volume.resolve("/d0/f4", true)?.size {
        size if size >= 3000 => Ok(()),
        _ => volume.append(volume.resolve("/d0/f4", true)?.inode, &[3; 2500], false).map(drop),
    }),
    whole("read", |volume| {
        let mut buffer = [0; 4000];
        volume.read(volume.resolve("/d1/f9", true)?.inode, 500, &mut buffer).map(drop)
    }),
    whole("read directory", |volume| volume.directory_entries("/d1").map(drop)),
    whole("read directory with attributes", |volume| {
        volume.read_directory_plus(volume.resolve("/d1", true)?.inode, 0, 100).map(drop)
    }),
    whole("set attribute", |volume| {
        volume.set_xattr(
            volume.resolve("/d1/f9", true)?.inode,
            b"user.small",
            b"value",
            SetXattrMode::Any,
        )
    }),
    whole("set large attribute", |volume| {
        volume.set_xattr(
            volume.resolve("/d1/f9", true)?.inode,
            b"user.large",
            &[5; 3000],
            SetXattrMode::Any,
        )
    }),
    whole("read attributes", |volume| {
        let inode = volume.resolve("/d1/f9", true)?.inode;
        volume.list_xattrs(inode)?;
        volume.xattr(inode, b"user.large").map(drop)
    }),
    whole("transact", |volume| volume.transact()),
    whole("rename", |volume| {
        let from = volume.resolve("/d3", true)?.inode;
        let to = volume.resolve("/d0", true)?.inode;
        gone(volume.rename(from, b"new", to, b"f8", RenameMode::Replace))
    }),
    whole("link", |volume| {
        let inode = volume.resolve("/d0/f8", true)?.inode;
        done(volume.link(inode, volume.resolve("/d2", true)?.inode, b"second"))
    }),
    whole("unlink", |volume| gone(volume.unlink(volume.resolve("/d1", true)?.inode, b"f13"))),
    steps("reclaim", idle),
    steps("truncate", |volume| {
        let set = SetAttributes { size: Some(1234), ..SetAttributes::default() };
        volume.set_attributes(volume.resolve("/d1/f9", true)?.inode, &set).map(drop)
    }),
    steps("allocate", |volume| {
        let inode = volume.resolve("/d1/f9", true)?.inode;
        volume.allocate(inode, 2000, 20_000, AllocateMode::Allocate { keep_size: false })
    }),
    steps("write in place", |volume| {
        volume.write(volume.resolve("/d1/f9", true)?.inode, 5000, &[11; 5000], false)
    }),
    steps("punch", |volume| {
        volume.allocate(volume.resolve("/d1/f9", true)?.inode, 600, 6000, AllocateMode::PunchHole)
    }),
    steps("defragment", |volume| {
        let inode = volume.resolve("/d1/f9", true)?.inode;
        let mut cursor = Some(DefragmentCursor::default());
        while let Some(at) = cursor {
            cursor = volume.defragment_step(inode, at)?;
        }
        Ok(())
    }),
    steps("clone", |volume| {
        let (from, to) =
            (volume.resolve("/d1/f9", true)?.inode, volume.resolve("/d3/f11", true)?.inode);
        volume.clone_range(from, 0, to, 0, 4096).map(drop)
    }),
    steps("write what is shared", |volume| {
        volume.write(volume.resolve("/d3/f11", true)?.inode, 700, &[14; 1500], false)
    }),
    whole("unlink what is shared", |volume| {
        gone(volume.unlink(volume.resolve("/d3", true)?.inode, b"f11"))
    }),
    steps("reclaim what is shared", idle),
    whole("create snapshot", |volume| match volume.snapshots()?.is_empty() {
        true => volume.snapshot_create("one").map(drop),
        false => Ok(()),
    }),
    steps("write after a snapshot", |volume| {
        volume.write(volume.resolve("/d2/f6", true)?.inode, 0, &[13; 4000], false)
    }),
    whole("unlink after a snapshot", |volume| {
        gone(volume.unlink(volume.resolve("/d2", true)?.inode, b"f2"))
    }),
    steps("reclaim after a snapshot", idle),
    steps("checkpoint", |volume| volume.checkpoint()),
    whole("compare snapshot", |volume| {
        volume.snapshot_diff("one", None, InodeNumber::ROOT, 1000).map(drop)
    }),
    whole("make directory", |volume| {
        let parent = volume.resolve("/d2", true)?.inode;
        done(volume.create(parent, b"sub", NewNode::Directory, 0o750, &Caller::default()))
    }),
    whole("make link", |volume| done(volume.create_symlink("../d0/f8", "/d2/link"))),
    whole("follow link", |volume| volume.resolve("/d2/link", true).map(drop)),
    whole("remove directory", |volume| {
        gone(volume.remove_directory(volume.resolve("/d2", true)?.inode, b"sub"))
    }),
    back("roll back", |volume| volume.rollback()),
    steps("atomically, committed", |volume| {
        hold(volume)?;
        done(volume.create_symlink("together", "/d1/held"))?;
        end(volume, Transaction::try_commit)
    }),
    back("atomically, given up", |volume| {
        hold(volume)?;
        gone(volume.unlink(volume.resolve("/d1", true)?.inode, b"held"))?;
        end(volume, Transaction::roll_back)
    }),
    steps("change before going back", |volume| {
        volume.write(volume.resolve("/d1/f9", true)?.inode, 2000, &[15; 2000], true)
    }),
    back("go back to snapshot", |volume| volume.snapshot_rollback("one", true)),
    steps("change after going back", |volume| {
        volume.write(volume.resolve("/d1/f9", true)?.inode, 2000, &[16; 2500], true)
    }),
    steps("delete snapshot", |volume| gone(volume.snapshot_delete("one"))),
    steps("reclaim the snapshot", idle),
    whole("statistics", |volume| {
        volume.info();
        volume.statistics().map(drop)
    }),
];

/// A second attempt finds the result of the first one.
fn done<T>(result: Result<T>) -> Result<()> {
    match result {
        Ok(_) | Err(Error::AlreadyExists) => Ok(()),
        Err(error) => Err(error),
    }
}

/// As an atomic command; a second attempt may find that the first one has begun.
fn hold(volume: &Device<'_>) -> Result<()> {
    match volume.begin() {
        Ok(transaction) => {
            transaction.detach();
            Ok(())
        }
        Err(Error::Held) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Ends the transaction that [`hold`] has begun; after an error it stays open.
fn end<'v, 'c>(
    volume: &'v Device<'c>,
    work: impl FnOnce(&mut Transaction<'v, &'c Chip, TestPlatform>) -> Result<()>,
) -> Result<()> {
    let mut transaction = volume.resume()?;
    let result = work(&mut transaction);
    transaction.detach();
    result
}

fn gone(result: Result<()>) -> Result<()> {
    if result == Err(Error::NotFound) { Ok(()) } else { result }
}

/// Runs background work until there is none.
pub fn idle(volume: &Device<'_>) -> Result<()> {
    while volume.background()? {}
    Ok(())
}
