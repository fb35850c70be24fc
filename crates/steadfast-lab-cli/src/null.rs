//! `steadfast-lab null`: the daemon of the lab's target `null`. Only the lab and the scripts in
//! `bench/` start it.

use std::path::PathBuf;
use std::time::Duration;

use steadfast_fuse::{IoUring, MountOptions, null};
use steadfast_lab::target::NULL_READY;

use steadfast_cli::failure::{Failure, Outcome};
use steadfast_cli::output::line;
use steadfast_cli::size;

/// Serve a file system that keeps everything in memory and forgets it, until it is unmounted
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where to mount it
    directory: PathBuf,
    /// Most data that it holds
    #[arg(long, value_name = "SIZE", value_parser = size::parse, allow_hyphen_values = true)]
    size: u64,
    /// Time that each fsync takes
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0)]
    flush: u64,
    /// Number of threads, and so of flushes at one time [default: as a mount of Steadfast]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

/// Runs the command.
///
/// # Errors
/// It cannot be mounted, or the connection to the kernel broke.
pub fn run(args: &Args) -> Outcome {
    let mut options =
        MountOptions { allow_other: true, fs_name: "null".into(), ..MountOptions::default() };
    if let Some(threads) = args.threads {
        options.threads = threads;
        // Over io_uring the number of threads is that of the processors.
        options.io_uring = IoUring::Off;
    }
    let flush = Duration::from_micros(args.flush);
    let session = null::mount(&args.directory, args.size, flush, &options)
        .map_err(|error| Failure::host(&error, "mount on", &args.directory))?;
    line(NULL_READY)?;
    session.run().map_err(|error| Failure::host(&error, "serve", &args.directory))
}
