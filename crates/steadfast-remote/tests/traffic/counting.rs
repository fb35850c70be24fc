//! Healthy servers that count their requests.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use steadfast_remote::array::{Call, Contact, Fleet, Outcome};
use steadfast_remote::client::Ask;

/// A fleet of counting servers.
pub struct Counting {
    servers: Vec<Mutex<Vec<u8>>>,
    /// Bytes that an array may use on each server.
    lent: usize,
    written: AtomicU64,
    read: AtomicU64,
    requests: AtomicU64,
    rounds: AtomicU64,
}

/// Counts of requests.
#[derive(Debug, Clone, Copy, Default)]
pub struct Count {
    pub written: u64,
    pub read: u64,
    pub requests: u64,
    pub rounds: u64,
}

impl Counting {
    /// Servers of `size` bytes each; an array may use the first `lent` bytes.
    pub fn new(servers: usize, size: usize, lent: usize) -> Counting {
        Counting {
            servers: (0..servers).map(|_| Mutex::new(vec![0; size])).collect(),
            lent,
            written: AtomicU64::new(0),
            read: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            rounds: AtomicU64::new(0),
        }
    }

    /// Counts since the last call.
    pub fn take(&self) -> Count {
        let take = |counter: &AtomicU64| counter.swap(0, Ordering::Relaxed);
        Count {
            written: take(&self.written),
            read: take(&self.read),
            requests: take(&self.requests),
            rounds: take(&self.rounds),
        }
    }
}

impl Fleet for Counting {
    fn servers(&self) -> usize {
        self.servers.len()
    }
    fn contact(&self, _: usize) -> Result<Contact, String> {
        Ok(Contact { size: self.lent as u64, block_min: 1, fua: true, flush: true, trim: true })
    }
    fn set_proof(&self, _: usize, _: u64, _: &[u8]) {}
    fn round(&self, calls: &mut [Call<'_>], _: u64) {
        self.rounds.fetch_add(1, Ordering::Relaxed);
        self.requests.fetch_add(calls.len() as u64, Ordering::Relaxed);
        for call in calls {
            let mut memory = self.servers[call.server].lock();
            let at = call.offset as usize;
            match &mut call.ask {
                Ask::Read(buffer) => {
                    buffer.copy_from_slice(&memory[at..at + buffer.len()]);
                    self.read.fetch_add(buffer.len() as u64, Ordering::Relaxed);
                }
                Ask::Write(pieces, _) => {
                    let bytes = pieces.concat();
                    memory[at..at + bytes.len()].copy_from_slice(&bytes);
                    self.written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                }
                Ask::Trim(length) => memory[at..at + *length as usize].fill(0),
                Ask::Flush => {}
            }
            call.outcome = Outcome::Done;
        }
    }
    fn breaks(&self, _: usize) -> u64 {
        0
    }
    fn pause(&self, _: u64) {}
}
