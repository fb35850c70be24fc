//! Power cuts below the model of the page cache.
//!
//! The kernel gives the volume its pages late, in any order, and while the volume is full. So a
//! state of the volume is not a state that programs have seen. The contract after a cut is:
//!
//! - the volume has the state after one of its requests, not older than the last point that was
//!   acknowledged;
//! - a file that was fsynced, and not changed since, has the bytes that programs have seen.
//!
//! A cut falls between two steps of the programs, or inside one: after any write or flush of a
//! commit, a checkpoint, a removal. Contents are compared by a hash of all bytes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use steadfast::check::{CheckOptions, check};
use steadfast::fs::{Caller, NewNode};
use steadfast::{Error, InodeNumber, OpenOptions, TransactionMask, Volume};
use steadfast_host::HostPlatform;
use steadfast_media::random::Random;
use steadfast_media::{Geometry, Medium, MediumError, MemoryMedium, SimMedium};

use super::{MIB, PAGE, Run, World};
use crate::admission::Surroundings;

/// How often a volume is filled.
const ROUNDS: u64 = 6;
/// Writes that a full volume refuses before it is emptied.
const FULL: u64 = 20;

/// Writes and flushes of a step, one of which a cut inside it may follow.
const REQUESTS: u64 = 12;

/// The volume below the model.
type Below = Volume<Arc<CutMedium>, HostPlatform>;

/// A simulated disk that keeps what a power cut would leave after one of its next requests.
pub(super) struct CutMedium {
    sim: SimMedium,
    cut: Mutex<Option<Cut>>,
}

/// A cut inside a step.
struct Cut {
    /// Writes and flushes before it.
    after: u64,
    seed: u64,
    image: Option<MemoryMedium>,
}

impl CutMedium {
    pub(super) fn new(sim: SimMedium) -> CutMedium {
        CutMedium { sim, cut: Mutex::default() }
    }

    fn arm(&self, after: u64, seed: u64) {
        *self.cut.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Cut { after, seed, image: None });
    }

    /// What the armed cut has left; none if the step has made fewer requests.
    fn take(&self) -> Option<MemoryMedium> {
        self.cut.lock().unwrap_or_else(PoisonError::into_inner).take()?.image
    }

    fn requested(&self) {
        let mut cut = self.cut.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(cut) = cut.as_mut().filter(|cut| cut.image.is_none()) else { return };
        match cut.after.checked_sub(1) {
            Some(left) => cut.after = left,
            None => cut.image = Some(self.sim.power_cut(cut.seed)),
        }
    }
}

impl Medium for CutMedium {
    fn geometry(&self) -> Geometry {
        self.sim.geometry()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        self.sim.read(offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        self.sim.write(offset, data).inspect(|()| self.requested())
    }

    fn flush(&self) -> Result<(), MediumError> {
        self.sim.flush().inspect(|()| self.requested())
    }
}

/// The requests that the volume has executed, and what programs were told.
#[derive(Debug, Default)]
pub(super) struct History {
    /// The contents of a file after each change, or none if it was removed.
    changes: Vec<(u64, Option<u64>)>,
    /// How many changes an acknowledged point has made durable.
    durable: usize,
    /// Contents of files that were fsynced, and that no program has changed since.
    synced: BTreeMap<u64, u64>,
}

/// What a cut must keep.
#[derive(Clone)]
struct Kept {
    durable: usize,
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
        self.durable = self.changes.len();
    }

    fn kept(&self) -> Kept {
        Kept { durable: self.durable, synced: self.synced.clone() }
    }

    /// Compares the files that a cut has left after the moment of `kept`.
    fn check(&self, kept: &Kept, found: &BTreeMap<u64, u64>) -> Result<(), String> {
        // What a program has changed in the meantime may be old or new.
        let unchanged = kept.synced.iter().filter(|(nodeid, _)| self.synced.contains_key(nodeid));
        for (nodeid, contents) in unchanged {
            if found.get(nodeid) != Some(contents) {
                return Err(format!("file {nodeid} is not as at its fsync"));
            }
        }
        let (durable, later) = self.changes.split_at(kept.durable);
        let mut state = BTreeMap::new();
        durable.iter().for_each(|(nodeid, contents)| apply(&mut state, *nodeid, *contents));
        if state == *found {
            return Ok(());
        }
        for (nodeid, contents) in later {
            apply(&mut state, *nodeid, *contents);
            if state == *found {
                return Ok(());
            }
        }
        Err(format!("no state of {} is the one of {} files", later.len() + 1, found.len()))
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
    fn history(&self) -> &RefCell<History> {
        self.history.as_ref().expect("it is kept where power is cut")
    }

    /// Compares what a cut has left after the moment of `kept`. It is sound, and can be filled.
    fn check_cut(&self, image: MemoryMedium, created: u64, kept: &Kept) -> Result<(), String> {
        let image = Arc::new(image);
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
        self.history().borrow().check(kept, &found)?;
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

    /// Runs a step. Power may be cut inside it and after it; the run goes on.
    fn with_cut<T>(
        &mut self,
        cuts: &mut Cuts,
        step: impl FnOnce(&mut Run) -> T,
    ) -> Result<T, String> {
        let medium = Arc::clone(self.world.volume.medium());
        let before = self.world.history().borrow().kept();
        if cuts.random.one_in(2) {
            medium.arm(cuts.random.below(REQUESTS), cuts.random.below(u64::MAX));
        }
        let result = step(self);
        if let Some(image) = medium.take() {
            cuts.inside += 1;
            self.world.check_cut(image, self.next, &before)?;
        }
        if cuts.random.one_in(8) {
            cuts.after += 1;
            let image = medium.sim.power_cut(cuts.random.below(u64::MAX));
            let kept = self.world.history().borrow().kept();
            self.world.check_cut(image, self.next, &kept)?;
        }
        Ok(result)
    }

    /// Fills and empties a volume, with power cuts in between.
    fn with_cuts(seed: u64, ignore_flushes: bool) -> Result<Cuts, String> {
        let mut run = Run::of_size(MIB << (seed % 2), Random::new(seed));
        run.world.history = Some(Default::default());
        run.world.volume.medium().sim.ignore_flushes(ignore_flushes);
        let mut cuts = Cuts { random: Random::new(!seed), inside: 0, after: 0, refused: 0 };
        run.fill_and_empty(&mut cuts).map_err(|error| {
            format!("seed {seed}, cuts {} and {}: {error}", cuts.inside, cuts.after)
        })?;
        Ok(cuts)
    }

    fn fill_and_empty(&mut self, cuts: &mut Cuts) -> Result<(), String> {
        for _ in 0..ROUNDS {
            let mut full = 0;
            while full < FULL {
                full += u64::from(!self.with_cut(cuts, Run::step)?);
            }
            cuts.refused += full;
            while let Some(snapshot) = self.snapshots.pop_front() {
                let delete = |run: &mut Run| run.world.volume.snapshot_delete(&snapshot);
                self.with_cut(cuts, delete)?.unwrap();
            }
            for _ in 0..=self.world.written().len() / 2 {
                self.with_cut(cuts, Run::remove)?;
            }
        }
        Ok(())
    }
}

/// Power cuts of a run, and writes that were refused.
struct Cuts {
    random: Random,
    inside: u64,
    after: u64,
    refused: u64,
}

#[test]
fn a_power_cut_keeps_what_was_synced_and_a_state_of_the_volume() {
    let (mut inside, mut after, mut refused) = (0, 0, 0);
    for seed in 1..=super::seeds(40) {
        let cuts = Run::with_cuts(seed, false).unwrap();
        inside += cuts.inside;
        after += cuts.after;
        refused += cuts.refused;
    }
    println!("{inside} cuts inside steps, {after} after them, {refused} writes refused");
    assert!(inside > 1_000 && after > 1_000 && refused > 1_000);
}

#[test]
fn a_medium_that_ignores_flushes_is_noticed() {
    let errors = (1..=10).filter_map(|seed| Run::with_cuts(seed, true).err());
    let (lost, other): (Vec<_>, Vec<_>) = errors
        .partition(|error| error.contains("not as at its fsync") || error.contains("no state of"));
    assert!(lost.len() > 5, "{lost:?} {other:?}");
}
