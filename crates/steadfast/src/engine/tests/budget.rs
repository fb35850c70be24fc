//! Files and snapshots can always be removed: random small volumes, filled under snapshots and
//! emptied in random orders.
//!
//! Operations that only remove, transaction points and background work must never find the volume
//! full. That holds whatever snapshots hold, however full the volume is, and also if every removal
//! is its own checkpoint.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use std::sync::Arc;

use steadfast_media::MemoryMedium;

use crate::engine::tests::TestVolume;
use crate::error::{Error, Result};
use crate::format::Superblock;
use crate::fs::{AllocateMode, Caller, NewNode, RenameMode, SetAttributes, SetXattrMode};
use crate::mask::TransactionMask;
use crate::options::{FormatOptions, OpenOptions};
use crate::testing::TestPlatform;
use crate::tools::check::{CheckOptions, check};
use crate::types::InodeNumber;
use crate::volume::Volume;

/// Random draws from one seed. The sequence stays its own: the seeds below once showed faults.
struct Draw(u64);

impl Draw {
    fn new(seed: u64) -> Draw {
        let mut draw = Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678);
        draw.below(2);
        draw
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let high = self.0 >> 32;
        (high ^ (high >> 15)) % limit.max(1)
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

struct File {
    directory: InodeNumber,
    name: String,
    inode: InodeNumber,
    is_directory: bool,
}

struct World {
    medium: Arc<MemoryMedium>,
    volume: TestVolume,
    draw: Draw,
    files: Vec<File>,
    open: Vec<InodeNumber>,
    snapshots: Vec<String>,
    made: u64,
    /// Limit of the lengths written.
    length_max: u64,
    cache_size: usize,
}

/// For operations that must succeed.
fn must<T>(what: &str, result: Result<T>) -> core::result::Result<T, String> {
    result.map_err(|error| alloc::format!("{what}: {error}"))
}

/// `false` if there was no space. Refusals because of the file's type do not matter.
fn may(result: Result<()>) -> core::result::Result<bool, String> {
    match result {
        Ok(()) | Err(Error::NotPermitted | Error::NotARegularFile | Error::InvalidArgument(_)) => {
            Ok(true)
        }
        Err(Error::NoSpace) => Ok(false),
        Err(error) => Err(alloc::format!("{error}")),
    }
}

impl World {
    fn new(seed: u64) -> Option<World> {
        let mut draw = Draw::new(seed);
        let block_size: u32 = draw.pick(&[128, 256, 512, 512, 1024, 4096]);
        let node_size = (draw.below(2) == 0)
            .then(|| draw.pick(&[512u32, 1024, 2048, 4096]).max(block_size.max(512)));
        let blocks = match draw.below(4) {
            0 => 64 + draw.below(100),
            1 => 150 + draw.below(500),
            _ => 400 + draw.below(4000),
        };
        let size = (blocks * u64::from(block_size)).clamp(16 << 10, 3 << 20);
        let more = draw.pick(&[
            TransactionMask::MANUAL,
            TransactionMask::MANUAL,
            TransactionMask::UNLINK.union(TransactionMask::TRUNCATE).union(TransactionMask::RMDIR),
            TransactionMask::WRITE.union(TransactionMask::UNLINK),
        ]);
        let options = FormatOptions {
            block_size,
            node_size,
            metadata_copies: draw.pick(&[None, None, Some(1), Some(2)]),
            log_size: match draw.below(3) {
                0 => Some(0),
                1 => Some(u64::from(block_size) * (4 + draw.below(28))),
                _ => None,
            },
            mask: TransactionMask::VOLUME_FULL.union(more),
            ..FormatOptions::default()
        };
        let cache_size = draw.pick(&[0, 64 << 10, 1 << 20]);
        let medium = Arc::new(
            MemoryMedium::new(size / u64::from(block_size) * u64::from(block_size), 128).unwrap(),
        );
        Volume::format(&medium, &options, &TestPlatform::new()).ok()?;
        let volume = open(&medium, cache_size);
        let length_max = draw.pick(&[60, 60, 300, 2_000, 2_000, 20_000, 200_000]);
        Some(World {
            medium,
            volume,
            draw,
            files: Vec::new(),
            open: Vec::new(),
            snapshots: Vec::new(),
            made: 0,
            length_max,
            cache_size,
        })
    }

    fn file(&mut self) -> Option<usize> {
        (!self.files.is_empty()).then(|| self.draw.below(self.files.len() as u64) as usize)
    }

    fn directory(&mut self) -> InodeNumber {
        let directories: Vec<InodeNumber> =
            self.files.iter().filter(|file| file.is_directory).map(|file| file.inode).collect();
        if directories.is_empty() || self.draw.below(3) == 0 {
            return InodeNumber::ROOT;
        }
        self.draw.pick(&directories)
    }

    fn write(&mut self, inode: InodeNumber) -> core::result::Result<bool, String> {
        let length = self.draw.below(self.length_max) + 1;
        let at = match self.draw.below(3) {
            0 => 0,
            _ => self.draw.below(self.length_max * 4),
        };
        may(self.volume.write(inode, at, &vec![self.made as u8; length as usize], false))
    }

    /// One operation that may fail for lack of space; `false`: it did.
    fn grow(&mut self) -> core::result::Result<bool, String> {
        let file = self.file().filter(|_| self.draw.below(2) == 0);
        let Some(file) = file else {
            self.made += 1;
            let directory = self.directory();
            let long = self.draw.pick(&[0, 0, 0, 30, 200]);
            let name = alloc::format!("{}{}", self.made, "n".repeat(long));
            let is_directory = self.draw.below(12) == 0;
            let target = "t".repeat(self.draw.pick(&[5, 100, 900]));
            let node = match self.draw.below(12) {
                _ if is_directory => NewNode::Directory,
                0 => NewNode::Symlink(target.as_bytes()),
                _ => NewNode::Regular,
            };
            let made =
                self.volume.create(directory, name.as_bytes(), node, 0o755, &Caller::default());
            let inode = match made {
                Ok(made) => made.inode,
                Err(error) => return may(Err(error)),
            };
            let regular = matches!(node, NewNode::Regular);
            self.files.push(File { directory, name, inode, is_directory });
            return if regular && self.draw.below(5) > 0 { self.write(inode) } else { Ok(true) };
        };
        let File { inode, is_directory, .. } = self.files[file];
        if is_directory {
            return Ok(true);
        }
        match self.draw.below(12) {
            0 => {
                let name = alloc::format!("user.{}", self.draw.below(9));
                let value = vec![5; self.draw.below(200) as usize];
                may(self.volume.set_xattr(inode, name.as_bytes(), &value, SetXattrMode::Any))
            }
            1 => {
                self.made += 1;
                let name = alloc::format!("l{}", self.made);
                let directory = self.directory();
                let linked = self.volume.link(inode, directory, name.as_bytes());
                if linked.is_ok() {
                    self.files.push(File { directory, name, inode, is_directory: false });
                }
                may(linked.map(drop))
            }
            2 => {
                let Some(other) = self.file() else { return Ok(true) };
                let other = self.files[other].inode;
                match self.volume.clone_range(inode, 0, other, 0, 0) {
                    Err(Error::NoSpace) => Ok(false),
                    _ => Ok(true),
                }
            }
            3 => {
                let block = u64::from(self.volume.engine.superblock().block_size);
                let at = self.draw.below(self.length_max) / block * block;
                let mode = self.draw.pick(&[
                    AllocateMode::PunchHole,
                    AllocateMode::PunchHole,
                    AllocateMode::Allocate { keep_size: false },
                ]);
                match self.volume.allocate(inode, at, block * (1 + self.draw.below(3)), mode) {
                    Err(Error::NoSpace) => Ok(false),
                    _ => Ok(true),
                }
            }
            4 => {
                let Some(other) = self.file() else { return Ok(true) };
                let (from, to) = (&self.files[file], &self.files[other]);
                let (directory, name) = (to.directory, to.name.clone());
                let done = self.volume.rename(
                    from.directory,
                    from.name.as_bytes(),
                    directory,
                    name.as_bytes(),
                    RenameMode::Replace,
                );
                match done {
                    // Renaming between two names of one inode changes nothing.
                    Ok(()) if other != file && self.files[other].inode != inode => {
                        self.files[file].directory = directory;
                        self.files[file].name = name;
                        self.files.swap_remove(other);
                        Ok(true)
                    }
                    Err(Error::NoSpace) => Ok(false),
                    _ => Ok(true),
                }
            }
            _ => self.write(inode),
        }
    }

    /// One operation that must succeed.
    fn shrink(&mut self) -> core::result::Result<(), String> {
        let Some(file) = self.file() else { return Ok(()) };
        let File { directory, inode, is_directory, .. } = self.files[file];
        let name = self.files[file].name.clone();
        if is_directory {
            match self.volume.remove_directory(directory, name.as_bytes()) {
                Err(Error::DirectoryNotEmpty) => {}
                other => {
                    must("rmdir", other)?;
                    self.files.swap_remove(file);
                }
            }
            return Ok(());
        }
        match self.draw.below(8) {
            0 => {
                let size =
                    self.volume.attributes(inode).map_err(|error| alloc::format!("{error}"))?.size;
                let size = self.draw.below(size + 1);
                let change = SetAttributes { size: Some(size), ..SetAttributes::default() };
                match self.volume.set_attributes(inode, &change) {
                    Err(Error::NotARegularFile) => Ok(()),
                    other => must("truncate", other.map(drop)),
                }
            }
            1 => {
                let name = alloc::format!("user.{}", self.draw.below(9));
                match self.volume.remove_xattr(inode, name.as_bytes()) {
                    Err(Error::NoAttribute | Error::NotPermitted) => Ok(()),
                    other => must("remove xattr", other),
                }
            }
            2 if self.open.len() < 40 => {
                if self.volume.acquire(inode).is_ok() {
                    self.open.push(inode);
                }
                must("unlink", self.volume.unlink(directory, name.as_bytes()))?;
                self.files.swap_remove(file);
                Ok(())
            }
            _ => {
                must("unlink", self.volume.unlink(directory, name.as_bytes()))?;
                self.files.swap_remove(file);
                Ok(())
            }
        }
    }

    /// An operation on no file. Only taking a snapshot may be refused.
    fn around(&mut self) -> core::result::Result<(), String> {
        match self.draw.below(10) {
            0 => must("transact", self.volume.transact()),
            1 => must("checkpoint", self.volume.checkpoint()),
            2 => must("background", self.volume.background().map(drop)),
            3 => {
                if !self.open.is_empty() {
                    let at = self.draw.below(self.open.len() as u64) as usize;
                    self.volume.release(self.open.swap_remove(at));
                }
                Ok(())
            }
            4 => {
                must("transact", self.volume.transact())?;
                must("rollback", self.volume.rollback())
            }
            5 if self.draw.below(4) == 0 => {
                must("transact", self.volume.transact())?;
                self.open.clear();
                let options = OpenOptions { cache_size: self.cache_size, ..OpenOptions::default() };
                self.volume =
                    must("open", Volume::open(self.medium.clone(), options, TestPlatform::new()))?;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn take(&mut self) -> core::result::Result<bool, String> {
        self.made += 1;
        let name = alloc::format!("s{}", self.made);
        let taken = may(self.volume.snapshot_create(&name).map(drop))?;
        if taken {
            self.snapshots.push(name);
        }
        Ok(taken)
    }

    fn run(&mut self) -> core::result::Result<u64, String> {
        let mut refused = 0;
        let target = self.draw.below(300);
        for _ in 0..target {
            refused += u64::from(!self.grow()?);
            if self.draw.below(8) == 0 {
                self.around()?;
            }
        }
        // A snapshot of the largest state that fits.
        while !self.take()? {
            if self.files.is_empty() {
                break;
            }
            self.shrink()?;
        }
        for _ in 0..self.draw.below(600) {
            match self.draw.below(40) {
                0..25 => refused += u64::from(!self.grow()?),
                25..35 => self.shrink()?,
                35 if self.draw.below(3) == 0 => drop(self.take()?),
                36 if !self.snapshots.is_empty() && self.draw.below(4) == 0 => {
                    let at = self.draw.below(self.snapshots.len() as u64) as usize;
                    let name = self.snapshots.swap_remove(at);
                    must("snapshot delete", self.volume.snapshot_delete(&name))?;
                }
                _ => self.around()?,
            }
        }
        if self.draw.below(3) > 0 {
            let mut left = 6;
            while left > 0 {
                left -= i32::from(!self.grow()?);
            }
            refused += 6;
        }
        let often = self.draw.pick(&[1, 3, 30]);
        while !self.files.is_empty() {
            self.shrink()?;
            if self.draw.below(often) == 0 {
                self.around()?;
            }
        }
        for inode in core::mem::take(&mut self.open) {
            self.volume.release(inode);
        }
        while must("background", self.volume.background())? {}
        must("checkpoint", self.volume.checkpoint())?;
        self.assert_clean();
        for name in core::mem::take(&mut self.snapshots) {
            must("snapshot delete", self.volume.snapshot_delete(&name))?;
        }
        while must("background", self.volume.background())? {}
        must("checkpoint", self.volume.checkpoint())?;
        self.assert_clean();
        assert_eq!(self.volume.statistics().unwrap().blocks_snapshots, 0);
        Ok(refused)
    }

    fn assert_clean(&self) {
        let report =
            check(self.medium.clone(), TestPlatform::new(), &CheckOptions::default(), &mut |_| ())
                .unwrap();
        assert_eq!(report.damaged, 0, "{:#?}", report.findings);
    }
}

fn open(medium: &Arc<MemoryMedium>, cache_size: usize) -> TestVolume {
    let options = OpenOptions { cache_size, ..OpenOptions::default() };
    Volume::open(medium.clone(), options, TestPlatform::new()).unwrap()
}

/// Seeds to run: `A..B` in STEADFAST_SEEDS for more. Of the first 3,000 every tenth once failed.
/// The seeds named here found more than estimates that were too large:
/// - a log that could not be replayed for lack of space. Seed 13 has a key that was made and
///   removed between two checkpoints, and 1022 all new entries before any removal;
/// - a volume with room for blocks but not for nodes (2660);
/// - removals on full volumes without a snapshot.
fn seeds() -> Vec<u64> {
    let text = std::env::var("STEADFAST_SEEDS").unwrap_or_default();
    let range =
        text.split_once("..").and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    range.map_or((0..24).chain([1022, 2378, 2426, 2437, 2660]).collect(), Iterator::collect)
}

#[test]
fn what_snapshots_hold_can_be_removed() {
    let mut failed: Vec<u64> = Vec::new();
    let (mut worlds, mut refused) = (0, 0);
    for seed in seeds() {
        let Some(mut world) = World::new(seed) else { continue };
        worlds += 1;
        match world.run() {
            Ok(count) => refused += count,
            Err(what) => {
                let superblock = world.volume.engine.superblock();
                let failure = world.volume.engine.lifecycle.failure().unwrap_or_default();
                let Superblock { block_size, node_size, metadata_copies, blocks, .. } = superblock;
                std::eprintln!(
                    "seed {seed}: {what} {failure}: {blocks} blocks of {block_size}, nodes of {node_size} \
                     {metadata_copies} times, {} files, {} snapshots",
                    world.files.len(),
                    world.snapshots.len(),
                );
                failed.push(seed);
            }
        }
    }
    std::eprintln!("{worlds} worlds, {refused} refused, {} failed", failed.len());
    assert!(failed.is_empty(), "{failed:?}");
    assert!(refused > worlds, "the volumes were never full");
}

/// Each hole in the middle of an extent makes two extents of one. Nothing comes back for it if
/// another file shares the blocks.
#[test]
fn holes_in_clones_leave_what_removing_takes() {
    let medium = Arc::new(MemoryMedium::new(8 << 20, 512).unwrap());
    let mask = TransactionMask::VOLUME_FULL;
    let options = FormatOptions { block_size: 512, mask, ..FormatOptions::default() };
    Volume::format(&medium, &options, &TestPlatform::new()).unwrap();
    let volume = open(&medium, 0);
    let make = |name: &str| {
        let made = volume.create(
            InodeNumber::ROOT,
            name.as_bytes(),
            NewNode::Regular,
            0o644,
            &Caller::default(),
        );
        made.map(|made| made.inode)
    };
    let (blocks, block) = (10_000, 512);
    let (big, clone) = (make("big").unwrap(), make("clone").unwrap());
    volume.write(big, 0, &vec![1; blocks * block], false).unwrap();
    volume.clone_range(big, 0, clone, 0, 0).unwrap();
    let mut names = vec![String::from("big"), String::from("clone")];
    loop {
        let name = alloc::format!("{}", names.len());
        match make(&name) {
            Ok(_) => names.push(name),
            Err(error) => break assert_eq!(error, Error::NoSpace),
        }
    }
    let punch = |index: usize| {
        volume.allocate(big, (index * block) as u64, block as u64, AllocateMode::PunchHole)
    };
    let refused =
        (1..blocks).step_by(2).filter(|index| punch(*index) == Err(Error::NoSpace)).count();
    assert!(refused > 0, "the volume was never full");
    for name in names {
        assert_eq!(volume.unlink(InodeNumber::ROOT, name.as_bytes()), Ok(()), "{name}");
        assert_eq!(volume.checkpoint(), Ok(()), "{name}");
    }
}
