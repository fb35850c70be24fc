//! Replies of the transmission phase: simple replies, and the chunks of structured replies.

use super::wire;
use super::{Cursor, ProtocolError, REQUEST_BYTES_MAX};

/// A simple reply; the bytes of a successful read follow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SimpleReply {
    /// 0, or one of the protocol's error numbers.
    pub error: u32,
    /// Cookie of the request.
    pub cookie: u64,
}

impl SimpleReply {
    /// Length on the wire, bytes.
    pub const BYTES: usize = 16;

    /// The reply as bytes.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0..4].copy_from_slice(&wire::SIMPLE_REPLY_MAGIC.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.error.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes
    }
}

/// Kinds of chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkKind {
    /// No payload: ends a reply.
    None,
    /// An offset and bytes.
    Data,
    /// An offset and a number of zeros.
    Hole,
    /// Extents of a meta context.
    BlockStatus,
    /// An error number and a message.
    Error,
    /// An error number, a message and an offset.
    ErrorOffset,
    /// An unknown kind; with `true` an error, otherwise it can be skipped.
    Other(bool),
}

/// Header of a chunk; `length` bytes follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkHeader {
    /// The last chunk of its reply.
    pub done: bool,
    /// Kind of the chunk.
    pub kind: ChunkKind,
    /// Cookie of the request.
    pub cookie: u64,
    /// Bytes that follow.
    pub length: u32,
}

impl ChunkHeader {
    /// Length on the wire, bytes.
    pub const BYTES: usize = 20;

    /// The header as bytes.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let kind = match self.kind {
            ChunkKind::None | ChunkKind::Other(false) => wire::CHUNK_NONE,
            ChunkKind::Data => wire::CHUNK_OFFSET_DATA,
            ChunkKind::Hole => wire::CHUNK_OFFSET_HOLE,
            ChunkKind::BlockStatus => wire::CHUNK_BLOCK_STATUS,
            ChunkKind::Error | ChunkKind::Other(true) => wire::CHUNK_ERROR,
            ChunkKind::ErrorOffset => wire::CHUNK_ERROR_OFFSET,
        };
        let mut bytes = [0; Self::BYTES];
        bytes[0..4].copy_from_slice(&wire::STRUCTURED_REPLY_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&(u16::from(self.done) * wire::CHUNK_FLAG_DONE).to_be_bytes());
        bytes[6..8].copy_from_slice(&kind.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }
}

/// One range of `base:allocation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllocationExtent {
    /// Bytes.
    pub length: u32,
    /// Nothing is stored there; it reads as zeros.
    pub hole: bool,
}

impl AllocationExtent {
    /// Length and flags as bytes.
    pub fn encode(&self) -> [u8; 8] {
        let flags = if self.hole { wire::STATE_HOLE | wire::STATE_ZERO } else { 0 };
        let mut bytes = [0; 8];
        bytes[0..4].copy_from_slice(&self.length.to_be_bytes());
        bytes[4..8].copy_from_slice(&flags.to_be_bytes());
        bytes
    }
}

/// The payload of a chunk, except for the bytes of a read, which go directly to the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chunk {
    /// Nothing.
    None,
    /// Zeros at this offset.
    Hole {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u32,
    },
    /// The request failed.
    Error(u32),
}

impl Chunk {
    /// Decodes the payload of a chunk of a kind other than [`ChunkKind::Data`].
    ///
    /// # Errors
    /// The payload does not match its kind.
    pub fn parse(kind: ChunkKind, payload: &[u8]) -> Result<Chunk, ProtocolError> {
        let mut cursor = Cursor(payload);
        match kind {
            ChunkKind::None | ChunkKind::BlockStatus | ChunkKind::Other(false) => Ok(Chunk::None),
            ChunkKind::Hole => Ok(Chunk::Hole { offset: cursor.u64()?, length: cursor.u32()? }),
            // An error chunk with number 0 still counts as an error.
            ChunkKind::Error | ChunkKind::ErrorOffset => match cursor.u32()? {
                0 => Ok(Chunk::Error(wire::EIO)),
                number => Ok(Chunk::Error(number)),
            },
            ChunkKind::Other(true) => Ok(Chunk::Error(wire::EIO)),
            ChunkKind::Data => Err(ProtocolError::Unexpected),
        }
    }
}

/// Start of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyHeader {
    /// A simple reply, complete except for the bytes of a read.
    Simple(SimpleReply),
    /// A chunk. Its length, 4 more bytes, is still to be read: see [`ReplyHeader::with_length`].
    Chunk(ChunkHeader),
}

impl ReplyHeader {
    /// Adds the length to a chunk's header, after its first 16 bytes.
    ///
    /// # Errors
    /// [`ProtocolError::Length`] if the length exceeds the limit for its kind.
    pub fn with_length(header: ChunkHeader, length: [u8; 4]) -> Result<ChunkHeader, ProtocolError> {
        let length = u32::from_be_bytes(length);
        let small = !matches!(header.kind, ChunkKind::Data);
        let limit = if small { super::OPTION_BYTES_MAX } else { REQUEST_BYTES_MAX + 8 };
        if length > limit {
            return Err(ProtocolError::Length(length.into()));
        }
        Ok(ChunkHeader { length, ..header })
    }
}

/// Decodes the first 16 bytes of a reply.
///
/// # Errors
/// [`ProtocolError::Magic`], and [`ProtocolError::Short`].
pub fn parse_reply_header(bytes: &[u8]) -> Result<ReplyHeader, ProtocolError> {
    let mut cursor = Cursor(bytes);
    match cursor.u32()? {
        wire::SIMPLE_REPLY_MAGIC => {
            Ok(ReplyHeader::Simple(SimpleReply { error: cursor.u32()?, cookie: cursor.u64()? }))
        }
        wire::STRUCTURED_REPLY_MAGIC => {
            let done = cursor.u16()? & wire::CHUNK_FLAG_DONE != 0;
            let kind = match cursor.u16()? {
                wire::CHUNK_NONE => ChunkKind::None,
                wire::CHUNK_OFFSET_DATA => ChunkKind::Data,
                wire::CHUNK_OFFSET_HOLE => ChunkKind::Hole,
                wire::CHUNK_BLOCK_STATUS => ChunkKind::BlockStatus,
                wire::CHUNK_ERROR => ChunkKind::Error,
                wire::CHUNK_ERROR_OFFSET => ChunkKind::ErrorOffset,
                other => ChunkKind::Other(other & (1 << 15) != 0),
            };
            Ok(ReplyHeader::Chunk(ChunkHeader { done, kind, cookie: cursor.u64()?, length: 0 }))
        }
        _ => Err(ProtocolError::Magic),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_go_both_ways() {
        let simple = SimpleReply { error: wire::ENOSPC, cookie: 7 };
        assert_eq!(parse_reply_header(&simple.encode()), Ok(ReplyHeader::Simple(simple)));
        let chunk = ChunkHeader { done: true, kind: ChunkKind::Data, cookie: 9, length: 4104 };
        let bytes = chunk.encode();
        let Ok(ReplyHeader::Chunk(found)) = parse_reply_header(&bytes[..16]) else { panic!() };
        let length = [bytes[16], bytes[17], bytes[18], bytes[19]];
        assert_eq!(ReplyHeader::with_length(found, length), Ok(chunk));
    }

    #[test]
    fn hostile_lengths_are_refused() {
        let chunk = ChunkHeader { done: true, kind: ChunkKind::Data, cookie: 9, length: 0 };
        assert!(ReplyHeader::with_length(chunk, u32::MAX.to_be_bytes()).is_err());
        let error = ChunkHeader { kind: ChunkKind::Error, ..chunk };
        assert!(ReplyHeader::with_length(error, (1_u32 << 20).to_be_bytes()).is_err());
    }

    #[test]
    fn payloads_are_checked() {
        assert_eq!(Chunk::parse(ChunkKind::Error, &5_u32.to_be_bytes()), Ok(Chunk::Error(5)));
        assert_eq!(
            Chunk::parse(ChunkKind::Error, &0_u32.to_be_bytes()),
            Ok(Chunk::Error(wire::EIO))
        );
        assert_eq!(Chunk::parse(ChunkKind::Error, &[0; 3]), Err(ProtocolError::Short));
        assert_eq!(Chunk::parse(ChunkKind::Hole, &[0; 11]), Err(ProtocolError::Short));
        assert_eq!(Chunk::parse(ChunkKind::Other(true), &[]), Ok(Chunk::Error(wire::EIO)));
    }
}
