//! The medium after a power cut in a recorded run.
//!
//! A cut at event *k* means: events before *k* have completed, event *k* is in flight, and nothing
//! after it was issued.
//!
//! The choice concerns every atomic unit that a completed or in-flight write has touched since the
//! last completed flush. Such a unit may hold any of the values it was given, or the value before
//! all of them. Units decide independently, because the medium may reorder. If the
//! [`MediumProfile`] allows it, such a unit may hold damage instead. Everything covered by a
//! completed flush or a completed forced-unit-access write stays.

mod keep;
mod survival;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::image::Image;
use crate::medium::MediumProfile;
use crate::tape::{DISCARDED, Event};

use keep::{Keep, UnitAfterCut};
pub use survival::Survival;

/// One value that a unit was given: part of request number `request`.
#[derive(Debug, Clone)]
struct Written {
    request: usize,
    data: Option<Arc<[u8]>>,
    /// Start of the unit in the request, bytes.
    start: usize,
    fua: bool,
}

/// Walks along a tape and makes the image after a cut at any event.
#[derive(Debug)]
pub struct Cutter<'a> {
    events: &'a [Event],
    unit: u64,
    medium: MediumProfile,
    position: usize,
    durable: Image,
    /// For each unit written since it was last durable: its values in order, including those of the
    /// event in flight.
    pending: BTreeMap<u64, Vec<Written>>,
    /// The requests whose values `pending` holds, in order.
    requests: Vec<usize>,
}

impl<'a> Cutter<'a> {
    /// Starts before the first event, with the medium's contents at that time; units are old or
    /// new.
    pub fn new(base: Image, events: &'a [Event], atomic_unit: u32) -> Cutter<'a> {
        let mut cutter = Cutter {
            events,
            unit: u64::from(atomic_unit),
            medium: MediumProfile::SECTOR,
            position: 0,
            durable: base,
            pending: BTreeMap::new(),
            requests: Vec::new(),
        };
        cutter.issue();
        cutter
    }

    /// The same on a medium of this kind.
    #[must_use]
    pub fn on(mut self, medium: MediumProfile) -> Cutter<'a> {
        self.medium = medium;
        self
    }

    /// Completes every event before `cut`; cuts only go forwards.
    pub fn advance(&mut self, cut: usize) {
        while self.position < cut.min(self.events.len()) {
            self.complete();
            self.position += 1;
            self.issue();
        }
    }

    /// Marks the event at the present position as in flight.
    fn issue(&mut self) {
        let request = self.position;
        let (offset, length, data, fua) = match self.events.get(request) {
            Some(Event::Write { offset, data, fua }) => {
                (*offset, data.len() as u64, Some(data), *fua)
            }
            Some(Event::Discard { offset, length }) => (*offset, *length, None, false),
            Some(Event::Flush) | None => return,
        };
        for index in 0..length / self.unit {
            let start = (index * self.unit) as usize;
            let written = Written { request, data: data.cloned(), start, fua };
            self.pending.entry(offset / self.unit + index).or_default().push(written);
        }
        self.requests.push(request);
    }

    /// Marks the event at the present position as completed.
    fn complete(&mut self) {
        match &self.events[self.position] {
            Event::Flush => {
                for (unit, values) in std::mem::take(&mut self.pending) {
                    if let Some(last) = values.last() {
                        store(&mut self.durable, self.unit, unit, last);
                    }
                }
                self.requests.clear();
            }
            Event::Write { offset, data, fua: true } => {
                self.durable.write(*offset, data);
                for unit in offset / self.unit..(offset + data.len() as u64) / self.unit {
                    self.pending.remove(&unit);
                }
                self.requests =
                    self.pending.values().flatten().map(|value| value.request).collect();
                self.requests.sort_unstable();
                self.requests.dedup();
            }
            Event::Write { .. } | Event::Discard { .. } => {}
        }
    }

    /// Whether every choice of surviving writes gives the same image at the present cut.
    pub fn is_settled(&self) -> bool {
        self.pending.is_empty()
    }

    /// The image after a cut at the event of the last [`advance`](Self::advance).
    pub fn image(&self, survival: Survival) -> Image {
        let mut image = self.durable.clone();
        let mut keep = Keep::new(survival, self);
        for (unit, values) in &self.pending {
            match keep.choose(values) {
                UnitAfterCut::Before => {}
                UnitAfterCut::Value(value) => store(&mut image, self.unit, *unit, value),
                UnitAfterCut::Damage(value) if keep.is_unreadable(value) => {
                    image.spoil(unit * self.unit, self.unit)
                }
                UnitAfterCut::Damage(value) => {
                    let mut bytes = vec![0; self.unit as usize];
                    image.read(unit * self.unit, &mut bytes);
                    keep.damage(value, &mut bytes);
                    image.write(unit * self.unit, &bytes);
                }
            }
        }
        image
    }

    /// The number of units that a request writes.
    fn units(&self, request: usize) -> u64 {
        match self.events.get(request) {
            Some(Event::Write { data, .. }) => data.len() as u64 / self.unit,
            Some(Event::Discard { length, .. }) => length / self.unit,
            Some(Event::Flush) | None => 0,
        }
    }
}

fn store(image: &mut Image, unit: u64, index: u64, value: &Written) {
    match &value.data {
        Some(data) => image.write(index * unit, &data[value.start..value.start + unit as usize]),
        None => image.write(index * unit, &vec![DISCARDED; unit as usize]),
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
        let events =
            [write(0, 1, 4, false), Event::Flush, write(0, 2, 4, false), write(4, 3, 2, false)];
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
            assert!(
                [1, 2].contains(&seen[0]) && [1, 2].contains(&seen[1]) && [0, 3].contains(&seen[2])
            );
            mixed |= seen[0] != seen[1];
        }
        assert!(mixed, "units of one write tear apart");
    }

    #[test]
    fn a_rough_medium_damages_what_is_being_written_and_nothing_else() {
        let events = [
            write(0, 1, 4, false),
            Event::Flush,
            write(2, 2, 2, false),
            write(6, 5, 2, true),
            write(4, 3, 2, false),
        ];
        let sd = MediumProfile::from_name("sd-512").unwrap();
        let mut cutter = Cutter::new(Image::new(8), &events, 2).on(sd);
        cutter.advance(4);
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..200 {
            for survival in
                [Survival::Damaged(seed), Survival::Rubble(seed), Survival::Programmed(seed)]
            {
                let bytes = cutter.image(survival).to_vec();
                assert_eq!((&bytes[..2], &bytes[6..]), (&[1, 1][..], &[5, 5][..]), "{survival:?}");
                seen.insert(bytes[2..6].to_vec());
            }
        }
        assert!(seen.len() > 50, "little damage: {seen:?}");
        // A forced write of an eMMC is old or new.
        let mut cutter =
            Cutter::new(Image::new(8), &events, 2).on(MediumProfile::from_name("emmc").unwrap());
        cutter.advance(3);
        for seed in 0..100 {
            let bytes = cutter.image(Survival::Damaged(seed)).to_vec();
            assert!(matches!(bytes[6..], [0, 0] | [5, 5]), "{bytes:?}");
        }
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
