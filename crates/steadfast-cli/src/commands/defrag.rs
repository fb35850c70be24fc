//! `steadfast defrag`: joins the fragments of files, on a mount or on an image.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use steadfast::Error;
use steadfast::fs::{Attributes, DefragmentCursor, FileKind, Fragmentation};
use steadfast_fuse::ioctl;

use crate::failure::{Failure, Outcome};
use crate::image::{Access, Image};
use crate::live::Live;
use crate::output::{self, Output};
use crate::target::Target;
use crate::volume_path::{self, LastLink};
use crate::walk::{Step, Walk};

/// Bring the blocks of files together
///
/// Works in bounded steps. Every file keeps its contents and its times at any moment, so the volume
/// can be in use. Freed space comes back with the next transaction points. Blocks that snapshots
/// hold stay where they are, so files can take more space afterwards.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Mount point, a file or directory on a mount, or an image that is not mounted
    #[arg(value_name = "IMAGE|DIR|FILE")]
    target: PathBuf,
    /// File or directory on the volume; the default is all of it
    #[arg(value_name = "PATH")]
    path: Option<PathBuf>,
    /// Only show the fragmentation; change nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Also list files that are in one piece, one per line
    #[arg(short, long)]
    verbose: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The result: what was found and done.
#[derive(Debug, Default, Serialize)]
struct Totals {
    files: u64,
    fragmented_before: u64,
    fragmented_after: u64,
    runs_before: u64,
    runs_after: u64,
    extents_before: u64,
    extents_after: u64,
}

impl Totals {
    fn add(&mut self, before: Fragmentation, after: Fragmentation) {
        self.files += 1;
        self.fragmented_before += u64::from(before.runs > 1);
        self.fragmented_after += u64::from(after.runs > 1);
        self.runs_before += before.runs;
        self.runs_after += after.runs;
        self.extents_before += before.extents;
        self.extents_after += after.extents;
    }
}

/// Runs the command.
///
/// # Errors
/// What is wrong with the target; those of the volume.
pub fn run(args: &Args) -> Outcome {
    let mut worker = Worker { args, output: Output::new(), totals: Totals::default() };
    let below_mount = fs::symlink_metadata(&args.target).is_ok_and(|metadata| metadata.is_file())
        && crate::mounts::holding(&args.target).is_ok_and(|mount| mount.is_some());
    if below_mount {
        let live = Live::open(&args.target)?;
        worker.mounted(&live, args.target.clone())?;
    } else {
        match Target::find(&args.target) {
            Ok(Target::Image(path)) => worker.image(&path)?,
            Ok(Target::Mounted(live)) => {
                let start = match &args.path {
                    Some(path) => live.directory().join(path.strip_prefix("/").unwrap_or(path)),
                    None if args.target.is_dir() => args.target.clone(),
                    None => live.directory().clone(),
                };
                worker.mounted(&live, start)?;
            }
            Err(failure) => {
                // The target is a directory on a mount that is not its root.
                let live = Live::open(&args.target).map_err(|_| failure)?;
                worker.mounted(&live, args.target.clone())?;
            }
        }
    }
    worker.finish()
}

struct Worker<'a> {
    args: &'a Args,
    output: Output,
    totals: Totals,
}

impl Worker<'_> {
    fn report(&mut self, path: &[u8], before: Fragmentation, after: Fragmentation) -> Outcome {
        self.totals.add(before, after);
        if self.args.json || !(self.args.verbose || before.runs > 1) {
            return Ok(());
        }
        self.output.name(path)?;
        self.output.line(match self.args.dry_run {
            true => format!(": {} runs, {} extents", before.runs, before.extents),
            false => format!(
                ": {} runs, now {}; {} extents, now {}",
                before.runs, after.runs, before.extents, after.extents
            ),
        })
    }

    fn finish(mut self) -> Outcome {
        if self.args.json {
            drop(self.output);
            return output::json(&self.totals);
        }
        let Totals { files, fragmented_before, fragmented_after, runs_before, runs_after, .. } =
            self.totals;
        self.output.line(match self.args.dry_run {
            true => format!("{files} files, {fragmented_before} of them in pieces, {runs_before} runs"),
            false => format!(
                "{files} files, {fragmented_before} of them were in pieces, now {fragmented_after}; {runs_before} runs, now {runs_after}"
            ),
        })?;
        self.output.finish()
    }

    fn image(&mut self, path: &Path) -> Outcome {
        let access = if self.args.dry_run { Access::Read } else { Access::Write };
        let image = Image::open(path, access)?;
        let start = self.args.path.as_deref().unwrap_or(Path::new("/")).as_os_str().as_bytes();
        let found = volume_path::resolve(&image.volume, start, LastLink::Follow)
            .map_err(|error| image.failure(error, start))?;
        match found.kind {
            FileKind::Directory => self.below(&image, start, found)?,
            FileKind::Regular => self.file_on_image(&image, start, found.inode)?,
            _ => {}
        }
        if !self.args.dry_run {
            let at_image = |error| image.failure(error, b"/");
            image.volume.checkpoint().map_err(at_image)?;
        }
        image.close()
    }

    fn below(&mut self, image: &Image, start: &[u8], directory: Attributes) -> Outcome {
        let mut walk = Walk::new(&image.volume, start, directory);
        while let Some(step) = walk.step().map_err(|stop| stop.failure(image.place(walk.path())))? {
            if let Step::Entry(_, attributes) = step
                && attributes.kind == FileKind::Regular
            {
                self.file_on_image(image, walk.path(), attributes.inode)?;
            }
        }
        Ok(())
    }

    fn file_on_image(
        &mut self,
        image: &Image,
        path: &[u8],
        inode: steadfast::InodeNumber,
    ) -> Outcome {
        let fail = |error: Error| image.failure(error, path);
        let before = image.volume.fragmentation(inode).map_err(fail)?;
        let mut after = before;
        if !self.args.dry_run && before.runs > 1 {
            let mut cursor = DefragmentCursor::default();
            while let Some(next) = image.volume.defragment_step(inode, cursor).map_err(fail)? {
                cursor = next;
            }
            // The next file needs the freed space.
            image.volume.checkpoint().map_err(fail)?;
            after = image.volume.fragmentation(inode).map_err(fail)?;
        }
        self.report(path, before, after)
    }

    fn mounted(&mut self, live: &Live, start: PathBuf) -> Outcome {
        let cannot = |error: &io::Error, path: &Path| Failure::host(error, "read", path);
        let device =
            live.file().metadata().map_err(|error| cannot(&error, live.directory()))?.dev();
        let mut pending = vec![start];
        while let Some(path) = pending.pop() {
            let metadata = match fs::symlink_metadata(&path) {
                Ok(metadata) => metadata,
                // Another process has removed the file meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound && self.totals.files > 0 => {
                    continue;
                }
                Err(error) => return Err(cannot(&error, &path)),
            };
            if metadata.dev() != device {
                continue;
            }
            if metadata.is_dir() {
                let mut names = fs::read_dir(&path)
                    .and_then(|entries| {
                        entries
                            .map(|entry| entry.map(|entry| entry.path()))
                            .collect::<io::Result<Vec<_>>>()
                    })
                    .map_err(|error| cannot(&error, &path))?;
                names.sort_unstable_by(|a, b| b.cmp(a));
                pending.append(&mut names);
            } else if metadata.is_file() {
                self.file_on_mount(live, &path)?;
            }
        }
        Ok(())
    }

    fn file_on_mount(&mut self, live: &Live, path: &Path) -> Outcome {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.totals.files > 0 => {
                return Ok(());
            }
            Err(error) => return Err(Failure::host(&error, "open", path)),
        };
        let fail = |error: io::Error| {
            let failure = live.failure(&error);
            Failure::new(failure.exit, failure.what, path.display(), failure.advice)
        };
        let before = ioctl::fragmentation(&file).map_err(fail)?;
        let mut after = before;
        if !self.args.dry_run && before.runs > 1 {
            let mut cursor = DefragmentCursor::default();
            while let Some(next) = ioctl::defragment_step(&file, cursor).map_err(fail)? {
                cursor = next;
            }
            // Makes freed space available. Refused to unprivileged users; they do not need it.
            let _ = ioctl::checkpoint(&file);
            after = ioctl::fragmentation(&file).map_err(fail)?;
        }
        self.report(path.as_os_str().as_bytes(), before, after)
    }
}
