//! `steadfast clone`: copies a file by sharing its blocks, or fails.
//!
//! copy_file_range(2) does the work. On a mount it shares every whole block that has the same
//! offset within a block in both files. The kernel updates sizes, times, permissions and cached
//! pages for this call. It would not do so for an ioctl, because FUSE has no message for that.
//!
//! `cp` uses the same call, but silently copies blocks that cannot be shared. This command refuses
//! to copy them.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::fs::{CWD, OFlags, RenameFlags, copy_file_range, renameat_with};
use rustix::io::Errno;
use steadfast_fuse::ioctl;
use steadfast_host::hold_replaced;

use crate::failure::{Exit, Failure, Outcome};
use crate::mounts::{self, Mount};
use crate::{open_failure, size};

/// Copy a file on a mount by sharing its blocks
///
/// Needs no space for data, and takes a moment at any size. Afterwards each file changes alone.
/// Both files must be on the same mounted volume. The clone appears under its name when it is
/// complete. `cp` shares blocks where it can; this command shares them or says why it cannot.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The file
    #[arg(value_name = "SRC")]
    source: PathBuf,
    /// Name of the clone; with --range, the file that changes
    #[arg(value_name = "DST")]
    target: PathBuf,
    /// Replace DST if it exists
    #[arg(short, long, conflicts_with = "range")]
    force: bool,
    /// Only this part of SRC, into DST at the same offset or at TO: multiples of the block size,
    /// except for SRC's end
    #[arg(long, value_name = "OFFSET:LENGTH[:TO]")]
    range: Option<Range>,
}

/// A range of a file and its destination, in bytes.
#[derive(Debug, Clone, Copy)]
struct Range {
    from: u64,
    length: u64,
    to: u64,
}

impl FromStr for Range {
    type Err = String;

    fn from_str(text: &str) -> Result<Range, String> {
        let parts: Vec<u64> = text.split(':').map(size::parse).collect::<Result<_, _>>()?;
        match parts[..] {
            [from, length] => Ok(Range { from, length, to: from }),
            [from, length, to] => Ok(Range { from, length, to }),
            _ => Err(format!(
                "'{text}' is not a range: write OFFSET:LENGTH or OFFSET:LENGTH:TO, such as 0:1MiB"
            )),
        }
    }
}

/// Runs the command; it prints nothing on success.
///
/// # Errors
/// What is wrong with the files; those of the volume.
pub fn run(args: &Args) -> Outcome {
    let source = open_regular(&args.source, OpenOptions::new().read(true))?;
    let mount = mount_of(&args.source)?;
    let inside = mounts::absolute(&args.source).ok();
    if inside.is_some_and(|path| path.starts_with(mount.directory.join(".snapshots"))) {
        return Err(Failure::new(
            Exit::Failed,
            "blocks of a snapshot cannot be shared with live files",
            args.source.display(),
            "copy it with cp",
        ));
    }
    if mount_of(&args.target)? != mount {
        return Err(Failure::new(
            Exit::Failed,
            "the files are on different volumes",
            args.target.display(),
            "blocks can be shared within one volume: copy it with cp",
        ));
    }
    match args.range {
        Some(range) => clone_range(args, &source, range),
        None => clone_whole(args, &source),
    }
}

fn clone_whole(args: &Args, source: &File) -> Outcome {
    let target = &args.target;
    if let Ok(found) = fs::symlink_metadata(target) {
        let advice = if found.is_dir() {
            "name a file in it"
        } else {
            "choose another name, or use --force"
        };
        if found.is_dir() || !args.force {
            return Err(Failure::new(Exit::Failed, "it exists already", target.display(), advice));
        }
        if !found.is_file() && !found.is_symlink() {
            let what = "a device, FIFO or socket is in the way";
            let advice = "remove it or choose another name";
            return Err(Failure::new(Exit::Failed, what, target.display(), advice));
        }
    }
    let metadata =
        source.metadata().map_err(|error| Failure::host(&error, "read", &args.source))?;
    let (Some(name), parent) = (target.file_name(), target.parent().unwrap_or(Path::new("")))
    else {
        return Err(Failure::new(
            Exit::Usage,
            "no name for the clone",
            target.display(),
            "name a file",
        ));
    };
    let mut unfinished = std::ffi::OsString::from(format!(".clone-{}-", std::process::id()));
    unfinished.push(name);
    // A name of full length leaves no room for the prefix.
    unfinished = if unfinished.len() > 255 {
        format!(".clone-{}", std::process::id()).into()
    } else {
        unfinished
    };
    let unfinished = parent.join(unfinished);
    let mut options = OpenOptions::new();
    let options = options.write(true).create_new(true).mode(metadata.permissions().mode() & 0o777);
    let clone =
        options.open(&unfinished).map_err(|error| Failure::host(&error, "create", target))?;
    let whole = Range { from: 0, length: metadata.len(), to: 0 };
    let made =
        share(source, &clone, whole).map_err(|error| failure(&error, target)).and_then(|()| {
            let flags = if args.force { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
            let _held = hold_replaced(target)
                .map_err(|error| open_failure::of_destination(&error, target))?;
            renameat_with(CWD, &unfinished, CWD, target, flags)
                .map_err(|errno| Failure::host(&errno.into(), "name the clone", target))
        });
    if made.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
    made
}

fn clone_range(args: &Args, source: &File, range: Range) -> Outcome {
    let host = |error: &io::Error| Failure::host(error, "open", &args.target);
    let target = open_regular(&args.target, OpenOptions::new().write(true))?;
    let (from, to) = (
        source.metadata().map_err(|error| host(&error))?,
        target.metadata().map_err(|error| host(&error))?,
    );
    let block = ioctl::info(source).map_err(|error| host(&error))?.block_size;
    let wrong =
        |what: String, advice: &str| Failure::new(Exit::Usage, what, args.source.display(), advice);
    let ends = (range.from.checked_add(range.length), range.to.checked_add(range.length));
    let (Some(end), Some(to_end)) = ends else {
        return Err(wrong("the range is longer than any file".into(), "give a smaller one"));
    };
    if end > from.size() {
        let what = format!("the range ends at byte {end}, the file at {}", from.size());
        return Err(wrong(what, "give a smaller one"));
    }
    let whole = |bytes: u64| bytes.is_multiple_of(u64::from(block));
    let at_end = end == from.size() && to_end >= to.size();
    if !whole(range.from) || !whole(range.to) || !(whole(range.length) || at_end) {
        let what = format!("the range is not one of whole blocks of {block} bytes");
        return Err(wrong(what, "round it to blocks, or copy it with cp"));
    }
    let same = (from.dev(), from.ino()) == (to.dev(), to.ino());
    if same && range.from.abs_diff(range.to) < range.length {
        return Err(wrong("the two ranges overlap".into(), "give ranges that do not"));
    }
    share(source, &target, range).map_err(|error| failure(&error, &args.target))
}

/// Shares the range. The range may vanish if another process shortens the file meanwhile.
fn share(source: &File, target: &File, range: Range) -> io::Result<()> {
    let (mut from, mut to, mut left) = (range.from, range.to, range.length);
    while left > 0 {
        let length = usize::try_from(left).unwrap_or(usize::MAX);
        match copy_file_range(source, Some(&mut from), target, Some(&mut to), length) {
            Ok(0) => return Err(io::Error::other("the file became shorter meanwhile")),
            Ok(count) => left = left.saturating_sub(count as u64),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

fn failure(error: &io::Error, target: &Path) -> Failure {
    match Errno::from_io_error(error) {
        Some(Errno::NOSPC) => Failure::new(
            Exit::NoSpace,
            "no space left on the volume",
            target.display(),
            "delete something",
        ),
        _ => Failure::host(error, "share blocks", target),
    }
}

/// Opens a regular file. The open of a FIFO would wait for its other end.
fn open_regular(path: &Path, options: &mut OpenOptions) -> Outcome<File> {
    let cannot = |error: io::Error| Failure::host(&error, "open", path);
    regular(&fs::metadata(path).map_err(cannot)?, path)?;
    // The name may belong to another file by now.
    let file = options.custom_flags(OFlags::NONBLOCK.bits() as i32).open(path).map_err(cannot)?;
    regular(&file.metadata().map_err(cannot)?, path)?;
    Ok(file)
}

fn regular(metadata: &Metadata, path: &Path) -> Outcome {
    if metadata.is_file() {
        return Ok(());
    }
    let what = if metadata.is_dir() { "this is a directory" } else { "this is not a regular file" };
    Err(Failure::new(
        Exit::Failed,
        what,
        path.display(),
        "clone the files one by one, or use cp -r",
    ))
}

fn mount_of(path: &Path) -> Outcome<Mount> {
    let mount = mounts::holding(path)
        .map_err(|error| Failure::host(&error, "read", Path::new("/proc/self/mountinfo")))?;
    mount.ok_or_else(|| {
        Failure::new(
            Exit::NotAVolume,
            "no Steadfast volume is mounted here",
            path.display(),
            "copy it with cp",
        )
    })
}
