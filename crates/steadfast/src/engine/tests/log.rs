//! The log of a volume that runs for long, and a log that is full at a power cut.

use alloc::format;
use std::sync::Arc;

use steadfast_media::{Medium, MemoryMedium};

use crate::engine::tests::{TestVolume, make};
use crate::log;
use crate::mask::TransactionMask;
use crate::options::{FormatOptions, OpenOptions};
use crate::testing::TestPlatform;
use crate::types::InodeNumber;
use crate::volume::Volume;

fn volume(size: u64, log_size: Option<u64>) -> (Arc<MemoryMedium>, TestVolume) {
    let medium = Arc::new(MemoryMedium::new(size, 512).unwrap());
    let options =
        FormatOptions { mask: TransactionMask::MANUAL, log_size, ..FormatOptions::default() };
    Volume::format(&medium, &options, &TestPlatform::new()).unwrap();
    let volume = open(&medium);
    (medium, volume)
}

fn open(medium: &Arc<MemoryMedium>) -> TestVolume {
    Volume::open(medium.clone(), OpenOptions::default(), TestPlatform::new()).unwrap()
}

/// Points that change the same keys for ever fit one group, so the log never fills. The blocks that
/// they free must come back all the same, even if the mask has no `volume full`.
#[test]
fn overwriting_one_file_for_ever_does_not_use_up_the_volume() {
    let (_, volume) = volume(16 << 20, None);
    let file = make(&volume, b"file");
    for round in 0..40_000u32 {
        let bytes = [round as u8; 4096];
        volume
            .write(file, 0, &bytes, false)
            .unwrap_or_else(|error| panic!("round {round}: {error}"));
        volume.transact().unwrap_or_else(|error| panic!("round {round}: {error}"));
        if round % 100 == 0 {
            volume.background().unwrap();
        }
    }
}

/// In a full log the place after the last record is that of the first. The mount destroys what a
/// power cut has left of a record in the last group, and nothing else.
#[test]
fn the_first_record_of_a_full_log_survives_the_remains_of_the_last() {
    let (medium, volume) = volume(8 << 20, Some(68 << 10));
    volume.checkpoint().unwrap();
    let mut made = 0;
    let last = loop {
        make(&volume, format!("file {made}").as_bytes());
        volume.transact().unwrap();
        made += 1;
        // As if there had been no room when it began: then no operation writes the checkpoint that
        // would empty the log.
        if let Some(frozen) = &mut volume.engine.working.lock().frozen {
            frozen.log_used = u64::MAX;
        }
        let durable = volume.engine.working.lock().checkpointed;
        let found = log::scan(&volume.engine.store, durable.log, durable.generation).unwrap();
        let last = found.places().last().unwrap();
        let full = found.blocks == volume.engine.working.lock().log.blocks();
        // Its newest record extends past the part torn below.
        if full && last.index > 1 && last.payload > 512 {
            break last;
        }
        assert!(made < 1000, "the log was never full");
    };
    let superblock = volume.engine.superblock().clone();
    drop(volume);
    // The newest record is torn; the previous one is in the other block.
    let block_size = u64::from(superblock.block_size);
    let torn = (superblock.log.start.0 + last.block) * block_size + 512;
    medium.write(torn, &[0xa5; 512]).unwrap();
    for mount in 0..3 {
        let volume = open(&medium);
        for number in 0..made - 1 {
            let name = format!("file {number}");
            assert!(
                volume.lookup(InodeNumber::ROOT, name.as_bytes()).is_ok(),
                "mount {mount}: {name}"
            );
        }
    }
}
