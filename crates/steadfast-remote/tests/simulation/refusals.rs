//! Cases that an array must refuse: more losses than it survives, and servers with an uncertain
//! state.

use std::sync::Arc;

use steadfast_media::{ErrorClass, Medium};
use steadfast_remote::array::{
    Array, ArrayError, ArrayOptions, BLOCK, CreateOptions, LogUse, Policy, Progress, State,
};

use crate::fleet::{Notebook, SimFleet, Trouble};
use crate::world::{fill, options};

const SIZE: u64 = 1 << 20;

fn make(policy: Policy, servers: usize, spares: usize) -> (Arc<SimFleet>, Array<Arc<SimFleet>>) {
    let fleet = Arc::new(SimFleet::new(servers + spares, SIZE, 1));
    let create = CreateOptions { policy, uuid: [1; 16], spares };
    let array = Array::create(fleet.clone(), &create, ArrayOptions::default()).unwrap();
    for block in 0..40 {
        array.write(block * BLOCK as u64, &fill(block + 1, block)).unwrap();
    }
    array.flush().unwrap();
    (fleet, array)
}

fn reads_right(array: &impl Medium, version: u64) {
    let mut found = vec![0; BLOCK];
    for block in 0..40 {
        array.read(block * BLOCK as u64, &mut found).unwrap();
        assert!(found == fill(block + version, block), "block {block}");
    }
}

#[test]
fn every_number_of_losses_is_survived_that_is_promised_and_not_one_more() {
    for (policy, servers) in [
        (Policy::None, 2),
        (Policy::Mirror, 3),
        (Policy::Parity, 4),
        (Policy::Erasure { data: 3, parity: 2 }, 5),
    ] {
        let promised = policy.shards(servers).unwrap().1;
        let (fleet, array) = make(policy, servers, 0);
        for lost in 0..promised {
            fleet.restart_empty(lost);
            reads_right(&array, 1);
            array.write(0, &fill(1, 0)).unwrap();
            array.flush().unwrap();
        }
        fleet.restart_empty(promised);
        let error = array.write(0, &fill(9, 0)).and_then(|()| array.flush()).unwrap_err();
        assert_eq!(error.class, ErrorClass::Gone, "{policy}");
        // From now on every request fails, so no wrong data is returned.
        assert!(array.read(0, &mut vec![0; BLOCK]).is_err());
        drop(array);
        fleet.revive_client();
        let opened = Array::open(fleet, ArrayOptions { degraded: true, ..ArrayOptions::default() });
        assert!(
            matches!(opened.err(), Some(ArrayError::TooManyLost | ArrayError::NoArray)),
            "{policy}"
        );
    }
}

/// CRC-32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 }
        })
    })
}

#[test]
fn an_array_with_parity_in_place_is_refused_in_one_line() {
    let (fleet, array) = make(Policy::Parity, 3, 0);
    drop(array);
    for server in 0..3 {
        let image = fleet.image(server);
        for place in 0..16 {
            let mut superblock = vec![0; BLOCK];
            image.read(place * BLOCK as u64, &mut superblock).unwrap();
            if superblock[..8] != *b"SfRemote" {
                continue;
            }
            superblock[14] |= 1 << 2;
            let crc = crc32c(&superblock[12..]);
            superblock[8..12].copy_from_slice(&crc.to_le_bytes());
            image.write(place * BLOCK as u64, &superblock).unwrap();
        }
        fleet.restart_with(server, &image);
    }
    fleet.revive_client();
    let changes = fleet.changes();
    let refused = Array::open(fleet.clone(), ArrayOptions::default()).err().unwrap();
    assert_eq!(refused, ArrayError::InPlace);
    assert!(refused.to_string().lines().count() == 1 && refused.to_string().contains("gone"));
    assert_eq!(fleet.changes(), changes);
    // Its client may have died: a new array waits for its late writes.
    let pauses = fleet.pauses().0;
    let create = CreateOptions { policy: Policy::Parity, uuid: [2; 16], spares: 0 };
    Array::create(fleet.clone(), &create, ArrayOptions::default()).unwrap();
    assert_eq!(fleet.pauses().0, pauses + 1);
}

#[test]
fn a_server_with_an_old_state_is_rebuilt_and_not_believed() {
    let (fleet, array) = make(Policy::Mirror, 2, 0);
    let old = fleet.image(1);
    fleet.set_trouble(1, Trouble::Down);
    for block in 0..40 {
        array.write(block * BLOCK as u64, &fill(block + 500, block)).unwrap();
    }
    array.flush().unwrap();
    fleet.restart_with(1, &old);
    reads_right(&array, 500);
    assert_eq!(array.lost(), [1]);
    let mut rebuild = array.begin_rebuild(1, 1).unwrap();
    while array.rebuild_step(&mut rebuild).unwrap() != Progress::Done {}
    // The other one may be lost now.
    fleet.restart_empty(0);
    reads_right(&array, 500);
    assert_eq!(array.status().members[0].0, State::Lost);
}

#[test]
fn a_stale_server_alone_is_refused() {
    let (fleet, array) = make(Policy::Mirror, 2, 0);
    let old = fleet.image(1);
    fleet.set_trouble(1, Trouble::Down);
    array.write(0, &fill(700, 0)).unwrap();
    array.flush().unwrap();
    drop(array);
    // The good server is gone; the lost one presents an old superblock that names all members good.
    fleet.set_trouble(0, Trouble::Down);
    fleet.restart_with(1, &old);
    fleet.revive_client();
    let opened = Array::open(fleet.clone(), ArrayOptions::default());
    assert_eq!(opened.err(), Some(ArrayError::Unsure(1)));
    // With `degraded` the old state is opened.
    let insisted =
        Array::open(fleet, ArrayOptions { degraded: true, ..ArrayOptions::default() }).unwrap();
    reads_right(&insisted, 1);
}

#[test]
fn a_witness_knows_better() {
    let fleet = Arc::new(SimFleet::new(2, SIZE, 1));
    let notebook = Arc::new(Notebook::default());
    let create = CreateOptions { policy: Policy::Mirror, uuid: [1; 16], spares: 0 };
    let array = Array::create(fleet.clone(), &create, options(&notebook)).unwrap();
    array.write(0, &fill(1, 0)).unwrap();
    array.flush().unwrap();
    let old = fleet.image(1);
    drop(array);
    // One is missing: the witness knows that there was no later write.
    fleet.revive_client();
    fleet.set_trouble(0, Trouble::Down);
    let array = Array::open(fleet.clone(), options(&notebook)).unwrap();
    array.write(0, &fill(2, 0)).unwrap();
    array.flush().unwrap();
    drop(array);
    // An old state of the other: the witness knows of a later one.
    fleet.revive_client();
    fleet.restart_with(1, &old);
    assert!(matches!(Array::open(fleet, options(&notebook)).err(), Some(ArrayError::Unsure(_))));
}

#[test]
fn a_spare_takes_over() {
    let (fleet, array) = make(Policy::Parity, 3, 1);
    fleet.set_trouble(2, Trouble::Down);
    reads_right(&array, 1);
    array.write(0, &fill(1, 0)).unwrap();
    array.flush().unwrap();
    assert_eq!((array.lost(), array.spares()), (vec![2], vec![3]));
    assert!(array.drain(0).is_err());
    let mut rebuild = array.begin_rebuild(2, 3).unwrap();
    while array.rebuild_step(&mut rebuild).unwrap() != Progress::Done {}
    drop(array);
    fleet.revive_client();
    // Found again at its new server, and another one may be lost.
    fleet.set_trouble(0, Trouble::Down);
    let array = Array::open(fleet, ArrayOptions::default()).unwrap();
    reads_right(&array, 1);
    assert_eq!(array.status().members[2], (State::Good, 3));
}

/// An epoch that cannot be noted stops everything. Once it can, the array continues with all its
/// data, unless another client has opened it meanwhile.
#[test]
fn an_array_goes_on_once_its_epoch_is_noted_unless_it_was_taken_over() {
    for taken in [false, true] {
        let fleet = Arc::new(SimFleet::new(3, SIZE, 1));
        let notebook = Arc::new(Notebook::default());
        let create = CreateOptions { policy: Policy::Parity, uuid: [1; 16], spares: 0 };
        let array = Array::create(fleet.clone(), &create, options(&notebook)).unwrap();
        let write = |array: &Array<_>, version: u64| {
            (0..40)
                .try_for_each(|block| {
                    array.write(block * BLOCK as u64, &fill(block + version, block))
                })
                .and_then(|()| array.flush())
        };
        write(&array, 1).unwrap();
        notebook.set_away(true);
        fleet.restart_empty(0);
        assert_eq!(write(&array, 7).unwrap_err().class, ErrorClass::Gone);
        assert!(array.awaits_witness() && array.resume().is_err());
        assert!(array.read(0, &mut [0; BLOCK]).is_err() && array.flush().is_err());
        notebook.set_away(false);
        if taken {
            let other = Array::open(fleet.clone(), options(&notebook)).unwrap();
            write(&other, 9).unwrap();
            assert!(matches!(array.resume(), Err(ArrayError::Witness(_))));
            assert!(
                array.read(0, &mut [0; BLOCK]).is_err() && array.write(0, &[0; BLOCK]).is_err()
            );
            reads_right(&other, 9);
            continue;
        }
        array.resume().unwrap();
        assert!(!array.awaits_witness() && array.lost() == [0]);
        write(&array, 7).unwrap();
        reads_right(&array, 7);
        // The flushed data is there for the next client, without the lost server.
        drop(array);
        fleet.revive_client();
        reads_right(&Array::open(fleet, options(&notebook)).unwrap(), 7);
    }
}

#[test]
fn an_array_with_a_log_is_not_changed_without_it_unless_somebody_says_so() {
    let fleet = Arc::new(SimFleet::new(2, SIZE, 1));
    let with = |log, read_only| ArrayOptions { log, read_only, ..ArrayOptions::default() };
    let open = |log, read_only| {
        fleet.revive_client();
        Array::open(fleet.clone(), with(log, read_only))
    };
    let create = CreateOptions { policy: Policy::Mirror, uuid: [1; 16], spares: 0 };
    drop(Array::create(fleet.clone(), &create, with(LogUse::Kept, false)).unwrap());
    let before = fleet.changes();
    assert_eq!(open(LogUse::Unsaid, false).err(), Some(ArrayError::Logged));
    assert!(open(LogUse::Unsaid, true).is_ok());
    assert_eq!(fleet.changes(), before);
    // Keeping the log does not change that, nor does one of two servers alone.
    assert!(open(LogUse::Kept, false).is_ok());
    fleet.restart_empty(0);
    assert!(open(LogUse::Kept, false).is_err());
    let degraded = ArrayOptions { degraded: true, ..with(LogUse::Kept, false) };
    fleet.revive_client();
    let mut array = Array::open(fleet.clone(), degraded).unwrap();
    let mut rebuild = array.begin_rebuild(0, 0).unwrap();
    while array.rebuild_step(&mut rebuild).unwrap() != Progress::Done {}
    assert_eq!(open(LogUse::Unsaid, false).err(), Some(ArrayError::Logged));
    // Once the log is left, it stays left until a client keeps it again.
    assert!(open(LogUse::Left, false).is_ok());
    assert!(open(LogUse::Unsaid, false).is_ok());
    array = open(LogUse::Kept, false).unwrap();
    drop(array);
    assert_eq!(open(LogUse::Unsaid, false).err(), Some(ArrayError::Logged));
}
