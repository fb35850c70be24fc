//! [`TcpFleet`]: servers at the other end of TCP connections.
//!
//! Every server has a few connections, and a caller has one of each server that it talks to for
//! itself while it does: it sends to all, then receives from all. So as many callers work side by
//! side as there are connections, without a thread of ours. Connections are taken in the order of
//! the servers, so nobody waits in a circle.
//!
//! A new connection is used only if the server shows its proof first. A server without
//! "multi-connection" gets a single one, on which flushes then cover everything.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::handshake::Endpoint;
use super::link::{Ask, Link, LinkError, Question};
use crate::array::{Call, Contact, Fleet, Outcome};
use crate::protocol::wire;

/// Questions on one connection before their answers are taken: what is on its way in both
/// directions stays small.
const QUESTIONS_MAX: usize = 64;
/// After a failure a server is asked again at the earliest after this time: nobody waits for it
/// with every call.
const PAUSE: Duration = Duration::from_millis(200);
/// Connections that nobody has used for so long are looked at before they are.
const IDLE: Duration = Duration::from_millis(100);

/// How connections are used.
#[derive(Debug, Clone)]
pub struct FleetOptions {
    /// Most connections to a server.
    pub connections: usize,
    /// For a connection to be made.
    pub patience: Duration,
    /// Where servers are opened under a token: set when one says, or somebody else knows, that
    /// there is a newer one.
    pub fenced: Option<Arc<AtomicBool>>,
}

impl Default for FleetOptions {
    fn default() -> FleetOptions {
        FleetOptions { connections: 4, patience: Duration::from_millis(400), fenced: None }
    }
}

struct Pool {
    endpoint: Arc<Endpoint>,
    idle: Vec<Link>,
    /// Connections that callers have.
    out: usize,
    /// A server without "multi-connection" has one.
    most: usize,
    proof: Option<(u64, Vec<u8>)>,
    breaks: u64,
    /// Grows when all connections are given up; those that are out then do not come back.
    generation: u64,
    /// When a caller gave a connection back last.
    used: Instant,
    failed: Option<(Instant, Outcome)>,
}

impl Pool {
    /// All connections are given up, and what was known of the server.
    fn give_up_all(&mut self) {
        self.idle.clear();
        self.generation += 1;
        self.proof = None;
        self.failed = None;
    }

    /// Connections that have broken so far. Where nobody has used them for a while they are looked
    /// at first: a server that has started again is found before anything is sent over one of them,
    /// and not by what is then lost.
    fn breaks(&mut self) -> u64 {
        if self.used.elapsed() > IDLE {
            self.used = Instant::now();
            if self.idle.iter().any(Link::has_ended) {
                self.broke();
            }
        }
        self.breaks
    }

    /// A connection broke: the others to the same server are given up with it.
    fn broke(&mut self) {
        self.idle.clear();
        self.generation += 1;
        self.breaks += 1;
    }
}

struct Server {
    pool: Mutex<Pool>,
    returned: Condvar,
}

/// Servers at the other end of TCP connections.
pub struct TcpFleet {
    servers: Vec<Server>,
    options: FleetOptions,
}

/// A connection that a caller has.
struct Taken {
    link: Link,
    generation: u64,
}

impl TcpFleet {
    /// Servers at these places. Nobody is asked yet.
    pub fn new(endpoints: Vec<Endpoint>, options: FleetOptions) -> TcpFleet {
        let servers = endpoints
            .into_iter()
            .map(|endpoint| Server {
                pool: Mutex::new(Pool {
                    endpoint: Arc::new(endpoint),
                    idle: Vec::new(),
                    out: 0,
                    most: options.connections.max(1),
                    proof: None,
                    breaks: 0,
                    generation: 0,
                    used: Instant::now(),
                    failed: None,
                }),
                returned: Condvar::new(),
            })
            .collect();
        TcpFleet { servers, options }
    }

    /// Where a server is.
    pub fn address(&self, server: usize) -> Option<String> {
        self.servers.get(server).map(|server| server.pool.lock().endpoint.address.clone())
    }

    /// From now on a server is at another place. Only for one that nothing is expected of: a lost
    /// member's.
    pub fn move_to(&self, server: usize, address: &str) {
        let Some(server) = self.servers.get(server) else { return };
        let mut pool = server.pool.lock();
        if pool.endpoint.address != address {
            pool.endpoint =
                Arc::new(Endpoint { address: address.to_owned(), ..(*pool.endpoint).clone() });
            pool.give_up_all();
        }
    }

    fn take(&self, server: &Server, deadline: Instant) -> Result<Taken, Outcome> {
        let (endpoint, proof, generation) = {
            let mut pool = server.pool.lock();
            loop {
                if let Some(link) = pool.idle.pop() {
                    pool.out += 1;
                    return Ok(Taken { link, generation: pool.generation });
                }
                if let Some((since, outcome)) = pool.failed
                    && since.elapsed() < PAUSE
                {
                    return Err(outcome);
                }
                if pool.out < pool.most {
                    pool.out += 1;
                    break (Arc::clone(&pool.endpoint), pool.proof.clone(), pool.generation);
                }
                if server.returned.wait_until(&mut pool, deadline).timed_out() {
                    return Err(Outcome::Late);
                }
            }
        };
        let made = Link::connect(&endpoint, self.options.patience)
            .map_err(|error| outcome_of(&error))
            .and_then(|link| self.prove(link, proof.as_ref()));
        let mut pool = server.pool.lock();
        match made {
            Ok(link) => {
                pool.failed = None;
                Ok(Taken { link, generation })
            }
            Err(outcome) => {
                pool.out -= 1;
                pool.failed = Some((Instant::now(), outcome));
                server.returned.notify_all();
                Err(outcome)
            }
        }
    }

    /// Has the server show that it is the one it was.
    fn prove(&self, mut link: Link, proof: Option<&(u64, Vec<u8>)>) -> Result<Link, Outcome> {
        let Some((offset, expected)) = proof else { return Ok(link) };
        let mut found = vec![0; expected.len()];
        let mut questions = [Question::new(*offset, Ask::Read(&mut found))];
        link.send(&questions, self.options.patience)
            .and_then(|()| link.receive(&mut questions, self.options.patience))
            .map_err(|error| outcome_of(&error))?;
        let answered = questions[0].answer == Some(Ok(()));
        match answered && found == *expected {
            true => Ok(link),
            false => Err(Outcome::Stranger),
        }
    }

    fn give_back(&self, server: &Server, taken: Taken) {
        let mut pool = server.pool.lock();
        pool.out = pool.out.saturating_sub(1);
        if taken.generation == pool.generation {
            pool.idle.push(taken.link);
            pool.used = Instant::now();
        }
        server.returned.notify_one();
    }

    /// A connection is of no more use.
    fn give_up(&self, server: &Server, outcome: Outcome) {
        let mut pool = server.pool.lock();
        pool.out = pool.out.saturating_sub(1);
        if outcome != Outcome::Late {
            pool.broke();
        }
        server.returned.notify_one();
    }

    /// One part of a round: at most [`QUESTIONS_MAX`] calls for each server.
    fn part(&self, groups: &mut [(usize, Vec<&mut Call<'_>>)], deadline: Instant) {
        let left =
            || deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let servers: Vec<usize> = groups.iter().map(|(server, _)| *server).collect();
        let mut sent: Vec<Option<(Taken, Vec<Question<'_>>)>> = Vec::new();
        let mut outcomes: Vec<Vec<Outcome>> = Vec::new();
        for (server, calls) in groups.iter_mut() {
            let lost = |outcome| vec![outcome; calls.len()];
            let Some(server) = self.servers.get(*server) else {
                outcomes.push(lost(Outcome::Lost));
                sent.push(None);
                continue;
            };
            let mut taken = match self.take(server, deadline) {
                Ok(taken) => taken,
                Err(outcome) => {
                    outcomes.push(lost(outcome));
                    sent.push(None);
                    continue;
                }
            };
            let info = taken.link.info();
            let questions: Vec<Question<'_>> = calls
                .iter_mut()
                .map(|call| {
                    let ask = match &mut call.ask {
                        Ask::Read(buffer) => Ask::Read(buffer),
                        Ask::Write(pieces, durable) => {
                            Ask::Write(pieces, *durable && info.has(wire::TRANSMIT_SEND_FUA))
                        }
                        Ask::Flush => Ask::Flush,
                        Ask::Trim(length) => Ask::Trim(*length),
                    };
                    Question::new(call.offset, ask)
                })
                .collect();
            match taken.link.send(&questions, left()) {
                Ok(()) => {
                    outcomes.push(Vec::new());
                    sent.push(Some((taken, questions)));
                }
                Err(error) => {
                    let outcome = outcome_of(&error);
                    outcomes.push(vec![outcome; questions.len()]);
                    self.give_up(server, outcome);
                    sent.push(None);
                }
            }
        }
        for ((server, sent), outcome) in servers.iter().zip(sent).zip(&mut outcomes) {
            let Some((mut taken, mut questions)) = sent else { continue };
            let received = taken.link.receive(&mut questions, left());
            let broken = received.as_ref().err().map(outcome_of);
            *outcome = questions
                .iter()
                .map(|question| match question.answer {
                    Some(Ok(())) => Outcome::Done,
                    Some(Err(number)) => {
                        if number == wire::ESHUTDOWN
                            && let Some(fenced) = &self.options.fenced
                        {
                            fenced.store(true, Ordering::Relaxed);
                        }
                        Outcome::Refused(number)
                    }
                    None => broken.unwrap_or(Outcome::Lost),
                })
                .collect();
            let Some(server) = self.servers.get(*server) else { continue };
            match broken {
                None => self.give_back(server, taken),
                Some(broken) => self.give_up(server, broken),
            }
        }
        for ((_, calls), outcomes) in groups.iter_mut().zip(outcomes) {
            for (call, outcome) in calls.iter_mut().zip(outcomes) {
                call.outcome = outcome;
            }
        }
    }
}

fn outcome_of(error: &LinkError) -> Outcome {
    match error {
        LinkError::Io(error)
            if matches!(
                error.kind(),
                std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
            ) =>
        {
            Outcome::Late
        }
        _ => Outcome::Lost,
    }
}

impl Fleet for TcpFleet {
    fn servers(&self) -> usize {
        self.servers.len()
    }

    fn contact(&self, server: usize) -> Result<Contact, String> {
        let server = self.servers.get(server).ok_or("there is no such server")?;
        let endpoint = Arc::clone(&server.pool.lock().endpoint);
        let connected = Link::connect(&endpoint, self.options.patience);
        let mut pool = server.pool.lock();
        pool.give_up_all();
        let link = connected.map_err(|error| format!("{}: {error}", endpoint.address))?;
        let info = link.info();
        if info.has(wire::TRANSMIT_READ_ONLY) {
            return Err(format!("{}: is read-only", endpoint.address));
        }
        let many = info.has(wire::TRANSMIT_CAN_MULTI_CONN);
        pool.most = if many { self.options.connections.max(1) } else { 1 };
        let contact = Contact {
            size: info.size,
            block_min: info.block_min,
            fua: info.has(wire::TRANSMIT_SEND_FUA),
            flush: info.has(wire::TRANSMIT_SEND_FLUSH),
            trim: info.has(wire::TRANSMIT_SEND_TRIM),
        };
        if pool.out < pool.most {
            pool.idle.push(link);
        }
        server.returned.notify_all();
        Ok(contact)
    }

    fn set_proof(&self, server: usize, offset: u64, bytes: &[u8]) {
        if let Some(server) = self.servers.get(server) {
            server.pool.lock().proof = Some((offset, bytes.to_vec()));
        }
    }

    fn round(&self, calls: &mut [Call<'_>], patience_ms: u64) {
        // By server, in order; reads and others apart.
        let mut order: Vec<&mut Call<'_>> = calls.iter_mut().collect();
        order.sort_by_key(|call| (call.server, !matches!(call.ask, Ask::Read(_))));
        let mut groups: Vec<(usize, bool, Vec<&mut Call<'_>>)> = Vec::new();
        for call in order {
            let read = matches!(call.ask, Ask::Read(_));
            match groups.last_mut() {
                Some((server, reads, calls))
                    if *server == call.server && *reads == read && calls.len() < QUESTIONS_MAX =>
                {
                    calls.push(call);
                }
                _ => groups.push((call.server, read, vec![call])),
            }
        }
        // Of each server one group at a time, so that a caller never has two connections of one.
        while !groups.is_empty() {
            let deadline = Instant::now() + Duration::from_millis(patience_ms);
            let mut now: Vec<(usize, Vec<&mut Call<'_>>)> = Vec::new();
            let mut later = Vec::new();
            for (server, reads, calls) in groups {
                match now.last() {
                    Some((last, _)) if *last == server => later.push((server, reads, calls)),
                    _ => now.push((server, calls)),
                }
            }
            self.part(&mut now, deadline);
            groups = later;
        }
    }

    fn fenced(&self) -> bool {
        self.options.fenced.as_ref().is_some_and(|fenced| fenced.load(Ordering::Relaxed))
    }

    fn breaks(&self, server: usize) -> u64 {
        self.servers.get(server).map_or(0, |server| server.pool.lock().breaks())
    }

    fn pause(&self, ms: u64) {
        std::thread::sleep(Duration::from_millis(ms));
    }
}
