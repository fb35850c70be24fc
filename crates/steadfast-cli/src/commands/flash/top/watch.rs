//! Repeated surveys of a part: the newest survey, and the erasures since the first.

use std::time::{Duration, Instant};

use crate::commands::flash::survey::PartSurvey;

/// The surveys since the start.
#[derive(Debug)]
pub struct PartHistory {
    /// The name of the part.
    pub title: String,
    /// The newest survey.
    pub newest: PartSurvey,
    /// Erasures of all blocks and the time: at the start, at the last survey but one, at the last
    /// survey.
    start: u64,
    before: (u64, Instant),
    last: (u64, Instant),
}

impl PartHistory {
    /// Starts with the first survey.
    pub fn new(title: String, first: PartSurvey, at: Instant) -> PartHistory {
        let seen = (first.wear().erases_total, at);
        PartHistory { title, newest: first, start: seen.0, before: seen, last: seen }
    }

    /// Adds a survey.
    pub fn push(&mut self, survey: PartSurvey, at: Instant) {
        self.before = self.last;
        self.last = (survey.wear().erases_total, at);
        self.newest = survey;
    }

    /// Restarts the count.
    pub fn reset(&mut self) {
        self.start = self.last.0;
    }

    /// Erasures since the start. The erasures of a block that has gone bad drop out of the count.
    pub fn erased(&self) -> u64 {
        self.last.0.saturating_sub(self.start)
    }

    /// Erasures per second between the last two surveys.
    pub fn rate(&self) -> f64 {
        let time = self.last.1.saturating_duration_since(self.before.1);
        if time < Duration::from_millis(1) {
            return 0.0;
        }
        self.last.0.saturating_sub(self.before.0) as f64 / time.as_secs_f64()
    }
}
