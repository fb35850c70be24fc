//! The file system through real mounts. Needs /dev/fuse; without it the tests say so and pass.

mod atomic;
mod cached_reads;
mod clones;
mod closing;
mod commands;
mod crashes;
mod data;
mod direct_reads;
mod ending;
mod engines;
mod full;
mod handles;
mod linear;
mod losses;
mod mixed;
mod names;
mod overlay;
mod pages;
mod peer_attributes;
mod peer_closes;
mod peers;
mod rollback;
mod snapshots;
mod support;
mod syncs;
mod sys;
mod times;
mod waits;
mod watching;

/// The daemon that some tests start and kill.
#[test]
#[ignore = "the main function of a daemon, started by other tests"]
fn daemon_process() {
    support::daemon_main();
}

/// One process of a test that needs several.
#[test]
#[ignore = "the main function of a process, started by another test"]
fn mixed_process() {
    mixed::worker_main();
}
