//! Requests to etcd's JSON gateway and its answers: bytes in base64, 64-bit numbers as text, zeros
//! left out.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::store::{Change, Entry, StoreError, Transaction};

fn base64(text: &str) -> String {
    STANDARD.encode(text)
}

/// A range of keys: those that begin with `prefix`.
pub(super) fn range(prefix: &str) -> Value {
    // Keys are ASCII, so the last byte can always be incremented.
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last = last.saturating_add(1);
    }
    json!({ "key": base64(prefix), "range_end": STANDARD.encode(end) })
}

/// A transaction.
pub(super) fn transaction(transaction: &Transaction) -> Value {
    let compare: Vec<Value> = transaction
        .conditions
        .iter()
        .map(|(key, revision)| {
            json!({ "key": base64(key), "target": "MOD", "result": "EQUAL", "mod_revision": revision.to_string() })
        })
        .collect();
    let success: Vec<Value> = transaction
        .changes
        .iter()
        .map(|change| match change {
            Change::Put(key, value, lease) => json!({ "request_put":
                { "key": base64(key), "value": base64(value), "lease": lease.to_string() } }),
            Change::Delete(key) => json!({ "request_delete_range": { "key": base64(key) } }),
        })
        .collect();
    json!({ "compare": compare, "success": success })
}

/// Decodes a 64-bit number: text, or a number from a gateway that differs.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::String(text) => text.parse().map_err(D::Error::custom),
        Value::Number(number) => {
            number.as_i64().ok_or_else(|| D::Error::custom("a number too large"))
        }
        _ => Err(D::Error::custom("no number")),
    }
}

/// Every answer of etcd has a header; without one, another program has answered.
#[derive(Deserialize)]
pub(super) struct Header {}

#[derive(Deserialize)]
struct KeyValue {
    key: String,
    #[serde(default)]
    value: String,
    #[serde(deserialize_with = "number")]
    mod_revision: i64,
    #[serde(default, deserialize_with = "number")]
    lease: i64,
}

#[derive(Deserialize)]
pub(super) struct RangeAnswer {
    #[serde(rename = "header")]
    _header: Header,
    #[serde(default)]
    kvs: Vec<KeyValue>,
}

impl RangeAnswer {
    pub(super) fn entries(self) -> Result<Vec<Entry>, StoreError> {
        let text = |text: &str| {
            let bytes = STANDARD.decode(text).ok()?;
            String::from_utf8(bytes).ok()
        };
        let entry = |found: KeyValue| {
            let entry = Entry {
                key: text(&found.key)?,
                value: text(&found.value)?,
                revision: found.mod_revision,
                lease: found.lease,
            };
            (entry.revision > 0).then_some(entry)
        };
        let entries: Option<Vec<Entry>> = self.kvs.into_iter().map(entry).collect();
        entries.ok_or_else(|| StoreError::Garbled("a key or value that is none of ours".to_owned()))
    }
}

#[derive(Deserialize)]
pub(super) struct TransactionAnswer {
    #[serde(rename = "header")]
    _header: Header,
    #[serde(default)]
    pub(super) succeeded: bool,
}

#[derive(Deserialize)]
pub(super) struct GrantAnswer {
    #[serde(rename = "ID", deserialize_with = "number")]
    pub(super) id: i64,
}

/// The first message of a stream.
#[derive(Deserialize)]
pub(super) struct RenewAnswer {
    pub(super) result: Renewed,
}

#[derive(Deserialize)]
pub(super) struct Renewed {
    /// Absent if the lease has ended.
    #[serde(rename = "TTL", default, deserialize_with = "number")]
    pub(super) ttl: i64,
}

#[derive(Deserialize)]
pub(super) struct RevokeAnswer {
    #[serde(rename = "header")]
    _header: Header,
}

/// Contents of an error answer.
#[derive(Deserialize)]
pub(super) struct ErrorAnswer {
    pub(super) error: String,
    #[serde(default)]
    pub(super) code: i64,
}

/// Decodes an answer.
pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, StoreError> {
    serde_json::from_slice(bytes).map_err(|error| StoreError::Garbled(error.to_string()))
}
