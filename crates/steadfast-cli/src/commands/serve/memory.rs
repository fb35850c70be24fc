//! `steadfast serve memory`: lends the memory of this machine.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use steadfast_remote::RemoteError;
use steadfast_remote::etcd::records::{ServerRecord, check_name};
use steadfast_remote::etcd::{Gateway, Registration};
use steadfast_remote::export::{Catalogue, GranuleSize, MemoryPool, PoolOptions};

use super::Listening;
use crate::etcd::EtcdTls;
use crate::failure::{Exit, Failure, Outcome};
use crate::{interval, remote, size};

/// How long a member of etcd may take to answer.
const ETCD_PATIENCE: Duration = Duration::from_secs(3);

/// Lend memory of this machine, taken as it is written
///
/// Each export name is a separate loan, made when the first client asks for it.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Most memory lent to all clients together
    #[arg(short, long, value_parser = size::parse, allow_hyphen_values = true)]
    size: u64,
    /// Most memory for one export name; the default is all of --size
    #[arg(long, value_parser = size::parse, allow_hyphen_values = true, value_name = "SIZE")]
    quota: Option<u64>,
    /// How long memory is kept after the last connection of its name has ended; by default until
    /// the server ends
    #[arg(long, value_parser = interval::parse_ms, value_name = "INTERVAL")]
    lease: Option<u32>,
    /// Most export names at one time
    #[arg(long, default_value_t = 64, value_name = "N")]
    names: usize,
    /// Take memory in huge pages, 2 MiB at a time
    #[arg(long)]
    huge_pages: bool,
    /// Members of etcd, separated by commas: the server registers there, and arrays claim its
    /// memory
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', requires = "name")]
    etcd: Vec<String>,
    #[command(flatten)]
    etcd_tls: EtcdTls,
    /// Name of this server in etcd
    #[arg(long, requires = "etcd")]
    name: Option<String>,
    /// Address that clients use, if it differs from the listening address
    #[arg(long, value_name = "HOST:PORT", requires = "etcd")]
    advertise: Option<String>,
    #[command(flatten)]
    listening: Listening,
}

/// Runs the command.
///
/// # Errors
/// An invalid size, and those of listening.
pub fn run(args: &Args) -> Outcome {
    // The quota is a multiple of 4 KiB, the largest block of clients: a remainder could not be read
    // as a whole block.
    let quota = args.quota.unwrap_or(args.size).min(args.size) & !0xfff;
    if quota == 0 || args.size > 1 << 50 {
        return Err(Failure::new(
            Exit::Usage,
            "no memory can be lent of this size",
            size::human(args.size),
            "give --size from 4K to 1P",
        ));
    }
    if let Some(name) = &args.name {
        check_name(name)
            .map_err(|line| Failure::new(Exit::Usage, line, "--name", "choose another name"))?;
    }
    let granules = if args.huge_pages { GranuleSize::Huge } else { GranuleSize::Small };
    granules.check().map_err(|why| {
        Failure::new(Exit::Failed, "no huge pages can be lent", why, "serve without --huge-pages")
    })?;
    let pool = Arc::new(MemoryPool::new(PoolOptions {
        limit: args.size,
        quota,
        lease: args.lease.map(|ms| Duration::from_millis(ms.into())),
        names_max: args.names.max(1),
        granules,
    }));
    let told = format!("{} of memory", size::human(args.size));
    let catalogue = Arc::clone(&pool) as Arc<dyn Catalogue>;
    args.listening.serve(catalogue, &told, |address| match &args.name {
        Some(name) => register(args, name, address, quota, pool).map(Some),
        None => Ok(None),
    })
}

/// Registers the server in etcd until the returned value is dropped.
fn register(
    args: &Args,
    name: &str,
    address: SocketAddr,
    quota: u64,
    pool: Arc<MemoryPool>,
) -> Outcome<Registration> {
    let place = args.etcd.join(",");
    let failure = |error: &RemoteError| remote::failure(error, Path::new(&place));
    if address.ip().is_unspecified() && args.advertise.is_none() {
        return Err(Failure::new(
            Exit::Usage,
            "clients cannot be told where the server is",
            address,
            "say it with --advertise HOST:PORT",
        ));
    }
    let address = args.advertise.clone().unwrap_or_else(|| address.to_string());
    let record = ServerRecord { address, size: args.size, quota, used: 0 };
    let gateway = Gateway::new(&args.etcd, &args.etcd_tls.files(), ETCD_PATIENCE)
        .map_err(|error| failure(&error.into()))?;
    Registration::start(gateway, name, record, move || pool.used())
        .map_err(|error| failure(&error.into()))
}
