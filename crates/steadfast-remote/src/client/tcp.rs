//! [`TcpFleet`]: servers reached over TCP.
//!
//! Every server has a few connections. For one round a caller takes one connection of each server
//! that it needs, sends to all, and then receives from all. So as many callers run in parallel as
//! there are connections, without extra threads. Connections are taken in the order of the servers,
//! so callers never deadlock.
//!
//! A new connection is used only after the server has shown its proof. A server without
//! "multi-connection" gets a single connection, so its flushes cover everything.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::error::LinkError;
use super::handshake::Endpoint;
use super::link::{Ask, Link, Question};
use crate::array::{Call, Contact, Fleet, Outcome};
use crate::protocol::wire;

/// Most questions on one connection before their answers are read: bounds the data in flight in
/// both directions.
const QUESTIONS_MAX: usize = 64;
/// Time after a failure before a server is asked again, so that not every call waits for it.
const PAUSE: Duration = Duration::from_millis(200);
/// Connections that were idle for this long are checked before use.
const IDLE: Duration = Duration::from_millis(100);

/// Options of connections.
#[derive(Debug, Clone)]
pub struct FleetOptions {
    /// Most connections to a server.
    pub connections: usize,
    /// Time limit to make a connection.
    pub patience: Duration,
    /// Set once a server or etcd reports a newer token than the one of this client. Used only if
    /// servers are opened under a token.
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
    /// Connections that callers hold.
    out: usize,
    /// Most connections; 1 for a server without "multi-connection".
    most: usize,
    proof: Option<(u64, Vec<u8>)>,
    breaks: u64,
    /// Grows when all connections are dropped; connections held by callers are then not reused.
    generation: u64,
    /// When a caller last returned a connection.
    used: Instant,
    failed: Option<(Instant, Outcome)>,
}

impl Pool {
    /// Drops all connections, and everything known about the server.
    fn give_up_all(&mut self) {
        self.idle.clear();
        self.generation += 1;
        self.proof = None;
        self.failed = None;
    }

    /// Broken connections so far. Idle connections are checked first. So a restarted server is
    /// noticed before a request is sent to it, and not by the loss of that request.
    fn breaks(&mut self) -> u64 {
        if self.used.elapsed() > IDLE {
            self.used = Instant::now();
            if self.idle.iter().any(Link::has_ended) {
                self.broke();
            }
        }
        self.breaks
    }

    /// A connection broke: drops the other connections to this server.
    fn broke(&mut self) {
        self.idle.clear();
        self.generation += 1;
        self.breaks += 1;
    }
}

struct ServerConnections {
    pool: Mutex<Pool>,
    returned: Condvar,
}

/// Servers reached over TCP.
pub struct TcpFleet {
    servers: Vec<ServerConnections>,
    options: FleetOptions,
}

/// A connection held by a caller.
struct Taken {
    link: Link,
    generation: u64,
}

impl TcpFleet {
    /// Servers at these addresses. No connection is made yet.
    pub fn new(endpoints: Vec<Endpoint>, options: FleetOptions) -> TcpFleet {
        let servers = endpoints
            .into_iter()
            .map(|endpoint| ServerConnections {
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

    /// Address of a server.
    pub fn address(&self, server: usize) -> Option<String> {
        self.servers.get(server).map(|server| server.pool.lock().endpoint.address.clone())
    }

    /// Changes the address of a server. Allowed only for the server of a lost member, which holds
    /// no valid data.
    pub fn move_to(&self, server: usize, address: &str) {
        let Some(server) = self.servers.get(server) else { return };
        let mut pool = server.pool.lock();
        if pool.endpoint.address != address {
            pool.endpoint =
                Arc::new(Endpoint { address: address.to_owned(), ..(*pool.endpoint).clone() });
            pool.give_up_all();
        }
    }

    fn take(&self, server: &ServerConnections, deadline: Instant) -> Result<Taken, Outcome> {
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

    /// Makes the server prove that it is the same one as before.
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

    fn give_back(&self, server: &ServerConnections, taken: Taken) {
        let mut pool = server.pool.lock();
        pool.out = pool.out.saturating_sub(1);
        if taken.generation == pool.generation {
            pool.idle.push(taken.link);
            pool.used = Instant::now();
        }
        server.returned.notify_one();
    }

    /// Drops an unusable connection.
    fn give_up(&self, server: &ServerConnections, outcome: Outcome) {
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
        // Grouped by server, with reads separate from other calls.
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
        // One group of each server at a time, so a caller never holds two connections to one
        // server.
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
