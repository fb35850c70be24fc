//! Writes that are not flushed yet, and their possible outcomes after a power cut.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use crate::pages::PagedImage;
use crate::random::Random;
use crate::sync::Arc;

/// Selects the writes in flight that survive a power cut. All choices obey the rules of a
/// power-safe medium (see the crate documentation), unless
/// [`SimOptions::garbage_in_flight`](crate::SimOptions) is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survival {
    /// None: only flushed writes survive.
    Flushed,
    /// All, in order, as without a power cut.
    Everything,
    /// The first `n`, in order.
    First(usize),
    /// Only write `n` (from 0): it has overtaken all others.
    Only(usize),
    /// All except write `n`.
    AllBut(usize),
    /// Any subset, in any order, torn at any unit, determined by the seed.
    Seeded(u64),
}

/// Content of a write.
#[derive(Clone)]
pub(super) enum Content {
    Bytes(Arc<[u8]>),
    /// A discard.
    Fill {
        length: u64,
        byte: u8,
    },
}

impl Content {
    fn length(&self) -> u64 {
        match self {
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::Fill { length, .. } => *length,
        }
    }

    /// Stores `length` bytes from `start` of the content in the image.
    fn apply(&self, image: &mut PagedImage, offset: u64, start: u64, length: u64) {
        match self {
            Content::Bytes(bytes) => {
                image.write(offset + start, &bytes[start as usize..(start + length) as usize]);
            }
            Content::Fill { byte, .. } => image.fill(offset + start, length, *byte),
        }
    }
}

#[derive(Clone)]
struct Write {
    offset: u64,
    content: Content,
}

/// How much of a write survives.
#[derive(Clone, Copy)]
enum Arrival {
    Nothing,
    Whole,
    /// A part: random units or a run.
    Torn,
}

/// The writes since the last flush, in order of acceptance.
#[derive(Default)]
pub(super) struct InFlight {
    writes: Vec<Write>,
    /// For each unit that a later FUA write made durable: the number of older writes at that time.
    /// These writes can no longer overwrite it.
    durable_units: BTreeMap<u64, usize>,
}

impl InFlight {
    pub(super) fn len(&self) -> usize {
        self.writes.len()
    }

    pub(super) fn push(&mut self, offset: u64, content: Content) {
        self.writes.push(Write { offset, content });
    }

    /// Everything so far is durable.
    pub(super) fn clear(&mut self) {
        self.writes.clear();
        self.durable_units.clear();
    }

    /// Makes these bytes durable as they are: older writes in flight no longer reach them.
    pub(super) fn make_durable(&mut self, offset: u64, length: u64, unit: u64) {
        if self.writes.is_empty() {
            return;
        }
        for index in offset / unit..(offset + length) / unit {
            self.durable_units.insert(index, self.writes.len());
        }
    }

    /// An image that a power cut at this moment can leave.
    pub(super) fn survivors(
        &self,
        durable: &PagedImage,
        survival: Survival,
        unit: u64,
        garbage: bool,
    ) -> PagedImage {
        let count = self.writes.len();
        let mut order: Vec<usize> = (0..count).collect();
        let mut arrivals = vec![Arrival::Nothing; count];
        let mut random = Random::new(0);
        match survival {
            Survival::Flushed => {}
            Survival::Everything => arrivals.fill(Arrival::Whole),
            Survival::First(first) => arrivals[..first.min(count)].fill(Arrival::Whole),
            Survival::Only(only) => {
                arrivals.iter_mut().skip(only).take(1).for_each(|it| *it = Arrival::Whole)
            }
            Survival::AllBut(lost) => {
                arrivals.fill(Arrival::Whole);
                arrivals.iter_mut().skip(lost).take(1).for_each(|it| *it = Arrival::Nothing);
            }
            Survival::Seeded(seed) => {
                random = Random::new(seed);
                draw(&mut random, &mut order, &mut arrivals);
            }
        }
        let mut image = durable.clone();
        for index in order {
            let length = self.writes[index].content.length();
            match arrivals[index] {
                Arrival::Nothing => {}
                Arrival::Whole => self.apply(&mut image, index, 0, length, unit),
                Arrival::Torn => torn(&mut random, length, unit, |start, length| {
                    self.apply(&mut image, index, start, length, unit);
                }),
            }
        }
        if garbage && let Survival::Seeded(_) = survival {
            self.spoil(&mut image, &mut random, unit);
        }
        image
    }

    /// Stores a part of a write, except for units that a later FUA write has made durable.
    fn apply(&self, image: &mut PagedImage, index: usize, start: u64, length: u64, unit: u64) {
        let write = &self.writes[index];
        let mut from = start;
        let first = (write.offset + start) / unit;
        let last = (write.offset + start + length) / unit;
        for (durable, newer) in self.durable_units.range(first..last) {
            if *newer <= index {
                continue;
            }
            let stop = durable * unit - write.offset;
            write.content.apply(image, write.offset, from, stop - from);
            from = stop + unit;
        }
        write.content.apply(image, write.offset, from, start + length - from);
    }

    /// Replaces some of the units in flight with garbage.
    fn spoil(&self, image: &mut PagedImage, random: &mut Random, unit: u64) {
        let mut noise = vec![0; unit as usize];
        for (index, write) in self.writes.iter().enumerate() {
            let units = write.content.length() / unit;
            // One unit of every other write, so that tests see garbage beside valid data.
            if units == 0 || random.coin() {
                continue;
            }
            let at = write.offset + random.below(units) * unit;
            if self.durable_units.get(&(at / unit)).is_none_or(|newer| *newer <= index) {
                random.fill(&mut noise);
                image.write(at, &noise);
            }
        }
    }
}

/// Determines the outcome of every write. Independent draws for each unit would hardly ever lose or
/// keep a long write whole. So one of several kinds of failure is drawn first.
fn draw(random: &mut Random, order: &mut [usize], arrivals: &mut [Arrival]) {
    match random.below(4) {
        // The cache was written in order up to a write that is torn.
        0 => {
            let last = random.below(arrivals.len() as u64 + 1) as usize;
            arrivals[..last].fill(Arrival::Whole);
            arrivals.iter_mut().skip(last).take(1).for_each(|it| *it = Arrival::Torn);
        }
        // Whole writes, any subset, any order.
        1 => {
            for arrival in arrivals.iter_mut() {
                *arrival = if random.coin() { Arrival::Whole } else { Arrival::Nothing };
            }
            random.shuffle(order);
        }
        // Nearly all survive, in order; a few are lost or torn. This finds code that depends on a
        // single write.
        2 => {
            for arrival in arrivals.iter_mut() {
                *arrival = match random.below(8) {
                    0 => Arrival::Nothing,
                    1 => Arrival::Torn,
                    _ => Arrival::Whole,
                };
            }
        }
        // Any outcome.
        _ => {
            for arrival in arrivals.iter_mut() {
                *arrival = match random.below(3) {
                    0 => Arrival::Nothing,
                    1 => Arrival::Torn,
                    _ => Arrival::Whole,
                };
            }
            random.shuffle(order);
        }
    }
}

/// Calls `arrive(start, length)` for the surviving parts of a torn write of `length` bytes.
pub(super) fn torn(random: &mut Random, length: u64, unit: u64, mut arrive: impl FnMut(u64, u64)) {
    let units = length / unit;
    // Above this number of units a torn write is one run: a discard may be as long as the medium.
    const SCATTERED_MAX: u64 = 4096;
    match random.below(3) {
        0 if units <= SCATTERED_MAX => {
            for index in 0..units {
                if random.coin() {
                    arrive(index * unit, unit);
                }
            }
        }
        1 => {
            let from = random.below(units + 1);
            arrive(from * unit, (units - from) * unit);
        }
        _ => arrive(0, random.below(units + 1) * unit),
    }
}
