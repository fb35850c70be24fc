//! The contents of a part: its block table and the cost of a mount, read without writing anything.
//!
//! While the volume is mounted, the part is read next to the writer without a lock. The result is a
//! state of the last few seconds. If the pages that were read do not fit together, the survey is
//! repeated.

use std::thread;
use std::time::Duration;

use serde::Serialize;
use steadfast_flash::ftl::{BlockDetail, BlockUse, FlashReport, Ftl};
use steadfast_flash::nand::{BlockNumber, Nand};

use crate::failure::{Exit, Outcome};
use crate::flash_place::{FlashPlace, NandAccess};
use crate::open_failure;

/// Maximum number of surveys of a part that is being written.
const LOOKS: u32 = 8;
/// Pause between two of them.
const PAUSE: Duration = Duration::from_millis(40);

/// The contents of a part.
#[derive(Debug, Clone)]
pub struct PartSurvey {
    /// The name of the part.
    pub part: String,
    /// The report of the translation layer.
    pub report: FlashReport,
    /// Each erase block of the part, or of the partition if there is one.
    pub blocks: Vec<BlockDetail>,
    /// Page reads of the mount, without those of the whole block table.
    pub mount_page_reads: u64,
    /// Another process has the part open for writing.
    pub live: bool,
}

/// Erasures of the good blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Wear {
    /// Erasures of the least erased block.
    pub erases_min: u32,
    /// Erasures of the median block.
    pub erases_median: u32,
    /// Erasures of the most erased block.
    pub erases_max: u32,
    /// Erasures of all blocks together.
    pub erases_total: u64,
    /// Erasures that a block is rated for.
    pub cycles_rated: u32,
    /// Most erasures minus fewest, in percent of the rated ones.
    pub spread_percent: f64,
    /// Mean erasures in percent of the rated ones: the used share of the part's life.
    pub used_percent: f64,
}

impl PartSurvey {
    /// Surveys a part.
    ///
    /// # Errors
    /// It cannot be used, or holds no readable translation layer.
    pub fn take(place: &FlashPlace) -> Outcome<PartSurvey> {
        match PartSurvey::look(place, NandAccess::Read) {
            Err(failure) if failure.exit == Exit::Busy => {}
            result => return result,
        }
        let mut last = PartSurvey::look(place, NandAccess::Watch);
        for _ in 1..LOOKS {
            if last.is_ok() {
                break;
            }
            thread::sleep(PAUSE);
            last = PartSurvey::look(place, NandAccess::Watch);
        }
        last
    }

    fn look(place: &FlashPlace, access: NandAccess) -> Outcome<PartSurvey> {
        let survey = PartSurvey::take_from(place, place.open(access)?)?;
        Ok(PartSurvey { live: access == NandAccess::Watch, ..survey })
    }

    /// Surveys an open part; writes nothing.
    ///
    /// # Errors
    /// It holds no readable translation layer.
    pub fn take_from<N: Nand>(place: &FlashPlace, nand: N) -> Outcome<PartSurvey> {
        let failed = |error| open_failure::of_layer(&error, &place.path);
        let mut ftl = Ftl::mount(nand, true).map_err(failed)?;
        let mount_page_reads = ftl.info().page_reads;
        let report = ftl.report().map_err(failed)?;
        let seen = ftl.blocks().map_err(failed)?;
        // Sorts by the order of the part. The volume's order differs if an image was programmed
        // onto a part with bad blocks.
        let mut blocks = seen.clone();
        for (block, detail) in (0..).map(BlockNumber).zip(seen) {
            if let Some(at) = blocks.get_mut(ftl.place_of(block).0 as usize) {
                *at = detail;
            }
        }
        Ok(PartSurvey { part: place.part_name(), report, blocks, mount_page_reads, live: false })
    }

    /// Bytes available to the volume.
    pub fn usable_bytes(&self) -> u64 {
        u64::from(self.report.layout.user_pages) * u64::from(self.report.geometry.page_size)
    }

    /// The uses by name, with the erase blocks of each.
    pub fn uses(&self) -> impl Iterator<Item = (&'static str, u32)> + '_ {
        BlockUse::ALL.into_iter().map(|usage| (usage.name(), self.report.count(usage)))
    }

    /// The same for JSON.
    pub fn uses_json(&self) -> serde_json::Map<String, serde_json::Value> {
        self.uses().map(|(name, count)| (name.to_owned(), count.into())).collect()
    }

    /// Numbers of the bad blocks.
    pub fn bad_blocks(&self) -> Vec<u32> {
        let numbered = (0..).zip(&self.blocks);
        numbered
            .filter(|(_, block)| block.usage == BlockUse::Bad)
            .map(|(number, _)| number)
            .collect()
    }

    /// Erasures of the good blocks, in rising order.
    pub fn erases_sorted(&self) -> Vec<u32> {
        let good = self.blocks.iter().filter(|block| block.usage != BlockUse::Bad);
        let mut erases: Vec<u32> = good.map(|block| block.erases).collect();
        erases.sort_unstable();
        erases
    }

    /// How the good blocks are worn.
    pub fn wear(&self) -> Wear {
        let erases = self.erases_sorted();
        let at = |index: usize| erases.get(index).copied().unwrap_or(0);
        let (least, most) = (at(0), at(erases.len().saturating_sub(1)));
        let total: u64 = erases.iter().copied().map(u64::from).sum();
        let rated = f64::from(self.report.geometry.cycles.max(1));
        Wear {
            erases_min: least,
            erases_median: at(erases.len() / 2),
            erases_max: most,
            erases_total: total,
            cycles_rated: self.report.geometry.cycles,
            spread_percent: 100.0 * f64::from(most - least) / rated,
            used_percent: 100.0 * total as f64 / erases.len().max(1) as f64 / rated,
        }
    }
}

#[cfg(test)]
pub mod tests {
    use steadfast_flash::ftl::{self, FtlInfo};
    use steadfast_flash::model::NandModel;
    use steadfast_flash::part::Part;

    use super::*;

    /// A part with `blocks` blocks. Each third block is bad; the erasures of every other one equal
    /// its number.
    pub fn example(blocks: u32) -> PartSurvey {
        let part = Part::SLC_1GBIT.with_blocks(blocks);
        let mut ftl = ftl::format(NandModel::new(&part, 1), 0x1234).unwrap();
        let mut report = ftl.report().unwrap();
        let block = |number: u32| BlockDetail {
            usage: match number % 3 {
                0 => BlockUse::Bad,
                1 => BlockUse::Data,
                _ => BlockUse::Free,
            },
            open: false,
            valid_pages: if number % 3 == 1 { 16 } else { 0 },
            erases: number,
            reads: number * 100,
        };
        let blocks: Vec<BlockDetail> = (0..blocks).map(block).collect();
        report.blocks = BlockUse::ALL
            .map(|usage| blocks.iter().filter(|block| block.usage == usage).count() as u32);
        report.counts = FtlInfo::default();
        PartSurvey { part: part.name.to_owned(), report, blocks, mount_page_reads: 25, live: false }
    }

    #[test]
    fn bad_blocks_do_not_count_as_worn() {
        let survey = example(90);
        let uses: Vec<(&str, u32)> = survey.uses().filter(|(_, count)| *count > 0).collect();
        assert_eq!(uses, [("free", 30), ("data", 30), ("bad", 30)]);
        assert_eq!(survey.bad_blocks()[..3], [0, 3, 6]);
        let wear = survey.wear();
        assert_eq!((wear.erases_min, wear.erases_median, wear.erases_max), (1, 46, 89));
        assert!((wear.spread_percent - 0.088).abs() < 1e-9, "{wear:?}");
        let none = PartSurvey { blocks: Vec::new(), ..survey };
        assert_eq!(none.wear().erases_max, 0);
    }
}
