//! Owners on the command line: `1000:1000`.

/// A user and a group, as numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl Owner {
    /// The user and group of this process.
    pub fn of_this_process() -> Owner {
        Owner { uid: rustix::process::getuid().as_raw(), gid: rustix::process::getgid().as_raw() }
    }
}

/// Parses an owner. If the group is left out, it has the user's number.
///
/// # Errors
/// A message for the user.
pub fn parse(text: &str) -> Result<Owner, String> {
    let (uid, gid) = text.split_once(':').unwrap_or((text, text));
    match (uid.parse(), gid.parse()) {
        (Ok(uid), Ok(gid)) => Ok(Owner { uid, gid }),
        _ => Err(format!("'{text}' is not an owner: write numbers such as 1000:1000")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        assert_eq!(parse("1:2"), Ok(Owner { uid: 1, gid: 2 }));
        assert_eq!(parse("7"), Ok(Owner { uid: 7, gid: 7 }));
        for text in ["", ":", "root:root", "1:", "-1:0", "1:2:3"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
