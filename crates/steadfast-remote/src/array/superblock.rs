//! The superblock of a server: its array, its member number, and the states of all members.
//!
//! Each server has sixteen places of 4 KiB at its front, written in turn: the epoch determines the
//! place. The newest valid superblock counts, ordered by the stamp of its session first and its
//! epoch second.
//!
//! A client that opens an array skips eight epochs. So late superblocks of a dead client never hit
//! the places that the living client depends on. Their stamp is older, so they also lose, whenever
//! they arrive.

use super::members::State;
use super::shape::Shape;
use super::{BLOCK, crc32c};

const MAGIC: [u8; 8] = *b"SfRemote";
const VERSION: u32 = 2;
/// Added to the version while an array is unfinished, so that programs without this feature do not
/// open it.
const UNFINISHED: u32 = 1 << 16;
/// The same while a write-behind log must be kept up to date.
const LOGGED: u32 = 1 << 17;
/// The same with parity in place, which arrays had until decision 0056. No other program reads it.
const IN_PLACE: u32 = 1 << 18;
/// The same while the array is closed. Programs without this feature would otherwise leave the flag
/// set.
const CLOSED: u32 = 1 << 19;
/// Places for superblocks on each server.
const PLACES: u64 = 16;
/// Epochs that a client skips when it opens an array. A dead client may have written these epochs
/// to a few servers.
pub(crate) const EPOCHS_SKIPPED: u64 = 8;
/// Sessions whose last record is remembered: writes of a dead client arrive within fewer sessions
/// than this.
const CUTOFFS_MAX: usize = 64;
/// The last record of a session that ended unseen: all its records count.
const UNSEEN: u64 = u64::MAX;

/// Contents of a superblock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// Identity of the array.
    pub uuid: [u8; 16],
    /// Grows with every change of a member's state.
    pub epoch: u64,
    /// The newest epoch that every good member certainly had when this one was written.
    pub previous: u64,
    /// Time of the open by the client's clock; later than every stamp that this client has seen.
    /// Identifies the session.
    pub stamp: u64,
    /// How often the array was opened.
    pub session: u32,
    /// Member number of this server.
    pub index: usize,
    /// States of all members.
    pub states: Vec<State>,
    /// The contents are incomplete: the array cannot be opened.
    pub unfinished: bool,
    /// The last client that opened it for writing keeps a write-behind log.
    pub logged: bool,
    /// The last writer has closed it: no write of that client is in flight.
    pub closed: bool,
    pub(crate) shape: Shape,
    /// Records up to this one count, whatever their session.
    pub(crate) floor: u64,
    /// The last record that counts of each earlier session, by its stamp.
    pub(crate) cutoffs: Vec<(u64, u64)>,
}

impl Superblock {
    /// The superblock of a new array, before its first epoch.
    pub(crate) fn first(uuid: [u8; 16], shape: Shape, now: u64) -> Superblock {
        let states = vec![State::Good; shape.servers()];
        let (epoch, previous, stamp, session, index, floor) = (0, 0, now.max(1), 1, 0, 0);
        Superblock {
            uuid,
            epoch,
            previous,
            stamp,
            session,
            index,
            states,
            unfinished: false,
            logged: false,
            closed: false,
            shape,
            floor,
            cutoffs: Vec::new(),
        }
    }

    /// How blocks are spread.
    pub fn policy(&self) -> super::Policy {
        self.shape.policy()
    }

    /// Good members that are needed to open the array.
    pub fn needed(&self) -> usize {
        self.shape.data
    }

    /// Bytes of all superblocks at the front of a server.
    pub const AREA: usize = PLACES as usize * BLOCK;

    /// Offset of the superblock of this epoch.
    pub fn offset(epoch: u64) -> u64 {
        (epoch % PLACES) * BLOCK as u64
    }

    /// Orders superblocks: the highest is the newest.
    pub fn order(&self) -> (u64, u64) {
        (self.stamp, self.epoch)
    }

    /// The newest superblock of a server, from its [`AREA`](Self::AREA).
    pub fn newest(area: &[u8]) -> Option<Superblock> {
        area.chunks_exact(BLOCK).filter_map(Superblock::decode).max_by_key(Superblock::order)
    }

    /// Whether these bytes of a server are this superblock, of any member.
    pub(crate) fn is_shown_by(&self, bytes: &[u8]) -> bool {
        Superblock::decode(bytes)
            .is_some_and(|found| found.uuid == self.uuid && found.order() == self.order())
    }

    /// Whether a server with this superblock took part in everything that `newest` depends on. If
    /// it is behind, a client died while it wrote the epochs between, and nothing depends on those.
    pub fn keeps_up_with(&self, newest: &Superblock) -> bool {
        self.epoch >= newest.previous
    }

    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&[0; 4]);
        let unfinished = if self.unfinished { UNFINISHED } else { 0 };
        let logged = if self.logged { LOGGED } else { 0 };
        let closed = if self.closed { CLOSED } else { 0 };
        let version = VERSION | unfinished | logged | closed;
        bytes.extend_from_slice(&version.to_le_bytes());
        bytes.extend_from_slice(&self.uuid);
        for number in [self.epoch, self.previous, self.stamp, self.floor] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for number in [
            self.session,
            self.index as u32,
            self.shape.data as u32,
            self.shape.parity as u32,
            self.shape.segment,
            self.shape.slots,
            self.shape.blocks,
            self.cutoffs.len() as u32,
        ] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend(self.states.iter().map(|state| state.number()));
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        for (session, sequence) in &self.cutoffs {
            bytes.extend_from_slice(&session.to_le_bytes());
            bytes.extend_from_slice(&sequence.to_le_bytes());
        }
        bytes.resize(BLOCK, 0);
        let crc = crc32c(&bytes[12..]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Decodes a superblock of 4 KiB.
    pub fn decode(bytes: &[u8]) -> Option<Superblock> {
        let u32_at = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let u64_at = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let flags = flags_of(bytes)?;
        if flags & !(UNFINISHED | LOGGED | CLOSED) != 0 {
            return None;
        }
        let shape = Shape {
            data: u32_at(72)? as usize,
            parity: u32_at(76)? as usize,
            segment: u32_at(80)?,
            slots: u32_at(84)?,
            blocks: u32_at(88)?,
        };
        let (index, count) = (u32_at(68)? as usize, u32_at(92)? as usize);
        if !shape.is_sound() || index >= shape.servers() || count > CUTOFFS_MAX {
            return None;
        }
        let states: Option<Vec<State>> = bytes
            .get(96..96 + shape.servers())?
            .iter()
            .map(|number| State::of_number(*number))
            .collect();
        let start = (96 + shape.servers()).next_multiple_of(8);
        let cutoffs: Option<Vec<(u64, u64)>> = (0..count)
            .map(|index| Some((u64_at(start + index * 16)?, u64_at(start + index * 16 + 8)?)))
            .collect();
        Some(Superblock {
            uuid: *bytes.get(16..)?.first_chunk()?,
            epoch: u64_at(32)?,
            previous: u64_at(40)?,
            stamp: u64_at(48)?,
            floor: u64_at(56)?,
            session: u32_at(64)?,
            index,
            states: states?,
            unfinished: flags & UNFINISHED != 0,
            logged: flags & LOGGED != 0,
            closed: flags & CLOSED != 0,
            shape,
            cutoffs: cutoffs?,
        })
    }

    /// Whether the superblocks at the front of a server have parity in place.
    pub(crate) fn are_in_place(area: &[u8]) -> bool {
        let flags = |bytes| flags_of(bytes).is_some_and(|flags| flags & IN_PLACE != 0);
        area.chunks_exact(BLOCK).any(flags)
    }

    /// Begins a session. The last record of the session before it is not known yet.
    pub(crate) fn begin_session(&mut self, now: u64) {
        self.cutoffs.push((self.stamp, UNSEEN));
        let surplus = self.cutoffs.len().saturating_sub(CUTOFFS_MAX);
        for (_, last) in self.cutoffs.drain(..surplus) {
            self.floor = self.floor.max(last);
        }
        self.closed = false;
        self.stamp = now.max(self.stamp.saturating_add(1));
        self.session = self.session.saturating_add(1);
    }

    /// Ends the earlier sessions with this record.
    pub(crate) fn end_sessions(&mut self, last: u64) {
        self.cutoffs.iter_mut().filter(|(_, end)| *end == UNSEEN).for_each(|(_, end)| *end = last);
        // So many clients died during their open that one of them is no longer remembered.
        if self.floor == UNSEEN {
            self.floor = last;
        }
    }

    /// Whether a record counts. A record of a dead client that arrived after the next client had
    /// read the servers does not. Neither does a record of an unknown client.
    pub(crate) fn admits(&self, stamp: u64, sequence: u64) -> bool {
        let ended = || self.cutoffs.iter().find(|(ended, _)| *ended == stamp);
        stamp == self.stamp
            || sequence <= self.floor
            || ended().is_some_and(|(_, last)| sequence <= *last)
    }
}

/// The bits that are added to the version; `None` if this is no superblock.
fn flags_of(bytes: &[u8]) -> Option<u32> {
    let u32_at = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let is_whole =
        bytes.len() == BLOCK && bytes.get(..8)? == MAGIC && u32_at(8)? == crc32c(bytes.get(12..)?);
    is_whole.then_some(u32_at(12)? ^ VERSION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn superblocks_go_both_ways_and_any_flipped_bit_is_seen() {
        let shape = Shape::plan(4, 2, 64 << 20).unwrap();
        let states = vec![
            State::Good,
            State::Lost,
            State::Rebuilding,
            State::Good,
            State::Good,
            State::Good,
        ];
        let mut superblock = Superblock::first([9; 16], shape, 1000);
        (superblock.epoch, superblock.previous, superblock.index, superblock.states) =
            (12, 11, 5, states);
        for flags in 1..8 {
            let (unfinished, logged, closed) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
            let flagged = Superblock { unfinished, logged, closed, ..superblock.clone() };
            assert_eq!(Superblock::decode(&flagged.encode()).unwrap(), flagged);
        }
        for last in 0..100 {
            superblock.begin_session(0);
            superblock.end_sessions(last * 10);
        }
        let bytes = superblock.encode();
        assert_eq!(Superblock::decode(&bytes).unwrap(), superblock);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Superblock::decode(&flipped), None, "bit {bit}");
        }
        assert_eq!(Superblock::decode(&[0; BLOCK]), None);
        // The last session is open, the one before it has an end, and older ones are unknown.
        assert!(
            superblock.admits(1100, 5000)
                && superblock.admits(1099, 990)
                && !superblock.admits(1099, 991)
        );
        assert!(
            !superblock.admits(1101, 400)
                && superblock.admits(1002, 350)
                && !superblock.admits(1002, 400)
        );
        // A clock that is behind does not bring an old session back.
        assert_eq!(superblock.order(), (1100, 12));
        superblock.closed = true;
        superblock.begin_session(7000);
        assert!(superblock.admits(1100, 5000) && superblock.stamp == 7000 && !superblock.closed);
        // Many clients die during their open: their records count until a later client completes an
        // open.
        (0..100).for_each(|_| superblock.begin_session(0));
        assert!(superblock.admits(1100, 5000));
        superblock.end_sessions(6000);
        assert!(superblock.admits(1100, 6000) && !superblock.admits(1100, 6001));
    }

    #[test]
    fn parity_in_place_is_told_apart_and_never_decoded() {
        let shape = Shape::plan(2, 1, 64 << 20).unwrap();
        let mut bytes = Superblock::first([9; 16], shape, 1000).encode();
        assert!(!Superblock::are_in_place(&bytes));
        bytes[14] |= (IN_PLACE >> 16) as u8;
        assert!(!Superblock::are_in_place(&bytes), "the checksum is wrong");
        let crc = crc32c(&bytes[12..]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        assert!(Superblock::are_in_place(&bytes));
        assert_eq!(Superblock::decode(&bytes), None);
    }

    #[test]
    fn who_opens_an_array_writes_elsewhere_than_who_died() {
        for epoch in 1..40 {
            let dead = (epoch..epoch + EPOCHS_SKIPPED).map(Superblock::offset);
            let living = Superblock::offset(epoch + EPOCHS_SKIPPED);
            assert!(dead.into_iter().all(|offset| offset != living));
        }
    }
}
