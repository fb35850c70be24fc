//! Servers and a network in one process, driven by a seed. Requests are dropped, answered late,
//! carried out late or twice. Connections break. Servers die and restart empty or without unflushed
//! data, lie, or are unreachable. The client dies in the middle of a round.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use steadfast_media::sim::Survival;
use steadfast_media::{Medium, MemoryMedium, Random, SimMedium, SimOptions};
use steadfast_remote::array::{Call, Contact, Fleet, Outcome, Witness};
use steadfast_remote::client::Ask;

/// Requests of a dead client arrive within this time after the next open, or never.
pub const LATE_MS: u64 = 2000;

/// Present fault of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Trouble {
    #[default]
    None,
    /// The server does not answer.
    Down,
    /// No request arrives.
    Partitioned,
    /// One request in four fails in some way.
    Noisy,
    /// One read in four returns a wrong byte.
    Lying,
}

/// A late request.
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
    /// The incarnation that the client is connected to.
    connected: Option<u64>,
    proof: Option<(u64, Vec<u8>)>,
    breaks: u64,
    /// Writes and trims that arrive after their time limit.
    delayed: Vec<(u64, Late)>,
    fua: bool,
    trim: bool,
}

struct World {
    servers: Vec<Server>,
    random: Random,
    /// Calls of all clients.
    calls: u64,
    /// Calls until the client dies.
    dies_in: Option<u64>,
    /// Whether requests of a dying client are kept until a test delivers them.
    hold: bool,
    held: Vec<(usize, u64, Late)>,
    /// Keep one write from this offset on, after this many others: it is not answered and is
    /// delivered later.
    keeps: Option<(u64, u64)>,
    /// These servers, as bits, do not answer this many calls.
    stall: (u32, u64, bool),
    dead: bool,
    /// How often clients have waited, and for how many milliseconds.
    pauses: (u64, u64),
    /// Writes, trims and flushes that clients have requested.
    changes: u64,
}

/// The servers, for the engine and for the test.
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

    /// Restarts a server empty.
    pub fn restart_empty(&self, server: usize) {
        let mut world = self.world.lock();
        let server = &mut world.servers[server];
        server.disk = disk(self.size);
        server.incarnation += 1;
        server.delayed.clear();
        server.trouble = Trouble::None;
    }

    /// Restarts a server with its flushed data and some of the rest.
    pub fn restart_flushed(&self, server: usize) {
        let mut world = self.world.lock();
        let seed = world.random.bits();
        let server = &mut world.servers[server];
        server.disk.restart(Survival::Seeded(seed));
        server.incarnation += 1;
        server.delayed.clear();
        server.trouble = Trouble::None;
    }

    /// Lets all servers support durable writes for later contacts.
    pub fn write_durably(&self) {
        self.world.lock().servers.iter_mut().for_each(|server| server.fua = true);
    }

    /// A copy of the present contents of a server, to restore later.
    pub fn image(&self, server: usize) -> MemoryMedium {
        self.world.lock().servers[server].disk.power_cut_with(Survival::First(usize::MAX))
    }

    /// Flips a bit in each occurrence of these bytes on a server. Returns their number.
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

    /// Flips a bit in every sector of this range that is neither zeros nor the header of a record.
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

    /// Restarts a server with an old state.
    pub fn restart_with(&self, server: usize, image: &MemoryMedium) {
        let mut world = self.world.lock();
        let server = &mut world.servers[server];
        server.disk = SimMedium::on(image, SimOptions::disk(self.size));
        server.incarnation += 1;
        server.delayed.clear();
        server.trouble = Trouble::None;
    }

    /// Makes the client die after this many calls.
    pub fn arm_death(&self, calls: u64) {
        self.world.lock().dies_in = Some(calls);
    }

    /// Restarts a server with only its flushed data.
    pub fn restart_without_unflushed(&self, server: usize) {
        let mut world = self.world.lock();
        let server = &mut world.servers[server];
        server.disk.restart(Survival::Flushed);
        server.incarnation += 1;
    }

    /// Sets whether requests of a dying client are kept for later.
    pub fn hold(&self, hold: bool) {
        self.world.lock().hold = hold;
    }

    /// Keeps the write after this many others from this offset on. It is not answered, and arrives
    /// with [`deliver`](Self::deliver).
    pub fn keep_write(&self, offset: u64, writes: u64) {
        self.world.lock().keeps = Some((offset, writes));
    }

    /// These servers, as bits, do not answer this many calls; the calls are carried out or not.
    /// With `only_reads` this applies only to reads after the superblocks, so each server can still
    /// show its proof.
    pub fn stall(&self, servers: u32, calls: u64, only_reads: bool) {
        self.world.lock().stall = (servers, calls, only_reads);
    }

    /// Delivers all kept requests.
    pub fn deliver(&self) {
        let mut world = self.world.lock();
        for (server, offset, late) in std::mem::take(&mut world.held) {
            world.servers[server].arrive(offset, &late);
        }
    }

    /// How often clients have waited, and for how many milliseconds.
    pub fn pauses(&self) -> (u64, u64) {
        self.world.lock().pauses
    }

    /// Starts a new client.
    pub fn revive_client(&self) {
        let mut world = self.world.lock();
        (world.dead, world.dies_in) = (false, None);
        for server in &mut world.servers {
            server.connected = None;
            server.proof = None;
        }
    }

    /// How many changes clients have requested.
    pub fn changes(&self) -> u64 {
        self.world.lock().changes
    }

    pub fn is_dead(&self) -> bool {
        self.world.lock().dead
    }
}

impl Server {
    /// Carries out a request.
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
        // Delayed writes arrive soon or never. A server cannot tell a reused segment from its
        // earlier use.
        for (offset, late) in std::mem::take(&mut server.delayed) {
            match random.below(4) {
                0 => server.arrive(offset, &late),
                1 => {}
                _ => server.delayed.push((offset, late)),
            }
        }
        if self.dead {
            // In flight when the client died; later ones were never sent.
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
        let segments = matches!(call.ask, Ask::Read(_)) && call.offset >= 64 << 10;
        if *stalled & 1 << call.server != 0 && *left > 0 && (segments || !*only_reads) {
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
            // The client is dead and receives no answer.
            calls.iter_mut().for_each(|call| call.outcome = Outcome::Lost);
            world.servers.iter_mut().for_each(|server| server.connected = None);
        }
    }

    fn breaks(&self, server: usize) -> u64 {
        self.world.lock().servers[server].breaks
    }

    /// All kept requests arrive, in any order, or some never do.
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
    /// It refuses every note.
    away: AtomicBool,
}

impl Notebook {
    /// A clock that continues between clients.
    pub fn now(&self) -> u64 {
        // Two clients that are unaware of each other get different stamps.
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
            return Err("another client has opened the array".to_owned());
        }
        orders.insert(*uuid, order);
        Ok(())
    }

    fn newest(&self, uuid: &[u8; 16]) -> Option<(u64, u64)> {
        self.orders.lock().get(uuid).copied()
    }
}
