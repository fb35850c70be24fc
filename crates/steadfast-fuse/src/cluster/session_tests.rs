use std::cell::RefCell;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use zerocopy::IntoBytes;

use super::super::deltas::Changes;
use super::super::executions::Executed;
use super::super::executors::QUEUE;
use super::*;
use crate::abi::input::InHeader;
use crate::executing::{self, Ending};
use crate::service::{Later as Back, Outcome as Served, Service};

/// Counts what it executes, and answers with the number of the execution.
#[derive(Default)]
struct Counter {
    executed: AtomicUsize,
    departed: AtomicBool,
    /// Locks that a close has ended.
    ended: AtomicUsize,
    /// What LINK waits for.
    recall: Arc<Recall>,
}

impl Service for Counter {
    fn serve(&self, _: Back<'_>, request: &Request<'_>, out: &mut AnswerBuffer) -> Served {
        let number = self.executed.fetch_add(1, Ordering::SeqCst) as u64;
        executing::batch(number + 1);
        if request.header.opcode == opcode::LINK
            && self.recall.wait(Instant::now() + Duration::from_secs(60)) > 0
        {
            return Err(Errno(libc::ETIMEDOUT));
        }
        if request.header.opcode == opcode::RMDIR {
            return Err(Errno(libc::ENOTEMPTY));
        }
        out.put(&number);
        executing::ended(request, Ok(Answer::Ready), out.filled());
        Ok(Answer::Ready)
    }
}

impl Guest for Counter {
    fn depart(&self) {
        self.departed.store(true, Ordering::SeqCst);
    }

    fn reached_by(&self, _: Arc<dyn Recaller>) {}

    fn end_locks(&self, _: &Request<'_>) {
        self.ended.fetch_add(1, Ordering::SeqCst);
    }

    fn changed_directory(&self, request: &Request<'_>) -> Option<AttrOut> {
        let executed = self.executed.load(Ordering::SeqCst) as u64;
        let told = AttrOut { attr_valid: executed, ..AttrOut::default() };
        (request.header.opcode == opcode::MKDIR).then_some(told)
    }

    fn changes(&self, seen: u64) -> Changes {
        let sequence = self.executed.load(Ordering::SeqCst) as u64;
        let payload = seen.as_bytes().to_vec();
        let (begins_at, durable_sequence) = (seen, 0);
        let at = steadfast::volume::Place::default();
        let (durable, sealed) = (at, at);
        match sequence == seen {
            true => Changes::Same,
            false => Changes::New(steadfast::volume::Delta {
                begins_at,
                sequence,
                durable_sequence,
                durable,
                sealed,
                payload,
            }),
        }
    }

    fn set_point(&self) {}

    fn now(&self, node: RecalledNode) -> RecalledNode {
        RecalledNode { size: node.size + 1, ..node }
    }

    fn progress(&self) -> Progress {
        let accepted = self.executed.load(Ordering::SeqCst) as u64;
        Progress { accepted, durable: 0 }
    }

    fn tag(&self) -> u16 {
        5
    }

    fn answer_again(&self, _: &Request<'_>, ending: Ending, _: &mut AnswerBuffer) -> Served {
        Err(Errno(ending.error))
    }
}

/// Passes each write on.
struct Wire(Sender<Vec<u8>>);

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self.0.send(bytes.to_vec()) {
            Ok(()) => Ok(bytes.len()),
            Err(_) => Err(std::io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The other end of a connection: what is sent there can be read.
struct Line {
    received: Receiver<Vec<u8>>,
    rest: Vec<u8>,
}

impl Read for Line {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        if self.rest.is_empty() {
            self.rest = self.received.recv().unwrap_or_default();
        }
        let count = bytes.len().min(self.rest.len());
        bytes[..count].copy_from_slice(&self.rest[..count]);
        self.rest.drain(..count);
        Ok(count)
    }
}

/// The id of the peer's mount.
const NODE: u64 = 70;

struct Peer {
    guest: Arc<Counter>,
    session: Arc<PeerSession>,
    sure: Arc<AtomicBool>,
    /// To the session.
    line: RefCell<Option<Sender<Vec<u8>>>>,
}

impl Peer {
    fn new() -> Peer {
        Peer::with(None)
    }

    fn with(inherited: Option<Vec<Executed>>) -> Peer {
        let (guest, sure) = (Arc::new(Counter::default()), Arc::new(AtomicBool::new(true)));
        let standing = Arc::clone(&sure);
        let authority: Authority = Arc::new(move || match standing.load(Ordering::SeqCst) {
            true => crate::cluster::Standing::Sure(Duration::from_secs(1)),
            false => crate::cluster::Standing::Unsure,
        });
        let executed = inherited.clone().unwrap_or_default().into_iter();
        let inherited = inherited.map(|list| Inherited::of_node(NODE, &list, true));
        let node = PeerNode { name: "n".into(), id: NODE, inherited };
        let executions = Arc::new(Executions::inherited(executed));
        let kernel = Arc::clone(&guest) as Arc<dyn Guest>;
        let session = PeerSession::start(node, kernel, authority, executions);
        Peer { guest, session: session.unwrap(), sure, line: RefCell::default() }
    }

    fn connect(&self) -> Receiver<Vec<u8>> {
        let (sends, received) = channel();
        let (line, incoming) = channel();
        // The end of what can be read.
        let ends = Mutex::new(Some(line.clone()));
        self.line.replace(Some(line));
        self.session.connect(Link {
            reader: Box::new(Line { received: incoming, rest: Vec::new() }),
            writer: Box::new(Wire(sends)),
            close: Arc::new(move || {
                if let Some(line) = ends.lock().unwrap().take() {
                    let _ = line.send(Vec::new());
                }
            }),
        });
        received
    }

    /// The connection breaks.
    fn disconnect(&self) {
        let number = self.session.inner().connections;
        self.session.disconnect(number);
    }

    /// Sends a frame. Returns whether the session reads.
    fn send(&self, kind: FrameKind, number: u64, opcode: u32, numbers: &[u64]) -> bool {
        let frame = Peer::frame(kind, number, opcode, numbers);
        self.line.borrow().as_ref().is_some_and(|line| line.send(frame).is_ok())
    }

    fn frame(kind: FrameKind, number: u64, opcode: u32, numbers: &[u64]) -> Vec<u8> {
        let len = size_of::<InHeader>() as u32;
        let (uid, gid, pid) = (0, 0, 0);
        let header =
            InHeader { len, opcode, unique: number, nodeid: 1, uid, gid, pid, extensions: 0 };
        let (bytes, numbers) = (header.as_bytes().to_vec(), numbers.to_vec());
        RequestFrame { kind, number, numbers, bytes }.encode()
    }

    /// Waits until the session has read what was sent, and has kept so many answers.
    fn keeps(&self, answers: usize) -> bool {
        let end = Instant::now() + Duration::from_secs(60);
        while self.session.inner().requests.len() != answers && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.session.inner().requests.len() == answers
    }
}

fn wait_until(done: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < end);
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn answer(received: &Receiver<Vec<u8>>) -> AnswerFrame {
    let bytes = received.recv_timeout(Duration::from_secs(60)).unwrap();
    AnswerFrame::read(&mut &bytes[..]).unwrap()
}

#[test]
fn a_change_that_is_sent_again_gets_the_answer_of_its_one_execution() {
    let peer = Peer::new();
    let received = peer.connect();
    assert!(peer.send(FrameKind::Request, 1, opcode::MKDIR, &[]));
    let first = answer(&received);
    assert_eq!(first.directory.map(|told| told.attr_valid), Some(1), "from after the change");
    assert!(peer.send(FrameKind::Request, 2, opcode::RMDIR, &[]));
    let refused = answer(&received);
    assert_eq!((refused.error, refused.directory), (libc::ENOTEMPTY, None));
    peer.disconnect();
    let received = peer.connect();
    peer.send(FrameKind::Resume, 2, 0, &[1, 2]);
    peer.send(FrameKind::Request, 1, opcode::MKDIR, &[]);
    peer.send(FrameKind::Request, 2, opcode::RMDIR, &[]);
    let same = |frame| AnswerFrame { changes: Changes::Same, executed: Vec::new(), ..frame };
    let again = (same(answer(&received)), same(answer(&received)));
    assert_eq!(again, (same(first), same(refused)));
    assert_eq!(peer.guest.executed.load(Ordering::SeqCst), 2);
    peer.session.end();
    assert!(peer.guest.departed.load(Ordering::SeqCst));
    assert!(!peer.send(FrameKind::Request, 3, opcode::MKDIR, &[]), "the session has ended");
}

/// The numbers in a list, and how these requests have ended.
fn numbers(list: &[Executed]) -> Vec<(u64, Option<Ending>)> {
    let mut numbers: Vec<_> = list.iter().map(|one| (one.number, one.ending())).collect();
    numbers.sort_unstable_by_key(|(number, _)| *number);
    numbers
}

#[test]
fn what_an_owner_before_has_executed_is_not_executed_again() {
    let refused = Some(Ending { error: libc::EXDEV, detail: 0 });
    let before = |number, ending| Executed::new((NODE, number), ending);
    let peer = Peer::with(Some(vec![before(5, refused), before(6, None)]));
    let received = peer.connect();
    let ask = |kind, number| {
        peer.send(kind, number, opcode::RENAME, &[]);
        answer(&received)
    };
    assert_eq!(ask(FrameKind::Repeated, 5).error, libc::EXDEV, "as it was answered before");
    assert_eq!(ask(FrameKind::Repeated, 6).error, libc::EIO);
    assert_eq!(peer.guest.executed.load(Ordering::SeqCst), 0);
    let new = ask(FrameKind::Repeated, 7);
    assert_eq!((new.error, peer.guest.executed.load(Ordering::SeqCst)), (0, 1));
    // The owner after this one has to know of all of them.
    let here = Some(Ending { error: 0, detail: 0 });
    assert_eq!(numbers(&new.executed), [(5, refused), (6, None), (7, here)]);
    peer.send(FrameKind::Request, 8, opcode::RENAME, &[5, 6, 7]);
    let here = Some(Ending { error: 0, detail: 1 });
    assert_eq!(numbers(&answer(&received).executed), [(8, here)]);
    peer.session.end();
}

#[test]
fn a_node_without_what_it_had_learns_nothing_of_what_it_repeats() {
    let peer = Peer::new();
    let received = peer.connect();
    peer.send(FrameKind::Repeated, 5, opcode::RENAME, &[]);
    assert_eq!(answer(&received).error, libc::EIO);
    assert_eq!(peer.guest.executed.load(Ordering::SeqCst), 0);
    peer.send(FrameKind::Repeated, 6, opcode::GETATTR, &[]);
    assert_eq!(answer(&received).error, 0, "that changes nothing");
    peer.session.end();
}

/// What is not in the last list goes to the next owner.
#[test]
fn an_owner_that_ends_tells_what_it_has_executed_and_executes_no_more() {
    let peer = Peer::new();
    let waiting = peer.guest.recall.begin();
    let received = peer.connect();
    peer.send(FrameKind::Request, 1, opcode::RENAME, &[]);
    answer(&received);
    peer.send(FrameKind::Request, 2, opcode::LINK, &[1]);
    wait_until(|| peer.guest.executed.load(Ordering::SeqCst) == 2);
    let parts = std::thread::spawn({
        let session = Arc::clone(&peer.session);
        move || session.part()
    });
    assert_eq!(answer(&received).told, Told::OwnerEnds);
    wait_until(|| peer.session.inner().ends);
    peer.send(FrameKind::Request, 3, opcode::RENAME, &[]);
    std::thread::sleep(Duration::from_millis(20));
    drop(waiting);
    let ending = answer(&received);
    assert_eq!((ending.told, ending.number), (Told::Answer, 2), "it has begun before");
    let last = answer(&received);
    assert_eq!(last.told, Told::Executed);
    assert_eq!(numbers(&last.executed), [(2, Some(Ending { error: 0, detail: 1 }))]);
    parts.join().unwrap();
    assert_eq!(peer.guest.executed.load(Ordering::SeqCst), 2);
}

#[test]
fn each_answer_has_what_has_changed_since_the_last_one() {
    let peer = Peer::new();
    let span = |frame: &AnswerFrame| match &frame.changes {
        Changes::New(delta) => Some((delta.begins_at, delta.sequence)),
        _ => None,
    };
    let received = peer.connect();
    let mut spans = Vec::new();
    for number in 1..=3 {
        peer.send(FrameKind::Request, number, opcode::MKDIR, &[]);
        spans.push(span(&answer(&received)));
    }
    // A new connection begins anew, because the last answer may not have arrived.
    peer.disconnect();
    let received = peer.connect();
    for number in [3, 2] {
        peer.send(FrameKind::Request, number, opcode::MKDIR, &[]);
        spans.push(span(&answer(&received)));
    }
    assert_eq!(spans, [Some((0, 1)), Some((1, 2)), Some((2, 3)), Some((0, 3)), None]);
    // What is no answer has none: it may overtake one.
    peer.guest.executed.fetch_add(1, Ordering::SeqCst);
    peer.session.tell_progress();
    assert_eq!(span(&answer(&received)), None);
    peer.session.end();
}

#[test]
fn a_ping_is_answered_only_by_an_owner_that_is_sure() {
    let peer = Peer::new();
    let received = peer.connect();
    peer.send(FrameKind::Ping, 7, 0, &[]);
    let told = answer(&received);
    assert_eq!((told.told, told.number, told.tag), (Told::GoesOn, 7, 5));
    peer.sure.store(false, Ordering::SeqCst);
    peer.send(FrameKind::Ping, 8, 0, &[]);
    peer.send(FrameKind::OneWay, 0, opcode::MKDIR, &[]);
    wait_until(|| peer.guest.executed.load(Ordering::SeqCst) == 1);
    peer.sure.store(true, Ordering::SeqCst);
    peer.send(FrameKind::Ping, 9, 0, &[]);
    assert_eq!(answer(&received).number, 9);
    peer.session.end();
}

#[test]
fn answers_are_kept_until_they_have_arrived_and_those_of_reads_are_not() {
    let peer = Peer::new();
    let received = peer.connect();
    for number in 1..=3 {
        peer.send(FrameKind::Request, number, opcode::MKDIR, &[]);
        answer(&received);
    }
    peer.send(FrameKind::Request, 4, opcode::READ, &[1]);
    answer(&received);
    assert!(peer.keeps(2), "one has arrived, and a read is not kept");
    peer.send(FrameKind::Resume, 3, 0, &[3]);
    assert!(peer.keeps(1));
    peer.session.end();
}

#[test]
fn nothing_is_answered_while_the_owner_is_not_sure() {
    let peer = Peer::new();
    let received = peer.connect();
    peer.sure.store(false, Ordering::SeqCst);
    peer.send(FrameKind::Request, 1, opcode::GETATTR, &[]);
    peer.session.tell_progress();
    assert!(received.recv_timeout(Duration::from_millis(50)).is_err());
    peer.sure.store(true, Ordering::SeqCst);
    assert_eq!(answer(&received).number, 1);
    peer.session.tell_progress();
    let told = answer(&received);
    assert_eq!((told.number, told.progress.accepted), (0, 1));
    peer.session.tell_progress();
    assert!(received.try_recv().is_err(), "it knows");
    peer.session.end();
}

#[test]
fn a_close_ends_locks_before_later_requests_are_executed() {
    let peer = Peer::new();
    let received = peer.connect();
    assert!(peer.send(FrameKind::Request, 1, opcode::RELEASE, &[]));
    assert_eq!(answer(&received).number, 1);
    assert_eq!(peer.guest.ended.load(Ordering::SeqCst), 1);
    peer.session.end();
}

fn node(nodeid: u64) -> RecalledNode {
    RecalledNode { nodeid, generation: 1, size: 0 }
}

/// A peer that was away drops the pages of what was changed meanwhile.
#[test]
fn missed_recalls_of_pages_come_over_the_next_connection() {
    let peer = Peer::new();
    let received = peer.connect();
    let recall = Arc::new(Recall::default());
    peer.session.recall(&[node(7)], Recalled::Pages, recall.begin());
    assert_eq!(answer(&received).nodes(), [node(7)]);
    peer.disconnect();
    peer.session.recall(&[node(8)], Recalled::Pages, recall.begin());
    peer.session.recall(&[node(9)], Recalled::Attributes, recall.begin());
    assert_eq!(recall.wait(Instant::now()), 3, "none was confirmed");
    let received = peer.connect();
    let again = answer(&received);
    let mut nodes = again.nodes();
    nodes.sort_unstable_by_key(|node| node.nodeid);
    let now = |nodeid| RecalledNode { size: 1, ..node(nodeid) };
    assert_eq!((again.told, nodes), (Told::RecallPages, vec![now(7), now(8)]), "the size of now");
    // Those that were under way when a peer greets again are sent again, too.
    let received = peer.connect();
    assert_eq!(answer(&received).nodes().len(), 2);
    let last = peer.session.inner().recalls.last;
    peer.send(FrameKind::Recalled, last, opcode::GETATTR, &[]);
    let end = Instant::now() + Duration::from_secs(60);
    while peer.session.inner().recalls.has_pages() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    let received = peer.connect();
    assert!(received.recv_timeout(Duration::from_millis(50)).is_err(), "all are confirmed");
    peer.session.end();
}

/// Attributes tell how old pages may be.
#[test]
fn an_answer_that_is_sent_again_comes_after_recalls_that_were_missed() {
    for _ in 0..100 {
        let peer = Peer::new();
        let received = peer.connect();
        assert!(peer.send(FrameKind::Request, 1, opcode::LOOKUP, &[]));
        assert_eq!(answer(&received).number, 1);
        peer.disconnect();
        let recall = Arc::new(Recall::default());
        peer.session.recall(&[node(7)], Recalled::Pages, recall.begin());
        let received = peer.connect();
        peer.send(FrameKind::Resume, 1, 0, &[1]);
        peer.send(FrameKind::Request, 1, opcode::LOOKUP, &[]);
        let told = [answer(&received).told, answer(&received).told];
        assert_eq!(told, [Told::RecallPages, Told::Answer]);
        peer.session.end();
    }
}

/// Each thread executes a request that waits for a confirmation of the same peer.
#[test]
fn confirmations_are_read_while_all_threads_wait() {
    let peer = Peer::new();
    for round in 0..20 {
        let received = peer.connect();
        let recall = peer.guest.recall.begin();
        peer.session.recall(&[node(7)], Recalled::Attributes, recall);
        assert_eq!(answer(&received).told, Told::Recall);
        let first = round * 100 + 1;
        let numbers: Vec<u64> = (first..first + THREADS as u64 + QUEUE as u64 / 2).collect();
        for number in &numbers {
            assert!(peer.send(FrameKind::Request, *number, opcode::LINK, &[]));
        }
        let last = peer.session.inner().recalls.last;
        assert!(peer.send(FrameKind::Recalled, last, opcode::GETATTR, &[]));
        let answer = |_: &u64| {
            let answer = answer(&received);
            (answer.number, answer.error)
        };
        let mut answered: Vec<(u64, i32)> = numbers.iter().map(answer).collect();
        answered.sort_unstable();
        let expected: Vec<(u64, i32)> = numbers.iter().map(|number| (*number, 0)).collect();
        assert_eq!(answered, expected, "none waited in vain");
    }
    peer.session.end();
}

/// The owner may have bytes of a connection that is closed.
#[test]
fn what_an_earlier_connection_still_has_is_not_executed() {
    let peer = Peer::new();
    let (sends, received) = channel();
    let (line, incoming) = channel();
    peer.session.connect(Link {
        reader: Box::new(Line { received: incoming, rest: Vec::new() }),
        writer: Box::new(Wire(sends)),
        close: Arc::new(|| {}),
    });
    line.send(Peer::frame(FrameKind::Request, 1, opcode::MKDIR, &[])).unwrap();
    assert_eq!(answer(&received).number, 1);
    let received = peer.connect();
    // The peer has the answer, and the session has forgotten it.
    peer.send(FrameKind::Request, 2, opcode::READ, &[1]);
    assert_eq!(answer(&received).number, 2);
    // Until the session has dropped the connection.
    while line.send(Peer::frame(FrameKind::Request, 1, opcode::MKDIR, &[])).is_ok() {
        std::thread::sleep(Duration::from_millis(1));
    }
    peer.send(FrameKind::Request, 3, opcode::READ, &[]);
    assert_eq!(answer(&received).number, 3);
    assert_eq!(peer.guest.executed.load(Ordering::SeqCst), 3);
    peer.session.end();
}

#[test]
fn a_session_ends_while_a_peer_connects() {
    for _ in 0..100 {
        let peer = Peer::new();
        let session = Arc::clone(&peer.session);
        let ends = std::thread::spawn(move || session.end());
        let received = peer.connect();
        ends.join().unwrap();
        peer.send(FrameKind::Request, 1, opcode::MKDIR, &[]);
        assert!(received.recv_timeout(Duration::from_millis(1)).is_err());
    }
}
