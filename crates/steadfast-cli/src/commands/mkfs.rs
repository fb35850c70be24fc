//! `steadfast mkfs`: makes a volume.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use steadfast::Error::NotSteadfast;
use steadfast::{FormatOptions, OpenOptions, Volume};
use steadfast_flash::ftl::FlashError;
use steadfast_host::HostPlatform;

use crate::failure::{Exit, Failure, Outcome, text_os};
use crate::format_args::FormatArgs;
use crate::medium::{Contents, HostMedium};
use crate::open_failure;
use crate::output::{self, Output};
use crate::owner::{self, Owner};
use crate::report::{self, InfoReport};
use crate::{host, making, mtd, network, rados, size, window};

/// Make a volume in an image file or on a block device
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Image file (made, sparse, if it does not exist), block device or MTD device
    pub image: PathBuf,
    /// Size of the volume, such as 64M or 1GiB; the default is all of an existing image
    #[arg(short, long, value_parser = size::parse, allow_hyphen_values = true)]
    pub size: Option<u64>,
    #[command(flatten)]
    pub volume: FormatArgs,
    /// UUID; the default is a random one
    #[arg(short = 'U', long, value_parser = report::uuid_parse)]
    uuid: Option<[u8; 16]>,
    /// Owner and group of the root directory, as numbers; the default is the calling user
    #[arg(long, value_name = "UID:GID", value_parser = owner::parse)]
    owner: Option<Owner>,
    /// Permissions of the root directory, octal
    #[arg(long, value_parser = parse_mode, default_value = "0755")]
    mode: u32,
    /// Also format an image that is not empty
    #[arg(short = 'F', long)]
    force: bool,
    /// Print nothing on success
    #[arg(short, long)]
    quiet: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn parse_mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err(format!("'{text}' is not a mode: write octal digits such as 0755")),
    }
}

/// Runs the command. After a failure, a newly made image is removed.
///
/// # Errors
/// What is wrong with the image or the parameters, and an image that is not empty without
/// `--force`.
pub fn run(args: &Args) -> Outcome {
    let path = args.image.as_path();
    let mut options = format_options(args)?;
    if mtd::is_mtd(path) {
        let page = mtd::geometry_when_formatted(path)?.atomic_unit;
        args.volume.adapt_to_flash(page, &mut options);
    }
    let existed = exists(path)?;
    let in_directory = !network::is_address(path);
    if !existed
        && in_directory
        && let Some(failure) = open_failure::without_directory(path)
    {
        return Err(failure);
    }
    if !existed && args.size.is_none() {
        return Err(Failure::new(
            Exit::Usage,
            "the image does not exist",
            path.display(),
            "give the size of the image to make, such as --size 1G",
        ));
    }
    if existed && !args.force {
        refuse_contents(path)?;
    }
    making::try_format(path, &options)?;
    let contents = if args.force { Contents::Overwrite } else { Contents::Keep };
    let created = making::create_medium(path, args.size, options.block_size, contents)?;
    let new = created.new;
    let result = format(path, created.medium, &options);
    if result.is_err() && new {
        making::remove(path);
    }
    let info = result?;
    if args.json {
        return output::json(&InfoReport::new(&info, path.display().to_string(), None));
    }
    if args.quiet {
        return Ok(());
    }
    let mut output = Output::new();
    output.line(format_args!(
        "{}: Steadfast volume of {}, block size {}, metadata kept {}, uuid {}",
        path.display(),
        size::human(info.size),
        size::human(info.block_size.into()),
        if info.metadata_copies == 1 { "once" } else { "twice" },
        report::uuid_text(&info.uuid),
    ))?;
    output.finish()
}

fn format_options(args: &Args) -> Outcome<FormatOptions> {
    let uuid = match args.uuid {
        Some(uuid) => uuid,
        None => random_uuid()?,
    };
    let owner = args.owner.unwrap_or_else(Owner::of_this_process);
    Ok(FormatOptions {
        size: args.size,
        uuid,
        root_uid: owner.uid,
        root_gid: owner.gid,
        root_mode: args.mode,
        ..args.volume.options()
    })
}

fn random_uuid() -> Outcome<[u8; 16]> {
    steadfast_host::random_uuid().map_err(|error| {
        Failure::new(
            Exit::Failed,
            format!("no random bytes: {}", text_os(&error)),
            "this machine",
            "give a --uuid, or make /dev/urandom available",
        )
    })
}

fn exists(path: &Path) -> Outcome<bool> {
    if rados::is_rados(path) {
        return rados::exists(path);
    }
    if crate::remote::is_remote(path) || mtd::is_mtd(path) {
        return Ok(true);
    }
    if let Some(place) = window::find(path)? {
        // What is around the volume is not made by this program.
        return match fs::metadata(&place.path) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(Failure::new(
                Exit::Failed,
                "no such image or device",
                place.path.display(),
                "make the file first, with 'truncate -s SIZE' and a partition table, say",
            )),
            Err(error) => Err(Failure::host(&error, "open", &place.path)),
        };
    }
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Err(Failure::new(
            Exit::Usage,
            "is a directory",
            path.display(),
            "give an image file or a block device",
        )),
        Ok(_) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Failure::host(&error, "open", path)),
    }
}

/// Fails if the image holds a volume or other data that formatting would destroy.
fn refuse_contents(path: &Path) -> Outcome {
    let advice = || {
        let name = match crate::remote::is_remote(path) {
            true => OsStr::new("the array"),
            false => &window::file_name(path),
        };
        let name = name.display();
        format!("use another image, or overwrite {name} with --force")
    };
    if !making::holds_data(path)? {
        return Ok(());
    }
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let what = match host::open_volume(path, host::Way::Cached, options) {
        Err(failure)
            if failure.exit == Exit::NotAVolume
                && [NotSteadfast.to_string(), FlashError::NotFormatted.to_string()]
                    .contains(&failure.what) =>
        {
            "the image is not empty"
        }
        // A damaged or newer volume counts as a volume too.
        _ => "the image already holds a Steadfast volume",
    };
    Err(Failure::new(Exit::Busy, what, path.display(), advice()))
}

fn format(
    path: &Path,
    medium: HostMedium,
    options: &FormatOptions,
) -> Outcome<steadfast::VolumeInfo> {
    let platform = HostPlatform::new();
    Volume::format(&medium, options, &platform)
        .map_err(|error| Failure::core(error, path.display()))?;
    drop(medium);
    // The result is read back, so that mkfs reports only what it has checked.
    let volume = host::open_volume(
        path,
        host::Way::Cached,
        OpenOptions { read_only: true, ..OpenOptions::default() },
    )?;
    let info = volume.info();
    volume.close().map_err(|error| Failure::core(error, path.display()))?;
    Ok(info)
}
