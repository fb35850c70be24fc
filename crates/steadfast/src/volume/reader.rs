//! Reading: a consistent view of the working state, shared by any number of readers.

use core::sync::atomic::Ordering;

use lock_api::RwLockReadGuard;
use steadfast_media::Medium;

use super::Volume;
use crate::error::Result;
use crate::key::Key;
use crate::keyspace::{KeyspaceRead, Version, Versioned};
use crate::platform::Platform;
use crate::tree::Root;

/// While it is held no operation changes the tree, so look at what is needed and drop it. The thread that holds one must
/// not start a change.
pub(crate) struct Reader<'a, M: Medium, P: Platform> {
    volume: &'a Volume<M, P>,
    root: RwLockReadGuard<'a, P::RwLock, Root>,
}

impl<M: Medium, P: Platform> Volume<M, P> {
    pub(crate) fn reader(&self) -> Result<Reader<'_, M, P>> {
        self.check_open()?;
        loop {
            let root = self.view.read();
            if !self.rolling_back.load(Ordering::Acquire) {
                self.check_shown()?;
                return Ok(Reader { volume: self, root });
            }
            // A replay lets the view go between its steps, and no state in between may be seen.
            drop(root);
            drop(self.working.lock());
        }
    }

    /// Looks up through `root` with the versions of a local tree: writers are serialised, so nothing that a writer has
    /// read can change before it commits, and one version serves for everything.
    pub(super) fn versioned_get(&self, root: &Root, key: &Key) -> Result<Option<Versioned>> {
        Ok(self.store.get(root, key)?.map(|value| Versioned { value, version: Version::default() }))
    }

    pub(super) fn versioned_next(
        &self,
        root: &Root,
        from: &Key,
        to: &Key,
    ) -> Result<Option<(Key, Versioned)>> {
        let found = self.store.next(root, from, to)?;
        Ok(found.map(|(key, value)| (key, Versioned { value, version: Version::default() })))
    }

    pub(super) fn versioned_previous(
        &self,
        root: &Root,
        from: &Key,
        to: &Key,
    ) -> Result<Option<(Key, Versioned)>> {
        let found = self.store.previous(root, from, to)?;
        Ok(found.map(|(key, value)| (key, Versioned { value, version: Version::default() })))
    }
}

impl<M: Medium, P: Platform> Reader<'_, M, P> {
    /// The tree.
    pub(crate) fn root(&self) -> &Root {
        &self.root
    }
}

impl<M: Medium, P: Platform> KeyspaceRead for Reader<'_, M, P> {
    fn get(&self, key: &Key) -> Result<Option<Versioned>> {
        self.volume.versioned_get(&self.root, key)
    }

    fn next(&self, from: &Key, to: &Key) -> Result<Option<(Key, Versioned)>> {
        self.volume.versioned_next(&self.root, from, to)
    }

    fn previous(&self, from: &Key, to: &Key) -> Result<Option<(Key, Versioned)>> {
        self.volume.versioned_previous(&self.root, from, to)
    }

    fn value_len_max(&self) -> usize {
        self.volume.store.superblock.value_len_max()
    }
}
