//! Parity in place: clients die, and servers are lost, while blocks are written home.

use std::sync::Arc;

use steadfast_media::Medium;
use steadfast_remote::array::{
    Array, ArrayError, ArrayOptions, BLOCK, CreateOptions, Fleet, Policy, Progress,
};

use crate::fleet::{LATE_MS, Notebook, Random, SimFleet, Trouble};
use crate::found::{SIZE, rebuild};
use crate::world::{fill, options};

const POLICY: Policy = Policy::ParityInPlace;

/// An array with a full log, and the expected contents.
pub struct Full {
    pub fleet: Arc<SimFleet>,
    notebook: Arc<Notebook>,
    pub array: Option<Array<Arc<SimFleet>>>,
    pub random: Random,
    /// How long a client that opens the array waits for late writes.
    pub late_ms: u64,
    /// Number of blocks written after the log is full, from the first block on.
    hot: u64,
    /// Whether every other write is of whole groups.
    groups: bool,
    /// The version of each block at the last flush.
    pub flushed: Vec<u64>,
    /// Written and not flushed: block and version.
    pub under_way: Vec<(u64, u64)>,
    version: u64,
}

impl Full {
    pub fn new(servers: usize, seed: u64) -> Full {
        Full::sized(POLICY, servers, SIZE, u64::MAX, seed)
    }

    /// The same; every other write is of whole groups.
    pub fn groups(servers: usize, size: u64, seed: u64) -> Full {
        Full { groups: true, ..Full::sized(POLICY, servers, size, u64::MAX, seed) }
    }

    /// The same, but nothing is written yet.
    pub fn empty(servers: usize, size: u64, seed: u64) -> Full {
        Full { groups: true, ..Full::fresh(POLICY, servers, size, u64::MAX, seed) }
    }

    /// Many checksum blocks: those of a few homes are packed again and again, while the others
    /// stay. Checksums have segments of their own, and the first of their blocks cover all written
    /// blocks.
    fn packing() -> Full {
        Full::sized(POLICY, 16, 3 << 20, 900, 1)
    }

    pub fn sized(policy: Policy, servers: usize, size: u64, hot: u64, seed: u64) -> Full {
        let mut full = Full::fresh(policy, servers, size, hot, seed);
        // Some blocks are never written, and none in whole groups.
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

    fn fresh(policy: Policy, servers: usize, size: u64, hot: u64, seed: u64) -> Full {
        let fleet = Arc::new(SimFleet::new(servers, size, seed));
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
            hot: hot.min(blocks),
            groups: false,
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
        let group = 16 * (self.fleet.servers() as u64 - 1);
        let count = match self.groups && self.random.one_in(2) {
            true => (group + self.random.below(3 * group)).min(self.hot - 1),
            false if self.random.one_in(5) => 1 + self.random.below(40),
            false => 1,
        };
        let first = self.random.below(self.hot - count);
        self.write(first, count)?;
        if self.groups && self.random.one_in(3) {
            // The next call reports the same error.
            let _ = self.array().tidy();
        }
        // Several writes before a flush, so that places are used up.
        if !self.groups || self.random.one_in(2) {
            self.array().flush()?;
            self.note();
        }
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
pub fn dies(servers: usize, calls: u64, seed: u64, lost: usize) -> bool {
    dies_in(Full::new(servers, seed), calls, lost, &format!("{servers} servers, seed {seed}"))
}

/// The calls after which checksums are being packed, if the client lives.
pub fn packing() -> Vec<u64> {
    let mut full = Full::packing();
    let first = full.fleet.calls();
    let mut packing = Vec::new();
    for _ in 0..40 {
        let before = (full.fleet.calls(), full.array().status().packed);
        full.one().unwrap();
        if full.array().status().packed > before.1 {
            packing.extend(before.0 - first..full.fleet.calls() - first);
        }
    }
    packing
}

/// A client dies after this many calls, as in [`dies`].
pub fn dies_packing(calls: u64) -> bool {
    dies_in(Full::packing(), calls, calls as usize % 16, "packing")
}

pub fn dies_in(mut full: Full, calls: u64, lost: usize, world: &str) -> bool {
    let context = format!("{world}, {calls} calls, {lost} lost");
    let servers = full.fleet.servers();
    let before = full.array().status().cleaned;
    full.fleet.arm_death(calls);
    let ended = (0..40).all(|_| full.one().is_ok());
    let cleaned = full.array().status().cleaned - before;
    assert_eq!(ended, !full.fleet.is_dead(), "{context}");
    assert!(!ended || full.groups || cleaned > 3, "{context}: {cleaned} cleaned");
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
fn blocks_on_their_way_home_survive_the_client_and_a_server() {
    let all = every_death();
    for servers in [3, 4, 6] {
        let died = |calls: u64| {
            let turn = (calls % servers as u64) as usize;
            let some = if all { 0..servers } else { turn..turn + 1 };
            some.into_iter().all(|lost| dies(servers, calls, 1 + calls % 3, lost))
        };
        let deaths =
            (0..).step_by(if all { 1 } else { 5 }).take_while(|calls| died(*calls)).count();
        println!("{servers} servers: {deaths} deaths");
        assert!(deaths > 50, "{servers}: {deaths}");
    }
}

/// Every eleventh of the calls that pack checksums; with STEADFAST_DEATHS=all every one.
#[test]
fn checksums_that_are_packed_survive_the_client_and_a_server() {
    let packing = packing();
    assert!(packing.len() > 100, "{} calls", packing.len());
    let some = packing.iter().step_by(if every_death() { 1 } else { 11 });
    assert!(some.into_iter().all(|calls| dies_packing(*calls)));
}

/// A client dies, and the next one writes a little. Only then all servers lose power, and with it
/// every mark that the first client had not flushed. A block at home may have an older version in a
/// segment whose mark is lost. Returns whether the first client died.
fn power_goes_later(calls: u64, more: u64, seed: u64) -> bool {
    let context = format!("{calls} calls, {more} more, seed {seed}");
    let mut full = Full::new(3, seed);
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

/// Clients follow one another, with or without a planted bug.
pub fn one_after_the_other(seed: u64) {
    let mut full = Full::new(3, seed);
    for life in 0..4 {
        (0..25).for_each(|_| full.one().unwrap());
        full.reopen("opened");
        full.check(&format!("seed {seed}, life {life}"));
    }
}

#[test]
fn what_waits_is_not_taken_for_what_is_at_home() {
    for block in (0..150).step_by(9) {
        for lost in 0..3 {
            let context = format!("block {block}, member {lost}");
            let mut full = Full::new(3, 1 + block % 4);
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

/// First byte of the homes on each server.
pub fn first_home(array: &Array<Arc<SimFleet>>) -> u64 {
    let status = array.status();
    (64 << 10) + u64::from(status.segments.1) * u64::from(status.segment_bytes)
}

/// A write home of a living client, the one after `writes` others, is not answered in time. It
/// arrives after many later writes home. Then another server is lost, if the first one is good.
/// Returns whether there were so many writes.
pub fn late_at_home(servers: usize, writes: u64) -> bool {
    let context = format!("{servers} servers, {writes} writes");
    let mut full = Full::new(servers, 1 + writes % 4);
    full.fleet.keep_write(first_home(full.array()), writes);
    (0..80).for_each(|_| full.one().expect(&context));
    let Some(server) = full.fleet.kept().first().copied() else { return false };
    // Everything is overwritten, and most of it is written home.
    for block in 0..full.flushed.len() as u64 {
        full.write(block, 1).expect(&context);
    }
    full.array().flush().expect(&context);
    full.note();
    full.fleet.deliver();
    let lost = full.array().lost();
    assert!(lost.iter().all(|member| *member == server), "{context}: {lost:?} are lost");
    for member in lost {
        full.check(&format!("{context}, delivered"));
        rebuild(full.array(), member);
    }
    full.fleet.set_trouble((server + 1) % servers, Trouble::Down);
    full.check(&context);
    true
}

#[test]
fn what_a_living_client_wrote_home_hides_nothing_when_it_arrives_late() {
    for (servers, step) in [(3, 1), (6, 5)] {
        let late =
            (0..40).step_by(step).take_while(|writes| late_at_home(servers, *writes)).count();
        assert!(late > 30 / step, "{servers}: {late}");
    }
}

/// Two or more servers do not answer for some calls, from the `start`-th write on, while blocks are
/// written home. Operations may fail, but no flushed block is damaged once the servers answer
/// again. Returns whether any operation failed.
pub fn stalls(servers: usize, start: u64, calls: u64) -> bool {
    let context = format!("{servers} servers, {calls} calls from {start} on");
    let mut full = Full::new(servers, 1 + start % 5);
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
    let mut full = Full::new(servers, 1 + calls % 4);
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

/// One server has everything in the log wrong, checksums of homes included, and another one is
/// lost. That is more than the policy survives.
#[test]
fn what_cannot_be_known_is_refused_and_the_rest_goes_on() {
    let faults = [(0, 1), (1, 2), (2, 0), (1, 0)];
    for ((wrong, gone), groups) in
        faults.into_iter().flat_map(|fault| [(fault, false), (fault, true)])
    {
        let context = format!("{wrong} is wrong, {gone} is gone, groups: {groups}");
        let mut full = match groups {
            true => Full::groups(3, SIZE, 1 + wrong as u64),
            false => Full::new(3, 1 + wrong as u64),
        };
        (0..30).for_each(|_| full.one().expect(&context));
        full.flush(&context);
        // No later record confirms that the last one was flushed, so it may be void.
        full.write(7, 1).expect(&context);
        full.array().flush().expect(&context);
        full.note();
        full.fleet.scramble(wrong, 64 << 10..first_home(full.array()));
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
        // A write-back includes the neighbours of a block, and they stay unchanged.
        (0..60).for_each(|_| full.one().expect(&context));
        full.flush(&context);
        assert!(refused(&mut full) <= at_first, "{context}");
        full.reopen(&context);
        assert!(refused(&mut full) <= at_first, "{context}");
        full.write(0, full.flushed.len() as u64).expect(&context);
        full.array().flush().expect(&context);
        full.note();
        full.check(&context);
        rebuild_from_nothing(&mut full, gone, &context);
        full.check(&context);
        full.reopen(&context);
        full.check(&context);
    }
}

/// A lost server restarts empty.
fn rebuild_from_nothing(full: &mut Full, server: usize, context: &str) {
    full.fleet.restart_empty(server);
    full.one().expect(context);
    rebuild(full.array(), server);
}

/// A block at home is wrong, and its repair is not answered in time: the member is lost, as with
/// any write home.
#[test]
fn a_home_that_is_put_right_late_costs_the_member() {
    let mut late = 0;
    for seed in 1..20 {
        let mut full = Full::new(3, seed);
        (0..20).for_each(|_| full.one().unwrap());
        let (block, server) = (full.random.below(150), full.random.below(3) as usize);
        full.fleet.damage(server, &fill(full.flushed[block as usize], block)[..64]);
        full.fleet.keep_write(first_home(full.array()), 0);
        full.array().read(block * BLOCK as u64, &mut [0; BLOCK]).unwrap();
        let kept = full.fleet.kept();
        assert_eq!(full.array().lost(), kept, "seed {seed}");
        late += kept.len();
        full.fleet.deliver();
        full.check(&format!("seed {seed}"));
    }
    assert!(late > 2, "{late}");
}
