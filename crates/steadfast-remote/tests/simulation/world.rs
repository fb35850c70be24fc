//! One world: an array, a model of it, and random events for both.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use steadfast_media::{Medium, Random};
use steadfast_remote::array::{
    Array, ArrayOptions, BLOCK, CreateOptions, Policy, Progress, Rebuild, State,
};

use crate::fleet::{Notebook, SimFleet, Trouble};

/// Bytes that each server lends: few, so that cleaning is always needed.
const SERVER_BYTES: u64 = 1 << 20;

/// Counts of events.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tally {
    pub crashes: u64,
    pub losses: u64,
    pub rebuilt: u64,
    pub cleaned: u64,
    /// Blocks that cleaning packed from memory.
    pub packed: u64,
    pub reconstructed: u64,
    pub repaired: u64,
    pub records: u64,
    pub looks: u64,
    /// Times at which an epoch could not be noted for a while.
    pub outages: u64,
}

impl Tally {
    pub fn add(&mut self, other: &Tally) {
        self.crashes += other.crashes;
        self.losses += other.losses;
        self.rebuilt += other.rebuilt;
        self.cleaned += other.cleaned;
        self.packed += other.packed;
        self.reconstructed += other.reconstructed;
        self.repaired += other.repaired;
        self.records += other.records;
        self.looks += other.looks;
        self.outages += other.outages;
    }
}

/// Valid contents of a block: a number that fills it, 0 if it was never written.
#[derive(Debug, Clone, Default)]
struct Truth {
    now: u64,
    /// Further valid contents after a crash.
    maybe: Vec<u64>,
    /// Discarded: any contents are valid.
    anything: bool,
}

pub struct World {
    fleet: Arc<SimFleet>,
    notebook: Arc<Notebook>,
    /// Bytes of small flushes that clients keep in memory.
    hold: u64,
    array: Option<Array<Arc<SimFleet>>>,
    random: Random,
    parity: usize,
    members: usize,
    truth: BTreeMap<u64, Truth>,
    blocks: u64,
    next: u64,
    /// Servers with a fault. They count against the limit of the policy until they are rebuilt.
    /// With `true` they count until a call to them succeeds.
    hurt: BTreeMap<usize, bool>,
    rebuild: Option<(usize, Rebuild)>,
    history: String,
    pub tally: Tally,
}

pub fn fill(number: u64, block: u64) -> Vec<u8> {
    match number {
        0 => vec![0; BLOCK],
        _ => (0..BLOCK as u64 / 8)
            .flat_map(|index| {
                (number.wrapping_mul(0x9e37_79b9) ^ block << 40 ^ index << 20 ^ number)
                    .to_le_bytes()
            })
            .collect(),
    }
}

impl World {
    pub fn new(seed: u64) -> World {
        let policies = [
            (Policy::Mirror, 2),
            (Policy::Parity, 3),
            (Policy::Mirror, 3),
            (Policy::Erasure { data: 2, parity: 2 }, 4),
            (Policy::None, 2),
            (Policy::Parity, 4),
            (Policy::Erasure { data: 4, parity: 2 }, 6),
            (Policy::Parity, 3),
            (Policy::Parity, [6, 9, 5, 16][(seed / 9 % 4) as usize]),
        ];
        let (policy, members) = policies[seed as usize % policies.len()];
        let spares = (seed / 9 % 2) as usize;
        let fleet = Arc::new(SimFleet::new(members + spares, SERVER_BYTES, seed));
        let notebook = Arc::new(Notebook::default());
        let hold = [16 << 20, 0, 64 << 10][(seed / 18 % 3) as usize];
        let options = ArrayOptions { hold_bytes: hold, ..options(&notebook) };
        let create = CreateOptions { policy, uuid: [seed as u8; 16], spares };
        let array =
            Array::create(fleet.clone(), &create, options).expect("an array on good servers");
        let blocks = array.geometry().size / BLOCK as u64;
        World {
            fleet,
            notebook,
            hold,
            array: Some(array),
            random: Random::new(seed ^ 0xabcd),
            parity: policy.shards(members).unwrap().1,
            members,
            truth: BTreeMap::new(),
            blocks,
            next: 1,
            hurt: BTreeMap::new(),
            rebuild: None,
            history: format!("{policy} on {members}"),
            tally: Tally::default(),
        }
    }

    pub fn history(&self) -> String {
        let start = self.history.len().saturating_sub(1500);
        self.history[start..].to_owned()
    }

    fn options(&self) -> ArrayOptions {
        ArrayOptions { hold_bytes: self.hold, ..options(&self.notebook) }
    }

    fn array(&self) -> &Array<Arc<SimFleet>> {
        self.array.as_ref().expect("the array is open")
    }

    pub fn run(&mut self, steps: usize) -> Result<(), String> {
        for step in 0..steps {
            self.step(step)?;
        }
        self.heal();
        self.crash_and_open()?;
        self.check_all()?;
        self.note_tally();
        Ok(())
    }

    /// Members with a known or injected fault.
    fn out_of_order(&self) -> usize {
        let status = self.array().status();
        let seats: Vec<usize> = status.members.iter().map(|(_, seat)| *seat).collect();
        let lost: Vec<usize> = status
            .members
            .iter()
            .filter(|(state, _)| *state != State::Good)
            .map(|(_, seat)| *seat)
            .collect();
        let more = self
            .hurt
            .keys()
            .filter(|server| seats.contains(server) && !lost.contains(server))
            .count();
        lost.len() + more
    }

    fn step(&mut self, step: usize) -> Result<(), String> {
        match self.random.below(24) {
            0..7 => self.write(),
            7 => self.small_flushes(),
            8..12 => self.flush(),
            12..15 => self.read(),
            15 => self.discard(),
            16..19 => self.trouble(),
            19 => {
                self.heal();
                Ok(())
            }
            20..22 => self.rebuild(),
            22 => self.tidy(),
            _ if step > 3 => self.crash_and_open(),
            _ => Ok(()),
        }
    }

    /// After a failed operation: correct if the client has died or an epoch could not be noted,
    /// wrong otherwise.
    fn failed(&mut self, what: &str, error: &dyn std::fmt::Display) -> Result<(), String> {
        match self.fleet.is_dead() {
            true => self.reopen(),
            false if self.array().awaits_witness() => self.resume(),
            false => Err(format!("{what}: {error}")),
        }
    }

    /// The witness works again, and the array continues. The interrupted write has either happened
    /// or not.
    fn resume(&mut self) -> Result<(), String> {
        self.history += " N";
        self.tally.outages += 1;
        if self.array().resume().is_ok() || self.array().read(0, &mut [0; BLOCK]).is_ok() {
            return Err("it goes on without the witness".to_owned());
        }
        self.notebook.set_away(false);
        let resumed = self.array().resume().map_err(|error| error.to_string());
        let found = match resumed.and_then(|()| self.everything(self.array())) {
            Ok(found) => found,
            Err(_) if self.fleet.is_dead() => return self.reopen(),
            Err(error) => return Err(format!("does not go on: {error}")),
        };
        for (index, bytes) in found.chunks_exact(BLOCK).enumerate() {
            let block = index as u64;
            let Some(truth) = self.truth.get_mut(&block).filter(|truth| !truth.anything) else {
                continue;
            };
            let known = truth
                .maybe
                .iter()
                .chain([&truth.now])
                .copied()
                .find(|number| bytes == fill(*number, block));
            let known = known.ok_or_else(|| format!("block {block} is none of what it may be"))?;
            let before = std::mem::replace(&mut truth.now, known);
            truth.maybe.push(before);
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), String> {
        let most = match self.random.clone().below(8) {
            // Several records at once.
            0 => 120,
            1 => 30,
            _ => 3,
        };
        let count = (1 + self.random.below(most)).min(self.blocks / 2);
        // Few positions are hot.
        let span = if self.random.one_in(2) { 20.min(self.blocks) } else { self.blocks };
        let first = self.random.below(span).min(self.blocks.saturating_sub(count));
        let count = count.min(self.blocks - first);
        let mut data = Vec::new();
        for block in first..first + count {
            let number = self.next;
            self.next += 1;
            data.extend(fill(number, block));
            let truth = self.truth.entry(block).or_default();
            let before = truth.now;
            truth.maybe.push(before);
            truth.now = number;
        }
        let _ = write!(self.history, " w{first}+{count}");
        let result = match self.random.one_in(6) {
            true => self.array().write_fua(first * BLOCK as u64, &data).map(|()| true),
            false => self.array().write(first * BLOCK as u64, &data).map(|()| false),
        };
        match result {
            Ok(true) => {
                self.flushed();
                Ok(())
            }
            Ok(false) => Ok(()),
            Err(error) => self.failed("write", &error),
        }
    }

    /// Single blocks, each flushed; they are packed when space is short.
    fn small_flushes(&mut self) -> Result<(), String> {
        let crashes = self.tally.crashes;
        for _ in 0..self.random.below(60) {
            let block = self.random.below(self.blocks);
            let (number, truth) = (self.next, self.truth.entry(block).or_default());
            self.next += 1;
            truth.maybe.push(truth.now);
            truth.now = number;
            let _ = write!(self.history, " s{block}");
            match self.array().write_fua(block * BLOCK as u64, &fill(number, block)) {
                Ok(()) => self.flushed(),
                Err(error) => self.failed("small flush", &error)?,
            }
            if self.tally.crashes > crashes {
                break;
            }
        }
        Ok(())
    }

    fn flushed(&mut self) {
        for truth in self.truth.values_mut() {
            truth.maybe.clear();
        }
        // A call has succeeded, or the member is lost.
        self.hurt.retain(|_, passing| !*passing);
    }

    fn flush(&mut self) -> Result<(), String> {
        self.history += " f";
        match self.array().flush() {
            Ok(()) => {
                self.flushed();
                Ok(())
            }
            Err(error) => self.failed("flush", &error),
        }
    }

    fn read(&mut self) -> Result<(), String> {
        let first = self.random.below(self.blocks);
        let count = (1 + self.random.below(20)).min(self.blocks - first);
        let mut found = vec![0x55; count as usize * BLOCK];
        self.history += " r";
        match self.array().read(first * BLOCK as u64, &mut found) {
            Ok(()) => self.compare(first, &found),
            Err(error) if self.fleet.is_dead() || self.array().awaits_witness() => {
                self.failed("read", &error)
            }
            // Correct if it was for a discarded block.
            Err(error) => match (first..first + count)
                .any(|block| self.truth.get(&block).is_some_and(|truth| truth.anything))
            {
                true => self.everything(self.array()).map(drop),
                false => self.failed("read", &error),
            },
        }
    }

    fn compare(&self, first: u64, found: &[u8]) -> Result<(), String> {
        for (index, bytes) in found.chunks_exact(BLOCK).enumerate() {
            let block = first + index as u64;
            let truth = self.truth.get(&block).cloned().unwrap_or_default();
            if !truth.anything && bytes != fill(truth.now, block) {
                return Err(format!("block {block} is wrong: it should be number {}", truth.now));
            }
        }
        Ok(())
    }

    /// All blocks. A discard is stored nowhere, so after a crash the place of a discarded block may
    /// hold another block. Only discarded blocks may be unreadable.
    fn everything(&self, array: &Array<Arc<SimFleet>>) -> Result<Vec<u8>, String> {
        self.all_but(array, |truth| truth.anything)
    }

    /// All blocks as a read-only client sees them. Unflushed blocks may be on too few servers, and
    /// a read-only client does not complete them.
    fn looked_at(&self, array: &Array<Arc<SimFleet>>) -> Result<Vec<u8>, String> {
        self.all_but(array, |truth| truth.anything || !truth.maybe.is_empty())
    }

    fn all_but(
        &self,
        array: &Array<Arc<SimFleet>>,
        excused: impl Fn(&Truth) -> bool,
    ) -> Result<Vec<u8>, String> {
        let mut found = vec![0x55; self.blocks as usize * BLOCK];
        if array.read(0, &mut found).is_ok() {
            return Ok(found);
        }
        for (block, bytes) in found.chunks_exact_mut(BLOCK).enumerate() {
            bytes.fill(0x55);
            if let Err(error) = array.read((block * BLOCK) as u64, bytes) {
                if !self.truth.get(&(block as u64)).is_some_and(&excused) {
                    return Err(error.to_string());
                }
                bytes.fill(0x55);
            }
        }
        Ok(found)
    }

    fn check_all(&mut self) -> Result<(), String> {
        let found = self
            .everything(self.array())
            .map_err(|error| format!("reading everything: {error}"))?;
        self.compare(0, &found)
    }

    fn discard(&mut self) -> Result<(), String> {
        let first = self.random.below(self.blocks);
        let count = (1 + self.random.below(8)).min(self.blocks - first);
        for block in first..first + count {
            self.truth.insert(block, Truth { anything: true, ..Truth::default() });
        }
        self.array()
            .discard(first * BLOCK as u64, count * BLOCK as u64)
            .map_err(|error| error.to_string())
    }

    /// Injects a fault into a server, if the policy survives one more.
    fn trouble(&mut self) -> Result<(), String> {
        let seats: Vec<usize> =
            self.array().status().members.iter().map(|(_, seat)| *seat).collect();
        let server = seats[self.random.below(seats.len() as u64) as usize];
        if self.out_of_order() >= self.parity || self.hurt.contains_key(&server) {
            return Ok(());
        }
        let kind = self.random.below(8);
        let _ = write!(self.history, " T{kind}@{server}");
        match kind {
            0 => self.fleet.set_trouble(server, Trouble::Down),
            1 => self.fleet.set_trouble(server, Trouble::Partitioned),
            2 => self.fleet.set_trouble(server, Trouble::Noisy),
            3 => self.fleet.set_trouble(server, Trouble::Lying),
            4 | 5 => self.fleet.restart_empty(server),
            // And the loss cannot be noted.
            7 => {
                self.notebook.set_away(true);
                self.fleet.restart_empty(server);
            }
            _ => self.fleet.restart_flushed(server),
        }
        // An empty server must be rebuilt; the others count as healthy after a successful call.
        self.hurt.insert(server, kind == 6);
        Ok(())
    }

    /// Unreachable servers return, with their data or empty.
    fn heal(&mut self) {
        self.history += " h";
        for server in 0..self.members + 1 {
            if !self.hurt.contains_key(&server) || self.random.one_in(3) {
                continue;
            }
            match self.random.below(6) {
                0 => {
                    self.fleet.restart_empty(server);
                    self.hurt.insert(server, false);
                }
                1 => {
                    self.fleet.restart_flushed(server);
                    // It may have been empty before.
                }
                _ => self.fleet.set_trouble(server, Trouble::None),
            }
        }
    }

    /// Runs the work of a tender.
    fn tidy(&mut self) -> Result<(), String> {
        self.history += " t";
        match self.array().tidy() {
            Ok(()) => Ok(()),
            Err(error) => self.failed("tidying", &error),
        }
    }

    fn rebuild(&mut self) -> Result<(), String> {
        if let Some((member, mut rebuild)) = self.rebuild.take() {
            for _ in 0..1 + self.random.below(20) {
                match self.array().rebuild_step(&mut rebuild) {
                    Ok(Progress::Going(..)) => {}
                    Ok(Progress::Done) => {
                        let (_, seat) = self.array().status().members[member];
                        let _ = write!(self.history, " R{member}@{seat}");
                        // A lying server continues to lie.
                        if self.fleet.trouble(seat) == Trouble::None {
                            self.hurt.remove(&seat);
                        }
                        self.tally.rebuilt += 1;
                        self.flushed();
                        return Ok(());
                    }
                    // The member was lost again.
                    Err(_) if self.array().status().members[member].0 != State::Rebuilding => {
                        return Ok(());
                    }
                    Err(error) => return self.failed("rebuild", &error),
                }
            }
            self.rebuild = Some((member, rebuild));
            return Ok(());
        }
        let Some(member) = self.array().lost().first().copied() else { return Ok(()) };
        let (_, own) = self.array().status().members[member];
        let spares = self.array().spares();
        let seat = match spares.first() {
            Some(spare) if self.random.one_in(2) => *spare,
            _ => own,
        };
        let _ = write!(self.history, " b{member}@{seat}");
        match self.array().begin_rebuild(member, seat) {
            Ok(rebuild) => {
                self.rebuild = Some((member, rebuild));
                self.flushed();
                Ok(())
            }
            Err(error) if self.fleet.is_dead() || self.array().awaits_witness() => {
                self.failed("beginning a rebuild", &error)
            }
            // The server does not answer.
            Err(_) => Ok(()),
        }
    }

    /// The client dies in the middle of an operation, and another client opens the array.
    fn crash_and_open(&mut self) -> Result<(), String> {
        self.history += " X";
        let calls = self.random.below(12);
        self.fleet.arm_death(calls);
        for _ in 0..20 {
            if self.fleet.is_dead() {
                break;
            }
            let before = self.tally.crashes;
            match self.random.below(3) {
                0 => self.flush()?,
                _ => self.write()?,
            }
            if self.tally.crashes > before {
                return Ok(());
            }
        }
        self.reopen()
    }

    fn note_tally(&mut self) {
        let status = self.array().status();
        self.tally.losses += status.losses;
        self.tally.cleaned += status.cleaned;
        self.tally.packed += status.packed;
        self.tally.reconstructed += status.reconstructed;
        self.tally.repaired += status.repaired;
        self.tally.records += status.records;
    }

    /// A read-only client opens the state that the dead client left: the state is correct and stays
    /// unchanged.
    fn look(&mut self) -> Result<(), String> {
        let before = self.fleet.changes();
        let read_only = ArrayOptions { read_only: true, ..self.options() };
        let array = Array::open(self.fleet.clone(), read_only)
            .map_err(|error| format!("no reader can look: {error}"))?;
        let found =
            self.looked_at(&array).map_err(|error| format!("looking at everything: {error}"))?;
        for (index, bytes) in found.chunks_exact(BLOCK).enumerate() {
            let block = index as u64;
            let truth = self.truth.get(&block).cloned().unwrap_or_default();
            let mut candidates = truth.maybe.iter().chain([&truth.now]);
            let unreadable = !truth.maybe.is_empty() && bytes == [0x55; BLOCK];
            if !truth.anything
                && !unreadable
                && !candidates.any(|number| bytes == fill(*number, block))
            {
                return Err(format!("block {block} looks like none of what it may be"));
            }
        }
        if array.write(0, &found[..BLOCK]).is_ok() || array.discard(0, BLOCK as u64).is_ok() {
            return Err("a reader has changed something".to_owned());
        }
        array.flush().map_err(|error| format!("flushing nothing: {error}"))?;
        drop(array);
        match self.fleet.changes() == before {
            true => {
                self.fleet.revive_client();
                self.tally.looks += 1;
                Ok(())
            }
            false => Err("a reader asked a server to change something".to_owned()),
        }
    }

    fn reopen(&mut self) -> Result<(), String> {
        self.note_tally();
        self.tally.crashes += 1;
        self.rebuild = None;
        self.array = None;
        self.fleet.revive_client();
        self.notebook.set_away(false);
        self.history += " O";
        if self.random.one_in(3) {
            self.look()?;
        }
        let mut opened = Array::open(self.fleet.clone(), self.options());
        if self.random.one_in(3)
            && let Ok(array) = opened
        {
            // The next client also dies, during its open.
            drop(array);
            self.fleet.revive_client();
            let calls = self.random.below(60);
            self.fleet.arm_death(calls);
            let _ = Array::open(self.fleet.clone(), self.options());
            self.fleet.revive_client();
            opened = Array::open(self.fleet.clone(), self.options());
        }
        let array = opened.map_err(|error| format!("does not open: {error}"))?;
        self.array = Some(array);
        let found =
            self.everything(self.array()).map_err(|error| format!("after opening: {error}"))?;
        for (index, bytes) in found.chunks_exact(BLOCK).enumerate() {
            let block = index as u64;
            let Some(truth) = self.truth.get_mut(&block) else {
                if bytes.iter().any(|byte| *byte != 0) {
                    return Err(format!("block {block} was never written and is something"));
                }
                continue;
            };
            if truth.anything {
                continue;
            }
            let candidates = truth.maybe.iter().chain([&truth.now]).copied();
            let known = candidates
                .into_iter()
                .find(|number| bytes == fill(*number, block))
                .ok_or_else(|| {
                    format!(
                        "block {block} is none of what it may be: {} or {:?}",
                        truth.now, truth.maybe
                    )
                })?;
            *truth = Truth { now: known, ..Truth::default() };
        }
        Ok(())
    }
}

pub fn options(notebook: &Arc<Notebook>) -> ArrayOptions {
    ArrayOptions { now: notebook.now(), witness: Some(notebook.clone()), ..ArrayOptions::default() }
}
