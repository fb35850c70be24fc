//! Fixed newstyle negotiation: greeting, options, and replies to options.

use super::wire;
use super::{Cursor, OPTION_BYTES_MAX, ProtocolError};

/// The first 18 bytes, from the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerGreeting {
    /// Handshake flags.
    pub flags: u16,
}

impl ServerGreeting {
    /// Length on the wire, bytes.
    pub const BYTES: usize = 18;

    /// The greeting of this implementation.
    pub fn encode() -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0..8].copy_from_slice(&wire::NBDMAGIC.to_be_bytes());
        bytes[8..16].copy_from_slice(&wire::IHAVEOPT.to_be_bytes());
        bytes[16..18]
            .copy_from_slice(&(wire::FLAG_FIXED_NEWSTYLE | wire::FLAG_NO_ZEROES).to_be_bytes());
        bytes
    }

    /// Decodes a greeting.
    ///
    /// # Errors
    /// The peer is no NBD server, or an oldstyle one.
    pub fn parse(bytes: &[u8]) -> Result<ServerGreeting, ProtocolError> {
        let mut cursor = Cursor(bytes);
        if cursor.u64()? != wire::NBDMAGIC {
            return Err(ProtocolError::Magic);
        }
        if cursor.u64()? != wire::IHAVEOPT {
            return Err(ProtocolError::NotFixedNewstyle);
        }
        let flags = cursor.u16()?;
        if flags & wire::FLAG_FIXED_NEWSTYLE == 0 {
            return Err(ProtocolError::NotFixedNewstyle);
        }
        Ok(ServerGreeting { flags })
    }
}

/// The client's answer to the greeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientFlags {
    /// No padding follows the answer to EXPORT_NAME.
    pub no_zeroes: bool,
}

impl ClientFlags {
    /// As bytes.
    pub fn encode(self) -> [u8; 4] {
        let zeroes = if self.no_zeroes { wire::FLAG_NO_ZEROES } else { 0 };
        u32::from(wire::FLAG_FIXED_NEWSTYLE | zeroes).to_be_bytes()
    }

    /// Decodes the flags.
    ///
    /// # Errors
    /// [`ProtocolError::NotFixedNewstyle`], also for undefined flags: they would change the
    /// following messages.
    pub fn parse(bytes: [u8; 4]) -> Result<ClientFlags, ProtocolError> {
        let flags = u32::from_be_bytes(bytes);
        let known = u32::from(wire::FLAG_FIXED_NEWSTYLE | wire::FLAG_NO_ZEROES);
        if flags & u32::from(wire::FLAG_FIXED_NEWSTYLE) == 0 || flags & !known != 0 {
            return Err(ProtocolError::NotFixedNewstyle);
        }
        Ok(ClientFlags { no_zeroes: flags & u32::from(wire::FLAG_NO_ZEROES) != 0 })
    }
}

/// Requests of a client before transmission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionKind {
    /// Begins transmission with this export; has no reply of the option's kind.
    ExportName,
    /// The client disconnects.
    Abort,
    /// Requests the names of the exports.
    List,
    /// Begins TLS.
    StartTls,
    /// Requests information about an export.
    Info,
    /// The same, then begins transmission.
    Go,
    /// Requests replies in chunks.
    StructuredReply,
    /// Requests the available meta contexts.
    ListMetaContext,
    /// Selects meta contexts.
    SetMetaContext,
    /// An unknown option.
    Unknown(u32),
}

impl OptionKind {
    /// Its number in the protocol.
    pub fn number(self) -> u32 {
        match self {
            OptionKind::ExportName => wire::OPT_EXPORT_NAME,
            OptionKind::Abort => wire::OPT_ABORT,
            OptionKind::List => wire::OPT_LIST,
            OptionKind::StartTls => wire::OPT_STARTTLS,
            OptionKind::Info => wire::OPT_INFO,
            OptionKind::Go => wire::OPT_GO,
            OptionKind::StructuredReply => wire::OPT_STRUCTURED_REPLY,
            OptionKind::ListMetaContext => wire::OPT_LIST_META_CONTEXT,
            OptionKind::SetMetaContext => wire::OPT_SET_META_CONTEXT,
            OptionKind::Unknown(number) => number,
        }
    }
}

/// Header of an option; `length` bytes follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionHeader {
    /// The option.
    pub kind: OptionKind,
    /// Bytes that follow; may exceed what a server should read.
    pub length: u32,
}

impl OptionHeader {
    /// Length on the wire, bytes.
    pub const BYTES: usize = 16;

    /// Decodes the header.
    ///
    /// # Errors
    /// [`ProtocolError::Magic`], and [`ProtocolError::Short`].
    pub fn parse(bytes: &[u8]) -> Result<OptionHeader, ProtocolError> {
        let mut cursor = Cursor(bytes);
        if cursor.u64()? != wire::IHAVEOPT {
            return Err(ProtocolError::Magic);
        }
        let kind = match cursor.u32()? {
            wire::OPT_EXPORT_NAME => OptionKind::ExportName,
            wire::OPT_ABORT => OptionKind::Abort,
            wire::OPT_LIST => OptionKind::List,
            wire::OPT_STARTTLS => OptionKind::StartTls,
            wire::OPT_INFO => OptionKind::Info,
            wire::OPT_GO => OptionKind::Go,
            wire::OPT_STRUCTURED_REPLY => OptionKind::StructuredReply,
            wire::OPT_LIST_META_CONTEXT => OptionKind::ListMetaContext,
            wire::OPT_SET_META_CONTEXT => OptionKind::SetMetaContext,
            other => OptionKind::Unknown(other),
        };
        Ok(OptionHeader { kind, length: cursor.u32()? })
    }
}

/// An option with its payload, as a client sends it.
pub fn option_request(kind: OptionKind, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(OptionHeader::BYTES + payload.len());
    bytes.extend_from_slice(&wire::IHAVEOPT.to_be_bytes());
    bytes.extend_from_slice(&kind.number().to_be_bytes());
    bytes.extend_from_slice(&(payload.len() as u32).to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// A reply to an option with its payload, as a server sends it.
pub fn option_reply(kind: OptionKind, reply: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(OptionReplyHeader::BYTES + payload.len());
    bytes.extend_from_slice(&wire::OPTION_REPLY_MAGIC.to_be_bytes());
    bytes.extend_from_slice(&kind.number().to_be_bytes());
    bytes.extend_from_slice(&reply.to_be_bytes());
    bytes.extend_from_slice(&(payload.len() as u32).to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// Header of a reply to an option; `length` bytes follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionReplyHeader {
    /// Number of the option that it answers.
    pub option: u32,
    /// Kind of the reply; an error if the highest bit is set.
    pub reply: u32,
    /// Bytes that follow, at most [`OPTION_BYTES_MAX`].
    pub length: u32,
}

impl OptionReplyHeader {
    /// Length on the wire, bytes.
    pub const BYTES: usize = 20;

    /// Decodes the header.
    ///
    /// # Errors
    /// [`ProtocolError::Magic`], [`ProtocolError::Length`], and [`ProtocolError::Short`].
    pub fn parse(bytes: &[u8]) -> Result<OptionReplyHeader, ProtocolError> {
        let mut cursor = Cursor(bytes);
        if cursor.u64()? != wire::OPTION_REPLY_MAGIC {
            return Err(ProtocolError::Magic);
        }
        let header = OptionReplyHeader {
            option: cursor.u32()?,
            reply: cursor.u32()?,
            length: cursor.u32()?,
        };
        match header.length {
            length if length > OPTION_BYTES_MAX => Err(ProtocolError::Length(length.into())),
            _ => Ok(header),
        }
    }

    /// Whether the server refuses the option.
    pub fn is_error(&self) -> bool {
        self.reply & (1 << 31) != 0
    }
}

/// Payload of GO and INFO.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InfoRequest<'a> {
    /// Name of the export; empty for the default one.
    pub name: &'a str,
    /// Whether the client asks for the block size, and so will respect it.
    pub block_size: bool,
    /// Whether the client asks for the canonical name.
    pub canonical_name: bool,
}

impl<'a> InfoRequest<'a> {
    /// Decodes the payload.
    ///
    /// # Errors
    /// The payload is too short, too long, or not UTF-8.
    pub fn parse(payload: &'a [u8]) -> Result<InfoRequest<'a>, ProtocolError> {
        let mut cursor = Cursor(payload);
        let name = cursor.name()?;
        let count = cursor.u16()?;
        let (mut block_size, mut canonical_name) = (false, false);
        for _ in 0..count {
            match cursor.u16()? {
                wire::INFO_BLOCK_SIZE => block_size = true,
                wire::INFO_NAME => canonical_name = true,
                _ => {}
            }
        }
        match cursor.0 {
            [] => Ok(InfoRequest { name, block_size, canonical_name }),
            rest => Err(ProtocolError::Length(rest.len() as u64)),
        }
    }

    /// The payload as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = (self.name.len() as u32).to_be_bytes().to_vec();
        bytes.extend_from_slice(self.name.as_bytes());
        let mut wanted = Vec::new();
        if self.block_size {
            wanted.push(wire::INFO_BLOCK_SIZE);
        }
        if self.canonical_name {
            wanted.push(wire::INFO_NAME);
        }
        bytes.extend_from_slice(&(wanted.len() as u16).to_be_bytes());
        bytes.extend(wanted.iter().flat_map(|number| number.to_be_bytes()));
        bytes
    }
}

/// Payload of LIST_META_CONTEXT and SET_META_CONTEXT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetaContextRequest<'a> {
    /// Name of the export.
    pub name: &'a str,
    /// Whether `base:allocation` is requested.
    pub allocation: bool,
    /// Whether no context is named.
    pub empty: bool,
}

impl<'a> MetaContextRequest<'a> {
    /// Decodes the payload.
    ///
    /// # Errors
    /// The payload is too short, too long, or not UTF-8.
    pub fn parse(payload: &'a [u8]) -> Result<MetaContextRequest<'a>, ProtocolError> {
        let mut cursor = Cursor(payload);
        let name = cursor.name()?;
        let count = cursor.u32()?;
        let mut allocation = false;
        // Each name takes at least 4 bytes, so the payload bounds the loop.
        for _ in 0..count {
            allocation |= matches!(cursor.name()?, super::BASE_ALLOCATION | "base:");
        }
        match cursor.0 {
            [] => Ok(MetaContextRequest { name, allocation, empty: count == 0 }),
            rest => Err(ProtocolError::Length(rest.len() as u64)),
        }
    }
}

/// What a server announces about an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExportInfo {
    /// Bytes.
    pub size: u64,
    /// Transmission flags.
    pub flags: u16,
    /// Smallest request and alignment, bytes; 1 if the server does not announce it.
    pub block_min: u32,
    /// Most bytes in one request.
    pub payload_max: u32,
}

impl ExportInfo {
    /// Reads one INFO reply; unknown kinds are skipped.
    ///
    /// # Errors
    /// The payload is too short, or announces impossible block sizes.
    pub fn learn(&mut self, payload: &[u8]) -> Result<(), ProtocolError> {
        let mut cursor = Cursor(payload);
        match cursor.u16()? {
            wire::INFO_EXPORT => {
                self.size = cursor.u64()?;
                self.flags = cursor.u16()?;
            }
            wire::INFO_BLOCK_SIZE => {
                let (min, _preferred, max) = (cursor.u32()?, cursor.u32()?, cursor.u32()?);
                if !min.is_power_of_two() || min > 1 << 16 || max < min {
                    return Err(ProtocolError::Length(min.into()));
                }
                self.block_min = min;
                self.payload_max = max;
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether all of `bits` are set in the transmission flags.
    pub fn has(&self, bits: u16) -> bool {
        self.flags & bits == bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greetings() {
        let greeting = ServerGreeting::encode();
        assert!(ServerGreeting::parse(&greeting).is_ok());
        assert_eq!(ServerGreeting::parse(&[0; 18]), Err(ProtocolError::Magic));
        let mut old = greeting;
        old[8..16].copy_from_slice(&0x0000_4202_8186_1253_u64.to_be_bytes());
        assert_eq!(ServerGreeting::parse(&old), Err(ProtocolError::NotFixedNewstyle));
        assert!(ClientFlags::parse([0; 4]).is_err());
        assert!(ClientFlags::parse([0xff; 4]).is_err());
        for no_zeroes in [false, true] {
            let flags = ClientFlags { no_zeroes };
            assert_eq!(ClientFlags::parse(flags.encode()), Ok(flags));
        }
    }

    #[test]
    fn info_requests() {
        let request = InfoRequest { name: "disk", block_size: true, canonical_name: false };
        let bytes = request.encode();
        assert_eq!(InfoRequest::parse(&bytes), Ok(request));
        for length in 0..bytes.len() {
            assert!(InfoRequest::parse(&bytes[..length]).is_err(), "{length}");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(InfoRequest::parse(&longer).is_err());
        assert_eq!(InfoRequest::parse(&[0xff; 64]), Err(ProtocolError::Length(u32::MAX.into())));
    }

    #[test]
    fn meta_context_requests() {
        let mut bytes = 0_u32.to_be_bytes().to_vec();
        bytes.extend_from_slice(&1_u32.to_be_bytes());
        bytes.extend_from_slice(&(super::super::BASE_ALLOCATION.len() as u32).to_be_bytes());
        bytes.extend_from_slice(super::super::BASE_ALLOCATION.as_bytes());
        assert!(MetaContextRequest::parse(&bytes).unwrap().allocation);
        // A false count ends with the payload.
        let mut hostile = 0_u32.to_be_bytes().to_vec();
        hostile.extend_from_slice(&u32::MAX.to_be_bytes());
        assert_eq!(MetaContextRequest::parse(&hostile), Err(ProtocolError::Short));
    }

    #[test]
    fn option_replies_are_bounded() {
        let mut reply = option_reply(OptionKind::Go, wire::REP_INFO, &[1, 2, 3]);
        assert_eq!(OptionReplyHeader::parse(&reply).unwrap().length, 3);
        reply[16..20].copy_from_slice(&u32::MAX.to_be_bytes());
        assert!(OptionReplyHeader::parse(&reply).is_err());
    }
}
