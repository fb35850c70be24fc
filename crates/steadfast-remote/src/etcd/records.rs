//! Keys and values: JSON below one prefix, readable with `etcdctl get --prefix steadfast/`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Where everything is; the number is that of this layout.
pub const PREFIX: &str = "steadfast/1/";
/// Where arrays are that were released and have a log: not read with the rest.
pub const RELEASED_PREFIX: &str = "steadfast/1-released/";
/// Longest name of a server or an array.
const NAME_MAX: usize = 64;

/// A server, as long as its lease lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerRecord {
    /// Where it listens.
    pub address: String,
    /// Bytes that it lends in all.
    pub size: u64,
    /// Bytes that it lends to one array.
    pub quota: u64,
    /// Bytes in use.
    pub used: u64,
}

/// An array, until it is released.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayRecord {
    /// Identity, 32 hexadecimal digits; also the name of its export on every server.
    pub uuid: String,
    /// How blocks are spread, for people.
    pub policy: String,
    /// The newest client's.
    pub token: u32,
    /// The stamp of the newest superblock that has had consequences: the token of whoever wrote it.
    pub stamp: u64,
    /// Its epoch.
    pub epoch: u64,
    /// Bytes claimed of each member's server.
    pub size: u64,
    /// Where each member is.
    pub members: Vec<Place>,
    /// Somebody has kept a write-behind log of it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub logged: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // As serde calls it.
fn is_false(value: &bool) -> bool {
    !value
}

/// What is remembered of an array with a write-behind log that was released: a log may be all that
/// is left of it, and this says whether it is the newest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleasedRecord {
    /// The stamp of the newest superblock that had consequences.
    pub stamp: u64,
    /// Its epoch.
    pub epoch: u64,
}

impl ArrayRecord {
    /// What a superblock's [`order`](crate::array::Superblock::order) must not be below.
    pub fn order(&self) -> (u64, u64) {
        (self.stamp, self.epoch)
    }
}

/// Where a member is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Name of the server.
    pub server: String,
    /// Where it was when it was claimed.
    pub address: String,
}

/// Memory that an array has of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Which member of the array is there.
    pub member: usize,
    /// Bytes.
    pub size: u64,
}

/// All claims on a server, by the name of the array: one key, so that their sum is decided on at
/// once.
pub type Claims = BTreeMap<String, Claim>;

/// Who has an array open, as long as his lease lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerRecord {
    /// Name of the machine.
    pub host: String,
    /// Number of the process there.
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

/// Whether a server or an array can have this name.
///
/// # Errors
/// A line for people.
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
    // Plain structures with text keys: they always can be written.
    serde_json::to_string(record).unwrap_or_default()
}
