//! [`RadosMedium`]: an open image.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::RwLock;
use rustix::io::Errno;
use steadfast_media::{
    ErrorClass, FailureModel, Geometry, Medium, MediumCounters, MediumError, MediumOperation,
    WaitHook,
};

use crate::behind::{Behind, Change};
use crate::error::{RadosError, is, os};
use crate::header::{HEADER_MAX, Header, UNIT};
use crate::location::Location;
use crate::owner::{Owner, Term};
use crate::pool::{Done, Pool, Read};
use crate::stripes::{object_name, stripes};

/// How long a process that is surely gone stays on the blocklist: longer than its requests can be
/// on their way.
const BLOCKED_WHEN_GONE: Duration = Duration::from_secs(3600);
/// How long an owner stays on the blocklist that was evicted: a stopped machine may run on later.
const BLOCKED_WHEN_EVICTED: Duration = Duration::from_secs(365 * 24 * 3600);
/// Attempts to take a lock that others take at the same time.
const LOCK_ATTEMPTS: usize = 5;
/// Parts of an object that are shorter are not given back.
const ZERO_MIN: u64 = 64 << 10;

/// An image in RADOS, open.
pub struct RadosMedium {
    pool: Pool,
    name: String,
    header: RwLock<Header>,
    behind: Arc<Behind>,
    /// The cookie of the lock; `None` if it was opened read-only.
    cookie: Option<String>,
    before_waits: OnceLock<WaitHook>,
    counts: Counts,
}

/// What is known of an image without opening it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Bytes of the image.
    pub size: u64,
    /// Bytes of an object.
    pub object_size: u64,
    /// The process that has it open for writing.
    pub owner: Option<Owner>,
}

#[derive(Default)]
struct Counts {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    flushes: AtomicU64,
    discards: AtomicU64,
    failures: AtomicU64,
}

impl RadosMedium {
    /// Makes an image of `size` bytes and opens it.
    ///
    /// # Errors
    /// `Exists`; what keeps the client out of the pool.
    pub fn create(location: &Location, size: u64) -> Result<RadosMedium, RadosError> {
        let pool = Pool::open(location)?;
        let made =
            pool.create_object(&Header::object(&location.name), &Header::new(size).encode())?;
        if !made {
            return Err(RadosError::Exists(location.name.clone()));
        }
        Self::with(pool, location, Access::Write(None))
    }

    /// Opens an image. Read-only, another process may write to it meanwhile. For writing, an owner
    /// that ran on this machine and is gone loses its lock.
    ///
    /// # Errors
    /// `NoImage`, `InUse`, `Header`; what keeps the client out of the pool.
    pub fn open(location: &Location, read_only: bool) -> Result<RadosMedium, RadosError> {
        let access = if read_only { Access::Read } else { Access::Write(None) };
        Self::with(Pool::open(location)?, location, access)
    }

    /// Opens an image for writing, as the owner of a volume in a cluster. Owners of earlier terms
    /// lose the image, wherever they run: RADOS refuses their requests before anything is read.
    ///
    /// # Errors
    /// As [`open`](Self::open); `InUse` also by the owner of a later term.
    pub fn open_in_term(location: &Location, term: Term) -> Result<RadosMedium, RadosError> {
        Self::with(Pool::open(location)?, location, Access::Write(Some(term)))
    }

    fn with(pool: Pool, location: &Location, access: Access) -> Result<RadosMedium, RadosError> {
        let cookie = match access {
            Access::Read => None,
            Access::Write(term) => Some(take_lock(&pool, &location.name, term)?),
        };
        // Read under the lock: another owner may have changed the size until then.
        let header = header_of(&pool, &location.name).inspect_err(|_| {
            if let Some(cookie) = &cookie {
                let _ = pool.unlock(&Header::object(&location.name), cookie);
            }
        })?;
        Ok(RadosMedium {
            pool,
            name: location.name.clone(),
            header: RwLock::new(header),
            behind: Arc::default(),
            cookie,
            before_waits: OnceLock::new(),
            counts: Counts::default(),
        })
    }

    /// Size and owner of an image.
    ///
    /// # Errors
    /// `NoImage`, `Header`; what keeps the client out of the pool.
    pub fn status(location: &Location) -> Result<Status, RadosError> {
        let pool = Pool::open(location)?;
        let Header { size, object_size } = header_of(&pool, &location.name)?;
        let locker = pool.locker(&Header::object(&location.name))?;
        let owner = locker.map(|locker| Owner::of_cookie(&locker.cookie()));
        Ok(Status { size, object_size, owner })
    }

    /// Takes the lock away from its owner, wherever that runs. RADOS refuses the owner's requests
    /// from then on. Returns the owner; `None` if there was none.
    ///
    /// # Errors
    /// `NoImage`; `Failed` if the user may not use the blocklist.
    pub fn evict(location: &Location) -> Result<Option<Owner>, RadosError> {
        let pool = Pool::open(location)?;
        header_of(&pool, &location.name)?;
        let object = Header::object(&location.name);
        let Some(locker) = pool.locker(&object)? else { return Ok(None) };
        pool.cluster().block(&locker.address, BLOCKED_WHEN_EVICTED)?;
        pool.break_lock(&object, &locker)?;
        Ok(Some(Owner::of_cookie(&locker.cookie())))
    }

    /// Removes an image with all its objects. If it ends early, it can be called again.
    ///
    /// # Errors
    /// As [`open`](Self::open) for writing.
    pub fn remove(location: &Location) -> Result<(), RadosError> {
        let medium = Self::open(location, false)?;
        medium.cut(0)?;
        // Last, so that the objects are never without a header. The lock goes with it.
        medium.pool.remove_object(&Header::object(&medium.name))
    }

    /// Removes all data and sets the size: the image is as after [`create`](Self::create).
    ///
    /// # Errors
    /// `Failed`.
    pub fn clear(&self, size: u64) -> Result<(), RadosError> {
        self.cut(0)?;
        let header = *self.header.read();
        self.store_header(Header { size: Header::new(size).size, ..header })
    }

    /// Removes what lies past `size`. The objects go from the last on, and the header is written
    /// at the end.
    fn cut(&self, size: u64) -> Result<(), RadosError> {
        let header = *self.header.read();
        let failed = |error| RadosError::Failed("remove the objects of the image", os(error));
        for object in (size.div_ceil(header.object_size)..header.objects()).rev() {
            let change = self.behind.begin(0).map_err(failed)?;
            self.pool.begin_remove(&object_name(&self.name, object), ending(change));
        }
        let rest = size % header.object_size;
        if rest > 0 && size < header.size {
            let change = self.behind.begin(0).map_err(failed)?;
            let object = object_name(&self.name, size / header.object_size);
            self.pool.begin_zero(&object, rest, header.object_size - rest, ending(change));
        }
        self.behind.wait().map_err(failed)?;
        self.store_header(Header { size, ..header })
    }

    fn store_header(&self, header: Header) -> Result<(), RadosError> {
        self.pool.write_object(&Header::object(&self.name), &header.encode())?;
        *self.header.write() = header;
        Ok(())
    }

    fn error(&self, operation: MediumOperation, at: (u64, usize), result: i32) -> MediumError {
        self.counts.failures.fetch_add(1, Ordering::Relaxed);
        let class = if is(result, &[Errno::NOSPC, Errno::DQUOT]) {
            ErrorClass::Full
        } else if is(result, &[Errno::SHUTDOWN]) {
            // This client is on the blocklist.
            ErrorClass::Gone
        } else {
            // A request that timed out has been tried for long enough.
            ErrorClass::Permanent
        };
        MediumError { operation, offset: at.0, length: at.1 as u64, class, os_error: -result }
    }

    fn check(
        &self,
        operation: MediumOperation,
        offset: u64,
        length: u64,
    ) -> Result<(), MediumError> {
        self.geometry().check(operation, offset, length)
    }
}

fn ending(change: Change) -> Done {
    Box::new(move |result| change.end(result))
}

fn header_of(pool: &Pool, name: &str) -> Result<Header, RadosError> {
    let bytes = pool.read_object(&Header::object(name), HEADER_MAX)?;
    Header::decode(&bytes.ok_or_else(|| RadosError::NoImage(name.to_owned()))?)
}

/// How an image is opened.
enum Access {
    Read,
    /// With the lock; in a cluster with the term.
    Write(Option<Term>),
}

/// Takes the lock of the image, also from an owner that is surely gone, or has an earlier term.
fn take_lock(pool: &Pool, name: &str, term: Option<Term>) -> Result<String, RadosError> {
    let object = Header::object(name);
    // Locking would make the object.
    if pool.read_object(&object, HEADER_MAX)?.is_none() {
        return Err(RadosError::NoImage(name.to_owned()));
    }
    let here = Owner::this_process().in_term(term);
    let cookie = here.cookie();
    for _ in 0..LOCK_ATTEMPTS {
        if pool.lock(&object, &cookie)? {
            return Ok(cookie);
        }
        let Some(locker) = pool.locker(&object)? else { continue };
        let owner = Owner::of_cookie(&locker.cookie());
        let time = if here.term.as_ref().is_some_and(|term| owner.is_before(term)) {
            BLOCKED_WHEN_EVICTED
        } else if owner.is_gone(&here) {
            BLOCKED_WHEN_GONE
        } else {
            return Err(RadosError::InUse(Box::new(owner)));
        };
        pool.cluster().block(&locker.address, time)?;
        pool.break_lock(&object, &locker)?;
    }
    Err(RadosError::Failed("lock the image", Errno::BUSY.into()))
}

impl Medium for RadosMedium {
    fn geometry(&self) -> Geometry {
        // RADOS changes an object as a whole or not at all; a smaller unit promises less.
        let size = self.header.read().size;
        Geometry { size, atomic_unit: UNIT, failure_model: FailureModel::PowerSafe }
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        self.check(MediumOperation::Read, offset, buffer.len() as u64)?;
        if let Some(hook) = self.before_waits.get() {
            hook();
        }
        let at = (offset, buffer.len());
        self.counts.reads.fetch_add(1, Ordering::Relaxed);
        self.counts.read_bytes.fetch_add(at.1 as u64, Ordering::Relaxed);
        let mut rest = buffer;
        let mut reads = Vec::new();
        let object_size = self.header.read().object_size;
        for part in stripes(object_size, offset, at.1) {
            let (buffer, after) = rest.split_at_mut(part.range.len());
            rest = after;
            let object = object_name(&self.name, part.object);
            reads.push(Read { object, offset: part.offset, buffer });
        }
        let read = self.pool.read_all(&mut reads);
        read.map_err(|result| self.error(MediumOperation::Read, at, result))
    }

    fn read_vectored(&self, offset: u64, buffers: &mut [&mut [u8]]) -> Result<(), MediumError> {
        let mut all = vec![0; buffers.iter().map(|buffer| buffer.len()).sum()];
        self.read(offset, &mut all)?;
        let mut rest = all.as_slice();
        for buffer in buffers {
            let (part, after) = rest.split_at(buffer.len());
            buffer.copy_from_slice(part);
            rest = after;
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        self.check(MediumOperation::Write, offset, data.len() as u64)?;
        self.counts.writes.fetch_add(1, Ordering::Relaxed);
        self.counts.written_bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
        let object_size = self.header.read().object_size;
        for part in stripes(object_size, offset, data.len()) {
            let failed = |result| self.error(MediumOperation::Write, (offset, data.len()), result);
            let change = self.behind.begin(part.range.len()).map_err(failed)?;
            let object = object_name(&self.name, part.object);
            self.pool.begin_write(&object, part.offset, &data[part.range], ending(change));
        }
        Ok(())
    }

    fn write_vectored(&self, offset: u64, buffers: &[&[u8]]) -> Result<(), MediumError> {
        match buffers {
            [one] => self.write(offset, one),
            _ => self.write(offset, &buffers.concat()),
        }
    }

    fn flush(&self) -> Result<(), MediumError> {
        self.counts.flushes.fetch_add(1, Ordering::Relaxed);
        self.behind.wait().map_err(|result| self.error(MediumOperation::Flush, (0, 0), result))
    }

    fn discard(&self, offset: u64, length: u64) -> Result<(), MediumError> {
        self.check(MediumOperation::Discard, offset, length)?;
        self.counts.discards.fetch_add(1, Ordering::Relaxed);
        let object_size = self.header.read().object_size;
        let failed =
            |result| self.error(MediumOperation::Discard, (offset, length as usize), result);
        let (mut at, end) = (offset, offset + length);
        while at < end {
            let into = at % object_size;
            let count = (object_size - into).min(end - at);
            let object = object_name(&self.name, at / object_size);
            if count == object_size {
                let change = self.behind.begin(0).map_err(failed)?;
                self.pool.begin_remove(&object, ending(change));
            } else if count >= ZERO_MIN {
                let change = self.behind.begin(0).map_err(failed)?;
                self.pool.begin_zero(&object, into, count, ending(change));
            }
            at += count;
        }
        Ok(())
    }

    fn before_waits(&self, hook: WaitHook) {
        let _ = self.before_waits.set(hook);
    }

    fn set_size(&self, size: u64) -> Result<(), MediumError> {
        let size = size.next_multiple_of(u64::from(UNIT));
        let header = *self.header.read();
        let changed = match size < header.size {
            true => self.cut(size),
            false => self.store_header(Header { size, ..header }),
        };
        changed.map_err(|error| {
            let result = match error {
                RadosError::Failed(_, error) => -error.raw_os_error().unwrap_or(0),
                _ => -Errno::ACCESS.raw_os_error(),
            };
            self.error(MediumOperation::Write, (size, 0), result)
        })
    }

    fn counters(&self) -> Option<MediumCounters> {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Some(MediumCounters {
            reads: count(&self.counts.reads),
            read_bytes: count(&self.counts.read_bytes),
            writes: count(&self.counts.writes),
            written_bytes: count(&self.counts.written_bytes),
            flushes: count(&self.counts.flushes),
            discards: count(&self.counts.discards),
            failures: count(&self.counts.failures),
        })
    }
}

impl Drop for RadosMedium {
    fn drop(&mut self) {
        // After a failure a request may still be on its way: the next opener blocks this client
        // first, because the lock is still there.
        if let (Ok(()), Some(cookie)) = (self.behind.wait(), &self.cookie) {
            let _ = self.pool.unlock(&Header::object(&self.name), cookie);
        }
    }
}
