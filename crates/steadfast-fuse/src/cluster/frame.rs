//! Frames between a peer and the owner.
//!
//! A peer sends *requests*: a request of its kernel as the kernel has sent it, with a number that
//! grows. The owner sends *answers* with the number of their request. Numbers in a frame have the
//! byte order of the machine, like those of the kernel's protocol. The first message on a
//! connection ([`super::hello`]) refuses another one.

use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex};

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, TryFromBytes};

use super::deltas::{Changes, KEPT_MAX};
use super::executions::Executed;
use crate::abi::output::AttrOut;
use crate::buffer::DATA_MAX;
use crate::filesystem::recall::{Recalled, RecalledNode};

/// Longest body of a frame: the data of a WRITE or READ, and what stands before it.
const BODY_MAX: usize = DATA_MAX + 4096;
/// Longest delta, with the numbers before it.
const DELTA_MAX: usize = KEPT_MAX + 4096;
/// Most numbers in one frame.
pub(super) const NUMBERS_MAX: usize = 4096;

/// What a peer sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, TryFromBytes)]
#[repr(u32)]
pub(super) enum FrameKind {
    /// A request that is answered. The numbers are those of answers that have arrived.
    Request = 1,
    /// A request without an answer (FORGET, INTERRUPT).
    OneWay = 2,
    /// After a new connection: the numbers are all those up to the frame's number whose answers
    /// have not arrived.
    Resume = 3,
    /// The recall with this number is done.
    Recalled = 4,
    /// Asks whether the session goes on; answered by [`Told::GoesOn`].
    Ping = 5,
    /// A request that was sent to an earlier owner, which may have executed it.
    Repeated = 6,
}

/// The way to the other node. A frame is written whole under its lock.
pub(super) type Writer = Arc<Mutex<Box<dyn Write + Send>>>;

/// The start of a frame from a peer. `numbers` numbers and the request follow.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RequestHead {
    kind: u32,
    numbers: u32,
    length: u32,
    reserved: u32,
    number: u64,
}

/// A frame from a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestFrame {
    pub(super) kind: FrameKind,
    pub(super) number: u64,
    pub(super) numbers: Vec<u64>,
    pub(super) bytes: Vec<u8>,
}

/// What the owner sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, TryFromBytes)]
#[repr(u32)]
pub(super) enum Told {
    /// The answer to the request with this number; without a number it tells only the progress.
    Answer = 1,
    /// The kernel must drop the attributes of the nodes in the body.
    Recall = 2,
    /// Also all names.
    RecallNames = 3,
    /// The kernel must drop attributes and pages of the nodes in the body.
    RecallPages = 4,
    /// The session went on when the ping with this number came.
    GoesOn = 5,
    /// The owner closes the volume.
    OwnerEnds = 6,
    /// The owner has executed those of the node's requests that are in its list, and no others
    /// whose answers the node may not have. It executes no more.
    Executed = 7,
    /// The answer to the READ with this number is a plan ([`crate::planned`]).
    Plan = 8,
}

impl Told {
    /// Whether the frame answers something, if it has a number.
    pub(super) fn answers(self) -> bool {
        matches!(self, Told::Answer | Told::Plan)
    }
}

/// The start of an answer. The data follows, then the directory's attributes, then the changes, then
/// the executed requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct AnswerHead {
    length: u32,
    /// 0, or an errno.
    error: i32,
    number: u64,
    accepted: u64,
    durable: u64,
    told: u32,
    /// Length of the directory's attributes: 0, or that of [`AttrOut`].
    directory: u32,
    /// Kind of the [`Changes`].
    changes: u32,
    /// Their length.
    changes_length: u32,
    tag: u64,
    /// How many executed requests there are.
    executed: u64,
}

/// How far the volume was when an answer was made, see
/// [`Volume::progress`](steadfast::Volume::progress).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Progress {
    pub(super) accepted: u64,
    pub(super) durable: u64,
}

/// A frame from the owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AnswerFrame {
    pub(super) told: Told,
    pub(super) number: u64,
    /// 0, or an errno.
    pub(super) error: i32,
    pub(super) progress: Progress,
    pub(super) bytes: Vec<u8>,
    /// The attributes of the directory in which the request has changed a name, for as long as they
    /// are delegated to the peer.
    pub(super) directory: Option<AttrOut>,
    /// What has changed since the last answer.
    pub(super) changes: Changes,
    /// With changes: the executed requests of all nodes, see [`super::executions`].
    pub(super) executed: Vec<Executed>,
    /// The tag of the peer's node ids, see [`crate::node`].
    pub(super) tag: u16,
}

fn garbled() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the other node sends what makes no sense")
}

fn body(reader: &mut dyn Read, length: u32, longest: usize) -> io::Result<Vec<u8>> {
    let length = usize::try_from(length).ok().filter(|length| *length <= longest);
    let mut bytes = vec![0; length.ok_or_else(garbled)?];
    reader.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn structure<T: FromBytes + FromZeros + IntoBytes>(reader: &mut dyn Read) -> io::Result<T> {
    let mut value = T::new_zeroed();
    reader.read_exact(value.as_mut_bytes())?;
    Ok(value)
}

impl RequestFrame {
    /// Bytes of the frame.
    pub(super) fn encode(&self) -> Vec<u8> {
        let head = RequestHead {
            kind: self.kind as u32,
            numbers: self.numbers.len() as u32,
            length: self.bytes.len() as u32,
            reserved: 0,
            number: self.number,
        };
        [head.as_bytes(), self.numbers.as_bytes(), &self.bytes].concat()
    }

    pub(super) fn read(reader: &mut dyn Read) -> io::Result<RequestFrame> {
        let head: RequestHead = structure(reader)?;
        let kind = FrameKind::try_read_from_bytes(head.kind.as_bytes()).map_err(|_| garbled())?;
        let count = head.numbers as usize;
        if count > NUMBERS_MAX {
            return Err(garbled());
        }
        let mut numbers = vec![0_u64; count];
        reader.read_exact(numbers.as_mut_bytes())?;
        Ok(RequestFrame {
            kind,
            number: head.number,
            numbers,
            bytes: body(reader, head.length, BODY_MAX)?,
        })
    }
}

impl AnswerFrame {
    pub(super) fn write(&self, writer: &mut dyn Write) -> io::Result<()> {
        let (changes, delta) = self.changes.encode();
        let head = AnswerHead {
            length: self.bytes.len() as u32,
            error: self.error,
            number: self.number,
            accepted: self.progress.accepted,
            durable: self.progress.durable,
            told: self.told as u32,
            directory: self.directory.map_or(0, |_| size_of::<AttrOut>() as u32),
            changes,
            changes_length: delta.len() as u32,
            tag: self.tag.into(),
            executed: self.executed.len() as u64,
        };
        let directory = self.directory.as_ref().map_or(&[][..], |attributes| attributes.as_bytes());
        let executed = self.executed.as_bytes();
        writer.write_all(&[head.as_bytes(), &self.bytes, directory, &delta, executed].concat())
    }

    pub(super) fn read(reader: &mut dyn Read) -> io::Result<AnswerFrame> {
        let head: AnswerHead = structure(reader)?;
        let progress = Progress { accepted: head.accepted, durable: head.durable };
        let told = Told::try_read_from_bytes(head.told.as_bytes()).map_err(|_| garbled())?;
        let bytes = body(reader, head.length, BODY_MAX)?;
        let directory = match head.directory as usize {
            0 => None,
            length if length == size_of::<AttrOut>() => Some(structure(reader)?),
            _ => return Err(garbled()),
        };
        let changes =
            Changes::decode(head.changes, &body(reader, head.changes_length, DELTA_MAX)?)?;
        let count = usize::try_from(head.executed).map_err(|_| garbled())?;
        let executed = Executed::read_list(reader, count)?;
        let AnswerHead { number, error, .. } = head;
        let tag = u16::try_from(head.tag).map_err(|_| garbled())?;
        Ok(AnswerFrame { told, number, error, progress, bytes, directory, changes, executed, tag })
    }

    /// A frame that only tells something.
    pub(super) fn telling(told: Told, number: u64, progress: Progress) -> AnswerFrame {
        AnswerFrame {
            told,
            number,
            error: 0,
            progress,
            bytes: Vec::new(),
            directory: None,
            changes: Changes::Same,
            executed: Vec::new(),
            tag: 0,
        }
    }

    /// The recall of what the kernel keeps of nodes.
    pub(super) fn recall(number: u64, nodes: &[RecalledNode], what: Recalled) -> AnswerFrame {
        let told = match what {
            Recalled::Attributes => Told::Recall,
            Recalled::Names => Told::RecallNames,
            Recalled::Pages => Told::RecallPages,
        };
        let bytes = nodes.as_bytes().to_vec();
        AnswerFrame { bytes, ..AnswerFrame::telling(told, number, Progress::default()) }
    }

    /// The nodes of a recall.
    pub(super) fn nodes(&self) -> Vec<RecalledNode> {
        let node = |bytes: &[u8]| RecalledNode::read_from_bytes(bytes).ok();
        self.bytes.chunks_exact(size_of::<RecalledNode>()).filter_map(node).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_the_wire() {
        let request = RequestFrame {
            kind: FrameKind::Request,
            number: 7,
            numbers: vec![3, 5],
            bytes: b"request".to_vec(),
        };
        let bytes = request.encode();
        assert_eq!(RequestFrame::read(&mut &bytes[..]).unwrap(), request);
        let progress = Progress { accepted: 9, durable: 8 };
        for directory in [None, Some(AttrOut { attr_valid: 5, ..AttrOut::default() })] {
            let answer = AnswerFrame {
                told: Told::Answer,
                number: 7,
                error: libc::ENOENT,
                progress,
                bytes: b"data".to_vec(),
                directory,
                changes: Changes::Untold,
                executed: vec![Executed::new((1, 5), None)],
                tag: 3,
            };
            let mut bytes = Vec::new();
            answer.write(&mut bytes).unwrap();
            assert_eq!(AnswerFrame::read(&mut &bytes[..]).unwrap(), answer);
        }
    }

    #[test]
    fn frames_that_make_no_sense_are_refused_without_memory_for_them() {
        let refused = |bytes: &[u8]| RequestFrame::read(&mut &*bytes).unwrap_err().kind();
        let head =
            |kind, numbers, length| RequestHead { kind, numbers, length, reserved: 0, number: 1 };
        assert_eq!(refused(head(9, 0, 0).as_bytes()), io::ErrorKind::InvalidData);
        assert_eq!(refused(head(1, u32::MAX, 0).as_bytes()), io::ErrorKind::InvalidData);
        assert_eq!(refused(head(1, 0, u32::MAX).as_bytes()), io::ErrorKind::InvalidData);
        assert_eq!(refused(head(1, 0, 8).as_bytes()), io::ErrorKind::UnexpectedEof);
        for (length, directory) in [(u32::MAX, 0), (0, 1), (0, u32::MAX)] {
            let (number, told) = (1, 1);
            let head = AnswerHead { length, number, told, directory, ..AnswerHead::new_zeroed() };
            let found = AnswerFrame::read(&mut head.as_bytes()).unwrap_err().kind();
            assert_eq!(found, io::ErrorKind::InvalidData);
        }
    }
}
