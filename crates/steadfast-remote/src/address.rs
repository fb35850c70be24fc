//! Addresses of arrays: `remote://a:10809,b:10809?policy=mirror&…`, or `remote:///etc/array.toml` with the same words.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use crate::array::Policy;
use crate::server::TlsFiles;

/// How an address of an array begins.
pub const SCHEME: &str = "remote://";
/// The port of NBD.
const PORT: u16 = 10809;

/// An array, as people write it.
#[derive(Debug, Clone)]
pub struct Address {
    /// Servers, the spares last.
    pub servers: Vec<String>,
    /// How many of them are spares.
    pub spares: usize,
    /// How blocks are spread; only for a new array.
    pub policy: Option<Policy>,
    /// Name of the export on every server.
    pub export: String,
    /// Connections to each server.
    pub connections: usize,
    /// How long a server may take.
    pub timeout: Duration,
    /// After this time a read is made from other servers.
    pub hedge: Duration,
    /// Open without servers that might know better.
    pub degraded: bool,
    /// Bytes a second that a rebuild may write.
    pub rebuild_rate: u64,
    /// How long a member is lost before a spare takes its place.
    pub spare_after: Duration,
    /// Directory of the witness.
    pub witness: Option<PathBuf>,
    /// Certificates, where servers have TLS.
    pub tls: TlsFiles,
}

/// Whether this is an address of an array, and no path.
pub fn is_address(text: &str) -> bool {
    text.starts_with(SCHEME)
}

impl Address {
    /// The address with nothing but its servers, for messages.
    pub fn short(&self) -> String {
        format!("{SCHEME}{}", self.servers.join(","))
    }

    fn new(servers: Vec<String>) -> Address {
        Address {
            servers,
            spares: 0,
            policy: None,
            export: String::new(),
            connections: 4,
            timeout: Duration::from_millis(400),
            hedge: Duration::from_millis(50),
            degraded: false,
            rebuild_rate: 64 << 20,
            spare_after: Duration::from_secs(10),
            witness: None,
            tls: TlsFiles::default(),
        }
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let wrong = |what: &str| format!("'{key}={value}': {what}");
        let number = || value.parse::<u64>().map_err(|_| wrong("give a number"));
        let ms = || match value.strip_suffix("ms").unwrap_or(value).parse::<u64>() {
            Ok(ms @ 1..=600_000) => Ok(Duration::from_millis(ms)),
            _ => Err(wrong("give milliseconds, from 1 to 600000")),
        };
        match key {
            "policy" => self.policy = Some(Policy::from_str(value)?),
            "ec" => self.policy = Some(Policy::from_str(&format!("ec={value}"))?),
            "export" if value.len() <= crate::protocol::NAME_BYTES_MAX => self.export = value.to_owned(),
            "connections" => match number()? {
                count @ 1..=64 => self.connections = count as usize,
                _ => return Err(wrong("give a number from 1 to 64")),
            },
            "timeout" => self.timeout = ms()?,
            "hedge" => self.hedge = ms()?,
            "degraded" => self.degraded = value == "yes",
            "rate" => match number()? {
                0 => return Err(wrong("give MiB a second, at least 1")),
                rate => self.rebuild_rate = rate.saturating_mul(1 << 20),
            },
            "spare_after" => self.spare_after = ms()?,
            "spares" => self.spares = number()? as usize,
            "witness" => self.witness = Some(PathBuf::from(value)),
            "tls_ca" => self.tls.authorities = Some(PathBuf::from(value)),
            "tls_cert" => self.tls.certificate = Some(PathBuf::from(value)),
            "tls_key" => self.tls.key = Some(PathBuf::from(value)),
            _ => {
                return Err(format!(
                    "unknown word '{key}': there are policy, ec, export, connections, timeout, hedge, degraded, rate, \
                     spare, spares, spare_after, witness, tls_ca, tls_cert and tls_key"
                ));
            }
        }
        Ok(())
    }

    fn checked(self) -> Result<Address, String> {
        let members = self.servers.len().saturating_sub(self.spares);
        if members == 0 {
            return Err("no servers are given".to_owned());
        }
        if let Some(policy) = self.policy {
            policy.shards(members)?;
        }
        for (index, server) in self.servers.iter().enumerate() {
            if self.servers.iter().skip(index + 1).any(|other| other == server) {
                return Err(format!("server {server} is given twice"));
            }
        }
        Ok(self)
    }

    /// Reads a file with `servers = ["a:10809", …]` and the words of an address as keys.
    ///
    /// # Errors
    /// A line for people.
    pub fn from_file(path: &Path) -> Result<Address, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let table: BTreeMap<String, toml::Value> =
            toml::from_str(&text).map_err(|error| format!("{}: {}", path.display(), error.message()))?;
        let list = |key: &str| -> Vec<String> {
            let values = table.get(key).and_then(toml::Value::as_array).cloned().unwrap_or_default();
            values.iter().filter_map(|value| value.as_str().map(with_port)).collect()
        };
        let spares = list("spare");
        let mut address = Address::new(list("servers"));
        address.spares = spares.len();
        address.servers.extend(spares);
        for (key, value) in table.iter().filter(|(key, _)| !matches!(key.as_str(), "servers" | "spare")) {
            let value = match value {
                toml::Value::String(text) => text.clone(),
                toml::Value::Integer(number) => number.to_string(),
                toml::Value::Boolean(yes) => if *yes { "yes" } else { "no" }.to_owned(),
                _ => return Err(format!("{}: '{key}' is neither text nor a number", path.display())),
            };
            address.set(key, &value)?;
        }
        address.checked()
    }
}

/// A server with a port: that of NBD where none is given.
fn with_port(server: &str) -> String {
    let bare_v6 = server.starts_with('[') && server.ends_with(']');
    match server.rsplit_once(':') {
        Some((_, port)) if !bare_v6 && port.parse::<u16>().is_ok() => server.to_owned(),
        _ => format!("{server}:{PORT}"),
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let rest =
            text.strip_prefix(SCHEME).ok_or_else(|| format!("'{text}' does not begin with {SCHEME}"))?;
        let (servers, words) = rest.split_once('?').unwrap_or((rest, ""));
        let mut address = match servers.starts_with('/') {
            true => Address::from_file(Path::new(servers))?,
            false => {
                Address::new(servers.split(',').filter(|server| !server.is_empty()).map(with_port).collect())
            }
        };
        let mut spares = Vec::new();
        for word in words.split('&').filter(|word| !word.is_empty()) {
            match word.split_once('=') {
                Some(("spare", server)) => spares.push(with_port(server)),
                Some((key, value)) => address.set(key, value)?,
                None => return Err(format!("'{word}' has no value")),
            }
        }
        address.spares += spares.len();
        address.servers.extend(spares);
        address.checked()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let address: Address =
            "remote://a,b:1,[::1]:2?policy=parity&spare=c:3&timeout=900ms&degraded=yes&rate=5"
                .parse()
                .unwrap();
        assert_eq!(address.servers, ["a:10809", "b:1", "[::1]:2", "c:3"]);
        assert_eq!((address.spares, address.policy), (1, Some(Policy::Parity)));
        assert!(address.degraded && address.timeout == Duration::from_millis(900));
        assert_eq!(address.rebuild_rate, 5 << 20);
        let address: Address = "remote://a,b,c?policy=ec=2+1".parse().unwrap();
        assert_eq!(address.policy, Some(Policy::Erasure { data: 2, parity: 1 }));
    }

    #[test]
    fn nonsense_is_refused_with_a_reason() {
        for (text, part) in [
            ("remote://", "no servers"),
            ("remote://a?policy=mirror", "2 servers"),
            ("remote://a,a", "twice"),
            ("remote://a?colour=red", "unknown word"),
            ("remote://a?timeout=0", "milliseconds"),
            ("remote://a,b?policy", "no value"),
            ("file://a", "does not begin"),
            ("remote:///does/not/exist.toml", "No such file"),
        ] {
            let error = text.parse::<Address>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn files_say_the_same() {
        let path = std::env::temp_dir().join(format!("steadfast-address-{}.toml", std::process::id()));
        std::fs::write(&path, "servers = ['a', 'b:1']\nspare = ['c']\npolicy = 'mirror'\ntimeout = 700\n")
            .unwrap();
        let address = format!("remote://{}?export=x", path.display()).parse::<Address>().unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(address.servers, ["a:10809", "b:1", "c:10809"]);
        assert_eq!((address.spares, address.export.as_str()), (1, "x"));
        assert_eq!(address.timeout, Duration::from_millis(700));
    }
}
