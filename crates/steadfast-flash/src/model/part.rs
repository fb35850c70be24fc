//! The part: operations, rules, wear, flipped bits, counts and modelled time.

use alloc::vec::Vec;

use steadfast_media::Random;
use steadfast_media::sync::Arc;

use super::cells::{Block, Cells, Programmed, Quality};
use super::interrupted::{Interrupted, Struck};
use crate::nand::{
    BlockNumber, Ecc, EccStatus, Nand, NandError, NandGeometry, NandOperation, PageAddress,
};
use crate::part::{NandTiming, Part};

/// Operations since the part was created or [`NandModel::reset_counts`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OperationCounts {
    /// Page reads, reads of the OOB alone included.
    pub reads: u64,
    /// Page programs.
    pub programs: u64,
    /// Block erasures.
    pub erases: u64,
    /// Modelled time, nanoseconds.
    pub time_ns: u64,
}

/// Additional ageing of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ageing {
    /// One in this many programs fails; 0: only on worn-out blocks.
    pub program_fails_one_in: u32,
    /// One in this many erasures fails; 0: only on worn-out blocks.
    pub erase_fails_one_in: u32,
    /// One in this many programs has a flipped bit at once; at the rated wear, ten times as many.
    /// 0: none.
    pub flip_one_in: u32,
    /// Page reads of a block that flip one bit of it on average; 0: none.
    pub reads_per_flip: u32,
}

impl Ageing {
    /// No failures before the rated life.
    pub const NONE: Ageing = Ageing {
        program_fails_one_in: 0,
        erase_fails_one_in: 0,
        flip_one_in: 0,
        reads_per_flip: 0,
    };
}

/// A NAND part in memory.
#[derive(Debug, Clone)]
pub struct NandModel {
    pub(super) geometry: NandGeometry,
    timing: NandTiming,
    ageing: Ageing,
    /// Whether reads are corrected by the code in the geometry.
    corrected: bool,
    blocks: Vec<Arc<Block>>,
    pub(super) random: Random,
    counts: OperationCounts,
    /// Programs and erasures until the armed power cut, and its outcome.
    pub(super) cut: Option<(u64, Interrupted)>,
    pub(super) struck: Option<Struck>,
    /// Programs and erasures until the armed block failure.
    pub(super) failing: Option<u64>,
    pub(super) powered: bool,
}

impl NandModel {
    /// A new part whose reads are corrected. `seed` determines the factory-bad blocks (at most
    /// `bad_max`, never block 0). It also determines the life of each block (the rated cycles and
    /// up to half as many more).
    #[must_use]
    pub fn new(part: &Part, seed: u64) -> NandModel {
        let geometry = part.geometry;
        let mut random = Random::new(seed);
        let bad_count = random.below(u64::from(geometry.bad_max) / 2 + 1);
        let bad: Vec<u64> = (0..bad_count)
            .map(|_| 1 + random.below(u64::from(geometry.blocks.max(2)) - 1))
            .collect();
        let cycles = u64::from(geometry.cycles);
        let blocks = (0..u64::from(geometry.blocks)).map(|block| {
            let life = cycles + random.below(cycles / 2 + 1);
            Arc::new(Block::new(geometry.pages_per_block, life as u32, bad.contains(&block)))
        });
        let blocks = blocks.collect();
        NandModel {
            geometry,
            timing: part.timing,
            ageing: Ageing { reads_per_flip: part.reads_per_flip, ..Ageing::NONE },
            corrected: true,
            blocks,
            random,
            counts: OperationCounts::default(),
            cut: None,
            struck: None,
            failing: None,
            powered: true,
        }
    }

    /// The same without a code: reads return flipped bits, and the whole OOB except the mark is
    /// visible.
    #[must_use]
    pub fn raw(part: &Part, seed: u64) -> NandModel {
        let mut model = NandModel::new(part, seed);
        model.geometry.ecc = Ecc::NONE;
        model.geometry.oob_size = part.oob_raw.saturating_sub(2);
        model.corrected = false;
        model
    }

    /// The same part with this ageing.
    #[must_use]
    pub fn with_ageing(mut self, ageing: Ageing) -> NandModel {
        self.ageing = ageing;
        self
    }

    /// Operations so far.
    #[must_use]
    pub fn counts(&self) -> OperationCounts {
        self.counts
    }

    /// Resets the counts to zero.
    pub fn reset_counts(&mut self) {
        self.counts = OperationCounts::default();
    }

    /// Erasures of the blocks that are not marked bad: minimum, maximum, sum.
    #[must_use]
    pub fn wear(&self) -> (u32, u32, u64) {
        let good = || self.blocks.iter().filter(|block| !block.bad).map(|block| block.erases);
        (good().min().unwrap_or(0), good().max().unwrap_or(0), good().map(u64::from).sum())
    }

    /// Erasures of each block.
    #[must_use]
    pub fn erases(&self) -> Vec<u32> {
        self.blocks.iter().map(|block| block.erases).collect()
    }

    /// Adds this many erasures to every block, as if it had been in use.
    pub fn wear_out(&mut self, erases: u32) {
        for block in &mut self.blocks {
            Arc::make_mut(block).erases += erases;
        }
    }

    /// Simulates retention: `flips` bits flip in the worst codeword of every programmed page.
    pub fn retain(&mut self, flips: u16) {
        for block in &mut self.blocks {
            for page in &mut Arc::make_mut(block).pages {
                if let Cells::Programmed(page) = page {
                    page.flips = page.flips.saturating_add(flips);
                }
            }
        }
    }

    /// Flips `flips` bits of one page.
    pub fn flip(&mut self, page: PageAddress, flips: u16) {
        let at = self.geometry.page_in_block(page) as usize;
        if let Some(Cells::Programmed(page)) =
            self.block_mut(self.geometry.block_of(page)).and_then(|block| block.pages.get_mut(at))
        {
            page.flips = page.flips.saturating_add(flips);
        }
    }

    /// Determines future damage from another seed.
    pub fn reseed(&mut self, seed: u64) {
        self.random = Random::new(seed);
    }

    pub(super) fn block_mut(&mut self, block: BlockNumber) -> Option<&mut Block> {
        self.blocks.get_mut(block.0 as usize).map(Arc::make_mut)
    }

    fn pay(&mut self, cells_ns: u64, bytes: usize) {
        self.counts.time_ns += cells_ns + self.timing.byte_ns * bytes as u64;
    }

    fn admit(
        &self,
        operation: NandOperation,
        block: BlockNumber,
        data: Option<(usize, usize)>,
    ) -> Result<(), NandError> {
        if !self.powered {
            return Err(NandError::Gone);
        }
        let refused = |rule| Err(NandError::Refused { operation, block: block.0, rule });
        if block.0 >= self.geometry.blocks {
            return refused("outside of the part");
        }
        if let Some((data, oob)) = data {
            let page = self.geometry.page_size as usize;
            if (data != page && !(data == 0 && operation == NandOperation::Read))
                || oob > self.geometry.oob_size as usize
            {
                return refused("wrong length");
            }
        }
        Ok(())
    }

    /// Flips `flips` bits in a codeword of `bytes`.
    fn corrupt(&mut self, bytes: &mut [u8], flips: u16) {
        let codeword = usize::from(self.geometry.ecc.codeword).min(bytes.len()).max(1);
        for _ in 0..flips {
            let bit = self.random.below(codeword as u64 * 8) as usize;
            if let Some(byte) = bytes.get_mut(bit / 8) {
                *byte ^= 1 << (bit % 8);
            }
        }
    }
}

impl Nand for NandModel {
    fn geometry(&self) -> NandGeometry {
        self.geometry
    }

    fn read(
        &mut self,
        page: PageAddress,
        data: &mut [u8],
        oob: &mut [u8],
    ) -> Result<EccStatus, NandError> {
        let (block, at) =
            (self.geometry.block_of(page), self.geometry.page_in_block(page) as usize);
        self.admit(NandOperation::Read, block, Some((data.len(), oob.len())))?;
        self.counts.reads += 1;
        self.pay(self.timing.read_ns, data.len() + oob.len());
        // Read disturb: sometimes a bit flips in some page of the block.
        let disturbed = self.random.one_in(u64::from(self.ageing.reads_per_flip));
        let victim = self.random.below(u64::from(self.geometry.pages_per_block)) as usize;
        if disturbed && let Some(cells) = self.block_mut(block) {
            cells.reads = cells.reads.saturating_add(1);
            if let Some(Cells::Programmed(page)) = cells.pages.get_mut(victim) {
                page.flips = page.flips.saturating_add(1);
            }
        }
        let cells =
            self.blocks.get(block.0 as usize).and_then(|block| block.pages.get(at)).cloned();
        let Some(Cells::Programmed(page)) = cells else {
            data.fill(0xff);
            oob.fill(0xff);
            return Ok(EccStatus::Clean);
        };
        let (stored_data, stored_oob) = page.bytes.split_at(self.geometry.page_size as usize);
        if !data.is_empty() {
            data.copy_from_slice(stored_data);
        }
        oob.copy_from_slice(&stored_oob[..oob.len()]);
        let beyond = match page.quality {
            Quality::Good => false,
            Quality::Garbage => true,
            Quality::Unstable => self.random.one_in(2),
        };
        let flips = if beyond { self.geometry.ecc.bits * 8 + 40 } else { page.flips };
        if self.corrected && flips <= self.geometry.ecc.bits {
            return Ok(if flips == 0 { EccStatus::Clean } else { EccStatus::Corrected(flips) });
        }
        if flips > 0 {
            self.corrupt(data, flips);
            self.corrupt(oob, flips);
        }
        Ok(if self.corrected { EccStatus::Uncorrectable } else { EccStatus::Clean })
    }

    fn program(&mut self, page: PageAddress, data: &[u8], oob: &[u8]) -> Result<(), NandError> {
        let operation = NandOperation::Program;
        let (block, at) = (self.geometry.block_of(page), self.geometry.page_in_block(page));
        self.admit(operation, block, Some((data.len(), oob.len())))?;
        let (geometry, ageing) = (self.geometry, self.ageing);
        let Some(cells) = self.blocks.get(block.0 as usize) else { return Err(NandError::Gone) };
        let refused = |rule| Err(NandError::Refused { operation, block: block.0, rule });
        let mut bytes = data.to_vec();
        bytes.extend_from_slice(oob);
        bytes.resize(data.len() + geometry.oob_size as usize, 0xff);
        let mut times = 1;
        let mut touched = false;
        match cells.pages.get(at as usize) {
            Some(Cells::Programmed(page)) => {
                if page.times >= geometry.partial_programs {
                    return refused("page programmed too often");
                }
                if page.bytes.iter().zip(&bytes).any(|(old, new)| !old & new != 0 && *new != 0xff) {
                    return refused("a programmed bit cannot become 1 again");
                }
                bytes.iter_mut().zip(page.bytes.iter()).for_each(|(new, old)| *new &= old);
                times = page.times + 1;
            }
            Some(Cells::Erased { touched: before }) => touched = *before,
            None => return refused("outside of the part"),
        }
        if geometry.in_order && at < cells.next && times == 1 {
            return refused("page programmed out of order");
        }
        let (weak, erases, life) = (cells.weak, cells.erases, cells.life);
        self.counts.programs += 1;
        self.pay(self.timing.program_ns, data.len() + oob.len());
        let bytes: Arc<[u8]> = bytes.into();
        if let Some(outcome) = self.strike(operation, block, oob) {
            self.tear_program(page, bytes, outcome);
            return Err(NandError::Gone);
        }
        let failed = self.goes_bad(block)
            || erases > life
            || self.random.one_in(u64::from(ageing.program_fails_one_in));
        let flip_one_in = u64::from(ageing.flip_one_in)
            / (1 + 9 * u64::from(erases.min(geometry.cycles)) / u64::from(geometry.cycles.max(1)));
        let flips = u16::from(ageing.flip_one_in != 0 && self.random.one_in(flip_one_in.max(1)));
        // A program over a touched page is reliable or not, at random.
        let unstable = (weak || touched) && self.random.one_in(2);
        let quality = match (failed, unstable) {
            (true, _) => Quality::Garbage,
            (false, true) => Quality::Unstable,
            (false, false) => Quality::Good,
        };
        let Some(cells) = self.block_mut(block) else { return Err(NandError::Gone) };
        if let Some(slot) = cells.pages.get_mut(at as usize) {
            *slot = Cells::Programmed(Programmed { bytes, quality, flips, times });
        }
        cells.next = cells.next.max(at + 1);
        if failed { Err(NandError::Failed { operation, block: block.0 }) } else { Ok(()) }
    }

    fn erase(&mut self, block: BlockNumber) -> Result<(), NandError> {
        let operation = NandOperation::Erase;
        self.admit(operation, block, None)?;
        self.counts.erases += 1;
        self.pay(self.timing.erase_ns, 0);
        if let Some(outcome) = self.strike(operation, block, &[]) {
            self.tear_erase(block, outcome);
            return Err(NandError::Gone);
        }
        self.goes_bad(block);
        let chance = self.random.one_in(u64::from(self.ageing.erase_fails_one_in));
        let Some(cells) = self.block_mut(block) else { return Err(NandError::Gone) };
        if cells.erases >= cells.life || chance {
            cells.erases += 1;
            return Err(NandError::Failed { operation, block: block.0 });
        }
        cells.erase();
        Ok(())
    }

    fn is_bad(&mut self, block: BlockNumber) -> Result<bool, NandError> {
        self.admit(NandOperation::IsBad, block, None)?;
        self.counts.reads += 1;
        self.pay(self.timing.read_ns, 1);
        Ok(self.blocks.get(block.0 as usize).is_some_and(|block| block.bad))
    }

    fn mark_bad(&mut self, block: BlockNumber) -> Result<(), NandError> {
        self.admit(NandOperation::MarkBad, block, None)?;
        self.counts.programs += 1;
        self.pay(self.timing.program_ns, 1);
        if let Some(outcome) = self.strike(NandOperation::MarkBad, block, &[]) {
            if outcome == Interrupted::Done
                && let Some(cells) = self.block_mut(block)
            {
                cells.bad = true;
            }
            return Err(NandError::Gone);
        }
        if let Some(cells) = self.block_mut(block) {
            cells.bad = true;
        }
        Ok(())
    }
}
