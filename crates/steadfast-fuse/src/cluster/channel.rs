//! A peer's side: the requests of this node's kernel that the owner has not answered.
//!
//! A request waits here until an owner answers it, however many connections that takes. After a
//! broken connection to the same owner everything is sent again, and the owner executes nothing
//! twice ([`super::session`]). Another node may have become the owner, or the owner may have ended
//! the session. Then this node does not know the outcome of what was sent: see [`fate`].
//!
//! Invariant: each request of the kernel is answered once. A program that waits for one may be
//! interrupted as long as the request was not sent.

use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use steadfast::volume::Reached;
use zerocopy::FromBytes;

use super::frame::{AnswerFrame, FrameKind, NUMBERS_MAX, RequestFrame, Writer};
use super::holdings::{HELD_FOR, Holdings};
use super::session::may_repeat;
use super::spares::{AnswerParts, Spares};
use super::unsynced::Unsynced;
use crate::abi::input::{InHeader, IoctlIn, ReadIn};
use crate::abi::output::AttrOut;
use crate::abi::{flags, opcode};
use crate::errno::Errno;
use crate::executing::is_change;
use crate::filesystem::recall::RecalledNode;
use crate::ioctl;
use crate::log::log_error;
use crate::metrics::Histogram;
use crate::request::Request;
use crate::service::Return;

/// A request that is not answered.
pub(super) struct Pending {
    back: Return,
    unique: u64,
    opcode: u32,
    pub(super) bytes: Vec<u8>,
    /// When it has arrived.
    pub(super) asked: Instant,
    sent: bool,
    /// It was sent to an owner that is no more.
    pub(super) repeated: bool,
    /// The present owner may not know whether that one has executed it. The owner after this one
    /// cannot know it.
    doubtful: bool,
}

impl Pending {
    /// Gives the kernel its answer.
    pub(super) fn answer(self, result: Result<&[u8], Errno>) {
        if let Err(error) = self.back.answer(self.unique, result) {
            log_error!("cannot answer request {}: {error}", self.opcode);
        }
    }

    /// Whether an owner may have executed it.
    fn was_sent(&self) -> bool {
        self.sent || self.repeated
    }

    /// Where the answer goes.
    pub(super) fn back(&self) -> Return {
        self.back.clone()
    }
}

/// What becomes of a request that was sent to an owner that is no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It goes to the next owner.
    Repeat,
    /// The file is as good as closed.
    Done,
    Fail(i32),
}

/// `has_all`: the next owner's volume has all that this node was told of, and its open files and
/// locks. That owner knows which changes are done ([`super::executions`]), but for those of
/// commands. Of whatever else changes nothing a second execution is as good as the first one.
fn fate(request: &Request<'_>, has_all: bool) -> Fate {
    match request.header.opcode {
        opcode::LOOKUP => Fate::Repeat,
        other if may_repeat(other) => Fate::Repeat,
        opcode::IOCTL if !sets_a_point(request) => Fate::Fail(libc::EIO),
        _ if has_all => Fate::Repeat,
        opcode::RELEASE | opcode::RELEASEDIR | opcode::FLUSH => Fate::Done,
        // What it was to make durable may be lost.
        opcode::FSYNC | opcode::FSYNCDIR | opcode::SYNCFS => Fate::Fail(libc::ESTALE),
        opcode::SETLK | opcode::SETLKW => Fate::Fail(libc::ESTALE),
        // It may be done or not.
        _ => Fate::Fail(libc::EIO),
    }
}

fn sets_a_point(request: &Request<'_>) -> bool {
    request.arguments().take::<IoctlIn>().is_ok_and(|wanted| wanted.cmd == ioctl::TRANSACT)
}

/// The bytes of a READ that may be answered with a plan.
fn with_plan(request: &Request<'_>) -> Vec<u8> {
    let mut bytes = request.bytes.to_vec();
    if let Ok((wanted, _)) = ReadIn::mut_from_prefix(&mut bytes[size_of::<InHeader>()..]) {
        wanted.read_flags |= flags::read::PLAN;
    }
    bytes
}

/// Most pings whose answers count: later ones tell more.
const PINGS_MAX: usize = 8;

/// When the owner has surely known this session. Times go on while the machine sleeps.
struct Contact {
    /// A moment before it told so.
    known: Duration,
    /// The last pings without an answer: their numbers, and when they were sent.
    pings: VecDeque<(u64, Duration)>,
    /// The owner has ended. Whether that was too long after `known`: it may have ended the session
    /// before.
    expired: Option<bool>,
}

impl Contact {
    fn since(known: Duration) -> Contact {
        Contact { known, pings: VecDeque::new(), expired: None }
    }
}

/// The time since the machine was started.
pub(super) fn since_boot() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

struct ChannelState {
    /// Number of the last request.
    number: u64,
    pending: BTreeMap<u64, Pending>,
    /// Answers that the owner does not know to have arrived.
    arrived: Vec<u64>,
    connection: Option<(Writer, Arc<dyn Fn() + Send + Sync>)>,
    /// Number of the last connection.
    connections: u64,
    /// How many sessions were lost.
    lost: u64,
    unsynced: Unsynced,
    spares: Spares,
    holdings: Holdings,
    contact: Contact,
    round_trips: Histogram,
}

/// See the module.
pub(super) struct Channel(Mutex<ChannelState>);

impl Channel {
    pub(super) fn new() -> Channel {
        Channel(Mutex::new(ChannelState {
            number: 0,
            pending: BTreeMap::new(),
            arrived: Vec::new(),
            connection: None,
            connections: 0,
            lost: 0,
            unsynced: Unsynced::default(),
            spares: Spares::default(),
            holdings: Holdings::default(),
            contact: Contact::since(Duration::ZERO),
            round_trips: Histogram::default(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, ChannelState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request, and sends it if there is a connection. `waits`: it may wait for one.
    /// `planned`: it is a READ that the owner may answer with a plan.
    ///
    /// # Errors
    /// ESTALE: an fsync that could not tell the truth, see [`super::unsynced`]. EIO: there is no
    /// connection, and it must not wait.
    pub(super) fn ask(
        &self,
        back: Return,
        request: &Request<'_>,
        (waits, planned): (bool, bool),
    ) -> Result<(), Errno> {
        let (frame, writer) = {
            let mut state = self.state();
            if !waits && state.connection.is_none() {
                return Err(Errno(libc::EIO));
            }
            if state.unsynced.must_fail(request) {
                return Err(Errno(libc::ESTALE));
            }
            state.number += 1;
            let number = state.number;
            state.spares.asked(request, number);
            let sent = state.connection.is_some();
            let (unique, opcode) = (request.header.unique, request.header.opcode);
            let bytes = request.bytes.to_vec();
            let asked = Instant::now();
            let (repeated, doubtful) = (false, false);
            let pending = Pending { back, unique, opcode, bytes, asked, sent, repeated, doubtful };
            state.pending.insert(number, pending);
            let Some((writer, _)) = &state.connection else { return Ok(()) };
            let writer = Arc::clone(writer);
            let numbers = state.take_arrived();
            let bytes = if planned { with_plan(request) } else { request.bytes.to_vec() };
            (RequestFrame { kind: FrameKind::Request, number, numbers, bytes }, writer)
        };
        self.send(&writer, &frame);
        Ok(())
    }

    /// Asks the owner for the data of a READ that it has answered with a plan, unless more sessions
    /// than `lost` are lost now. Without a connection the next one does that.
    pub(super) fn ask_for_data(&self, number: u64, lost: u64) {
        let (frame, writer) = {
            let mut state = self.state();
            let Some(pending) = state.pending.get(&number).filter(|_| state.lost == lost) else {
                return;
            };
            let bytes = pending.bytes.clone();
            let Some((writer, _)) = &state.connection else { return };
            let writer = Arc::clone(writer);
            let numbers = state.take_arrived();
            (RequestFrame { kind: FrameKind::Request, number, numbers, bytes }, writer)
        };
        self.send(&writer, &frame);
    }

    /// Sends a request without an answer. Without a connection it is lost, like the state of the
    /// session that it is about.
    pub(super) fn tell(&self, request: &Request<'_>) {
        let writer = match &self.state().connection {
            Some((writer, _)) => Arc::clone(writer),
            None => return,
        };
        let bytes = request.bytes.to_vec();
        self.send(
            &writer,
            &RequestFrame { kind: FrameKind::OneWay, number: 0, numbers: Vec::new(), bytes },
        );
    }

    /// A signal for a program that waits for the request `unique`. Returns whether the owner has to
    /// be told.
    pub(super) fn interrupt(&self, unique: u64) -> bool {
        let waiting = {
            let mut state = self.state();
            let found = state.pending.iter().find(|(_, pending)| pending.unique == unique);
            let Some((number, pending)) = found else { return false };
            if pending.was_sent() {
                return pending.opcode == opcode::SETLKW;
            }
            let number = *number;
            state.pending.remove(&number)
        };
        if let Some(waiting) = waiting {
            waiting.answer(Err(Errno(libc::EINTR)));
        }
        false
    }

    fn send(&self, writer: &Writer, frame: &RequestFrame) {
        let bytes = frame.encode();
        let sent = writer.lock().unwrap_or_else(PoisonError::into_inner).write_all(&bytes);
        if sent.is_err() {
            // The reader ends, and connects again.
            self.close(Some(writer));
        }
    }

    /// Confirms recalls, and pings after each `pause`, until there can be no more recalls.
    pub(super) fn attend(&self, recalls: &Receiver<(u64, u64)>, pause: Duration) {
        let mut next = Instant::now() + pause;
        loop {
            let left = next.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.ping();
                next = Instant::now() + pause;
            }
            match recalls.recv_timeout(left) {
                Ok(recall) => self.confirm(recall),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Confirms a recall that has come over this connection.
    fn confirm(&self, (connection, number): (u64, u64)) {
        let state = self.state();
        let present = state.connection.as_ref().filter(|_| state.connections == connection);
        let writer = present.map(|(writer, _)| Arc::clone(writer));
        drop(state);
        if let Some(writer) = writer {
            let (kind, numbers, bytes) = (FrameKind::Recalled, Vec::new(), Vec::new());
            self.send(&writer, &RequestFrame { kind, number, numbers, bytes });
        }
    }

    /// Uses a new connection to the same session: everything that is not answered is sent again.
    /// `greeted`: when the owner was asked for it. Returns its number.
    pub(super) fn connect(
        &self,
        writer: Box<dyn Write + Send>,
        close: Arc<dyn Fn() + Send + Sync>,
        greeted: Duration,
    ) -> u64 {
        let writer = Arc::new(Mutex::new(writer));
        let connection;
        let frames: Vec<RequestFrame> = {
            let mut state = self.state();
            state.connections += 1;
            connection = state.connections;
            state.connection = Some((Arc::clone(&writer), close));
            state.contact = Contact::since(greeted);
            state.arrived.clear();
            let again = |(number, pending): (&u64, &mut Pending)| {
                pending.sent = true;
                let (number, bytes) = (*number, pending.bytes.clone());
                let kind = match pending.repeated {
                    true => FrameKind::Repeated,
                    false => FrameKind::Request,
                };
                RequestFrame { kind, number, numbers: Vec::new(), bytes }
            };
            let numbers: Vec<u64> = state.pending.keys().copied().collect();
            let frames = state.pending.iter_mut().map(again).collect();
            // With more numbers than fit, answers that have arrived are kept for the session's
            // time.
            if numbers.len() > NUMBERS_MAX {
                frames
            } else {
                // Requests with later numbers may overtake it.
                let (kind, number, bytes) = (FrameKind::Resume, state.number, Vec::new());
                let resume = RequestFrame { kind, number, numbers, bytes };
                std::iter::once(resume).chain(frames).collect()
            }
        };
        for frame in frames {
            self.send(&writer, &frame);
        }
        connection
    }

    /// The session is lost, or there was none: answers what was sent and is not repeated. `reached`:
    /// how the volume compares with what this node was told of. If it has all of it, the owner has
    /// the node's open files and locks. Returns how many sessions were lost.
    pub(super) fn lose_session(&self, reached: Reached) -> u64 {
        let has_all = reached >= Reached::All;
        let mut done = Vec::new();
        let lost = {
            let mut state = self.state();
            state.unsynced.owner_changed(has_all);
            state.lost += 1;
            let next = state.number + 1;
            state.spares.lose(next);
            if !has_all {
                state.holdings = Holdings::default();
            }
            let sent: Vec<u64> = state
                .pending
                .iter()
                .filter(|(_, pending)| pending.was_sent())
                .map(|(number, _)| *number)
                .collect();
            // What was not sent may not confirm what is lost, either.
            let ChannelState { pending, unsynced, .. } = &mut *state;
            let confirms: Vec<u64> = pending
                .iter()
                .filter(|(_, pending)| !pending.was_sent())
                .filter_map(|(number, pending)| Some((*number, Request::parse(&pending.bytes)?)))
                .filter(|(_, request)| unsynced.must_fail(request))
                .map(|(number, _)| number)
                .collect();
            for number in confirms {
                let pending = state.pending.remove(&number);
                done.extend(pending.map(|pending| (pending, Err(Errno(libc::ESTALE)))));
            }
            for number in sent {
                let Some(mut pending) = state.pending.remove(&number) else { continue };
                let fate = Request::parse(&pending.bytes).map(|request| match pending.doubtful {
                    true if is_change(&request) => Fate::Fail(libc::EIO),
                    _ => fate(&request, has_all),
                });
                match fate.unwrap_or(Fate::Fail(libc::EIO)) {
                    Fate::Repeat => {
                        (pending.sent, pending.repeated) = (false, true);
                        pending.doubtful |= reached != Reached::Same;
                        state.pending.insert(number, pending);
                    }
                    Fate::Done => done.push((pending, Ok(()))),
                    Fate::Fail(errno) => done.push((pending, Err(Errno(errno)))),
                }
            }
            state.lost
        };
        for (pending, result) in done {
            pending.answer(result.map(|()| &[][..]));
        }
        lost
    }

    /// Calls `what` with the request that an answer is for, if it is pending.
    pub(super) fn pending<T>(
        &self,
        number: u64,
        what: impl FnOnce(&Request<'_>) -> T,
    ) -> Option<T> {
        let state = self.state();
        Some(what(&Request::parse(&state.pending.get(&number)?.bytes)?))
    }

    /// The connection is over: answers the pending requests that must not wait for another one.
    pub(super) fn give_up(&self, which: impl Fn(&Request<'_>) -> bool) {
        let given_up: Vec<Pending> = {
            let mut state = self.state();
            let is_one = |(number, pending): (&u64, &Pending)| {
                let request = Request::parse(&pending.bytes)?;
                which(&request).then_some(*number)
            };
            let numbers: Vec<u64> = state.pending.iter().filter_map(is_one).collect();
            numbers.iter().filter_map(|number| state.pending.remove(number)).collect()
        };
        for pending in given_up {
            pending.answer(Err(Errno(libc::EIO)));
        }
    }

    /// The attributes that the owner would tell of a node, if this node has them to spare.
    pub(super) fn spare(&self, nodeid: u64) -> Option<AttrOut> {
        self.state().spares.take(nodeid, Instant::now())
    }

    /// The owner recalls what is delegated of nodes.
    pub(super) fn recall(&self, nodes: &[RecalledNode]) {
        let mut state = self.state();
        let next = state.number + 1;
        state.spares.recall(nodes, next);
    }

    /// Asks the owner for a sign. One that is not sure gives none.
    fn ping(&self) {
        let (number, writer) = {
            let mut state = self.state();
            let Some((writer, _)) = &state.connection else { return };
            let writer = Arc::clone(writer);
            state.number += 1;
            let number = state.number;
            let pings = &mut state.contact.pings;
            if pings.len() >= PINGS_MAX {
                pings.pop_front();
            }
            pings.push_back((number, since_boot()));
            (number, writer)
        };
        let (kind, numbers, bytes) = (FrameKind::Ping, Vec::new(), Vec::new());
        self.send(&writer, &RequestFrame { kind, number, numbers, bytes });
    }

    /// The owner knew this session when a ping came.
    pub(super) fn goes_on(&self, number: u64) {
        let contact = &mut self.state().contact;
        if let Some((_, sent)) = contact.pings.iter().find(|(pinged, _)| *pinged == number) {
            contact.known = *sent;
            contact.pings.retain(|(pinged, _)| *pinged > number);
        }
    }

    /// The owner says that it ends: it knows this session, and gives nothing of it away any more.
    pub(super) fn owner_says_it_ends(&self) {
        self.state().contact.expired.get_or_insert(false);
    }

    /// Another node may be the owner from now on. The first time after a connection counts: the
    /// owner of one term does not come back.
    pub(super) fn owner_ends(&self, now: Duration) {
        let contact = &mut self.state().contact;
        contact.expired.get_or_insert(now.saturating_sub(contact.known) > HELD_FOR);
    }

    /// The owner is no more: no answer of it counts from now on. Returns what this node's programs
    /// surely have there. What was sent waits until it is known what the next owner has.
    pub(super) fn end_session(&self) -> Holdings {
        let mut state = self.state();
        state.lost += 1;
        let Contact { known, expired, .. } = state.contact;
        match expired.unwrap_or_else(|| since_boot().saturating_sub(known) > HELD_FOR) {
            true => Holdings::unsure(),
            false => state.holdings.clone(),
        }
    }

    /// How many sessions were lost, or have ended.
    pub(super) fn lost(&self) -> u64 {
        self.state().lost
    }

    /// An answer of the owner, unless more sessions than `lost` are lost now: it may have waited.
    /// `limit` shortens the time for which the kernel may keep it, given when the request has
    /// arrived.
    pub(super) fn receive(
        &self,
        mut answer: AnswerFrame,
        lost: u64,
        limit: impl FnOnce(&Request<'_>, &mut [u8], Instant),
    ) {
        let pending = {
            let mut state = self.state();
            if state.lost != lost {
                return;
            }
            state.unsynced.reached(answer.progress);
            // Without a number it answers nothing.
            let Some(pending) = state.pending.remove(&answer.number) else { return };
            if pending.opcode != opcode::SETLKW {
                state.round_trips.count_one(pending.asked.elapsed());
            }
            if !may_repeat(pending.opcode) && state.arrived.len() < NUMBERS_MAX {
                state.arrived.push(answer.number);
            }
            if let Some(request) = Request::parse(&pending.bytes) {
                state.unsynced.answered(&request, &answer);
                let result = if answer.error == 0 { Ok(&answer.bytes[..]) } else { Err(()) };
                state.holdings.answered(&request, result);
                let ChannelState { spares, pending: others, number, .. } = &mut *state;
                let others = others.values().filter_map(|other| Request::parse(&other.bytes));
                let told = AnswerParts {
                    answer: (answer.error == 0).then_some(&answer.bytes[..]),
                    directory: answer.directory.as_ref(),
                    asked: pending.asked,
                };
                spares.answered(&request, &told, answer.number, *number + 1, others);
                if answer.error == 0 {
                    limit(&request, &mut answer.bytes, pending.asked);
                }
            }
            pending
        };
        pending.answer(match answer.error {
            0 => Ok(&answer.bytes),
            errno => Err(Errno(errno)),
        });
    }

    /// Ends the present connection, or only if it is `this` one.
    pub(super) fn close(&self, this: Option<&Writer>) {
        let mut state = self.state();
        if let Some((writer, close)) = &state.connection
            && this.is_none_or(|this| Arc::ptr_eq(this, writer))
        {
            close();
            state.connection = None;
        }
    }

    /// See [`crate::watch::ROUND_TRIPS`].
    pub(super) fn round_trips(&self) -> Histogram {
        self.state().round_trips.clone()
    }

    /// Takes everything that waits, with its numbers: this node answers it from now on.
    pub(super) fn take_all(&self) -> Vec<(u64, Pending)> {
        std::mem::take(&mut self.state().pending).into_iter().collect()
    }

    /// Whether an fsync must fail, see [`super::unsynced`]. For the node that has become the owner.
    pub(super) fn must_fail(&self, request: &Request<'_>) -> bool {
        self.state().unsynced.must_fail(request)
    }
}

impl ChannelState {
    fn take_arrived(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.arrived)
    }
}

#[cfg(test)]
#[path = "channel_tests.rs"]
mod tests;
