//! Deliberate bugs, planted between the test and the volume. The test must find each of them, or it
//! proves nothing.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use steadfast::fs::{AllocateMode, Attributes, DirectoryEntry, SeekTo, SetAttributes, Statistics};
use steadfast::{Error, InodeNumber, TransactionMask};

use crate::bug::Bug;
use crate::platform::Clock;
use crate::subject::{Call, Reply, Subject, SubjectFacts};
use crate::tape::Tape;
use crate::world::World;

/// A volume with a bug.
pub struct Sabotaged<S> {
    inner: S,
    bug: Bug,
    /// Transaction points that the bug pretends to have set, minus (wrapping) those that it hides.
    pretended: AtomicU64,
    /// The timer that the bug does not pass on; 0 means none.
    timer_ms: AtomicU32,
}

impl<S: Subject> Sabotaged<S> {
    /// Commits and hides it.
    fn hide_transact(&self) -> Result<(), Error> {
        let before = self.inner.facts().transaction_points;
        self.inner.call(&Call::Transact)?;
        let more = self.inner.facts().transaction_points - before;
        self.pretended.fetch_sub(more, Ordering::Relaxed);
        Ok(())
    }
}

impl<S: Subject> Subject for Sabotaged<S> {
    fn format(world: &World, tape: &Tape, clock: &Clock) -> Result<(), Error> {
        S::format(world, tape, clock)
    }

    fn open(world: &World, tape: &Tape, clock: &Clock) -> Result<Self, Error> {
        Ok(Sabotaged {
            inner: S::open(world, tape, clock)?,
            bug: world.bug,
            pretended: AtomicU64::new(0),
            timer_ms: AtomicU32::new(0),
        })
    }

    fn close(&self) -> Result<(), Error> {
        self.inner.close()
    }

    fn call(&self, call: &Call<'_>) -> Result<Reply, Error> {
        let volume = &self.inner;
        match (self.bug, call) {
            (Bug::TransactDoesNothing, Call::Transact) => {
                self.pretended.fetch_add(1, Ordering::Relaxed);
                Ok(Reply::Done)
            }
            (Bug::RollbackDoesNothing, Call::Rollback) => Ok(Reply::Done),
            (Bug::RenameInTwoTransactions, Call::Rename { to, to_name, .. }) => {
                if volume.call(&Call::Unlink { directory: *to, name: to_name }).is_ok() {
                    self.hide_transact()?;
                }
                volume.call(call)
            }
            (Bug::UnlinkCommits, Call::Unlink { .. }) => {
                let reply = volume.call(call)?;
                self.hide_transact()?;
                Ok(reply)
            }
            (Bug::WriteLosesLastByte, Call::Write { inode, offset, data, sync })
                if data.len() > 100 =>
            {
                let zero = [&data[..data.len() - 1], &[0]].concat();
                volume.call(&Call::Write {
                    inode: *inode,
                    offset: *offset,
                    data: &zero,
                    sync: *sync,
                })
            }
            (
                Bug::TruncateKeepsBytes,
                Call::SetAttributes { inode, set: SetAttributes { size: Some(size), .. } },
            ) => {
                let mut tail = [0; 4];
                let kept = volume.read(*inode, *size, &mut tail).unwrap_or(0);
                let reply = volume.call(call)?;
                if kept > 0 {
                    volume.call(&Call::Append {
                        inode: *inode,
                        data: &tail[..kept],
                        sync: false,
                    })?;
                }
                Ok(reply)
            }
            (Bug::LinkForgetsTime, Call::Link { inode, .. }) => {
                let before = volume.attributes(*inode)?;
                let reply = volume.call(call)?;
                let set =
                    SetAttributes { changed: Some(before.changed), ..SetAttributes::default() };
                volume.call(&Call::SetAttributes { inode: *inode, set })?;
                Ok(reply)
            }
            (Bug::FailedCreateLeavesXattr, Call::Create { directory, .. }) => {
                let result = volume.call(call);
                if result.is_err() {
                    let (name, value) = (&b"user.left"[..], &b"behind"[..]);
                    let mode = Default::default();
                    let _ = volume.call(&Call::SetXattr { inode: *directory, name, value, mode });
                }
                result
            }
            (
                Bug::HoleTakesLastByte,
                Call::Allocate { inode, offset, length, mode: AllocateMode::PunchHole },
            ) => {
                let last = offset.saturating_add(*length);
                let takes = volume
                    .attributes(*inode)
                    .is_ok_and(|found| last.checked_add(1) == Some(found.size));
                let length = length + u64::from(takes);
                volume.call(&Call::Allocate {
                    inode: *inode,
                    offset: *offset,
                    length,
                    mode: AllocateMode::PunchHole,
                })
            }
            (Bug::TimerIsNotStored, Call::SetTimer { ms }) => {
                self.timer_ms.store(*ms, Ordering::Relaxed);
                Ok(Reply::Done)
            }
            (Bug::SyncWriteNeedsFsync, Call::Write { inode, offset, data, sync: true }) => {
                let sync = volume.facts().mask.contains(TransactionMask::FSYNC);
                volume.call(&Call::Write { inode: *inode, offset: *offset, data, sync })
            }
            _ => volume.call(call),
        }
    }

    fn facts(&self) -> SubjectFacts {
        let mut facts = self.inner.facts();
        // These bugs also report false counters, so that the test cannot find them by the counter.
        let pretended = self.pretended.load(Ordering::Relaxed);
        facts.transaction_points = facts.transaction_points.wrapping_add(pretended);
        match self.timer_ms.load(Ordering::Relaxed) {
            0 => {}
            kept => facts.timer_ms = kept,
        }
        facts
    }

    fn lookup(&self, directory: InodeNumber, name: &[u8]) -> Result<Attributes, Error> {
        self.inner.lookup(directory, name)
    }

    fn attributes(&self, inode: InodeNumber) -> Result<Attributes, Error> {
        self.inner.attributes(inode)
    }

    fn read_directory_plus(
        &self,
        directory: InodeNumber,
        cookie: u64,
        count: usize,
    ) -> Result<Vec<(DirectoryEntry, Attributes)>, Error> {
        self.inner.read_directory_plus(directory, cookie, count)
    }

    fn read(&self, inode: InodeNumber, offset: u64, buffer: &mut [u8]) -> Result<usize, Error> {
        self.inner.read(inode, offset, buffer)
    }

    fn read_link(&self, inode: InodeNumber) -> Result<Vec<u8>, Error> {
        self.inner.read_link(inode)
    }

    fn xattr(&self, inode: InodeNumber, name: &[u8]) -> Result<Vec<u8>, Error> {
        self.inner.xattr(inode, name)
    }

    fn list_xattrs(&self, inode: InodeNumber) -> Result<Vec<Vec<u8>>, Error> {
        self.inner.list_xattrs(inode)
    }

    fn seek(&self, inode: InodeNumber, offset: u64, to: SeekTo) -> Result<u64, Error> {
        self.inner.seek(inode, offset, to)
    }

    fn statistics(&self) -> Result<Statistics, Error> {
        self.inner.statistics()
    }

    fn check(world: &World, tape: &Tape, clock: &Clock) -> Result<(), String> {
        S::check(world, tape, clock)
    }
}
