//! [`Members`]: server and state of each member of the array.

use parking_lot::MutexGuard;

use super::seal::Log;
use super::{Array, ArrayError, Call, Fleet, Outcome, Superblock};
use crate::client::Ask;

/// State of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Holds everything that it should hold.
    Good,
    /// Holds no valid data.
    Lost,
    /// Takes new records and receives the old ones.
    Rebuilding,
}

impl State {
    pub(crate) fn number(self) -> u8 {
        match self {
            State::Good => 0,
            State::Lost => 1,
            State::Rebuilding => 2,
        }
    }

    pub(crate) fn of_number(number: u8) -> Option<State> {
        [State::Good, State::Lost, State::Rebuilding]
            .into_iter()
            .find(|state| state.number() == number)
    }
}

/// Server and state of each member.
pub(crate) struct Members {
    /// The superblock on every good server; `index` is meaningless here.
    pub(crate) superblock: Superblock,
    /// Server (index in the fleet) of each member.
    pub(crate) seats: Vec<usize>,
    /// The newest stamp and epoch found at the open.
    pub(crate) found: (u64, u64),
    /// The newest epoch that every good member certainly has.
    pub(crate) complete: u64,
    /// Epochs to skip before the next one.
    pub(crate) skip: u64,
    /// Whether a server can make single writes durable, by index in the fleet.
    pub(crate) fua: Vec<bool>,
    /// Whether a server can trim, by index in the fleet.
    pub(crate) trim: Vec<bool>,
    /// Broken connections of each server, counted before the answer to the first write that no
    /// flush covers.
    pub(crate) breaks: Vec<u64>,
    /// A change was not answered, or not at the first try: it may still be in flight.
    pub(crate) unanswered: bool,
    /// More members were lost than the policy survives: every request is refused.
    pub(crate) failed: bool,
    /// This client has closed the array: nothing is written any more.
    pub(crate) closed: bool,
    /// Why the newest epoch could not be noted; the array has failed for that reason.
    pub(crate) unnoted: Option<String>,
}

impl Members {
    pub(crate) fn state(&self, member: usize) -> State {
        self.superblock.states.get(member).copied().unwrap_or(State::Lost)
    }

    pub(crate) fn seat(&self, member: usize) -> usize {
        self.seats.get(member).copied().unwrap_or(usize::MAX)
    }

    /// Members in this state, in order.
    pub(crate) fn in_state(&self, wanted: State) -> impl Iterator<Item = usize> + '_ {
        (0..self.seats.len()).filter(move |member| self.state(*member) == wanted)
    }

    /// Members that take writes, each with its server.
    pub(crate) fn writable_seats(&self) -> Vec<(usize, usize)> {
        let takes = |member: &usize| self.state(*member) != State::Lost;
        (0..self.seats.len()).filter(takes).map(|member| (member, self.seat(member))).collect()
    }

    pub(crate) fn good(&self) -> usize {
        self.in_state(State::Good).count()
    }

    /// Marks these members as lost. Returns whether the state of any of them changed.
    pub(crate) fn strike(&mut self, lost: &[usize]) -> bool {
        let mut changed = false;
        for member in lost {
            if let Some(state) = self.superblock.states.get_mut(*member)
                && *state != State::Lost
            {
                *state = State::Lost;
                changed = true;
            }
        }
        self.unanswered |= changed;
        changed
    }
}

impl<F: Fleet> Array<F> {
    /// Fails if changes are not allowed, and as [`alive`](Self::alive).
    pub(crate) fn writes_allowed(&self) -> Result<(), ArrayError> {
        if self.options.read_only {
            return Err(ArrayError::ReadOnly);
        }
        self.alive()
    }

    /// Locks the log for a change. Fails as [`writes_allowed`](Self::writes_allowed). The array
    /// cannot be closed while the lock is held.
    pub(crate) fn log_to_write(&self) -> Result<MutexGuard<'_, Log>, ArrayError> {
        let log = self.log.lock();
        self.writes_allowed()?;
        Ok(log)
    }

    /// Fails after a close, and if another client has taken over. Fails also if more members were
    /// lost than the policy survives, or if an epoch could not be noted.
    pub(crate) fn alive(&self) -> Result<(), ArrayError> {
        if self.fleet.fenced() {
            return Err(ArrayError::Fenced);
        }
        let members = self.members.read();
        match &members.unnoted {
            Some(why) => Err(ArrayError::Witness(why.clone())),
            None if members.closed => Err(ArrayError::Closed),
            None if members.failed => Err(ArrayError::TooManyLost),
            None => Ok(()),
        }
    }

    /// Takes members out of the array, before any answer depends on data that they lack. The log is
    /// locked.
    pub(crate) fn lose(&self, lost: &[usize]) -> Result<(), ArrayError> {
        let changed = self.members.write().strike(lost);
        if changed {
            self.tally.losses(lost.len() as u64);
            self.publish()?;
        }
        self.alive()
    }

    /// As [`lose`](Self::lose), after the remaining members have taken a write. If the new epoch
    /// cannot be noted, the map must still agree with the servers. The array must be
    /// [`alive`](Self::alive) before a flush is acknowledged.
    pub(crate) fn lose_after_write(&self, lost: &[usize]) -> Result<(), ArrayError> {
        match self.lose(lost) {
            Err(ArrayError::Witness(_)) => Ok(()),
            lost => lost,
        }
    }

    /// Writes the present states under a new epoch to every server that takes writes, until all
    /// remaining servers have it. The log is locked. A read-only client changes its own memory
    /// only.
    pub(crate) fn publish(&self) -> Result<(), ArrayError> {
        if self.options.read_only {
            let mut members = self.members.write();
            members.failed |= members.good() < self.shape.data;
            return if members.failed { Err(ArrayError::TooManyLost) } else { Ok(()) };
        }
        loop {
            if self.fleet.fenced() {
                return Err(ArrayError::Fenced);
            }
            let (superblock, seats) = {
                let mut members = self.members.write();
                if members.closed {
                    return Err(ArrayError::Closed);
                }
                if members.failed || members.good() < self.shape.data {
                    members.failed = true;
                    return Err(ArrayError::TooManyLost);
                }
                members.superblock.epoch += 1 + std::mem::take(&mut members.skip);
                members.superblock.previous = members.complete;
                (members.superblock.clone(), members.writable_seats())
            };
            let refused = self.put_superblock(&superblock, &seats);
            if refused.is_empty() {
                self.members.write().complete = superblock.epoch;
                // Outside the engine's locks, no epoch is visible that is not on every server.
                return self.witness(superblock.order());
            }
            self.members.write().strike(&refused);
        }
    }

    /// Writes a superblock to these members and makes it the proof of their later connections.
    /// Returns the members that have not taken it.
    pub(crate) fn put_superblock(
        &self,
        superblock: &Superblock,
        seats: &[(usize, usize)],
    ) -> Vec<usize> {
        let fua = self.members.read().fua.clone();
        let offset = Superblock::offset(superblock.epoch);
        let bytes: Vec<Vec<u8>> = seats
            .iter()
            .map(|(member, _)| Superblock { index: *member, ..superblock.clone() }.encode())
            .collect();
        let pieces: Vec<[&[u8]; 1]> = bytes.iter().map(|bytes| [&bytes[..]]).collect();
        let mut refused: Vec<usize> = seats.iter().map(|(_, seat)| *seat).collect();
        // Two whole attempts: a flush answered on a new connection does not cover what went over
        // the old one.
        for _ in 0..2 {
            let before = self.breaks();
            let durable = |seat: usize| fua.get(seat).copied().unwrap_or(false);
            let left = seats.iter().zip(&pieces).filter(|((_, seat), _)| refused.contains(seat));
            let mut writes: Vec<Call<'_>> = left
                .map(|((_, seat), pieces)| {
                    Call::new(*seat, offset, Ask::Write(pieces, durable(*seat)))
                })
                .collect();
            if writes.is_empty() {
                break;
            }
            self.fleet.round(&mut writes, self.options.patience_ms);
            let done = writes.iter().filter(|call| call.outcome == Outcome::Done);
            let (all, rest): (Vec<usize>, Vec<usize>) =
                done.map(|call| call.server).partition(|seat| durable(*seat));
            let mut flushes: Vec<Call<'_>> =
                rest.iter().map(|seat| Call::new(*seat, 0, Ask::Flush)).collect();
            self.fleet.round(&mut flushes, self.options.patience_ms);
            let flushed = flushes.iter().filter(|call| call.outcome == Outcome::Done);
            let kept = flushed.map(|call| call.server).filter(|seat| {
                before.get(*seat).is_some_and(|count| self.fleet.breaks(*seat) == *count)
            });
            let written: Vec<usize> = all.into_iter().chain(kept).collect();
            refused.retain(|seat| !written.contains(seat));
        }
        for ((_, seat), bytes) in seats.iter().zip(&bytes) {
            self.fleet.set_proof(*seat, offset, bytes);
        }
        let without = seats.iter().filter(|(_, seat)| refused.contains(seat));
        without.map(|(member, _)| *member).collect()
    }

    pub(super) fn witness(&self, order: (u64, u64)) -> Result<(), ArrayError> {
        match &self.options.witness {
            Some(witness) => {
                let uuid = self.members.read().superblock.uuid;
                witness.note(&uuid, order).map_err(|why| {
                    // Later changes would not be remembered.
                    let mut members = self.members.write();
                    (members.failed, members.unnoted) = (true, Some(why.clone()));
                    ArrayError::Witness(why)
                })
            }
            None => Ok(()),
        }
    }

    /// Broken connections of each server so far.
    pub(crate) fn breaks(&self) -> Vec<u64> {
        (0..self.fleet.servers()).map(|server| self.fleet.breaks(server)).collect()
    }

    /// As [`insist`](Self::insist), for writes that the next flush must cover. Connections that
    /// break from here on matter to that flush; those that broke before do not.
    pub(crate) fn insist_unflushed(&self, log: &mut Log, calls: &mut [Call<'_>]) {
        let mut before = self.breaks();
        self.fleet.round(calls, self.options.patience_ms);
        let between = self.breaks();
        let retried = |outcome| matches!(outcome, Outcome::Lost | Outcome::Late);
        for call in calls.iter().filter(|call| retried(call.outcome)) {
            if let (Some(before), Some(count)) =
                (before.get_mut(call.server), between.get(call.server))
            {
                *before = *count;
            }
        }
        self.again(calls, retried);
        if !log.unflushed {
            self.members.write().breaks = before;
            log.unflushed = true;
        }
    }

    /// Makes calls, and repeats once those without an answer.
    pub(crate) fn insist(&self, calls: &mut [Call<'_>]) {
        if calls.is_empty() {
            return;
        }
        self.fleet.round(calls, self.options.patience_ms);
        self.again(calls, |outcome| matches!(outcome, Outcome::Lost | Outcome::Late));
    }

    /// Repeats the calls with a matching outcome.
    pub(crate) fn again(&self, calls: &mut [Call<'_>], which: impl Fn(Outcome) -> bool) {
        let mut retry: Vec<Call<'_>> = Vec::new();
        let mut places = Vec::new();
        for (place, call) in calls.iter_mut().enumerate() {
            if which(call.outcome) {
                let ask = match &mut call.ask {
                    Ask::Read(buffer) => Ask::Read(buffer),
                    Ask::Write(pieces, durable) => Ask::Write(pieces, *durable),
                    Ask::Flush => Ask::Flush,
                    Ask::Trim(length) => Ask::Trim(*length),
                };
                retry.push(Call::new(call.server, call.offset, ask));
                places.push(place);
            }
        }
        if retry.is_empty() {
            return;
        }
        if retry.iter().any(|call| matches!(call.ask, Ask::Write(..) | Ask::Trim(_))) {
            self.members.write().unanswered = true;
        }
        self.fleet.round(&mut retry, self.options.patience_ms);
        let outcomes: Vec<Outcome> = retry.iter().map(|call| call.outcome).collect();
        for (place, outcome) in places.into_iter().zip(outcomes) {
            if let Some(call) = calls.get_mut(place) {
                call.outcome = outcome;
            }
        }
    }
}
