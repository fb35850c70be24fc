//! [`Fence`]: the newest client of a name keeps older ones out.
//!
//! A client with a **token** opens `NAME@TOKEN`, tokens being given out in growing order by
//! somebody whom all clients trust. NBD has no word for it; an export name is what every client can
//! choose.
//!
//! Invariants: once an open under a token has been answered, no request under a smaller one is
//! carried out, on whichever connection it comes, however late; what had begun before is over by
//! then. Without a token a name is only read once somebody had one. A server that restarts knows no
//! tokens, and no bytes either.

use std::sync::Arc;

use parking_lot::RwLock;

use super::{Export, ExportError, Stretch};

/// The newest token of a name; 0 where nobody had one.
#[derive(Debug, Default)]
pub(super) struct Fence(RwLock<u64>);

impl Fence {
    /// Lets a client with this token in, and keeps all older ones out. `false`: there was a newer
    /// one.
    pub(super) fn raise(&self, token: u64) -> bool {
        // Waits for requests under way: each is a copy within memory.
        let mut newest = self.0.write();
        let admitted = token >= *newest;
        *newest = token.max(*newest);
        admitted
    }
}

/// An export name with its token: `NAME@TOKEN`, or a name alone.
pub(super) fn split(name: &str) -> (&str, Option<u64>) {
    match name.rsplit_once('@').map(|(name, token)| (name, token.parse::<u64>())) {
        Some((name, Ok(token))) if token > 0 => (name, Some(token)),
        _ => (name, None),
    }
}

/// What one connection has of an export.
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
