//! `steadfast serve memory`: lends the memory of this machine.

use std::sync::Arc;
use std::time::Duration;

use steadfast_remote::export::{MemoryPool, PoolOptions};

use super::Listening;
use crate::failure::{Exit, Failure, Outcome};
use crate::{interval, size};

/// Lend memory of this machine, taken as it is written
///
/// Each export name is a loan of its own, made when the first client asks for it.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Most memory lent to all clients together
    #[arg(short, long, value_parser = size::parse)]
    size: u64,
    /// Most memory for one export name; the default is all of --size
    #[arg(long, value_parser = size::parse, value_name = "SIZE")]
    quota: Option<u64>,
    /// How long memory is kept after the last connection of its name has ended; without it, until the server ends
    #[arg(long, value_parser = interval::parse_ms, value_name = "INTERVAL")]
    lease: Option<u32>,
    /// Most export names at a time
    #[arg(long, default_value_t = 64, value_name = "N")]
    names: usize,
    #[command(flatten)]
    listening: Listening,
}

/// Runs the command.
///
/// # Errors
/// A size that makes no sense, and those of listening.
pub fn run(args: &Args) -> Outcome {
    // Blocks of the largest size that clients use: what is left over could not be read whole.
    let quota = args.quota.unwrap_or(args.size).min(args.size) & !0xfff;
    if quota == 0 || args.size > 1 << 50 {
        return Err(Failure::new(
            Exit::Usage,
            "no memory can be lent of this size",
            size::human(args.size),
            "give --size from 4K to 1P",
        ));
    }
    let pool = MemoryPool::new(PoolOptions {
        limit: args.size,
        quota,
        lease: args.lease.map(|ms| Duration::from_millis(ms.into())),
        names_max: args.names.max(1),
    });
    let told = format!("{} of memory", size::human(args.size));
    args.listening.serve(Arc::new(pool), &told)
}
