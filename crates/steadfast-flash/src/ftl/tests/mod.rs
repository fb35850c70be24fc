//! The translation layer on the model, compared with a plain array.

mod bench;
mod cuts;
mod golden;
mod life;
mod nor;
mod random;
mod rebuild;
mod shifted;
mod upkeep;
mod version;
mod zeros;

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use steadfast_media::Random;

use super::{FlashError, Ftl, format};
use crate::model::{Ageing, Interrupted, NandModel};
use crate::nand::{Nand, NandError, NandGeometry, Pairing};
use crate::part::Part;

/// A part that is small enough to be filled and cut at every operation.
pub fn small(pairing: Pairing, blocks: u32) -> Part {
    let base = if pairing == Pairing::None { Part::SPI_1GBIT } else { Part::MLC_16GBIT };
    let geometry =
        NandGeometry { page_size: 512, pages_per_block: 12, blocks, bad_max: 3, ..base.geometry };
    Part { geometry, ..base }
}

/// One operation on the translation layer.
#[derive(Debug, Clone)]
pub enum Step {
    /// Writes a logical page: its position as a share of all pages, a number that determines the
    /// contents, and their length.
    Write(u16, u32, u16),
    /// Flushes.
    Flush,
    /// Trims this many pages.
    Trim(u16, u8),
    /// Closes and mounts.
    Remount,
}

/// Fills the part, overwrites at random, flushes, trims.
pub fn churn(count: u32, seed: u32) -> Vec<Step> {
    let mut random = Random::new(seed.into());
    let mut next = || random.bits() as u32;
    (0..count)
        .map(|number| match next() % 16 {
            0 | 1 => Step::Flush,
            2 => Step::Trim(next() as u16, 3),
            // Zeros are contents too: they have no page, and a flush must journal them.
            6 => Step::Write(next() as u16 % 500, number, 0),
            3..6 => Step::Write(next() as u16 % 500, number, 5000),
            _ => Step::Write(next() as u16, number, u16::MAX),
        })
        .collect()
}

/// The possible values of each logical page: the durable one, then later writes.
#[derive(Debug, Clone, Default)]
pub struct Oracle {
    pages: BTreeMap<u32, Vec<Vec<u8>>>,
    /// The number of values at the end that are trims: a flush does not make them durable.
    trimmed: BTreeMap<u32, usize>,
    page_size: usize,
}

impl Oracle {
    pub fn new(page_size: usize) -> Oracle {
        Oracle { page_size, ..Oracle::default() }
    }

    fn values(&mut self, page: u32) -> &mut Vec<Vec<u8>> {
        let size = self.page_size;
        self.pages.entry(page).or_insert_with(|| vec![vec![0; size]])
    }

    fn flushed(&mut self) {
        for (page, values) in &mut self.pages {
            let trimmed = self.trimmed.get(page).copied().unwrap_or(0);
            values.drain(..(values.len() - 1).saturating_sub(trimmed));
        }
    }

    fn closed(&mut self) {
        self.trimmed.clear();
        self.flushed();
    }

    /// A read must return the last value or, after a power cut, any of the values; that one is then
    /// the only value.
    fn check<N: Nand>(&mut self, ftl: &mut Ftl<N>, cut: bool) -> Result<(), FlashError> {
        let mut data = vec![0; self.page_size];
        let mut again = vec![0; self.page_size];
        for (page, values) in &mut self.pages {
            ftl.read_page(*page, &mut data)?;
            let allowed = if cut { &values[..] } else { &values[values.len() - 1..] };
            assert!(
                allowed.contains(&data),
                "page {page} holds {:?} of {} values: {:?}",
                &data[..8],
                values.len(),
                values.iter().map(|value| &value[..8]).collect::<Vec<_>>()
            );
            for _ in 0..2 {
                ftl.recent.clear();
                ftl.read_page(*page, &mut again)?;
                assert_eq!(data, again, "page {page} reads differently each time");
            }
            if cut {
                *values = vec![data.clone()];
            }
        }
        if cut {
            self.trimmed.clear();
        }
        Ok(())
    }
}

fn contents(page_size: usize, number: u32, length: u16) -> Vec<u8> {
    let mut data = vec![0; page_size];
    let length = usize::from(length) * page_size / usize::from(u16::MAX);
    for (at, byte) in data.iter_mut().enumerate().take(length) {
        *byte = (number.wrapping_mul(2_654_435_761) >> (at % 4 * 8)) as u8 ^ at as u8 | 1;
    }
    data
}

/// Runs one step on both. `Gone`: a power cut in the step.
pub fn step<N: Nand>(ftl: &mut Ftl<N>, oracle: &mut Oracle, step: &Step) -> Result<(), FlashError> {
    let user = ftl.layout().user_pages;
    match step {
        Step::Write(page, number, length) => {
            let page = u32::from(*page) * user / 65_536;
            let data = contents(oracle.page_size, *number, *length);
            oracle.values(page).push(data.clone());
            oracle.trimmed.remove(&page);
            ftl.write_page(page, &data)
        }
        Step::Flush => {
            ftl.flush()?;
            oracle.flushed();
            Ok(())
        }
        Step::Trim(page, count) => {
            let first = u32::from(*page) * user / 65_536;
            let count = u32::from(*count).min(user - first);
            let zeros = vec![0; oracle.page_size];
            for page in first..first + count {
                oracle.values(page).push(zeros.clone());
                *oracle.trimmed.entry(page).or_default() += 1;
            }
            ftl.trim(first, count)
        }
        Step::Remount => Ok(()),
    }
}

/// A part whose power can be cut.
pub trait Powered: Nand + Clone {
    fn is_powered(&self) -> bool;
    fn power_on(&mut self);
    fn cut_after(&mut self, operations: u64, outcome: Interrupted);
}

impl Powered for NandModel {
    fn is_powered(&self) -> bool {
        NandModel::is_powered(self)
    }
    fn power_on(&mut self) {
        NandModel::power_on(self);
    }
    fn cut_after(&mut self, operations: u64, outcome: Interrupted) {
        NandModel::cut_after(self, operations, outcome);
    }
}

/// Runs the steps, with power cuts as armed on the part. Returns the part and whether the power was
/// cut.
pub fn run<N: Powered>(mut nand: N, oracle: &mut Oracle, steps: &[Step]) -> (N, bool) {
    let cut = run_inner(&mut nand, oracle, steps);
    (nand, cut)
}

fn run_inner<N: Powered>(mut nand: &mut N, oracle: &mut Oracle, steps: &[Step]) -> bool {
    let mut ftl = match Ftl::mount(&mut *nand, false) {
        Ok(ftl) => ftl,
        Err(FlashError::Nand(NandError::Gone)) => return true,
        Err(error) => panic!("mount: {error}"),
    };
    for next in steps {
        let mut done = step(&mut ftl, oracle, next);
        if let (Step::Remount, Ok(())) = (next, done) {
            done = ftl.close();
            if done.is_ok() {
                oracle.closed();
                nand = ftl.into_nand();
                ftl = match Ftl::mount(nand, false) {
                    Ok(ftl) => ftl,
                    Err(error) => panic!("clean mount: {error}"),
                };
                oracle.check(&mut ftl, false).unwrap();
            }
        }
        match done {
            Ok(()) => {}
            Err(_) if !ftl.nand().is_powered() => return true,
            Err(error) => panic!("{next:?}: {error} {}", ftl.describe()),
        }
    }
    assert!(ftl.info().page_reads < u64::MAX);
    oracle.check(&mut ftl, false).unwrap();
    false
}

/// A formatted part.
pub fn formatted(part: &Part, seed: u64, ageing: Ageing) -> NandModel {
    let nand = NandModel::new(part, seed).with_ageing(ageing);
    match format(nand, seed) {
        Ok(mut ftl) => {
            ftl.close().unwrap();
            ftl.into_nand()
        }
        Err(error) => panic!("format: {error}"),
    }
}

/// Mounts after a power cut, and again if the recovery is cut too.
pub fn recover<N: Powered>(
    mut nand: N,
    oracle: &mut Oracle,
    mut cuts: Vec<(u64, Interrupted)>,
) -> N {
    loop {
        nand.power_on();
        if let Some((operations, outcome)) = cuts.pop() {
            nand.cut_after(operations, outcome);
        }
        let mut part = nand.clone();
        match Ftl::mount(&mut part, false) {
            Ok(mut ftl) => {
                ftl.nand().power_on();
                oracle.check(&mut ftl, true).unwrap();
                drop(ftl);
                return part;
            }
            Err(FlashError::Nand(NandError::Gone)) => nand = part,
            Err(error) => panic!("mount after a cut: {error}"),
        }
    }
}
