//! [`MemoryPool`]: memory lent to clients by name, each name within a quota, all within a limit.
//!
//! The first connection with a new name creates it. When the last connection of a name has ended,
//! its lease starts; at the end of the lease its memory is freed. A client that reconnects in time
//! finds its data. `NAME@TOKEN` is the same memory, but only for the newest client with a token.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::fence::{self, Fence, Fenced};
use super::stock::Stock;
use super::{Catalogue, Export, GranuleSize, LentMemory, Refusal};

/// Limits and lease of a pool.
#[derive(Debug, Clone)]
pub struct PoolOptions {
    /// Bytes lent to all clients together.
    pub limit: u64,
    /// Size of the export of one name, which is also the most memory that it may use.
    pub quota: u64,
    /// How long memory is kept after the last connection of its name has ended; `None` keeps it
    /// until the server ends.
    pub lease: Option<Duration>,
    /// Most names at a time.
    pub names_max: usize,
    /// Unit in which memory is lent and returned.
    pub granules: GranuleSize,
}

struct Loan {
    memory: Arc<LentMemory>,
    fence: Arc<Fence>,
    idle_since: Option<Instant>,
}

/// The memory that a server lends.
pub struct MemoryPool {
    options: PoolOptions,
    stock: Arc<Stock>,
    loans: Mutex<BTreeMap<String, Loan>>,
}

impl MemoryPool {
    /// An empty pool.
    pub fn new(options: PoolOptions) -> MemoryPool {
        // Whole granules are counted. The limit is rounded up so that all of it can be used.
        let limit = options.limit.next_multiple_of(options.granules.bytes());
        let stock = Arc::new(Stock::new(limit, options.granules));
        MemoryPool { options, stock, loans: Mutex::default() }
    }

    /// Bytes in use by all clients.
    pub fn used(&self) -> u64 {
        self.stock.used()
    }

    /// Ends leases that are over at `now`.
    fn end_leases(&self, now: Instant) {
        let Some(lease) = self.options.lease else { return };
        let mut ended = Vec::new();
        self.loans.lock().retain(|_, loan| {
            if Arc::strong_count(&loan.memory) > 1 {
                loan.idle_since = None;
                return true;
            }
            let keep = now.duration_since(*loan.idle_since.get_or_insert(now)) < lease;
            if !keep {
                ended.push(Arc::clone(&loan.memory));
            }
            keep
        });
        // Freeing gigabytes takes a while, so it happens without the lock.
        drop(ended);
    }
}

impl Catalogue for MemoryPool {
    fn names(&self) -> Vec<String> {
        self.loans.lock().keys().cloned().collect()
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Export>, Refusal> {
        let (name, token) = fence::split(name);
        let (export, fence) = {
            let mut loans = self.loans.lock();
            if !loans.contains_key(name) && loans.len() >= self.options.names_max {
                // An unused name without data can be replaced.
                loans.retain(|_, loan| {
                    Arc::strong_count(&loan.memory) > 1 || loan.memory.resident() > 0
                });
                if loans.len() >= self.options.names_max {
                    return Err(Refusal::Policy);
                }
            }
            let loan = loans.entry(name.to_owned()).or_insert_with(|| Loan {
                memory: Arc::new(LentMemory::new(self.options.quota, Arc::clone(&self.stock))),
                fence: Arc::default(),
                idle_since: None,
            });
            loan.idle_since = None;
            (Arc::clone(&loan.memory), Arc::clone(&loan.fence))
        };
        match token.is_none_or(|token| fence.raise(token)) {
            true => Ok(Arc::new(Fenced { export, fence, token })),
            false => Err(Refusal::Fenced),
        }
    }

    fn tend(&self) {
        self.end_leases(Instant::now());
        self.stock.tend();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::ExportError;

    fn pool(lease: Option<Duration>) -> MemoryPool {
        MemoryPool::new(PoolOptions {
            limit: 1 << 20,
            quota: 1 << 20,
            lease,
            names_max: 2,
            granules: GranuleSize::Small,
        })
    }

    #[test]
    fn leases_end_after_the_last_connection() {
        let pool = pool(Some(Duration::from_secs(10)));
        let memory = pool.open("a").unwrap();
        memory.write(0, &[1; 100]).unwrap();
        let start = Instant::now();
        pool.end_leases(start + Duration::from_secs(100));
        assert_eq!(pool.names(), ["a"]);
        drop(memory);
        pool.end_leases(start + Duration::from_secs(101));
        pool.end_leases(start + Duration::from_secs(110));
        let again = pool.open("a").unwrap();
        let mut found = [0; 100];
        again.read(0, &mut found).unwrap();
        assert_eq!(found, [1; 100]);
        drop(again);
        pool.end_leases(start + Duration::from_secs(111));
        pool.end_leases(start + Duration::from_secs(122));
        assert!(pool.names().is_empty());
        assert_eq!(pool.used(), 0);
    }

    #[test]
    fn a_newer_token_keeps_older_clients_out() {
        let pool = pool(None);
        let plain = pool.open("a").unwrap();
        plain.write(0, &[1; 10]).unwrap();
        let old = pool.open("a@3").unwrap();
        let again = pool.open("a@3").unwrap();
        old.write(0, &[2; 10]).unwrap();
        again.flush().unwrap();
        let new = pool.open("a@4").unwrap();
        let mut found = [0; 10];
        // The older client can neither write nor read, nor open again.
        for export in [&old, &again] {
            assert_eq!(export.write(0, &[3; 10]), Err(ExportError::Fenced));
            assert_eq!(export.trim(0, 10), Err(ExportError::Fenced));
            assert_eq!(export.write_zeroes(0, 10, false), Err(ExportError::Fenced));
            assert_eq!(export.flush(), Err(ExportError::Fenced));
            assert_eq!(export.read(0, &mut found), Err(ExportError::Fenced));
        }
        assert!(matches!(pool.open("a@3"), Err(Refusal::Fenced)));
        // A client without a token can only read.
        assert_eq!(plain.write(0, &[3; 10]), Err(ExportError::Fenced));
        plain.read(0, &mut found).unwrap();
        assert_eq!(found, [2; 10]);
        new.write(0, &[4; 10]).unwrap();
        // Other names are other memory, and a name may contain an @.
        assert_eq!(pool.names(), ["a"]);
        pool.open("b@c").unwrap().write(0, &[5; 10]).unwrap();
        assert_eq!(pool.names(), ["a", "b@c"]);
    }

    #[test]
    fn names_are_apart_and_bounded() {
        let pool = pool(None);
        let (a, b) = (pool.open("a").unwrap(), pool.open("b").unwrap());
        a.write(0, &[1; 10]).unwrap();
        let mut found = [9; 10];
        b.read(0, &mut found).unwrap();
        assert_eq!(found, [0; 10]);
        assert!(matches!(pool.open("c"), Err(Refusal::Policy)));
        // A name without data makes room; a name with data does not.
        drop((a, b));
        let c = pool.open("c").unwrap();
        assert_eq!(pool.names(), ["a", "c"]);
        assert!(matches!(pool.open("d"), Err(Refusal::Policy)));
        drop(c);
        pool.open("a").unwrap().trim(0, GranuleSize::Small.bytes()).unwrap();
        pool.open("d").unwrap();
        assert_eq!(pool.names(), ["d"]);
    }
}
