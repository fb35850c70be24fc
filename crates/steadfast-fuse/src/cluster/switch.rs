//! [`Switch`]: answers the requests of this node's kernel, by itself or through the owner.
//!
//! The mount of a node stays the same while the volume moves: at first no node may own it, then
//! another one, then this one. A node that has become the owner stays it until its mount ends.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use steadfast::volume::Reached;

use super::channel::{Channel, Pending};
use super::closes::Closes;
use super::direct::DirectReads;
use super::executions::{Inherited, Verdict};
use super::frame::AnswerFrame;
use super::guest::Guest;
use super::keeper::Keeper;
use super::link::{Authority, wait_until_sure};
use crate::abi::input::{InterruptIn, IoctlIn};
use crate::abi::opcode;
use crate::buffer::{AnswerBuffer, DATA_MAX, PAGE, Pages};
use crate::errno::Errno;
use crate::executing::is_change;
use crate::filesystem::commands::{argument, give};
use crate::log::log_error;
use crate::metrics::Operations;
use crate::request::Request;
use crate::service::{Answer, Check, Later, Outcome, Return, Service};
use crate::watch::{OPERATIONS, OperationsArgument, ROUND_TRIPS};

/// The file system of this node's kernel, where this node is the owner.
struct LocalService {
    service: Arc<dyn Guest>,
    authority: Authority,
    /// What is known of the requests that were sent to an owner before.
    inherited: Option<Inherited>,
}

/// See the module.
pub(super) struct Switch {
    pub(super) channel: Channel,
    pub(super) keeper: Keeper,
    pub(super) closes: Closes,
    pub(super) direct: DirectReads,
    here: OnceLock<LocalService>,
}

impl Switch {
    pub(super) fn new(keeper: Keeper, direct: DirectReads) -> Switch {
        let (channel, closes) = (Channel::new(), Closes::default());
        Switch { channel, keeper, closes, direct, here: OnceLock::new() }
    }

    /// An answer of the owner, see [`Channel::receive`].
    pub(super) fn answered(&self, answer: AnswerFrame, lost: u64) {
        self.channel.receive(answer, lost, |request, bytes, asked| {
            self.closes.answered(request, bytes, asked);
            self.keeper.limit(request, bytes, asked);
        });
    }

    /// Another owner serves, or this node itself: the kernel must drop what it keeps.
    pub(super) fn forget_kept(&self) {
        self.closes.owner_lost(Instant::now());
        self.keeper.pages.lose();
        self.keeper.recall_all();
    }

    /// The session is lost, see [`Channel::lose_session`].
    pub(super) fn lose_session(&self, reached: Reached) -> u64 {
        let lost = self.channel.lose_session(reached);
        if reached < Reached::All {
            self.closes.lose();
        }
        lost
    }

    /// This node is the owner from now on. `inherited`: what is known of its requests to the owner
    /// before, if the volume has all that the node was told of.
    pub(super) fn own(
        &self,
        service: Arc<dyn Guest>,
        authority: Authority,
        inherited: Option<Inherited>,
    ) {
        self.lose_session(inherited.as_ref().map_or(Reached::Less, Inherited::reached));
        self.forget_kept();
        let _ = self.here.set(LocalService { service, authority, inherited });
        // A worker may have looked before, and adds its request only now; then it looks again.
        self.serve_pending();
    }

    /// The one question that is about this node, not about the volume: see [`ROUND_TRIPS`].
    fn tell_round_trips(&self, request: &Request<'_>, out: &mut AnswerBuffer) -> Option<Outcome> {
        if request.header.opcode != opcode::IOCTL {
            return None;
        }
        let mut arguments = request.arguments();
        let wanted = arguments.take::<IoctlIn>().ok().filter(|wanted| wanted.cmd == OPERATIONS)?;
        let asked = argument::<OperationsArgument>(&mut arguments, &wanted).ok()?;
        let operations = Operations { latency: self.channel.round_trips(), errors: 0 };
        let found = || OperationsArgument::new(ROUND_TRIPS, operations);
        (asked.kind == ROUND_TRIPS).then(|| give(&found(), &wanted, out))
    }

    fn serve_pending(&self) {
        let Some(here) = self.here.get() else { return };
        let mut memory = Pages::new(DATA_MAX / PAGE);
        for (number, pending) in self.channel.take_all() {
            let bytes = pending.bytes.clone();
            let Some(request) = Request::parse(&bytes) else { continue };
            // Without memory no answer fits, so the result is EIO.
            let mut out = AnswerBuffer::new(memory.as_mut().map_or(&mut [], Pages::bytes));
            let back = || Ok(here.return_path(pending.back()));
            let outcome = here.serve_pending(&back, (number, &pending), &request, &mut out);
            let result = match outcome {
                Ok(Answer::Ready) => {
                    self.keeper.limit(&request, out.filled_mut(), pending.asked);
                    Ok(out.filled())
                }
                Ok(Answer::Silent | Answer::Later) => continue,
                Err(errno) => Err(errno),
            };
            if wait_until_sure(&here.authority) {
                pending.answer(result);
            }
        }
    }
}

impl LocalService {
    /// An answer that another thread gives has to wait, too.
    fn return_path(&self, back: Return) -> Return {
        let authority = Arc::clone(&self.authority);
        Return::Checked(Check(Arc::new(move || wait_until_sure(&authority))), Box::new(back))
    }

    /// A request that this node may have sent to an owner before.
    fn serve_pending(
        &self,
        later: Later<'_>,
        (number, pending): (u64, &Pending),
        request: &Request<'_>,
        out: &mut AnswerBuffer,
    ) -> Outcome {
        let verdict = match &self.inherited {
            _ if !pending.repeated || !is_change(request) => Verdict::Execute,
            Some(inherited) => inherited.verdict(number),
            None => Verdict::Unknown,
        };
        match verdict {
            Verdict::Execute => self.service.serve(later, request, out),
            Verdict::Ended(ending) => self.service.answer_again(request, ending, out),
            Verdict::Unknown => Err(Errno(libc::EIO)),
        }
    }

    fn serve(
        &self,
        switch: &Switch,
        later: Later<'_>,
        request: &Request<'_>,
        out: &mut AnswerBuffer,
    ) -> Outcome {
        if switch.channel.must_fail(request) {
            return Err(Errno(libc::ESTALE));
        }
        let asked = Instant::now();
        let back = || Ok(self.return_path(later()?));
        let outcome = self.service.serve(&back, request, out);
        if !matches!(outcome, Ok(Answer::Silent | Answer::Later))
            && !wait_until_sure(&self.authority)
        {
            // The mount ends, and with it all that waits.
            return Ok(Answer::Silent);
        }
        if outcome == Ok(Answer::Ready) {
            switch.keeper.limit(request, out.filled_mut(), asked);
            return after_recalls(switch, &back, request, out);
        }
        outcome
    }
}

/// Lets an answer about attributes wait for recalls of pages.
fn after_recalls(
    switch: &Switch,
    later: Later<'_>,
    request: &Request<'_>,
    out: &AnswerBuffer,
) -> Outcome {
    if !switch.keeper.pages.is_recalling(request, out.filled()) {
        return Ok(Answer::Ready);
    }
    let (back, unique, answer) = (later()?, request.header.unique, out.filled().to_vec());
    switch.keeper.pages.queue(move || {
        if let Err(error) = back.answer(unique, Ok(&answer)) {
            log_error!("cannot answer a request for attributes: {error}");
        }
    });
    Ok(Answer::Later)
}

impl Service for Switch {
    fn serve(&self, later: Later<'_>, request: &Request<'_>, out: &mut AnswerBuffer) -> Outcome {
        if matches!(request.header.opcode, opcode::FORGET | opcode::BATCH_FORGET) {
            self.keeper.forget(request);
        }
        self.keeper.pages.asked(request);
        if let Some(outcome) = self.tell_round_trips(request, out) {
            return outcome;
        }
        if let Some(here) = self.here.get() {
            return here.serve(self, later, request, out);
        }
        self.closes.asked(request);
        if self.closes.answers(request, Instant::now()) {
            return Ok(Answer::Ready);
        }
        // The helper process wants to see what is there after a recall.
        if request.header.opcode == opcode::GETATTR
            && !self.keeper.pages.is_look(request)
            && let Some(spare) = self.channel.spare(request.header.nodeid)
        {
            return if out.put(&spare) { Ok(Answer::Ready) } else { Err(Errno(libc::EIO)) };
        }
        match request.header.opcode {
            opcode::FORGET | opcode::BATCH_FORGET => self.channel.tell(request),
            opcode::INTERRUPT => {
                let unique = request.arguments().take::<InterruptIn>()?.unique;
                if self.channel.interrupt(unique) {
                    self.channel.tell(request);
                }
            }
            // The end of the mount, which no other node has to know of.
            opcode::DESTROY => return Ok(Answer::Ready),
            _ => {
                // A look holds the mount, which must be able to end without an owner.
                let waits = !self.keeper.pages.is_look(request);
                self.channel.ask(later()?, request, (waits, self.direct.wants(request)))?;
                if self.here.get().is_some() {
                    self.serve_pending();
                }
                return Ok(Answer::Later);
            }
        }
        Ok(Answer::Silent)
    }
}
