//! A session of the owner with one peer: it executes the requests of the peer's kernel.
//!
//! A session outlives its connection by [`SESSION_TIME`]. Behind a new connection the peer sends
//! again what was not answered. A request that changes anything is executed once: the session keeps
//! its answer until the peer has it. One that only reads may be executed again, so its answer,
//! which may be long, is not kept.
//!
//! Invariant: nothing is answered while this node does not know that it is the owner.

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use super::frame::{AnswerFrame, FrameKind, Progress, RequestFrame, Told, Writer};
use super::link::{Authority, wait_until_sure};
use crate::abi::output::AttrOut;
use crate::abi::{ROOT_ID, opcode};
use crate::buffer::{AnswerBuffer, DATA_MAX, PAGE, Pages};
use crate::errno::Errno;
use crate::filesystem::recall::{Done, NODES_MAX, Recall, Recalled, RecalledNode};
use crate::io_flusher::set_io_flusher;
use crate::log::log_warning;
use crate::request::Request;
use crate::service::{Answer, Answering, Return, Service};
use crate::validity::tells_attributes;

/// How long the owner keeps what a peer holds after its connection broke.
pub const SESSION_TIME: Duration = Duration::from_secs(10);
/// Threads that execute the requests of one peer. Requests beyond them wait in a queue.
const THREADS: usize = 4;
/// Threads for requests that a recall of pages may wait for. These requests wait for no such
/// recall, unless too many files have pages.
const PAGE_THREADS: usize = 2;
/// Requests that may wait for a thread. Beyond them the connection is not read.
const QUEUE: usize = 64;
/// Most requests of a peer that are not answered, or whose answers it has not confirmed.
const REQUESTS_MAX: usize = 1 << 16;

/// The file system of one peer's kernel.
pub(super) trait Guest: Service {
    /// The kernel is gone: gives back everything that it held.
    fn depart(&self);

    /// The session through which the kernel is reached.
    fn reached_by(&self, session: Weak<PeerSession>);

    /// Ends the locks of a request that closes a file. The kernel does not wait for that request,
    /// so those that it sends later must not overtake this.
    fn end_locks(&self, request: &Request<'_>);

    /// The attributes of the directory in which a request has changed a name. The kernel asks for
    /// them next. `None`: they are not delegated to it.
    fn changed_directory(&self, request: &Request<'_>) -> Option<AttrOut>;

    /// How far the volume is.
    fn progress(&self) -> Progress;

    /// A node to be recalled, with the size of now.
    fn now(&self, node: RecalledNode) -> RecalledNode;
}

/// A recall that the peer has not confirmed.
struct Unconfirmed {
    done: Done,
    nodes: Vec<RecalledNode>,
    /// Whether it is about pages.
    pages: bool,
}

impl Unconfirmed {
    fn has(&self, nodeid: u64) -> bool {
        self.nodes.iter().any(|node| node.nodeid == nodeid)
    }

    /// Nodes whose pages it is about.
    fn pages(&self) -> &[RecalledNode] {
        if self.pages { &self.nodes } else { &[] }
    }
}

enum RequestState {
    /// Not answered yet.
    Running,
    /// The peer may not have this answer.
    Answered(AnswerFrame),
}

#[derive(Clone)]
struct PeerConnection {
    /// Tells connections apart.
    number: u64,
    writer: Writer,
    close: Arc<dyn Fn() + Send + Sync>,
}

struct Inner {
    requests: HashMap<u64, RequestState>,
    connection: Option<PeerConnection>,
    connections: u64,
    /// When the connection broke.
    alone_since: Instant,
    queue: Option<SyncSender<RequestFrame>>,
    /// Those about pages of the peer's kernel.
    page_queue: Option<SyncSender<RequestFrame>>,
    /// What the peer was told last without having asked.
    told: Progress,
    /// Recalls that the peer has not confirmed.
    recalls: HashMap<u64, Unconfirmed>,
    /// Nodes whose pages the peer must drop when it is back.
    missed: HashMap<u64, RecalledNode>,
    /// Number of the last recall.
    recalled: u64,
    /// Recalls, and answers that must not overtake them, have a thread of their own, because a peer
    /// that takes nothing must not make others wait.
    recall_queue: Option<RecallQueue>,
}

/// What is sent over a connection, and not over another one: that may begin with recalls.
type RecallQueue = Sender<(PeerConnection, AnswerFrame)>;

/// See the module.
pub(super) struct PeerSession {
    name: String,
    guest: Arc<dyn Guest>,
    authority: Authority,
    inner: Mutex<Inner>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl PeerSession {
    pub(super) fn start(
        name: String,
        guest: Arc<dyn Guest>,
        authority: Authority,
    ) -> std::io::Result<Arc<PeerSession>> {
        let (queue, received) = sync_channel(QUEUE);
        let (page_queue, about_pages) = sync_channel(QUEUE);
        let (recall_queue, recalls) = channel();
        let inner = Inner {
            requests: HashMap::new(),
            connection: None,
            connections: 0,
            alone_since: Instant::now(),
            queue: Some(queue),
            page_queue: Some(page_queue),
            told: Progress::default(),
            recalls: HashMap::new(),
            missed: HashMap::new(),
            recalled: 0,
            recall_queue: Some(recall_queue),
        };
        let session = Arc::new(PeerSession {
            name,
            guest,
            authority,
            inner: Mutex::new(inner),
            threads: Mutex::default(),
        });
        session.guest.reached_by(Arc::downgrade(&session));
        let started =
            session.start_threads([(received, THREADS), (about_pages, PAGE_THREADS)], recalls);
        started.inspect_err(|_| session.end()).map(|()| session)
    }

    fn start_threads(
        self: &Arc<Self>,
        queues: [(Receiver<RequestFrame>, usize); 2],
        recalls: Receiver<(PeerConnection, AnswerFrame)>,
    ) -> std::io::Result<()> {
        for (received, count) in queues {
            let received = Arc::new(Mutex::new(received));
            for number in 0..count {
                let (executes, received) = (Arc::downgrade(self), Arc::clone(&received));
                let run = move || execute_all(&executes, &received);
                self.threads().push(Builder::new().name(format!("peer-{number}")).spawn(run)?);
            }
        }
        let sends = Arc::downgrade(self);
        let run = move || {
            while let (Ok((over, frame)), Some(session)) = (recalls.recv(), sends.upgrade()) {
                session.send_over(Some(over), &frame);
            }
        };
        self.threads().push(Builder::new().name("peer-recalls".into()).spawn(run)?);
        Ok(())
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Takes a new connection, in place of an earlier one. Returns its number.
    pub(super) fn connect(
        &self,
        writer: Box<dyn Write + Send>,
        close: Arc<dyn Fn() + Send + Sync>,
    ) -> u64 {
        let mut inner = self.inner();
        inner.connections += 1;
        let number = inner.connections;
        inner.told = Progress::default();
        inner.give_up_recalls();
        let connection = PeerConnection { number, writer: Arc::new(Mutex::new(writer)), close };
        if let Some(earlier) = inner.connection.replace(connection) {
            (earlier.close)();
        }
        let missed = std::mem::take(&mut inner.missed);
        let missed: Vec<_> = missed.into_values().map(|node| self.guest.now(node)).collect();
        for missed in missed.chunks(NODES_MAX) {
            inner.recall(missed, Recalled::Pages, Arc::new(Recall::default()).begin());
        }
        number
    }

    /// A connection has broken.
    pub(super) fn disconnect(&self, number: u64) {
        let mut inner = self.inner();
        if inner.connection.as_ref().is_some_and(|connection| connection.number == number) {
            inner.connection = None;
            inner.alone_since = Instant::now();
            inner.give_up_recalls();
        }
    }

    /// Whether the peer has been away for too long.
    pub(super) fn is_abandoned(&self) -> bool {
        let inner = self.inner();
        inner.connection.is_none() && inner.alone_since.elapsed() >= SESSION_TIME
    }

    /// A frame of the peer. Waits while too many requests wait for a thread. Returns whether the
    /// connection goes on.
    pub(super) fn receive(self: &Arc<Self>, frame: RequestFrame) -> bool {
        {
            let mut inner = self.inner();
            match frame.kind {
                FrameKind::Resume => {
                    let pending: HashSet<u64> = frame.numbers.iter().copied().collect();
                    inner.requests.retain(|number, state| {
                        matches!(state, RequestState::Running) || pending.contains(number)
                    });
                    return true;
                }
                FrameKind::Recalled => {
                    let done = inner.recalls.remove(&frame.number);
                    drop(inner);
                    drop(done);
                    return true;
                }
                _ => {
                    for number in &frame.numbers {
                        inner.requests.remove(number);
                    }
                }
            }
            if frame.kind == FrameKind::Request {
                match inner.requests.get(&frame.number) {
                    // The answer comes over the present connection.
                    Some(RequestState::Running) => return true,
                    Some(RequestState::Answered(answer)) => {
                        let answer = answer.clone();
                        self.give(inner, answer, opcode_of(&frame));
                        return true;
                    }
                    None if inner.requests.len() >= REQUESTS_MAX => return false,
                    None => drop(inner.requests.insert(frame.number, RequestState::Running)),
                }
            }
        }
        if let Some(request) = Request::parse(&frame.bytes)
            && request.header.opcode == opcode::RELEASE
        {
            self.guest.end_locks(&request);
        }
        let queue = {
            let inner = self.inner();
            match Request::parse(&frame.bytes)
                .is_some_and(|request| inner.has_recall_wait(&request))
            {
                true => inner.page_queue.clone(),
                false => inner.queue.clone(),
            }
        };
        queue.is_some_and(|queue| queue.send(frame).is_ok())
    }

    fn execute(self: &Arc<Self>, frame: &RequestFrame, memory: &mut [u8]) {
        let Some(request) = Request::parse(&frame.bytes) else {
            return self.finish(frame.number, opcode::DESTROY, Err(Errno(libc::EINVAL)), None);
        };
        let opcode = request.header.opcode;
        let mut out = AnswerBuffer::new(memory);
        let back = || {
            let number = frame.number;
            let session: Arc<dyn Answering> =
                Arc::new(SessionReturn { session: Arc::clone(self), number, opcode });
            Ok(Return::Peer(session))
        };
        let (result, directory) = match self.guest.serve(&back, &request, &mut out) {
            Ok(Answer::Ready) => (Ok(out.filled()), self.guest.changed_directory(&request)),
            Ok(Answer::Silent | Answer::Later) => return,
            Err(errno) => (Err(errno), None),
        };
        if frame.kind == FrameKind::Request {
            self.finish(frame.number, opcode, result, directory);
        }
    }

    /// Sends an answer, and keeps it if the request must not be executed again.
    /// `directory`: see [`AnswerFrame::directory`].
    fn finish(
        &self,
        number: u64,
        opcode: u32,
        result: Result<&[u8], Errno>,
        directory: Option<AttrOut>,
    ) {
        let (error, bytes) = match result {
            Ok(bytes) => (0, bytes.to_vec()),
            Err(errno) => (errno.0, Vec::new()),
        };
        if !wait_until_sure(&self.authority) {
            return;
        }
        let (told, progress) = (Told::Answer, self.guest.progress());
        let answer = AnswerFrame { told, number, error, progress, bytes, directory };
        let mut inner = self.inner();
        if may_repeat(opcode) {
            inner.requests.remove(&number);
        } else if let Some(state) = inner.requests.get_mut(&number) {
            *state = RequestState::Answered(answer.clone());
        }
        self.give(inner, answer, opcode);
    }

    /// Sends an answer over the present connection: the next one may begin with recalls. Attributes
    /// tell how old pages may be, so they do not overtake a recall of these.
    fn give(&self, inner: MutexGuard<'_, Inner>, answer: AnswerFrame, opcode: u32) {
        let recalls_pages = inner.recalls.values().any(|recall| recall.pages);
        let queue = inner.recall_queue.clone().filter(|_| tells_attributes(opcode));
        let Some(connection) = inner.connection.clone() else { return };
        match queue.filter(|_| recalls_pages) {
            Some(queue) => drop(queue.send((connection, answer))),
            None => {
                drop(inner);
                self.send_over(Some(connection), &answer);
            }
        }
    }

    /// Tells the peer how far the volume is, unless it knows that.
    pub(super) fn tell_progress(&self) {
        if !(self.authority)().is_sure() {
            return;
        }
        let progress = self.guest.progress();
        let known = std::mem::replace(&mut self.inner().told, progress);
        if known != progress {
            let (told, bytes) = (Told::Answer, Vec::new());
            let directory = None;
            self.send(&AnswerFrame { told, number: 0, error: 0, progress, bytes, directory });
        }
    }

    fn send(&self, answer: &AnswerFrame) {
        let connection = self.inner().connection.clone();
        self.send_over(connection, answer);
    }

    fn send_over(&self, connection: Option<PeerConnection>, answer: &AnswerFrame) {
        let Some(PeerConnection { number, writer, close }) = connection else { return };
        let sent = {
            let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
            answer.write(&mut **writer)
        };
        if sent.is_err() {
            // The reader of this connection ends, and the peer makes another one.
            close();
            self.disconnect(number);
        }
    }

    /// Ends the session: what the peer held is given back.
    pub(super) fn end(&self) {
        {
            let mut inner = self.inner();
            inner.queue = None;
            inner.page_queue = None;
            inner.recall_queue = None;
            inner.give_up_recalls();
            if let Some(connection) = inner.connection.take() {
                (connection.close)();
            }
        }
        for thread in std::mem::take(&mut *self.threads()) {
            if thread.join().is_err() {
                log_warning!("a thread of node {} has ended with an internal error", self.name);
            }
        }
        self.guest.depart();
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn execute_all(session: &Weak<PeerSession>, received: &Mutex<Receiver<RequestFrame>>) {
    set_io_flusher();
    let Ok(mut memory) = Pages::new(DATA_MAX / PAGE) else { return };
    loop {
        let frame = received.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let (Ok(frame), Some(session)) = (frame, session.upgrade()) else { return };
        session.execute(&frame, memory.bytes());
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
    /// [`Recaller`](crate::filesystem::recall::Recaller).
    pub(super) fn recall(&self, nodes: &[RecalledNode], what: Recalled, done: Done) {
        self.inner().recall(nodes, what, done);
    }
}

impl Inner {
    fn recall(&mut self, nodes: &[RecalledNode], what: Recalled, done: Done) {
        self.recalled += 1;
        let number = self.recalled;
        let unconfirmed =
            Unconfirmed { done, nodes: nodes.to_vec(), pages: what == Recalled::Pages };
        let recall = AnswerFrame::recall(number, nodes, what);
        let over = self.recall_queue.as_ref().zip(self.connection.clone());
        if over.is_some_and(|(queue, connection)| queue.send((connection, recall)).is_ok()) {
            self.recalls.insert(number, unconfirmed);
        } else {
            self.give_up(unconfirmed);
        }
    }

    /// Whether the peer may confirm a recall of pages only when it has the answer to a request. It
    /// may look at the root, too.
    fn has_recall_wait(&self, request: &Request<'_>) -> bool {
        let node = request.header.nodeid;
        // A look at a node that the kernel has forgotten is LOOKUP.
        let looks =
            matches!(request.header.opcode, opcode::GETATTR | opcode::STATX | opcode::LOOKUP);
        request.is_for_pages()
            || looks && (node == ROOT_ID || self.recalls.values().any(|recall| recall.has(node)))
    }

    /// Without the connection nothing is confirmed.
    fn give_up_recalls(&mut self) {
        for (_, recall) in std::mem::take(&mut self.recalls) {
            self.give_up(recall);
        }
    }

    fn give_up(&mut self, recall: Unconfirmed) {
        self.missed.extend(recall.pages().iter().map(|node| (node.nodeid, *node)));
        recall.done.never();
    }
}

impl Answering for SessionReturn {
    fn answer(&self, result: Result<&[u8], Errno>) {
        self.session.finish(self.number, self.opcode, result, None);
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
