//! Making and opening an array: finds the servers, assigns members to them, and decides whether
//! enough are present.

use parking_lot::{Mutex, RwLock};

use super::map::Map;
use super::members::{Members, State};
use super::options::Tally;
use super::read::Lates;
use super::seal::Log;
use super::shape::{SECTOR, Shape};
use super::{
    Array, ArrayError, ArrayOptions, Call, Code, Contact, CreateOptions, Fleet, LogUse, Outcome,
    Superblock,
};
use crate::client::Ask;
use crate::sabotage::{Sabotage, planted};

impl<F: Fleet> Array<F> {
    /// Makes an array on these servers. Their previous contents are lost.
    ///
    /// # Errors
    /// A server does not answer, or the policy or the sizes do not fit.
    pub fn create(
        fleet: F,
        create: &CreateOptions,
        options: ArrayOptions,
    ) -> Result<Array<F>, ArrayError> {
        Self::make(fleet, create, options, false)
    }

    /// As [`create`](Self::create), but the array cannot be opened before it is
    /// [finished](Self::finish).
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_unfinished(
        fleet: F,
        create: &CreateOptions,
        options: ArrayOptions,
    ) -> Result<Array<F>, ArrayError> {
        Self::make(fleet, create, options, true)
    }

    fn make(
        fleet: F,
        create: &CreateOptions,
        options: ArrayOptions,
        unfinished: bool,
    ) -> Result<Array<F>, ArrayError> {
        let count = fleet.servers().saturating_sub(create.spares);
        let (data, parity) = create.policy.shards(count).map_err(ArrayError::Invalid)?;
        // Any array counts, not only this one: late writes of its client would land in the new
        // array.
        let open = |found: &Found| {
            found.iter().any(|seen| seen.is_in_place)
                || found.iter().filter_map(Seen::superblock).any(|own| !own.closed)
        };
        let found = quiet(&fleet, &options, look(&fleet, options.patience_ms), open);
        let reached = found
            .into_iter()
            .enumerate()
            .map(|(server, seen)| seen.contact.map_err(|why| ArrayError::Unreachable(server, why)));
        let contacts: Vec<Contact> = reached.collect::<Result<_, _>>()?;
        let size = contacts.iter().map(|contact| contact.size).min().unwrap_or(0);
        usable(&contacts)?;
        let shape = Shape::plan(data, parity, size).map_err(ArrayError::Invalid)?;
        let mut superblock = Superblock::first(create.uuid, shape, options.now);
        (superblock.unfinished, superblock.logged) = (unfinished, options.log == LogUse::Kept);
        let seats = (0..shape.servers()).collect();
        let map = Map::new(&shape, options.hold_bytes)?;
        let array = Array::assemble(fleet, options, superblock, seats, &contacts, map, 1);
        for member in 0..array.shape.servers() {
            array
                .wipe(member)
                .map_err(|()| ArrayError::Unreachable(member, "cannot be written".to_owned()))?;
        }
        array.publish()?;
        if array.members.read().good() < array.shape.servers() {
            return Err(ArrayError::Unreachable(
                0,
                "a server was lost while the array was made".to_owned(),
            ));
        }
        Ok(array)
    }

    /// Opens the array on these servers.
    ///
    /// # Errors
    /// [`ArrayError::NoArray`], [`ArrayError::Silent`], [`ArrayError::Mixed`],
    /// [`ArrayError::TooManyLost`], [`ArrayError::Unsure`], [`ArrayError::Unfinished`],
    /// [`ArrayError::Logged`].
    pub fn open(fleet: F, options: ArrayOptions) -> Result<Array<F>, ArrayError> {
        let servers = fleet.servers();
        let open = |found: &Found| newest_of(found).is_some_and(|newest| !newest.closed);
        let seen = quiet(&fleet, &options, look(&fleet, options.patience_ms), open);
        let newest = newest_of(&seen).cloned().ok_or_else(|| {
            if seen.iter().any(|seen| seen.is_in_place) {
                return ArrayError::InPlace;
            }
            match seen.iter().filter(|seen| seen.contact.is_err()).count() {
                0 => ArrayError::NoArray,
                silent => ArrayError::Silent { silent, servers },
            }
        })?;
        let (contacts, found): (Vec<Option<Contact>>, Vec<Option<Superblock>>) =
            seen.into_iter().map(|seen| (seen.contact.ok(), seen.superblock)).unzip();
        if let Some(other) = found.iter().position(|superblock| {
            superblock.as_ref().is_some_and(|superblock| superblock.uuid != newest.uuid)
        }) {
            return Err(ArrayError::Mixed(other));
        }
        if newest.unfinished {
            return Err(ArrayError::Unfinished);
        }
        if newest.logged && options.log == LogUse::Unsaid && !options.read_only {
            return Err(ArrayError::Logged);
        }
        // The size in the superblock is trusted only if a server with that superblock lends as
        // much.
        let say_so = found
            .iter()
            .zip(&contacts)
            .filter(|(own, _)| own.as_ref().is_some_and(|own| own.order() == newest.order()));
        let lent =
            say_so.filter_map(|(_, contact)| Some(contact.as_ref()?.size)).max().unwrap_or(0);
        if newest.shape.end() > lent {
            return Err(ArrayError::Invalid(format!(
                "this array needs {} bytes of each server, and one lends {lent}",
                newest.shape.end()
            )));
        }
        let count = newest.shape.servers();
        if servers < count {
            return Err(ArrayError::Invalid(format!(
                "this array has {count} servers, {servers} are given"
            )));
        }
        // A member sits where its superblock is; the other members get the remaining seats in
        // order.
        let mut seats = vec![usize::MAX; count];
        let mut known: Vec<(usize, &Superblock)> = found
            .iter()
            .enumerate()
            .filter_map(|(seat, superblock)| Some((seat, superblock.as_ref()?)))
            .collect();
        known.sort_by_key(|(_, superblock)| std::cmp::Reverse(superblock.order()));
        let mut taken = vec![false; servers];
        for (seat, superblock) in known {
            if let Some(place) = seats.get_mut(superblock.index)
                && *place == usize::MAX
            {
                *place = seat;
                taken[seat] = true;
            }
        }
        let mut spare = (0..servers).filter(|seat| !taken[*seat]).collect::<Vec<_>>().into_iter();
        for (member, seat) in seats.iter_mut().enumerate() {
            if *seat == usize::MAX {
                let own = (member < servers && !taken[member]).then_some(member);
                let next = own.or_else(|| spare.find(|seat| !taken[*seat]));
                *seat = next
                    .ok_or_else(|| ArrayError::Invalid("too few servers are given".to_owned()))?;
                taken[*seat] = true;
            }
        }
        let mut superblock = newest.clone();
        let (mut absent, mut complete) = (0, newest.epoch);
        for (member, seat) in seats.iter().enumerate() {
            // If a server that is behind had refused the newest epoch, k others would hold a later
            // one, and those would be absent.
            let current = found[*seat]
                .as_ref()
                .filter(|own| own.keeps_up_with(&newest) && own.index == member);
            if superblock.states[member] != State::Good {
                superblock.states[member] = State::Lost;
            } else if let Some(own) = current {
                complete = complete.min(own.epoch);
            } else {
                absent += 1;
                superblock.states[member] = State::Lost;
            }
        }
        let good = superblock.states.iter().filter(|state| **state == State::Good).count();
        if good < newest.shape.data {
            return Err(ArrayError::TooManyLost);
        }
        let witnessed = options.witness.as_ref().and_then(|witness| witness.newest(&newest.uuid));
        if witnessed.is_some_and(|order| order > newest.order()) && !options.degraded {
            return Err(ArrayError::Unsure(absent.max(1)));
        }
        // The writer of a later epoch wrote it to at least k members that were good in this one.
        // Nothing depends on an epoch that the witness has not noted.
        let sure = witnessed.is_some_and(|order| newest.order() >= order);
        if absent >= newest.shape.data && !sure && !options.degraded {
            return Err(ArrayError::Unsure(absent));
        }
        let contacts: Vec<Contact> =
            contacts.into_iter().map(|contact| contact.unwrap_or(UNREACHED)).collect();
        let map = Map::new(&newest.shape, options.hold_bytes)?;
        if options.read_only {
            // Later connections must reach the servers found here. For a writer, the next epoch
            // sets the proof.
            for (seat, own) in found.iter().enumerate() {
                if let Some(own) = own {
                    fleet.set_proof(seat, Superblock::offset(own.epoch), &own.encode());
                }
            }
        }
        if !options.read_only {
            // Everything published from here on carries the stamp of this session. A client that
            // died cannot have written the same.
            superblock.begin_session(options.now);
            superblock.logged = options.log == LogUse::Kept;
        }
        let array = Array::assemble(fleet, options, superblock, seats, &contacts, map, 1);
        {
            let mut members = array.members.write();
            members.found = newest.order();
            (members.complete, members.skip) = (complete, super::superblock::EPOCHS_SKIPPED - 1);
        }
        if !array.is_read_only() {
            array.announce(&newest.states)?;
        }
        array.replay()?;
        Ok(array)
    }

    fn assemble(
        fleet: F,
        options: ArrayOptions,
        superblock: Superblock,
        seats: Vec<usize>,
        contacts: &[Contact],
        map: Map,
        next: u64,
    ) -> Array<F> {
        let shape = superblock.shape;
        let lates = Lates::new(fleet.servers());
        let members = Members {
            found: superblock.order(),
            complete: superblock.epoch,
            skip: 0,
            superblock,
            seats,
            fua: contacts.iter().map(|contact| contact.fua).collect(),
            trim: contacts.iter().map(|contact| contact.trim).collect(),
            breaks: (0..fleet.servers()).map(|server| fleet.breaks(server)).collect(),
            unanswered: false,
            failed: false,
            closed: false,
            unnoted: None,
        };
        let log = Log {
            fresh: None,
            moved: None,
            next,
            durable: next - 1,
            waiting: Vec::new(),
            free: (0..shape.slots).collect(),
            cursor: 0,
            unmarked: Vec::new(),
            marked: Vec::new(),
            unflushed: false,
            parity: Vec::new(),
            gathered: Vec::new(),
        };
        Array {
            fleet,
            options,
            shape,
            code: Code::new(shape.data, shape.parity),
            log: Mutex::new(log),
            members: RwLock::new(members),
            map: RwLock::new(map),
            tally: Tally::default(),
            lates,
        }
    }
}

/// Contact of a server that does not answer.
const UNREACHED: Contact = Contact { size: 0, block_min: 1, fua: false, flush: true, trim: false };

fn usable(contacts: &[Contact]) -> Result<(), ArrayError> {
    match contacts.iter().position(|contact| contact.block_min as usize > SECTOR) {
        Some(server) => Err(ArrayError::Invalid(format!(
            "server {server} has blocks of more than {SECTOR} bytes"
        ))),
        None => Ok(()),
    }
}

/// What a server holds, before it is trusted.
pub(super) struct Seen {
    /// Its contact, or why there is none.
    contact: Result<Contact, String>,
    superblock: Option<Superblock>,
    /// It belongs to an array with parity in place.
    is_in_place: bool,
}

/// The same for all servers.
pub(super) type Found = Vec<Seen>;

impl Seen {
    fn superblock(&self) -> Option<&Superblock> {
        self.superblock.as_ref()
    }
}

/// Contacts all servers.
pub(super) fn look<F: Fleet>(fleet: &F, patience_ms: u64) -> Found {
    let contacts: Vec<_> = (0..fleet.servers()).map(|server| fleet.contact(server)).collect();
    let seen = contacts.into_iter().enumerate().map(|(server, contact)| {
        let area = contact.as_ref().ok().and_then(|_| superblocks(fleet, server, patience_ms));
        let superblock = area.as_deref().and_then(Superblock::newest);
        let is_in_place = area.as_deref().is_some_and(Superblock::are_in_place);
        Seen { contact, superblock, is_in_place }
    });
    seen.collect()
}

fn newest_of(found: &Found) -> Option<&Superblock> {
    found.iter().filter_map(Seen::superblock).max_by_key(|superblock| superblock.order())
}

/// The front of a server, where its superblocks are.
fn superblocks<F: Fleet>(fleet: &F, server: usize, patience_ms: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; Superblock::AREA];
    let mut calls = [Call::new(server, 0, Ask::Read(&mut bytes))];
    fleet.round(&mut calls, 2 * patience_ms);
    let done = calls[0].outcome == Outcome::Done;
    done.then_some(bytes)
}

/// Reads the servers once no request of a dead client is in flight any more. `open` decides whether
/// such a client may exist.
fn quiet<F: Fleet>(
    fleet: &F,
    options: &ArrayOptions,
    found: Found,
    open: impl Fn(&Found) -> bool,
) -> Found {
    if options.read_only || options.late_ms == 0 || !open(&found) || planted(Sabotage::LateIgnored)
    {
        return found;
    }
    fleet.pause(options.late_ms);
    look(fleet, options.patience_ms)
}
