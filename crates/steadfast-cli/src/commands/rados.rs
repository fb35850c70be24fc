//! `steadfast rados`: what concerns an image in RADOS and not the volume on it.

use std::path::{Path, PathBuf};

use serde::Serialize;
use steadfast_rados::RadosMedium;

use crate::failure::{Exit, Failure, Outcome};
use crate::output::{self, Output};
use crate::{rados, size};

/// Look at, evict from or remove an image in Ceph's RADOS
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: RadosCommand,
}

#[derive(Debug, clap::Subcommand)]
enum RadosCommand {
    /// Show size and owner of an image; changes nothing
    Status {
        /// Address of the image, rados://POOL/NAME
        address: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Take an image away from the process that has it mounted
    ///
    /// RADOS refuses the requests of that process from then on, for a year, even if its machine was
    /// only stopped. What it has made durable stays; what it has not is lost, as by a power cut.
    Evict {
        /// Address of the image
        address: PathBuf,
    },
    /// Remove an image: everything on it is lost
    Remove {
        /// Address of the image
        address: PathBuf,
        /// Confirm the removal
        #[arg(long, required = true)]
        force: bool,
    },
}

/// The JSON document.
#[derive(Serialize)]
struct RadosStatusJson {
    size: u64,
    object_size: u64,
    owner: Option<OwnerJson>,
}

#[derive(Serialize)]
struct OwnerJson {
    host: String,
    process: u32,
}

/// Runs the command.
///
/// # Errors
/// What is wrong with the address, Ceph or the image.
pub fn run(args: &Args) -> Outcome {
    match &args.command {
        RadosCommand::Status { address, json } => status(address, *json),
        RadosCommand::Evict { address } => evict(address),
        RadosCommand::Remove { address, force: _ } => {
            rados::remove(address)?;
            output::line(format!("{}: removed", address.display()))
        }
    }
}

fn status(address: &Path, json: bool) -> Outcome {
    let status = RadosMedium::status(&rados::location(address)?)
        .map_err(|error| rados::failure(&error, address))?;
    if json {
        let owner =
            status.owner.map(|owner| OwnerJson { host: owner.host, process: owner.process });
        let document =
            RadosStatusJson { size: status.size, object_size: status.object_size, owner };
        return output::json(&document);
    }
    let mut output = Output::new();
    output.line(format!(
        "{}: {} in objects of {}",
        address.display(),
        size::human(status.size),
        size::human(status.object_size)
    ))?;
    output.line(match status.owner {
        Some(owner) => format!("open for writing by {owner}"),
        None => "not open for writing".to_owned(),
    })?;
    output.finish()
}

fn evict(address: &Path) -> Outcome {
    let evicted = RadosMedium::evict(&rados::location(address)?)
        .map_err(|error| rados::failure(&error, address))?;
    match evicted {
        Some(owner) => output::line(format!("{}: {owner} is evicted", address.display())),
        None => Err(Failure::new(
            Exit::Failed,
            "no process has the image open for writing",
            address.display(),
            "mount it",
        )),
    }
}
