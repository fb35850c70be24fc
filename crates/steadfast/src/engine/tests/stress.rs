//! The engine at its limits: few bitmaps in memory, full branches, no space, and forged images.

use alloc::vec;
use alloc::vec::Vec;
use std::sync::Arc;

use steadfast_media::{Medium as _, MemoryMedium, Random};

use crate::engine::keyspace::{KeyspaceRead, SpaceClass};
use crate::error::Error;
use crate::format::key::{Key, Kind};
use crate::format::{RecordBuilder, STRUCTURE_DIGEST, STRUCTURE_SIZE, Superblock, digest_of};
use crate::fs::{Caller, NewNode};
use crate::log;
use crate::mask::TransactionMask;
use crate::memory::Short;
use crate::options::{FormatOptions, OpenOptions};
use crate::platform::Platform;
use crate::testing::TestPlatform;
use crate::tools::check::{CheckOptions, check};
use crate::tree::PlannedChange;
use crate::types::InodeNumber;
use crate::volume::Volume;

type Medium = Arc<MemoryMedium>;
type TestVolume = Volume<Medium, TestPlatform>;

fn format(size: u64, options: &FormatOptions) -> Medium {
    let medium = Arc::new(MemoryMedium::new(size, 128).unwrap());
    Volume::format(&medium, options, &TestPlatform::new()).unwrap();
    medium
}

fn open(medium: &Medium, cache_size: usize) -> TestVolume {
    let options = OpenOptions { cache_size, ..OpenOptions::default() };
    Volume::open(medium.clone(), options, TestPlatform::new()).unwrap()
}

fn assert_clean(medium: &Medium) {
    let report =
        check(medium.clone(), TestPlatform::new(), &CheckOptions::default(), &mut |_| ()).unwrap();
    assert!(report.is_clean(), "{:?}", report.findings);
}

/// Blocks are counted in groups that may leave memory between planning and entering them.
#[test]
fn more_groups_than_fit_memory() {
    let options = FormatOptions {
        block_size: 512,
        mask: TransactionMask::MANUAL,
        ..FormatOptions::default()
    };
    let medium = format(32 << 20, &options);
    let volume = open(&medium, 0);
    let data = vec![7; 40 << 10];
    let mut seed = Random::new(1);
    let mut files = Vec::new();
    for number in 0..1500u64 {
        let name = alloc::format!("{number}");
        let caller = Caller::default();
        match seed.below(1 << 31) % 3 {
            0 if !files.is_empty() => {
                let (_, name): (InodeNumber, alloc::string::String) =
                    files.swap_remove(seed.below(1 << 31) as usize % files.len());
                volume.unlink(InodeNumber::ROOT, name.as_bytes()).unwrap();
            }
            1 if !files.is_empty() => {
                let (inode, _) = &files[seed.below(1 << 31) as usize % files.len()];
                let at = seed.below(1 << 31) % (30 << 10);
                volume.write(*inode, at, &data[..5000], false).unwrap();
            }
            _ if files.len() < 500 => {
                let made = volume
                    .create(InodeNumber::ROOT, name.as_bytes(), NewNode::Regular, 0o644, &caller)
                    .unwrap();
                volume.write(made.inode, 0, &data, false).unwrap();
                files.push((made.inode, name));
            }
            _ => {}
        }
        if number % 100 == 0 {
            volume.checkpoint().unwrap();
            assert_clean(&medium);
        }
    }
    volume.checkpoint().unwrap();
    assert_clean(&medium);
}

/// New nodes that puts take, and the number planned for them.
fn planned_and_used(volume: &TestVolume, puts: &[(Key, usize)]) -> (u64, u64) {
    let mut working = volume.engine.working.lock();
    let changes: Vec<PlannedChange> = puts
        .iter()
        .map(|(key, length)| PlannedChange { key: *key, value_len: Some(*length) })
        .collect();
    let roots = volume.engine.roots(&working);
    let mut plan = volume.engine.store.plan(&roots.working, working.generation, &changes).unwrap();
    let planned = plan.nodes;
    // Nodes taken beyond the plan are counted here; far beyond it the change fails.
    plan.nodes += 20;
    working.prepare_change(&volume.engine.store, &roots, &plan, &[]).unwrap();
    let before = working.pool.len();
    volume
        .engine
        .change_tree(&mut working, plan, |tree| {
            puts.iter().try_for_each(|(key, length)| tree.put(key, &vec![1; *length]).map(drop))
        })
        .unwrap();
    let used = before - working.pool.len();
    working.enter_nodes(&volume.engine.store);
    (planned, used as u64)
}

/// A change never takes more nodes than were set aside for it, even if many leaves below full
/// branches split at once.
#[test]
fn no_change_takes_more_nodes_than_planned() {
    let mut tightest = u64::MAX;
    for round in 0..300u64 {
        let mut seed = Random::new(round);
        let options = FormatOptions {
            block_size: 512,
            metadata_copies: Some(1),
            log_size: Some(0),
            ..FormatOptions::default()
        };
        let medium = format(4 << 20, &options);
        let volume = open(&medium, 8 << 20);
        let value_len_max = volume.engine.superblock().value_len_max() as u64;
        let spread = [20, 60, 150, 250, value_len_max][(round % 5) as usize];
        let shape = round / 5 % 4;
        // Ascending: full leaves below full branches. Otherwise: random fill.
        let count = if spread > 100 { 300 } else { 900 };
        let place = |seed: &mut Random, index: u64| match shape {
            0 => index * 1000,
            1 => (count - index) * 1000,
            _ => seed.below(1 << 31) % (count * 1000),
        };
        let key = |number: u64| Key::new(InodeNumber(100 + number), Kind::Xattr, 0);
        for index in 0..count {
            let length = if shape == 3 { spread } else { seed.below(1 << 31) % (spread + 1) };
            let (planned, used) =
                planned_and_used(&volume, &[(key(place(&mut seed, index)), length as usize)]);
            assert!(used <= planned, "round {round}: {used} of {planned}");
        }
        for _ in 0..40 {
            let near = seed.below(1 << 31) % (count * 1000);
            let narrow = seed.below(1 << 31).is_multiple_of(3);
            let largest = [10, 60, 150, 250, value_len_max][(seed.below(1 << 31) % 5) as usize];
            let mut puts: Vec<(Key, usize)> = (0..seed.below(1 << 31) % 64)
                .map(|_| {
                    let at = seed.below(1 << 31);
                    let at = if narrow { near + at % 3000 } else { at % (count * 1000) };
                    (key(at), (seed.below(1 << 31) % (largest + 1)) as usize)
                })
                .collect();
            puts.sort_unstable();
            puts.dedup_by_key(|(key, _)| *key);
            let (planned, used) = planned_and_used(&volume, &puts);
            assert!(used <= planned, "round {round}: {used} of {planned}");
            tightest = tightest.min(planned - used);
        }
    }
    assert!(tightest < 100, "the plan is far off");
}

/// What was made durable on a full volume can be replayed on it.
#[test]
fn a_full_volume_opens_after_a_power_cut() {
    for (block_size, size) in [(4096, 16 << 20), (512, 4 << 20), (512, 64 << 20)] {
        let options =
            FormatOptions { block_size, mask: TransactionMask::MANUAL, ..FormatOptions::default() };
        let medium = format(size, &options);
        let volume = open(&medium, 8 << 20);
        let caller = Caller::default();
        let make =
            |name: &[u8]| volume.create(InodeNumber::ROOT, name, NewNode::Regular, 0o644, &caller);
        let fill = make(b"fill").unwrap().inode;
        volume.checkpoint().unwrap();
        let mut at = 0;
        let mut length = 1 << 20;
        while length >= 128 {
            match volume.write(fill, at, &vec![3; length], false) {
                Ok(()) => at += length as u64,
                Err(Error::NoSpace) => length /= 2,
                Err(error) => panic!("{error}"),
            }
        }
        volume.checkpoint().unwrap();
        // Frees some room, so that one transaction can be about as large as a record.
        volume
            .set_attributes(
                fill,
                &crate::fs::SetAttributes { size: Some(at - size / 40), ..Default::default() },
            )
            .unwrap();
        volume.checkpoint().unwrap();
        let mut made = 0u64;
        loop {
            let name = alloc::format!("{:0>200}", made);
            match make(name.as_bytes()) {
                Ok(_) => made += 1,
                Err(Error::NoSpace) => break,
                Err(error) => panic!("{error}"),
            }
            // Each point is a record as large as the log takes, until the log is half full.
            let working = volume.engine.working.lock();
            let full = made.is_multiple_of(200) && working.log.used() < working.log.blocks() / 4;
            drop(working);
            if full {
                volume.transact().unwrap();
            }
        }
        volume.transact().unwrap();
        drop(volume);
        let volume = open(&medium, 8 << 20);
        let last = alloc::format!("{:0>200}", made - 1);
        volume.lookup(InodeNumber::ROOT, last.as_bytes()).unwrap();
        drop(volume);
        assert_clean(&medium);
    }
}

/// A record of an earlier volume with the same uuid is never replayed on the new volume.
#[test]
fn format_forgets_the_log_of_an_earlier_volume() {
    let options = FormatOptions { mask: TransactionMask::MANUAL, ..FormatOptions::default() };
    let medium = format(4 << 20, &options);
    let volume = open(&medium, 1 << 20);
    volume.create(InodeNumber::ROOT, b"old", NewNode::Regular, 0o644, &Caller::default()).unwrap();
    volume.transact().unwrap();
    drop(volume);
    Volume::format(&medium, &options, &TestPlatform::new()).unwrap();
    let volume = open(&medium, 1 << 20);
    assert_eq!(volume.info().replayed_records, 0);
    assert_eq!(volume.lookup(InodeNumber::ROOT, b"old").unwrap_err(), Error::NotFound);
}

/// The error that the first change reports after a record with this key and value. The record has
/// a good checksum.
fn error_of_record(key: &Key, value: &[u8]) -> Option<Error> {
    let medium = format(4 << 20, &FormatOptions { block_size: 512, ..FormatOptions::default() });
    let volume = open(&medium, 1 << 20);
    let mut builder = RecordBuilder::new(0).unwrap();
    builder.add(key, Some(value)).unwrap();
    let position = volume.engine.working.lock().log.position();
    let crc = |bytes: &[u8]| volume.engine.store.device.crc(bytes);
    let body = builder.body(512).unwrap();
    let (bytes, _) =
        body.finish(&position, 0, volume.engine.store.device.volume_id(), false, 512, crc);
    log::write(&volume.engine.store, position.block, &bytes).unwrap();
    drop(volume);
    let opened = Volume::open(medium, OpenOptions::default(), TestPlatform::new());
    opened.and_then(|volume| volume.engine.replay_overlay()).err()
}

/// A value that no node can hold is damage of the log.
#[test]
fn a_value_longer_than_a_node_in_the_log_is_damage() {
    let error = error_of_record(&Key::new(InodeNumber(20), Kind::Xattr, 0), &[1; 5000]);
    assert!(matches!(error, Some(Error::CorruptLog { .. })), "{error:?}");
}

/// An extent outside the volume is damage of the log, not of the tree that it goes into.
#[test]
fn an_extent_out_of_range_in_the_log_is_damage_of_the_log() {
    let mut value = [0; 25];
    value[..8].copy_from_slice(&(1_u64 << 40).to_le_bytes());
    value[8] = 1;
    let error = error_of_record(&Key::new(InodeNumber(20), Kind::Extent, 0), &value);
    assert!(matches!(error, Some(Error::CorruptLog { .. })), "{error:?}");
}

/// Each number of metadata copies but 1 and 2 is refused, also those whose low byte is 1 or 2.
#[test]
fn a_number_of_copies_beyond_two_is_refused() {
    let medium = format(4 << 20, &FormatOptions::default());
    let mut bytes = [0; STRUCTURE_SIZE];
    medium.read(0, &mut bytes).unwrap();
    let mut decode = |copies: u32| {
        bytes[72..76].copy_from_slice(&copies.to_le_bytes());
        let crc = TestPlatform::new().crc32c(0, &bytes[..STRUCTURE_DIGEST]);
        bytes[STRUCTURE_DIGEST..].copy_from_slice(&digest_of(crc));
        Superblock::decode(&bytes, &TestPlatform::new())
    };
    assert_eq!(decode(1).unwrap().metadata_copies, 1);
    assert_eq!(decode(2).unwrap().metadata_copies, 2);
    for copies in [0, 3, 255, 256, 257, 258, 0x0100_0001, u32::MAX] {
        let refused = Error::UnsupportedParameter("metadata copies");
        assert_eq!(decode(copies).unwrap_err(), refused, "{copies}");
    }
}

/// Blocks that are freed while a reader still uses them come back, even in a group that was full
/// meanwhile.
#[test]
fn pinned_blocks_come_back_after_the_reader() {
    let options = FormatOptions {
        block_size: 512,
        mask: TransactionMask::MANUAL,
        ..FormatOptions::default()
    };
    let medium = format(8 << 20, &options);
    let volume = open(&medium, 8 << 20);
    let caller = Caller::default();
    let make =
        |name: &[u8]| volume.create(InodeNumber::ROOT, name, NewNode::Regular, 0o644, &caller);
    let (file, fill) = (make(b"file").unwrap().inode, make(b"fill").unwrap().inode);
    volume.write(file, 0, &vec![1; 3 << 20], false).unwrap();
    volume.checkpoint().unwrap();
    let grow = |mut at: u64| {
        while volume.write(fill, at, &[2; 512], false).is_ok() {
            at += 512;
        }
        at
    };
    let (pin, pinned) = {
        // In the middle, where there are no nodes.
        let reader = volume.engine.reader().unwrap();
        let found =
            reader.next(&Key::extent(file, 3000), &Key::extent(file, u64::MAX)).unwrap().unwrap();
        let run = crate::format::extent::decode_run(&found.1).unwrap();
        (volume.engine.pin(Short::of(&[run]).unwrap()), run.count * 512)
    };
    volume.unlink(InodeNumber::ROOT, b"file").unwrap();
    while volume.orphan_step().unwrap() {}
    volume.checkpoint().unwrap();
    let first = grow(0);
    drop(pin);
    volume.checkpoint().unwrap();
    let more = grow(first) - first;
    assert!(more >= pinned, "{more} of {pinned} bytes came back");
}

/// Addresses set aside for a change that might have needed many nodes are returned to data.
#[test]
fn nodes_that_were_only_planned_go_back_to_data() {
    let options = FormatOptions { mask: TransactionMask::MANUAL, ..FormatOptions::default() };
    let medium = format(8 << 20, &options);
    let volume = open(&medium, 8 << 20);
    let caller = Caller::default();
    let file =
        volume.create(InodeNumber::ROOT, b"file", NewNode::Regular, 0o644, &caller).unwrap().inode;
    let name = b"user.large";
    volume.set_xattr(file, name, &vec![1; 60 << 10], crate::fs::SetXattrMode::Any).unwrap();
    volume.remove_xattr(file, name).unwrap();
    volume.checkpoint().unwrap();
    volume.checkpoint().unwrap();
    let mut at = 0;
    while volume.write(file, at, &[2; 4096], false).is_ok() {
        at += 4096;
    }
    let free = volume.statistics().unwrap().blocks_available;
    assert!(free < 32, "{free} blocks are left");
}

/// Keys in random order, as hashed names are, leave nodes two thirds full.
#[test]
fn random_keys_fill_the_nodes() {
    let options =
        FormatOptions { metadata_copies: Some(1), log_size: Some(0), ..FormatOptions::default() };
    for length in [41, 200] {
        let medium = format(128 << 20, &options);
        let volume = open(&medium, 64 << 20);
        let mut seed = Random::new(7);
        let mut bytes = 0;
        for _ in 0..20_000 {
            let key = Key::new(InodeNumber(100), Kind::Dirent, seed.below(1 << 31) << 20);
            let length = length + seed.below(1 << 31) as usize % 10;
            planned_and_used(&volume, &[(key, length)]);
            bytes += length + Key::LEN + 4;
        }
        let nodes = volume.engine.working.lock().nodes;
        assert!(bytes as u64 > nodes * 4096 * 6 / 10, "{bytes} bytes in {nodes} nodes");
    }
}

/// When the first branch below another one is removed, the next branch takes its place. It then
/// gets keys that are lower than its own first key. Leaves that split there must stay in order.
#[test]
fn keys_below_a_removed_branch_stay_in_order() {
    let options =
        FormatOptions { block_size: 512, metadata_copies: Some(1), ..FormatOptions::default() };
    let medium = format(8 << 20, &options);
    let volume = open(&medium, 1 << 20);
    let key = |number: u64| Key::new(InodeNumber(100), Kind::Xattr, number);
    let change = |numbers: &[u64], present: bool| {
        for batch in numbers.chunks(16) {
            volume
                .update(SpaceClass::Normal, |tx| {
                    for number in batch {
                        match present {
                            true => tx.put(key(*number), alloc::vec![*number as u8; 40])?,
                            false => tx.delete(&key(*number))?,
                        }
                    }
                    Ok(())
                })
                .unwrap();
        }
    };
    let all: Vec<u64> = (0..3_000).collect();
    change(&all, true);
    for removed in [40, 90, 200, 500, 1_000] {
        change(&all[..removed], false);
        // From the top down, so that the lowest leaf splits repeatedly.
        let again: Vec<u64> = all[..removed].iter().rev().copied().collect();
        change(&again, true);
        volume.checkpoint().unwrap();
        // Another volume reads the nodes from the medium, which checks them.
        let second = open(&medium, 1 << 20);
        let reader = second.engine.reader().unwrap();
        assert!(all.iter().all(|number| reader.get(&key(*number)).unwrap().is_some()));
    }
}
