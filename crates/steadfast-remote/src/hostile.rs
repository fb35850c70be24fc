//! Both sides of the protocol against any bytes, for tests and fuzzers: nothing may panic, hang, or
//! take memory by a length that somebody claims.

use std::io::{self, Read, Write};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::client::{Ask, Endpoint, Link, Question, Transport};
use crate::export::{GranuleSize, MemoryPool, PoolOptions};
use crate::protocol::{OptionKind, option_request, wire};
use crate::server::{Accepted, Limits, serve_stream};

/// Bytes lent to whoever comes.
const LENT: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(5);

/// What the other side says, all of it at once, and then it goes. What it is told nobody hears.
struct Script(io::Cursor<Vec<u8>>);

impl Script {
    fn new(opening: &[u8], bytes: &[u8]) -> Script {
        Script(io::Cursor::new([opening, bytes].concat()))
    }
}

impl Read for Script {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Script {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Accepted for Script {
    fn set_patience(&self, _read: Duration, _write: Duration) -> io::Result<()> {
        Ok(())
    }
}

impl Transport for Script {
    fn set_patience(&self, _patience: Duration) -> io::Result<()> {
        Ok(())
    }
}

/// How a client begins that knows the protocol, up to where requests are expected.
fn client_opening() -> Vec<u8> {
    let mut bytes = 1_u32.to_be_bytes().to_vec();
    bytes.extend(option_request(OptionKind::StructuredReply, &[]));
    bytes.extend(option_request(OptionKind::ExportName, b"a"));
    bytes
}

/// How a server begins that knows the protocol, up to where replies are expected.
fn server_opening() -> Vec<u8> {
    let mut bytes = b"NBDMAGICIHAVEOPT".to_vec();
    bytes.extend(1_u16.to_be_bytes());
    let mut reply = |option: OptionKind, kind: u32, payload: &[u8]| {
        bytes.extend(0x0003_e889_0455_65a9_u64.to_be_bytes());
        bytes.extend(option.number().to_be_bytes());
        bytes.extend(kind.to_be_bytes());
        bytes.extend((payload.len() as u32).to_be_bytes());
        bytes.extend(payload);
    };
    reply(OptionKind::StructuredReply, wire::REP_ACK, &[]);
    let flags = wire::TRANSMIT_HAS_FLAGS | wire::TRANSMIT_SEND_FLUSH | wire::TRANSMIT_SEND_FUA;
    let info = [&0_u16.to_be_bytes()[..], &LENT.to_be_bytes(), &flags.to_be_bytes()].concat();
    reply(OptionKind::Go, wire::REP_INFO, &info);
    reply(OptionKind::Go, wire::REP_ACK, &[]);
    bytes
}

/// Our server against a client that says `input`; where its first byte is odd, after it has begun
/// as it should.
pub fn server(input: &[u8]) {
    let Some((how, bytes)) = input.split_first() else { return };
    let opening = if how % 2 == 1 { client_opening() } else { Vec::new() };
    let pool = MemoryPool::new(PoolOptions {
        limit: LENT,
        quota: LENT,
        lease: None,
        names_max: 2,
        granules: GranuleSize::Small,
    });
    let stop = AtomicBool::new(false);
    // However it ends: an error is this client's alone.
    let _ = serve_stream(Script::new(&opening, bytes), &pool, None, &Limits::default(), &stop);
}

/// Our client against a server that says `input`; where its first byte is odd, after it has begun
/// as it should. Whether there was a connection, and how many requests were answered over it.
pub fn client(input: &[u8]) -> Option<usize> {
    let (how, bytes) = input.split_first()?;
    let opening = if how % 2 == 1 { server_opening() } else { Vec::new() };
    let endpoint =
        Endpoint { address: "somewhere:1".to_owned(), export: "a".to_owned(), tls: None };
    let mut link = Link::over(Box::new(Script::new(&opening, bytes)), &endpoint, PATIENCE).ok()?;
    let (mut near, mut far) = ([0; 16], [0; 64]);
    let mut reads =
        [Question::new(0, Ask::Read(&mut near)), Question::new(4096, Ask::Read(&mut far))];
    let mut answered = 0;
    if link.send(&reads, PATIENCE).and_then(|()| link.receive(&mut reads, PATIENCE)).is_ok() {
        let pieces = [&b"bytes"[..]];
        let mut others =
            [Question::new(0, Ask::Write(&pieces, true)), Question::new(0, Ask::Flush)];
        let _ = link.send(&others, PATIENCE).and_then(|()| link.receive(&mut others, PATIENCE));
        answered += others.iter().filter(|question| question.answer.is_some()).count();
    }
    answered += reads.iter().filter(|question| question.answer.is_some()).count();
    Some(answered)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{ChunkHeader, ChunkKind, Command, CommandFlags, Request};

    /// Replies to the two reads and the two requests behind them, as a server gives them.
    fn replies() -> Vec<u8> {
        let mut bytes = vec![1];
        let hole = ChunkHeader { done: true, kind: ChunkKind::Hole, cookie: 0, length: 12 };
        bytes.extend(hole.encode());
        bytes.extend(0_u64.to_be_bytes());
        bytes.extend(16_u32.to_be_bytes());
        let data = ChunkHeader { done: true, kind: ChunkKind::Data, cookie: 1, length: 72 };
        bytes.extend(data.encode());
        bytes.extend(4096_u64.to_be_bytes());
        bytes.extend([7; 64]);
        for cookie in [2, 3] {
            bytes.extend(crate::protocol::SimpleReply { error: 0, cookie }.encode());
        }
        bytes
    }

    /// Requests as a client makes them.
    fn requests() -> Vec<u8> {
        let mut bytes = vec![1];
        for (command, offset, length) in [
            (Command::Write, 0, 16),
            (Command::Read, 0, 4096),
            (Command::WriteZeroes, 0, 65536),
            (Command::Trim, 0, 65536),
            (Command::Flush, 0, 0),
            (Command::BlockStatus, 0, 1 << 20),
            (Command::Read, LENT - 1, 2),
            (Command::Disconnect, 0, 0),
        ] {
            let request =
                Request { command, flags: CommandFlags::default(), cookie: 9, offset, length };
            bytes.extend(request.encode());
            if command == Command::Write {
                bytes.extend([3; 16]);
            }
        }
        bytes
    }

    #[test]
    fn the_openings_lead_to_where_they_should() {
        assert_eq!(client(&replies()), Some(4));
        assert_eq!(client(&[1]), Some(0));
        assert_eq!(client(&[0]), None);
        server(&requests());
    }

    /// Good conversations with bytes changed, cut off or repeated: numbers from a generator, the
    /// same ones each time.
    #[test]
    fn changed_conversations_end() {
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut random = |limit: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % limit.max(1) as u64) as usize
        };
        for round in 0..4000 {
            let mut bytes = if round % 2 == 0 { replies() } else { requests() };
            for _ in 0..1 + random(6) {
                let at = random(bytes.len().min(200));
                match random(4) {
                    0 => bytes[at] = random(256) as u8,
                    1 => bytes[at] ^= 1 << random(8),
                    2 => bytes.truncate(at.max(1)),
                    _ => bytes.insert(at, random(256) as u8),
                }
            }
            match round % 2 {
                0 => {
                    let _ = client(&bytes);
                }
                _ => server(&bytes),
            }
        }
        // And from the very first byte.
        for opening in [client_opening(), server_opening()] {
            for at in 0..opening.len() {
                for value in [0, 1, 0x7f, 0xff] {
                    let mut bytes = [&[0][..], &opening].concat();
                    bytes[at + 1] = value;
                    server(&bytes);
                    let _ = client(&bytes);
                }
            }
        }
    }
}
