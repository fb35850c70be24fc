//! A volume and the model side by side: every operation is done on both and what they say is compared.

mod drain;

use std::collections::BTreeSet;
use std::sync::Arc;

use steadfast::fs::{NewNode, SetAttributes, SetTime};
use steadfast::{InodeNumber, Timestamp, TransactionMask};

use crate::compare::{Depth, compare, compare_attributes, compare_snapshots};
use crate::digest::Digest;
use crate::fault::Fault;
use crate::ledger::{Ledger, Point};
use crate::model::{Limits, Model, State};
use crate::operation::{ALL_SLOTS, Change, Make, Operation, Place, Time, caller, snapshot_name, xattr_name};
use crate::platform::Clock;
use crate::random::pattern_vec;
use crate::subject::{Call, Reply, Subject};
use crate::tape::Tape;
use crate::triggers::{is_commit, is_empty, is_freeing, triggers};
use crate::world::World;

/// What came of an operation that volume and model agree on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It was done.
    Done,
    /// It was rightly refused.
    Refused(Fault),
    /// It names a file that does not exist (any more).
    Skipped,
}

/// An open volume, the model of it, and which states may be found after a power cut.
pub struct Session<'w, S: Subject> {
    world: &'w World,
    pub(crate) tape: Tape,
    clock: Clock,
    pub(crate) subject: S,
    /// The truth.
    pub model: Model,
    /// Transaction points so far.
    pub ledger: Ledger,
    slots: [Option<InodeNumber>; ALL_SLOTS],
    /// Inode numbers of this session; a number is never given out twice.
    numbers: BTreeSet<InodeNumber>,
    tick: u64,
    monotonic_ms: u64,
    /// When the oldest change that no transaction point covers was made.
    dirty_since_ms: Option<u64>,
    /// The state that is durable before the snapshot that is being taken.
    snapshot_begins: Option<Point>,
    /// How often `NoSpace` was the answer.
    pub no_space: u64,
    /// What faults of the medium may have left on it since the last transaction point, see [`crate::faults`].
    pub(crate) in_flight: Vec<Arc<State>>,
    /// Every operation and what it answered.
    pub digest: Digest,
}

impl<'w, S: Subject> Session<'w, S> {
    /// Opens the volume on `tape` and finds out which of the `allowed` states it is in.
    ///
    /// # Errors
    /// The volume does not open or is in none of these states.
    pub fn open(
        world: &'w World,
        tape: &Tape,
        clock: &Clock,
        tick: u64,
        allowed: &[Point],
    ) -> Result<(Self, usize), String> {
        clock.set_tick(tick);
        let subject =
            S::open(world, tape, clock).map_err(|error| format!("the volume does not open: {error}"))?;
        let limits = limits(&subject)?;
        let mut differences = String::new();
        // The newest first: most often everything in flight arrived.
        for (index, point) in allowed.iter().enumerate().rev() {
            let model = Model::open(point.state.as_ref().clone(), limits, clock.now());
            let compared = tape.undisturbed(|| {
                compare(&subject, &model.state, Depth { list_count: 7, seek: true })?;
                compare_snapshots(&subject, world, tape, clock, &model.state)
            });
            match compared {
                Ok(()) => {
                    let state = Arc::new(model.state.clone());
                    let session = Session {
                        world,
                        tape: tape.clone(),
                        clock: clock.clone(),
                        subject,
                        numbers: model.state.nodes().map(|(inode, _)| inode).collect(),
                        model,
                        ledger: Ledger::new(state),
                        slots: [None; ALL_SLOTS],
                        tick,
                        monotonic_ms: 0,
                        dirty_since_ms: None,
                        snapshot_begins: None,
                        no_space: 0,
                        in_flight: Vec::new(),
                        digest: Digest::default(),
                    };
                    return Ok((session, index));
                }
                Err(difference) => {
                    differences += &format!("\n    not {}: {difference}", point.label);
                }
            }
        }
        Err(format!("the volume is in none of the states that are allowed:{differences}"))
    }

    /// The tape that the volume is on.
    pub fn tape(&self) -> &Tape {
        &self.tape
    }

    /// The time of the last operation.
    pub fn tick(&self) -> u64 {
        self.tick
    }

    /// The file in a slot.
    pub fn slot(&self, slot: u8) -> Option<InodeNumber> {
        self.slots[usize::from(slot) % ALL_SLOTS]
    }

    /// Compares the whole volume with the model.
    ///
    /// # Errors
    /// The first difference.
    pub fn compare(&self) -> Result<(), String> {
        let list_count = 1 + (self.tick % 11) as usize;
        self.tape.undisturbed(|| self.compare_with(&self.model.state, list_count))
    }

    /// Compares the whole volume with a state, listing so many entries at a time; faults of the medium are met.
    ///
    /// # Errors
    /// The first difference.
    pub(crate) fn compare_with(&self, state: &State, list_count: usize) -> Result<(), String> {
        compare(&self.subject, state, Depth { list_count, seek: true })?;
        compare_snapshots(&self.subject, self.world, &self.tape, &self.clock, state)
    }

    /// Compares counts that must add up once background work is done.
    ///
    /// # Errors
    /// What does not add up.
    pub fn compare_counts(&mut self) -> Result<(), String> {
        self.background(0, TURNS_MAX, "background")?;
        let statistics = self.subject.statistics().map_err(|error| format!("statistics: {error}"))?;
        let inodes = self.model.state.nodes().count() as u64;
        if statistics.inodes != inodes {
            return Err(format!("statistics count {} inodes, right is {inodes}", statistics.inodes));
        }
        if statistics.blocks_free > statistics.blocks || statistics.blocks_available > statistics.blocks_free
        {
            return Err(format!("statistics contradict themselves: {statistics:?}"));
        }
        Ok(())
    }

    /// Blocks that are free, as the volume says.
    ///
    /// # Errors
    /// As the facade.
    pub fn blocks_free(&self) -> Result<u64, String> {
        Ok(self.subject.statistics().map_err(|error| format!("statistics: {error}"))?.blocks_free)
    }

    /// Closes the volume; what the mask does not commit at unmount is lost.
    ///
    /// # Errors
    /// The close failed.
    pub fn close(mut self) -> Result<Ledger, String> {
        self.close_subject()?;
        Ok(self.ledger)
    }

    /// Ends without closing, as a killed process does.
    pub fn abandon(self) -> Ledger {
        self.ledger
    }

    fn close_subject(&mut self) -> Result<(), String> {
        let (begun, mask) = (self.tape.position(), self.subject.witness().mask);
        self.subject.close().map_err(|error| format!("close: {error}"))?;
        if mask.contains(TransactionMask::UNMOUNT) {
            self.point("close".to_owned(), begun);
        }
        Ok(())
    }

    /// Does one operation on both.
    ///
    /// # Errors
    /// They disagree, or the volume broke a promise.
    pub fn step(&mut self, operation: &Operation) -> Result<Verdict, String> {
        self.tick += 1;
        self.clock.set_tick(self.tick);
        self.model.now = self.clock.now();
        let verdict = self.dispatch(operation);
        self.digest.shown(operation).shown(&verdict);
        verdict.map_err(|what| format!("at {operation:?}: {what}"))
    }

    fn resolve(&self, place: &Place) -> Option<InodeNumber> {
        match place {
            Place::Slot(slot) => self.slot(*slot),
            Place::Path(names) => names.iter().try_fold(InodeNumber::ROOT, |directory, name| {
                self.model.state.entry(directory, &name.bytes(self.model.limits.name_max))
            }),
        }
    }

    fn dispatch(&mut self, operation: &Operation) -> Result<Verdict, String> {
        let name_max = self.model.limits.name_max;
        let label = format!("{operation:?}");
        macro_rules! resolve {
            ($place:expr) => {
                match self.resolve($place) {
                    Some(inode) => inode,
                    None => return Ok(Verdict::Skipped),
                }
            };
        }
        match operation {
            Operation::Create { directory, name, make, permissions, caller: by } => {
                let target;
                let node = match *make {
                    Make::Regular => NewNode::Regular,
                    Make::Directory => NewNode::Directory,
                    Make::Symlink(length) => {
                        target = pattern_vec(u32::from(length), 0, usize::from(length))
                            .iter()
                            .map(|byte| b'a' + byte % 26)
                            .collect::<Vec<u8>>();
                        NewNode::Symlink(&target)
                    }
                    Make::Fifo => NewNode::Fifo,
                    Make::Socket => NewNode::Socket,
                    Make::CharDevice(number) => NewNode::CharDevice(number),
                    Make::BlockDevice(number) => NewNode::BlockDevice(number),
                };
                let (directory, name, permissions) =
                    (resolve!(directory), name.bytes(name_max), *permissions);
                let caller = caller(*by);
                self.call(&Call::Create { directory, name: &name, node, permissions, caller }, &label)
                    .map(|(verdict, _)| verdict)
            }
            Operation::CreateUnnamed { directory, slot, caller: by } => {
                let directory = resolve!(directory);
                self.free_slot(*slot)?;
                if self.slot_was_last(directory) {
                    return Ok(Verdict::Skipped);
                }
                let call = Call::CreateUnnamed { directory, permissions: 0o640, caller: caller(*by) };
                let (verdict, reply) = self.call(&call, &label)?;
                if let Some(Reply::Attributes(attributes)) = reply {
                    self.slots[usize::from(*slot) % ALL_SLOTS] = Some(attributes.inode);
                }
                Ok(verdict)
            }
            Operation::Link { from, directory, name } => {
                let (inode, directory) = (resolve!(from), resolve!(directory));
                self.plain(&Call::Link { inode, directory, name: &name.bytes(name_max) }, &label)
            }
            Operation::Unlink { directory, name } => {
                let directory = resolve!(directory);
                self.plain(&Call::Unlink { directory, name: &name.bytes(name_max) }, &label)
            }
            Operation::RemoveDirectory { directory, name } => {
                let directory = resolve!(directory);
                self.plain(&Call::RemoveDirectory { directory, name: &name.bytes(name_max) }, &label)
            }
            Operation::Rename { from, from_name, to, to_name, mode } => {
                let (from_name, to_name) = (from_name.bytes(name_max), to_name.bytes(name_max));
                let (from, to) = (resolve!(from), resolve!(to));
                let call = Call::Rename { from, from_name: &from_name, to, to_name: &to_name, mode: *mode };
                self.plain(&call, &label)
            }
            Operation::Set { place, change } => {
                let inode = resolve!(place);
                self.plain(&Call::SetAttributes { inode, set: set_attributes(change) }, &label)
            }
            Operation::SetXattr { place, name, length, fill, mode } => {
                let inode = resolve!(place);
                let value = pattern_vec(*fill, 0, *length as usize);
                let name = xattr_name(*name);
                self.plain(&Call::SetXattr { inode, name: &name, value: &value, mode: *mode }, &label)
            }
            Operation::RemoveXattr { place, name } => {
                let inode = resolve!(place);
                self.plain(&Call::RemoveXattr { inode, name: &xattr_name(*name) }, &label)
            }
            Operation::Acquire { place, slot } => {
                let inode = resolve!(place);
                self.free_slot(*slot)?;
                if self.slot_was_last(inode) {
                    return Ok(Verdict::Skipped);
                }
                let verdict = self.plain(&Call::Acquire { inode }, &label)?;
                if verdict == Verdict::Done {
                    self.slots[usize::from(*slot) % ALL_SLOTS] = Some(inode);
                }
                Ok(verdict)
            }
            Operation::Release { slot } => {
                self.free_slot(*slot)?;
                Ok(Verdict::Done)
            }
            Operation::Closed { place } => {
                let inode = resolve!(place);
                self.plain(&Call::Closed { inode }, &label)
            }
            Operation::Write { place, offset, length, fill, sync } => {
                let inode = resolve!(place);
                let data = pattern_vec(*fill, *offset, *length as usize);
                self.plain(&Call::Write { inode, offset: *offset, data: &data, sync: *sync }, &label)
            }
            Operation::Append { place, length, fill, sync } => {
                let inode = resolve!(place);
                let data = pattern_vec(*fill, self.tick, *length as usize);
                let size = self.model.content(inode).map(|content| content.size());
                let (verdict, reply) =
                    self.call(&Call::Append { inode, data: &data, sync: *sync }, &label)?;
                match (reply, size) {
                    (Some(reply), Ok(size)) if reply != Reply::Number(size) => {
                        Err(format!("appended at {reply:?}, the size was {size}"))
                    }
                    _ => Ok(verdict),
                }
            }
            Operation::Allocate { place, offset, length, mode } => {
                let inode = resolve!(place);
                self.plain(&Call::Allocate { inode, offset: *offset, length: *length, mode: *mode }, &label)
            }
            Operation::CopyRange { from, from_offset, to, to_offset, length } => {
                let (from, to) = (resolve!(from), resolve!(to));
                let call = Call::CopyRange {
                    from,
                    from_offset: *from_offset,
                    to,
                    to_offset: *to_offset,
                    length: *length,
                };
                self.plain(&call, &label)
            }
            Operation::Fsync { place, data_only } => {
                let inode = resolve!(place);
                self.plain(&Call::Fsync { inode, data_only: *data_only }, &label)
            }
            Operation::Sync => self.plain(&Call::Sync, &label),
            Operation::Transact => self.plain(&Call::Transact, &label),
            Operation::Checkpoint => self.plain(&Call::Checkpoint, &label),
            Operation::Rollback => {
                let verdict = self.plain(&Call::Rollback, &label)?;
                if verdict != Verdict::Done {
                    return Ok(verdict);
                }
                self.in_flight.clear();
                let state = self.ledger.last().state.clone();
                self.model.roll_back(&state);
                self.dirty_since_ms = None;
                self.compare().map_err(|what| format!("after the rollback: {what}"))?;
                Ok(verdict)
            }
            Operation::Background { advance_ms } => self.background(*advance_ms, TURNS_MAX, &label),
            Operation::Turn { advance_ms } => self.background(*advance_ms, 1, &label),
            Operation::SetMask { mask } => {
                let mask = TransactionMask(*mask & TransactionMask::ALL.0);
                self.plain(&Call::SetMask { mask }, &label)
            }
            Operation::SetTimer { ms } => self.plain(&Call::SetTimer { ms: *ms }, &label),
            Operation::SnapshotCreate { name } => {
                if !S::SNAPSHOTS {
                    return Ok(Verdict::Skipped);
                }
                // What was accepted becomes durable a moment before the snapshot does.
                let (before, begun) = (Arc::new(self.model.state.clone()), self.tape.position());
                self.snapshot_begins = Some(Point::new(before, format!("before {label}"), begun, None));
                let verdict = self.plain(&Call::SnapshotCreate { name: &snapshot_name(*name) }, &label);
                self.snapshot_begins = None;
                verdict
            }
            Operation::SnapshotDelete { name } => {
                if !S::SNAPSHOTS {
                    return Ok(Verdict::Skipped);
                }
                self.plain(&Call::SnapshotDelete { name: &snapshot_name(*name) }, &label)
            }
            Operation::SnapshotRollback { name, destroy_newer } => {
                if !S::SNAPSHOTS {
                    return Ok(Verdict::Skipped);
                }
                let name = snapshot_name(*name);
                let call = Call::SnapshotRollback { name: &name, destroy_newer: *destroy_newer };
                let verdict = self.plain(&call, &label)?;
                self.compare().map_err(|what| format!("after going back to a snapshot: {what}"))?;
                Ok(verdict)
            }
            Operation::Remount { clean } => self.remount(*clean),
            Operation::Compare => self.compare().map(|()| Verdict::Done),
        }
    }

    /// Whether the inode went with the slot that was just freed. Until background work has reclaimed it the volume may
    /// still know it; nobody may ask.
    fn slot_was_last(&self, inode: InodeNumber) -> bool {
        self.model.state.node(inode).is_none() && self.numbers.contains(&inode)
    }

    fn plain(&mut self, call: &Call<'_>, label: &str) -> Result<Verdict, String> {
        self.call(call, label).map(|(verdict, _)| verdict)
    }

    fn free_slot(&mut self, slot: u8) -> Result<(), String> {
        match self.slots[usize::from(slot) % ALL_SLOTS].take() {
            Some(inode) => self.call(&Call::Release { inode }, "release").map(|_| ()),
            None => Ok(()),
        }
    }

    /// Does a call on both, compares what they say, and notes transaction points.
    fn call(&mut self, call: &Call<'_>, label: &str) -> Result<(Verdict, Option<Reply>), String> {
        let before = self.model.state.clone();
        let begun = self.tape.position();
        let witness = self.subject.witness();
        let result = self.subject.call(call);
        self.digest.shown(&result);
        let points = self.subject.witness().transaction_points.wrapping_sub(witness.transaction_points);
        // Going back to a snapshot sets the last point anew before its own: the same state twice.
        let points = if matches!(call, Call::SnapshotRollback { .. }) { points.min(1) } else { points };
        match result {
            Ok(reply) => {
                self.check_fresh(call, &reply)?;
                self.model
                    .apply(call, Some(&reply))
                    .map_err(|faults| format!("succeeded with {reply:?}, right is to refuse: {faults:?}"))?;
                self.check_reply(&reply)?;
                let changed = !matches!(call, Call::Acquire { .. } | Call::Release { .. })
                    && !self.model.state.is_untouched(&before);
                if changed && self.dirty_since_ms.is_none() {
                    self.dirty_since_ms = Some(self.monotonic_ms);
                }
                let required = triggers(call, witness.mask) && (points > 0 || !is_empty(call, &reply));
                self.settle(required, label, points, begun, witness.mask, before)?;
                Ok((Verdict::Done, Some(reply)))
            }
            Err(error) => {
                if self.is_struck(&error) {
                    return self.judge_fault(call, label, error, points, begun, before);
                }
                let fault = Fault::from(error);
                if fault == Fault::ValueTooLong && value_length(call) > VALUE_ALWAYS {
                    self.compare()
                        .map_err(|what| format!("value too long, but something has changed: {what}"))?;
                    return Ok((Verdict::Refused(fault), None));
                }
                if fault == Fault::NoSpace {
                    self.check_no_space(call, label, points, begun, witness.mask, before)?;
                    return Ok((Verdict::Refused(fault), None));
                }
                match self.model.clone().apply(call, None) {
                    Ok(()) => return Err(format!("refused with '{error}', right is to do it")),
                    Err(faults) if !faults.allow(fault) => {
                        return Err(format!("refused with '{error}', right is {faults:?}"));
                    }
                    Err(_) => {}
                }
                if points != 0 {
                    return Err(format!("refused with '{error}' but set {points} transaction points"));
                }
                Ok((Verdict::Refused(fault), None))
            }
        }
    }

    /// A new inode has a number that nobody had.
    fn check_fresh(&mut self, call: &Call<'_>, reply: &Reply) -> Result<(), String> {
        if let (Call::Create { .. } | Call::CreateUnnamed { .. }, Reply::Attributes(attributes)) =
            (call, reply)
            && !self.numbers.insert(attributes.inode)
        {
            return Err(format!("inode number {} is given out twice", attributes.inode.0));
        }
        Ok(())
    }

    /// Attributes in a reply are those of the inode after the call.
    fn check_reply(&self, reply: &Reply) -> Result<(), String> {
        if let Reply::Attributes(attributes) = reply {
            let node =
                self.model.state.node(attributes.inode).ok_or_else(|| {
                    format!("the reply names inode {}, which is not there", attributes.inode.0)
                })?;
            compare_attributes(attributes.inode, node, attributes, "the reply")?;
        }
        Ok(())
    }

    /// Notes the transaction points that a successful call set; `required`: the mask asks it for one.
    fn settle(
        &mut self,
        required: bool,
        label: &str,
        points: u64,
        begun: usize,
        mask: TransactionMask,
        before: State,
    ) -> Result<(), String> {
        if required && points == 0 && self.dirty_since_ms.is_some() {
            return Err("no transaction point was set".to_owned());
        }
        let more = points.saturating_sub(u64::from(required));
        if more > 0 {
            // The volume was full and committed what came before, to get at freed blocks.
            if !mask.contains(TransactionMask::VOLUME_FULL) {
                return Err(format!(
                    "{points} transaction points were set, {} asked for",
                    u8::from(required)
                ));
            }
            let end = self.tape.position();
            self.ledger.add(Arc::new(before), format!("before {label}"), begun, end);
        }
        if required {
            self.point(format!("after {label}"), begun);
        } else if more > 0 && self.dirty_since_ms.is_some() {
            self.dirty_since_ms = Some(self.monotonic_ms);
        }
        Ok(())
    }

    fn check_no_space(
        &mut self,
        call: &Call<'_>,
        label: &str,
        points: u64,
        begun: usize,
        mask: TransactionMask,
        before: State,
    ) -> Result<(), String> {
        self.no_space += 1;
        // Where the mask keeps the volume from committing when it is full, "no space" says: commit or roll back.
        let may_commit = mask.contains(TransactionMask::VOLUME_FULL);
        // On a small volume what a snapshot pins can leave too little room to remove anything else: see docs/TESTING.md.
        let pinned = !self.model.state.snapshots().is_empty() && !is_commit(call);
        if is_freeing(call, &self.model) && (may_commit || is_commit(call)) && !pinned {
            return Err("there is no space for an operation that always has to succeed".to_owned());
        }
        if points > 0 {
            if !mask.contains(TransactionMask::VOLUME_FULL) {
                return Err(format!("no space, but {points} transaction points were set"));
            }
            let end = self.tape.position();
            self.ledger.add(Arc::new(before), format!("before {label}, which found no space"), begun, end);
            self.dirty_since_ms = None;
        }
        self.compare().map_err(|what| format!("no space, but something has changed: {what}"))
    }

    /// Notes that the present state is a transaction point, acknowledged now.
    fn point(&mut self, label: String, begun: usize) {
        let end = self.tape.position();
        if let Some(point) = self.snapshot_begins.take() {
            self.ledger.add(point.state, point.label, point.begun, end);
        }
        self.ledger.add(Arc::new(self.model.state.clone()), label, begun, end);
        self.dirty_since_ms = None;
        self.in_flight.clear();
    }

    /// Background work until there is none, in at most so many turns; one alone may leave more to do.
    fn background(&mut self, advance_ms: u64, turns: u64, label: &str) -> Result<Verdict, String> {
        self.monotonic_ms += advance_ms;
        self.clock.advance_ms(advance_ms);
        let begun = self.tape.position();
        let witness = self.subject.witness();
        let mut more = true;
        for _ in 0..turns {
            match self.subject.call(&Call::Background) {
                Ok(Reply::More(true)) => {}
                Ok(_) => {
                    more = false;
                    break;
                }
                Err(error) if self.is_struck(&error) => {
                    self.judge_background_fault(error)?;
                    return Ok(Verdict::Refused(Fault::Broken));
                }
                Err(error) => return Err(format!("background work: {error}")),
            }
        }
        if more && turns > 1 {
            return Err("background work does not end".to_owned());
        }
        let timer = witness.mask.contains(TransactionMask::TIMER);
        let points = self.subject.witness().transaction_points.wrapping_sub(witness.transaction_points);
        if points > 0 {
            // Reclaiming a removed file may need space, too.
            if !timer && !witness.mask.contains(TransactionMask::VOLUME_FULL) {
                return Err("background work set a transaction point that nobody asked for".to_owned());
            }
            self.point(format!("in {label}"), begun);
        }
        let due = |since: u64| self.monotonic_ms - since >= u64::from(witness.timer_ms);
        if timer && self.subject.failure().is_none() && self.dirty_since_ms.is_some_and(due) {
            return Err("the timer has expired but no transaction point was set".to_owned());
        }
        Ok(Verdict::Done)
    }

    /// Opens the volume anew. After faults it may be in one of several states.
    pub(crate) fn remount(&mut self, clean: bool) -> Result<Verdict, String> {
        if clean && self.subject.failure().is_none() {
            self.close_for_remount()?;
        }
        self.subject = self.open_subject()?;
        let limits = limits(&self.subject)?;
        let mut differences = String::new();
        let last = self.ledger.last().state.clone();
        let in_flight = std::mem::take(&mut self.in_flight);
        for state in in_flight.iter().rev().chain([&last]) {
            self.model = Model::open(state.as_ref().clone(), limits, self.model.now);
            match self.compare() {
                Ok(()) => {
                    if !Arc::ptr_eq(state, &last) {
                        self.ledger = Ledger::new(state.clone());
                    }
                    self.numbers = self.model.state.nodes().map(|(inode, _)| inode).collect();
                    self.slots = [None; ALL_SLOTS];
                    self.dirty_since_ms = None;
                    return Ok(Verdict::Done);
                }
                Err(what) => differences += &format!("; {what}"),
            }
        }
        Err(format!("after opening it again it is in no state that is allowed{differences}"))
    }

    fn close_for_remount(&mut self) -> Result<(), String> {
        let strikes = self.tape.all_strikes();
        match self.close_subject() {
            Err(_) if self.tape.all_strikes() > strikes => {
                self.in_flight.push(Arc::new(self.model.state.clone()));
                Ok(())
            }
            other => other,
        }
    }

    /// A fault may keep it from opening, with an error that says so, but not for longer than the fault lasts.
    fn open_subject(&self) -> Result<S, String> {
        let open = || S::open(self.world, &self.tape, &self.clock);
        let strikes = self.tape.all_strikes();
        let opened = match open() {
            Err(steadfast::Error::Medium(_)) if self.tape.all_strikes() > strikes => {
                self.tape.undisturbed(open)
            }
            other => other,
        };
        opened.map_err(|error| format!("the volume does not open again: {error}"))
    }
}

/// Turns after which background work has to be done.
const TURNS_MAX: u64 = 10_000;

/// Attribute values and link targets up to this length fit whatever the node size, bytes.
const VALUE_ALWAYS: usize = 3000;

/// Length of the value that a call stores under one name.
fn value_length(call: &Call<'_>) -> usize {
    match call {
        Call::SetXattr { name, value, .. } => name.len() + value.len(),
        Call::Create { node: NewNode::Symlink(target), .. } => target.len(),
        _ => 0,
    }
}

fn limits<S: Subject>(subject: &S) -> Result<Limits, String> {
    let statistics = subject.statistics().map_err(|error| format!("statistics: {error}"))?;
    Ok(Limits { name_max: statistics.name_max as usize })
}

fn set_attributes(change: &Change) -> SetAttributes {
    let time = |time: Time| match time {
        Time::Now => SetTime::Now,
        Time::At(seconds, nanoseconds) => SetTime::At(Timestamp { seconds, nanoseconds }),
    };
    SetAttributes {
        permissions: change.permissions,
        uid: change.uid,
        gid: change.gid,
        size: change.size,
        accessed: change.accessed.map(time),
        modified: change.modified.map(time),
        changed: change.changed.map(|(seconds, nanoseconds)| Timestamp { seconds, nanoseconds }),
        drop_privileges: change.drop_privileges,
    }
}
