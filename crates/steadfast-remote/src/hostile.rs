//! Both sides of the protocol against arbitrary bytes, for tests and fuzzers. They must not panic,
//! hang, or allocate memory by an unverified length.

use std::io::{self, Read, Write};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::client::{Ask, Endpoint, Link, Question, Transport};
use crate::export::{GranuleSize, MemoryPool, PoolOptions};
use crate::protocol::{OptionKind, option_request, wire};
use crate::server::{Accepted, Limits, serve_stream};

/// Bytes lent to the client.
const LENT: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(5);

/// A peer that sends all its bytes at once and then closes. Bytes sent to it are discarded.
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

/// The opening of a correct client, up to the first request.
fn client_opening() -> Vec<u8> {
    let mut bytes = 1_u32.to_be_bytes().to_vec();
    bytes.extend(option_request(OptionKind::StructuredReply, &[]));
    bytes.extend(option_request(OptionKind::ExportName, b"a"));
    bytes
}

/// The opening of a correct server, up to the first reply.
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

/// Runs our server against a client that sends `input`. If the first byte is odd, a correct opening
/// comes before it.
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
    // Any outcome is fine: an error concerns this client only.
    let _ = serve_stream(Script::new(&opening, bytes), &pool, None, &Limits::default(), &stop);
}

/// Runs our client against a server that sends `input`. If the first byte is odd, a correct opening
/// comes before it. Returns `None` without a connection, otherwise the number of answered requests.
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
    use steadfast_media::Random;

    use crate::protocol::{ChunkHeader, ChunkKind, Command, CommandFlags, Request};

    /// Correct replies to the two reads and the two requests after them.
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

    /// Correct requests of a client.
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

    /// Correct conversations with bytes changed, cut off or repeated. A generator with a fixed seed
    /// makes the changes.
    #[test]
    fn changed_conversations_end() {
        let mut random = Random::new(1);
        let mut random = |limit: usize| random.below(limit as u64) as usize;
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
        // The same from the first byte of the opening on.
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
