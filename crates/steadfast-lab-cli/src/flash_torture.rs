//! `steadfast flash torture`: power cuts in the operations of a modelled part, and the cost of
//! synced writes and mounts on it.

use std::collections::BTreeMap;

use serde::Serialize;
use steadfast_flash::part::Part;
use steadfast_torture::flash::{Struck, cut_part, figures};

use steadfast_cli::failure::{Exit, Failure, Outcome};
use steadfast_cli::mtd::parse_part;
use steadfast_cli::output::Output;

/// Cut the power in the middle of programs and erasures of a modelled NAND part, and measure it
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The part: slc-1gbit, spi-1gbit, slc-4k or mlc-16gbit
    #[arg(long, value_name = "PART", default_value = "slc-1gbit", value_parser = parse_part)]
    profile: Part,
    /// Power cuts; 0: only measure
    #[arg(long, value_name = "N", default_value_t = 1000)]
    cuts: u64,
    /// Synced random overwrites for the steady state, after the 200 at 90 % full
    #[arg(long, value_name = "N", default_value_t = 0)]
    overwrites: u64,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The printed results; their names are an interface.
#[derive(Debug, Serialize)]
struct Report {
    profile: &'static str,
    seed: u64,
    cuts: u64,
    recovery_cuts: u64,
    checkpoint_cuts: u64,
    bad_block_cuts: u64,
    /// Cuts by the operation of the part that they interrupted.
    cuts_in: BTreeMap<&'static str, u64>,
    bad_blocks: u64,
    pages_moved: u64,
    violations: u64,
    violation: Option<String>,
    mount_page_reads_clean: u64,
    mount_page_reads_max: u64,
    write_ms_max: f64,
    background_ms_max: f64,
    programs_per_synced_4k: f64,
    programs_per_synced_4k_steady: f64,
    usable_percent: f64,
    erase_spread: f64,
    memory_bytes_per_kib: f64,
}

/// Runs the command.
///
/// # Errors
/// A violation, or a part that is unsuitable for the measurement.
pub fn run(args: &Args) -> Outcome {
    let part = args.profile;
    let tried =
        if args.cuts == 0 { Ok(Default::default()) } else { cut_part(&part, args.cuts, args.seed) };
    let found = figures(&part, args.overwrites, args.seed).map_err(|what| {
        Failure::new(
            Exit::Failed,
            what,
            part.name,
            "report it with the seed; nothing of yours is touched",
        )
    })?;
    let violation = tried.as_ref().err().cloned();
    let tally = tried.unwrap_or_default();
    let report = Report {
        profile: part.name,
        seed: args.seed,
        cuts: tally.cuts,
        recovery_cuts: tally.recovery_cuts,
        checkpoint_cuts: tally.checkpoint_cuts,
        bad_block_cuts: tally.bad_block_cuts,
        cuts_in: Struck::ALL.iter().map(|struck| struck.name()).zip(tally.struck).collect(),
        bad_blocks: tally.bad_blocks,
        pages_moved: tally.moved_pages,
        violations: u64::from(violation.is_some()),
        violation,
        mount_page_reads_clean: found.mount_page_reads_clean,
        mount_page_reads_max: found.mount_page_reads_max.max(tally.mount_page_reads_max),
        write_ms_max: found.write_ms_max,
        background_ms_max: found.background_ms_max,
        programs_per_synced_4k: found.programs_per_synced_4k,
        programs_per_synced_4k_steady: found.programs_per_synced_4k_steady,
        usable_percent: found.usable_percent,
        erase_spread: found.erase_spread,
        memory_bytes_per_kib: found.memory_per_kib,
    };
    let mut output = Output::new();
    if args.json {
        output.json(&report)?;
    } else {
        output.line(format_args!(
            "part                      {} (seed {})",
            report.profile, report.seed
        ))?;
        output.line(format_args!(
            "power cuts                {}, violations {}",
            report.cuts, report.violations
        ))?;
        if report.cuts > 0 {
            let of = report.cuts_in.iter().map(|(operation, cuts)| format!("{operation} {cuts}"));
            output.line(format_args!(
                "  by operation            {}",
                of.collect::<Vec<_>>().join(", ")
            ))?;
            output.line(format_args!(
                "  of them                 in recoveries {}, in checkpoints {}, after failures {}",
                report.recovery_cuts, report.checkpoint_cuts, report.bad_block_cuts
            ))?;
            output.line(format_args!(
                "  meanwhile               {} pages moved, {} blocks found bad",
                report.pages_moved, report.bad_blocks
            ))?;
        }
        output.line(format_args!("usable                    {:.1} %", report.usable_percent))?;
        output.line(format_args!(
            "page reads of a mount     clean {}, after a cut at most {}",
            report.mount_page_reads_clean, report.mount_page_reads_max
        ))?;
        output.line(format_args!(
            "programs per synced 4 KiB {:.2}, steady {:.2}",
            report.programs_per_synced_4k, report.programs_per_synced_4k_steady
        ))?;
        output.line(format_args!(
            "longest write             {:.1} ms, background {:.1} ms (modelled)",
            report.write_ms_max, report.background_ms_max
        ))?;
        output.line(format_args!(
            "erase spread              {:.3} % of rated cycles",
            report.erase_spread
        ))?;
        output.line(format_args!(
            "memory                    {:.2} bytes per KiB",
            report.memory_bytes_per_kib
        ))?;
    }
    output.finish()?;
    match report.violation {
        None => Ok(()),
        Some(what) => Err(Failure::new(
            Exit::Damaged,
            what,
            part.name,
            format!("run again with --seed {}", args.seed),
        )),
    }
}
