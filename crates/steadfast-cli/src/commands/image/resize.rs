//! `steadfast image resize`: makes a volume larger or smaller.

use std::fs::File;
use std::path::{Path, PathBuf};

use steadfast::Error;
use steadfast_media::Medium;

use super::byte_bar;
use crate::failure::{Exit, Failure, Outcome};
use crate::image::{Access, Image};
use crate::live::Live;
use crate::target::Target;
use crate::{host, output, size};

/// Make a volume larger or smaller
///
/// Larger: an image that is not mounted, or a mounted volume. Smaller: only while it is not
/// mounted; data past the new end is moved first. A power cut at any moment leaves the old size
/// or the new one, and every file. An image file gets the size of the volume. On a block device,
/// make the partition larger before, or smaller afterwards.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Image, block device or mount point
    #[arg(value_name = "IMAGE|DIR")]
    target: PathBuf,
    /// The new size, such as 1GiB; +1G and -1G change it by so much
    #[arg(required_unless_present = "least", conflicts_with = "least", allow_hyphen_values = true)]
    size: Option<String>,
    /// Make it as small as possible
    #[arg(long)]
    least: bool,
    /// No progress bar, no text
    #[arg(short, long)]
    quiet: bool,
}

/// Runs the command.
///
/// # Errors
/// What prevents the new size; the volume then keeps its old size.
pub fn run(args: &Args) -> Outcome {
    let (old, new) = match Target::find(&args.target)? {
        Target::Mounted(live) => mounted(args, &live)?,
        Target::Image(path) => image(args, &path)?,
    };
    if args.quiet {
        return Ok(());
    }
    let text = |bytes: u64| size::human(bytes);
    output::line(match old == new {
        true => format!("{}: {} as before", args.target.display(), text(new)),
        false => format!("{}: {}, it was {}", args.target.display(), text(new), text(old)),
    })
}

/// The requested size, given the present one; `None` means the least.
fn wanted(args: &Args, old: u64) -> Outcome<Option<u64>> {
    let Some(text) = &args.size else { return Ok(None) };
    let wrong = |line: String| {
        Failure::new(
            Exit::Usage,
            line,
            args.target.display(),
            "give a size such as 1GiB, +512M or -1G",
        )
    };
    let parse = |text: &str| size::parse(text).map_err(wrong);
    let new = match (text.strip_prefix('+'), text.strip_prefix('-')) {
        (Some(more), _) => old.checked_add(parse(more)?),
        (_, Some(less)) => old.checked_sub(parse(less)?),
        _ => Some(parse(text)?),
    };
    new.map(Some).ok_or_else(|| wrong(format!("'{text}' gives no size that a volume can have")))
}

fn mounted(args: &Args, live: &Live) -> Outcome<(u64, u64)> {
    let old = live.info()?.size;
    match wanted(args, old)? {
        Some(new) if new > old => live.grow(new)?,
        Some(new) if new == old => {}
        _ => {
            return Err(Failure::new(
                Exit::Busy,
                "a mounted volume can only become larger",
                live.directory().display(),
                format!("unmount it with 'steadfast umount {}' first", live.directory().display()),
            ));
        }
    }
    Ok((old, live.info()?.size))
}

fn image(args: &Args, path: &Path) -> Outcome<(u64, u64)> {
    let image = Image::open(path, Access::Write)?;
    let at_image = |error| Failure::core(error, path.display());
    let old = image.volume.info().size;
    let least = wanted(args, old)?;
    let new = least.unwrap_or(0);
    if least.is_some() && new > old {
        let medium = image.volume.medium();
        let before = medium.geometry().size;
        if before < new {
            medium.set_size(new).map_err(|error| at_image(error.into()))?;
        }
        if let Err(error) = image.volume.grow(new) {
            let _ = medium.set_size(before.max(old));
            let _ = image.close();
            return Err(at_image(error));
        }
        let grown = image.volume.info().size;
        image.close()?;
        return Ok((old, grown));
    }
    if least == Some(old) {
        image.close()?;
        return Ok((old, old));
    }
    let target = match least {
        Some(new) => Attempt { size: new, exact: true },
        None => Attempt { size: image.volume.size_least(), exact: false },
    };
    let new = shrink(args, image, path, old, target)?;
    Ok((old, new))
}

/// A size to try.
struct Attempt {
    size: u64,
    /// This size or none.
    exact: bool,
}

fn shrink(args: &Args, image: Image, path: &Path, old: u64, target: Attempt) -> Outcome<u64> {
    let info = image.volume.info();
    let cell = u64::from(info.block_size).max(512);
    let bar = byte_bar("moving", args.quiet);
    let mut size = target.size;
    loop {
        if size >= old {
            bar.finish_and_clear();
            image.close()?;
            return Ok(old);
        }
        bar.set_length(old - size);
        let moved = image
            .volume
            .shrink(size, &mut |blocks| bar.set_position(blocks * u64::from(info.block_size)));
        match moved {
            Ok(()) => break,
            Err(Error::NoSpace | Error::VolumeTooSmall { .. }) if !target.exact => {
                size = size.saturating_add((size / 64).max(16 * cell));
            }
            Err(error) => {
                bar.finish_and_clear();
                let least = image.volume.size_least();
                let _ = image.close();
                let mut failure = Failure::core(error, path.display());
                match error {
                    Error::NoSpace => {
                        failure.what = "what is on the volume does not fit that size".into();
                        failure.advice = format!(
                            "nothing was changed; ask for about {} or more",
                            size::human(least)
                        );
                    }
                    Error::Busy => {
                        failure.what = "a snapshot holds blocks past the new end".into();
                        failure.advice =
                            "nothing was changed; delete snapshots first, or ask for more".into();
                    }
                    _ => {}
                }
                return Err(failure);
            }
        }
    }
    bar.finish_and_clear();
    let new = size - size % cell;
    let device = host::is_device(path);
    // The resize has closed the volume already; this releases the lock.
    image.close()?;
    if !device {
        let cut = File::options().write(true).open(path).and_then(|file| {
            file.set_len(new)?;
            file.sync_all()
        });
        cut.map_err(|error| {
            let mut failure = Failure::host(&error, "cut the end off", path);
            failure.advice =
                format!("the volume has its new size; cut the file to {new} bytes yourself");
            failure
        })?;
    }
    Ok(new)
}
