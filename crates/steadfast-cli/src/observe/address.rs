//! The address that serves the metrics: a Unix socket, or a port of this machine that other
//! machines cannot reach.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// Longest path of a Unix socket, bytes: the kernel's `sun_path` without its final NUL.
const PATH_MAX: usize = 107;

/// An address to serve on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket, absolute.
    Unix(PathBuf),
    /// A port on a loopback address.
    Tcp(SocketAddr),
}

impl Address {
    /// Parses the value of `-o metrics=`.
    ///
    /// # Errors
    /// A message for the user: neither a path nor an address, or an address that other machines can
    /// reach.
    pub fn parse(text: &str) -> Result<Address, String> {
        if text.starts_with('/') {
            if text.len() > PATH_MAX {
                return Err(format!(
                    "the path of a metrics socket has at most {PATH_MAX} bytes: '{text}'"
                ));
            }
            return Ok(Address::Unix(text.into()));
        }
        let numeric = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
        let address: SocketAddr = numeric.as_deref().unwrap_or(text).parse().map_err(|_| {
            format!(
                "metrics={text} is neither the absolute path of a socket nor ADDRESS:PORT: use metrics=/run/x.sock or \
                 metrics=127.0.0.1:9633"
            )
        })?;
        let loopback = match address.ip() {
            IpAddr::V4(ip) => ip.is_loopback(),
            IpAddr::V6(ip) => ip.is_loopback(),
        };
        if !loopback {
            return Err(format!(
                "metrics={text} could be reached from other machines: use 127.0.0.1:{0}, [::1]:{0} or the path of a socket",
                address.port()
            ));
        }
        Ok(Address::Tcp(address))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => path.display().fmt(f),
            Address::Tcp(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine() {
        let tcp = |text: &str| Ok(Address::Tcp(text.parse().unwrap()));
        assert_eq!(Address::parse("127.0.0.1:9633"), tcp("127.0.0.1:9633"));
        assert_eq!(Address::parse("127.8.9.1:1"), tcp("127.8.9.1:1"));
        assert_eq!(Address::parse("localhost:9633"), tcp("127.0.0.1:9633"));
        assert_eq!(Address::parse("[::1]:0"), tcp("[::1]:0"));
        assert_eq!(Address::parse("/run/x.sock"), Ok(Address::Unix("/run/x.sock".into())));
        for reachable in ["0.0.0.0:9633", "[::]:9633", "192.168.1.1:80", "[::ffff:127.0.0.1]:80"] {
            assert!(
                Address::parse(reachable).unwrap_err().contains("other machines"),
                "{reachable}"
            );
        }
        for wrong in
            ["", "x.sock", "9633", "127.0.0.1", "127.0.0.1:99999", "localhost:", "example.org:80"]
        {
            assert!(Address::parse(wrong).unwrap_err().contains("neither"), "{wrong}");
        }
        assert!(Address::parse(&"/x".repeat(60)).is_err());
    }
}
