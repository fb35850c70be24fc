//! Named checks.

use std::sync::Arc;

use crate::verdict::Verdict;

/// The body of a check. It runs in a directory of its own.
pub type Body = dyn Fn() -> Verdict + Send + Sync;

/// One named check.
#[derive(Clone)]
pub struct Check {
    /// `group/what-is-promised`, unique.
    pub name: String,
    /// What to run.
    pub body: Arc<Body>,
}

/// Collects checks, the name of the present group in front of each.
#[derive(Default)]
pub struct List {
    group: &'static str,
    checks: Vec<Check>,
}

impl List {
    /// All that is added from now on belongs to this group.
    pub fn group(&mut self, group: &'static str) {
        self.group = group;
    }

    /// Adds a check of the present group.
    pub fn add(
        &mut self,
        name: impl AsRef<str>,
        body: impl Fn() -> Verdict + Send + Sync + 'static,
    ) {
        let name = format!("{}/{}", self.group, name.as_ref());
        self.checks.push(Check { name, body: Arc::new(body) });
    }

    /// All checks, in the order in which they were added.
    pub fn into_checks(self) -> Vec<Check> {
        self.checks
    }
}
