//! The address of a volume in a cluster:
//! `cluster://ETCD[,ETCD…]/NAME?node=…&listen=…&ca=…&cert=…&key=…&etcd_ca=…&etcd_cert=…&etcd_key=…`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use steadfast_remote::etcd::records::check_name;
use steadfast_remote::server::TlsFiles;

use crate::ClusterError;

const SCHEME: &str = "cluster://";

/// Whether a text is the address of a volume in a cluster, perhaps a malformed one.
pub fn is_address(text: &str) -> bool {
    text.starts_with(SCHEME)
}

/// A volume, and how to reach the etcd cluster that knows its owner.
#[derive(Debug, Clone)]
pub struct ClusterAddress {
    /// Members of the etcd cluster.
    pub members: Vec<String>,
    /// Certificates, if etcd uses TLS.
    pub tls: TlsFiles,
    /// The volume.
    pub volume: String,
    /// Where this node serves others while it owns a shared volume.
    pub listen: SocketAddr,
    /// Certificate of this node towards the others, and their authority.
    pub peers: TlsFiles,
    /// The name of this node; by default that of its host.
    pub node: Option<String>,
}

impl FromStr for ClusterAddress {
    type Err = ClusterError;

    fn from_str(text: &str) -> Result<ClusterAddress, ClusterError> {
        let wrong = |what: &str| ClusterError::Address(what.to_owned());
        let rest = text.strip_prefix(SCHEME).ok_or_else(|| wrong("not an address of a cluster"))?;
        let (place, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let (members, volume) =
            place.split_once('/').ok_or_else(|| wrong("the name of the volume is missing"))?;
        let members: Vec<String> = members.split(',').map(str::to_owned).collect();
        if members.iter().any(String::is_empty) {
            return Err(wrong("a member of etcd has no name"));
        }
        check_name(volume).map_err(ClusterError::Address)?;
        let mut address = ClusterAddress {
            members,
            tls: TlsFiles::default(),
            volume: volume.to_owned(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            peers: TlsFiles::default(),
            node: None,
        };
        for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let file = || Some(PathBuf::from(value));
            match key {
                "node" => {
                    check_name(value).map_err(ClusterError::Address)?;
                    address.node = Some(value.to_owned());
                }
                "listen" => {
                    let with_port = value.parse().or_else(|_| {
                        value.parse::<IpAddr>().map(|address| SocketAddr::new(address, 0))
                    });
                    address.listen = with_port.map_err(|_| {
                        wrong(&format!("'{value}' is no address to listen on, such as 10.0.0.1"))
                    })?;
                }
                "ca" => address.peers.authorities = file(),
                "cert" => address.peers.certificate = file(),
                "key" => address.peers.key = file(),
                "etcd_ca" => address.tls.authorities = file(),
                "etcd_cert" => address.tls.certificate = file(),
                "etcd_key" => address.tls.key = file(),
                _ => return Err(wrong(&format!("'{key}' is no parameter of a cluster"))),
            }
        }
        Ok(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_etcd_volume_and_node() {
        let address: ClusterAddress =
            "cluster://a:2379,b/home?node=n1&etcd_ca=/ca.pem".parse().unwrap();
        assert_eq!(
            (address.members.join(" "), address.volume.as_str()),
            ("a:2379 b".into(), "home")
        );
        assert_eq!(address.node.as_deref(), Some("n1"));
        assert_eq!(address.tls.authorities, Some("/ca.pem".into()));
        assert!(address.listen.ip().is_loopback());
        let address: ClusterAddress =
            "cluster://a/b?listen=10.0.0.1&ca=/a&cert=/c&key=/k".parse().unwrap();
        assert_eq!(address.listen, ([10, 0, 0, 1], 0).into());
        assert_eq!(address.peers.key, Some("/k".into()));
        for (text, why) in [
            ("rados://a/b", "not an address"),
            ("cluster://a", "name of the volume"),
            ("cluster://a/", "is no name"),
            ("cluster://a/b/c", "is no name"),
            ("cluster:///b", "a member of etcd"),
            ("cluster://a,/b", "a member of etcd"),
            ("cluster://a/b?colour=red", "'colour' is no parameter"),
            ("cluster://a/b?node=", "is no name"),
            ("cluster://a/b?listen=host", "no address to listen on"),
        ] {
            let said = text.parse::<ClusterAddress>().unwrap_err().to_string();
            assert!(said.contains(why), "{text}: {said}");
        }
    }
}
