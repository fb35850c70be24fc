//! `steadfast tune`: label, uuid, transaction mask and timer of a volume that is not mounted.

use std::path::PathBuf;

use steadfast::tools::{Tune, tune};
use steadfast_host::HostPlatform;

use crate::failure::{Exit, Failure, Outcome};
use crate::image::{self, Access, Image};
use crate::target::Target;
use crate::{host, interval, mask_text, output, report};

/// Change label, uuid, transaction mask or timer of a volume that is not mounted
///
/// A power cut during the change leaves the old value or the new one of each. The uuid is the one
/// by which `info`, udev and fstab know the volume. Structures inside keep the uuid of mkfs, so
/// nothing else is written. The mask and the timer of a mounted volume are changed with 'steadfast
/// mask set'.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Image or block device
    image: PathBuf,
    /// Label, at most 32 bytes; empty: none
    #[arg(short = 'L', long)]
    label: Option<String>,
    /// UUID, or 'random'
    #[arg(short = 'U', long, value_parser = parse_uuid)]
    uuid: Option<[u8; 16]>,
    /// Transaction mask, such as default,close or +rename (see 'steadfast mask set --help')
    #[arg(long, value_name = "EVENTS")]
    mask: Option<String>,
    /// Interval of the transaction timer
    #[arg(long, value_parser = interval::parse_ms, value_name = "INTERVAL")]
    timer: Option<u32>,
}

fn parse_uuid(text: &str) -> Result<[u8; 16], String> {
    match text {
        "random" => steadfast_host::random_uuid().map_err(|error| error.to_string()),
        _ => report::uuid_parse(text),
    }
}

/// Runs the command.
///
/// # Errors
/// What is wrong with a value or the image; a volume that is mounted.
pub fn run(args: &Args) -> Outcome {
    let path = args.image.as_path();
    let wrong = |what: &str, advice: &str| Failure::new(Exit::Usage, what, path.display(), advice);
    let names = Tune { label: args.label.clone(), uuid: args.uuid, recover: image::recovers() };
    let has_names = names.label.is_some() || names.uuid.is_some();
    if !has_names && args.mask.is_none() && args.timer.is_none() {
        return Err(wrong("nothing to change", "give --label, --uuid, --mask or --timer"));
    }
    if let Target::Mounted(live) = Target::find(path)? {
        let directory = live.directory().display().to_string();
        let advice =
            format!("unmount it with 'steadfast umount {directory}', or see 'steadfast mask set'");
        return Err(Failure::new(Exit::Busy, "the volume is mounted", directory, advice));
    }
    if args.mask.is_some() || args.timer.is_some() {
        let image = Image::open(path, Access::Write)?;
        let at_image = |error| Failure::core(error, path.display());
        if let Some(events) = &args.mask {
            let mask = mask_text::parse(&[events.as_str()], image.volume.mask())
                .map_err(|line| wrong(&line, "see 'steadfast mask set --help'"))?;
            image.volume.set_mask(mask).map_err(at_image)?;
        }
        if let Some(timer_ms) = args.timer {
            image.volume.set_timer_ms(timer_ms).map_err(at_image)?;
        }
        // A checkpoint stores them; closing makes no checkpoint without `unmount` in the mask.
        image.volume.checkpoint().map_err(at_image)?;
        image.close()?;
    }
    if has_names {
        host::with_medium_to_write(path, |medium| {
            tune(medium.clone(), HostPlatform::new(), &names)
        })?;
    }
    let identity = host::identify(path)?;
    let label = if identity.label.is_empty() {
        String::new()
    } else {
        format!(", label {}", identity.label)
    };
    output::line(format_args!(
        "{}: uuid {}{label}",
        path.display(),
        report::uuid_text(&identity.uuid)
    ))
}
