//! Nodes, etcd and fenced storage in one thread, driven by a seed. Messages are late or lost.
//! Processes stop, wake up, die and come back. Clocks run apart by up to 5 %. The judge knows the
//! true time.
//!
//! What must hold:
//! 1. an epoch has one owner;
//! 2. after an owner has opened the volume, the storage accepts no write of an earlier owner;
//! 3. an owner that is sure of its lease answers only while no later owner has opened the volume;
//! 4. when faults end, one of the nodes serves.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::election::{Candidate, Step};
use crate::fake::Fake;
use crate::record::{Node, OwnerRecord, Seen, VolumeRecord, Wish};
use crate::tenure::{Tenure, Verdict};
use crate::{BEAT, Cluster, LOOK, PATIENCE};

/// A bug to plant. Each breaks one of the rules above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bug {
    None,
    /// A new owner opens the volume without fencing.
    NoFence,
    /// It opens first and fences then.
    FenceAfterOpen,
    /// It fences the last owner only, not those before that died before their fence.
    FenceLastOnly,
    /// The list of nodes to fence keeps only the last owner when the volume is taken.
    ForgetUnfenced,
    /// The list is cleared before the nodes on it are fenced.
    ForgetBeforeFence,
    /// The lease counts from the answer of etcd.
    LeaseFromAnswer,
    /// A look at the record extends the lease.
    LookExtends,
    /// A candidate takes an owner for dead before its lease ends.
    Hasty,
    /// The silence counts from when the first look was sent.
    EarlySight,
    /// A candidate takes the volume of an owner that was evicted at once.
    HastyAfterEviction,
    /// A process whose request for the volume was not answered stands by as before.
    ForgetTried,
    /// The record is stored whatever its revision is.
    Blind,
    /// An owner that gives the volume up still has writes on their way.
    ReleaseEarly,
    /// A refused beat is taken for a lost one: the owner never notices that it is deposed.
    /// Its storage still refuses it; the rule that breaks is the last one.
    NeverDeposed,
    /// A candidate never takes a silent owner for dead.
    Patient,
}

/// The sequence stays its own: with it the seeds of the tests find every planted bug, the rarest
/// one too.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// What the storage knows.
#[derive(Default)]
struct Storage {
    /// Instances whose requests are refused.
    fenced: BTreeSet<String>,
    /// The newest epoch that has opened the volume.
    opened: u64,
}

/// A request that is on its way to its place, or an answer on its way back.
enum Message {
    Look { sent: Duration },
    Looked { sent: Duration, record: Option<Seen<OwnerRecord>> },
    Store { sent: Duration, revision: i64, record: OwnerRecord },
    Stored { sent: Duration, record: OwnerRecord, done: Option<bool> },
    Connected { record: OwnerRecord },
    Fence { record: OwnerRecord },
    Fenced { epoch: u64 },
    Open { epoch: u64 },
    Opened { epoch: u64 },
    Write { epoch: u64 },
    Written,
    Answer,
}

enum Role {
    Candidate(Candidate),
    Owner { tenure: Tenure, stage: Stage, told: bool, closing: bool },
}

/// How far an owner is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Fencing,
    /// The earlier owners are fenced. It opens when a beat after that is stored.
    Fenced,
    Opening,
    Opened,
    /// The volume is closed.
    Closed,
}

struct Process {
    node: Node,
    role: Role,
    /// Hundredths of the true time that pass on its clock in a hundredth.
    rate: u64,
    /// Until then it is stopped: its messages wait.
    stopped: u64,
    writes: usize,
}

struct World {
    random: Random,
    bug: Bug,
    now: u64,
    cluster: Cluster<Fake>,
    storage: Storage,
    processes: Vec<Process>,
    /// Messages by time and number: the process, its instance, the message.
    messages: BTreeMap<(u64, u64), (usize, String, Message)>,
    number: u64,
    owners: BTreeMap<u64, String>,
    faults: bool,
    violation: Option<String>,
    openings: u64,
    answers: u64,
    commands: u64,
}

const NODES: usize = 3;
/// Milliseconds with faults, and without them.
const ROUGH: u64 = 20_000;
const QUIET: u64 = 8_000;

impl World {
    fn new(seed: u64, bug: Bug) -> World {
        let mut world = World {
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            bug,
            now: 0,
            cluster: Cluster::new(Fake::default(), "v"),
            storage: Storage::default(),
            processes: Vec::new(),
            messages: BTreeMap::new(),
            number: 0,
            owners: BTreeMap::new(),
            faults: true,
            violation: None,
            openings: 0,
            answers: 0,
            commands: 0,
        };
        let record = VolumeRecord { medium: "m".into(), fence: None, shared: false };
        world.cluster.create(&record).unwrap();
        for index in 0..NODES {
            let process = world.process(index);
            world.processes.push(process);
            world.begin(index);
        }
        world
    }

    fn process(&mut self, index: usize) -> Process {
        self.number += 1;
        let instance = format!("{index}.{}", self.number);
        let node = Node { name: index.to_string(), host: "h".into(), process: 1, instance };
        let role = Role::Candidate(Candidate::new(node.clone()));
        Process { node, role, rate: 95 + self.random.below(11), stopped: 0, writes: 0 }
    }

    fn clock(&self, index: usize) -> Duration {
        Duration::from_micros(self.now * 10 * self.processes[index].rate)
    }

    fn send(&mut self, index: usize, after: u64, message: Message) {
        self.number += 1;
        let instance = self.processes[index].node.instance.clone();
        self.messages.insert((self.now + after, self.number), (index, instance, message));
    }

    /// Time on the way; a lost message is `None`.
    fn way(&mut self) -> Option<u64> {
        match self.faults {
            true if self.random.chance(4) => None,
            true if self.random.chance(4) => Some(self.random.below(900)),
            _ => Some(self.random.below(4)),
        }
    }

    fn begin(&mut self, index: usize) {
        let sent = self.clock(index);
        let after = self.random.below(20);
        self.send(index, after, Message::Look { sent });
    }

    fn run(&mut self) -> Result<(), String> {
        while let Some(entry) = self.messages.first_entry() {
            let ((time, _), (index, instance, message)) = (*entry.key(), entry.remove());
            self.now = self.now.max(time);
            if self.now >= ROUGH + QUIET {
                break;
            }
            self.faults = self.now < ROUGH;
            if self.faults && self.random.chance(1) && self.random.chance(30) {
                self.disturb();
            }
            // What a dead process sent may still arrive, but it receives nothing.
            let alive = self.processes[index].node.instance == instance;
            match message {
                Message::Look { .. }
                | Message::Store { .. }
                | Message::Fence { .. }
                | Message::Open { .. }
                | Message::Write { .. } => self.arrive(index, &instance, message),
                answer if alive => {
                    let stopped = self.processes[index].stopped;
                    if stopped > self.now {
                        let after = stopped - self.now;
                        self.send(index, after, answer);
                    } else {
                        self.receive(index, answer);
                    }
                }
                _ => {}
            }
            if let Some(violation) = self.violation.take() {
                return Err(violation);
            }
        }
        let serves =
            |process: &Process| matches!(process.role, Role::Owner { stage: Stage::Opened, .. });
        let owner = self.cluster.owner().unwrap().value.node;
        let owner = self.processes.iter().find(|process| Some(&process.node) == owner.as_ref());
        match owner.is_some_and(serves) {
            true => Ok(()),
            false => Err("no owner serves after the faults".to_owned()),
        }
    }

    /// A process stops for a while, dies, or is asked to hand over.
    fn disturb(&mut self) {
        let index = self.random.below(NODES as u64) as usize;
        match self.random.below(4) {
            0 | 1 => self.processes[index].stopped = self.now + self.random.below(3000),
            2 => {
                self.processes[index] = self.process(index);
                self.begin(index);
            }
            _ => {
                // There may be no owner.
                let done = match self.random.chance(50) {
                    true => self.cluster.hand_over(None),
                    false => self.cluster.evict().map(drop),
                };
                self.commands += u64::from(done.is_ok());
            }
        }
    }

    /// A request has reached etcd or the storage.
    fn arrive(&mut self, index: usize, instance: &str, message: Message) {
        let way = self.way();
        let alive = self.processes[index].node.instance == instance;
        let answer = match message {
            Message::Look { sent } => {
                let record = self.cluster.owner().unwrap();
                Message::Looked { sent, record: way.map(|_| record) }
            }
            Message::Store { sent, revision, record } => {
                let revision = match self.bug {
                    Bug::Blind => self.cluster.owner().unwrap().revision,
                    _ => revision,
                };
                let done = self.cluster.replace(revision, &record).unwrap();
                if let (true, Some(node)) = (done, &record.node) {
                    let owner = self.owners.entry(record.epoch).or_insert(node.instance.clone());
                    if *owner != node.instance {
                        self.fail(format!("two owners in epoch {}", record.epoch));
                    }
                }
                Message::Stored { sent, record, done: way.map(|_| done) }
            }
            Message::Fence { record } => {
                let unfenced = match self.bug {
                    Bug::NoFence => &[][..],
                    Bug::FenceLastOnly => {
                        record.unfenced.last().map_or(&[][..], std::slice::from_ref)
                    }
                    _ => &record.unfenced,
                };
                let unfenced = unfenced.iter().map(|node| node.instance.clone());
                self.storage.fenced.extend(unfenced);
                Message::Fenced { epoch: record.epoch }
            }
            Message::Open { epoch } => {
                if self.storage.fenced.contains(instance) {
                    return;
                }
                self.openings += 1;
                self.storage.opened = self.storage.opened.max(epoch);
                Message::Opened { epoch }
            }
            Message::Write { epoch } => {
                if self.storage.fenced.contains(instance) {
                    return;
                }
                if epoch < self.storage.opened {
                    self.fail(format!(
                        "a write of epoch {epoch} is accepted after epoch {} opened the volume",
                        self.storage.opened
                    ));
                }
                Message::Written
            }
            other => other,
        };
        if alive {
            let lost = PATIENCE.as_millis() as u64;
            self.send(index, way.unwrap_or(lost), answer);
        }
    }

    fn fail(&mut self, what: String) {
        self.violation.get_or_insert(format!("at {} ms: {what}", self.now));
    }

    /// A process receives an answer, or its own timer.
    fn receive(&mut self, index: usize, message: Message) {
        let now = self.clock(index);
        match message {
            Message::Looked { sent, record } => self.looked(index, sent, record),
            Message::Stored { sent, record, done } => self.stored(index, sent, record, done),
            Message::Connected { record } => {
                let after = self.way().unwrap_or(900);
                self.send(index, after, Message::Fence { record });
            }
            Message::Fenced { epoch } => {
                let Role::Owner { tenure, stage, .. } = &mut self.processes[index].role else {
                    return;
                };
                if tenure.epoch() == epoch && *stage == Stage::Fencing {
                    *stage = Stage::Fenced;
                }
            }
            Message::Opened { epoch } => {
                let Role::Owner { tenure, stage, .. } = &mut self.processes[index].role else {
                    return;
                };
                if tenure.epoch() != epoch {
                    return;
                }
                *stage = Stage::Opened;
                if self.bug == Bug::FenceAfterOpen {
                    self.openings += 1;
                    self.storage.opened = self.storage.opened.max(epoch);
                    let record = self.cluster.owner().unwrap().value;
                    self.send(index, 20, Message::Fence { record });
                }
                self.send(index, 0, Message::Answer);
            }
            Message::Written => {
                self.processes[index].writes = self.processes[index].writes.saturating_sub(1);
            }
            Message::Answer => {
                let process = &mut self.processes[index];
                let Role::Owner { tenure, stage: Stage::Opened, closing, .. } = &process.role
                else {
                    return;
                };
                let (epoch, closing) = (tenure.epoch(), *closing);
                if tenure.is_sure(now) {
                    self.answers += 1;
                    if epoch < self.storage.opened {
                        let opened = self.storage.opened;
                        self.fail(format!("epoch {epoch} answers after epoch {opened} opened"));
                    }
                }
                if !closing {
                    self.processes[index].writes += 1;
                    // A request that is not answered stays on its way: the storage repeats it.
                    let after = self.way().unwrap_or(900);
                    self.send(index, after, Message::Write { epoch });
                }
                let after = 5 + self.random.below(30);
                self.send(index, after, Message::Answer);
            }
            _ => {}
        }
    }

    fn looked(&mut self, index: usize, sent: Duration, record: Option<Seen<OwnerRecord>>) {
        let bug = self.bug;
        let now = self.clock(index);
        let process = &mut self.processes[index];
        let step = match (&mut process.role, &record) {
            (Role::Candidate(candidate), Some(record)) => {
                let answered = if bug == Bug::EarlySight { sent } else { now };
                match candidate.saw(sent, answered, record) {
                    Step::Wait if bug == Bug::Hasty && sent.as_millis().is_multiple_of(5) => {
                        Some(record.value.taken_by(&process.node))
                    }
                    Step::Wait if bug == Bug::HastyAfterEviction && record.value.node.is_none() => {
                        Some(record.value.taken_by(&process.node))
                    }
                    Step::Take(_) if bug == Bug::Patient && record.value.node.is_some() => None,
                    Step::Take(mut taken) => {
                        if bug == Bug::ForgetUnfenced {
                            let last = taken.unfenced.pop();
                            taken.unfenced = last.into_iter().collect();
                        }
                        Some(taken)
                    }
                    Step::Wait => None,
                    Step::Own(record, sent) => return self.own(index, sent, &record),
                    Step::End => return self.restart(index),
                }
            }
            (Role::Candidate(candidate), None) => {
                candidate.saw_nothing();
                None
            }
            (Role::Owner { tenure, stage, told, closing }, Some(record)) => {
                match tenure.saw(record) {
                    Verdict::Beat(mut beat) => {
                        if bug == Bug::LookExtends {
                            tenure.beaten(now);
                        }
                        if *stage != Stage::Fencing || bug == Bug::ForgetBeforeFence {
                            beat.unfenced.clear();
                        }
                        let opened = *stage == Stage::Opened;
                        if opened && !*told {
                            (beat.serves, *told) = (true, true);
                        }
                        // A process gives nothing up while it opens the volume.
                        *closing |= opened && matches!(beat.wish, Some(Wish::HandOver(_)));
                        if *closing && (process.writes == 0 || bug == Bug::ReleaseEarly) {
                            // The volume is closed before it is given up.
                            if bug != Bug::ReleaseEarly {
                                *stage = Stage::Closed;
                            }
                            beat.wish = None;
                            (beat.node, beat.serves) = (None, false);
                        }
                        Some(beat)
                    }
                    Verdict::Deposed if bug == Bug::NeverDeposed => None,
                    Verdict::Deposed => {
                        self.restart(index);
                        return;
                    }
                }
            }
            (Role::Owner { .. }, None) => None,
        };
        match (step, record) {
            (Some(value), Some(record)) => {
                let message =
                    Message::Store { sent: now, revision: record.revision, record: value };
                match self.way() {
                    Some(after) => self.send(index, after, message),
                    // The request is lost, which the process cannot know.
                    None => {
                        let Message::Store { sent, record, .. } = message else { return };
                        let lost = PATIENCE.as_millis() as u64;
                        self.send(index, lost, Message::Stored { sent, record, done: None });
                    }
                }
            }
            _ => self.look_again(index, LOOK),
        }
    }

    fn stored(&mut self, index: usize, sent: Duration, record: OwnerRecord, done: Option<bool>) {
        let now = self.clock(index);
        let bug = self.bug;
        let process = &mut self.processes[index];
        if done != Some(true) {
            // An opening that was told in a lost beat is told again.
            if let Role::Owner { told, .. } = &mut process.role {
                *told = false;
            }
            if let (Role::Candidate(candidate), None) = (&mut process.role, done)
                && bug != Bug::ForgetTried
            {
                candidate.tried(record.epoch, sent);
            }
            return self.look_again(index, LOOK);
        }
        match &mut process.role {
            Role::Candidate(_) => self.own(index, sent, &record),
            Role::Owner { .. } if record.node.is_none() => self.restart(index),
            Role::Owner { tenure, stage, .. } => {
                tenure.beaten(if bug == Bug::LeaseFromAnswer { now } else { sent });
                let epoch = tenure.epoch();
                if *stage == Stage::Fenced && record.unfenced.is_empty() {
                    *stage = Stage::Opening;
                    // An opening takes a while: the log is read.
                    let after = self.random.below(300);
                    self.send(index, after, Message::Open { epoch });
                }
                self.look_again(index, BEAT);
            }
        }
    }

    fn own(&mut self, index: usize, sent: Duration, record: &OwnerRecord) {
        let process = &mut self.processes[index];
        let tenure = Tenure::new(process.node.clone(), record.epoch, sent);
        let stage = match self.bug {
            Bug::FenceAfterOpen => Stage::Opening,
            _ => Stage::Fencing,
        };
        process.role = Role::Owner { tenure, stage, told: false, closing: false };
        // A fence takes a while. A process that dies meanwhile has fenced nothing.
        let after = self.random.below(1000);
        let first = match self.bug {
            Bug::FenceAfterOpen => Message::Opened { epoch: record.epoch },
            _ => Message::Connected { record: record.clone() },
        };
        self.send(index, after, first);
        self.look_again(index, BEAT);
    }

    fn look_again(&mut self, index: usize, after: Duration) {
        let process = &self.processes[index];
        let after = after.as_millis() as u64 + process.stopped.saturating_sub(self.now);
        let before = self.now;
        self.now += after;
        let sent = self.clock(index);
        self.now = before;
        let way = self.way();
        match way {
            Some(way) => self.send(index, after + way, Message::Look { sent }),
            None => {
                let lost = PATIENCE.as_millis() as u64;
                self.send(index, after + lost, Message::Looked { sent, record: None });
            }
        }
    }

    /// The process ends and its service manager starts it again.
    fn restart(&mut self, index: usize) {
        self.processes[index] = self.process(index);
        self.begin(index);
    }
}

/// Schedules in one run of the tests.
const SEEDS: u64 = 3000;

/// Runs seeds until one fails. Returns openings, answers, and commands.
fn run(seeds: std::ops::Range<u64>, bug: Bug) -> ([u64; 3], Option<String>) {
    let mut counts = [0; 3];
    for seed in seeds {
        let mut world = World::new(seed, bug);
        if let Err(violation) = world.run() {
            return (counts, Some(format!("seed {seed}: {violation}")));
        }
        let World { openings, answers, commands, .. } = world;
        counts.iter_mut().zip([openings, answers, commands]).for_each(|(sum, one)| *sum += one);
    }
    (counts, None)
}

#[test]
fn an_owner_at_a_time() {
    let ([openings, answers, commands], violation) = run(0..SEEDS, Bug::None);
    assert_eq!(violation, None);
    println!("{openings} openings, {answers} answers, {commands} handovers and evictions");
    assert!(openings > 4 * SEEDS && answers > 100 * SEEDS && commands > SEEDS / 2);
}

/// By hand, with `--release -- --ignored`: it takes minutes.
#[test]
#[ignore]
fn an_owner_at_a_time_in_many_schedules() {
    assert_eq!(run(SEEDS..SEEDS + 100_000, Bug::None).1, None);
}

#[test]
fn planted_bugs_are_found() {
    for bug in [
        Bug::NoFence,
        Bug::FenceAfterOpen,
        Bug::FenceLastOnly,
        Bug::ForgetUnfenced,
        Bug::ForgetBeforeFence,
        Bug::LeaseFromAnswer,
        Bug::LookExtends,
        Bug::Hasty,
        Bug::EarlySight,
        Bug::HastyAfterEviction,
        Bug::ForgetTried,
        Bug::Blind,
        Bug::ReleaseEarly,
        Bug::NeverDeposed,
        Bug::Patient,
    ] {
        let (.., violation) = run(0..SEEDS, bug);
        assert!(violation.is_some(), "{bug:?} is not found");
        println!("{bug:?}: {}", violation.unwrap_or_default());
    }
}
