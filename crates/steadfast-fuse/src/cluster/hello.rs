//! The first message of each side on a connection: versions, and which session goes on.

use std::io::{self, Read, Write};

use steadfast::volume::Reached;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, TryFromBytes};

const MAGIC: [u8; 8] = *b"SFPEER\r\n";
/// Version of the frames. Nodes of different versions do not work together.
const VERSION: u32 = 11;
/// Shows the byte order.
const ORDER: u32 = 0x0102_0304;
const NAME_MAX: usize = 64;
/// Bytes of a greeting that all versions have: magic, version and byte order.
const SAME_IN_ALL: usize = 16;

/// From a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct HelloWire {
    magic: [u8; 8],
    version: u32,
    order: u32,
    epoch: u64,
    session: u64,
    flags: u64,
    node: u64,
    minor: u32,
    purpose: u32,
    name: [u8; NAME_MAX],
}

/// Why a peer connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, TryFromBytes)]
#[repr(u32)]
pub(super) enum Purpose {
    /// A new session.
    Begin = 0,
    /// The session existed on an earlier connection.
    Resume = 1,
    /// No session: it brings what it keeps of an earlier owner.
    Bring = 2,
    /// A new session, which goes on with what the node has brought.
    GoOn = 3,
}

/// What a peer says first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hello {
    /// The term in which the peer takes the other side for the owner.
    pub(super) epoch: u64,
    /// Distinguishes this session from others of the same node.
    pub(super) session: u64,
    pub(super) purpose: Purpose,
    /// Distinguishes the mounts of nodes.
    pub(super) node: u64,
    /// Version and features of the peer's kernel.
    pub(super) minor: u32,
    pub(super) flags: u64,
    /// Name of the node.
    pub(super) name: String,
}

/// What the owner says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, TryFromBytes)]
#[repr(u32)]
pub(super) enum Welcome {
    /// The session goes on, or begins.
    Served = 1,
    /// The owner has ended the session.
    Gone = 2,
    /// Another version of this program.
    OtherVersion = 3,
    /// Not the owner in that term.
    OtherTerm = 4,
    /// As `Served`, and the volume has all that the node was told of before.
    ServedWithAll = 5,
    /// As `ServedWithAll`, and the owner knows of each request of the node whether it is done.
    ServedExactly = 6,
}

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct WelcomeWire {
    magic: [u8; 8],
    version: u32,
    verdict: u32,
    tag: u64,
}

fn refused(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

impl Hello {
    pub(super) fn write(&self, writer: &mut dyn Write) -> io::Result<()> {
        let mut name = [0; NAME_MAX];
        let length = self.name.len().min(NAME_MAX);
        name[..length].copy_from_slice(&self.name.as_bytes()[..length]);
        let wire = HelloWire {
            magic: MAGIC,
            version: VERSION,
            order: ORDER,
            epoch: self.epoch,
            session: self.session,
            flags: self.flags,
            minor: self.minor,
            node: self.node,
            purpose: self.purpose as u32,
            name,
        };
        writer.write_all(wire.as_bytes())
    }

    /// `None`: a node of another version, which is to be told so.
    pub(super) fn read(reader: &mut dyn Read) -> io::Result<Option<Hello>> {
        let mut wire = HelloWire::new_zeroed();
        // Those of another version have another length.
        let (first, rest) = wire.as_mut_bytes().split_at_mut(SAME_IN_ALL);
        reader.read_exact(first)?;
        let known = first[8..12] == VERSION.to_ne_bytes() && first[12..16] == ORDER.to_ne_bytes();
        if known && first[..8] == MAGIC {
            reader.read_exact(rest)?;
        }
        if wire.magic != MAGIC {
            return Err(refused("not a node of a cluster"));
        }
        if wire.version != VERSION || wire.order != ORDER {
            return Ok(None);
        }
        let purpose = Purpose::try_read_from_bytes(wire.purpose.as_bytes());
        let name = wire.name.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(Some(Hello {
            epoch: wire.epoch,
            session: wire.session,
            purpose: purpose.map_err(|_| refused("not a node of a cluster"))?,
            node: wire.node,
            minor: wire.minor,
            flags: wire.flags,
            name: String::from_utf8_lossy(name).escape_debug().to_string(),
        }))
    }
}

impl Welcome {
    /// `reached`: how the volume compares with what the node was told of.
    pub(super) fn served(reached: Reached) -> Welcome {
        match reached {
            Reached::Less => Welcome::Served,
            Reached::All => Welcome::ServedWithAll,
            Reached::Same => Welcome::ServedExactly,
        }
    }

    /// The reverse of [`served`](Self::served). `None`: the node is not served.
    pub(super) fn reached(self) -> Option<Reached> {
        [Reached::Less, Reached::All, Reached::Same]
            .into_iter()
            .find(|reached| self == Welcome::served(*reached))
    }

    /// `tag`: that of the peer's node ids, see [`crate::node`].
    pub(super) fn write(self, tag: u16, writer: &mut dyn Write) -> io::Result<()> {
        let (version, verdict) = (VERSION, self as u32);
        let wire = WelcomeWire { magic: MAGIC, version, verdict, tag: tag.into() };
        writer.write_all(wire.as_bytes())
    }

    /// Returns the tag, too.
    pub(super) fn read(reader: &mut dyn Read) -> io::Result<(Welcome, u16)> {
        let mut wire = WelcomeWire::new_zeroed();
        // That of another version has another length.
        let (first, rest) = wire.as_mut_bytes().split_at_mut(SAME_IN_ALL);
        reader.read_exact(first)?;
        if first[..8] == MAGIC && first[8..12] == VERSION.to_ne_bytes() {
            reader.read_exact(rest)?;
        }
        if wire.magic != MAGIC {
            return Err(refused("not the owner of a volume"));
        }
        let found = Welcome::try_read_from_bytes(wire.verdict.as_bytes()).ok();
        let tag = u16::try_from(wire.tag).map_err(|_| refused("not the owner of a volume"))?;
        Ok((found.filter(|_| wire.version == VERSION).unwrap_or(Welcome::OtherVersion), tag))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_nodes_of_this_version_are_welcome() {
        let hello = Hello {
            epoch: 3,
            session: 9,
            purpose: Purpose::Resume,
            node: 8,
            minor: 44,
            flags: 1 << 40,
            name: "node-a".into(),
        };
        let mut bytes = Vec::new();
        hello.write(&mut bytes).unwrap();
        assert_eq!(Hello::read(&mut &bytes[..]).unwrap(), Some(hello));
        bytes[8] += 1;
        assert_eq!(Hello::read(&mut &bytes[..]).unwrap(), None);
        bytes[0] = 0;
        assert!(Hello::read(&mut &bytes[..]).is_err());
        assert!(Hello::read(&mut &bytes[..20]).is_err());
        let mut bytes = Vec::new();
        Welcome::served(Reached::All).write(7, &mut bytes).unwrap();
        let (welcome, tag) = Welcome::read(&mut &bytes[..]).unwrap();
        assert_eq!((welcome.reached(), tag), (Some(Reached::All), 7));
        assert_eq!(Welcome::Gone.reached(), None);
        bytes[12] = 77;
        assert_eq!(Welcome::read(&mut &bytes[..]).unwrap().0, Welcome::OtherVersion);
        bytes[8] += 1;
        assert_eq!(Welcome::read(&mut &bytes[..16]).unwrap().0, Welcome::OtherVersion);
    }
}
