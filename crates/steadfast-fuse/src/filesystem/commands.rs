//! IOCTL: the daemon's side of the commands in [`crate::ioctl`].

use std::sync::atomic::Ordering;

use steadfast::fs::DefragmentCursor;
use steadfast::{Error, InodeNumber, Platform, TransactionMask, map};
use steadfast_media::Medium;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Filesystem, Outcome, ready};
use crate::abi::input::IoctlIn;
use crate::abi::output::IoctlOut;
use crate::buffer::AnswerBuffer;
use crate::errno::Errno;
use crate::ioctl::snapshot::text;
use crate::ioctl::{
    ACCESS_TIMES, ATOMIC_STATUS, CHECKPOINT, DEFRAGMENT, DefragmentArgument, FLAGS_GET, FLAGS_SET,
    FRAGMENTATION, FragmentationArgument, GROW, INFO, InfoArgument, LOST_WRITES, LOST_WRITES_NEW,
    MASK_GET, MASK_SET, MaskArgument, ROLLBACK, RollbackArgument, SNAPSHOT_CREATE, SNAPSHOT_DELETE,
    SNAPSHOT_DIFF, SNAPSHOT_DIFF_MAX, SNAPSHOT_LIST, SNAPSHOT_ROLLBACK, SnapshotArgument,
    SnapshotDiffArgument, SnapshotListArgument, TRANSACT, TRIM, TrimArgument, XFLAGS_GET,
    XFLAGS_SET, snapshot_flag,
};
use crate::jobs::{Command, Job, Trim};
use crate::node;
use crate::request::{Arguments, Request};
use crate::scrub::{self, ScrubStartArgument};
use crate::service::Later;
use crate::watch::{
    self, MapDeadArgument, MapNodesArgument, MapSpaceArgument, OperationsArgument, Status,
    StatusArgument,
};

impl<M: Medium + 'static, P: Platform + Clone + 'static> Filesystem<M, P> {
    pub(super) fn ioctl(
        &self,
        later: Later<'_>,
        request: &Request<'_>,
        out: &mut AnswerBuffer,
    ) -> Outcome {
        // Commands on a stale file or directory fail.
        self.node(request)?;
        let mut arguments = request.arguments();
        let wanted = arguments.take::<IoctlIn>()?;
        let command = |command| {
            let tickets = vec![self.ticket(later, request)?];
            self.defer(Job::Command { tickets, command })
        };
        match wanted.cmd {
            // With the mask `manual`, a transaction point could publish half of a change that
            // another user intends as one.
            TRANSACT => {
                self.check_owner(request)?;
                command(Command::Transact)
            }
            CHECKPOINT => {
                self.check_owner(request)?;
                command(Command::Checkpoint)
            }
            ROLLBACK => {
                self.check_owner(request)?;
                let argument = argument::<RollbackArgument>(&mut arguments, &wanted)?;
                command(Command::Rollback { force: argument.force != 0 })
            }
            MASK_GET => {
                let argument =
                    MaskArgument { mask: self.volume.mask().0, timer_ms: self.volume.timer_ms() };
                give(&argument, &wanted, out)
            }
            MASK_SET => {
                self.check_owner(request)?;
                let argument = argument::<MaskArgument>(&mut arguments, &wanted)?;
                self.set_mask(TransactionMask(argument.mask), argument.timer_ms)?;
                ready(out.put(&IoctlOut::default()))
            }
            ACCESS_TIMES => {
                self.check_owner(request)?;
                let updated = argument::<[u8; 4]>(&mut arguments, &wanted)? != [0; 4];
                self.volume.set_access_times(updated);
                self.access_times.store(updated, Ordering::Relaxed);
                ready(out.put(&IoctlOut::default()))
            }
            SNAPSHOT_CREATE => {
                self.check_owner(request)?;
                let argument = argument::<SnapshotArgument>(&mut arguments, &wanted)?;
                command(Command::SnapshotCreate { name: name(&argument)? })
            }
            SNAPSHOT_DELETE => {
                self.check_owner(request)?;
                let argument = argument::<SnapshotArgument>(&mut arguments, &wanted)?;
                command(Command::SnapshotDelete { name: name(&argument)? })
            }
            SNAPSHOT_ROLLBACK => {
                self.check_owner(request)?;
                let argument = argument::<SnapshotArgument>(&mut arguments, &wanted)?;
                command(Command::SnapshotRollback {
                    name: name(&argument)?,
                    force: argument.flags & snapshot_flag::FORCE != 0,
                    destroy_newer: argument.flags & snapshot_flag::DESTROY_NEWER != 0,
                })
            }
            SNAPSHOT_DIFF => {
                self.check_owner(request)?;
                let mut part = argument::<SnapshotDiffArgument>(&mut arguments, &wanted)?;
                let before = text(&part.before).ok_or(Errno(libc::EINVAL))?;
                let after = text(&part.after).ok_or(Errno(libc::EINVAL))?;
                let after = Some(after).filter(|name| !name.is_empty());
                let from = InodeNumber(part.next);
                let diff = self.volume.snapshot_diff(before, after, from, SNAPSHOT_DIFF_MAX)?;
                part.answer(&diff);
                give(&part, &wanted, out)
            }
            SNAPSHOT_LIST => {
                let mut list = argument::<SnapshotListArgument>(&mut arguments, &wanted)?;
                list.count = 0;
                let snapshots = self.volume.snapshots()?;
                let later = snapshots.iter().filter(|snapshot| snapshot.generation.0 > list.after);
                for (place, snapshot) in list.snapshots.iter_mut().zip(later) {
                    *place = SnapshotArgument::from(snapshot);
                    list.count += 1;
                }
                give(&list, &wanted, out)
            }
            INFO => give(&InfoArgument::from(&self.volume.info()), &wanted, out),
            GROW => {
                self.check_owner(request)?;
                let size = u64::from_ne_bytes(argument::<[u8; 8]>(&mut arguments, &wanted)?);
                command(Command::Grow { size })
            }
            TRIM => {
                self.check_owner(request)?;
                let range = argument::<TrimArgument>(&mut arguments, &wanted)?;
                let ticket = self.ticket(later, request)?;
                self.defer(Job::Trim { ticket, trim: Trim::new(&range) })
            }
            DEFRAGMENT => {
                self.check_owner(request)?;
                let argument = argument::<DefragmentArgument>(&mut arguments, &wanted)?;
                give(&self.defragment(self.node(request)?, &argument)?, &wanted, out)
            }
            FRAGMENTATION => {
                let found = self.volume.fragmentation(self.node(request)?)?;
                let (blocks, extents, runs) = (found.blocks, found.extents, found.runs);
                give(&FragmentationArgument { blocks, extents, runs }, &wanted, out)
            }
            LOST_WRITES => give(&self.lost.count(), &wanted, out),
            LOST_WRITES_NEW => {
                self.check_owner(request)?;
                // A file that cannot be read may well exist: its loss must not go untold.
                let exists = |nodeid| match self.volume.attributes(node::inode(nodeid)) {
                    Ok(attributes) => attributes.links > 0,
                    Err(error) => !matches!(error, Error::Stale(_)),
                };
                give(&self.lost.take_new(exists), &wanted, out)
            }
            ATOMIC_STATUS => give(&self.kernels.lease.status(), &wanted, out),
            scrub::START => {
                self.check_owner(request)?;
                let argument = argument::<ScrubStartArgument>(&mut arguments, &wanted)?;
                self.kernels.scrubber.start(argument.rate)?;
                ready(out.put(&IoctlOut::default()))
            }
            scrub::STOP => {
                self.check_owner(request)?;
                self.kernels.scrubber.stop();
                ready(out.put(&IoctlOut::default()))
            }
            scrub::STATUS => give(&self.kernels.scrubber.status(), &wanted, out),
            FLAGS_GET | FLAGS_SET | XFLAGS_GET | XFLAGS_SET => {
                self.flags_command(request, &wanted, &mut arguments, out)
            }
            _ => self.watch(&wanted, &mut arguments, out),
        }
    }

    /// Read-only commands.
    fn watch(
        &self,
        wanted: &IoctlIn,
        arguments: &mut Arguments<'_>,
        out: &mut AnswerBuffer,
    ) -> Outcome {
        match wanted.cmd {
            watch::STATUS => {
                let status = Status::take(&self.volume, &self.metrics)?;
                give(&StatusArgument::from(&status), wanted, out)
            }
            watch::OPERATIONS => {
                let argument = argument::<OperationsArgument>(arguments, wanted)?;
                let found = watch::answer_operations(&self.metrics, &argument);
                give(&found.ok_or(Errno(libc::EINVAL))?, wanted, out)
            }
            watch::MAP_GEOMETRY => {
                give(&watch::answer_geometry(&map::geometry(&self.volume)), wanted, out)
            }
            watch::MAP_SPACE => {
                let argument = argument::<MapSpaceArgument>(arguments, wanted)?;
                give(&watch::answer_space(&self.volume, &argument)?, wanted, out)
            }
            watch::MAP_NODES => {
                let argument = argument::<MapNodesArgument>(arguments, wanted)?;
                give(&watch::answer_nodes(&self.volume, &argument)?, wanted, out)
            }
            watch::MAP_DEAD => {
                let argument = argument::<MapDeadArgument>(arguments, wanted)?;
                give(&watch::answer_dead(&self.volume, &argument)?, wanted, out)
            }
            _ => Err(Errno(libc::ENOTTY)),
        }
    }

    fn defragment(
        &self,
        inode: InodeNumber,
        argument: &DefragmentArgument,
    ) -> Result<DefragmentArgument, Errno> {
        let cursor = DefragmentCursor { block: argument.block, goal: argument.goal };
        Ok(match self.volume.defragment_step(inode, cursor)? {
            Some(next) => {
                DefragmentArgument { block: next.block, goal: next.goal, done: 0, reserved: 0 }
            }
            None => DefragmentArgument { done: 1, ..*argument },
        })
    }

    fn set_mask(&self, mask: TransactionMask, timer_ms: u32) -> Result<(), Errno> {
        // The kernel delays cached writes, so the daemon could not honour the event.
        if self.agreement.write_back() && mask.contains(TransactionMask::WRITE) {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        self.closing
            .change_mask(mask, || Ok(self.volume.change_parameters(mask, timer_ms).map(drop)?))
    }

    pub(super) fn check_owner(&self, request: &Request<'_>) -> Result<(), Errno> {
        let uid = request.header.uid;
        if uid == 0 || uid == self.owner { Ok(()) } else { Err(Errno(libc::EPERM)) }
    }
}

fn name(argument: &SnapshotArgument) -> Result<String, Errno> {
    text(&argument.name).map(str::to_owned).ok_or(Errno(libc::EINVAL))
}

pub(crate) fn argument<T: FromBytes + KnownLayout + Immutable>(
    arguments: &mut Arguments<'_>,
    wanted: &IoctlIn,
) -> Result<T, Errno> {
    if wanted.in_size as usize != size_of::<T>() {
        return Err(Errno(libc::EINVAL));
    }
    arguments.take::<T>()
}

pub(crate) fn give<T: IntoBytes + Immutable>(
    value: &T,
    wanted: &IoctlIn,
    out: &mut AnswerBuffer,
) -> Outcome {
    if (wanted.out_size as usize) < size_of::<T>() {
        return Err(Errno(libc::EINVAL));
    }
    out.put(&IoctlOut::default());
    ready(out.put(value))
}
