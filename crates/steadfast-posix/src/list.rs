//! Named checks.

use std::sync::Arc;

use crate::verdict::Verdict;

/// The body of a check. It runs in its own directory.
pub type Body = dyn Fn() -> Verdict + Send + Sync;

/// One named check.
#[derive(Clone)]
pub struct Check {
    /// `group/guarantee`, unique.
    pub name: String,
    /// The function to run.
    pub body: Arc<Body>,
}

/// Collects checks and prefixes each with the name of the current group.
#[derive(Default)]
pub struct List {
    group: &'static str,
    checks: Vec<Check>,
}

impl List {
    /// Checks that are added from now on belong to this group.
    pub fn group(&mut self, group: &'static str) {
        self.group = group;
    }

    /// Adds a check to the current group.
    pub fn add(
        &mut self,
        name: impl AsRef<str>,
        body: impl Fn() -> Verdict + Send + Sync + 'static,
    ) {
        let name = format!("{}/{}", self.group, name.as_ref());
        self.checks.push(Check { name, body: Arc::new(body) });
    }

    /// All checks, in the order of addition.
    pub fn into_checks(self) -> Vec<Check> {
        self.checks
    }
}
