//! [`BufferedStream`]: a stream with an input buffer, so that a reply takes one system call instead
//! of four. Time limits are set only when they change.

use std::io::{self, Read, Write};
use std::time::Duration;

use super::stream::{ClientTls, MaybeTlsStream, Transport};

/// Most bytes read ahead. Longer payloads go directly to their destination.
const AHEAD: usize = 16 << 10;

/// A buffered connection.
pub(super) struct BufferedStream {
    stream: MaybeTlsStream,
    input: Box<[u8]>,
    start: usize,
    end: usize,
    patience: Duration,
}

impl BufferedStream {
    pub(super) fn new(transport: Box<dyn Transport>) -> BufferedStream {
        BufferedStream {
            stream: MaybeTlsStream::Plain(transport),
            input: vec![0; AHEAD].into_boxed_slice(),
            start: 0,
            end: 0,
            patience: Duration::ZERO,
        }
    }

    /// Sets the time limit of reads and writes; they may take up to an eighth longer.
    pub(super) fn set_patience(&mut self, patience: Duration) -> io::Result<()> {
        let patience = patience.max(Duration::from_millis(1));
        // The remaining time shrinks continuously; updating it each time would cost two system
        // calls.
        if self.patience >= patience && self.patience <= patience + patience / 8 {
            return Ok(());
        }
        self.patience = patience + patience / 16;
        self.stream.set_patience(self.patience)
    }

    /// As [`Transport::has_ended`].
    pub(super) fn has_ended(&self) -> bool {
        self.stream.has_ended()
    }

    /// Switches to TLS.
    pub(super) fn start_tls(&mut self, tls: &ClientTls, host: &str) -> io::Result<()> {
        if self.start != self.end {
            // Bytes sent in the clear must not be taken for bytes sent through TLS.
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.stream.start_tls(tls, host)
    }
}

impl Read for BufferedStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.start == self.end {
            if buffer.len() >= self.input.len() {
                return self.stream.read(buffer);
            }
            (self.start, self.end) = (0, 0);
            self.end = self.stream.read(&mut self.input)?.min(self.input.len());
        }
        let ready = self.input.get(self.start..self.end).unwrap_or_default();
        let count = ready.len().min(buffer.len());
        if let (Some(target), Some(source)) = (buffer.get_mut(..count), ready.get(..count)) {
            target.copy_from_slice(source);
        }
        self.start += count;
        Ok(count)
    }
}

impl Write for BufferedStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn write_vectored(&mut self, bytes: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.stream.write_vectored(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
