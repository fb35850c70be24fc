//! Automatic snapshots of a mounted volume. `hourly=24,daily=7` takes one every hour and one every
//! day, and keeps the newest 24 and 7 of them.
//!
//! Periods are in UTC. A snapshot is named after the beginning of its period
//! (`hourly-2026-11-22T14:00Z`). So each period has one snapshot, however often the volume is
//! mounted. A period in which the volume was not mounted has none.
//!
//! The generations of snapshots say which ones are the newest, because the clock may jump. The
//! schedule leaves snapshots with other names alone.

use std::fmt::Display;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use steadfast::{Snapshot, Timestamp};

use crate::logger::{Priority, message};
use crate::stat_text;

/// Time between two checks of the clock.
const INTERVAL: Duration = Duration::from_secs(20);
/// Most snapshots that one rule may keep.
const KEEP_MAX: usize = 10_000;
const DAY: i64 = 86_400;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Period {
    Hourly,
    Daily,
    Weekly,
    Monthly,
}

impl Period {
    const ALL: [(&'static str, Period); 4] = [
        ("hourly", Period::Hourly),
        ("daily", Period::Daily),
        ("weekly", Period::Weekly),
        ("monthly", Period::Monthly),
    ];

    /// The name of the snapshot for the period that contains this moment.
    fn name(self, seconds: i64) -> String {
        let begin = match self {
            Period::Hourly => seconds.div_euclid(3600) * 3600,
            Period::Daily | Period::Monthly => seconds.div_euclid(DAY) * DAY,
            // Weeks begin on Monday; 1970-01-01 was a Thursday.
            Period::Weekly => (seconds.div_euclid(DAY) + 3).div_euclid(7) * 7 * DAY - 3 * DAY,
        };
        let time = stat_text::time(Timestamp { seconds: begin, nanoseconds: 0 }, true);
        let length = match self {
            Period::Hourly => "2026-11-22T14:00".len(),
            Period::Daily | Period::Weekly => "2026-11-22".len(),
            Period::Monthly => "2026-11".len(),
        };
        let zone = if self == Period::Hourly { "Z" } else { "" };
        format!("{}-{}{zone}", self.text(), time.get(..length).unwrap_or(&time))
    }

    fn text(self) -> &'static str {
        Period::ALL.iter().find(|(_, period)| *period == self).map_or("", |(text, _)| text)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rule {
    period: Period,
    keep: usize,
}

/// Which snapshots to take, and how many to keep.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Schedule(Vec<Rule>);

/// Taking and deleting snapshots, independent of where they are.
pub trait Snapshots {
    /// The error of a failed operation.
    type Error: Display;
    /// The snapshots, oldest first.
    ///
    /// # Errors
    /// Those of the volume.
    fn list(&self) -> Result<Vec<Snapshot>, Self::Error>;
    /// Takes one.
    ///
    /// # Errors
    /// Those of the volume.
    fn create(&self, name: &str) -> Result<(), Self::Error>;
    /// Deletes one.
    ///
    /// # Errors
    /// Those of the volume.
    fn delete(&self, name: &str) -> Result<(), Self::Error>;
}

impl Schedule {
    /// Parses `hourly=24,daily=7,weekly=4,monthly=12`. A colon may replace the comma, because the
    /// comma separates mount options.
    ///
    /// # Errors
    /// A message for the user.
    pub fn parse(text: &str) -> Result<Schedule, String> {
        let mut rules: Vec<Rule> = Vec::new();
        for part in text.split([',', ':']).filter(|part| !part.is_empty()) {
            let (name, keep) = part
                .split_once('=')
                .ok_or_else(|| format!("'{part}' has no number: use hourly=24"))?;
            let period =
                Period::ALL.iter().find(|(known, _)| *known == name).map(|(_, period)| *period);
            let period = period.ok_or_else(|| {
                format!("'{name}' is no period: use hourly, daily, weekly or monthly")
            })?;
            let keep = keep.parse().ok().filter(|keep| (1..=KEEP_MAX).contains(keep));
            let keep = keep.ok_or_else(|| format!("'{part}': keep 1 to {KEEP_MAX}"))?;
            if rules.iter().any(|rule| rule.period == period) {
                return Err(format!("'{name}' is given twice"));
            }
            rules.push(Rule { period, keep });
        }
        if rules.is_empty() {
            Err("the schedule is empty: use hourly=24,daily=7".into())
        } else {
            Ok(Schedule(rules))
        }
    }

    /// Takes the snapshots that are due at this moment, and deletes the surplus ones. Tries every
    /// rule, and returns the first error.
    ///
    /// # Errors
    /// The volume's.
    pub fn apply<S: Snapshots>(&self, volume: &S, seconds: i64) -> Result<(), S::Error> {
        let mut first_error = Ok(());
        for rule in &self.0 {
            first_error = first_error.and(rule.apply(volume, seconds));
        }
        first_error
    }
}

impl Rule {
    fn apply<S: Snapshots>(&self, volume: &S, seconds: i64) -> Result<(), S::Error> {
        let due = self.period.name(seconds);
        let mut known = volume.list()?;
        if !known.iter().any(|snapshot| snapshot.name == due) {
            volume.create(&due)?;
            known = volume.list()?;
        }
        let prefix = format!("{}-", self.period.text());
        let ours: Vec<&Snapshot> =
            known.iter().filter(|snapshot| snapshot.name.starts_with(&prefix)).collect();
        let surplus = ours.len().saturating_sub(self.keep);
        ours[..surplus].iter().try_for_each(|snapshot| volume.delete(&snapshot.name))
    }
}

/// The thread that keeps a schedule. Dropping it ends the thread.
pub struct Keeper {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Starts to keep `schedule` on `volume`.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn spawn(
        schedule: Schedule,
        volume: impl Snapshots + Send + 'static,
    ) -> std::io::Result<Keeper> {
        let (stop, stopped) = mpsc::channel::<()>();
        let run = move || {
            let mut told = String::new();
            loop {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let text = match schedule.apply(&volume, now.as_secs() as i64) {
                    Ok(()) => String::new(),
                    Err(error) => error.to_string(),
                };
                // A lasting failure is reported only once.
                if text != told && !text.is_empty() {
                    message(Priority::Warning, format_args!("automatic snapshots: {text}"));
                }
                told = text;
                if stopped.recv_timeout(INTERVAL) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("snapshots".into()).spawn(run)?;
        Ok(Keeper { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use steadfast::Generation;

    use super::*;

    #[derive(Default)]
    struct Fake(RefCell<Vec<Snapshot>>);

    impl Fake {
        fn names(&self) -> Vec<String> {
            self.0.borrow().iter().map(|snapshot| snapshot.name.clone()).collect()
        }
    }

    impl Snapshots for Fake {
        type Error = String;

        fn list(&self) -> Result<Vec<Snapshot>, String> {
            Ok(self.0.borrow().clone())
        }

        fn create(&self, name: &str) -> Result<(), String> {
            let mut list = self.0.borrow_mut();
            let generation = Generation(list.last().map_or(1, |last| last.generation.0 + 2));
            let created = Timestamp::default();
            list.push(Snapshot {
                name: name.into(),
                generation,
                created,
                inodes: 1,
                used_blocks: 2,
            });
            Ok(())
        }

        fn delete(&self, name: &str) -> Result<(), String> {
            self.0.borrow_mut().retain(|snapshot| snapshot.name != name);
            Ok(())
        }
    }

    #[test]
    fn periods_have_names_by_their_beginning() {
        // Sunday, 2026-11-22 14:35:07 UTC.
        let now = 1_795_358_107;
        assert_eq!(Period::Hourly.name(now), "hourly-2026-11-22T14:00Z");
        assert_eq!(Period::Daily.name(now), "daily-2026-11-22");
        assert_eq!(Period::Weekly.name(now), "weekly-2026-11-16");
        assert_eq!(Period::Weekly.name(now + DAY), "weekly-2026-11-23");
        assert_eq!(Period::Monthly.name(now), "monthly-2026-11");
    }

    #[test]
    fn takes_one_for_each_period_and_keeps_the_newest() {
        let schedule = Schedule::parse("hourly=3:daily=2").unwrap();
        let volume = Fake::default();
        volume.create("hourly").unwrap();
        volume.create("by hand").unwrap();
        let start = 1_795_305_600;
        for minute in (0..3 * 24 * 60).step_by(20) {
            schedule.apply(&volume, start + minute * 60).unwrap();
        }
        let expected = [
            "hourly",
            "by hand",
            "daily-2026-11-23",
            "daily-2026-11-24",
            "hourly-2026-11-24T21:00Z",
            "hourly-2026-11-24T22:00Z",
            "hourly-2026-11-24T23:00Z",
        ];
        assert_eq!(volume.names(), expected);
        // After a clock jump backwards the schedule takes new snapshots, and deletes the oldest by
        // generation.
        schedule.apply(&volume, start).unwrap();
        assert!(volume.names().contains(&"hourly-2026-11-22T00:00Z".to_owned()));
        assert_eq!(volume.names().len(), expected.len());
    }

    #[test]
    fn bad_schedules_are_refused() {
        for (text, part) in [
            ("", "empty"),
            ("hourly", "no number"),
            ("yearly=1", "no period"),
            ("daily=0", "keep 1"),
            ("daily=x", "keep 1"),
            ("daily=1,daily=2", "twice"),
        ] {
            let line = Schedule::parse(text).unwrap_err();
            assert!(line.contains(part), "{text}: {line}");
        }
    }
}
