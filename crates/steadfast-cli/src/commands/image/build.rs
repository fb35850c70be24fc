//! `steadfast image build`: makes an image from a directory, an archive or a manifest. The same
//! input gives the same bytes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use steadfast::{Error, FormatOptions, OpenOptions, Timestamp, Volume};
use steadfast_flash::part::Part;
use steadfast_host::{HostPlatform, WholeImage};

use super::fill::fill;
use super::{build_nand, byte_bar};
use crate::failure::{Exit, Failure, Outcome};
use crate::format_args::FormatArgs;
use crate::medium::{Contents, HostMedium, HostVolume};
use crate::output;
use crate::owner::{self, Owner};
use crate::report::{self, InfoReport};
use crate::source::{self, SourceTree};
use crate::{ending, host, interrupt, making, mtd, open_failure, size, window};

/// Attempts, each with twice the size, if the first estimate was too low.
const ATTEMPTS: u32 = 6;
/// Estimated metadata of an entry: inode, name and extents, in all copies.
const ENTRY_BYTES: u64 = 1024;

/// Build an image from a directory, a tar archive or a manifest, without root
///
/// Owners, modes, devices, times, hard links, holes and extended attributes come from the source.
/// The same input and options give the same bytes. Entries go in by name. Times are those of the
/// source, but none is later than SOURCE_DATE_EPOCH if that is set. The uuid is derived from the
/// source, or given.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Image file to make
    image: PathBuf,
    /// Directory or tar archive (plain, gzip, zstd or xz; '-' is standard input)
    source: Option<PathBuf>,
    /// A list of entries that are added, or replace those of the source (see docs/IMAGES.md)
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
    /// Size of the volume; the default is the least that holds the source
    #[arg(short, long, value_parser = size::parse, allow_hyphen_values = true)]
    size: Option<u64>,
    /// Free space beside the source, if no --size is given
    #[arg(
        long,
        value_parser = size::parse,
        default_value = "0",
        value_name = "SIZE",
        conflicts_with = "size",
        allow_hyphen_values = true
    )]
    free: u64,
    /// Owner and group of everything, as numbers (entries of the manifest keep theirs)
    #[arg(long, value_name = "UID:GID", value_parser = owner::parse)]
    owner: Option<Owner>,
    /// Leave extended attributes out (but those in the manifest)
    #[arg(long)]
    no_xattrs: bool,
    #[command(flatten)]
    volume: FormatArgs,
    /// UUID; the default is derived from the source
    #[arg(long, value_parser = report::uuid_parse, conflicts_with = "seed")]
    uuid: Option<[u8; 16]>,
    /// Another uuid for the same source
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT")]
    seed: String,
    /// Image of a NAND part for a device programmer, pages with out-of-band bytes: slc-1gbit,
    /// spi-1gbit, slc-4k, mlc-16gbit
    #[arg(long, value_name = "PART", value_parser = mtd::parse_part, conflicts_with_all = ["size", "free"])]
    nand: Option<Part>,
    /// Bad erase blocks of the part that will be programmed, separated by commas: nothing is put
    /// there
    #[arg(long, value_name = "BLOCKS", requires = "nand", value_delimiter = ',')]
    nand_bad: Vec<u32>,
    /// Replace an existing image
    #[arg(short = 'F', long)]
    force: bool,
    /// No progress bar, no text
    #[arg(short, long)]
    quiet: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command. The image appears under its name when it is complete; after an error there is
/// none.
///
/// # Errors
/// What is wrong with the source or the parameters.
pub fn run(args: &Args) -> Outcome {
    check_target(args)?;
    let epoch = source_date_epoch()?;
    let mut source = read_source(args)?;
    if let Some(epoch) = epoch {
        source.clamp_times(epoch);
    }
    let now = epoch.unwrap_or_else(|| source.newest());
    interrupt::leave_nothing_half_done(&args.image);
    let cannot = |error: io::Error| open_failure::of_destination(&error, &args.image);
    let image = ending::wait_for(&args.image, || WholeImage::create(&args.image).map_err(cannot))?;
    let partial = image.partial();
    let built = match &args.nand {
        Some(part) => build_part(args, part, &source, now, partial),
        None => build(args, &source, now, partial),
    };
    let info = built.map_err(|failure| failure.called(partial, &args.image))?;
    image.finish().map_err(cannot)?;
    if args.json {
        return output::json(&InfoReport::new(&info, args.image.display().to_string(), None));
    }
    if args.quiet {
        return Ok(());
    }
    output::line(format_args!(
        "{}: image of {}, {} entries, {} of data, uuid {}",
        args.image.display(),
        size::human(info.size),
        source.entries.len(),
        size::human(data_bytes(&source)),
        report::uuid_text(&info.uuid),
    ))
}

fn check_target(args: &Args) -> Outcome {
    if crate::network::is_address(&args.image) {
        return Err(Failure::new(
            Exit::Usage,
            "is not an image file",
            args.image.display(),
            "make a volume there with 'steadfast mkfs' and fill it with 'steadfast put'",
        ));
    }
    if window::is_part(&args.image) {
        return Err(Failure::new(
            Exit::Usage,
            "is a part of an image, and an image is built as a file",
            args.image.display(),
            "build a file and copy it there with 'dd', or make a volume there and use 'put'",
        ));
    }
    if args.image.as_os_str() == "-" {
        return Err(Failure::new(
            Exit::Usage,
            "an image is not built to standard output",
            args.image.display(),
            "give the name of a file; a file of this name is './-'",
        ));
    }
    match fs::metadata(&args.image) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Failure::host(&error, "look at", &args.image)),
        Ok(metadata) if !metadata.is_file() => Err(Failure::new(
            Exit::Usage,
            "is not an image file",
            args.image.display(),
            "build into a file, then copy that to a device",
        )),
        Ok(_) if args.force => host::open_medium(&args.image, true, host::Way::Cached).map(drop),
        Ok(_) => Err(Failure::new(
            Exit::Busy,
            "exists already",
            args.image.display(),
            "use another name, or replace it with --force",
        )),
    }
}

fn source_date_epoch() -> Outcome<Option<Timestamp>> {
    let Some(text) = std::env::var_os("SOURCE_DATE_EPOCH") else { return Ok(None) };
    let seconds = text.to_str().and_then(|text| text.parse().ok()).ok_or_else(|| {
        Failure::new(
            Exit::Usage,
            "not a number of seconds",
            format!("SOURCE_DATE_EPOCH={}", text.display()),
            "set it to seconds since 1970, or unset it",
        )
    })?;
    Ok(Some(Timestamp { seconds, nanoseconds: 0 }))
}

fn read_source(args: &Args) -> Outcome<SourceTree> {
    let mut source = SourceTree::default();
    match &args.source {
        Some(path) if path.as_os_str() != "-" && path.is_dir() => {
            source::add_directory(&mut source, path)?
        }
        Some(path) => source::add_archive(&mut source, path)?,
        None if args.manifest.is_none() => {
            return Err(Failure::new(
                Exit::Usage,
                "nothing to build from",
                args.image.display(),
                "give a directory, a tar archive or a --manifest",
            ));
        }
        None => {}
    }
    for entry in source.entries.values_mut() {
        if let Some(owner) = args.owner {
            (entry.uid, entry.gid) = (owner.uid, owner.gid);
        }
        if args.no_xattrs {
            entry.xattrs.clear();
        }
    }
    if let Some(manifest) = &args.manifest {
        source::add_manifest(&mut source, manifest)?;
    }
    source.entries.entry(Vec::new()).or_insert_with(source::Entry::directory);
    Ok(source)
}

fn data_bytes(source: &SourceTree) -> u64 {
    source.entries.values().map(source::Entry::size).sum()
}

/// Estimated bytes that the source will take. Holes count as data.
fn estimate(args: &Args, source: &SourceTree) -> u64 {
    let block = u64::from(args.volume.block_size().clamp(128, 65536));
    let of = |entry: &source::Entry| {
        let attributes: usize =
            entry.xattrs.iter().map(|(name, value)| name.len() + value.len() + 64).sum();
        entry
            .size()
            .div_ceil(block)
            .saturating_mul(block)
            .saturating_add(ENTRY_BYTES + 4 * attributes as u64)
    };
    source.entries.values().map(of).fold(args.free, u64::saturating_add)
}

/// The size of the intent log for an image of this size.
fn log_size(bytes: u64) -> u64 {
    const STEPS: [(u64, u64); 4] =
        [(512 << 10, 0), (8 << 20, 64 << 10), (64 << 20, 256 << 10), (1 << 30, 1 << 20)];
    STEPS.iter().find(|(limit, _)| bytes < *limit).map_or(4 << 20, |(_, log)| *log)
}

fn options(args: &Args, source: &SourceTree, size: u64) -> FormatOptions {
    // The log suits the final size, which is still unknown, and not the size of the first format.
    // The sizes have coarse steps and depend on file sizes alone, so that the host's way of storing
    // holes has no influence.
    let log_size = args
        .volume
        .log_size
        .or_else(|| args.size.is_none().then(|| log_size(estimate(args, source))));
    let copies = if args.size.is_none() {
        Some(args.volume.metadata_copies.unwrap_or(2))
    } else {
        args.volume.metadata_copies
    };
    FormatOptions {
        size: Some(size),
        metadata_copies: copies,
        log_size,
        uuid: args.uuid.unwrap_or_else(|| source.uuid(&args.seed)),
        root_mode: 0o755,
        ..args.volume.options()
    }
}

fn build(
    args: &Args,
    source: &SourceTree,
    now: Timestamp,
    partial: &Path,
) -> Outcome<steadfast::VolumeInfo> {
    let mut size =
        args.size.unwrap_or_else(|| estimate(args, source).saturating_mul(5) / 4 + (4 << 20));
    let mut attempt = 1;
    loop {
        making::try_format(partial, &options(args, source, size))?;
        let bar = byte_bar("building", args.quiet || args.json);
        bar.set_length(data_bytes(source));
        let filled = make(args, source, now, partial, size, &bar);
        bar.finish_and_clear();
        match filled {
            // Only a full volume is retried: a larger volume does not help on a full host.
            Err(failure)
                if failure.what == Error::NoSpace.to_string()
                    && args.size.is_none()
                    && attempt < ATTEMPTS =>
            {
                fs::remove_file(partial)
                    .map_err(|error| Failure::host(&error, "remove", partial))?;
                size = size.saturating_mul(2);
                attempt += 1;
            }
            other => {
                other?;
                break;
            }
        }
    }
    if args.size.is_none() {
        shrink(args, now, partial)?;
    }
    let volume = host::open_volume(
        partial,
        host::Way::Cached,
        OpenOptions { read_only: true, ..OpenOptions::default() },
    )?;
    let info = volume.info();
    volume.close().map_err(|error| Failure::core(error, partial.display()))?;
    Ok(info)
}

fn build_part(
    args: &Args,
    part: &Part,
    source: &SourceTree,
    now: Timestamp,
    partial: &Path,
) -> Outcome<steadfast::VolumeInfo> {
    let size = build_nand::size(part, &args.image)?;
    // The volume uses the whole part, so its sizes are those of a volume formatted on it.
    let mut options = options(args, source, size);
    args.volume.adapt_to_flash(part.geometry.page_size, &mut options);
    let bar = byte_bar("building", args.quiet || args.json);
    bar.set_length(data_bytes(source));
    let built = build_nand::build(
        part,
        &args.nand_bad,
        &options,
        source,
        now,
        (partial, &args.image),
        &bar,
    );
    bar.finish_and_clear();
    built
}

fn make(
    args: &Args,
    source: &SourceTree,
    now: Timestamp,
    partial: &Path,
    size: u64,
    bar: &indicatif::ProgressBar,
) -> Outcome {
    let options = options(args, source, size);
    let block_size = args.volume.block_size();
    let created = making::create_medium(partial, Some(size), block_size, Contents::Overwrite)?;
    let medium = created.medium;
    let at_image = |error| Failure::core(error, args.image.display());
    Volume::format(&medium, &options, &HostPlatform::stopped_at(now)).map_err(at_image)?;
    let volume = open(medium, now).map_err(at_image)?;
    fill(&volume, source, options.mask, &args.image, bar)?;
    volume.close().map_err(at_image)
}

fn open(medium: HostMedium, now: Timestamp) -> Result<HostVolume, Error> {
    Volume::open(
        medium,
        OpenOptions { access_times: false, ..OpenOptions::default() },
        HostPlatform::stopped_at(now),
    )
}

/// Shrinks the image to the least size that holds it and the requested free space.
fn shrink(args: &Args, now: Timestamp, partial: &Path) -> Outcome {
    let at_image = |error| Failure::core(error, args.image.display());
    let mut size = None;
    loop {
        let volume =
            open(host::create_open(partial, args.volume.block_size())?, now).map_err(at_image)?;
        let whole = volume.info().size;
        let wanted = size.unwrap_or_else(|| volume.size_least()).saturating_add(args.free);
        if wanted >= whole {
            volume.close().map_err(at_image)?;
            break;
        }
        match volume.shrink(wanted, &mut |_| {}) {
            Ok(()) => {
                let reached = wanted - wanted % u64::from(args.volume.block_size()).max(512);
                let file = fs::File::options().write(true).open(partial);
                file.and_then(|file| file.set_len(reached))
                    .map_err(|error| Failure::host(&error, "resize", partial))?;
                break;
            }
            // Tries a slightly larger size than the estimate.
            Err(Error::NoSpace | Error::VolumeTooSmall { .. }) => {
                let tried = wanted - args.free;
                size = Some(tried + (tried / 64).max(16 * u64::from(args.volume.block_size())));
                volume.close().map_err(at_image)?;
            }
            Err(error) => return Err(at_image(error)),
        }
    }
    Ok(())
}
