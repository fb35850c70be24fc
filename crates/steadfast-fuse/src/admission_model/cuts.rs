//! Power cuts below the model of the page cache.
//!
//! The kernel gives the volume its pages late, in any order, and while the volume is full. So a
//! state of the volume is not a state that programs have seen. The contract behind a cut is:
//!
//! - the volume has the state behind one of its requests, not older than the last point that was
//!   acknowledged;
//! - a file that was fsynced, and not changed since, has the bytes that programs have seen.
//!
//! Contents are compared by a hash of all bytes.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use steadfast::check::{CheckOptions, check};
use steadfast::fs::{Caller, NewNode};
use steadfast::{Error, InodeNumber, OpenOptions, TransactionMask, Volume};
use steadfast_host::HostPlatform;
use steadfast_media::random::Random;
use steadfast_media::{Medium, MemoryMedium, SimMedium};

use super::{MIB, PAGE, Run, World};
use crate::admission::Surroundings;

/// How often a volume is filled.
const ROUNDS: u64 = 6;
/// Writes that a full volume refuses before it is emptied.
const FULL: u64 = 20;

/// The volume below the model.
type Below = Volume<Arc<SimMedium>, HostPlatform>;

/// The requests that the volume has executed, and what programs were told.
#[derive(Debug, Default)]
pub(super) struct History {
    /// Files at the last acknowledged point.
    durable: BTreeMap<u64, u64>,
    /// Changes since then: the contents of a file behind each, or none if it was removed.
    changes: Vec<(u64, Option<u64>)>,
    /// Contents of files that were fsynced, and that no program has changed since.
    synced: BTreeMap<u64, u64>,
}

impl History {
    pub(super) fn changed(&mut self, nodeid: u64, file: Option<(&Below, InodeNumber)>) {
        let contents = file.map(|(volume, inode)| contents(volume, inode).unwrap());
        self.changes.push((nodeid, contents));
    }

    pub(super) fn touched(&mut self, nodeid: u64) {
        self.synced.remove(&nodeid);
    }

    pub(super) fn all_durable(&mut self) {
        for (nodeid, contents) in self.changes.drain(..) {
            apply(&mut self.durable, nodeid, contents);
        }
    }

    /// Compares the files that a cut has left.
    fn check(&self, found: &BTreeMap<u64, u64>) -> Result<(), String> {
        for (nodeid, contents) in &self.synced {
            if found.get(nodeid) != Some(contents) {
                return Err(format!("file {nodeid} is not as at its fsync"));
            }
        }
        let mut state = self.durable.clone();
        if state == *found {
            return Ok(());
        }
        for (nodeid, contents) in &self.changes {
            apply(&mut state, *nodeid, *contents);
            if state == *found {
                return Ok(());
            }
        }
        Err(format!("no state of {} is the one of {} files", self.changes.len() + 1, found.len()))
    }
}

fn apply(state: &mut BTreeMap<u64, u64>, nodeid: u64, contents: Option<u64>) {
    match contents {
        Some(contents) => state.insert(nodeid, contents),
        None => state.remove(&nodeid),
    };
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

fn contents<M: Medium>(volume: &Volume<M, HostPlatform>, inode: InodeNumber) -> Result<u64, Error> {
    let size = volume.attributes(inode)?.size;
    let mut bytes = vec![0; size as usize];
    let length = volume.read(inode, 0, &mut bytes)?;
    Ok(hash(&bytes[..length]))
}

fn sound(image: &Arc<MemoryMedium>) -> Result<(), String> {
    let report = check(image, &HostPlatform::new(), &CheckOptions::default(), &mut |_| {})
        .map_err(|error| error.to_string())?;
    if report.is_clean() { Ok(()) } else { Err(format!("damage: {:?}", report.findings)) }
}

/// Writes into a new file until nothing fits, and makes that durable.
fn fill(volume: &Volume<Arc<MemoryMedium>, HostPlatform>) -> Result<(), Error> {
    let (name, mode) = (b"filled".as_slice(), 0o644);
    let made = volume.create(InodeNumber::ROOT, name, NewNode::Regular, mode, &Caller::default());
    let written = made.and_then(|made| {
        (0..).try_for_each(|at| volume.write(made.inode, at * PAGE, &[9; PAGE as usize], false))
    });
    match written {
        Ok(()) | Err(Error::NoSpace) => {}
        Err(error) => return Err(error),
    }
    volume.transact()
}

impl World {
    /// Cuts the power now, and compares what is left. It is sound, and can be filled. The run goes
    /// on.
    fn cut(&self, medium: &SimMedium, created: u64, seed: u64) -> Result<(), String> {
        let image = Arc::new(medium.power_cut(seed));
        let opened = Volume::open(image.clone(), OpenOptions::default(), HostPlatform::new());
        let volume = opened.map_err(|error| format!("the volume does not open: {error}"))?;
        let mut found = BTreeMap::new();
        for nodeid in 1..created {
            let entry = volume.lookup(InodeNumber::ROOT, format!("f{nodeid}").as_bytes());
            match entry.and_then(|entry| contents(&volume, entry.inode)) {
                Ok(contents) => drop(found.insert(nodeid, contents)),
                Err(Error::NotFound) => {}
                Err(error) => return Err(format!("file {nodeid}: {error}")),
            }
        }
        let history = self.history.as_ref().expect("it is kept where power is cut");
        history.borrow().check(&found)?;
        let listed = volume
            .read_directory(InodeNumber::ROOT, 0, 1 << 20)
            .map_err(|error| error.to_string())?;
        // Besides "." and "..".
        if listed.len() != found.len() + 2 {
            return Err(format!("{} names for {} files", listed.len(), found.len()));
        }
        drop(volume);
        sound(&image)?;
        let volume = Volume::open(image.clone(), OpenOptions::default(), HostPlatform::new())
            .map_err(|error| error.to_string())?;
        fill(&volume).map_err(|error| format!("it cannot be filled: {error}"))?;
        drop(volume);
        sound(&image)
    }
}

impl Run {
    /// fsync(2): the kernel writes the file back first.
    pub(super) fn fsync(&mut self) {
        let Some(nodeid) = self.some_file() else { return };
        self.world.pull(nodeid);
        if self.world.volume.fsync().is_err() {
            return;
        }
        let files = self.world.files.borrow();
        let Some(history) = &self.world.history else { return };
        if self.world.volume.mask().contains(TransactionMask::FSYNC) {
            history.borrow_mut().all_durable();
            // Where pages may be lost, fsync says so.
            if !files[&nodeid].dared {
                history.borrow_mut().synced.insert(nodeid, hash(&files[&nodeid].bytes));
            }
        }
    }

    /// Fills and empties a volume, with power cuts in between. Returns how many, and how many writes
    /// were refused.
    fn with_cuts(seed: u64, ignore_flushes: bool) -> Result<(u64, u64), String> {
        let mut run = Run::of_size(MIB << (seed % 2), Random::new(seed));
        run.world.history = Some(Default::default());
        let medium = Arc::clone(run.world.volume.medium());
        medium.ignore_flushes(ignore_flushes);
        let mut random = Random::new(!seed);
        let (mut cuts, mut refused) = (0, 0);
        for _ in 0..ROUNDS {
            let mut full = 0;
            while full < FULL {
                full += u64::from(!run.step());
                if random.one_in(8) {
                    cuts += 1;
                    run.world
                        .cut(&medium, run.next, random.below(u64::MAX))
                        .map_err(|error| format!("seed {seed}, cut {cuts}: {error}"))?;
                }
            }
            refused += full;
            while let Some(snapshot) = run.snapshots.pop_front() {
                run.world.volume.snapshot_delete(&snapshot).unwrap();
            }
            (0..=run.world.written().len() / 2).for_each(|_| run.remove());
        }
        Ok((cuts, refused))
    }
}

#[test]
fn a_power_cut_keeps_what_was_synced_and_a_state_of_the_volume() {
    let (mut cuts, mut refused) = (0, 0);
    for seed in 1..=super::seeds(40) {
        let run = Run::with_cuts(seed, false).unwrap();
        (cuts, refused) = (cuts + run.0, refused + run.1);
    }
    assert!(cuts > 1_000 && refused > 1_000, "{cuts} cuts, {refused} writes refused");
}

#[test]
fn a_medium_that_ignores_flushes_is_noticed() {
    let errors = (1..=10).filter_map(|seed| Run::with_cuts(seed, true).err());
    let (lost, other): (Vec<_>, Vec<_>) = errors
        .partition(|error| error.contains("not as at its fsync") || error.contains("no state of"));
    assert!(lost.len() > 5, "{lost:?} {other:?}");
}
