//! Snapshots: each is a copy of the whole state and must never change.

use std::sync::Arc;

use super::{Model, State};
use crate::fault::{Fault, Faults, Objections};

/// A snapshot.
#[derive(Debug, Clone)]
pub struct ModelSnapshot {
    /// Its name.
    pub name: String,
    /// The state that it holds.
    pub state: Arc<State>,
    /// The digest of that state.
    pub digest: u128,
}

/// Longest name of a snapshot, bytes.
const NAME_MAX: usize = 63;

impl State {
    /// The snapshots, oldest first.
    pub fn snapshots(&self) -> &[ModelSnapshot] {
        &self.snapshots
    }

    fn snapshot(&self, name: &str) -> Option<&ModelSnapshot> {
        self.snapshots.iter().find(|kept| kept.name == name)
    }
}

impl Model {
    /// Keeps the current state under a name.
    ///
    /// # Errors
    /// See [`Faults`].
    pub fn snapshot_create(&mut self, name: &str) -> Result<(), Faults> {
        Objections::default()
            .when(name.is_empty(), Fault::InvalidName)
            .when(name.len() > NAME_MAX, Fault::NameTooLong)
            .when(self.state.snapshot(name).is_some(), Fault::AlreadyExists)
            .check()?;
        // The snapshots of a snapshot are not visible. It contains unnamed files that are held now.
        let state = State { snapshots: Arc::default(), ..self.state.clone() };
        let digest = state.digest();
        let kept = ModelSnapshot { name: name.to_owned(), state: Arc::new(state), digest };
        Arc::make_mut(&mut self.state.snapshots).push(kept);
        Ok(())
    }

    /// Deletes a snapshot.
    ///
    /// # Errors
    /// See [`Faults`].
    pub fn snapshot_delete(&mut self, name: &str) -> Result<(), Faults> {
        Objections::default().when(self.state.snapshot(name).is_none(), Fault::NotFound).check()?;
        Arc::make_mut(&mut self.state.snapshots).retain(|kept| kept.name != name);
        Ok(())
    }

    /// Returns to a snapshot. Newer snapshots are dropped, and acquired inodes stay acquired if
    /// they exist there.
    ///
    /// # Errors
    /// See [`Faults`].
    pub fn snapshot_rollback(&mut self, name: &str, destroy_newer: bool) -> Result<(), Faults> {
        let at = self.state.snapshots.iter().position(|kept| kept.name == name);
        let newer = at.is_some_and(|at| at + 1 < self.state.snapshots.len());
        Objections::default()
            .when(at.is_none(), Fault::NotFound)
            .when(newer && !destroy_newer, Fault::NewerSnapshots)
            .check()?;
        let Some(at) = at else { return Ok(()) };
        let snapshots = self.state.snapshots[..=at].to_vec();
        let nodes = snapshots[at].state.nodes.clone();
        self.state = State { nodes, snapshots: Arc::new(snapshots), ..self.state.clone() };
        self.state.reap(&self.open);
        Ok(())
    }
}
