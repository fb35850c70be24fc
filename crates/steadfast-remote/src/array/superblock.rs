//! The superblock of a server: to which array it belongs, as which member, and who else does.
//!
//! Two copies of 4 KiB at the front of each server, written in turn: the epoch says which is next. The newest one that
//! is whole counts.

use super::members::State;
use super::shape::Shape;
use super::{BLOCK, crc32c};

const MAGIC: [u8; 8] = *b"SfRemote";
const VERSION: u32 = 1;
/// Sessions whose last record is remembered: writes of a client that died can not be under way for longer than that.
const CUTOFFS_MAX: usize = 64;

/// What a superblock says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// Identity of the array.
    pub uuid: [u8; 16],
    /// Grows with every change of who is in which state.
    pub epoch: u64,
    /// How often the array was opened.
    pub session: u32,
    /// Which member this server is.
    pub index: usize,
    /// States of all members.
    pub states: Vec<State>,
    pub(crate) shape: Shape,
    /// Of earlier sessions: the last record that counts.
    pub(crate) cutoffs: Vec<(u32, u64)>,
}

impl Superblock {
    /// How blocks are spread.
    pub fn policy(&self) -> super::Policy {
        super::Policy::of_shards(self.shape.data, self.shape.parity)
    }

    /// Where this epoch is written.
    pub fn offset(epoch: u64) -> u64 {
        (epoch % 2) * BLOCK as u64
    }

    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.uuid);
        bytes.extend_from_slice(&self.epoch.to_le_bytes());
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

    /// Reads a superblock of 4 KiB.
    pub fn decode(bytes: &[u8]) -> Option<Superblock> {
        let u32_at = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let u64_at = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        if bytes.len() != BLOCK || bytes.get(..8)? != MAGIC || u32_at(8)? != crc32c(bytes.get(12..)?) {
            return None;
        }
        if u32_at(12)? != VERSION {
            return None;
        }
        let shape = Shape {
            data: u32_at(48)? as usize,
            parity: u32_at(52)? as usize,
            segment: u32_at(56)?,
            slots: u32_at(60)?,
            blocks: u32_at(64)?,
        };
        let (index, count) = (u32_at(44)? as usize, u32_at(68)? as usize);
        if !shape.is_sound() || index >= shape.servers() || count > CUTOFFS_MAX {
            return None;
        }
        let states: Option<Vec<State>> =
            bytes.get(72..72 + shape.servers())?.iter().map(|number| State::of_number(*number)).collect();
        let start = (72 + shape.servers()).next_multiple_of(8);
        let cutoffs: Option<Vec<(u32, u64)>> = (0..count)
            .map(|index| Some((u32_at(start + index * 12)?, u64_at(start + index * 12 + 4)?)))
            .collect();
        Some(Superblock {
            uuid: *bytes.get(16..)?.first_chunk()?,
            epoch: u64_at(32)?,
            session: u32_at(40)?,
            index,
            states: states?,
            shape,
            cutoffs: cutoffs?,
        })
    }

    /// Ends a session with its last record and begins the next.
    pub(crate) fn next_session(&mut self, last: u64) {
        self.cutoffs.push((self.session, last));
        let surplus = self.cutoffs.len().saturating_sub(CUTOFFS_MAX);
        self.cutoffs.drain(..surplus);
        self.session += 1;
    }

    /// Whether a record counts: one that a client left behind when it died, and that arrived after the next had looked,
    /// does not.
    pub(crate) fn admits(&self, session: u32, sequence: u64) -> bool {
        if session >= self.session {
            return session == self.session;
        }
        self.cutoffs.iter().find(|(ended, _)| *ended == session).is_none_or(|(_, last)| sequence <= *last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn superblocks_go_both_ways_and_any_flipped_bit_is_seen() {
        let shape = Shape::plan(4, 2, 64 << 20).unwrap();
        let states = vec![State::Good, State::Lost, State::Rebuilding, State::Good, State::Good, State::Good];
        let mut superblock =
            Superblock { uuid: [9; 16], epoch: 12, session: 1, index: 5, states, shape, cutoffs: Vec::new() };
        (0..100).for_each(|last| superblock.next_session(last));
        let bytes = superblock.encode();
        assert_eq!(Superblock::decode(&bytes).unwrap(), superblock);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Superblock::decode(&flipped), None, "bit {bit}");
        }
        assert_eq!(Superblock::decode(&[0; BLOCK]), None);
        assert!(superblock.admits(101, 5) && !superblock.admits(102, 5));
        assert!(superblock.admits(100, 99) && !superblock.admits(100, 100) && superblock.admits(2, 9999));
    }
}
