//! The counters of a mount and the map of its space, through the read-only commands.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{Read, Write};

use steadfast::BlockAddress;
use steadfast::dump::Key;
use steadfast::map::{self, MapCell};
use steadfast_fuse::metrics::Kind;
use steadfast_fuse::watch::{self, Readings};
use steadfast_fuse::{MountOptions, ioctl};

use crate::support::{Place, QUIET, can_mount, errno, wait_for};

const SIZE: u64 = 64 << 20;

fn count(readings: &Readings, kind: Kind) -> u64 {
    readings.operations[kind as usize].latency.count()
}

#[test]
fn operations_bytes_and_points_are_counted() {
    if !can_mount() {
        return;
    }
    let place = Place::new(SIZE, QUIET);
    let mounted = place.mount(&MountOptions { write_back: false, ..MountOptions::default() });
    let root = mounted.root();
    let before = watch::readings(&root).unwrap();
    let path = place.mount_point().join("file");
    let mut file = File::create_new(&path).unwrap();
    for _ in 0..10 {
        file.write_all(&[7; 8192]).unwrap();
    }
    file.sync_all().unwrap();
    drop(file);
    let mut back = Vec::new();
    File::open(&path).unwrap().read_to_end(&mut back).unwrap();
    fs::rename(&path, place.mount_point().join("other")).unwrap();
    fs::remove_file(place.mount_point().join("other")).unwrap();
    assert!(fs::metadata(&path).is_err());
    ioctl::transact(&root).unwrap();
    // An operation is counted after its answer has been sent, which already wakes the caller.
    wait_for("the last operation to be counted", || {
        count(&watch::readings(&root).unwrap(), Kind::Command) > count(&before, Kind::Command)
    });
    let after = watch::readings(&root).unwrap();
    let more = |kind| count(&after, kind) - count(&before, kind);
    assert_eq!(
        [more(Kind::Create), more(Kind::Rename), more(Kind::Remove), more(Kind::Write)],
        [1, 1, 1, 10]
    );
    assert!(more(Kind::Sync) >= 1 && more(Kind::Read) <= 10 && more(Kind::Lookup) >= 2);
    // The answer of the control thread counts; reading the counters does not.
    assert_eq!(more(Kind::Command), 1);
    let (early, late) = (before.status, after.status);
    assert_eq!(late.written_bytes - early.written_bytes, 10 * 8192);
    assert!(late.activity.transaction_points >= early.activity.transaction_points + 2);
    assert!(late.uptime >= early.uptime);
    let medium = late.medium.unwrap();
    assert!(
        medium.written_bytes > 10 * 8192 && medium.flushes >= 2 && medium.failures == 0,
        "{medium:?}"
    );
    assert_eq!(after.operations.iter().map(|operations| operations.errors).sum::<u64>(), 0);
    for operations in &after.operations {
        let latency = &operations.latency;
        assert!(latency.quantile(0.5) <= latency.quantile(0.99));
        assert!(latency.quantile(1.0).unwrap_or(0) <= latency.longest);
    }
    // A file outside the mount.
    assert_eq!(errno(watch::readings(&File::open("/tmp").unwrap())), libc::ENOTTY);
    drop(root);
    mounted.unmount();
}

#[test]
fn errors_of_the_volume_are_counted() {
    if !can_mount() {
        return;
    }
    let place = Place::new(4 << 20, QUIET);
    let mounted = place.mount(&MountOptions { write_back: false, ..MountOptions::default() });
    let root = mounted.root();
    let mut file = File::create_new(place.mount_point().join("big")).unwrap();
    while file.write_all(&[7; 65536]).is_ok() {}
    let errors = |kind| watch::readings(&root).unwrap().operations[kind as usize].errors;
    wait_for("the error to be counted", || errors(Kind::Write) >= 1);
    assert_eq!(errors(Kind::Lookup), 0, "no such file is an answer");
    drop((file, root));
    mounted.unmount();
}

#[test]
fn the_map_of_a_mount_adds_up() {
    if !can_mount() {
        return;
    }
    let place = Place::new(SIZE, QUIET);
    let mounted = place.mount(&MountOptions::default());
    let root = mounted.root();
    for number in 0..200 {
        fs::write(place.mount_point().join(format!("f{number}")), vec![1; number * 200]).unwrap();
    }
    ioctl::checkpoint(&root).unwrap();
    let geometry = watch::map_geometry(&root).unwrap();
    assert_eq!(geometry, map::geometry(mounted.volume()));
    let cell_blocks = geometry.blocks.div_ceil(watch::MAP_CELLS as u64);
    let mut cells = [MapCell::default(); watch::MAP_CELLS];
    let mut from = Some(0);
    while let Some(at) = from {
        from = watch::map_space(&root, at, 0, cell_blocks, &mut cells).unwrap();
    }
    let mut nodes = HashSet::new();
    let mut next = Some(Key::MIN);
    while let Some(key) = next {
        let mut visit = |_, copies: [BlockAddress; 2]| nodes.extend(copies);
        next = watch::map_nodes(&root, &key, &mut visit).unwrap();
    }
    nodes.remove(&BlockAddress::NONE);
    let space = watch::readings(&root).unwrap().status.activity.space;
    assert_eq!(cells.iter().map(|cell| cell.used).sum::<u64>(), space.metadata + space.data);
    assert_eq!(nodes.len() as u64 * geometry.node_blocks, space.metadata);
    assert_eq!(space.total(), geometry.blocks);
    assert_eq!(errno(watch::map_space(&root, 0, 0, 0, &mut cells)), libc::EINVAL);
    drop(root);
    mounted.unmount();
}
