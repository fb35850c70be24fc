//! `steadfast remote servers` and `release`: the servers and arrays that etcd lists, and releasing
//! an array.

use std::path::Path;

use serde::Serialize;
use steadfast_remote::etcd::Listing;
use steadfast_remote::etcd::records::{ArrayRecord, Claims, OwnerRecord, ServerRecord};
use steadfast_remote::{EtcdAddress, RemoteMedium};

use crate::failure::Outcome;
use crate::output::{self, Output};
use crate::{remote, size};

/// A server, for JSON.
#[derive(Serialize)]
struct ListedServerJson<'a> {
    name: &'a str,
    /// Null if the server is gone and only claims are left.
    server: Option<&'a ServerRecord>,
    /// Unclaimed bytes.
    free: u64,
    /// Claims by array.
    claims: &'a Claims,
}

/// An array, for JSON.
#[derive(Serialize)]
struct ArrayJson<'a> {
    name: &'a str,
    #[serde(flatten)]
    array: &'a ArrayRecord,
    /// The process that has it open for writing.
    owner: Option<&'a OwnerRecord>,
}

#[derive(Serialize)]
struct ListingJson<'a> {
    servers: Vec<ListedServerJson<'a>>,
    arrays: Vec<ArrayJson<'a>>,
}

/// Shows the servers and arrays in etcd.
///
/// # Errors
/// Those of etcd.
pub fn servers(etcd: &EtcdAddress, json: bool) -> Outcome {
    let place = etcd.members.join(",");
    let listing = RemoteMedium::registered(etcd)
        .map_err(|error| remote::failure(&error, Path::new(&place)))?;
    if json {
        return output::json(&as_json(&listing));
    }
    let mut output = Output::new();
    for (name, server) in &listing.servers {
        let claims: Vec<String> = server
            .claims
            .value
            .iter()
            .map(|(array, claim)| format!("{array}/{} {}", claim.member, size::human(claim.size)))
            .collect();
        let claims = if claims.is_empty() { "unclaimed".to_owned() } else { claims.join(", ") };
        match &server.record {
            Some(record) => output.line(format_args!(
                "{name:<16} {:<24} {:>10}, {} unclaimed, {} in use  {claims}",
                record.address,
                size::human(record.size),
                size::human(server.free()),
                size::human(record.used),
            ))?,
            None => output.line(format_args!("{name:<16} gone  {claims}"))?,
        }
    }
    for (name, array) in &listing.arrays {
        let owner = listing.owners.get(name).map_or("not open".to_owned(), |owner| {
            format!("open on {}, process {}", owner.value.host, owner.value.process)
        });
        let array = &array.value;
        let members: Vec<&str> = array.members.iter().map(|place| place.server.as_str()).collect();
        output.line(format_args!(
            "array {name}: policy {}, on {}, epoch {}, opened {} times, {owner}",
            array.policy,
            members.join(", "),
            array.epoch,
            array.token,
        ))?;
    }
    if listing.servers.is_empty() && listing.arrays.is_empty() {
        output.line("no servers and no arrays")?;
    }
    output.finish()
}

fn as_json(listing: &Listing) -> ListingJson<'_> {
    let servers = listing.servers.iter().map(|(name, server)| ListedServerJson {
        name,
        server: server.record.as_ref(),
        free: server.free(),
        claims: &server.claims.value,
    });
    let arrays = listing.arrays.iter().map(|(name, array)| ArrayJson {
        name,
        array: &array.value,
        owner: listing.owners.get(name).map(|owner| &owner.value),
    });
    ListingJson { servers: servers.collect(), arrays: arrays.collect() }
}

/// Releases an array.
///
/// # Errors
/// Those of etcd, and an array that a process has open.
pub fn release(path: &Path) -> Outcome {
    let address = remote::address(path)?;
    RemoteMedium::release(&address).map_err(|error| remote::failure(&error, path))?;
    let mut output = Output::new();
    output.line(format_args!("{}: released", address.short()))?;
    output.finish()
}
