//! A session of the owner with one peer: it executes the requests of the peer's kernel.
//!
//! A session outlives its connection by [`SESSION_TIME`]. On a new connection the peer sends
//! again what was not answered. A request that changes anything is executed once: the session keeps
//! its answer until the peer has it. One that only reads may be executed again, so its answer,
//! which may be long, is not kept.
//!
//! Invariant: nothing is answered while this node does not know that it is the owner.

use std::collections::{HashMap, HashSet};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use steadfast::volume::Reached;

use super::executions::{Executions, Inherited, Verdict};
use super::executors::{Executors, Incoming, Source};
use super::frame::{AnswerFrame, FrameKind, Progress, RequestFrame, Told};
use super::guest::Guest;
use super::holdings::HELD_FOR;
use super::link::{Authority, Link, wait_until_sure};
use super::sending::Sending;
use super::sent_recalls::SentRecalls;
use crate::abi::output::AttrOut;
use crate::abi::{ROOT_ID, opcode};
use crate::buffer::{AnswerBuffer, DATA_MAX, PAGE, Pages};
use crate::errno::Errno;
use crate::executing::is_change;
use crate::filesystem::recall::{Done, NODES_MAX, Recall, Recalled, RecalledNode, Recaller};
use crate::io_flusher::set_io_flusher;
use crate::log::log_warning;
use crate::request::Request;
use crate::service::{Answer, Answering, Later, Outcome, Return};
use crate::validity::tells_attributes;

/// How long the owner keeps what a peer holds after its connection broke.
pub const SESSION_TIME: Duration = Duration::from_secs(10);
/// Threads that read and execute the requests of one peer.
const THREADS: usize = 5;
/// Threads for requests that a recall of pages may wait for. These requests wait for no such
/// recall, unless too many files have pages.
const PAGE_THREADS: usize = 2;
/// Requests about pages that may wait for a thread. Beyond them the connection is not read.
const PAGE_QUEUE: usize = 64;
/// How long an owner that ends waits for the changes that it executes.
const END_WAIT: Duration = Duration::from_secs(2);
/// Most requests of a peer that are not answered, or whose answers it has not confirmed.
const REQUESTS_MAX: usize = 1 << 16;

/// A node, as its session begins.
pub(super) struct PeerNode {
    pub(super) name: String,
    /// Distinguishes the mounts of nodes.
    pub(super) id: u64,
    /// What is known of its requests to the owner before. The guest has what the node had there.
    /// `None`: the node begins with nothing.
    pub(super) inherited: Option<Inherited>,
}

/// What an answer has besides its bytes.
enum Extra {
    None,
    /// See [`AnswerFrame::directory`].
    Directory(AttrOut),
    /// The bytes are a plan.
    IsPlan,
}

enum RequestState {
    /// Not answered yet.
    Running,
    /// The peer may not have this answer.
    Answered(Box<AnswerFrame>),
}

#[derive(Clone)]
struct PeerConnection {
    /// Tells connections apart.
    number: u64,
    sending: Arc<Mutex<Sending>>,
    close: Arc<dyn Fn() + Send + Sync>,
}

struct Inner {
    requests: HashMap<u64, RequestState>,
    connection: Option<PeerConnection>,
    connections: u64,
    /// When the connection broke.
    alone_since: Instant,
    /// Requests about pages of the peer's kernel.
    page_queue: Option<SyncSender<RequestFrame>>,
    /// What the peer was told last without having asked: how far the volume is, and the tag.
    told: (Progress, u16),
    recalls: SentRecalls,
    /// Recalls, and answers that must not overtake them, have a thread of their own, because a peer
    /// that takes nothing must not make others wait.
    recall_queue: Option<RecallQueue>,
    /// Changes that are being executed.
    changing: HashSet<u64>,
    /// No change begins any more.
    ends: bool,
}

/// What is sent over a connection, and not over another one: that may begin with recalls.
type RecallQueue = Sender<(PeerConnection, AnswerFrame)>;

/// See the module.
pub(super) struct PeerSession {
    node: PeerNode,
    guest: Arc<dyn Guest>,
    authority: Authority,
    executions: Arc<Executions>,
    inner: Mutex<Inner>,
    executors: Arc<Executors>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl PeerSession {
    pub(super) fn start(
        node: PeerNode,
        guest: Arc<dyn Guest>,
        authority: Authority,
        executions: Arc<Executions>,
    ) -> std::io::Result<Arc<PeerSession>> {
        let (page_queue, about_pages) = sync_channel(PAGE_QUEUE);
        let (recall_queue, recalls) = channel();
        let inner = Inner {
            requests: HashMap::new(),
            connection: None,
            connections: 0,
            alone_since: Instant::now(),
            page_queue: Some(page_queue),
            told: Default::default(),
            recalls: SentRecalls::default(),
            recall_queue: Some(recall_queue),
            changing: HashSet::new(),
            ends: false,
        };
        let session = Arc::new(PeerSession {
            node,
            guest,
            authority,
            executions,
            inner: Mutex::new(inner),
            executors: Arc::default(),
            threads: Mutex::default(),
        });
        session.guest.reached_by(Arc::new(PeerKernel(Arc::downgrade(&session))));
        let started = session.start_threads(about_pages, recalls);
        started.inspect_err(|_| session.end()).map(|()| session)
    }

    fn start_threads(
        self: &Arc<Self>,
        about_pages: Receiver<RequestFrame>,
        recalls: Receiver<(PeerConnection, AnswerFrame)>,
    ) -> std::io::Result<()> {
        let start = |name: String, run: Box<dyn FnOnce() + Send>| {
            Builder::new().name(name).spawn(run).map(|thread| self.threads().push(thread))
        };
        for number in 0..THREADS {
            let (session, executors) = (Arc::downgrade(self), Arc::clone(&self.executors));
            let mut memory = Pages::new(DATA_MAX / PAGE)?;
            let run = move || execute_all(&session, &executors, memory.bytes());
            start(format!("peer-{number}"), Box::new(run))?;
        }
        let about_pages = Arc::new(Mutex::new(about_pages));
        for number in 0..PAGE_THREADS {
            let (session, received) = (Arc::downgrade(self), Arc::clone(&about_pages));
            let mut memory = Pages::new(DATA_MAX / PAGE)?;
            let run = move || execute_pages(&session, &received, memory.bytes());
            start(format!("peer-pages-{number}"), Box::new(run))?;
        }
        let sends = Arc::downgrade(self);
        let run = move || {
            while let (Ok((over, frame)), Some(session)) = (recalls.recv(), sends.upgrade()) {
                session.send_over(Some(over), frame);
            }
        };
        start("peer-recalls".into(), Box::new(run))
    }

    pub(super) fn name(&self) -> &str {
        &self.node.name
    }

    /// How the volume compares with what the node was told of by the owner before. If it has all of
    /// it, the guest has its open files and locks.
    pub(super) fn reached(&self) -> Reached {
        self.node.inherited.as_ref().map_or(Reached::Less, Inherited::reached)
    }

    /// Takes a new connection, in place of an earlier one, and serves it until it breaks.
    pub(super) fn connect(&self, link: Link) {
        let Link { reader, writer, close } = link;
        let mut inner = self.inner();
        inner.connections += 1;
        let number = inner.connections;
        inner.told = Default::default();
        inner.recalls.give_up_all();
        let connection =
            PeerConnection { number, sending: Arc::new(Mutex::new(Sending::new(writer))), close };
        if let Some(earlier) = inner.connection.replace(connection) {
            (earlier.close)();
        }
        let missed = inner.recalls.take_missed().into_iter();
        let missed: Vec<_> = missed.map(|node| self.guest.now(node)).collect();
        for missed in missed.chunks(NODES_MAX) {
            inner.recall(missed, Recalled::Pages, Arc::new(Recall::default()).begin());
        }
        drop(inner);
        if !self.executors.read_from(Source { connection: number, reader }) {
            self.disconnect(number);
        }
    }

    /// A connection has broken.
    fn disconnect(&self, number: u64) {
        let mut inner = self.inner();
        if let Some(connection) = &inner.connection
            && connection.number == number
        {
            (connection.close)();
            inner.connection = None;
            inner.alone_since = Instant::now();
            inner.recalls.give_up_all();
        }
    }

    /// Whether the peer has been away for too long.
    pub(super) fn is_abandoned(&self) -> bool {
        let inner = self.inner();
        inner.connection.is_none() && inner.alone_since.elapsed() >= SESSION_TIME
    }

    /// A frame of the peer. Waits while too many requests about pages wait for a thread. What an
    /// earlier connection still has is refused: the peer has sent it again, and it may be executed,
    /// confirmed and forgotten.
    fn receive(&self, connection: u64, frame: RequestFrame) -> Incoming {
        {
            let mut inner = self.inner();
            if inner.connection.as_ref().is_none_or(|present| present.number != connection) {
                return Incoming::Refused;
            }
            match frame.kind {
                FrameKind::Resume => {
                    let pending: HashSet<u64> = frame.numbers.iter().copied().collect();
                    let waits = |number| number > frame.number || pending.contains(&number);
                    inner.requests.retain(|number, state| {
                        matches!(state, RequestState::Running) || waits(*number)
                    });
                    self.executions.forget_others(self.node.id, waits);
                    return Incoming::Done;
                }
                FrameKind::Ping => {
                    let (queue, over) = (inner.recall_queue.clone(), inner.connection.clone());
                    drop(inner);
                    if let (Some(queue), Some(over)) = (queue, over)
                        && (self.authority)().is_sure()
                    {
                        let progress = self.guest.progress();
                        let told = AnswerFrame::telling(Told::GoesOn, frame.number, progress);
                        let _ = queue.send((over, told));
                    }
                    return Incoming::Done;
                }
                FrameKind::Recalled => {
                    let done = inner.recalls.confirm(frame.number);
                    drop(inner);
                    drop(done);
                    return Incoming::Done;
                }
                _ => {
                    for number in &frame.numbers {
                        inner.requests.remove(number);
                    }
                    self.executions.forget(self.node.id, frame.numbers.iter().copied());
                }
            }
            if frame.kind != FrameKind::OneWay {
                match inner.requests.get(&frame.number) {
                    // The answer comes over the present connection.
                    Some(RequestState::Running) => return Incoming::Done,
                    Some(RequestState::Answered(answer)) => {
                        let answer = AnswerFrame::clone(answer);
                        self.give(inner, answer, opcode_of(&frame));
                        return Incoming::Done;
                    }
                    None if inner.requests.len() >= REQUESTS_MAX => return Incoming::Refused,
                    None => drop(inner.requests.insert(frame.number, RequestState::Running)),
                }
            }
        }
        if let Some(request) = Request::parse(&frame.bytes)
            && request.header.opcode == opcode::RELEASE
        {
            self.guest.end_locks(&request);
        }
        let about_pages = {
            let inner = self.inner();
            let waits =
                Request::parse(&frame.bytes).is_some_and(|request| inner.has_recall_wait(&request));
            waits.then(|| inner.page_queue.clone())
        };
        match about_pages {
            None => Incoming::Execute(frame),
            Some(Some(queue)) if queue.send(frame).is_ok() => Incoming::Done,
            Some(_) => Incoming::Refused,
        }
    }

    fn execute(self: &Arc<Self>, frame: &RequestFrame, memory: &mut [u8]) {
        let Some(request) = Request::parse(&frame.bytes) else {
            return self.finish(
                frame.number,
                opcode::DESTROY,
                Err(Errno(libc::EINVAL)),
                Extra::None,
            );
        };
        let opcode = request.header.opcode;
        let mut out = AnswerBuffer::new(memory);
        let back = || {
            let number = frame.number;
            let session: Arc<dyn Answering> =
                Arc::new(SessionReturn { session: Arc::clone(self), number, opcode });
            Ok(Return::Peer(session))
        };
        let Some(outcome) = self.execute_once(&back, frame, &request, &mut out) else { return };
        let (result, extra) = match outcome {
            Ok(Answer::Ready) if out.planned().is_some() => (Ok(out.filled()), Extra::IsPlan),
            Ok(Answer::Ready) => {
                let directory = self.guest.changed_directory(&request);
                (Ok(out.filled()), directory.map_or(Extra::None, Extra::Directory))
            }
            Ok(Answer::Silent | Answer::Later) => return,
            Err(errno) => (Err(errno), Extra::None),
        };
        if frame.kind != FrameKind::OneWay {
            self.finish(frame.number, opcode, result, extra);
        }
    }

    /// Executes a request, unless an owner before has done that. `None`: it is too late.
    fn execute_once(
        &self,
        later: Later<'_>,
        frame: &RequestFrame,
        request: &Request<'_>,
        out: &mut AnswerBuffer,
    ) -> Option<Outcome> {
        if frame.kind == FrameKind::OneWay || !is_change(request) {
            return Some(self.guest.serve(later, request, out));
        }
        let number = frame.number;
        if frame.kind == FrameKind::Repeated {
            let inherited = self.node.inherited.as_ref();
            match inherited.map_or(Verdict::Unknown, |inherited| inherited.verdict(number)) {
                Verdict::Execute => {}
                Verdict::Ended(ending) => {
                    return Some(self.guest.answer_again(request, ending, out));
                }
                Verdict::Unknown => return Some(Err(Errno(libc::EIO))),
            }
        }
        let execution = {
            let mut inner = self.inner();
            if inner.ends {
                return None;
            }
            inner.changing.insert(number);
            self.executions.begin(self.node.id, number)
        };
        Some(execution.during(|| self.guest.serve(later, request, out)))
    }

    /// Sends an answer, and keeps it if the request must not be executed again.
    fn finish(&self, number: u64, opcode: u32, result: Result<&[u8], Errno>, extra: Extra) {
        let (error, bytes) = match result {
            Ok(bytes) => (0, bytes.to_vec()),
            Err(errno) => (errno.0, Vec::new()),
        };
        let is_sure = wait_until_sure(&self.authority);
        self.inner().changing.remove(&number);
        if !is_sure {
            return;
        }
        let (told, directory) = match extra {
            Extra::None => (Told::Answer, None),
            Extra::Directory(directory) => (Told::Answer, Some(directory)),
            Extra::IsPlan => (Told::Plan, None),
        };
        let frame = AnswerFrame::telling(told, number, self.guest.progress());
        let answer = AnswerFrame { error, bytes, directory, ..frame };
        let mut inner = self.inner();
        if may_repeat(opcode) {
            inner.requests.remove(&number);
        } else if let Some(state) = inner.requests.get_mut(&number) {
            *state = RequestState::Answered(Box::new(answer.clone()));
        }
        self.give(inner, answer, opcode);
    }

    /// Sends an answer over the present connection: the next one may begin with recalls. Attributes
    /// tell how old pages may be, so they do not overtake a recall of these.
    fn give(&self, inner: MutexGuard<'_, Inner>, answer: AnswerFrame, opcode: u32) {
        let recalls_pages = inner.recalls.has_pages();
        let queue = inner.recall_queue.clone().filter(|_| tells_attributes(opcode));
        let Some(connection) = inner.connection.clone() else { return };
        match queue.filter(|_| recalls_pages) {
            Some(queue) => drop(queue.send((connection, answer))),
            None => {
                drop(inner);
                self.send_over(Some(connection), answer);
            }
        }
    }

    /// Tells the peer how far the volume is, and the tag of its node ids, unless it knows that.
    pub(super) fn tell_progress(&self) {
        if !(self.authority)().is_sure() {
            return;
        }
        let (progress, tag) = (self.guest.progress(), self.guest.tag());
        let known = std::mem::replace(&mut self.inner().told, (progress, tag));
        if known != (progress, tag) {
            self.send(AnswerFrame::telling(Told::Answer, 0, progress));
        }
    }

    fn send(&self, answer: AnswerFrame) {
        let connection = self.inner().connection.clone();
        self.send_over(connection, answer);
    }

    fn send_over(&self, connection: Option<PeerConnection>, mut answer: AnswerFrame) {
        let Some(PeerConnection { number, sending, close }) = connection else { return };
        let sent = {
            let mut sending = sending.lock().unwrap_or_else(PoisonError::into_inner);
            if answer.told.answers() && answer.number != 0 {
                // Under this lock, so that deltas arrive in order.
                sending.put_changes(&*self.guest, &self.executions, &mut answer);
            }
            answer.tag = self.guest.tag();
            // That may have taken a while. The peer sends again what was not answered.
            match (self.authority)().is_sure() || !answer.told.answers() {
                true => sending.write(&answer),
                false => Err(std::io::ErrorKind::TimedOut.into()),
            }
        };
        if sent.is_err() {
            // No thread reads it any more, and the peer makes another one.
            close();
            self.disconnect(number);
        }
    }

    /// Ends the session: what the peer held is given back.
    pub(super) fn end(&self) {
        self.cut_off();
        self.executions.forget(self.node.id, self.inner().requests.keys().copied());
        self.guest.depart();
    }

    /// The owner ends, and gives nothing of what the peer has to others.
    pub(super) fn part(&self) {
        let progress = self.guest.progress();
        self.send(AnswerFrame::telling(Told::OwnerEnds, 0, progress));
        if self.end_changes()
            && let Some(executed) = self.executions.of_node(self.node.id)
        {
            let told = AnswerFrame::telling(Told::Executed, 0, progress);
            self.send(AnswerFrame { executed, ..told });
        }
        self.cut_off();
    }

    /// Begins no more changes, and waits for those that have begun. Whether they have ended.
    fn end_changes(&self) -> bool {
        self.inner().ends = true;
        let end = Instant::now() + END_WAIT;
        while !self.inner().changing.is_empty() {
            if Instant::now() >= end {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }

    /// The tag of the peer's node ids.
    pub(super) fn tag(&self) -> u16 {
        self.guest.tag()
    }

    /// The peer has a new connection, or is about to.
    pub(super) fn is_back(&self) {
        self.inner().alone_since = Instant::now();
    }

    /// The peer gets no answer from now on, and nothing that it asks is executed.
    fn cut_off(&self) {
        // First: a connection that comes later closes itself, and an earlier one is closed here.
        self.executors.end();
        {
            let mut inner = self.inner();
            inner.page_queue = None;
            inner.recall_queue = None;
            inner.recalls.give_up_all();
            if let Some(connection) = inner.connection.take() {
                (connection.close)();
            }
        }
        for thread in std::mem::take(&mut *self.threads()) {
            if thread.join().is_err() {
                log_warning!(
                    "a thread of node {} has ended with an internal error",
                    self.node.name
                );
            }
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn execute_all(session: &Weak<PeerSession>, executors: &Executors, memory: &mut [u8]) {
    set_io_flusher();
    let receive = |connection, frame| {
        session.upgrade().map_or(Incoming::Refused, |session| session.receive(connection, frame))
    };
    let broken = |connection| {
        if let Some(session) = session.upgrade() {
            session.disconnect(connection);
        }
    };
    while let Some(frame) = executors.next(receive, broken) {
        let Some(session) = session.upgrade() else { return };
        session.execute(&frame, memory);
    }
}

fn execute_pages(
    session: &Weak<PeerSession>,
    received: &Mutex<Receiver<RequestFrame>>,
    memory: &mut [u8],
) {
    set_io_flusher();
    loop {
        let frame = received.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let (Ok(frame), Some(session)) = (frame, session.upgrade()) else { return };
        session.execute(&frame, memory);
    }
}

/// The kernel of a peer.
struct PeerKernel(Weak<PeerSession>);

impl Recaller for PeerKernel {
    fn recall(&self, nodes: &[RecalledNode], what: Recalled, done: Done) {
        match self.0.upgrade() {
            Some(session) => session.recall(nodes, what, done),
            None => done.never(),
        }
    }
}

/// The way of an answer that another thread gives.
struct SessionReturn {
    session: Arc<PeerSession>,
    number: u64,
    opcode: u32,
}

impl PeerSession {
    /// Has the peer's kernel drop what it keeps, see
    /// [`Recaller`].
    pub(super) fn recall(&self, nodes: &[RecalledNode], what: Recalled, done: Done) {
        let mut inner = self.inner();
        // It can bring nothing to a next owner any more, so it need not be told what is stale.
        if nodes.is_empty() && inner.connection.is_none() && inner.alone_since.elapsed() > HELD_FOR
        {
            return;
        }
        inner.recall(nodes, what, done);
    }
}

impl Inner {
    fn recall(&mut self, nodes: &[RecalledNode], what: Recalled, done: Done) {
        let over = self.recall_queue.as_ref().zip(self.connection.clone());
        self.recalls.begin(nodes, what, done, |recall| {
            over.is_some_and(|(queue, connection)| queue.send((connection, recall)).is_ok())
        });
    }

    /// Whether the peer may confirm a recall of pages only when it has the answer to a request. It
    /// may look at the root, too.
    fn has_recall_wait(&self, request: &Request<'_>) -> bool {
        let node = request.header.nodeid;
        // A look at a node that the kernel has forgotten is LOOKUP.
        let looks =
            matches!(request.header.opcode, opcode::GETATTR | opcode::STATX | opcode::LOOKUP);
        request.is_for_pages() || looks && (node == ROOT_ID || self.recalls.has(node))
    }
}

impl Answering for SessionReturn {
    fn answer(&self, result: Result<&[u8], Errno>) {
        self.session.finish(self.number, self.opcode, result, Extra::None);
    }
}

fn opcode_of(frame: &RequestFrame) -> u32 {
    Request::parse(&frame.bytes).map_or(opcode::DESTROY, |request| request.header.opcode)
}

/// Whether a second execution is as good as the first one.
pub(super) fn may_repeat(opcode: u32) -> bool {
    matches!(
        opcode,
        opcode::GETATTR
            | opcode::STATX
            | opcode::READ
            | opcode::READLINK
            | opcode::READDIR
            | opcode::READDIRPLUS
            | opcode::OPENDIR
            | opcode::STATFS
            | opcode::GETXATTR
            | opcode::LISTXATTR
            | opcode::LSEEK
            | opcode::GETLK
    )
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
