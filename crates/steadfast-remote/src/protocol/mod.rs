//! The NBD protocol as bytes: messages of both sides, parsed and built without any I/O.
//!
//! Fixed newstyle negotiation with the options GO, INFO, LIST, EXPORT_NAME, STARTTLS,
//! STRUCTURED_REPLY and the meta contexts. Requests and replies of the transmission phase, simple
//! and structured. Numbers are big-endian.
//!
//! Invariants: every parser takes a slice and returns a value or a [`ProtocolError`]. It never
//! panics, and allocates nothing by an unchecked length. Lengths are bounded by
//! [`OPTION_BYTES_MAX`] and [`REQUEST_BYTES_MAX`] before memory is allocated for them.

mod negotiation;
mod reply;
mod request;
pub mod wire;

pub use negotiation::{
    ClientFlags, ExportInfo, InfoRequest, MetaContextRequest, OptionHeader, OptionKind,
    OptionReplyHeader, ServerGreeting, option_reply, option_request,
};
pub use reply::{
    AllocationExtent, Chunk, ChunkHeader, ChunkKind, ReplyHeader, SimpleReply, parse_reply_header,
};
pub use request::{Command, CommandFlags, Request};

/// Longest option payload that is read, bytes: two names of 4,096 bytes and some numbers fit.
pub const OPTION_BYTES_MAX: u32 = 16 << 10;
/// Longest export name or meta context of the protocol, bytes.
pub const NAME_BYTES_MAX: usize = 4096;
/// Longest read or write in one request, bytes: the protocol allows clients to assume it.
pub const REQUEST_BYTES_MAX: u32 = 32 << 20;
/// The only meta context that is served: data and holes.
pub const BASE_ALLOCATION: &str = "base:allocation";

/// A message that the protocol does not allow; the connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// A message is too short.
    #[error("the message is too short")]
    Short,
    /// A message begins with a wrong magic number.
    #[error("wrong magic number: the peer does not speak NBD, or what it says was damaged")]
    Magic,
    /// A length exceeds the limits of this implementation.
    #[error("a length of {0} bytes is out of bounds")]
    Length(u64),
    /// A name is not UTF-8.
    #[error("a name is not UTF-8")]
    Name,
    /// The peer does not support fixed newstyle negotiation.
    #[error("the peer has no fixed newstyle negotiation")]
    NotFixedNewstyle,
    /// A reply to a request that was not made, or of a kind that was not negotiated.
    #[error("an unexpected reply")]
    Unexpected,
}

/// Reads numbers from the front of a message.
pub(crate) struct Cursor<'a>(pub(crate) &'a [u8]);

impl<'a> Cursor<'a> {
    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], ProtocolError> {
        let (head, rest) = self.0.split_at_checked(count).ok_or(ProtocolError::Short)?;
        self.0 = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ProtocolError> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(ProtocolError::Short)?;
        self.0 = rest;
        Ok(*head)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, ProtocolError> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, ProtocolError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, ProtocolError> {
        self.array().map(u64::from_be_bytes)
    }

    /// Reads a length and this many bytes of UTF-8.
    pub(crate) fn name(&mut self) -> Result<&'a str, ProtocolError> {
        let length = self.u32()?;
        if length as usize > NAME_BYTES_MAX {
            return Err(ProtocolError::Length(length.into()));
        }
        std::str::from_utf8(self.bytes(length as usize)?).map_err(|_| ProtocolError::Name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_media::Random;

    /// All parsers of both sides on noise, half of it with the right magic numbers. None panics
    /// (overflow checks are on), and none consumes more than its input.
    #[test]
    fn parsers_survive_noise() {
        let mut random = Random::new(7);
        let magic: [&[u8]; 6] = [
            &wire::REQUEST_MAGIC.to_be_bytes(),
            &wire::SIMPLE_REPLY_MAGIC.to_be_bytes(),
            &wire::STRUCTURED_REPLY_MAGIC.to_be_bytes(),
            &wire::OPTION_REPLY_MAGIC.to_be_bytes(),
            &wire::IHAVEOPT.to_be_bytes(),
            &[0, 0, 0, 3],
        ];
        for _ in 0..100_000 {
            let length = random.below(80) as usize;
            let sparse = random.coin();
            let mut bytes: Vec<u8> = (0..length)
                .map(|_| if sparse && !random.one_in(4) { 0 } else { random.bits() as u8 })
                .collect();
            if random.coin() {
                let front = magic[random.below(6) as usize];
                let count = front.len().min(bytes.len());
                bytes[..count].copy_from_slice(&front[..count]);
            }
            let _ = Request::parse(&bytes);
            let _ = ServerGreeting::parse(&bytes);
            let _ = OptionHeader::parse(&bytes);
            let _ = OptionReplyHeader::parse(&bytes);
            let _ = InfoRequest::parse(&bytes);
            let _ = MetaContextRequest::parse(&bytes);
            let _ = ExportInfo::default().learn(&bytes);
            if let Ok(ReplyHeader::Chunk(chunk)) = parse_reply_header(&bytes) {
                let _ = ReplyHeader::with_length(chunk, [bytes[3], 0, bytes[4], bytes[5]]);
                let _ = Chunk::parse(chunk.kind, &bytes[16..]);
            }
        }
    }
}
