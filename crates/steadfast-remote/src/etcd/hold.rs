//! The claim of a client to be the writer of an array.

use super::records::ArrayRecord;

/// A client's claim to be the writer of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// Name of the array.
    pub name: String,
    /// Identity: the name may belong to another array by now.
    pub uuid: String,
    /// The client's token.
    pub token: u32,
    /// The client keeps a write-behind log.
    pub logged: bool,
}

impl Hold {
    /// The hold of a client that has made or taken the array.
    pub fn of(name: &str, record: &ArrayRecord) -> Hold {
        Hold {
            name: name.to_owned(),
            uuid: record.uuid.clone(),
            token: record.token,
            logged: false,
        }
    }

    /// The same for a client that keeps a write-behind log.
    #[must_use]
    pub fn with_log(self, logged: bool) -> Hold {
        Hold { logged, ..self }
    }
}
