//! Snapshots: a copy of the whole state each, which must never change.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Model, State};
use crate::fault::{Fault, Faults, Objections};

/// A snapshot.
#[derive(Debug, Clone)]
pub struct Kept {
    /// Its name.
    pub name: String,
    /// The state that it holds; files without a name are not in it.
    pub state: Arc<State>,
    /// The digest of that.
    pub digest: u128,
}

/// Longest name of a snapshot, bytes.
const NAME_MAX: usize = 63;

impl State {
    /// The snapshots, oldest first.
    pub fn snapshots(&self) -> &[Kept] {
        &self.snapshots
    }

    fn snapshot(&self, name: &str) -> Option<&Kept> {
        self.snapshots.iter().find(|kept| kept.name == name)
    }
}

impl Model {
    /// Keeps the present state under a name.
    ///
    /// # Errors
    /// See [`Faults`].
    pub fn snapshot_create(&mut self, name: &str) -> Result<(), Faults> {
        Objections::default()
            .when(name.is_empty(), Fault::InvalidName)
            .when(name.len() > NAME_MAX, Fault::NameTooLong)
            .when(self.state.snapshot(name).is_some(), Fault::AlreadyExists)
            .settle()?;
        // Snapshots of a snapshot cannot be seen.
        let mut state = State { snapshots: Arc::default(), ..self.state.clone() };
        state.reap(&BTreeMap::new());
        let digest = state.digest();
        let kept = Kept { name: name.to_owned(), state: Arc::new(state), digest };
        Arc::make_mut(&mut self.state.snapshots).push(kept);
        Ok(())
    }
}
