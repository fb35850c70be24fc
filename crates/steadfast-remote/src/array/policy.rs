//! [`Policy`]: how many losses an array survives, and the cost of that.

use std::fmt;
use std::str::FromStr;

/// Most servers of an array, spares not counted.
pub const SERVERS_MAX: usize = 16;

/// How blocks are spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Every block is stored once: no loss is survived.
    None,
    /// Every server has every block: all losses but one are survived.
    Mirror,
    /// One parity shard: one loss is survived.
    Parity,
    /// `data` data shards and `parity` parity shards: as many losses are survived as there are
    /// parity shards.
    Erasure {
        /// Data shards.
        data: usize,
        /// Parity shards.
        parity: usize,
    },
}

impl Policy {
    /// Data and parity shards on this many servers.
    ///
    /// # Errors
    /// A message for the user if the policy needs another number of servers.
    pub fn shards(self, servers: usize) -> Result<(usize, usize), String> {
        if servers == 0 || servers > SERVERS_MAX {
            return Err(format!("an array has 1 to {SERVERS_MAX} servers, not {servers}"));
        }
        match self {
            Policy::None => Ok((servers, 0)),
            Policy::Mirror if servers >= 2 => Ok((1, servers - 1)),
            Policy::Parity if servers >= 3 => Ok((servers - 1, 1)),
            Policy::Erasure { data, parity } if data + parity == servers => Ok((data, parity)),
            Policy::Mirror => Err("policy mirror needs 2 servers or more".to_owned()),
            Policy::Parity => Err("policy parity needs 3 servers or more".to_owned()),
            Policy::Erasure { data, parity } => Err(format!(
                "policy ec={data}+{parity} needs {} servers, not {servers}",
                data + parity
            )),
        }
    }

    /// The policy with these shards.
    pub(crate) fn of_shards(data: usize, parity: usize) -> Policy {
        match (data, parity) {
            (_, 0) => Policy::None,
            (1, _) => Policy::Mirror,
            (_, 1) => Policy::Parity,
            _ => Policy::Erasure { data, parity },
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Policy::None => f.write_str("none"),
            Policy::Mirror => f.write_str("mirror"),
            Policy::Parity => f.write_str("parity"),
            Policy::Erasure { data, parity } => write!(f, "ec={data}+{parity}"),
        }
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Policy, String> {
        let wrong = || format!("'{text}' is not a policy: write none, mirror, parity or ec=4+2");
        match text {
            "none" => Ok(Policy::None),
            "mirror" => Ok(Policy::Mirror),
            "parity" => Ok(Policy::Parity),
            "parity-in-place" => Err("policy parity-in-place is gone: write parity".to_owned()),
            _ => {
                let shards = text
                    .strip_prefix("ec=")
                    .or_else(|| text.strip_prefix("ec:"))
                    .ok_or_else(wrong)?;
                let (data, parity) = shards.split_once(['+', ' ']).ok_or_else(wrong)?;
                let number = |text: &str| text.parse::<usize>().map_err(|_| wrong());
                let (data, parity) = (number(data)?, number(parity)?);
                if data == 0 || parity == 0 || data > SERVERS_MAX || parity > SERVERS_MAX {
                    return Err(wrong());
                }
                Ok(Policy::Erasure { data, parity })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_read_and_counted() {
        for (text, servers, shards) in [
            ("none", 3, (3, 0)),
            ("mirror", 2, (1, 1)),
            ("parity", 4, (3, 1)),
            ("ec=4+2", 6, (4, 2)),
        ] {
            let policy: Policy = text.parse().unwrap();
            assert_eq!(policy.shards(servers), Ok(shards));
            assert_eq!(policy.to_string(), text);
            assert_eq!(Policy::of_shards(shards.0, shards.1), policy);
        }
        let gone = "parity-in-place".parse::<Policy>().unwrap_err();
        assert!(gone.contains("is gone"), "{gone}");
        for text in ["", "ec", "ec=0+1", "ec=4+0", "ec=4", "ec=99+1", "raid5"] {
            assert!(text.parse::<Policy>().is_err(), "{text}");
        }
        assert!(Policy::Mirror.shards(1).is_err());
        assert!(Policy::Erasure { data: 4, parity: 2 }.shards(5).is_err());
        assert!(Policy::None.shards(17).is_err());
    }
}
