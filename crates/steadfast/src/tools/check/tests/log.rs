//! Damage of the intent log: a torn end is none, a gap is.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use steadfast_media::MemoryMedium;

use crate::format::key::{Key, Kind};
use crate::fs::SetXattrMode;
use crate::testing::TestPlatform;
use crate::tools::check::Severity;
use crate::tools::check::tests::edit::{leaf, rot_node};
use crate::tools::check::tests::forge::Forge;
use crate::tools::check::tests::sample::{SMALL, run, sample, sample_with_points};
use crate::types::BlockAddress;
use crate::volume::Volume;

#[test]
fn a_gap_in_the_log_is_damage_and_its_torn_end_is_none() {
    let sound = sample(2, 4);
    let report = run(&Forge::new(&sound)).unwrap();
    assert!(report.is_clean() && report.replayed_records == 4, "{:#?}", report.findings);
    for record in 0..4u64 {
        let forge = Forge::new(&sound);
        let start = forge.store.device.superblock.log.start.0 + forge.metaroot.log.block;
        forge.rot(BlockAddress(start + record));
        let report = run(&forge).unwrap();
        if record == 3 {
            // It looks like a record that a power cut has torn.
            assert!(report.is_clean(), "{:#?}", report.findings);
            continue;
        }
        let block = start + record;
        let words = format!("at block {block} is damaged: records ");
        let found = report.findings.iter().find(|finding| finding.to_string().contains(&words));
        let found = found.unwrap_or_else(|| panic!("{record}: {:#?}", report.findings));
        assert_eq!((found.severity, found.block), (Severity::Damaged, Some(BlockAddress(block))));
        assert_eq!(report.replayed_records, record);
    }
}

/// Transaction points of a group. Damage to the older block is none. Damage to the newer block is
/// damage to the last record, unless another group shows that it was there.
#[test]
fn of_a_group_only_the_newest_record_counts() {
    let small = |volume: &Volume<Arc<MemoryMedium>, TestPlatform>, index: usize| {
        volume.write(SMALL, 0, &[index as u8; 9], false).unwrap();
    };
    let replayed = |sound: &[u8], block: u64| {
        let forge = Forge::new(sound);
        forge.rot(BlockAddress(
            forge.store.device.superblock.log.start.0 + forge.metaroot.log.block + block,
        ));
        let report = run(&forge).unwrap();
        (report.is_clean(), report.replayed_records)
    };
    let group = sample_with_points(2, 4, small);
    assert!(run(&Forge::new(&group)).unwrap().is_clean());
    assert_eq!(replayed(&group, 0), (true, 4), "the older of two");
    assert_eq!(replayed(&group, 1), (true, 3), "the newer of two: like one that was torn");
    // Five points in the first group, and two that are too long to share one.
    let three = sample_with_points(2, 7, |volume, index| {
        small(volume, index);
        if index >= 4 {
            let name = format!("user.{index}");
            volume
                .set_xattr(SMALL, name.as_bytes(), &[index as u8; 200], SetXattrMode::Any)
                .unwrap();
        }
    });
    assert_eq!(replayed(&three, 3), (true, 6), "the last");
    assert_eq!(
        replayed(&three, 0),
        (false, 4),
        "the newer of two of a group that another one follows"
    );
    assert_eq!(replayed(&three, 1), (true, 7), "its older one");
}

/// A node that replay needs is lost: the volume accepts no changes, and the check reports what is
/// wrong.
#[test]
fn damage_that_keeps_the_log_from_being_replayed_is_located() {
    let mut forge = Forge::new(&sample(2, 2));
    let depth = leaf(&forge);
    rot_node(&mut forge, Key::new(SMALL, Kind::Inline, 0), depth, &[0, 1]);
    let report = run(&forge).unwrap();
    let lines: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    assert!(
        lines.iter().any(|line| line.contains("the intent log cannot be replayed")),
        "{lines:#?}"
    );
    assert!(
        lines.iter().any(|line| line.contains("keys from") && line.contains("/small")),
        "{lines:#?}"
    );
}
