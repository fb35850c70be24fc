//! Addresses of arrays: `remote://a:10809,b:10809?policy=mirror&…`, or
//! `remote+etcd://host:2379/NAME?…` if etcd lists the servers. `remote:///etc/array.toml` reads the
//! same words from a file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use crate::array::Policy;
use crate::etcd::records::check_name;
use crate::server::TlsFiles;

/// Scheme of an address that lists servers.
pub const SCHEME: &str = "remote://";
/// Scheme of an address whose servers etcd lists.
pub const SCHEME_ETCD: &str = "remote+etcd://";
/// Default port of NBD.
const PORT: u16 = 10809;

/// Address of an array, with its options.
#[derive(Debug, Clone)]
pub struct Address {
    /// Servers, the spares last.
    pub servers: Vec<String>,
    /// Number of spares among them.
    pub spares: usize,
    /// Policy of a new array.
    pub policy: Option<Policy>,
    /// Name of the export on every server.
    pub export: String,
    /// Connections to each server.
    pub connections: usize,
    /// Time limit for an answer of a server.
    pub timeout: Duration,
    /// Time after which a read is made from other servers.
    pub hedge: Duration,
    /// Longest time that a request of a dead client may be in flight.
    pub late: Duration,
    /// Open without servers that might hold a later state.
    pub degraded: bool,
    /// Bytes of partly filled stripes to keep in memory.
    pub hold: u64,
    /// Bytes a second that a rebuild may write.
    pub rebuild_rate: u64,
    /// Time from the loss of a member until a spare takes its place.
    pub spare_after: Duration,
    /// File or block device of the write-behind log.
    pub log: Option<PathBuf>,
    /// The array is used without its write-behind log.
    pub log_left: bool,
    /// Bytes that the log may be behind.
    pub log_behind: u64,
    /// Directory of the witness.
    pub witness: Option<PathBuf>,
    /// Certificates, if the servers use TLS.
    pub tls: TlsFiles,
    /// The etcd cluster that lists the servers; then the address lists none.
    pub etcd: Option<EtcdAddress>,
}

/// An etcd cluster, and the name of an array in it.
#[derive(Debug, Clone)]
pub struct EtcdAddress {
    /// Members of the etcd cluster.
    pub members: Vec<String>,
    /// Name of the array.
    pub array: String,
    /// Certificates, if etcd uses TLS.
    pub tls: TlsFiles,
    /// Servers of a new array; by default the fewest that its policy needs.
    pub count: Option<usize>,
    /// Open although another client has the array open, and fence that client.
    pub takeover: bool,
    /// How long an operation that needs a new epoch waits for etcd.
    pub wait: Duration,
}

impl EtcdAddress {
    /// An array with this name.
    pub fn new(members: Vec<String>, array: &str) -> EtcdAddress {
        EtcdAddress {
            members,
            array: array.to_owned(),
            tls: TlsFiles::default(),
            count: None,
            takeover: false,
            wait: Duration::from_secs(60),
        }
    }
}

/// Whether this text is an address of an array, and not a path.
pub fn is_address(text: &str) -> bool {
    text.starts_with(SCHEME) || text.starts_with(SCHEME_ETCD)
}

impl Address {
    /// The address with only its servers, for messages.
    pub fn short(&self) -> String {
        match &self.etcd {
            Some(etcd) => format!("{SCHEME_ETCD}{}/{}", etcd.members.join(","), etcd.array),
            None => format!("{SCHEME}{}", self.servers.join(",")),
        }
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
            late: Duration::from_secs(2),
            degraded: false,
            hold: 16 << 20,
            rebuild_rate: 64 << 20,
            spare_after: Duration::from_secs(10),
            log: None,
            log_left: false,
            log_behind: 64 << 20,
            witness: None,
            tls: TlsFiles::default(),
            etcd: None,
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
            "export" if value.len() <= crate::protocol::NAME_BYTES_MAX => {
                self.export = value.to_owned()
            }
            "connections" => match number()? {
                count @ 1..=64 => self.connections = count as usize,
                _ => return Err(wrong("give a number from 1 to 64")),
            },
            "timeout" => self.timeout = ms()?,
            "hedge" => self.hedge = ms()?,
            "late" => match value.strip_suffix("ms").unwrap_or(value).parse::<u64>() {
                Ok(ms @ 0..=60_000) => self.late = Duration::from_millis(ms),
                _ => return Err(wrong("give milliseconds, from 0 to 60000")),
            },
            "degraded" => self.degraded = value == "yes",
            "hold" => match number()? {
                mib @ 0..=64 => self.hold = mib << 20,
                _ => return Err(wrong("give MiB, from 0 to 64")),
            },
            "rate" => match number()? {
                0 => return Err(wrong("give MiB a second, at least 1")),
                rate => self.rebuild_rate = rate.saturating_mul(1 << 20),
            },
            "spare_after" => self.spare_after = ms()?,
            "spares" => self.spares = number()? as usize,
            "log" => {
                self.log_left = value == "none";
                self.log = (!self.log_left).then(|| PathBuf::from(value));
            }
            "log_behind" | "log-behind" => match number()? {
                mib @ 1..=4096 => self.log_behind = mib << 20,
                _ => return Err(wrong("give MiB, from 1 to 4096")),
            },
            "witness" => self.witness = Some(PathBuf::from(value)),
            "tls_ca" => self.tls.authorities = Some(PathBuf::from(value)),
            "tls_cert" => self.tls.certificate = Some(PathBuf::from(value)),
            "tls_key" => self.tls.key = Some(PathBuf::from(value)),
            "members" | "takeover" | "etcd_wait" | "etcd_ca" | "etcd_cert" | "etcd_key" => {
                let etcd =
                    self.etcd.as_mut().ok_or_else(|| wrong("only where etcd knows the servers"))?;
                match key {
                    "members" => match number()? {
                        count @ 1..=16 => etcd.count = Some(count as usize),
                        _ => return Err(wrong("give a number from 1 to 16")),
                    },
                    "takeover" => etcd.takeover = value == "yes",
                    "etcd_wait" => etcd.wait = ms()?,
                    "etcd_ca" => etcd.tls.authorities = Some(PathBuf::from(value)),
                    "etcd_cert" => etcd.tls.certificate = Some(PathBuf::from(value)),
                    _ => etcd.tls.key = Some(PathBuf::from(value)),
                }
            }
            _ => {
                return Err(format!(
                    "unknown word '{key}': there are policy, ec, export, connections, timeout, hedge, late, degraded, hold, \
                     rate, spare, spares, spare_after, log, log_behind, witness, tls_ca, tls_cert and tls_key; with etcd also \
                     members, takeover, etcd_wait, etcd_ca, etcd_cert and etcd_key"
                ));
            }
        }
        Ok(())
    }

    fn checked(self) -> Result<Address, String> {
        if let Some(etcd) = &self.etcd {
            check_name(&etcd.array)?;
            if etcd.members.is_empty() {
                return Err("no member of etcd is given".to_owned());
            }
            if !self.servers.is_empty() || self.spares > 0 || !self.export.is_empty() {
                return Err("servers, spares and exports are chosen through etcd: leave them out"
                    .to_owned());
            }
            self.new_members()?;
            return Ok(self);
        }
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

    /// Policy and number of members of a new array whose servers etcd chooses.
    ///
    /// # Errors
    /// Policy and number do not fit each other.
    pub fn new_members(&self) -> Result<(Policy, usize), String> {
        let policy = self.policy.unwrap_or(Policy::Mirror);
        let fewest = match policy {
            Policy::None => 1,
            Policy::Mirror => 2,
            Policy::Parity => 3,
            Policy::Erasure { data, parity } => data + parity,
        };
        let count = self.etcd.as_ref().and_then(|etcd| etcd.count).unwrap_or(fewest);
        policy.shards(count)?;
        Ok((policy, count))
    }

    /// Reads a file with `servers = ["a:10809", …]`, or `etcd = ["a:2379", …]` and `array =
    /// "NAME"`, and the words of an address as keys.
    ///
    /// # Errors
    /// A message for the user.
    pub fn from_file(path: &Path) -> Result<Address, String> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        let table: BTreeMap<String, toml::Value> = toml::from_str(&text)
            .map_err(|error| format!("{}: {}", path.display(), error.message()))?;
        let list = |key: &str| -> Vec<String> {
            let values =
                table.get(key).and_then(toml::Value::as_array).cloned().unwrap_or_default();
            values.iter().filter_map(|value| value.as_str().map(str::to_owned)).collect()
        };
        let servers = |key: &str| -> Vec<String> {
            list(key).iter().map(|server| with_port(server)).collect()
        };
        let spares = servers("spare");
        let mut address = Address::new(servers("servers"));
        if table.contains_key("etcd") {
            let array = table.get("array").and_then(toml::Value::as_str).unwrap_or_default();
            address.etcd = Some(EtcdAddress::new(list("etcd"), array));
        }
        address.spares = spares.len();
        address.servers.extend(spares);
        let given = |key: &str| matches!(key, "servers" | "spare" | "etcd" | "array");
        for (key, value) in table.iter().filter(|(key, _)| !given(key)) {
            let value = match value {
                toml::Value::String(text) => text.clone(),
                toml::Value::Integer(number) => number.to_string(),
                toml::Value::Boolean(yes) => if *yes { "yes" } else { "no" }.to_owned(),
                _ => {
                    return Err(format!(
                        "{}: '{key}' is neither text nor a number",
                        path.display()
                    ));
                }
            };
            address.set(key, &value)?;
        }
        address.checked()
    }
}

/// The server with a port, by default that of NBD.
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
        let (etcd, rest) = match (text.strip_prefix(SCHEME_ETCD), text.strip_prefix(SCHEME)) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) => {
                return Err(format!("'{text}' does not begin with {SCHEME} or {SCHEME_ETCD}"));
            }
        };
        let (place, words) = rest.split_once('?').unwrap_or((rest, ""));
        let parts = |list: &str| -> Vec<String> {
            list.split(',').filter(|part| !part.is_empty()).map(str::to_owned).collect()
        };
        let mut address = match (etcd, place.starts_with('/')) {
            (true, _) => {
                let (members, array) = place.split_once('/').unwrap_or((place, ""));
                let etcd = Some(EtcdAddress::new(parts(members), array));
                Address { etcd, ..Address::new(Vec::new()) }
            }
            (false, true) => Address::from_file(Path::new(place))?,
            (false, false) => {
                Address::new(parts(place).iter().map(|server| with_port(server)).collect())
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
            "remote://a,b:1,[::1]:2?policy=parity&spare=c:3&timeout=900ms&late=0&degraded=yes&rate=5&hold=3&log=/l&log_behind=8"
                .parse()
                .unwrap();
        assert_eq!(address.servers, ["a:10809", "b:1", "[::1]:2", "c:3"]);
        assert_eq!((address.spares, address.policy), (1, Some(Policy::Parity)));
        assert!(address.degraded && address.timeout == Duration::from_millis(900));
        assert_eq!(address.late, Duration::ZERO);
        assert_eq!((address.rebuild_rate, address.hold), (5 << 20, 3 << 20));
        assert_eq!(
            (address.log, address.log_left, address.log_behind),
            (Some("/l".into()), false, 8 << 20)
        );
        let left: Address = "remote://a?log=none".parse().unwrap();
        assert_eq!((left.log, left.log_left), (None, true));
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
            ("remote://a?late=60001", "from 0 to 60000"),
            ("remote://a,b?policy", "no value"),
            ("remote://a?log_behind=0", "MiB, from 1"),
            ("remote://a?hold=65", "MiB, from 0"),
            ("file://a", "does not begin"),
            ("remote:///does/not/exist.toml", "No such file"),
            ("remote://a?takeover=yes", "only where etcd"),
            ("remote+etcd:///x", "no member of etcd"),
            ("remote+etcd://a", "is no name"),
            ("remote+etcd://a/x/y", "is no name"),
            ("remote+etcd://a/x?export=y", "leave them out"),
            ("remote+etcd://a/x?spare=y", "leave them out"),
            ("remote+etcd://a/x?policy=parity&members=2", "3 servers"),
            ("remote+etcd://a/x?members=17", "from 1 to 16"),
        ] {
            let error = text.parse::<Address>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn files_say_the_same() {
        let path =
            std::env::temp_dir().join(format!("steadfast-address-{}.toml", std::process::id()));
        std::fs::write(
            &path,
            "servers = ['a', 'b:1']\nspare = ['c']\npolicy = 'mirror'\ntimeout = 700\n",
        )
        .unwrap();
        let address = format!("remote://{}?export=x", path.display()).parse::<Address>().unwrap();
        std::fs::write(
            &path,
            "etcd = ['a', 'b:1']\narray = 'x'\npolicy = 'ec=4+2'\ntakeover = true\n",
        )
        .unwrap();
        let named =
            format!("remote://{}?etcd_wait=5s", path.display()).parse::<Address>().unwrap_err();
        assert!(named.contains("milliseconds"), "{named}");
        let named =
            format!("remote://{}?etcd_wait=500", path.display()).parse::<Address>().unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(named.new_members(), Ok((Policy::Erasure { data: 4, parity: 2 }, 6)));
        let etcd = named.etcd.unwrap();
        assert_eq!(
            (etcd.members.join(" "), etcd.array.as_str(), etcd.takeover),
            ("a b:1".to_owned(), "x", true)
        );
        assert_eq!(etcd.wait, Duration::from_millis(500));
        assert_eq!(address.servers, ["a:10809", "b:1", "c:10809"]);
        assert_eq!((address.spares, address.export.as_str()), (1, "x"));
        assert_eq!(address.timeout, Duration::from_millis(700));
    }
}
