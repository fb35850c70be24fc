//! What a power cut leaves of a recorded run.
//!
//! A cut at event *k* means: events before *k* have completed, event *k* is in flight, nothing after it was issued.
//! Every atomic unit that a completed or in-flight write touched since the last completed flush may then hold any of the
//! values it was given, or the one before all of them; units decide independently (the medium may reorder). What a
//! completed flush or forced-unit-access write covered stays.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::image::Image;
use crate::random::Random;
use crate::tape::{DISCARDED, Event};

/// Which of the writes that were not durable survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survival {
    /// Everything issued, the one in flight included.
    All,
    /// Nothing that was not durable.
    Nothing,
    /// Everything completed; the write in flight is lost.
    Completed,
    /// Only the write in flight; everything completed before it but not flushed is lost.
    InFlightOnly,
    /// Everything completed and the front part of the write in flight.
    Torn(u64),
    /// Whole requests are kept or lost by coin (reordering).
    Requests(u64),
    /// Everything issued but one request (a single lost write).
    AllButOne(u64),
    /// The requests in order up to one of them.
    Prefix(u64),
    /// Every atomic unit by itself: kept in one of its versions, or lost.
    Units(u64),
}

impl Survival {
    /// The choices that are tried at every cut, whatever the seed.
    pub const FIXED: [Survival; 3] = [Survival::All, Survival::Nothing, Survival::InFlightOnly];

    /// A choice by chance.
    pub fn random(random: &mut Random) -> Survival {
        let seed = random.bits();
        match random.below(7) {
            0 => Survival::Completed,
            1 => Survival::Torn(seed),
            2 => Survival::Requests(seed),
            3 => Survival::AllButOne(seed),
            4 => Survival::Prefix(seed),
            _ => Survival::Units(seed),
        }
    }
}

/// One value that a unit was given: part of request number `request`.
#[derive(Debug, Clone)]
struct Written {
    request: usize,
    data: Option<Arc<[u8]>>,
    start: usize,
}

/// Walks along a tape and makes the image after a cut at any event.
#[derive(Debug)]
pub struct Cutter<'a> {
    events: &'a [Event],
    unit: u64,
    position: usize,
    durable: Image,
    /// For each unit written since it was last durable: the values in order.
    pending: BTreeMap<u64, Vec<Written>>,
}

impl<'a> Cutter<'a> {
    /// Starts before the first event, on the medium's contents at that time.
    pub fn new(base: Image, events: &'a [Event], atomic_unit: u32) -> Cutter<'a> {
        Cutter { events, unit: u64::from(atomic_unit), position: 0, durable: base, pending: BTreeMap::new() }
    }

    /// Completes every event before `cut`; cuts only go forwards.
    pub fn advance(&mut self, cut: usize) {
        while self.position < cut.min(self.events.len()) {
            let number = self.position;
            match &self.events[number] {
                Event::Flush => {
                    for (unit, values) in std::mem::take(&mut self.pending) {
                        if let Some(last) = values.last() {
                            store(&mut self.durable, self.unit, unit, last);
                        }
                    }
                }
                Event::Write { offset, data, fua: true } => {
                    self.durable.write(*offset, data);
                    for unit in offset / self.unit..(offset + data.len() as u64) / self.unit {
                        self.pending.remove(&unit);
                    }
                }
                event => add(&mut self.pending, self.unit, number, event),
            }
            self.position += 1;
        }
    }

    /// Whether every choice of what survives gives the same image at the present cut.
    pub fn is_settled(&self) -> bool {
        self.pending.is_empty() && matches!(self.events.get(self.position), None | Some(Event::Flush))
    }

    /// The image after a cut at the event that was last advanced to.
    pub fn image(&self, survival: Survival) -> Image {
        let mut image = self.durable.clone();
        let in_flight = self.position;
        let mut pending = self.pending.clone();
        if let Some(event) = self.events.get(in_flight)
            && !matches!(event, Event::Flush)
        {
            add(&mut pending, self.unit, in_flight, event);
        }
        let mut requests: Vec<usize> = pending.values().flatten().map(|value| value.request).collect();
        requests.sort_unstable();
        requests.dedup();
        let in_flight_units =
            pending.values().flatten().filter(|value| value.request == in_flight).count() as u64;
        let mut keep = Keep::new(survival, in_flight, in_flight_units, &requests);
        for (unit, values) in &pending {
            if let Some(value) = keep.choose(values) {
                store(&mut image, self.unit, *unit, value);
            }
        }
        image
    }
}

fn add(pending: &mut BTreeMap<u64, Vec<Written>>, unit: u64, request: usize, event: &Event) {
    let (offset, length, data) = match event {
        Event::Write { offset, data, .. } => (*offset, data.len() as u64, Some(data)),
        Event::Discard { offset, length } => (*offset, *length, None),
        Event::Flush => return,
    };
    for index in 0..length / unit {
        let written = Written { request, data: data.cloned(), start: (index * unit) as usize };
        pending.entry(offset / unit + index).or_default().push(written);
    }
}

fn store(image: &mut Image, unit: u64, index: u64, value: &Written) {
    match &value.data {
        Some(data) => image.write(index * unit, &data[value.start..value.start + unit as usize]),
        None => image.write(index * unit, &vec![DISCARDED; unit as usize]),
    }
}

/// Decides for each unit which value it keeps.
struct Keep {
    survival: Survival,
    in_flight: usize,
    random: Random,
    /// Requests that survive, for the choices by request.
    kept: Vec<usize>,
    /// Units of the write in flight that survive, for a torn write.
    torn_units: u64,
}

impl Keep {
    fn new(survival: Survival, in_flight: usize, in_flight_units: u64, requests: &[usize]) -> Keep {
        let mut random = Random::new(match survival {
            Survival::Torn(seed)
            | Survival::Requests(seed)
            | Survival::AllButOne(seed)
            | Survival::Prefix(seed)
            | Survival::Units(seed) => seed,
            _ => 0,
        });
        let kept = match survival {
            Survival::All | Survival::Torn(_) | Survival::Units(_) => requests.to_vec(),
            Survival::Nothing => Vec::new(),
            Survival::Completed => requests.iter().copied().filter(|request| *request != in_flight).collect(),
            Survival::InFlightOnly => {
                requests.iter().copied().filter(|request| *request == in_flight).collect()
            }
            Survival::Requests(_) => requests.iter().copied().filter(|_| random.chance(1, 2)).collect(),
            Survival::AllButOne(_) => {
                let lost = random.index(requests.len());
                requests
                    .iter()
                    .enumerate()
                    .filter(|(at, _)| *at != lost)
                    .map(|(_, request)| *request)
                    .collect()
            }
            Survival::Prefix(_) => requests[..random.index(requests.len() + 1)].to_vec(),
        };
        let torn_units = random.below(in_flight_units + 1);
        Keep { survival, in_flight, random, kept, torn_units }
    }

    fn choose<'a>(&mut self, values: &'a [Written]) -> Option<&'a Written> {
        match self.survival {
            Survival::Units(_) => {
                let choice = self.random.index(values.len() + 1);
                choice.checked_sub(1).and_then(|index| values.get(index))
            }
            Survival::Torn(_) => values.iter().rev().find(|value| {
                if value.request != self.in_flight {
                    return true;
                }
                let survives = self.torn_units > 0;
                self.torn_units = self.torn_units.saturating_sub(1);
                survives
            }),
            _ => values.iter().rev().find(|value| self.kept.binary_search(&value.request).is_ok()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(offset: u64, byte: u8, length: usize, fua: bool) -> Event {
        Event::Write { offset, data: vec![byte; length].into(), fua }
    }

    fn bytes(image: &Image) -> Vec<u8> {
        image.to_vec().chunks(2).map(|unit| unit[0]).collect()
    }

    #[test]
    fn what_was_flushed_stays_and_the_rest_may_go() {
        let events = [write(0, 1, 4, false), Event::Flush, write(0, 2, 4, false), write(4, 3, 2, false)];
        let mut cutter = Cutter::new(Image::new(8), &events, 2);
        cutter.advance(1);
        assert_eq!(
            bytes(&cutter.image(Survival::Nothing)),
            [0, 0, 0, 0],
            "a flush in flight promises nothing"
        );
        cutter.advance(3);
        assert_eq!(bytes(&cutter.image(Survival::Nothing)), [1, 1, 0, 0]);
        assert_eq!(bytes(&cutter.image(Survival::All)), [2, 2, 3, 0]);
        assert_eq!(bytes(&cutter.image(Survival::Completed)), [2, 2, 0, 0]);
        assert_eq!(bytes(&cutter.image(Survival::InFlightOnly)), [1, 1, 3, 0]);
        let mut mixed = false;
        for seed in 0..50 {
            let seen = bytes(&cutter.image(Survival::Units(seed)));
            assert!([1, 2].contains(&seen[0]) && [1, 2].contains(&seen[1]) && [0, 3].contains(&seen[2]));
            mixed |= seen[0] != seen[1];
        }
        assert!(mixed, "units of one write tear apart");
    }

    #[test]
    fn a_forced_write_is_durable_alone() {
        let events = [write(0, 1, 2, false), write(2, 2, 2, true), Event::Flush];
        let mut cutter = Cutter::new(Image::new(8), &events, 2);
        cutter.advance(2);
        assert_eq!(bytes(&cutter.image(Survival::Nothing)), [0, 2, 0, 0]);
        assert!(!cutter.is_settled());
        cutter.advance(3);
        assert!(cutter.is_settled());
    }
}
