//! Keys and values: JSON below one prefix, readable with `etcdctl get --prefix steadfast/`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Prefix of all keys; the number is the version of this layout.
pub const PREFIX: &str = "steadfast/1/";
/// Prefix of released arrays with a log, which are not read with the rest.
pub const RELEASED_PREFIX: &str = "steadfast/1-released/";
/// Longest name of a server or an array.
const NAME_MAX: usize = 64;

/// A server, as long as its lease lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerRecord {
    /// Address on which clients reach it.
    pub address: String,
    /// Bytes that it lends in all.
    pub size: u64,
    /// Most bytes that it lends to one array.
    pub quota: u64,
    /// Bytes in use.
    pub used: u64,
}

/// An array, until it is released.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayRecord {
    /// Identity, 32 hexadecimal digits; also the name of its export on every server.
    pub uuid: String,
    /// Policy, for display.
    pub policy: String,
    /// Token of the newest client.
    pub token: u32,
    /// Stamp of the newest superblock that has had consequences: the token of its writer.
    pub stamp: u64,
    /// Epoch of that superblock.
    pub epoch: u64,
    /// Bytes claimed of each member's server.
    pub size: u64,
    /// Server of each member.
    pub members: Vec<Place>,
    /// A client has kept a write-behind log of it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub logged: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // The signature that serde requires.
fn is_false(value: &bool) -> bool {
    !value
}

/// A released array with a write-behind log. The log may be the only copy left, and this record
/// tells whether it is the newest state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleasedRecord {
    /// Stamp of the newest superblock that has had consequences.
    pub stamp: u64,
    /// Epoch of that superblock.
    pub epoch: u64,
}

impl ArrayRecord {
    /// The lowest valid [`order`](crate::array::Superblock::order) of a superblock.
    pub fn order(&self) -> (u64, u64) {
        (self.stamp, self.epoch)
    }
}

/// Location of a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Name of the server.
    pub server: String,
    /// Its address when it was claimed.
    pub address: String,
}

/// Memory of a server that an array has claimed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The member on this server.
    pub member: usize,
    /// Claimed bytes.
    pub size: u64,
}

/// All claims on a server, by the name of the array. They share one key, so that one transaction
/// checks their sum.
pub type Claims = BTreeMap<String, Claim>;

/// The client that has an array open, as long as its lease lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerRecord {
    /// Name of the machine.
    pub host: String,
    /// Process ID on that machine.
    pub process: u32,
}

impl OwnerRecord {
    /// This process.
    pub fn this_process() -> OwnerRecord {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = if name.trim().is_empty() { "this machine" } else { name.trim() };
        OwnerRecord { host: host.to_owned(), process: std::process::id() }
    }
}

pub(super) fn server_key(name: &str) -> String {
    format!("{PREFIX}servers/{name}")
}

pub(super) fn claims_key(server: &str) -> String {
    format!("{PREFIX}claims/{server}")
}

pub(super) fn array_key(name: &str) -> String {
    format!("{PREFIX}arrays/{name}")
}

pub(super) fn released_key(uuid: &str) -> String {
    format!("{RELEASED_PREFIX}{uuid}")
}

pub(super) fn owner_key(array: &str) -> String {
    format!("{PREFIX}owners/{array}")
}

/// Checks a name of a server or an array.
///
/// # Errors
/// A message for the user.
pub fn check_name(name: &str) -> Result<(), String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    match (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(plain) {
        true => Ok(()),
        false => Err(format!(
            "'{name}' is no name: use 1 to {NAME_MAX} letters, digits, '.', '_' and '-'"
        )),
    }
}

pub(super) fn text<T: Serialize>(record: &T) -> String {
    // Plain structures with text keys can always be encoded.
    serde_json::to_string(record).unwrap_or_default()
}
