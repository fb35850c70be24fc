//! Input and output of one connection, with bounded memory and time.

use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Most bytes of input and of output that a connection buffers, each: one step of a request and its
/// header.
pub const PIECE: usize = (256 << 10) + 4096;

/// How often a waiting read checks whether the server stops.
pub(super) const TICK: Duration = Duration::from_millis(500);

/// A stream of bytes with time limits: reads and writes then fail with `WouldBlock` or `TimedOut`.
pub trait Accepted: Read + Write + Send {
    /// Sets the time limits of reads and writes.
    ///
    /// # Errors
    /// The error of the operating system.
    fn set_patience(&self, read: Duration, write: Duration) -> io::Result<()>;

    /// Sets the time at which reads and writes end in any case; `None` for never. [`Timed`] adds
    /// this to a stream.
    fn set_deadline(&mut self, _deadline: Option<Instant>) {}

    /// Notes whether the server waits for the client's next request.
    fn set_idle(&self, _idle: bool) {}
}

/// A stream with a deadline, however slowly bytes come. Its user, such as the TLS handshake, may
/// read many times before it returns.
pub(super) struct Timed<S> {
    stream: S,
    deadline: Option<Instant>,
}

impl<S> Timed<S> {
    pub(super) fn new(stream: S) -> Timed<S> {
        Timed { stream, deadline: None }
    }

    fn check(&self) -> io::Result<()> {
        match self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(()),
        }
    }
}

impl<S: Read> Read for Timed<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.check()?;
        self.stream.read(buffer)
    }
}

impl<S: Write> Write for Timed<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.check()?;
        self.stream.write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.check()?;
        self.stream.write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl<S: Accepted> Accepted for Timed<S> {
    fn set_patience(&self, read: Duration, write: Duration) -> io::Result<()> {
        self.stream.set_patience(read, write)
    }

    fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }

    fn set_idle(&self, idle: bool) {
        self.stream.set_idle(idle);
    }
}

impl Accepted for TcpStream {
    fn set_patience(&self, read: Duration, write: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(read))?;
        self.set_write_timeout(Some(write))
    }
}

impl Accepted for UnixStream {
    fn set_patience(&self, read: Duration, write: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(read))?;
        self.set_write_timeout(Some(write))
    }
}

impl<S: Accepted> Accepted for rustls::StreamOwned<rustls::ServerConnection, S> {
    fn set_patience(&self, read: Duration, write: Duration) -> io::Result<()> {
        self.sock.set_patience(read, write)
    }

    fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.sock.set_deadline(deadline);
    }

    fn set_idle(&self, idle: bool) {
        self.sock.set_idle(idle);
    }
}

/// Outcome of a read without an error.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The bytes are read.
    Ready,
    /// The client has closed the connection between two messages, or the server stops.
    Over,
}

/// A buffered connection. Output is sent when the input buffer is empty, so the answers to many
/// requests in flight go out together.
pub(super) struct Wire<'s, S> {
    stream: S,
    input: Vec<u8>,
    start: usize,
    end: usize,
    /// Only grows, so that memory is not zeroed before it is overwritten; the first `put` bytes
    /// count.
    output: Vec<u8>,
    put: usize,
    stop: &'s AtomicBool,
    /// Time limit for the next bytes of a message.
    stall_time: Duration,
    /// End of the time for negotiation.
    deadline: Option<Instant>,
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

impl<'s, S: Accepted> Wire<'s, S> {
    pub(super) fn new(stream: S, stop: &'s AtomicBool, stall_time: Duration) -> io::Result<Self> {
        stream.set_patience(TICK.min(stall_time), stall_time)?;
        Ok(Wire {
            stream,
            input: vec![0; 64 << 10],
            start: 0,
            end: 0,
            output: Vec::new(),
            put: 0,
            stop,
            stall_time,
            deadline: None,
        })
    }

    pub(super) fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
        self.stream.set_deadline(deadline);
    }

    /// Waits for the next request; the connection is idle meanwhile.
    pub(super) fn next_request(&mut self, buffer: &mut [u8]) -> io::Result<Next> {
        self.stream.set_idle(true);
        let next = self.read(buffer, true);
        self.stream.set_idle(false);
        next
    }

    /// The stream itself, for a layer around it. Fails if bytes have arrived already: bytes sent in
    /// the clear must not be taken for bytes sent through TLS.
    pub(super) fn into_stream(self) -> Option<S> {
        (self.start == self.end && self.put == 0).then_some(self.stream)
    }

    /// Fills `buffer`. `between` says that no message has begun, so the client may wait without
    /// limit, or close.
    pub(super) fn read(&mut self, buffer: &mut [u8], between: bool) -> io::Result<Next> {
        let mut filled = 0;
        let mut since = Instant::now();
        while filled < buffer.len() {
            if self.start < self.end {
                let count = (self.end - self.start).min(buffer.len() - filled);
                buffer[filled..filled + count]
                    .copy_from_slice(&self.input[self.start..self.start + count]);
                (self.start, filled) = (self.start + count, filled + count);
                continue;
            }
            self.flush()?;
            let idle = between && filled == 0;
            // Long payloads go directly to their destination.
            let direct = buffer.len() - filled >= self.input.len();
            let target = if direct { &mut buffer[filled..] } else { &mut self.input[..] };
            match self.stream.read(target) {
                Ok(0) if idle => return Ok(Next::Over),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) if direct => filled += count,
                Ok(count) => (self.start, self.end) = (0, count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if is_timeout(&error) => {
                    if self.stop.load(Ordering::Relaxed) && idle {
                        return Ok(Next::Over);
                    }
                    let late = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
                    if late || (!idle && since.elapsed() >= self.stall_time) {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    continue;
                }
                Err(error) => return Err(error),
            }
            since = Instant::now();
        }
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(Next::Ready)
    }

    /// Fills `buffer` with the rest of a message.
    pub(super) fn read_exact(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        match self.read(buffer, false)? {
            Next::Ready => Ok(()),
            Next::Over => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Reads bytes and drops them.
    pub(super) fn skip(&mut self, length: u64) -> io::Result<()> {
        let mut scratch = [0; 4096];
        let mut left = length;
        while left > 0 {
            let count = left.min(scratch.len() as u64) as usize;
            self.read_exact(&mut scratch[..count])?;
            left -= count as u64;
        }
        Ok(())
    }

    /// Space for `length` more bytes of output, at most [`PIECE`]; its contents are arbitrary.
    fn room(&mut self, length: usize) -> io::Result<&mut [u8]> {
        if self.put + length > PIECE {
            self.flush()?;
        }
        let (start, end) = (self.put, self.put + length);
        if self.output.len() < end {
            self.output.resize(end, 0);
        }
        self.put = end;
        Ok(&mut self.output[start..end])
    }

    /// Appends bytes to the output.
    pub(super) fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() > PIECE {
            self.flush()?;
            return self.stream.write_all(bytes);
        }
        self.room(bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    /// Appends `length` bytes to the output, at most [`PIECE`], and lets `fill` set them. If `fill`
    /// fails, they are zeros.
    pub(super) fn put_with<E>(
        &mut self,
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> io::Result<Result<(), E>> {
        let room = self.room(length)?;
        let filled = fill(room);
        if filled.is_err() {
            room.fill(0);
        }
        Ok(filled)
    }

    /// Length of the unsent output, to [truncate](Self::truncate_output) to later.
    pub(super) fn output_length(&self) -> usize {
        self.put
    }

    /// Cuts the output to `length`; nothing was sent since that length was taken.
    pub(super) fn truncate_output(&mut self, length: usize) {
        self.put = self.put.min(length);
    }

    /// Sends the output.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if self.put == 0 {
            return Ok(());
        }
        // A timeout here means that the client does not read: the connection ends.
        self.stream.write_all(&self.output[..self.put])?;
        self.put = 0;
        self.stream.flush()
    }
}
