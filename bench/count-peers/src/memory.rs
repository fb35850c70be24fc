//! Bytes in memory, with counts of the requests to them.

use std::cell::Cell;
use std::io::{Error, ErrorKind, Read, Result, Seek, SeekFrom, Write};
use std::rc::Rc;

use steadfast_media::MediumCounters;

/// Counts that the storage and the region share.
pub type Requests = Rc<Cell<MediumCounters>>;

/// See the module. Also a seekable file, for FAT.
pub struct Memory {
    bytes: Vec<u8>,
    at: usize,
    requests: Requests,
}

impl Memory {
    pub fn new(bytes: Vec<u8>, requests: Requests) -> Memory {
        Memory { bytes, at: 0, requests }
    }

    pub fn content(&self) -> &[u8] {
        &self.bytes
    }

    fn count(&self, change: impl FnOnce(&mut MediumCounters)) {
        let mut counters = self.requests.get();
        change(&mut counters);
        self.requests.set(counters);
    }

    #[inline(never)]
    fn counted_medium_read(&self, from: usize, buffer: &mut [u8]) {
        buffer.copy_from_slice(&self.bytes[from..from + buffer.len()]);
    }

    #[inline(never)]
    fn counted_medium_write(&mut self, from: usize, data: &[u8]) {
        self.bytes[from..from + data.len()].copy_from_slice(data);
    }

    pub fn read_at(&self, from: usize, buffer: &mut [u8]) {
        self.count(|counters| {
            counters.reads += 1;
            counters.read_bytes += buffer.len() as u64;
        });
        self.counted_medium_read(from, buffer);
    }

    pub fn write_at(&mut self, from: usize, data: &[u8]) {
        self.count(|counters| {
            counters.writes += 1;
            counters.written_bytes += data.len() as u64;
        });
        self.counted_medium_write(from, data);
    }
}

impl Read for Memory {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let length = buffer.len().min(self.bytes.len() - self.at);
        self.read_at(self.at, &mut buffer[..length]);
        self.at += length;
        Ok(length)
    }
}

impl Write for Memory {
    fn write(&mut self, data: &[u8]) -> Result<usize> {
        let length = data.len().min(self.bytes.len() - self.at);
        self.write_at(self.at, &data[..length]);
        self.at += length;
        Ok(length)
    }

    fn flush(&mut self) -> Result<()> {
        self.count(|counters| counters.flushes += 1);
        Ok(())
    }
}

impl Seek for Memory {
    fn seek(&mut self, to: SeekFrom) -> Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => i64::try_from(at).ok(),
            SeekFrom::End(by) => (self.bytes.len() as i64).checked_add(by),
            SeekFrom::Current(by) => (self.at as i64).checked_add(by),
        };
        let at = at.and_then(|at| usize::try_from(at).ok()).filter(|at| *at <= self.bytes.len());
        self.at = at.ok_or_else(|| Error::from(ErrorKind::InvalidInput))?;
        Ok(self.at as u64)
    }
}
