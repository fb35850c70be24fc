//! `steadfast flash info`: the identity of a part, the use of its blocks, and its wear.

use serde::Serialize;

use super::PlaceArgs;
use super::survey::{PartSurvey, Wear};
use crate::failure::Outcome;
use crate::flash_place::FlashPlace;
use crate::output::{self, Output};
use crate::size;

/// Bad blocks listed in the text; JSON lists all.
const NAMED_MAX: usize = 16;

/// Show what a part is, how its erase blocks are used, how worn they are, what a mount costs
///
/// Writes nothing. A mounted volume may change during the command.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: PlaceArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The JSON document. Fields are added over time and never change their meaning.
#[derive(Debug, Serialize)]
pub struct FlashInfoJson {
    target: String,
    part: String,
    /// First erase block and the one after the last, if the target is a range of blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    partition: Option<[u32; 2]>,
    /// The number of the volume, hexadecimal.
    volume: String,
    erase_blocks: u32,
    pages_per_block: u32,
    page_size: u32,
    oob_size: u32,
    ecc_bits: u16,
    ecc_codeword: u16,
    size: u64,
    usable: u64,
    usable_percent: f64,
    blocks: serde_json::Map<String, serde_json::Value>,
    bad_blocks: Vec<u32>,
    wear: Wear,
    mount_page_reads: u64,
    clean: bool,
    in_use: bool,
    /// Most page reads of any block since its erasure, and the number of reads after which a block
    /// is moved.
    reads_max: u32,
    reads_bound: u32,
    /// The block at which the patrol continues.
    patrol_position: u32,
    blocks_waiting: u32,
    memory_bytes: u64,
}

impl FlashInfoJson {
    /// The report of a part.
    pub fn new(place: &FlashPlace, survey: &PartSurvey) -> FlashInfoJson {
        let found = &survey.report;
        let geometry = found.geometry;
        FlashInfoJson {
            target: place.path.display().to_string(),
            part: survey.part.clone(),
            partition: place.blocks.clone().map(|blocks| [blocks.start, blocks.end]),
            volume: format!("{:016x}", found.volume),
            erase_blocks: geometry.blocks,
            pages_per_block: geometry.pages_per_block,
            page_size: geometry.page_size,
            oob_size: geometry.oob_size,
            ecc_bits: geometry.ecc.bits,
            ecc_codeword: geometry.ecc.codeword,
            size: geometry.bytes(),
            usable: survey.usable_bytes(),
            usable_percent: 100.0 * survey.usable_bytes() as f64 / geometry.bytes().max(1) as f64,
            blocks: survey.uses_json(),
            bad_blocks: survey.bad_blocks(),
            wear: survey.wear(),
            mount_page_reads: survey.mount_page_reads,
            clean: !found.counts.recovered,
            in_use: survey.live,
            reads_max: found.reads_max,
            reads_bound: found.reads_bound,
            patrol_position: found.patrol_position,
            blocks_waiting: found.blocks_waiting,
            memory_bytes: found.memory_bytes as u64,
        }
    }
}

/// Runs the command.
///
/// # Errors
/// There is no NAND, or it holds no readable translation layer.
pub fn run(args: &Args) -> Outcome {
    let place = args.place.find()?;
    let survey = PartSurvey::take(&place)?;
    let report = FlashInfoJson::new(&place, &survey);
    if args.json {
        return output::json(&report);
    }
    let mut output = Output::new();
    for line in text(&report, &survey) {
        output.line(line)?;
    }
    output.finish()
}

fn text(report: &FlashInfoJson, survey: &PartSurvey) -> Vec<String> {
    let wear = &report.wear;
    let partition = match report.partition {
        Some([start, end]) => format!(", erase blocks {start} to {}", end.saturating_sub(1)),
        None => String::new(),
    };
    let used = survey.uses().filter(|(name, count)| *count > 0 || *name == "bad");
    let states: Vec<String> = used.map(|(name, count)| format!("{count} {name}")).collect();
    let mut bad: Vec<String> =
        report.bad_blocks.iter().take(NAMED_MAX).map(u32::to_string).collect();
    if report.bad_blocks.len() > NAMED_MAX {
        bad.push(format!("and {} more", report.bad_blocks.len() - NAMED_MAX));
    }
    let ecc = match report.ecc_bits {
        0 => "no correction".to_owned(),
        bits => format!("corrects {bits} in {} bytes", report.ecc_codeword),
    };
    let state = match (report.in_use, report.clean) {
        (true, _) => "in use",
        (false, true) => "closed in good order",
        (false, false) => "not closed: the next mount recovers what was flushed",
    };
    let mut lines = vec![
        format!("part          {}{partition}", report.part),
        format!(
            "geometry      {} erase blocks of {} pages of {} + {} bytes, {ecc}",
            report.erase_blocks, report.pages_per_block, report.page_size, report.oob_size
        ),
        format!(
            "size          {}, usable {} ({:.1} %)",
            size::human(report.size),
            size::human(report.usable),
            report.usable_percent
        ),
        format!("volume        {}, {state}", report.volume),
        format!("erase blocks  {}", states.join(", ")),
        format!(
            "erasures      fewest {}, median {}, most {}; spread {:.3} % of the rated {}",
            wear.erases_min,
            wear.erases_median,
            wear.erases_max,
            wear.spread_percent,
            wear.cycles_rated
        ),
        format!("life used     {:.3} %", wear.used_percent),
        format!(
            "reads         most {} of a block; it is moved at {}",
            report.reads_max, report.reads_bound
        ),
        format!(
            "patrol        at block {}, {} waiting to be moved",
            report.patrol_position, report.blocks_waiting
        ),
        format!("mount         {} page reads", report.mount_page_reads),
        format!("memory        {}", size::human(report.memory_bytes)),
    ];
    if !bad.is_empty() {
        lines.insert(5, format!("bad blocks    {}", bad.join(", ")));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::survey::tests::example;
    use super::*;
    use crate::flash_place::Backing;

    #[test]
    fn many_bad_blocks_are_counted_in_text_and_named_in_json() {
        let survey = example(90);
        let place =
            FlashPlace { path: "nand.bin".into(), blocks: Some(10..100), backing: Backing::Mtd };
        let report = FlashInfoJson::new(&place, &survey);
        let text = text(&report, &survey).join("\n");
        assert!(text.contains("part          slc-1gbit, erase blocks 10 to 99\n"), "{text}");
        assert!(text.contains("30 free, 30 data, 30 bad\n"), "{text}");
        assert!(text.contains("42, 45, and 14 more\n"), "{text}");
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["bad_blocks"].as_array().unwrap().len(), 30);
        assert_eq!(json["blocks"]["data"], 30);
        assert_eq!(json["wear"]["erases_max"], 89);
    }
}
