//! Requests of the transmission phase.

use super::wire;
use super::{Cursor, ProtocolError};

/// Command of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Read bytes.
    Read,
    /// Write bytes; they follow the request.
    Write,
    /// The client disconnects; there is no reply.
    Disconnect,
    /// Make everything durable that was answered before.
    Flush,
    /// Discard bytes.
    Trim,
    /// Announce a read.
    Cache,
    /// Write zeros without sending them.
    WriteZeroes,
    /// Report data and holes.
    BlockStatus,
    /// An unknown command.
    Unknown(u16),
}

/// Flags of a request, as bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CommandFlags(pub u16);

impl CommandFlags {
    /// Whether all of `bits` are set.
    pub fn has(self, bits: u16) -> bool {
        self.0 & bits == bits
    }
}

/// A request; for [`Command::Write`] `length` bytes follow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The command.
    pub command: Command,
    /// Its flags.
    pub flags: CommandFlags,
    /// Chosen by the client and repeated in the reply.
    pub cookie: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u32,
}

impl Request {
    /// Length of a request on the wire, bytes.
    pub const BYTES: usize = 28;

    /// Decodes a request. The length is not checked: its limit depends on the command.
    ///
    /// # Errors
    /// [`ProtocolError::Magic`], and [`ProtocolError::Short`].
    pub fn parse(bytes: &[u8]) -> Result<Request, ProtocolError> {
        let mut cursor = Cursor(bytes);
        if cursor.u32()? != wire::REQUEST_MAGIC {
            return Err(ProtocolError::Magic);
        }
        let flags = CommandFlags(cursor.u16()?);
        let command = match cursor.u16()? {
            wire::CMD_READ => Command::Read,
            wire::CMD_WRITE => Command::Write,
            wire::CMD_DISC => Command::Disconnect,
            wire::CMD_FLUSH => Command::Flush,
            wire::CMD_TRIM => Command::Trim,
            wire::CMD_CACHE => Command::Cache,
            wire::CMD_WRITE_ZEROES => Command::WriteZeroes,
            wire::CMD_BLOCK_STATUS => Command::BlockStatus,
            other => Command::Unknown(other),
        };
        let (cookie, offset, length) = (cursor.u64()?, cursor.u64()?, cursor.u32()?);
        Ok(Request { command, flags, cookie, offset, length })
    }

    /// The request as bytes.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let number = match self.command {
            Command::Read => wire::CMD_READ,
            Command::Write => wire::CMD_WRITE,
            Command::Disconnect => wire::CMD_DISC,
            Command::Flush => wire::CMD_FLUSH,
            Command::Trim => wire::CMD_TRIM,
            Command::Cache => wire::CMD_CACHE,
            Command::WriteZeroes => wire::CMD_WRITE_ZEROES,
            Command::BlockStatus => wire::CMD_BLOCK_STATUS,
            Command::Unknown(number) => number,
        };
        let mut bytes = [0; Self::BYTES];
        bytes[0..4].copy_from_slice(&wire::REQUEST_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.0.to_be_bytes());
        bytes[6..8].copy_from_slice(&number.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_go_both_ways() {
        for number in 0..9 {
            let mut bytes = Request {
                command: Command::Read,
                flags: CommandFlags(wire::CMD_FLAG_FUA),
                cookie: 0x0102_0304_0506_0708,
                offset: u64::MAX,
                length: u32::MAX,
            }
            .encode();
            bytes[7] = number;
            let request = Request::parse(&bytes).unwrap();
            assert_eq!(request.encode(), bytes);
            assert_eq!((request.cookie, request.offset), (0x0102_0304_0506_0708, u64::MAX));
        }
    }

    #[test]
    fn anything_else_is_refused() {
        assert_eq!(Request::parse(&[0; 28]), Err(ProtocolError::Magic));
        for length in 0..Request::BYTES {
            let bytes = Request {
                command: Command::Flush,
                flags: CommandFlags(0),
                cookie: 1,
                offset: 0,
                length: 0,
            }
            .encode();
            assert!(Request::parse(&bytes[..length]).is_err());
        }
    }
}
