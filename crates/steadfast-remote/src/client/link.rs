//! [`Link`]: one connection in the transmission phase.
//!
//! All requests are sent first; then the replies are received in the order that the server chooses.
//! Data moves directly between the socket and the caller's buffers. A caller with several servers
//! sends to all of them before it receives from any. So the servers work in parallel without a
//! thread.
//!
//! After an error other than a refusal the connection is unusable, because the start of the next
//! reply is unknown.

use std::io::{self, IoSlice, Read, Write};
use std::time::{Duration, Instant};

use super::buffered::BufferedStream;
use super::error::LinkError;
use super::handshake::{self, Endpoint};
use super::stream::Transport;
use crate::protocol::{
    Chunk, ChunkHeader, ChunkKind, Command, CommandFlags, ExportInfo, ProtocolError, ReplyHeader,
    Request, SimpleReply, parse_reply_header, wire,
};

/// Kind of a request.
#[derive(Debug)]
pub enum Ask<'a> {
    /// Fill the buffer.
    Read(&'a mut [u8]),
    /// Write the pieces consecutively; with `true`, durably.
    Write(&'a [&'a [u8]], bool),
    /// Make everything durable that was answered.
    Flush,
    /// Trim this many bytes.
    Trim(u64),
}

/// A request and its answer.
#[derive(Debug)]
pub struct Question<'a> {
    /// First byte.
    pub offset: u64,
    /// Kind of the request.
    pub ask: Ask<'a>,
    /// The server's answer, once received: an error number of the protocol if it refuses.
    pub answer: Option<Result<(), u32>>,
}

impl<'a> Question<'a> {
    /// A question without an answer.
    pub fn new(offset: u64, ask: Ask<'a>) -> Question<'a> {
        Question { offset, ask, answer: None }
    }
}

/// A connection to a server.
pub struct Link {
    stream: BufferedStream,
    info: ExportInfo,
    structured: bool,
    cookie: u64,
}

impl Link {
    /// Connects and negotiates within `patience`.
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn connect(endpoint: &Endpoint, patience: Duration) -> Result<Link, LinkError> {
        let handshake::Ready { stream, info, structured } = handshake::connect(endpoint, patience)?;
        Ok(Link { stream, info, structured, cookie: 0 })
    }

    /// As [`connect`](Self::connect), over a connected transport.
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn over(
        transport: Box<dyn Transport>,
        endpoint: &Endpoint,
        patience: Duration,
    ) -> Result<Link, LinkError> {
        let deadline = Instant::now() + patience;
        let handshake::Ready { stream, info, structured } =
            handshake::negotiate(transport, endpoint, deadline)?;
        Ok(Link { stream, info, structured, cookie: 0 })
    }

    /// Whether the server is known to have ended the connection.
    pub fn has_ended(&self) -> bool {
        self.stream.has_ended()
    }

    /// What the server has announced about the export.
    pub fn info(&self) -> ExportInfo {
        self.info
    }

    /// Sends questions; [`receive`](Self::receive) with the same questions must follow. They are
    /// either all reads or contain no read: otherwise both sides could wait for the other to read.
    ///
    /// # Errors
    /// The connection is unusable.
    pub fn send(
        &mut self,
        questions: &[Question<'_>],
        patience: Duration,
    ) -> Result<(), LinkError> {
        self.stream.set_patience(patience)?;
        let mut small = Vec::new();
        for (index, question) in questions.iter().enumerate() {
            let (command, flags, length) = match &question.ask {
                Ask::Read(buffer) => (Command::Read, 0, buffer.len() as u64),
                Ask::Write(pieces, durable) => {
                    let length = pieces.iter().map(|piece| piece.len() as u64).sum();
                    (Command::Write, u16::from(*durable) * wire::CMD_FLAG_FUA, length)
                }
                Ask::Flush => (Command::Flush, 0, 0),
                Ask::Trim(length) => (Command::Trim, 0, *length),
            };
            let length = u32::try_from(length).map_err(|_| ProtocolError::Length(length))?;
            let cookie = self.cookie + index as u64;
            let offset = if command == Command::Flush { 0 } else { question.offset };
            let request = Request { command, flags: CommandFlags(flags), cookie, offset, length };
            small.extend_from_slice(&request.encode());
            if let Ask::Write(pieces, _) = &question.ask {
                let mut slices = vec![IoSlice::new(&small)];
                slices.extend(pieces.iter().map(|piece| IoSlice::new(piece)));
                write_all_vectored(&mut self.stream, &mut slices)?;
                small.clear();
            }
        }
        self.stream.write_all(&small)?;
        self.stream.flush()?;
        Ok(())
    }

    /// Receives the answers to all of `questions`, which were sent last.
    ///
    /// # Errors
    /// The connection is unusable. Questions without an answer may or may not have been carried
    /// out.
    pub fn receive(
        &mut self,
        questions: &mut [Question<'_>],
        patience: Duration,
    ) -> Result<(), LinkError> {
        let deadline = Instant::now() + patience;
        self.stream.set_patience(patience)?;
        let mut missing = questions.len();
        let base = self.cookie;
        self.cookie += questions.len() as u64;
        while missing > 0 {
            if Instant::now() > deadline {
                return Err(LinkError::Io(io::ErrorKind::TimedOut.into()));
            }
            let mut header = [0; SimpleReply::BYTES];
            self.stream.read_exact(&mut header)?;
            let (cookie, chunk) = match parse_reply_header(&header)? {
                ReplyHeader::Simple(reply) => (reply.cookie, Err(reply.error)),
                ReplyHeader::Chunk(chunk) if self.structured => (chunk.cookie, Ok(chunk)),
                ReplyHeader::Chunk(_) => return Err(ProtocolError::Unexpected.into()),
            };
            let question = cookie
                .checked_sub(base)
                .and_then(|index| questions.get_mut(usize::try_from(index).ok()?))
                .filter(|question| question.answer.is_none())
                .ok_or(ProtocolError::Unexpected)?;
            let answer = match chunk {
                Err(0) => {
                    if let Ask::Read(buffer) = &mut question.ask {
                        if self.structured {
                            return Err(ProtocolError::Unexpected.into());
                        }
                        self.stream.read_exact(buffer)?;
                    }
                    Some(Ok(()))
                }
                Err(number) => Some(Err(number)),
                Ok(chunk) => self.take_chunk(chunk, question)?,
            };
            if answer.is_some() {
                question.answer = answer;
                missing -= 1;
            }
        }
        Ok(())
    }

    /// Handles one chunk of a structured reply. Returns the answer if the chunk is the last one.
    fn take_chunk(
        &mut self,
        chunk: ChunkHeader,
        question: &mut Question<'_>,
    ) -> Result<Option<Result<(), u32>>, LinkError> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let chunk = ReplyHeader::with_length(chunk, length)?;
        let first = question.offset;
        let part =
            |buffer: &mut [u8], offset: u64, length: u64| -> Option<std::ops::Range<usize>> {
                let start = usize::try_from(offset.checked_sub(first)?).ok()?;
                let end = start.checked_add(usize::try_from(length).ok()?)?;
                (end <= buffer.len()).then_some(start..end)
            };
        if chunk.kind == ChunkKind::Data {
            let length = chunk.length.checked_sub(8).ok_or(ProtocolError::Short)?;
            let mut offset = [0; 8];
            self.stream.read_exact(&mut offset)?;
            let Ask::Read(buffer) = &mut question.ask else {
                return Err(ProtocolError::Unexpected.into());
            };
            let range = part(buffer, u64::from_be_bytes(offset), length.into())
                .ok_or(ProtocolError::Unexpected)?;
            self.stream.read_exact(&mut buffer[range])?;
            return Ok(chunk.done.then_some(Ok(())));
        }
        let mut payload = vec![0; chunk.length as usize];
        self.stream.read_exact(&mut payload)?;
        match (Chunk::parse(chunk.kind, &payload)?, &mut question.ask) {
            (Chunk::None, _) => Ok(chunk.done.then_some(Ok(()))),
            (Chunk::Hole { offset, length }, Ask::Read(buffer)) => {
                let range = part(buffer, offset, length.into()).ok_or(ProtocolError::Unexpected)?;
                buffer[range].fill(0);
                Ok(chunk.done.then_some(Ok(())))
            }
            (Chunk::Hole { .. }, _) => Err(ProtocolError::Unexpected.into()),
            (Chunk::Error(number), _) if chunk.done => Ok(Some(Err(number))),
            // More chunks follow an error. The bytes of the read cannot be trusted, so the
            // connection is closed.
            (Chunk::Error(_), _) => Err(ProtocolError::Unexpected.into()),
        }
    }

    /// Tells the server that this client disconnects.
    pub fn disconnect(mut self) {
        let request = Request {
            command: Command::Disconnect,
            flags: CommandFlags::default(),
            cookie: self.cookie,
            offset: 0,
            length: 0,
        };
        // The server notices the end in any case.
        let _ = self.stream.write_all(&request.encode()).and_then(|()| self.stream.flush());
    }
}

fn write_all_vectored(
    stream: &mut BufferedStream,
    mut slices: &mut [IoSlice<'_>],
) -> io::Result<()> {
    IoSlice::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        match stream.write_vectored(slices) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => IoSlice::advance_slices(&mut slices, count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
