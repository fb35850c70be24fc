//! The subject of the tests: anything that behaves like a volume. That is the real volume, or a toy
//! that tests the tests.

use steadfast::check::{CheckOptions, Severity, check};
use steadfast::fs::{
    AllocateMode, Attributes, Caller, DirectoryEntry, NewNode, RenameMode, SeekTo, SetAttributes,
    SetXattrMode, Statistics,
};
use steadfast::volume::{Delta, KeptDeltas, Reached};
use steadfast::{Error, InodeNumber, OpenOptions, Transaction, TransactionMask, Volume};
use steadfast_media::Medium as _;

use crate::platform::{Clock, LabPlatform};
use crate::tape::Tape;
use crate::world::World;

/// Bytes that a turn of background work writes, or one node if that is more.
const BACKGROUND_STEP: u64 = 2 << 10;

/// A changing operation of the facade with its arguments.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the names and arguments are those of the facade")]
pub enum Call<'a> {
    Create {
        directory: InodeNumber,
        name: &'a [u8],
        node: NewNode<'a>,
        permissions: u32,
        caller: Caller,
    },
    CreateUnnamed {
        directory: InodeNumber,
        permissions: u32,
        caller: Caller,
    },
    Link {
        inode: InodeNumber,
        directory: InodeNumber,
        name: &'a [u8],
    },
    Unlink {
        directory: InodeNumber,
        name: &'a [u8],
    },
    RemoveDirectory {
        directory: InodeNumber,
        name: &'a [u8],
    },
    Rename {
        from: InodeNumber,
        from_name: &'a [u8],
        to: InodeNumber,
        to_name: &'a [u8],
        mode: RenameMode,
    },
    SetAttributes {
        inode: InodeNumber,
        set: SetAttributes,
    },
    SetXattr {
        inode: InodeNumber,
        name: &'a [u8],
        value: &'a [u8],
        mode: SetXattrMode,
    },
    RemoveXattr {
        inode: InodeNumber,
        name: &'a [u8],
    },
    Acquire {
        inode: InodeNumber,
    },
    Release {
        inode: InodeNumber,
    },
    Closed {
        inode: InodeNumber,
    },
    Write {
        inode: InodeNumber,
        offset: u64,
        data: &'a [u8],
        sync: bool,
    },
    Append {
        inode: InodeNumber,
        data: &'a [u8],
        sync: bool,
    },
    Allocate {
        inode: InodeNumber,
        offset: u64,
        length: u64,
        mode: AllocateMode,
    },
    CopyRange {
        from: InodeNumber,
        from_offset: u64,
        to: InodeNumber,
        to_offset: u64,
        length: u64,
    },
    CloneRange {
        from: InodeNumber,
        from_offset: u64,
        to: InodeNumber,
        to_offset: u64,
        length: u64,
    },
    Fsync {
        inode: InodeNumber,
        data_only: bool,
    },
    Sync,
    Transact,
    Checkpoint,
    Rollback,
    Background,
    SetMask {
        mask: TransactionMask,
    },
    SetTimer {
        ms: u32,
    },
    SnapshotCreate {
        name: &'a str,
    },
    SnapshotDelete {
        name: &'a str,
    },
    SnapshotRollback {
        name: &'a str,
        destroy_newer: bool,
    },
    Begin,
    Commit,
    Abort,
    Grow {
        size: u64,
    },
    Shrink {
        size: u64,
    },
}

/// The answer to a [`Call`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// Success without a value.
    Done,
    /// Attributes of the inode that was made, linked or changed.
    Attributes(Attributes),
    /// An offset or a count of bytes.
    Number(u64),
    /// Whether more work can be done at once.
    More(bool),
}

/// Properties of a subject that the test relies on.
#[derive(Debug, Clone, Copy)]
pub struct SubjectFacts {
    /// Transaction points since the volume was opened.
    pub transaction_points: u64,
    /// The transaction mask; empty while an atomic command runs.
    pub mask: TransactionMask,
    /// Interval of the timer, milliseconds.
    pub timer_ms: u32,
    /// Size of the volume, bytes.
    pub size: u64,
    /// Size of a block, bytes.
    pub block_size: u64,
    /// Longest name, bytes.
    pub name_max: usize,
}

/// The space used by a closed volume, counted by walking everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Census {
    /// Tree nodes.
    pub nodes: u64,
    /// Blocks that a node takes in all its copies.
    pub blocks_per_node: u64,
    /// Blocks of file data.
    pub data_blocks: u64,
    /// Blocks in use, as the volume reports them.
    pub used_blocks: u64,
    /// Maximum number of nodes of an allocation bitmap of the whole volume, in addition to a
    /// smallest tree.
    pub bitmap_nodes: u64,
}

/// Anything that behaves like a volume on a [`Tape`].
pub trait Subject: Sized {
    /// Whether it has snapshots, clones, atomic commands and resizing. The tests leave out these
    /// operations otherwise.
    const EXTENDED: bool = false;

    /// Makes an empty volume.
    ///
    /// # Errors
    /// As `Volume::format`.
    fn format(world: &World, tape: &Tape, clock: &Clock) -> Result<(), Error>;

    /// Opens the volume.
    ///
    /// # Errors
    /// As `Volume::open`.
    fn open(world: &World, tape: &Tape, clock: &Clock) -> Result<Self, Error>;

    /// Opens the volume after a power cut that other nodes have survived. Returns for each node how
    /// the state compares with what it was told of.
    ///
    /// # Errors
    /// As `Volume::open_after`.
    fn open_after(
        world: &World,
        tape: &Tape,
        clock: &Clock,
        _kept: &[KeptDeltas],
    ) -> Result<(Self, Vec<Reached>), Error> {
        Ok((Self::open(world, tape, clock)?, Vec::new()))
    }

    /// What has changed since batch `seen`, for another node.
    ///
    /// # Errors
    /// As `Volume::delta`.
    fn delta(&self, _seen: u64) -> Result<Option<Delta>, Error> {
        Ok(None)
    }

    /// Closes the volume properly.
    ///
    /// # Errors
    /// As `Volume::close`.
    fn close(&self) -> Result<(), Error>;

    /// Makes a change.
    ///
    /// # Errors
    /// As the facade.
    fn call(&self, call: &Call<'_>) -> Result<Reply, Error>;

    /// Counters and settings.
    fn facts(&self) -> SubjectFacts;

    /// The reason why it became read-only, if it did.
    fn failure(&self) -> Option<&'static str> {
        None
    }

    /// As the facade.
    ///
    /// # Errors
    /// As the facade.
    fn lookup(&self, directory: InodeNumber, name: &[u8]) -> Result<Attributes, Error>;

    /// As the facade.
    ///
    /// # Errors
    /// As the facade.
    fn attributes(&self, inode: InodeNumber) -> Result<Attributes, Error>;

    /// As the facade.
    ///
    /// # Errors
    /// As the facade.
    fn read_directory_plus(
        &self,
        directory: InodeNumber,
        cookie: u64,
        count: usize,
    ) -> Result<Vec<(DirectoryEntry, Attributes)>, Error>;

    /// As the facade.
    ///
    /// # Errors
    /// As the facade.
    fn read(&self, inode: InodeNumber, offset: u64, buffer: &mut [u8]) -> Result<usize, Error>;

    /// As the facade.
    ///
    /// # Errors
    /// As the facade.
    fn read_link(&self, inode: InodeNumber) -> Result<Vec<u8>, Error>;

    /// As the facade.
    ///
    /// # Errors
    /// As the facade.
    fn xattr(&self, inode: InodeNumber, name: &[u8]) -> Result<Vec<u8>, Error>;

    /// As the facade.
    ///
    /// # Errors
    /// As the facade.
    fn list_xattrs(&self, inode: InodeNumber) -> Result<Vec<Vec<u8>>, Error>;

    /// As the facade.
    ///
    /// # Errors
    /// As the facade.
    fn seek(&self, inode: InodeNumber, offset: u64, to: SeekTo) -> Result<u64, Error>;

    /// As the facade.
    ///
    /// # Errors
    /// As the facade.
    fn statistics(&self) -> Result<Statistics, Error>;

    /// Verifies everything on the closed medium: checksums, references, counts.
    ///
    /// # Errors
    /// One line per finding.
    fn check(world: &World, tape: &Tape, clock: &Clock) -> Result<(), String>;

    /// The names of the snapshots, oldest first.
    ///
    /// # Errors
    /// As the facade.
    fn snapshots(&self) -> Result<Vec<String>, Error> {
        Ok(Vec::new())
    }

    /// Whether an atomic command holds the volume.
    fn is_held(&self) -> bool {
        false
    }

    /// Opens a snapshot for reading, possibly while the volume is open.
    ///
    /// # Errors
    /// As the facade.
    fn open_snapshot(
        _world: &World,
        _tape: &Tape,
        _clock: &Clock,
        _name: &str,
    ) -> Result<Self, Error> {
        Err(Error::Unsupported("snapshots"))
    }

    /// Counts the space used by the volume on the closed medium; `None` for subjects that cannot
    /// count it.
    ///
    /// # Errors
    /// The volume cannot be walked.
    fn census(_world: &World, _tape: &Tape, _clock: &Clock) -> Result<Option<Census>, String> {
        Ok(None)
    }
}

/// The real volume on the recording medium.
pub type LabVolume = Volume<Tape, LabPlatform>;

/// Runs `work` on the open transaction, which stays open if `work` does not end it.
fn with_transaction<'v>(
    volume: &'v LabVolume,
    work: impl FnOnce(&mut Transaction<'v, Tape, LabPlatform>) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut transaction = volume.resume()?;
    let result = work(&mut transaction);
    transaction.detach();
    result
}

impl Subject for LabVolume {
    const EXTENDED: bool = true;

    fn format(world: &World, tape: &Tape, clock: &Clock) -> Result<(), Error> {
        Volume::format(tape, &world.format, &LabPlatform::new(clock.clone()))
    }

    fn open(world: &World, tape: &Tape, clock: &Clock) -> Result<Self, Error> {
        Ok(<Self as Subject>::open_after(world, tape, clock, &[])?.0)
    }

    fn open_after(
        world: &World,
        tape: &Tape,
        clock: &Clock,
        kept: &[KeptDeltas],
    ) -> Result<(Self, Vec<Reached>), Error> {
        let options = OpenOptions {
            read_only: false,
            cache_size: world.cache_size,
            access_times: false,
            ..OpenOptions::default()
        };
        let (medium, platform) = (tape.clone(), LabPlatform::new(clock.clone()));
        match world.extras.deltas {
            true => Volume::open_after(medium, options, platform, kept),
            false => Ok((Volume::open(medium, options, platform)?, Vec::new())),
        }
    }

    fn delta(&self, seen: u64) -> Result<Option<Delta>, Error> {
        Volume::delta(self, seen)
    }

    fn close(&self) -> Result<(), Error> {
        Volume::close(self)
    }

    fn call(&self, call: &Call<'_>) -> Result<Reply, Error> {
        let done = |()| Reply::Done;
        match *call {
            Call::Create { directory, name, node, permissions, ref caller } => {
                self.create(directory, name, node, permissions, caller).map(Reply::Attributes)
            }
            Call::CreateUnnamed { directory, permissions, ref caller } => {
                self.create_unnamed(directory, permissions, caller).map(Reply::Attributes)
            }
            Call::Link { inode, directory, name } => {
                self.link(inode, directory, name).map(Reply::Attributes)
            }
            Call::Unlink { directory, name } => self.unlink(directory, name).map(done),
            Call::RemoveDirectory { directory, name } => {
                self.remove_directory(directory, name).map(done)
            }
            Call::Rename { from, from_name, to, to_name, mode } => {
                self.rename(from, from_name, to, to_name, mode).map(done)
            }
            Call::SetAttributes { inode, ref set } => {
                self.set_attributes(inode, set).map(Reply::Attributes)
            }
            Call::SetXattr { inode, name, value, mode } => {
                self.set_xattr(inode, name, value, mode).map(done)
            }
            Call::RemoveXattr { inode, name } => self.remove_xattr(inode, name).map(done),
            Call::Acquire { inode } => self.acquire(inode).map(done),
            Call::Release { inode } => {
                self.release(inode);
                Ok(Reply::Done)
            }
            Call::Closed { .. } => self.closed().map(done),
            Call::Write { inode, offset, data, sync } => {
                self.write(inode, offset, data, sync).map(done)
            }
            Call::Append { inode, data, sync } => self.append(inode, data, sync).map(Reply::Number),
            Call::Allocate { inode, offset, length, mode } => {
                self.allocate(inode, offset, length, mode).map(done)
            }
            Call::CopyRange { from, from_offset, to, to_offset, length } => {
                self.copy_range(from, from_offset, to, to_offset, length).map(Reply::Number)
            }
            Call::CloneRange { from, from_offset, to, to_offset, length } => {
                self.clone_range(from, from_offset, to, to_offset, length).map(Reply::Number)
            }
            Call::Fsync { .. } => self.fsync().map(done),
            Call::Sync => self.sync().map(done),
            Call::Transact => self.transact().map(done),
            Call::Checkpoint => self.checkpoint().map(done),
            Call::Rollback => self.rollback().map(done),
            // The work is one or two nodes at a time, so that operations and power cuts come
            // between the steps of a checkpoint.
            Call::Background => {
                let more = self.background_step(BACKGROUND_STEP).map(Reply::More);
                // A trim at any moment, too. It is advice, so its failure is no finding.
                let medium = self.medium();
                if medium.wants_discards() && !medium.wants_discards_early() {
                    let _ = self.trim_step(0, u64::MAX, 0);
                }
                more
            }
            Call::SetMask { mask } => self.set_mask(mask).map(done),
            Call::SetTimer { ms } => self.set_timer_ms(ms).map(done),
            Call::SnapshotCreate { name } => self.snapshot_create(name).map(|_| Reply::Done),
            Call::SnapshotDelete { name } => self.snapshot_delete(name).map(done),
            Call::SnapshotRollback { name, destroy_newer } => {
                self.snapshot_rollback(name, destroy_newer).map(done)
            }
            Call::Begin => self.begin().map(Transaction::detach).map(done),
            Call::Commit => with_transaction(self, Transaction::try_commit).map(done),
            Call::Abort => with_transaction(self, Transaction::roll_back).map(done),
            Call::Grow { size } => self.grow(size).map(done),
            Call::Shrink { size } => self.shrink(size, &mut |_| ()).map(done),
        }
    }

    fn failure(&self) -> Option<&'static str> {
        self.info().poisoned
    }

    fn is_held(&self) -> bool {
        Volume::is_held(self)
    }

    fn facts(&self) -> SubjectFacts {
        let info = self.info();
        SubjectFacts {
            transaction_points: info.transaction_points,
            mask: if self.is_held() { TransactionMask::MANUAL } else { self.mask() },
            timer_ms: self.timer_ms(),
            size: info.size,
            block_size: u64::from(info.block_size),
            name_max: self.name_max(),
        }
    }

    fn lookup(&self, directory: InodeNumber, name: &[u8]) -> Result<Attributes, Error> {
        Volume::lookup(self, directory, name)
    }

    fn attributes(&self, inode: InodeNumber) -> Result<Attributes, Error> {
        Volume::attributes(self, inode)
    }

    fn read_directory_plus(
        &self,
        directory: InodeNumber,
        cookie: u64,
        count: usize,
    ) -> Result<Vec<(DirectoryEntry, Attributes)>, Error> {
        Volume::read_directory_plus(self, directory, cookie, count)
    }

    fn read(&self, inode: InodeNumber, offset: u64, buffer: &mut [u8]) -> Result<usize, Error> {
        Volume::read(self, inode, offset, buffer)
    }

    fn read_link(&self, inode: InodeNumber) -> Result<Vec<u8>, Error> {
        Volume::read_link(self, inode)
    }

    fn xattr(&self, inode: InodeNumber, name: &[u8]) -> Result<Vec<u8>, Error> {
        Volume::xattr(self, inode, name)
    }

    fn list_xattrs(&self, inode: InodeNumber) -> Result<Vec<Vec<u8>>, Error> {
        Volume::list_xattrs(self, inode)
    }

    fn seek(&self, inode: InodeNumber, offset: u64, to: SeekTo) -> Result<u64, Error> {
        Volume::seek(self, inode, offset, to)
    }

    fn statistics(&self) -> Result<Statistics, Error> {
        Volume::statistics(self)
    }

    fn check(world: &World, tape: &Tape, clock: &Clock) -> Result<(), String> {
        let options = CheckOptions { data: true, cache_size: world.cache_size };
        let platform = LabPlatform::new(clock.clone());
        let report = check(tape.clone(), platform, &options, &mut |_| ())
            .map_err(|error| error.to_string())?;
        // A copy torn by a power cut is replaced at the next checkpoint; until then the other copy
        // is read.
        let damaged =
            report.findings.iter().filter(|finding| finding.severity == Severity::Damaged);
        let damaged: Vec<_> = damaged.collect();
        if report.damaged == 0 {
            return Ok(());
        }
        Err(damaged.iter().map(|finding| finding.text.as_str()).collect::<Vec<_>>().join("; "))
    }

    fn snapshots(&self) -> Result<Vec<String>, Error> {
        Ok(Volume::snapshots(self)?.into_iter().map(|snapshot| snapshot.name).collect())
    }

    fn open_snapshot(world: &World, tape: &Tape, clock: &Clock, name: &str) -> Result<Self, Error> {
        let options = OpenOptions {
            read_only: true,
            cache_size: world.cache_size,
            access_times: false,
            ..OpenOptions::default()
        };
        Volume::open_snapshot(tape.clone(), LabPlatform::new(clock.clone()), options, name)
    }

    fn census(world: &World, tape: &Tape, clock: &Clock) -> Result<Option<Census>, String> {
        let options = CheckOptions { data: false, cache_size: world.cache_size };
        let platform = LabPlatform::new(clock.clone());
        let report = check(tape.clone(), platform.clone(), &options, &mut |_| ())
            .map_err(|error| error.to_string())?;
        let read_only = OpenOptions {
            read_only: true,
            cache_size: world.cache_size,
            access_times: false,
            ..OpenOptions::default()
        };
        let volume =
            Volume::open(tape.clone(), read_only, platform).map_err(|error| error.to_string())?;
        let info = volume.info();
        let blocks_per_node =
            u64::from(info.node_size / info.block_size) * u64::from(info.metadata_copies);
        // One bit per block, in leaves that are at least a quarter full, plus the branches above
        // them.
        let bitmap_nodes = 2 + info.size / u64::from(info.block_size) / u64::from(info.node_size);
        let (nodes, data_blocks, used_blocks) =
            (report.nodes, report.data_blocks, report.used_blocks);
        Ok(Some(Census { nodes, blocks_per_node, data_blocks, used_blocks, bitmap_nodes }))
    }
}
