//! The POSIX semantics: names, attributes, links, files; written over the [`crate::keyspace`] seam.
//!
//! Every operation is a function over a transaction (`tx::Tx`) that can be run again when it meets
//! a conflict and changes at most 64 keys; larger work goes in steps that each leave a consistent
//! file system. Callers are the methods of [`crate::Volume`] in this directory; below is the
//! keyspace, and for the bytes of files the volume's data plane.

mod acl;
mod allocate;
mod attr;
mod attributes;
mod change;
mod clone;
mod copy;
mod create;
pub(crate) mod dirent;
#[cfg(test)]
mod double;
mod extents;
mod file;
pub(crate) mod inode;
mod link;
pub(crate) mod map;
pub(crate) mod memory;
mod name;
mod names;
mod open;
pub(crate) mod orphan;
pub(crate) mod parameters;
mod path;
mod permissions;
mod pieces;
mod prepare;
pub(crate) mod publish;
mod read;
mod relocate;
mod rename;
mod seek;
#[cfg(test)]
mod tests;
mod truncate;
pub(crate) mod tx;
mod write;
pub(crate) mod xattr;
mod zero;

pub use attr::{
    AllocateMode, Attributes, Caller, DirectoryEntry, FileKind, NewNode, RenameMode, SeekTo,
    SetAttributes, SetTime, SetXattrMode, Statistics,
};
pub use extents::FileExtent;
pub use file::{File, FileOptions};
pub use path::LINKS_MAX;
pub use relocate::{DefragmentCursor, Fragmentation};
