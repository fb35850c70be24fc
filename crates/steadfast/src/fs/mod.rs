//! The POSIX semantics: names, attributes, links, files.
//!
//! Every operation is a function over a `tx::Tx`, a batch that changes at most 64 keys. Larger work
//! goes in steps, and each step leaves a consistent file system. The functions use the engine's
//! keyspace. The methods of [`Volume`](crate::Volume) in this layer run them, and move the bytes of
//! files through the engine.

mod acl;
mod attributes;
mod background;
mod clone;
mod copy;
mod create;
pub(crate) mod dirent;
pub(crate) mod extent_map;
mod extents;
mod fallocate;
mod file;
mod flags;
pub(crate) mod inode;
mod link;
mod long_value;
mod move_shared;
mod name_hash;
mod namespace;
mod open;
pub(crate) mod orphan;
pub(crate) mod parameters;
mod path;
mod permissions;
mod prepare;
pub(crate) mod publish;
mod read;
mod read_plan;
mod reclaim;
mod relocate;
mod rename;
mod seek;
mod set_attributes;
mod snapshots_directory;
mod stat;
#[cfg(test)]
pub(crate) mod tests;
mod truncate;
pub(crate) mod tx;
mod update;
mod write;
mod write_buffer;
pub(crate) mod xattr;
mod zero;

pub use crate::engine::Statistics;
pub use crate::format::inode::FileKind;
pub use extents::FileExtent;
pub use file::{File, FileOptions};
pub use flags::FileFlags;
pub use path::LINKS_MAX;
pub use read_plan::{PlannedExtent, ReadPlan};
pub use relocate::{DefragmentCursor, Fragmentation};
pub use stat::{
    AllocateMode, Attributes, Caller, DirectoryEntry, NewNode, RenameMode, SeekTo, SetAttributes,
    SetTime, SetXattrMode,
};
