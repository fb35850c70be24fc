//! [`Fence`]: the newest client of a name locks older clients out.
//!
//! A client with a **token** opens `NAME@TOKEN`. An authority that all clients trust issues tokens
//! in increasing order. NBD has no field for a token, but every client can choose an export name.
//!
//! Invariants: after an open with a token was answered, no request with a smaller one is carried
//! out, on any connection, however late. Requests that had begun before are finished by then. Once
//! a name was opened with a token, clients without a token can only read it. A restarted server has
//! no tokens, and no data either.

use std::sync::Arc;

use parking_lot::RwLock;

use super::{Export, ExportError, Stretch};

/// The newest token of a name; 0 if there was none.
#[derive(Debug, Default)]
pub(super) struct Fence(RwLock<u64>);

impl Fence {
    /// Admits a client with this token and locks all older ones out. `false` if there was a newer
    /// token.
    pub(super) fn raise(&self, token: u64) -> bool {
        // Waits for requests in progress: each is a copy within memory.
        let mut newest = self.0.write();
        let admitted = token >= *newest;
        *newest = token.max(*newest);
        admitted
    }
}

/// Splits an export name `NAME@TOKEN`; the token is optional.
pub(super) fn split(name: &str) -> (&str, Option<u64>) {
    match name.rsplit_once('@').map(|(name, token)| (name, token.parse::<u64>())) {
        Some((name, Ok(token))) if token > 0 => (name, Some(token)),
        _ => (name, None),
    }
}

/// An export as one connection sees it.
pub(super) struct Fenced<E> {
    pub(super) export: Arc<E>,
    pub(super) fence: Arc<Fence>,
    pub(super) token: Option<u64>,
}

impl<E: Export> Fenced<E> {
    fn pass<T>(
        &self,
        changes: bool,
        work: impl FnOnce(&E) -> Result<T, ExportError>,
    ) -> Result<T, ExportError> {
        let newest = self.fence.0.read();
        let stale = match self.token {
            Some(token) => token < *newest,
            None => changes && *newest > 0,
        };
        if stale {
            return Err(ExportError::Fenced);
        }
        work(&self.export)
    }
}

impl<E: Export> Export for Fenced<E> {
    fn size(&self) -> u64 {
        self.export.size()
    }
    fn block_min(&self) -> u32 {
        self.export.block_min()
    }
    fn read_only(&self) -> bool {
        self.export.read_only()
    }
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ExportError> {
        self.pass(false, |export| export.read(offset, buffer))
    }
    fn write(&self, offset: u64, data: &[u8]) -> Result<(), ExportError> {
        self.pass(true, |export| export.write(offset, data))
    }
    fn flush(&self) -> Result<(), ExportError> {
        self.pass(true, |export| export.flush())
    }
    fn trim(&self, offset: u64, length: u64) -> Result<(), ExportError> {
        self.pass(true, |export| export.trim(offset, length))
    }
    fn write_zeroes(&self, offset: u64, length: u64, keep: bool) -> Result<(), ExportError> {
        self.pass(true, |export| export.write_zeroes(offset, length, keep))
    }
    fn stretch(&self, offset: u64, length: u64) -> Stretch {
        self.export.stretch(offset, length)
    }
}
