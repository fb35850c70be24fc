//! `steadfast`: make, mount and inspect Steadfast volumes.
//!
//! Each command is one file in [`commands`]. A command reaches a volume in one of two ways. It
//! opens an unmounted image in this process ([`image`]), or it uses ioctls on the mount point
//! ([`live`]). A failure is one line and an exit code ([`failure`]).

mod behaviour;
mod cli;
mod commands;
mod daemon;
mod ending;
mod etcd;
mod export;
mod failure;
mod flash_place;
mod fsck;
mod grid;
mod host;
mod image;
mod interrupt;
mod interval;
mod live;
mod logger;
mod mask_text;
mod mkfs_name;
mod mount_helper;
mod mount_options;
mod mounts;
mod mtd;
mod observe;
mod output;
mod owner;
mod remote;
mod remount;
mod report;
mod salvage;
mod schedule;
mod serve;
mod size;
mod source;
mod stat_text;
mod target;
mod transfer;
mod volume_path;
mod walk;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run(std::env::args_os().collect())
}
