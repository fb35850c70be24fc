//! `steadfast remote`: the state of an array's servers, and maintenance of an array that is not
//! mounted.

mod listed;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use steadfast_remote::array::{ArrayError, State};
use steadfast_remote::{Latency, Live, LogReport, RemoteMedium, ServerReport};

use crate::etcd::{self, EtcdTls};
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{self, Output};
use crate::{remote, report, size};

/// Look at, rebuild, drain or release the servers of an array of remote memory
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: RemoteCommand,
}

#[derive(Debug, clap::Subcommand)]
enum RemoteCommand {
    /// What each server says and, if this machine has the array open, what it is doing; changes
    /// nothing
    ///
    /// Fails if no array answers, or too little of one for it to be opened.
    Status {
        /// Address of the array, such as remote://a:10809,b:10809
        address: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Rebuild what is lost, on its own server or a spare; a mount does this by itself
    Rebuild {
        /// Address of the array
        address: PathBuf,
    },
    /// Empty a server of an array that is not mounted: a spare of the address takes its place
    Drain {
        /// Address of the array, with spare=HOST:PORT
        address: PathBuf,
        /// Member, as 'status' numbers them
        member: usize,
    },
    /// All servers are lost: rebuild the array from its write-behind log, on servers that hold
    /// none
    Restore {
        /// Address of the new array, with log=PATH and, as for mkfs, its policy
        address: PathBuf,
        /// Also use a log that is older than promised, and servers that hold an array
        #[arg(long)]
        force: bool,
    },
    /// List the servers and arrays that etcd knows, and what each array claims of each server
    Servers {
        /// Members of etcd, separated by commas
        #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', required = true)]
        etcd: Vec<String>,
        #[command(flatten)]
        tls: EtcdTls,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Give up an array that etcd knows: everything in it is lost, and its memory is free for
    /// others
    Release {
        /// Address of the array, remote+etcd://HOST:PORT/NAME; with ?takeover=yes also while it is
        /// open
        address: PathBuf,
        /// Confirm the release
        #[arg(long, required = true)]
        force: bool,
    },
}

/// A server, for JSON.
#[derive(Serialize)]
struct ServerStatusJson {
    address: String,
    size: Option<u64>,
    error: Option<String>,
    uuid: Option<String>,
    member: Option<usize>,
    epoch: Option<u64>,
    session: Option<u32>,
    state: &'static str,
    /// This server is a spare for a lost member.
    spare: bool,
}

/// The JSON document.
#[derive(Serialize)]
struct ArrayStatusJson {
    servers: Vec<ServerStatusJson>,
    /// Null if no process of this machine has the array open.
    live: Option<Live>,
}

/// Runs the command.
///
/// # Errors
/// What is wrong with the address, the servers or the array.
pub fn run(args: &Args) -> Outcome {
    match &args.command {
        RemoteCommand::Status { address, json } => status(address, *json),
        RemoteCommand::Rebuild { address } => rebuild(address, None),
        RemoteCommand::Drain { address, member } => rebuild(address, Some(*member)),
        RemoteCommand::Restore { address, force } => restore(address, *force),
        RemoteCommand::Servers { etcd, tls, json } => {
            listed::servers(&etcd::cluster(etcd, tls), *json)
        }
        RemoteCommand::Release { address, force: _ } => listed::release(address),
    }
}

/// The state of a server, judged by the newest superblock of all servers.
fn state_of(own: &ServerReport, all: &[ServerReport]) -> &'static str {
    let newest = all
        .iter()
        .filter_map(|report| report.superblock.as_ref())
        .max_by_key(|found| found.order());
    match (&own.contact, &own.superblock, newest) {
        (Err(_), ..) => "unreachable",
        (Ok(_), None, _) => "empty",
        (Ok(_), Some(own), Some(newest)) if own.uuid != newest.uuid => "of another array",
        (Ok(_), Some(own), Some(newest)) => match newest.states.get(own.index) {
            Some(State::Good) if own.keeps_up_with(newest) => "good",
            Some(State::Rebuilding) if own.keeps_up_with(newest) => "being rebuilt",
            Some(State::Lost) => "lost",
            _ => "stale",
        },
        _ => "unknown",
    }
}

fn status(path: &Path, json: bool) -> Outcome {
    let address = remote::address(path)?;
    let reports = RemoteMedium::look(&address).map_err(|error| remote::failure(&error, path))?;
    // The spares of an address come last.
    let members = reports.len().saturating_sub(address.spares);
    let servers: Vec<ServerStatusJson> = reports
        .iter()
        .enumerate()
        .map(|(index, own)| {
            let superblock = own.superblock.as_ref();
            ServerStatusJson {
                address: own.address.clone(),
                size: own.contact.as_ref().ok().copied(),
                error: own.contact.as_ref().err().cloned(),
                uuid: superblock.map(|found| report::uuid_text(&found.uuid)),
                member: superblock.map(|found| found.index),
                epoch: superblock.map(|found| found.epoch),
                session: superblock.map(|found| found.session),
                state: state_of(own, &reports),
                spare: index >= members && superblock.is_none(),
            }
        })
        .collect();
    let live = RemoteMedium::live(&address);
    let log = RemoteMedium::log_report(&address).map_err(|error| remote::failure(&error, path))?;
    let newest = reports
        .iter()
        .filter_map(|report| report.superblock.as_ref())
        .max_by_key(|found| found.order());
    let good = servers.iter().filter(|server| server.state == "good").count();
    let silent = servers.iter().filter(|server| server.error.is_some()).count();
    let verdict = match newest {
        None if silent > 0 => Err(ArrayError::Silent { silent, servers: servers.len() }),
        Some(found) if good < found.needed() => Err(ArrayError::TooManyLost),
        _ => Ok(()),
    };
    let verdict = verdict.map_err(|error| remote::failure(&error.into(), path));
    if json {
        return output::json(&ArrayStatusJson { servers, live }).and(verdict);
    }
    let mut output = Output::new();
    match newest {
        Some(found) => {
            let good = found.states.iter().filter(|state| **state == State::Good).count();
            output.line(format_args!(
                "array {}: policy {}, {} of {} members good, epoch {}, opened {} times",
                report::uuid_text(&found.uuid),
                found.policy(),
                good,
                found.states.len(),
                found.epoch,
                found.session,
            ))?;
        }
        None if silent == servers.len() => output.line("no server answers")?,
        None if silent > 0 => output.line("no array on the servers that answer")?,
        None => output.line("no array on these servers")?,
    }
    for server in &servers {
        let member = server.member.map_or("-".to_owned(), |member| member.to_string());
        let state =
            if server.spare { format!("spare, {}", server.state) } else { server.state.to_owned() };
        let lent = server.size.map_or("-".to_owned(), size::human);
        let error = server.error.as_deref().map(|error| format!(" ({error})")).unwrap_or_default();
        output
            .line(format_args!("{member:>3}  {:<24} {lent:>10}  {state}{error}", server.address))?;
    }
    match (live, log) {
        (Some(live), _) => print_live(&live, &mut output)?,
        (None, Some(log)) => print_log(&log, &mut output)?,
        (None, None) => {}
    }
    output.finish().and(verdict)
}

/// Prints the report on a log that is not in use.
fn print_log(log: &LogReport, output: &mut Output) -> Outcome {
    let state = match (&log.failed, log.time_ms) {
        (Some(why), _) => format!("FAILED: {why}"),
        (None, Some(time)) => format!("can be restored as it was flushed {}", age(time)),
        (None, None) => "was never complete, nothing can be restored".to_owned(),
    };
    output.line(format_args!("write-behind log of array {}: {state}", log.uuid))
}

/// Prints the activity of an open array, in lines.
fn print_live(live: &Live, output: &mut Output) -> Outcome {
    let state = match (live.failed, live.degraded) {
        _ if live.fenced => "FENCED: another client has opened the array",
        (true, _) if live.etcd.is_some() => "FAILED until etcd answers",
        (true, _) => "FAILED: more servers are lost than the policy survives",
        (false, true) => "degraded",
        (false, false) => "whole",
    };
    output.line(format_args!(
        "open on this machine: {state}, epoch {}, {} lost so far, {} of {} segments free",
        live.epoch, live.losses, live.segments_free, live.segments,
    ))?;
    if let Some(trouble) = &live.etcd {
        output.line(format_args!("an epoch cannot begin: {trouble}"))?;
    }
    if let Some(log) = &live.log {
        let percent = u64::from(log.copied) * 100 / u64::from(log.blocks.max(1));
        let state = match (&log.error, log.state.as_str()) {
            (Some(why), _) => format!("FAILED: {why}"),
            (None, "copying") => format!("copying, {percent} %, nothing to restore yet"),
            (None, state) => format!("{state}, flushed {}", age(log.time_ms)),
        };
        output.line(format_args!(
            "write-behind log {}: {state}, {} of at most {} behind",
            log.path,
            size::human(log.behind),
            size::human(log.bound),
        ))?;
    }
    if let Some(rebuild) = &live.rebuild {
        let percent = u64::from(rebuild.done) * 100 / u64::from(rebuild.segments.max(1));
        output.line(format_args!(
            "rebuilding member {}: {percent} %, {} written, {} a second",
            rebuild.member,
            size::human(rebuild.bytes),
            size::human(rebuild.rate),
        ))?;
    }
    output.line(format_args!(
        "hedged reads {}, blocks computed from others {}, put right {}, segments cleaned {}, \
         blocks moved {}, of those from memory {}, held {}",
        live.hedged,
        live.reconstructed,
        live.repaired,
        live.cleaned,
        live.moved,
        live.packed,
        live.held,
    ))?;
    let mut row = |name: &str, latency: &Latency, bytes: Option<u64>| {
        let bytes = bytes.map_or("-".to_owned(), size::human);
        output.line(format_args!(
            "{name:<8} {:>10} {bytes:>10}   p50 {}, p99 {}, longest {}",
            latency.count,
            milliseconds(latency.p50_us),
            milliseconds(latency.p99_us),
            milliseconds(latency.longest_us),
        ))
    };
    row("reads", &live.read_latency, Some(live.read_bytes))?;
    row("writes", &live.write_latency, Some(live.written_bytes))?;
    row("flushes", &live.flush_latency, None)
}

/// A time with about three digits, for easy comparison.
fn milliseconds(microseconds: u64) -> String {
    match microseconds as f64 / 1000.0 {
        time if time < 10.0 => format!("{time:.2} ms"),
        time if time < 100.0 => format!("{time:.1} ms"),
        time => format!("{time:.0} ms"),
    }
}

/// The age of a moment, as text.
fn age(time_ms: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let ago = now.saturating_sub(Duration::from_millis(time_ms)).as_secs();
    match ago {
        0..120 => format!("{ago} s ago"),
        120..7200 => format!("{} min ago", ago / 60),
        _ => format!("{} h ago", ago / 3600),
    }
}

/// Rebuilds the array from its log.
fn restore(path: &Path, force: bool) -> Outcome {
    let address = remote::address(path)?;
    let restored = remote::restore(path, force)?;
    let mut output = Output::new();
    output.line(format_args!(
        "{}: restored as it was flushed {}, {} copied",
        address.short(),
        age(restored.time_ms),
        size::human(restored.bytes),
    ))?;
    output.finish()
}

/// Opens the array, removes `drained` from it, and waits until everything is rebuilt.
fn rebuild(path: &Path, drained: Option<usize>) -> Outcome {
    let mut address = remote::address(path)?;
    // This command must not wait until the member's own server comes back.
    address.spare_after = Duration::from_millis(1);
    let medium = RemoteMedium::open(&address).map_err(|error| remote::failure(&error, path))?;
    if let Some(member) = drained {
        if member >= medium.status().0.members.len() {
            return Err(Failure::new(
                Exit::Usage,
                format!("there is no member {member}"),
                path.display(),
                "see 'steadfast remote status'",
            ));
        }
        medium.drain(member).map_err(|error| remote::failure(&error, path))?;
    }
    let mut idle = 0;
    loop {
        let (status, progress) = medium.status();
        let open = status.members.iter().filter(|(state, _)| *state != State::Good).count();
        if open == 0 {
            let mut output = Output::new();
            output.line(format_args!(
                "{}: all {} members are good",
                address.short(),
                status.members.len()
            ))?;
            return output.finish();
        }
        match progress {
            Some(done) => {
                idle = 0;
                eprintln!("steadfast: rebuilding: {done} of {} segments", status.segments.1);
            }
            None => idle += 1,
        }
        if status.failed || idle > 10 {
            return Err(Failure::new(
                Exit::Degraded,
                format!("{open} member(s) cannot be rebuilt"),
                path.display(),
                "start their servers, or give a spare with spare=HOST:PORT",
            ));
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}
