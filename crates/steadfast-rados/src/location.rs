//! The address of an image: `rados://POOL/NAME?user=…&conf=…&namespace=…&timeout=…`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::error::RadosError;

const SCHEME: &str = "rados://";
/// Ceph allows longer names; a name must leave room for the number of an object.
const NAME_MAX: usize = 200;
const TIMEOUT: Duration = Duration::from_secs(30);
const TIMEOUT_MAX: u64 = 3600;

/// Whether a text is the address of an image in RADOS, perhaps a malformed one.
pub fn is_location(text: &str) -> bool {
    text.starts_with(SCHEME)
}

/// An image in a pool, and how to reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// The pool.
    pub pool: String,
    /// The image.
    pub name: String,
    /// The namespace in the pool; empty for the default one.
    pub namespace: String,
    /// The user without `client.`.
    pub user: String,
    /// The configuration; by default what Ceph's own tools read.
    pub conf: Option<PathBuf>,
    /// A request that is not answered in this time has failed.
    pub timeout: Duration,
}

impl FromStr for Location {
    type Err = RadosError;

    fn from_str(text: &str) -> Result<Location, RadosError> {
        let wrong = |what: &str| RadosError::Address(what.to_owned());
        let rest = text.strip_prefix(SCHEME).ok_or_else(|| wrong("not an address of RADOS"))?;
        let (place, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let (pool, name) =
            place.split_once('/').ok_or_else(|| wrong("the name of the image is missing"))?;
        let usable = |name: &str| {
            let is_usable = |c: char| c.is_ascii_graphic() && !"/?&'\"\\".contains(c);
            !name.is_empty() && name.len() <= NAME_MAX && name.chars().all(is_usable)
        };
        if !usable(pool) || !usable(name) {
            return Err(wrong("a pool or an image has no such name"));
        }
        let mut location = Location {
            pool: pool.to_owned(),
            name: name.to_owned(),
            namespace: String::new(),
            user: "admin".to_owned(),
            conf: None,
            timeout: TIMEOUT,
        };
        for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
            let Some((key, value)) =
                parameter.split_once('=').filter(|(_, value)| !value.is_empty())
            else {
                return Err(RadosError::Address(format!("'{parameter}' has no value")));
            };
            match key {
                "user" => {
                    value.strip_prefix("client.").unwrap_or(value).clone_into(&mut location.user)
                }
                "conf" => location.conf = Some(value.into()),
                "namespace" => value.clone_into(&mut location.namespace),
                "timeout" => {
                    let seconds = value.parse().ok().filter(|s| (1..=TIMEOUT_MAX).contains(s));
                    let seconds = seconds
                        .ok_or_else(|| wrong("the timeout is not a number from 1 to 3600"))?;
                    location.timeout = Duration::from_secs(seconds);
                }
                _ => return Err(RadosError::Address(format!("'{key}' is no parameter"))),
            }
        }
        Ok(location)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let plain: Location = "rados://rbd/disk".parse().unwrap();
        assert_eq!((plain.pool.as_str(), plain.name.as_str()), ("rbd", "disk"));
        assert_eq!((plain.user.as_str(), plain.timeout), ("admin", TIMEOUT));
        let full: Location =
            "rados://p/a.b-c?user=client.me&conf=/etc/x.conf&namespace=n&timeout=5"
                .parse()
                .unwrap();
        assert_eq!((full.user.as_str(), full.namespace.as_str()), ("me", "n"));
        assert_eq!(full.conf, Some("/etc/x.conf".into()));
        assert_eq!(full.timeout, Duration::from_secs(5));
    }

    #[test]
    fn malformed_addresses_are_refused() {
        let long = format!("rados://p/{}", "n".repeat(NAME_MAX + 1));
        for text in [
            "rados://",
            "rados://p",
            "rados://p/",
            "rados:///n",
            "rados://p/a/b",
            "rados://p/a b",
            "rados://p/n?user",
            "rados://p/n?user=",
            "rados://p/n?timeout=0",
            "rados://p/n?timeout=9999",
            "rados://p/n?size=1",
            &long,
        ] {
            assert!(matches!(text.parse::<Location>(), Err(RadosError::Address(_))), "{text}");
        }
    }
}
