//! Use of a possibly hostile volume, in every way, within limits.

use std::collections::BTreeSet;
use std::sync::Arc;

use steadfast::check::{CheckOptions, check};
use steadfast::fs::{
    AllocateMode, Caller, NewNode, RenameMode, SeekTo, SetAttributes, SetXattrMode,
};
use steadfast::{Error, InodeNumber, OpenOptions, Result, Volume};

use super::bench::BudgetMedium;
use crate::platform::{Clock, LabPlatform};

/// Maximum number of inodes visited.
const INODES_MAX: usize = 300;
/// Requests to the medium allowed for one call. The images have a few hundred nodes. A call uses
/// one path per key, searches a few groups for space, and may wait for a checkpoint.
const CALL_REQUESTS: u64 = 20_000;
/// The same for opening and checking, which may read everything.
const WHOLE_REQUESTS: u64 = 200_000;
/// Maximum number of steps of background work.
const BACKGROUND_STEPS: usize = 64;

/// The progress of the exercise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExerciseOutcome {
    /// The volume opened.
    pub opened: bool,
    /// Number of visible inodes.
    pub inodes: usize,
    /// Calls that returned an error.
    pub errors: usize,
    /// Number of calls.
    pub calls: usize,
}

type Hostile = Volume<Arc<BudgetMedium>, LabPlatform>;

/// Opens the volume, walks, reads, changes, commits, rolls back, opens again and checks.
///
/// # Panics
/// The core panics, or does more work than it may.
pub fn exercise(image: Vec<u8>) -> ExerciseOutcome {
    let bench = Arc::new(BudgetMedium::new(image));
    let platform = LabPlatform::new(Clock::default());
    let mut outcome = ExerciseOutcome::default();
    bench.allow(WHOLE_REQUESTS);
    let options = CheckOptions::default();
    let _ = check(bench.clone(), platform.clone(), &options, &mut |_| ());
    for round in 0..2 {
        bench.allow(WHOLE_REQUESTS);
        let open = OpenOptions { cache_size: 64 << 10, ..OpenOptions::default() };
        let Ok(volume) = Volume::open(bench.clone(), open, platform.clone()) else {
            return outcome;
        };
        outcome.opened = true;
        let mut visit = Visit { volume: &volume, bench: &bench, outcome: &mut outcome };
        let inodes = visit.walk();
        if round == 0 {
            visit.change(&inodes);
            visit.walk();
        }
        visit.call(|volume| volume.close());
    }
    bench.allow(WHOLE_REQUESTS);
    let _ = check(bench.clone(), platform.clone(), &options, &mut |_| ());
    outcome
}

struct Visit<'a> {
    volume: &'a Hostile,
    bench: &'a BudgetMedium,
    outcome: &'a mut ExerciseOutcome,
}

impl Visit<'_> {
    fn call<T>(&mut self, call: impl FnOnce(&Hostile) -> Result<T, Error>) -> Option<T> {
        self.bench.allow(CALL_REQUESTS);
        self.outcome.calls += 1;
        let answer = call(self.volume);
        self.outcome.errors += usize::from(answer.is_err());
        answer.ok()
    }

    /// Visits everything that is reachable.
    fn walk(&mut self) -> Vec<(InodeNumber, InodeNumber, Vec<u8>)> {
        let mut seen = BTreeSet::from([InodeNumber::ROOT]);
        let mut ahead = vec![InodeNumber::ROOT];
        let mut names = Vec::new();
        let _ = self.volume.info();
        self.call(|volume| volume.statistics());
        self.call(|volume| volume.snapshots());
        while let Some(directory) = ahead.pop() {
            let mut cookie = 0;
            // A listing always advances, but a directory may claim to have 2^63 entries.
            for _ in 0..INODES_MAX {
                let listed = self.call(|volume| volume.read_directory_plus(directory, cookie, 16));
                let Some(last) = listed.as_ref().and_then(|listed| listed.last()) else { break };
                assert!(last.0.cookie > cookie, "a listing goes back");
                cookie = last.0.cookie;
                for (entry, _) in listed.unwrap_or_default() {
                    if entry.name == b"." || entry.name == b".." {
                        continue;
                    }
                    self.call(|volume| volume.lookup(directory, &entry.name));
                    if names.len() < INODES_MAX && seen.insert(entry.inode) {
                        self.look(entry.inode);
                        ahead.push(entry.inode);
                        names.push((entry.inode, directory, entry.name));
                    }
                }
            }
        }
        self.outcome.inodes = self.outcome.inodes.max(names.len());
        names
    }

    fn look(&mut self, inode: InodeNumber) {
        let mut buffer = vec![0; 20_000];
        let size =
            self.call(|volume| volume.attributes(inode)).map_or(0, |attributes| attributes.size);
        for offset in [0, 700, size.saturating_sub(5000), size / 2, size] {
            self.call(|volume| volume.read(inode, offset, &mut buffer));
        }
        let mut at = 0;
        for _ in 0..16 {
            let Some(data) = self.call(|volume| volume.seek(inode, at, SeekTo::Data)) else {
                break;
            };
            let Some(hole) = self.call(|volume| volume.seek(inode, data, SeekTo::Hole)) else {
                break;
            };
            at = hole;
        }
        self.call(|volume| volume.read_link(inode));
        for name in self.call(|volume| volume.list_xattrs(inode)).unwrap_or_default() {
            self.call(|volume| volume.xattr(inode, &name));
        }
    }

    fn background(&mut self) {
        for _ in 0..BACKGROUND_STEPS {
            if self.call(|volume| volume.background()) != Some(true) {
                break;
            }
        }
    }

    /// Changes many of the inodes found.
    fn change(&mut self, names: &[(InodeNumber, InodeNumber, Vec<u8>)]) {
        let caller = Caller::default();
        let root = InodeNumber::ROOT;
        let size = |size| SetAttributes { size: Some(size), ..SetAttributes::default() };
        self.call(|volume| volume.create(root, b"new", NewNode::Regular, 0o644, &caller));
        self.call(|volume| volume.transact());
        self.background();
        for (number, (inode, directory, name)) in names.iter().enumerate() {
            let inode = *inode;
            match number % 9 {
                0 => drop(self.call(|volume| volume.write(inode, 1000, &[5; 6000], false))),
                1 => drop(self.call(|volume| volume.set_attributes(inode, &size(100)))),
                2 => drop(self.call(|volume| volume.unlink(*directory, name))),
                3 => {
                    self.call(|volume| {
                        volume.rename(*directory, name, root, b"moved", RenameMode::Replace)
                    });
                }
                4 => drop(self.call(|volume| volume.append(inode, &[6; 900], false))),
                5 => {
                    self.call(|volume| {
                        volume.allocate(inode, 500, 30_000, AllocateMode::PunchHole)
                    });
                    self.call(|volume| {
                        volume.allocate(inode, 0, 9000, AllocateMode::Allocate { keep_size: false })
                    });
                }
                6 => {
                    self.call(|volume| {
                        volume.set_xattr(inode, b"user.new", &[7; 300], SetXattrMode::Any)
                    });
                    self.call(|volume| volume.remove_xattr(inode, b"user.note"));
                }
                7 => {
                    self.call(|volume| volume.copy_range(inode, 0, inode, 50_000, 9000));
                    self.call(|volume| volume.link(inode, root, b"another"));
                }
                _ => drop(self.call(|volume| volume.remove_directory(*directory, name))),
            }
            if number % 7 == 6 {
                self.call(|volume| volume.transact());
            }
            if number % 11 == 10 {
                self.call(|volume| volume.rollback());
            }
        }
        self.background();
        self.call(|volume| volume.checkpoint());
        self.call(|volume| volume.snapshot_create("hostile"));
        for (inode, directory, name) in names {
            self.call(|volume| volume.set_attributes(*inode, &size(0)));
            self.call(|volume| volume.unlink(*directory, name));
        }
        self.background();
        self.call(|volume| volume.rollback());
        self.call(|volume| volume.write(root, 0, &[1; 10], true));
        self.call(|volume| volume.checkpoint());
    }
}
