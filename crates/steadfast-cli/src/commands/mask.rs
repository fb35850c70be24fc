//! `steadfast mask get` and `set`: the events that set a transaction point.

use std::path::{Path, PathBuf};

use serde::Serialize;
use steadfast::TransactionMask;

use crate::failure::{Exit, Failure, Outcome};
use crate::image::{Access, Image};
use crate::output::{self, Output};
use crate::target::Target;
use crate::{interval, mask_text};

/// Show or change which events set a transaction point
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: MaskCommand,
}

#[derive(Debug, clap::Subcommand)]
enum MaskCommand {
    /// Show the transaction mask and the timer
    Get {
        /// Image, block device or mount point
        #[arg(value_name = "IMAGE|DIR")]
        target: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Change the transaction mask or the timer; kept in the volume
    ///
    /// On a mount the change is durable when the command returns. There is one exception: neither
    /// the old nor the new mask has the timer, and there are changes since the last transaction
    /// point. Then the new mask is in force at once and kept with the next point. The command says
    /// so.
    ///
    /// EVENTS is a list such as `fsync,sync,timer`, which replaces the mask, or `+close,no-timer`,
    /// which changes it. `default`, `all` and `manual` are sets. Events: timer, create, unlink,
    /// mkdir, rmdir, rename, link, symlink, attribute, truncate, write, sync-write, close, fsync,
    /// sync, unmount, volume-full.
    ///
    /// A mount takes `write` only with -o writethrough, and `close` only if the mask had it when
    /// the first file was closed. Give -o mask=+close to the mount, or set it on the image.
    Set {
        /// Image, block device or mount point
        #[arg(value_name = "IMAGE|DIR")]
        target: PathBuf,
        /// Events
        #[arg(value_name = "EVENTS")]
        events: Vec<String>,
        /// Interval of the timer, such as 5s or 500ms
        #[arg(long, value_parser = interval::parse_ms, value_name = "INTERVAL")]
        timer: Option<u32>,
    },
}

/// `steadfast mask get --json`.
#[derive(Debug, Serialize)]
struct MaskReport {
    mask: Vec<&'static str>,
    timer_ms: u32,
}

/// Runs the command.
///
/// # Errors
/// What is wrong with the target or the list of events.
pub fn run(args: &Args) -> Outcome {
    match &args.action {
        MaskCommand::Get { target, json } => get(target, *json),
        MaskCommand::Set { target, events, timer } => set(target, events, *timer),
    }
}

fn get(target: &Path, json: bool) -> Outcome {
    let (mask, timer_ms) = match Target::find(target)? {
        Target::Mounted(live) => live.mask()?,
        Target::Image(path) => {
            let image = Image::open(&path, Access::Read)?;
            let found = (image.volume.mask(), image.volume.timer_ms());
            image.close()?;
            found
        }
    };
    if json {
        return output::json(&MaskReport { mask: mask_text::names(mask), timer_ms });
    }
    let mut output = Output::new();
    output.line(format_args!("mask   {}", mask_text::human(mask)))?;
    output.line(format_args!("timer  {}", interval::human_ms(timer_ms)))?;
    output.finish()
}

fn set(target: &Path, events: &[String], timer: Option<u32>) -> Outcome {
    if events.is_empty() && timer.is_none() {
        return Err(Failure::new(
            Exit::Usage,
            "nothing to set",
            target.display(),
            "give events such as +close, or --timer 5s",
        ));
    }
    let apply = |now: TransactionMask| -> Outcome<TransactionMask> {
        if events.is_empty() {
            return Ok(now);
        }
        mask_text::parse(events, now).map_err(|line| {
            Failure::new(Exit::Usage, line, target.display(), "see 'steadfast mask set --help'")
        })
    };
    match Target::find(target)? {
        Target::Mounted(live) => {
            let (mask, timer_ms) = live.mask()?;
            let wanted = apply(mask)?;
            live.set_mask(wanted, timer.unwrap_or(timer_ms))?;
            let at_any_moment = mask.union(wanted).contains(TransactionMask::TIMER);
            if !at_any_moment && live.info()?.uncommitted > 0 {
                return output::line(format_args!(
                    "{0}: in force now; kept in the volume from the next transaction point on, as there are changes that only \
                     'steadfast transact {0}' or an event of the mask makes durable",
                    live.directory().display()
                ));
            }
            Ok(())
        }
        Target::Image(path) => {
            let image = Image::open(&path, Access::Write)?;
            let at_image = |error| Failure::core(error, path.display());
            let mask = apply(image.volume.mask())?;
            image.volume.set_mask(mask).map_err(at_image)?;
            if let Some(timer_ms) = timer {
                image.volume.set_timer_ms(timer_ms).map_err(at_image)?;
            }
            // A checkpoint stores the mask; closing makes no checkpoint without `unmount` in the
            // mask.
            image.volume.checkpoint().map_err(at_image)?;
            image.close()
        }
    }
}
