//! Servers and a network in one process, driven by a seed: requests are dropped, answered too late,
//! carried out after their time or twice, connections break, servers die and come back empty or
//! without what they had not flushed, lie, or cannot be reached; and the client dies in the middle
//! of a round.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use steadfast_media::sim::Survival;
use steadfast_media::{Medium, MemoryMedium, SimMedium, SimOptions};
use steadfast_remote::array::{Call, Contact, Fleet, Outcome, Witness};
use steadfast_remote::client::Ask;

/// Numbers from a seed (xorshift*).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// What a dead client has sent arrives within so many milliseconds of the next opening, or never.
pub const LATE_MS: u64 = 2000;

/// What is wrong with a server at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Trouble {
    #[default]
    None,
    /// Nobody answers.
    Down,
    /// Nothing arrives.
    Partitioned,
    /// One request in four goes wrong in some way.
    Noisy,
    /// One read in four returns a wrong byte.
    Lying,
}

/// What arrives late.
enum Late {
    Write(Vec<u8>),
    Trim(u64),
}

impl Late {
    fn of(ask: &Ask<'_>) -> Option<Late> {
        match ask {
            Ask::Write(pieces, _) => Some(Late::Write(pieces.concat())),
            Ask::Trim(length) => Some(Late::Trim(*length)),
            Ask::Read(_) | Ask::Flush => None,
        }
    }
}

struct Server {
    disk: SimMedium,
    trouble: Trouble,
    /// How often it was started.
    incarnation: u64,
    /// The one that the client is connected to.
    connected: Option<u64>,
    proof: Option<(u64, Vec<u8>)>,
    breaks: u64,
    /// Writes and trims that will arrive when nobody waits for them any more.
    delayed: Vec<(u64, Late)>,
    fua: bool,
    trim: bool,
}

struct World {
    servers: Vec<Server>,
    random: Random,
    /// Of all clients.
    calls: u64,
    /// Calls until the client dies.
    dies_in: Option<u64>,
    /// What a client sends when it dies is kept until somebody says so.
    hold: bool,
    held: Vec<(usize, u64, Late)>,
    /// After so many writes from this offset on one is not answered, and is kept as well.
    keeps: Option<(u64, u64)>,
    /// The servers among these, as bits, do not answer, for so many calls to them.
    stall: (u32, u64, bool),
    dead: bool,
    /// How often clients have let time pass, and how many milliseconds.
    pauses: (u64, u64),
    /// Writes, trims and flushes that clients have asked for.
    changes: u64,
}

/// The servers, as the engine and as the test see them.
pub struct SimFleet {
    size: u64,
    world: Mutex<World>,
}

fn disk(size: u64) -> SimMedium {
    SimMedium::on(&MemoryMedium::new(size, 512).unwrap(), SimOptions::disk(size))
}

impl SimFleet {
    pub fn new(servers: usize, size: u64, seed: u64) -> SimFleet {
        let mut random = Random::new(seed);
        let servers = (0..servers)
            .map(|_| Server {
                disk: disk(size),
                trouble: Trouble::None,
                incarnation: 1,
                connected: None,
                proof: None,
                breaks: 0,
                delayed: Vec::new(),
                fua: random.one_in(2),
                trim: random.one_in(2),
            })
            .collect();
        SimFleet {
            size,
            world: Mutex::new(World {
                servers,
                random,
                calls: 0,
                dies_in: None,
                hold: false,
                held: Vec::new(),
                keeps: None,
                stall: (0, 0, false),
                dead: false,
                pauses: (0, 0),
                changes: 0,
            }),
        }
    }

    pub fn set_trouble(&self, server: usize, trouble: Trouble) {
        self.world.lock().servers[server].trouble = trouble;
    }

    pub fn trouble(&self, server: usize) -> Trouble {
        self.world.lock().servers[server].trouble
    }

    /// It is there again, with nothing.
    pub fn restart_empty(&self, server: usize) {
        let mut world = self.world.lock();
        let server = &mut world.servers[server];
        server.disk = disk(self.size);
        server.incarnation += 1;
        server.delayed.clear();
        server.trouble = Trouble::None;
    }

    /// It is there again, with what it had flushed and some of the rest.
    pub fn restart_flushed(&self, server: usize) {
        let mut world = self.world.lock();
        let seed = world.random.next();
        let server = &mut world.servers[server];
        server.disk.restart(Survival::Seeded(seed));
        server.incarnation += 1;
        server.delayed.clear();
        server.trouble = Trouble::None;
    }

    /// All servers can write durably from now on, for whoever asks them next.
    pub fn write_durably(&self) {
        self.world.lock().servers.iter_mut().for_each(|server| server.fua = true);
    }

    /// What a server holds now, to be put back later.
    pub fn image(&self, server: usize) -> MemoryMedium {
        self.world.lock().servers[server].disk.power_cut_with(Survival::First(usize::MAX))
    }

    /// Turns a bit in the bytes of a server wherever these are: in how many places.
    pub fn damage(&self, server: usize, sought: &[u8]) -> usize {
        let server = &mut self.world.lock().servers[server];
        let mut sector = [0; 512];
        let mut damaged = 0;
        for offset in (0..self.size).step_by(sector.len()) {
            server.disk.read(offset, &mut sector).unwrap();
            if sector.starts_with(sought) {
                sector[100] ^= 4;
                server.disk.write(offset, &sector).unwrap();
                damaged += 1;
            }
        }
        damaged
    }

    /// Turns a bit in every sector of a server there that is not zeros and no header of a record.
    pub fn scramble(&self, server: usize, place: std::ops::Range<u64>) {
        let server = &mut self.world.lock().servers[server];
        let mut sector = [0; 512];
        for offset in place.step_by(sector.len()) {
            server.disk.read(offset, &mut sector).unwrap();
            if !sector.starts_with(b"SfRr") && sector != [0; 512] {
                sector[100] ^= 4;
                server.disk.write(offset, &sector).unwrap();
            }
        }
    }

    /// It is there again, with an old state.
    pub fn restart_with(&self, server: usize, image: &MemoryMedium) {
        let mut world = self.world.lock();
        let server = &mut world.servers[server];
        server.disk = SimMedium::on(image, SimOptions::disk(self.size));
        server.incarnation += 1;
        server.delayed.clear();
        server.trouble = Trouble::None;
    }

    /// How many calls there were.
    pub fn calls(&self) -> u64 {
        self.world.lock().calls
    }

    /// The client dies after so many calls.
    pub fn arm_death(&self, calls: u64) {
        self.world.lock().dies_in = Some(calls);
    }

    /// It is there again, with what it had flushed and nothing else.
    pub fn restart_without_unflushed(&self, server: usize) {
        let mut world = self.world.lock();
        let server = &mut world.servers[server];
        server.disk.restart(Survival::Flushed);
        server.incarnation += 1;
    }

    /// From now on whether all that a client sends when it dies is kept for later.
    pub fn hold(&self, hold: bool) {
        self.world.lock().hold = hold;
    }

    /// The write after so many others behind this offset is not answered, and arrives when somebody
    /// says so.
    pub fn keep_write(&self, offset: u64, writes: u64) {
        self.world.lock().keeps = Some((offset, writes));
    }

    /// Servers of which a write is kept.
    pub fn kept(&self) -> Vec<usize> {
        self.world.lock().held.iter().map(|(server, ..)| *server).collect()
    }

    /// So many calls to these servers, as bits, are not answered; what they ask for is done or not.
    /// `only_reads`: of what is behind the superblocks, so that each of them can still show its
    /// own.
    pub fn stall(&self, servers: u32, calls: u64, only_reads: bool) {
        self.world.lock().stall = (servers, calls, only_reads);
    }

    /// All that was kept arrives.
    pub fn deliver(&self) {
        let mut world = self.world.lock();
        for (server, offset, late) in std::mem::take(&mut world.held) {
            world.servers[server].arrive(offset, &late);
        }
    }

    /// How often clients have let time pass, and how many milliseconds.
    pub fn pauses(&self) -> (u64, u64) {
        self.world.lock().pauses
    }

    /// A client is there again: a new one.
    pub fn revive_client(&self) {
        let mut world = self.world.lock();
        (world.dead, world.dies_in) = (false, None);
        for server in &mut world.servers {
            server.connected = None;
            server.proof = None;
        }
    }

    /// How often clients wanted to change something.
    pub fn changes(&self) -> u64 {
        self.world.lock().changes
    }

    pub fn is_dead(&self) -> bool {
        self.world.lock().dead
    }
}

impl Server {
    /// Does what is asked.
    fn execute(&mut self, offset: u64, ask: &mut Ask<'_>) -> Outcome {
        let result = match ask {
            Ask::Read(buffer) => self.disk.read(offset, buffer),
            Ask::Write(pieces, durable) => {
                let whole: Vec<u8> = pieces.concat();
                assert_eq!(whole.len() % 512, 0);
                match durable {
                    true => self.disk.write_fua(offset, &whole),
                    false => self.disk.write(offset, &whole),
                }
            }
            Ask::Flush => self.disk.flush(),
            Ask::Trim(length) => self.disk.discard(offset, *length),
        };
        match result {
            Ok(()) => Outcome::Done,
            Err(_) => Outcome::Refused(5),
        }
    }

    fn hold_back(&mut self, offset: u64, ask: &Ask<'_>) {
        self.delayed.extend(Late::of(ask).map(|late| (offset, late)));
    }

    fn arrive(&mut self, offset: u64, late: &Late) {
        let _ = match late {
            Late::Write(bytes) => self.disk.write(offset, bytes),
            Late::Trim(length) => self.disk.discard(offset, *length),
        };
    }
}

impl World {
    fn call(&mut self, call: &mut Call<'_>) -> Outcome {
        self.calls += 1;
        self.changes += u64::from(!matches!(call.ask, Ask::Read(_)));
        if let Some(left) = &mut self.dies_in {
            if *left == 0 {
                self.dead = true;
            } else {
                *left -= 1;
            }
        }
        let random = &mut self.random;
        let Some(server) = self.servers.get_mut(call.server) else { return Outcome::Lost };
        // Writes from before arrive, soon or never: nobody can tell a segment that is used again
        // from the one that a client had in mind a long time ago.
        for (offset, late) in std::mem::take(&mut server.delayed) {
            match random.below(4) {
                0 => server.arrive(offset, &late),
                1 => {}
                _ => server.delayed.push((offset, late)),
            }
        }
        if self.dead {
            // On its way when the client died; later ones were never sent.
            let reachable = !matches!(server.trouble, Trouble::Down | Trouble::Partitioned);
            if self.hold && reachable && server.connected == Some(server.incarnation) {
                self.held.extend(Late::of(&call.ask).map(|late| (call.server, call.offset, late)));
                return Outcome::Lost;
            }
            if random.one_in(2) && reachable && server.connected == Some(server.incarnation) {
                match random.one_in(4) {
                    true => server.hold_back(call.offset, &call.ask),
                    false => {
                        server.execute(call.offset, &mut call.ask);
                    }
                }
            }
            return Outcome::Lost;
        }
        let (stalled, left, only_reads) = &mut self.stall;
        let behind = matches!(call.ask, Ask::Read(_)) && call.offset >= 64 << 10;
        if *stalled & 1 << call.server != 0 && *left > 0 && (behind || !*only_reads) {
            *left -= 1;
            if random.one_in(2) {
                server.execute(call.offset, &mut call.ask);
            }
            return Outcome::Late;
        }
        if let (Some((from, left)), Ask::Write(..)) = (&mut self.keeps, &call.ask)
            && call.offset >= *from
        {
            if *left == 0 {
                self.keeps = None;
                self.held.extend(Late::of(&call.ask).map(|late| (call.server, call.offset, late)));
                return Outcome::Late;
            }
            *left -= 1;
        }
        match server.trouble {
            Trouble::Down => {
                if server.connected.take().is_some() {
                    server.breaks += 1;
                }
                return Outcome::Lost;
            }
            Trouble::Partitioned => return Outcome::Late,
            _ => {}
        }
        if server.connected != Some(server.incarnation) {
            if server.connected.is_some() {
                server.breaks += 1;
                server.connected = None;
                return Outcome::Lost;
            }
            if let Some((offset, bytes)) = &server.proof {
                let mut found = vec![0; bytes.len()];
                let read = server.disk.read(*offset, &mut found);
                if read.is_err() || found != *bytes {
                    return Outcome::Stranger;
                }
            }
            server.connected = Some(server.incarnation);
        }
        if server.trouble == Trouble::Noisy && random.one_in(4) {
            match random.below(4) {
                0 => {
                    server.hold_back(call.offset, &call.ask);
                    return Outcome::Late;
                }
                1 => {
                    server.execute(call.offset, &mut call.ask);
                    return Outcome::Late;
                }
                2 => {
                    server.execute(call.offset, &mut call.ask);
                }
                _ => {
                    server.connected = None;
                    server.breaks += 1;
                    return Outcome::Lost;
                }
            }
        }
        let outcome = server.execute(call.offset, &mut call.ask);
        if server.trouble == Trouble::Lying
            && random.one_in(4)
            && let Ask::Read(buffer) = &mut call.ask
            && !buffer.is_empty()
        {
            let at = random.below(buffer.len() as u64) as usize;
            buffer[at] ^= 1 << random.below(8);
        }
        outcome
    }
}

impl Fleet for SimFleet {
    fn servers(&self) -> usize {
        self.world.lock().servers.len()
    }

    fn contact(&self, server: usize) -> Result<Contact, String> {
        let mut world = self.world.lock();
        if world.dead {
            return Err("the client is dead".to_owned());
        }
        let server = &mut world.servers[server];
        if matches!(server.trouble, Trouble::Down | Trouble::Partitioned) {
            return Err("no answer".to_owned());
        }
        server.proof = None;
        server.connected = Some(server.incarnation);
        Ok(Contact {
            size: self.size,
            block_min: 1,
            fua: server.fua,
            flush: true,
            trim: server.trim,
        })
    }

    fn set_proof(&self, server: usize, offset: u64, bytes: &[u8]) {
        self.world.lock().servers[server].proof = Some((offset, bytes.to_vec()));
    }

    fn round(&self, calls: &mut [Call<'_>], _patience_ms: u64) {
        let mut world = self.world.lock();
        let mut order: Vec<usize> = (0..calls.len()).collect();
        for place in (1..order.len()).rev() {
            let other = world.random.below(place as u64 + 1) as usize;
            order.swap(place, other);
        }
        for place in order {
            let outcome = world.call(&mut calls[place]);
            calls[place].outcome = outcome;
        }
        if world.dead {
            // Nobody is there to hear of anything.
            calls.iter_mut().for_each(|call| call.outcome = Outcome::Lost);
            world.servers.iter_mut().for_each(|server| server.connected = None);
        }
    }

    fn breaks(&self, server: usize) -> u64 {
        self.world.lock().servers[server].breaks
    }

    /// All that is kept arrives, in any order, or some of it never does.
    fn pause(&self, ms: u64) {
        let mut world = self.world.lock();
        world.pauses = (world.pauses.0 + 1, world.pauses.1 + ms);
        if ms < LATE_MS || world.dead {
            return;
        }
        let all = world.random.one_in(2);
        let mut held = std::mem::take(&mut world.held);
        while !held.is_empty() {
            let next = world.random.below(held.len() as u64) as usize;
            let (server, offset, late) = held.swap_remove(next);
            if all || world.random.one_in(2) {
                world.servers[server].arrive(offset, &late);
            }
        }
    }
}

/// A witness that outlives the client.
#[derive(Debug, Default)]
pub struct Notebook {
    orders: Mutex<HashMap<[u8; 16], (u64, u64)>>,
    clock: AtomicU64,
    /// It takes nothing down.
    away: AtomicBool,
}

impl Notebook {
    /// A clock that goes on between two clients.
    pub fn now(&self) -> u64 {
        // Two that have not seen each other do not have the same stamp.
        1 + self.clock.fetch_add(1, Ordering::Relaxed)
    }

    pub fn set_away(&self, away: bool) {
        self.away.store(away, Ordering::Relaxed);
    }
}

impl Witness for Notebook {
    fn note(&self, uuid: &[u8; 16], order: (u64, u64)) -> Result<(), String> {
        if self.away.load(Ordering::Relaxed) {
            return Err("it is away".to_owned());
        }
        let mut orders = self.orders.lock();
        if orders.get(uuid).is_some_and(|noted| noted.0 > order.0) {
            return Err("somebody else has opened the array".to_owned());
        }
        orders.insert(*uuid, order);
        Ok(())
    }

    fn newest(&self, uuid: &[u8; 16]) -> Option<(u64, u64)> {
        self.orders.lock().get(uuid).copied()
    }
}
