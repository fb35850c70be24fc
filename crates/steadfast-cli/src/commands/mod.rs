//! The commands, one file each: its arguments and its `run`.

pub mod atomically;
pub mod cat;
pub mod check;
pub mod completions;
pub mod defrag;
pub mod df;
pub mod dump;
pub mod get;
pub mod image;
pub mod info;
pub mod ls;
pub mod manpages;
pub mod map;
pub mod mask;
pub mod mkfs;
pub mod mount;
pub mod put;
pub mod rm;
pub mod rollback;
pub mod scrub;
pub mod snapshot;
mod snapshot_diff;
pub mod top;
pub mod torture;
pub mod transact;
pub mod tree;
pub mod umount;
