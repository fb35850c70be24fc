//! Decides which value each unit keeps.

use super::{Cutter, Survival, Written};
use crate::medium::{MediumProfile, Remains};
use crate::random::{Random, mix};
use crate::tape::DISCARDED;

/// The contents of a unit after the cut.
pub(super) enum UnitAfterCut<'a> {
    /// The value before all writes.
    Before,
    /// One of the values.
    Value(&'a Written),
    /// The remains of an interrupted write of this value.
    Damage(&'a Written),
}

/// The fate of a stretch of a request.
#[derive(PartialEq, Eq)]
enum Fate {
    New,
    Lost,
    Damaged,
}

/// The decisions of one cut.
pub(super) struct Keep {
    survival: Survival,
    medium: MediumProfile,
    unit: usize,
    in_flight: usize,
    random: Random,
    /// Requests that survive, if the choice is made by request.
    kept: Vec<usize>,
    /// Units of the write in flight that survive, for a torn write.
    torn_units: u64,
    /// For units in the order of writing: the request, and the unit in it, up to which they have
    /// arrived.
    reached: (usize, u64),
}

impl Keep {
    pub fn new(survival: Survival, cutter: &Cutter<'_>) -> Keep {
        let (in_flight, requests) = (cutter.position, &cutter.requests);
        let mut random = Random::new(survival.seed());
        let only = |keep: &dyn Fn(usize) -> bool| {
            requests.iter().copied().filter(|at| keep(*at)).collect()
        };
        let kept = match survival {
            Survival::Completed => only(&|request| request != in_flight),
            Survival::InFlightOnly => only(&|request| request == in_flight),
            Survival::Requests(_) => {
                requests.iter().copied().filter(|_| random.chance(1, 2)).collect()
            }
            Survival::AllButOne(_) => {
                let lost = requests.get(random.index(requests.len())).copied();
                only(&|request| Some(request) != lost)
            }
            Survival::Prefix(_) => requests[..random.index(requests.len() + 1)].to_vec(),
            Survival::Nothing => Vec::new(),
            _ => requests.clone(),
        };
        let torn_units = random.below(cutter.units(in_flight) + 1);
        let mut left = random.below(requests.iter().map(|request| cutter.units(*request)).sum());
        let mut reached = (usize::MAX, 0);
        for request in requests {
            let units = cutter.units(*request);
            if left < units {
                reached = (*request, left);
                break;
            }
            left -= units;
        }
        let unit = cutter.unit as usize;
        Keep { survival, medium: cutter.medium, unit, in_flight, random, kept, torn_units, reached }
    }

    /// The value that a unit keeps, out of those that it was given.
    pub fn choose<'a>(&mut self, values: &'a [Written]) -> UnitAfterCut<'a> {
        let value = match self.survival {
            Survival::Units(_) => self.any_version(values),
            Survival::Torn(_) => values.iter().rev().find(|value| {
                if value.request != self.in_flight {
                    return true;
                }
                let survives = self.torn_units > 0;
                self.torn_units = self.torn_units.saturating_sub(1);
                survives
            }),
            Survival::Damaged(_) => {
                for value in values.iter().rev() {
                    let fate =
                        if value.request == self.in_flight { self.fate(value) } else { Fate::New };
                    match fate {
                        Fate::New => return UnitAfterCut::Value(value),
                        Fate::Damaged => return UnitAfterCut::Damage(value),
                        Fate::Lost => {}
                    }
                }
                None
            }
            Survival::Rubble(_) => match self.any_version(values) {
                Some(value) if self.fate(value) == Fate::Damaged => {
                    return UnitAfterCut::Damage(value);
                }
                value => value,
            },
            Survival::Programmed(_) => {
                let arrived = |value: &&Written| {
                    (value.request, (value.start / self.unit) as u64) <= self.reached
                };
                let last = values.iter().rev().find(arrived);
                match last {
                    Some(value)
                        if (value.request, (value.start / self.unit) as u64) == self.reached
                            && self.may_be_damaged(value) =>
                    {
                        return UnitAfterCut::Damage(value);
                    }
                    value => value,
                }
            }
            _ => values.iter().rev().find(|value| self.kept.binary_search(&value.request).is_ok()),
        };
        value.map_or(UnitAfterCut::Before, UnitAfterCut::Value)
    }

    fn any_version<'a>(&mut self, values: &'a [Written]) -> Option<&'a Written> {
        let choice = self.random.index(values.len() + 1);
        choice.checked_sub(1).and_then(|index| values.get(index))
    }

    fn may_be_damaged(&self, value: &Written) -> bool {
        self.medium.is_rough() && !(value.fua && self.medium.forced_is_reliable)
    }

    /// A number that is equal for all units of one stretch of a request.
    fn stretch(&self, value: &Written) -> u64 {
        let stretch = (value.start as u64).checked_div(self.medium.extent).unwrap_or(0);
        mix(self.survival.seed() ^ mix((value.request as u64) << 32 | stretch))
    }

    fn fate(&self, value: &Written) -> Fate {
        match self.stretch(value) % 4 {
            0 => Fate::New,
            1 => Fate::Lost,
            _ if self.may_be_damaged(value) => Fate::Damaged,
            _ => Fate::New,
        }
    }

    fn remains(&self, value: &Written) -> Option<&Remains> {
        let stretch = mix(self.stretch(value));
        self.medium.remains.get(stretch as usize % self.medium.remains.len().max(1))
    }

    /// Whether an interrupted write of `value` leaves an unreadable unit.
    pub fn is_unreadable(&self, value: &Written) -> bool {
        self.remains(value) == Some(&Remains::Unreadable)
    }

    /// Turns the old value of a unit into the remains of an interrupted write of `value`.
    pub fn damage(&self, value: &Written, bytes: &mut [u8]) {
        let stretch = mix(self.stretch(value));
        let discarded = vec![DISCARDED; self.unit];
        let new = match &value.data {
            Some(data) => &data[value.start..value.start + self.unit],
            None => &discarded,
        };
        let mut random = Random::new(mix(stretch ^ value.start as u64));
        match (self.remains(value), random.below(4)) {
            (Some(Remains::Mix), choice) => {
                let at = random.index(self.unit + 1);
                if choice % 2 == 0 {
                    bytes[..at].copy_from_slice(&new[..at]);
                } else {
                    bytes[at..].copy_from_slice(&new[at..]);
                }
            }
            (_, 0) => bytes.fill(0xff),
            (_, 1) => bytes.fill(0),
            (_, 2) => bytes.iter_mut().zip(new).for_each(|(byte, new)| *byte &= new),
            _ => bytes.iter_mut().for_each(|byte| *byte = random.bits() as u8),
        }
    }
}
