//! Owners that die, or hand over, again and again while two nodes work. The channels and sessions
//! are real; the volume is a list of what was executed. Each request must be in it once if it was
//! answered, and at most once if it has failed.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use steadfast::volume::{Delta, Place, Reached};
use zerocopy::IntoBytes;

use super::channel::{Channel, since_boot};
use super::collector::{Brought, inherited};
use super::deltas::{Changes, KeptChanges};
use super::executions::{Executions, Inherited};
use super::frame::{AnswerFrame, Progress, Told};
use super::guest::Guest;
use super::holdings::Holdings;
use super::link::{Authority, Link, Standing};
use super::session::{PeerNode, PeerSession};
use crate::abi::input::InHeader;
use crate::abi::opcode;
use crate::abi::output::AttrOut;
use crate::buffer::AnswerBuffer;
use crate::errno::Errno;
use crate::executing::{self, Ending};
use crate::filesystem::recall::{RecalledNode, Recaller};
use crate::init::Agreement;
use crate::request::Request;
use crate::service::{Answer, Later, Outcome, Return, Service};

const NODES: u64 = 2;
/// Programs of each node.
const PROGRAMS: u64 = 3;
const TAKEOVERS: u64 = 120;

/// Numbers that look random, and are the same for the same seed.
fn draw(seed: &AtomicU64, below: u64) -> u64 {
    let number = seed.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::SeqCst);
    let mixed = (number ^ number >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ mixed >> 29) % below
}

fn pause(seed: &AtomicU64, most: u64) {
    std::thread::sleep(Duration::from_micros(draw(seed, most)));
}

/// The volume of one owner: the requests that are in it, one for each batch.
struct Owner {
    executed: Mutex<Vec<u64>>,
    seed: AtomicU64,
}

impl Service for Owner {
    fn serve(&self, _: Later<'_>, request: &Request<'_>, out: &mut AnswerBuffer) -> Outcome {
        pause(&self.seed, 100);
        let asked = u64::from_ne_bytes(request.body[..8].try_into().unwrap());
        {
            let mut executed = self.executed.lock().unwrap();
            executed.push(asked);
            executing::batch(executed.len() as u64);
        }
        if draw(&self.seed, 3) == 0 {
            pause(&self.seed, 300);
        }
        out.put(&asked);
        executing::ended(request, Ok(Answer::Ready), out.filled());
        pause(&self.seed, 300);
        Ok(Answer::Ready)
    }
}

impl Guest for Owner {
    fn depart(&self) {}

    fn reached_by(&self, _: Arc<dyn Recaller>) {}

    fn end_locks(&self, _: &Request<'_>) {}

    fn changed_directory(&self, _: &Request<'_>) -> Option<AttrOut> {
        None
    }

    fn progress(&self) -> Progress {
        Progress { accepted: self.executed.lock().unwrap().len() as u64, durable: 0 }
    }

    fn tag(&self) -> u16 {
        1
    }

    fn changes(&self, seen: u64) -> Changes {
        let sequence = self.executed.lock().unwrap().len() as u64;
        let (durable, sealed, payload) = (Place::default(), Place::default(), vec![1]);
        match sequence == seen {
            true => Changes::Same,
            false => Changes::New(Delta {
                begins_at: seen,
                sequence,
                durable_sequence: 0,
                durable,
                sealed,
                payload,
            }),
        }
    }

    fn set_point(&self) {}

    fn now(&self, node: RecalledNode) -> RecalledNode {
        node
    }

    fn answer_again(
        &self,
        request: &Request<'_>,
        ending: Ending,
        out: &mut AnswerBuffer,
    ) -> Outcome {
        assert_eq!(request.body[..8], ending.detail.to_ne_bytes(), "of another request");
        out.put(&ending.detail);
        Ok(Answer::Ready)
    }
}

/// One direction of a connection.
struct Wire(Sender<Vec<u8>>);

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let sent = self.0.send(bytes.to_vec());
        sent.map(|()| bytes.len()).map_err(|_| std::io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

struct Line {
    received: Receiver<Vec<u8>>,
    rest: Vec<u8>,
    broken: Arc<AtomicBool>,
}

impl Read for Line {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        while self.rest.is_empty() {
            match self.received.recv_timeout(Duration::from_millis(1)) {
                Ok(rest) => self.rest = rest,
                Err(_) if self.broken.load(Ordering::SeqCst) => return Ok(0),
                Err(_) => {}
            }
        }
        let count = bytes.len().min(self.rest.len());
        bytes[..count].copy_from_slice(&self.rest[..count]);
        self.rest.drain(..count);
        Ok(count)
    }
}

/// A connection, as each side has it.
fn connection() -> (Link, Link) {
    let broken = Arc::new(AtomicBool::new(false));
    let [(one, other_end), (other, one_end)] = [channel(), channel()];
    let link = |wire, received| {
        let breaks = Arc::clone(&broken);
        Link {
            reader: Box::new(Line { received, rest: Vec::new(), broken: Arc::clone(&broken) }),
            writer: Box::new(Wire(wire)),
            close: Arc::new(move || breaks.store(true, Ordering::SeqCst)),
        }
    };
    (link(one, one_end), link(other, other_end))
}

struct Node {
    id: u64,
    channel: Channel,
    kept: Mutex<KeptChanges>,
}

impl Node {
    /// As a follower does it, until the connection breaks.
    fn serve(self: &Arc<Self>, session: &Arc<PeerSession>) -> (JoinHandle<()>, JoinHandle<()>) {
        let (here, there) = connection();
        let (session, node) = (Arc::clone(session), Arc::clone(self));
        let owner = std::thread::spawn(move || session.connect(there));
        let lost = node.channel.lost();
        let Link { mut reader, writer, close } = here;
        node.channel.connect(writer, Arc::clone(&close), since_boot());
        let follower = std::thread::spawn(move || {
            while let Ok(mut answer) = AnswerFrame::read(&mut *reader) {
                let changes = std::mem::take(&mut answer.changes);
                node.kept.lock().unwrap().note(changes, &answer.executed, 1).unwrap();
                match answer.told {
                    Told::Answer => node.channel.receive(answer, lost, |_, _, _| {}),
                    Told::Executed => node.kept.lock().unwrap().last = Some(answer.executed),
                    _ => {}
                }
            }
            close();
        });
        (owner, follower)
    }

    /// A program changes something. Returns how that has ended.
    fn ask(&self, asked: u64) -> Result<Vec<u8>, Errno> {
        let len = (size_of::<InHeader>() + 8) as u32;
        let (opcode, unique, nodeid) = (opcode::MKDIR, asked, 1);
        let (uid, gid, pid, extensions) = (0, 0, 0, 0);
        let header = InHeader { len, opcode, unique, nodeid, uid, gid, pid, extensions };
        let bytes = [header.as_bytes(), &asked.to_ne_bytes()].concat();
        let (back, answer) = channel();
        let request = Request::parse(&bytes).unwrap();
        self.channel.ask(Return::Worker(back), &request, (true, false)).unwrap();
        answer.recv_timeout(Duration::from_secs(60)).expect("an answer")
    }
}

fn run(seed: u64) -> (usize, usize, usize) {
    let seed = Arc::new(AtomicU64::new(seed));
    let nodes: Vec<_> = (1..=NODES)
        .map(|id| Node { id, channel: Channel::new(), kept: Mutex::default() })
        .map(Arc::new)
        .collect();
    let over = Arc::new(AtomicBool::new(false));
    let programs = (0..NODES * PROGRAMS).map(|program| {
        let (node, over) = (Arc::clone(&nodes[(program % NODES) as usize]), Arc::clone(&over));
        std::thread::spawn(move || {
            let mut results = Vec::new();
            for number in 0.. {
                if over.load(Ordering::SeqCst) {
                    break;
                }
                let asked = program << 32 | number;
                results.push((asked, node.ask(asked)));
            }
            results
        })
    });
    let programs: Vec<_> = programs.collect();
    let mut known: Vec<Option<Inherited>> = nodes.iter().map(|_| None).collect();
    let mut state = Vec::new();
    for takeover in 0..=TAKEOVERS {
        let opened = state.len() as u64;
        let owner = Arc::new(Owner {
            executed: Mutex::new(std::mem::take(&mut state)),
            seed: AtomicU64::new(seed.load(Ordering::SeqCst)),
        });
        let executed = nodes.iter().zip(&known).filter_map(|(node, known)| {
            known.as_ref().map(|known| known.executed(node.id).collect::<Vec<_>>())
        });
        let executions = Arc::new(Executions::inherited(executed.flatten()));
        let authority: Authority = Arc::new(|| Standing::Sure(Duration::from_secs(1)));
        let mut sessions = Vec::new();
        let mut threads = Vec::new();
        for (node, inherited) in nodes.iter().zip(known.drain(..)) {
            if takeover > 0 {
                let reached = inherited.as_ref().map_or(Reached::Less, Inherited::reached);
                node.channel.lose_session(reached);
                *node.kept.lock().unwrap() = KeptChanges::of_term(takeover, 1);
            }
            let peer = PeerNode { name: "n".into(), id: node.id, inherited };
            let guest = Arc::clone(&owner) as Arc<dyn Guest>;
            let (authority, executions) = (Arc::clone(&authority), Arc::clone(&executions));
            let session = PeerSession::start(peer, guest, authority, executions).unwrap();
            threads.push(node.serve(&session));
            sessions.push(session);
        }
        pause(&seed, 6000);
        if draw(&seed, 3) == 0 {
            // The connection breaks, and another one follows.
            nodes[0].channel.close(None);
            let (owner, follower) = threads.remove(0);
            owner.join().unwrap();
            follower.join().unwrap();
            threads.push(nodes[0].serve(&sessions[0]));
            pause(&seed, 3000);
        }
        let hands_over = takeover == TAKEOVERS || draw(&seed, 3) == 0;
        if takeover == TAKEOVERS {
            over.store(true, Ordering::SeqCst);
            let end = Instant::now() + Duration::from_secs(60);
            while programs.iter().any(|program| !program.is_finished()) {
                assert!(Instant::now() < end, "a program gets no answer");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let mut brought = Vec::new();
        let mut bring = |node: &Node| {
            node.channel.end_session();
            let kept = node.kept.lock().unwrap().clone();
            let agreement = Agreement::of_peer(44, 0);
            brought.push(Brought::new(node.id, agreement, kept, Holdings::default()));
        };
        if hands_over {
            sessions.iter().for_each(|session| session.part());
            threads.drain(..).for_each(|(owner, follower)| {
                owner.join().unwrap();
                follower.join().unwrap();
            });
            nodes.iter().for_each(|node| bring(node));
        } else {
            // The answers that arrive until then have been sent before the owner dies.
            nodes.iter().for_each(|node| bring(node));
            sessions.iter().for_each(|session| session.end());
            nodes.iter().for_each(|node| node.channel.close(None));
            threads.drain(..).for_each(|(owner, follower)| {
                owner.join().unwrap();
                follower.join().unwrap();
            });
        }
        let all = owner.executed.lock().unwrap().clone();
        // What an owner has opened is durable.
        let told = brought.iter().map(|brought| brought.deltas.sequence).max().max(Some(opened));
        let told = told.unwrap_or(opened);
        // The medium may have more than nodes were told of.
        let further = all.len() as u64 - told;
        let more = match draw(&seed, 3) {
            0 => draw(&seed, further + 1),
            _ => 0,
        };
        let reached = if hands_over { all.len() as u64 } else { told + more };
        for brought in &mut brought {
            let compared = match (brought.deltas.sequence == reached, reached) {
                (true, 1..) => Reached::Same,
                _ => Reached::All,
            };
            brought.compared(compared, hands_over);
        }
        state = all[..reached as usize].to_vec();
        known = inherited(&brought).into_iter().map(Some).collect();
    }
    let mut counts = HashMap::new();
    state.iter().for_each(|asked| *counts.entry(*asked).or_insert(0) += 1);
    let (mut answered, mut failed) = (0, 0);
    for (asked, result) in programs.into_iter().flat_map(|program| program.join().unwrap()) {
        let count = counts.remove(&asked).unwrap_or(0);
        match result {
            Ok(answer) => {
                assert_eq!(count, 1, "{asked:x} was answered");
                assert_eq!(answer, asked.to_ne_bytes());
                answered += 1;
            }
            Err(Errno(libc::EIO)) => {
                assert!(count <= 1, "{asked:x} has failed, and was executed {count} times");
                failed += 1;
            }
            Err(errno) => panic!("{asked:x}: {errno:?}"),
        }
    }
    assert!(counts.is_empty(), "nothing is there that was not asked for");
    (answered, failed, state.len())
}

#[test]
fn each_request_is_executed_once_by_any_number_of_owners() {
    let (answered, failed, executed) = run(1);
    assert!(answered > 500 && failed * 10 < answered, "{answered} answered, {failed} failed");
    assert!(executed >= answered);
}
