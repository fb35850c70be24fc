//! Arrays with a write-behind log, in worlds that lose all servers now and then. A restored state
//! is a flush point. At most as many blocks as the limit allows are older than at the last flush.

use std::collections::BTreeMap;
use std::sync::Arc;

use steadfast_media::sim::{Action, Fault, Survival};
use steadfast_media::{ErrorClass, Medium, MemoryMedium, Random, SimMedium, SimOptions};
use steadfast_remote::array::{Array, BLOCK, CreateOptions, Policy, Progress};
use steadfast_remote::behind::{Kept, LogError, WriteBehind};

use crate::fleet::{Notebook, SimFleet};
use crate::world::{fill, options};

const SERVER_BYTES: u64 = 1 << 20;
/// Blocks that the log may be behind.
const BOUND: usize = 24;
/// The same for writes of several records, each in one piece.
const BOUND_LARGE: usize = 132;
/// A discarded block may be anything.
const ANY: u64 = u64::MAX;

/// The number that fills every block; 0 if it was never written.
type State = BTreeMap<u64, u64>;

fn clock() -> u64 {
    7
}

/// Whether the blocks match a state.
fn is(blocks: &[u8], state: &State) -> bool {
    blocks.chunks_exact(BLOCK).enumerate().all(|(block, bytes)| {
        let number = state.get(&(block as u64)).copied().unwrap_or(0);
        number == ANY || bytes == fill(number, block as u64)
    })
}

fn differences(one: &State, other: &State) -> usize {
    let number = |state: &State, block| state.get(block).copied().unwrap_or(0);
    let all = one.keys().chain(other.keys()).collect::<std::collections::BTreeSet<_>>();
    all.into_iter()
        .filter(|block| {
            let pair = (number(one, block), number(other, block));
            pair.0 != pair.1 && pair.0 != ANY && pair.1 != ANY
        })
        .count()
}

fn log_options(bytes: u64) -> SimOptions {
    SimOptions::new(bytes, 512)
}

fn disk(size: u64, bound: usize) -> SimMedium {
    let bytes = WriteBehind::<SimMedium>::bytes_needed(size, (bound * BLOCK) as u64).unwrap();
    SimMedium::new(log_options(bytes))
}

fn kept(image: &MemoryMedium) -> Kept<Arc<SimMedium>> {
    let sim = SimMedium::on(image, log_options(image.geometry().size));
    Kept::look(Arc::new(sim)).unwrap().expect("a log")
}

/// An array and its log, and the possible flush points of the log.
struct Pair {
    fleet: Arc<SimFleet>,
    notebook: Arc<Notebook>,
    array: Array<Arc<SimFleet>>,
    disk: Arc<SimMedium>,
    log: WriteBehind<Arc<SimMedium>>,
    /// Blocks that the log may be behind.
    bound: usize,
    now: State,
    /// The state at the last answered flush.
    flushed: State,
    /// Later writes to each block.
    since: BTreeMap<u64, Vec<u64>>,
    points: Vec<State>,
    next: u64,
}

impl Pair {
    fn new(policy: Policy, servers: usize, seed: u64) -> Pair {
        Pair::bounded(policy, servers, seed, BOUND)
    }

    fn bounded(policy: Policy, servers: usize, seed: u64, bound: usize) -> Pair {
        let fleet = Arc::new(SimFleet::new(servers, SERVER_BYTES, seed));
        let notebook = Arc::new(Notebook::default());
        let create = CreateOptions { policy, uuid: [9; 16], spares: 0 };
        let array = Array::create(fleet.clone(), &create, options(&notebook)).unwrap();
        let disk = Arc::new(disk(array.geometry().size, bound));
        let bytes = (bound * BLOCK) as u64;
        let log = WriteBehind::create(disk.clone(), &array, bytes, true, clock).unwrap();
        let (now, flushed, since) = (State::new(), State::new(), BTreeMap::new());
        Pair {
            fleet,
            notebook,
            array,
            disk,
            log,
            bound,
            now,
            flushed,
            since,
            points: Vec::new(),
            next: 1,
        }
    }

    fn blocks(&self) -> u64 {
        self.array.geometry().size / BLOCK as u64
    }

    /// Runs the log until it has the whole array.
    fn copy(&mut self) {
        while self.copy_some() {}
        while self.log.work() {}
    }

    /// Copies one step; whether anything is left.
    fn copy_some(&mut self) -> bool {
        let (before, all) = self.log.status().copied;
        let more = self.log.copy(&self.array).is_some();
        if before < all && self.log.status().copied.0 == all {
            // The image is at no earlier point.
            self.points = vec![self.now.clone()];
        }
        more
    }

    /// Notes the flush point that the log made before another write.
    fn forced(&mut self, before: (u64, State)) {
        if self.log.status().forced > before.0 {
            self.points.push(before.1);
        }
    }

    fn write(&mut self, first: u64, count: u64) -> Result<(), String> {
        let mut data = Vec::new();
        let before = (self.log.status().forced, self.now.clone());
        for block in first..first + count {
            data.extend(fill(self.next, block));
            self.now.insert(block, self.next);
            self.since.entry(block).or_default().push(self.next);
            self.next += 1;
        }
        let written = self.log.write(&self.array, first * BLOCK as u64, &data);
        self.forced(before);
        written.map_err(|error| error.to_string())
    }

    fn discard(&mut self, first: u64, count: u64) -> Result<(), String> {
        for block in first..first + count {
            self.now.insert(block, ANY);
            self.since.entry(block).or_default().push(ANY);
        }
        let discarded = self.log.discard(&self.array, first * BLOCK as u64, count * BLOCK as u64);
        discarded.map_err(|error| error.to_string())
    }

    fn flush(&mut self) -> Result<(), String> {
        self.log.flush(&self.array).map_err(|error| error.to_string())?;
        (self.flushed, self.since) = (self.now.clone(), BTreeMap::new());
        // After the log was given up, it promises nothing for later points.
        if self.log.status().failed.is_none() {
            self.points.push(self.now.clone());
        }
        Ok(())
    }

    /// Another client opens the array and continues with the log.
    fn reopen(&mut self) -> Result<(), String> {
        self.fleet.revive_client();
        let array = Array::open(self.fleet.clone(), options(&self.notebook));
        self.array = array.map_err(|error| format!("does not open: {error}"))?;
        let kept =
            Kept::look(self.disk.clone()).map_err(|error| error.to_string())?.ok_or("no log")?;
        let log = WriteBehind::open(kept, &self.array, (self.bound * BLOCK) as u64, clock);
        self.log = log.map_err(|error| format!("the log: {error}"))?;
        let mut bytes = vec![0; BLOCK];
        for block in 0..self.blocks() {
            let mut candidates = self.since.remove(&block).unwrap_or_default();
            candidates.push(self.flushed.get(&block).copied().unwrap_or(0));
            let read = self.array.read(block * BLOCK as u64, &mut bytes);
            let found = match candidates.contains(&ANY) {
                true => ANY,
                false => {
                    read.map_err(|error| error.to_string())?;
                    let fits = |number: &u64| bytes == fill(*number, block);
                    candidates.into_iter().find(fits).ok_or(format!("block {block} is wrong"))?
                }
            };
            self.now.insert(block, found);
        }
        (self.flushed, self.since) = (self.now.clone(), BTreeMap::new());
        self.points = if self.log.status().complete { vec![self.now.clone()] } else { Vec::new() };
        Ok(())
    }

    /// Checks that a restored state is one of the points, and not too old.
    fn judge(&self, found: &[u8]) -> Result<State, String> {
        let matching = self.points.iter().rev().find(|point| is(found, point));
        let point = matching.ok_or("what was restored was never a flush point")?;
        match self.points.last().map_or(0, |last| differences(point, last)) {
            age if age > self.bound => Err(format!("{age} blocks are older than they may be")),
            _ => Ok(point.clone()),
        }
    }
}

/// Makes a new array from a log, on empty servers.
fn restore(
    log: &mut Kept<Arc<SimMedium>>,
    fleet: &Arc<SimFleet>,
    notebook: &Arc<Notebook>,
    (policy, uuid): (Policy, u8),
) -> Result<Array<Arc<SimFleet>>, String> {
    let create = CreateOptions { policy, uuid: [uuid; 16], spares: 0 };
    log.begin([uuid; 16]).map_err(|error| error.to_string())?;
    let array = Array::create_unfinished(fleet.clone(), &create, options(notebook));
    let array = array.map_err(|error| error.to_string())?;
    log.restore(&array, clock()).map_err(|error| error.to_string())?;
    Ok(array)
}

fn contents(array: &Array<Arc<SimFleet>>) -> Vec<u8> {
    let mut found = vec![0x55; array.geometry().size as usize];
    array.read(0, &mut found).unwrap();
    found
}

/// The contents of a log, restored to an array of its own.
fn restored(image: &MemoryMedium) -> Result<Vec<u8>, LogError> {
    let mut log = kept(image);
    log.restorable(None, false)?;
    let fleet = Arc::new(SimFleet::new(1, SERVER_BYTES, 1));
    let array = restore(&mut log, &fleet, &Arc::default(), (Policy::None, 1)).unwrap();
    Ok(contents(&array))
}

/// The disk of the log loses power at each request in turn. The array stays usable, and the log is
/// left at a flush point.
#[test]
fn the_power_of_the_log_may_fail_at_any_moment() {
    let mut checked = 0;
    for request in 0.. {
        let mut pair = Pair::new(Policy::None, 1, 1);
        pair.copy();
        let mut random = Random::new(5);
        pair.disk.arm_power_cut(request);
        let mut run = || -> Result<(), String> {
            for step in 0..40 {
                let first = random.below(30);
                pair.write(first, 1 + random.below(6))?;
                match step % 5 {
                    1 => pair.discard(random.below(30), 1 + random.below(4))?,
                    2 | 4 => pair.flush()?,
                    _ => {}
                }
                // While the log is off, it promises nothing for later points.
                if random.one_in(3) && !pair.disk.is_off() {
                    pair.log.work();
                }
                if pair.disk.is_off() {
                    break;
                }
            }
            Ok(())
        };
        run().unwrap();
        let off = pair.disk.is_off();
        assert!(!off || pair.log.status().failed.is_some());
        let cuts = pair.disk.corner_cases().chain((0..3).map(Survival::Seeded));
        for survival in cuts {
            let found = restored(&pair.disk.power_cut_with(survival)).unwrap();
            pair.judge(&found)
                .unwrap_or_else(|what| panic!("request {request}, {survival:?}: {what}"));
            checked += 1;
        }
        // The array is unaffected.
        assert!(is(&contents(&pair.array), &pair.now));
        pair.flush().unwrap();
        if !off {
            break;
        }
    }
    assert!(checked > 300, "{checked}");
}

/// A failed log records its failure if it still can, and is complete again after a new copy.
#[test]
fn a_log_that_fails_is_not_taken_for_a_current_one() {
    for action in [Action::Fail(ErrorClass::Permanent), Action::FailTorn(ErrorClass::Permanent)] {
        let mut pair = Pair::new(Policy::Mirror, 2, 3);
        pair.copy();
        pair.write(0, 10).unwrap();
        pair.flush().unwrap();
        pair.disk.arm(Fault::new(action).after(1));
        pair.log.work();
        pair.disk.disarm();
        assert!(pair.log.status().failed.is_some());
        for block in 0..60 {
            pair.write(block, 1).unwrap();
        }
        pair.flush().unwrap();
        assert!(!pair.log.work() && pair.log.status().behind == 0);
        assert!(is(&contents(&pair.array), &pair.now));
        let image = pair.disk.power_cut_with(Survival::First(usize::MAX));
        let log = kept(&image);
        assert!(matches!(log.restorable(None, false), Err(LogError::Stale(_))));
        assert!(log.restorable(None, true).is_ok());
        let log = WriteBehind::open(log, &pair.array, (BOUND * BLOCK) as u64, clock).unwrap();
        assert!(!log.status().complete, "60 blocks are more than the bound");
        while log.copy(&pair.array).is_some() {}
        while log.work() {}
        assert!(log.status().complete);
    }
}

#[test]
fn all_servers_are_lost_and_the_array_is_restored() {
    let mut tally = Tally::default();
    for seed in crate::seeds(0..30) {
        world(seed, &mut tally).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
    }
    println!("{tally:?}");
    let Tally { crashes, losses, cut, copies } = tally;
    assert!(crashes > 20 && losses > 10 && cut > 3 && copies > 5, "{tally:?}");
}

/// Counts of events.
#[derive(Debug, Default)]
struct Tally {
    crashes: u64,
    losses: u64,
    /// Interrupted restores.
    cut: u64,
    /// Logs that had to be copied again.
    copies: u64,
}

fn world(seed: u64, tally: &mut Tally) -> Result<(), String> {
    let policies = [
        (Policy::Mirror, 2),
        (Policy::Parity, 3),
        (Policy::None, 2),
        (Policy::Erasure { data: 2, parity: 2 }, 4),
    ];
    let large = seed >= 24;
    let (policy, servers) =
        if large { (Policy::Parity, 3) } else { policies[seed as usize % policies.len()] };
    let mut pair = Pair::bounded(policy, servers, seed, if large { BOUND_LARGE } else { BOUND });
    let mut random = Random::new(seed ^ 0x55aa);
    for _ in 0..160 {
        let span = if random.one_in(2) { 30 } else { pair.blocks() - 8 };
        match random.below(20) {
            // Many blocks at once.
            0..4 if large => pair.write(random.below(3) * 32, 32 + random.below(33))?,
            0..8 => pair.write(random.below(span), 1 + random.below(4))?,
            8..11 => pair.flush()?,
            11 => pair.discard(random.below(span), 1 + random.below(8))?,
            12..14 => drop(pair.log.work()),
            14..16 => drop(pair.copy_some()),
            16 if policy != Policy::None => {
                pair.fleet.restart_empty(random.below(servers as u64) as usize);
                pair.write(random.below(span), 1)?;
                pair.flush()?;
                for member in pair.array.lost() {
                    let mut rebuild = pair
                        .array
                        .begin_rebuild(member, member)
                        .map_err(|error| error.to_string())?;
                    while pair
                        .array
                        .rebuild_step(&mut rebuild)
                        .map_err(|error| error.to_string())?
                        != Progress::Done
                    {}
                }
            }
            17 => {
                tally.crashes += 1;
                pair.fleet.arm_death(random.below(12));
                while !pair.fleet.is_dead() {
                    let _ = match random.below(3) {
                        0 => pair.flush(),
                        _ => pair.write(random.below(span), 1 + random.below(4)),
                    };
                }
                if random.one_in(2) {
                    pair.disk.restart(Survival::Seeded(random.bits()));
                }
                pair.reopen()?;
                tally.copies += u64::from(!pair.log.status().complete);
            }
            18 if random.one_in(2) => lose_all(&mut pair, &mut random, (policy, servers), tally)?,
            _ => {}
        }
    }
    Ok(())
}

/// All servers lose everything, and a new array is made from the log.
fn lose_all(
    pair: &mut Pair,
    random: &mut Random,
    (policy, servers): (Policy, usize),
    tally: &mut Tally,
) -> Result<(), String> {
    if !pair.log.status().complete {
        let log = kept(&pair.disk.power_cut_with(Survival::First(usize::MAX)));
        return match log.restorable(None, true) {
            Err(LogError::Incomplete) => Ok(()),
            _ => Err("a log that was never complete can be restored".to_owned()),
        };
    }
    tally.losses += 1;
    (0..servers).for_each(|server| pair.fleet.restart_empty(server));
    let drained = random.one_in(2);
    match drained {
        true => while pair.log.work() {},
        false => pair.disk.restart(Survival::Seeded(random.bits())),
    }
    pair.fleet.revive_client();
    if Array::open(pair.fleet.clone(), options(&pair.notebook)).is_ok() {
        return Err("opened without a server".to_owned());
    }
    for attempt in 0.. {
        let look = Kept::look(pair.disk.clone()).map_err(|error| error.to_string())?;
        let mut log = look.ok_or("there is no log")?;
        log.restorable(None, false).map_err(|error| format!("cannot be restored: {error}"))?;
        if attempt < 2 && random.one_in(2) {
            match random.one_in(2) {
                true => pair.fleet.arm_death(random.below(80)),
                false => pair.disk.arm_power_cut(random.below(12)),
            }
        }
        let heir = 10 + random.below(200) as u8;
        let made = restore(&mut log, &pair.fleet, &pair.notebook, (policy, heir));
        let well = made.is_ok();
        drop(made);
        pair.disk.restart(Survival::Seeded(random.bits()));
        pair.fleet.revive_client();
        let opened = Array::open(pair.fleet.clone(), options(&pair.notebook));
        match (well, opened) {
            (_, Ok(array)) => {
                // The interruption came after the end of the restore.
                let found = contents(&array);
                let state = pair.judge(&found)?;
                if drained && !is(&found, pair.points.last().ok_or("no points")?) {
                    return Err("the log had everything, and it is not there".to_owned());
                }
                (pair.flushed, pair.since) = (state, BTreeMap::new());
                pair.fleet.revive_client();
                pair.reopen()?;
                return match pair.log.status().complete || !well {
                    true => Ok(()),
                    false => Err("the log of a restored array is not complete".to_owned()),
                };
            }
            (true, Err(error)) => return Err(format!("restored, and does not open: {error}")),
            (false, Err(_)) => tally.cut += 1,
        }
    }
    Ok(())
}
