//! The POSIX semantics: names, attributes, links, files; written over the [`crate::keyspace`] seam.

mod attr;

pub use attr::{
    AllocateMode, Attributes, Caller, DirectoryEntry, FileKind, NewNode, RenameMode, SeekTo, SetAttributes,
    SetTime, SetXattrMode, Statistics,
};
