//! Deltas on the wire, and what a node keeps of them: [`KeptChanges`].
//!
//! The owner puts a delta before each answer ([`steadfast::Volume::delta`]): whatever an answer
//! tells, the node has. When the owner dies, the node gives the next one what it keeps. So what
//! surviving nodes were told is not lost. A node that was told of changes without a delta says so.

use std::io::{self, Read};

use steadfast::volume::{Delta, KeptDeltas, Place};
use steadfast::{Generation, Lsn};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::executions::Executed;

/// Longest payload of one delta, and of all that a node keeps. An owner sets a transaction point
/// before a node has to keep more.
pub(super) const KEPT_MAX: usize = 8 << 20;

/// Most deltas that a node brings. Each has a key and the head of a record.
const PAYLOADS_MAX: u32 = 1 << 18;

/// Numbers before the payload of a delta.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct DeltaHead {
    begins_at: u64,
    sequence: u64,
    durable_sequence: u64,
    durable: [u64; 2],
    sealed: [u64; 2],
}

/// Numbers before what a node keeps. The executed requests follow, and for each payload its batch,
/// its length and its bytes.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct KeptHead {
    sequence: u64,
    durable: [u64; 2],
    sealed: [u64; 2],
    lacks_changes: u32,
    payloads: u32,
    tag: u64,
    executed: u32,
    /// One more than in the last list; 0: there is none.
    last: u32,
}

fn numbers(place: Place) -> [u64; 2] {
    [place.generation.0, place.lsn.0]
}

fn place([generation, lsn]: [u64; 2]) -> Place {
    Place { generation: Generation(generation), lsn: Lsn(lsn) }
}

fn garbled() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "what another node keeps makes no sense")
}

/// What an answer says about changes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum Changes {
    /// None since the last delta, or the frame is no answer.
    #[default]
    Same,
    /// The node was told of some, and gets no delta.
    Untold,
    /// A delta.
    New(Delta),
}

impl Changes {
    /// The number in the head of the frame, and the bytes.
    pub(super) fn encode(&self) -> (u32, Vec<u8>) {
        match self {
            Changes::Same => (0, Vec::new()),
            Changes::Untold => (1, Vec::new()),
            Changes::New(delta) => {
                let head = DeltaHead {
                    begins_at: delta.begins_at,
                    sequence: delta.sequence,
                    durable_sequence: delta.durable_sequence,
                    durable: numbers(delta.durable),
                    sealed: numbers(delta.sealed),
                };
                (2, [head.as_bytes(), &delta.payload].concat())
            }
        }
    }

    pub(super) fn decode(kind: u32, bytes: &[u8]) -> io::Result<Changes> {
        match (kind, bytes.len()) {
            (0, 0) => Ok(Changes::Same),
            (1, 0) => Ok(Changes::Untold),
            (2, _) => {
                let (head, payload) = DeltaHead::read_from_prefix(bytes).map_err(|_| garbled())?;
                Ok(Changes::New(Delta {
                    begins_at: head.begins_at,
                    sequence: head.sequence,
                    durable_sequence: head.durable_sequence,
                    durable: place(head.durable),
                    sealed: place(head.sealed),
                    payload: payload.to_vec(),
                }))
            }
            _ => Err(garbled()),
        }
    }
}

/// What a node keeps, of the owner of one term.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeptChanges {
    /// The term.
    pub epoch: u64,
    /// The tag of the node's node ids, see [`crate::node`].
    pub(crate) tag: u16,
    /// The deltas.
    pub deltas: KeptDeltas,
    /// The requests that their state has, see [`super::executions`].
    pub(super) executed: Vec<Executed>,
    /// The owner ends, and has executed these requests of this node, and no others without an answer.
    pub(super) last: Option<Vec<Executed>>,
}

impl KeptChanges {
    /// Nothing of an owner in this term.
    pub(super) fn of_term(epoch: u64, tag: u16) -> KeptChanges {
        KeptChanges { epoch, tag, ..KeptChanges::default() }
    }

    /// A frame has these changes and executed requests, and tells the tag of node ids.
    ///
    /// # Errors
    /// A delta is missing: the node must connect again.
    pub(super) fn note(
        &mut self,
        changes: Changes,
        executed: &[Executed],
        tag: u16,
    ) -> io::Result<()> {
        self.tag = tag;
        match changes {
            Changes::Same => Ok(()),
            Changes::Untold => {
                self.deltas.lacks_changes = true;
                Ok(())
            }
            Changes::New(delta) => {
                let is_late = delta.sequence < self.deltas.sequence;
                self.deltas.keep(delta).map_err(|_| garbled())?;
                if !is_late {
                    self.executed = executed.to_vec();
                }
                if self.deltas.bytes() > KEPT_MAX {
                    self.deltas = KeptDeltas { lacks_changes: true, ..KeptDeltas::default() };
                    return Err(garbled());
                }
                Ok(())
            }
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let KeptDeltas { sequence, durable, sealed, lacks_changes, payloads } = &self.deltas;
        let head = KeptHead {
            sequence: *sequence,
            durable: numbers(*durable),
            sealed: numbers(*sealed),
            lacks_changes: u32::from(*lacks_changes),
            payloads: payloads.len() as u32,
            tag: self.tag.into(),
            executed: self.executed.len() as u32,
            last: self.last.as_ref().map_or(0, |last| last.len() as u32 + 1),
        };
        let last = self.last.as_deref().unwrap_or_default();
        let lists = [self.executed.as_bytes(), last.as_bytes()];
        let mut bytes = [self.epoch.as_bytes(), head.as_bytes(), lists[0], lists[1]].concat();
        for (sequence, payload) in payloads {
            bytes.extend_from_slice(sequence.as_bytes());
            bytes.extend_from_slice((payload.len() as u64).as_bytes());
            bytes.extend_from_slice(payload);
        }
        bytes
    }

    /// Reads what [`encode`](Self::encode) has made.
    ///
    /// # Errors
    /// The connection breaks, or it is something else.
    pub(super) fn read(reader: &mut dyn Read) -> io::Result<KeptChanges> {
        let mut epoch = 0_u64;
        reader.read_exact(epoch.as_mut_bytes())?;
        let mut head = KeptHead::new_zeroed();
        reader.read_exact(head.as_mut_bytes())?;
        let tag = u16::try_from(head.tag).map_err(|_| garbled())?;
        let executed = Executed::read_list(reader, head.executed as usize)?;
        let last = match head.last {
            0 => None,
            count => Some(Executed::read_list(reader, count as usize - 1)?),
        };
        let mut payloads = Vec::new();
        let mut left = KEPT_MAX;
        if head.payloads > PAYLOADS_MAX {
            return Err(garbled());
        }
        for _ in 0..head.payloads {
            let mut numbers = [0_u64; 2];
            reader.read_exact(numbers.as_mut_bytes())?;
            let [sequence, length] = numbers;
            let length = usize::try_from(length).ok().filter(|length| (1..=left).contains(length));
            let length = length.ok_or_else(garbled)?;
            left -= length;
            let mut payload = vec![0; length];
            reader.read_exact(&mut payload)?;
            payloads.push((sequence, payload));
        }
        let deltas = KeptDeltas {
            sequence: head.sequence,
            durable: place(head.durable),
            sealed: place(head.sealed),
            lacks_changes: head.lacks_changes != 0,
            payloads,
        };
        Ok(KeptChanges { epoch, tag, deltas, executed, last })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delta(begins_at: u64, sequence: u64, payload: &[u8]) -> Changes {
        let at = |lsn| place([3, lsn]);
        let payload = payload.to_vec();
        let durable_sequence = 1;
        let (durable, sealed) = (at(7), at(8));
        Changes::New(Delta { begins_at, sequence, durable_sequence, durable, sealed, payload })
    }

    #[test]
    fn changes_and_what_is_kept_survive_the_wire() {
        for changes in [Changes::Same, Changes::Untold, delta(1, 5, b"keys")] {
            let (kind, bytes) = changes.encode();
            assert_eq!(Changes::decode(kind, &bytes).unwrap(), changes);
        }
        assert!(Changes::decode(3, &[]).is_err() && Changes::decode(2, b"short").is_err());
        let mut kept = KeptChanges::of_term(9, 1);
        let executed = |number| vec![Executed::new((1, number), None)];
        kept.note(delta(1, 5, b"keys"), &executed(7), 1).unwrap();
        kept.note(delta(5, 6, b"more"), &executed(8), 2).unwrap();
        kept.note(Changes::Same, &[], 2).unwrap();
        assert_eq!(kept.executed, executed(8));
        kept.last = Some(vec![]);
        kept.note(Changes::Untold, &[], 2).unwrap();
        assert!(kept.deltas.lacks_changes && kept.tag == 2);
        let bytes = kept.encode();
        assert_eq!(KeptChanges::read(&mut &bytes[..]).unwrap(), kept);
        assert!(KeptChanges::read(&mut &bytes[..bytes.len() - 1]).is_err());
        assert!(kept.note(delta(7, 8, b"gap"), &[], 2).is_err());
    }

    #[test]
    fn what_is_too_long_takes_no_memory() {
        let mut kept = KeptChanges::of_term(9, 0);
        kept.note(delta(1, 5, b"keys"), &[], 0).unwrap();
        let mut bytes = kept.encode();
        let at = bytes.len() - 4 - 8;
        bytes[at..at + 8].copy_from_slice(u64::MAX.as_bytes());
        let found = KeptChanges::read(&mut &bytes[..]).unwrap_err().kind();
        assert_eq!(found, io::ErrorKind::InvalidData);
    }
}
