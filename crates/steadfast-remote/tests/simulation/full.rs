//! Arrays with a full log: clients die, and servers are lost, while segments are cleaned.

use std::sync::Arc;

use steadfast_media::{Medium, Random};
use steadfast_remote::array::{
    Array, ArrayError, ArrayOptions, BLOCK, CreateOptions, Policy, Progress,
};

use crate::fleet::{LATE_MS, Notebook, SimFleet, Trouble};
use crate::found::{SIZE, rebuild};
use crate::world::{fill, options};

/// The policies of these worlds, and their servers.
pub const POLICIES: [(Policy, usize); 4] = [
    (Policy::Parity, 3),
    (Policy::Parity, 6),
    (Policy::Mirror, 2),
    (Policy::Erasure { data: 2, parity: 2 }, 4),
];

/// An array with a full log, and the expected contents.
pub struct Full {
    pub fleet: Arc<SimFleet>,
    notebook: Arc<Notebook>,
    pub array: Option<Array<Arc<SimFleet>>>,
    pub random: Random,
    /// How long a client that opens the array waits for late writes.
    pub late_ms: u64,
    /// The version of each block at the last flush.
    pub flushed: Vec<u64>,
    /// Written and not flushed: block and version.
    pub under_way: Vec<(u64, u64)>,
    version: u64,
}

impl Full {
    pub fn new(policy: Policy, servers: usize, seed: u64) -> Full {
        let mut full = Full::fresh(policy, servers, seed);
        // Some blocks are never written.
        let blocks = full.flushed.len() as u64 - 5;
        (0..blocks)
            .step_by(20)
            .for_each(|first| full.write(first, 20.min(blocks - first)).unwrap());
        full.flush("filled");
        while full.array().status().cleaned == 0 {
            full.one().unwrap();
        }
        full
    }

    fn fresh(policy: Policy, servers: usize, seed: u64) -> Full {
        let fleet = Arc::new(SimFleet::new(servers, SIZE, seed));
        let notebook = Arc::new(Notebook::default());
        let create = CreateOptions { policy, uuid: [3; 16], spares: 0 };
        let array = Array::create(fleet.clone(), &create, options(&notebook)).unwrap();
        let blocks = array.geometry().size / BLOCK as u64;
        let random = Random::new(seed);
        let flushed = vec![0; blocks as usize];
        Full {
            fleet,
            notebook,
            array: Some(array),
            random,
            late_ms: LATE_MS,
            flushed,
            under_way: Vec::new(),
            version: 0,
        }
    }

    pub fn array(&self) -> &Array<Arc<SimFleet>> {
        self.array.as_ref().unwrap()
    }

    pub fn write(&mut self, first: u64, count: u64) -> Result<(), steadfast_media::MediumError> {
        self.version += 1;
        let bytes: Vec<u8> =
            (first..first + count).flat_map(|block| fill(self.version, block)).collect();
        self.under_way.extend((first..first + count).map(|block| (block, self.version)));
        self.array().write(first * BLOCK as u64, &bytes)
    }

    pub fn flush(&mut self, context: &str) {
        self.array().flush().expect(context);
        self.note();
    }

    /// Everything in flight is flushed.
    pub fn note(&mut self) {
        for (block, version) in self.under_way.drain(..) {
            self.flushed[block as usize] = version;
        }
    }

    /// Writes one or a few blocks at a random position, and flushes.
    pub fn one(&mut self) -> Result<(), steadfast_media::MediumError> {
        let count = if self.random.one_in(5) { 1 + self.random.below(40) } else { 1 };
        let first = self.random.below(self.flushed.len() as u64 - count);
        self.write(first, count)?;
        self.array().flush()?;
        self.note();
        Ok(())
    }

    /// The client is gone, and another one opens the array.
    pub fn reopen(&mut self, context: &str) {
        self.array = Some(self.open().expect(context));
    }

    /// The same, if the array can be opened.
    pub fn open(&mut self) -> Result<Array<Arc<SimFleet>>, ArrayError> {
        self.array = None;
        self.fleet.revive_client();
        let options = ArrayOptions { late_ms: self.late_ms, ..options(&self.notebook) };
        Array::open(self.fleet.clone(), options)
    }

    /// The same with a client that dies after this many calls.
    pub fn open_within(&mut self, calls: u64) -> Result<Array<Arc<SimFleet>>, ArrayError> {
        self.fleet.arm_death(calls);
        let options = ArrayOptions { late_ms: self.late_ms, ..options(&self.notebook) };
        Array::open(self.fleet.clone(), options)
    }

    /// Checks that every block has its flushed version or one in flight. From then on that version
    /// is the expected one.
    pub fn check(&mut self, context: &str) {
        let mut found = vec![0; BLOCK];
        for block in 0..self.flushed.len() as u64 {
            self.array()
                .read(block * BLOCK as u64, &mut found)
                .unwrap_or_else(|error| panic!("{context}: {error}"));
            let newer =
                self.under_way.iter().filter(|(of, _)| *of == block).map(|(_, version)| *version);
            let known = newer
                .chain([self.flushed[block as usize]])
                .find(|version| found == fill(*version, block));
            let Some(known) = known else {
                let is = (0..=self.version).find(|version| found == fill(*version, block));
                panic!("{context}: block {block} is {is:?}, not {}", self.flushed[block as usize]);
            };
            self.flushed[block as usize] = known;
        }
        self.under_way.clear();
    }
}

/// A client dies at its `calls`-th call while the log is full. All servers lose power, and one of
/// them restarts empty. It is rebuilt, and another one is lost. Returns whether the client died
/// before its end.
fn dies(policy: Policy, servers: usize, calls: u64, seed: u64, lost: usize) -> bool {
    let context = format!("{policy} on {servers}, seed {seed}, {calls} calls, {lost} lost");
    let mut full = Full::new(policy, servers, seed);
    let before = full.array().status().cleaned;
    full.fleet.arm_death(calls);
    let ended = (0..40).all(|_| full.one().is_ok());
    let cleaned = full.array().status().cleaned - before;
    assert_eq!(ended, !full.fleet.is_dead(), "{context}");
    assert!(!ended || cleaned > 2, "{context}: {cleaned} cleaned");
    for server in 0..servers {
        match server == lost {
            true => full.fleet.restart_empty(server),
            false => full.fleet.restart_flushed(server),
        }
    }
    full.reopen(&context);
    full.check(&format!("{context}, opened"));
    // The array stays usable with one server missing, cleaning included.
    (0..10).for_each(|_| full.one().expect(&context));
    rebuild(full.array(), lost);
    (0..10).for_each(|_| full.one().expect(&context));
    full.flush(&context);
    full.check(&format!("{context}, rebuilt"));
    let next = (lost + 1) % servers;
    full.fleet.set_trouble(next, Trouble::Down);
    full.check(&context);
    full.reopen(&context);
    full.check(&context);
    assert_eq!(full.array().lost(), [next], "{context}");
    !ended
}

pub fn every_death() -> bool {
    std::env::var("STEADFAST_DEATHS").is_ok_and(|text| text == "all")
}

/// Every fifth call, with one of the servers; with STEADFAST_DEATHS=all every call, with each of
/// the servers.
#[test]
fn a_full_log_survives_the_client_and_a_server() {
    let all = every_death();
    for (policy, servers) in POLICIES {
        let died = |calls: u64| {
            let turn = (calls % servers as u64) as usize;
            let some = if all { 0..servers } else { turn..turn + 1 };
            some.into_iter().all(|lost| dies(policy, servers, calls, 1 + calls % 3, lost))
        };
        let deaths =
            (0..).step_by(if all { 1 } else { 5 }).take_while(|calls| died(*calls)).count();
        println!("{policy} on {servers}: {deaths} deaths");
        assert!(deaths > 8, "{policy} on {servers}: {deaths}");
    }
}

/// A client dies, and the next one writes a little. Only then all servers lose power, and with it
/// every mark that the first client had not flushed. Returns whether the first client died.
fn power_goes_later(calls: u64, more: u64, seed: u64) -> bool {
    let context = format!("{calls} calls, {more} more, seed {seed}");
    let mut full = Full::new(Policy::Parity, 3, seed);
    // A flush is then one durable write; it flushes nothing else if nothing else was sent.
    full.fleet.write_durably();
    full.fleet.arm_death(calls);
    let ended = (0..20).all(|_| full.one().is_ok());
    full.reopen(&context);
    full.check(&format!("{context}, opened"));
    for _ in 0..more {
        let block = full.random.below(full.flushed.len() as u64);
        full.write(block, 1).and_then(|()| full.array().flush()).expect(&context);
        full.note();
    }
    full.array = None;
    (0..3).for_each(|server| full.fleet.restart_flushed(server));
    full.reopen(&context);
    full.check(&format!("{context}, without power"));
    !ended
}

#[test]
fn marks_that_nobody_has_flushed_bring_nothing_old_back() {
    let died = |calls: &u64| {
        [15, 30, 45].into_iter().all(|more| power_goes_later(*calls, more, 1 + calls % 5))
    };
    let deaths = (0..).take_while(died).count();
    assert!(deaths > 30, "{deaths}");
}

#[test]
fn clients_that_follow_one_another_find_what_was_written() {
    for (policy, servers) in POLICIES {
        for seed in 1..8 {
            let mut full = Full::new(policy, servers, seed);
            for life in 0..4 {
                (0..25).for_each(|_| full.one().unwrap());
                full.reopen("opened");
                full.check(&format!("{policy}, seed {seed}, life {life}"));
            }
        }
    }
}

#[test]
fn what_waits_during_a_rebuild_is_not_lost() {
    for block in (0..150).step_by(9) {
        for lost in 0..3 {
            let context = format!("block {block}, member {lost}");
            let mut full = Full::new(Policy::Parity, 3, 1 + block % 4);
            full.fleet.restart_empty(lost);
            full.one().expect(&context);
            let mut going = full.array().begin_rebuild(lost, lost).expect(&context);
            full.write(block, 1).expect(&context);
            while full.array().rebuild_step(&mut going).expect(&context) != Progress::Done {}
            full.array().flush().expect(&context);
            full.note();
            full.check(&context);
            full.fleet.set_trouble((lost + 1) % 3, Trouble::Down);
            full.check(&context);
        }
    }
}

/// First byte after the segments of each server.
fn end_of_log(array: &Array<Arc<SimFleet>>) -> u64 {
    let status = array.status();
    (64 << 10) + u64::from(status.segments.1) * u64::from(status.segment_bytes)
}

/// Two or more servers do not answer for some calls, from the `start`-th write on, while segments
/// are cleaned. Operations may fail, but no flushed block is damaged once the servers answer
/// again. Returns whether any operation failed.
fn stalls(servers: usize, start: u64, calls: u64) -> bool {
    let context = format!("{servers} servers, {calls} calls from {start} on");
    let mut full = Full::new(Policy::Parity, servers, 1 + start % 5);
    (0..start).for_each(|_| full.one().expect(&context));
    let who = match start % 3 {
        0 => 0b011,
        1 => 0b110,
        _ => (1 << servers) - 1,
    };
    let mut refused = Vec::new();
    full.fleet.stall(who, calls, calls.is_multiple_of(2));
    for _ in 0..6 {
        if full.one().is_err() {
            // The write has happened or not, whatever comes later.
            refused.append(&mut full.under_way);
        }
    }
    full.fleet.stall(0, 0, false);
    full.under_way.append(&mut refused.clone());
    if full.array().status().failed {
        full.reopen(&context);
    }
    full.check(&format!("{context}, answering"));
    full.reopen(&context);
    full.check(&format!("{context}, opened"));
    (0..20).for_each(|_| full.one().expect(&context));
    full.check(&context);
    !refused.is_empty()
}

#[test]
fn who_does_not_answer_is_not_taken_for_wrong() {
    for (servers, step) in [(3, 1), (6, 5)] {
        let cases = (0..120).step_by(step);
        let refused = cases.filter(|case| stalls(servers, case % 12, 1 + case / 12 * 7)).count();
        assert!(refused > 10 / step, "{servers}: {refused} refused");
    }
}

/// Clients die one after the other, each after a few calls while it continues from the state of the
/// one before.
fn die_again_and_again(servers: usize, calls: u64) {
    let context = format!("{servers} servers, {calls} calls each");
    let mut full = Full::new(Policy::Parity, servers, 1 + calls % 4);
    for death in 0..40 {
        full.fleet.arm_death(calls + death % 3);
        while full.one().is_ok() {}
        full.reopen(&context);
        full.check(&format!("{context}, death {death}"));
    }
    (0..60).for_each(|_| full.one().expect(&context));
    full.check(&context);
}

#[test]
fn clients_that_die_one_after_the_other_use_no_room_up() {
    for servers in [3, 6] {
        for calls in [3, 8, 15, 22, 30, 41, 55] {
            die_again_and_again(servers, calls);
        }
    }
}

/// One server has everything wrong, and another one is lost. That is more than the policy survives.
#[test]
fn what_cannot_be_known_is_refused_and_the_rest_is_right() {
    for (wrong, gone) in [(0, 1), (1, 2), (2, 0), (1, 0)] {
        let context = format!("{wrong} is wrong, {gone} is gone");
        let mut full = Full::new(Policy::Parity, 3, 1 + wrong as u64);
        (0..30).for_each(|_| full.one().expect(&context));
        full.flush(&context);
        // No later record confirms that the last one was flushed, so it may be void.
        full.write(7, 1).expect(&context);
        full.array().flush().expect(&context);
        full.note();
        full.fleet.scramble(wrong, 64 << 10..end_of_log(full.array()));
        full.fleet.set_trouble(gone, Trouble::Down);
        full.reopen(&context);
        let refused = |full: &mut Full| {
            let mut found = vec![0; BLOCK];
            let mut refused = 0;
            for block in (0..full.flushed.len() as u64).filter(|block| *block != 7) {
                match full.array().read(block * BLOCK as u64, &mut found) {
                    Ok(()) => {
                        assert!(
                            found == fill(full.flushed[block as usize], block),
                            "{context}: {block}"
                        )
                    }
                    Err(_) => refused += 1,
                }
            }
            refused
        };
        let at_first = refused(&mut full);
        assert!(at_first > 0, "{context}");
        full.reopen(&context);
        assert_eq!(refused(&mut full), at_first, "{context}");
    }
}
