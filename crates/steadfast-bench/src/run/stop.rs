//! The user's wish to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set once, by a signal handler or a test; looked at between operations.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Not set.
    pub fn new() -> Stop {
        Stop::default()
    }

    /// The step that runs ends as soon as it looks, and then the run.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it is set.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The flag, for signal handlers that set it.
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.0.clone()
    }
}
