//! Looking at a part again and again: what was found last, and how much was erased meanwhile.

use std::time::{Duration, Instant};

use crate::commands::flash::survey::Survey;

/// What was seen since the start.
#[derive(Debug)]
pub struct History {
    /// What is looked at.
    pub title: String,
    /// What was found last.
    pub newest: Survey,
    /// Erasures of all blocks and the time: at the start, before the last look, at the last look.
    start: u64,
    before: (u64, Instant),
    last: (u64, Instant),
}

impl History {
    /// The first look.
    pub fn new(title: String, first: Survey, at: Instant) -> History {
        let seen = (first.wear().erases_total, at);
        History { title, newest: first, start: seen.0, before: seen, last: seen }
    }

    /// Another look.
    pub fn push(&mut self, survey: Survey, at: Instant) {
        self.before = self.last;
        self.last = (survey.wear().erases_total, at);
        self.newest = survey;
    }

    /// Counts from now on.
    pub fn reset(&mut self) {
        self.start = self.last.0;
    }

    /// Erasures since the start. A block that went bad takes its own away.
    pub fn erased(&self) -> u64 {
        self.last.0.saturating_sub(self.start)
    }

    /// Erasures a second between the last two looks.
    pub fn rate(&self) -> f64 {
        let time = self.last.1.saturating_duration_since(self.before.1);
        if time < Duration::from_millis(1) {
            return 0.0;
        }
        self.last.0.saturating_sub(self.before.0) as f64 / time.as_secs_f64()
    }
}
