//! The commands of `steadfast`: make, mount and inspect Steadfast volumes.
//!
//! Commands live in `commands`, one file each. They talk to a volume in one of two ways. They open
//! its image in this process if it is not mounted (`image`), or use ioctls on its mount point if it
//! is (`live`). Failures are one line and an exit code ([`failure`]).
//!
//! The program `steadfast` is [`cli::run`] and nothing else. What is public besides is what the
//! program `steadfast-lab` shares with it.

mod answers;
mod behaviour;
pub mod cli;
mod cluster;
mod commands;
mod copies;
mod daemon;
mod dead_mount;
mod direct_reads;
mod ending;
mod etcd;
pub mod exit;
mod export;
pub mod failure;
mod flash_place;
mod format_args;
mod fsck;
mod grid;
pub mod host;
mod image;
mod interrupt;
pub mod interval;
mod lab_program;
mod live;
mod logger;
pub mod making;
mod mask_text;
mod medium;
pub mod mkfs_name;
mod mount_helper;
mod mount_options;
mod mount_parameters;
mod mounting;
mod mounts;
pub mod mtd;
mod network;
mod observe;
mod open_failure;
pub mod output;
mod owner;
mod owning;
mod pause;
mod privileges;
pub mod program;
mod rados;
mod remote;
mod remount;
mod report;
mod running;
mod salvage;
mod schedule;
mod serve;
mod sharing;
pub mod size;
mod snapshot_failure;
mod source;
mod stat_text;
mod target;
mod transfer;
mod volume_path;
mod walk;
mod window;
