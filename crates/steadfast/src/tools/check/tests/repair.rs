//! Repair on the whole catalogue of damage. Damage that needs no guess is repaired, with every byte
//! as before. For other damage not one byte of the image is changed.

use alloc::string::String;
use alloc::vec::Vec;

use steadfast_media::{
    ErrorClass, Geometry, Medium, MediumError, MediumOperation, MemoryMedium, SimMedium, SimOptions,
};

use crate::format::key::Key;
use crate::options::OpenOptions;
use crate::testing::TestPlatform;
use crate::tools::check::tests::catalogue::CLASSES;
use crate::tools::check::tests::edit::rot_slot;
use crate::tools::check::tests::forge::Forge;
use crate::tools::check::tests::sample::{BIG, OTHER, SMALL, sample};
use crate::tools::check::{CheckOptions, RepairReport, check, repair};
use crate::types::InodeNumber;
use crate::volume::Volume;

/// The classes that can be repaired. All others stay unchanged.
const REPAIRED: &[&str] = &[
    "first superblock",
    "second superblock",
    "newest metaroot, first copy",
    "newest metaroot, second copy",
    "older metaroot, first copy",
    "leaf, first copy",
    "leaf, second copy",
    "root node, second copy",
    "count of blocks",
    "link count of a file",
    "link count of a directory",
    "entry count of a directory",
    "wrong parent",
    "orphan record forgotten",
    "orphan record without need",
    "orphan record for nothing",
];

fn run(forge: &Forge) -> RepairReport {
    repair(forge.medium.clone(), TestPlatform::new(), &CheckOptions::default(), &mut |_| {})
        .unwrap()
}

/// Size and content of the files of the sample.
fn content(forge: &Forge) -> Vec<(u64, Vec<u8>)> {
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let volume = Volume::open(forge.medium.clone(), options, TestPlatform::new()).unwrap();
    let file = |inode: InodeNumber| {
        let size = volume.attributes(inode).unwrap().size;
        let mut bytes = alloc::vec![0; size as usize];
        assert_eq!(volume.read(inode, 0, &mut bytes).unwrap(), bytes.len());
        (size, bytes)
    };
    [BIG, SMALL, OTHER].into_iter().map(file).collect()
}

#[test]
fn what_needs_no_guess_is_repaired_and_the_rest_is_left_alone() {
    for records in [0, 3] {
        let sound = sample(2, records);
        let expected = content(&Forge::new(&sound));
        let mut wrong: Vec<String> = Vec::new();
        for class in CLASSES {
            let mut forge = Forge::new(&sound);
            (class.plant)(&mut forge);
            let before = forge.medium.to_bytes();
            let report = run(&forge);
            let name = class.name;
            match (REPAIRED.contains(&name), report.after.is_clean(), report.changed()) {
                (true, true, true) => {
                    assert_eq!(content(&forge), expected, "{name}");
                    assert!(run(&forge).before.is_clean(), "{name}: clean for good");
                }
                (false, false, false) => {
                    assert_eq!(forge.medium.to_bytes(), before, "{name}: untouched")
                }
                // The state differs from that of the catalogue: with a log the damage of the
                // checkpointed state may be overwritten.
                _ if records > 0 && report.before.is_clean() => {}
                (_, clean, changed) => wrong.push(alloc::format!(
                    "{name} ({records} records): clean {clean}, changed {changed}: {:#?}",
                    report.after.findings
                )),
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

/// A lost data block does not prevent the repair of a bad copy. A count is not changed if keys are
/// missing.
#[test]
fn copies_are_repaired_beside_lost_data_and_counts_only_in_a_whole_structure() {
    let plant = |forge: &mut Forge, name: &str| {
        let class = CLASSES.iter().find(|class| class.name == name).unwrap();
        (class.plant)(forge);
    };
    let mut forge = Forge::new(&sample(2, 0));
    plant(&mut forge, "data block");
    plant(&mut forge, "leaf, second copy");
    plant(&mut forge, "link count of a file");
    let report = run(&forge);
    assert_eq!(
        (report.after.damaged, report.after.degraded),
        (1, 0),
        "{:#?}",
        report.after.findings
    );
    assert!(report.counts == 1 && report.copies >= 1, "{report:#?}");

    let mut forge = Forge::new(&sample(2, 0));
    plant(&mut forge, "entry count of a directory");
    plant(&mut forge, "file's inode missing");
    let before = forge.medium.to_bytes();
    assert!(!run(&forge).changed());
    assert_eq!(forge.medium.to_bytes(), before);
    assert!(forge.store.get(&forge.metaroot.root(), &Key::inode(BIG)).unwrap().is_some());
}

/// The power can be cut at every request of a repair: a second repair finishes what the first one
/// began.
#[test]
fn an_interrupted_repair_is_begun_again() {
    let sound = sample(2, 0);
    let expected = content(&Forge::new(&sound));
    let mut forge = Forge::new(&sound);
    for name in ["entry count of a directory", "first superblock", "leaf, first copy"] {
        let class = CLASSES.iter().find(|class| class.name == name).unwrap();
        (class.plant)(&mut forge);
    }
    let mut cuts = 0;
    for requests in 0.. {
        let sim = SimMedium::on(&forge.medium, SimOptions::disk(0));
        sim.arm_power_cut(requests);
        let _ = repair(&sim, TestPlatform::new(), &CheckOptions::default(), &mut |_| {});
        for survival in sim.corner_cases() {
            let left = Forge::new(&sim.power_cut_with(survival).to_bytes());
            assert!(run(&left).after.is_clean(), "cut at {requests}, {survival:?}");
            assert_eq!(content(&left), expected, "cut at {requests}, {survival:?}");
            cuts += 1;
        }
        if !sim.is_off() {
            break;
        }
    }
    assert!(cuts > 10, "{cuts}");
}

/// A report says that there is something to repair if a repair then repairs, and only then. A bad
/// copy beside other damage is not enough: the volume may not open.
#[test]
fn a_report_promises_what_a_repair_does() {
    type Plant = fn(&mut Forge);
    let copies: [(&str, Plant); 4] = [
        ("nothing", |_| {}),
        ("a superblock copy", |f| f.rot_bytes(f.store.device.superblock.second_offset())),
        ("a copy of the newest metaroot", |f| rot_slot(f, f.metaroot.generation.0, &[1])),
        ("a copy of the older metaroot", |f| rot_slot(f, f.metaroot.generation.0 + 1, &[0])),
    ];
    let options = CheckOptions::default();
    let mut wrong: Vec<String> = Vec::new();
    for records in [0, 3] {
        let sound = sample(2, records);
        for (class, (beside, plant)) in
            CLASSES.iter().flat_map(|class| copies.map(|copy| (class, copy)))
        {
            let mut forge = Forge::new(&sound);
            (class.plant)(&mut forge);
            plant(&mut forge);
            let name = alloc::format!("{} and {beside} ({records} records)", class.name);
            let Ok(found) = check(forge.medium.clone(), TestPlatform::new(), &options, &mut |_| {})
            else {
                continue;
            };
            let report = run(&forge);
            let (before, after) = (&report.before, &report.after);
            assert_eq!(&found, before, "{name}");
            let fewer = after.damaged + after.degraded < before.damaged + before.degraded;
            let (promised, kept) = (found.is_repairable(), report.changed() && fewer);
            if promised != kept || report.changed() != kept {
                wrong.push(alloc::format!("{name}: promised {promised}, kept {kept}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A medium that cannot read some of its bytes.
struct Unreadable<'a> {
    medium: &'a MemoryMedium,
    bad: Vec<core::ops::Range<u64>>,
}

impl Medium for Unreadable<'_> {
    fn geometry(&self) -> Geometry {
        self.medium.geometry()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        let end = offset + buffer.len() as u64;
        if self.bad.iter().any(|bad| offset < bad.end && bad.start < end) {
            return Err(MediumError {
                operation: MediumOperation::Read,
                offset,
                length: buffer.len() as u64,
                class: ErrorClass::Permanent,
                os_error: 0,
            });
        }
        self.medium.read(offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        self.medium.write(offset, data)
    }

    fn flush(&self) -> Result<(), MediumError> {
        self.medium.flush()
    }
}

/// Beside a node that the medium cannot read, a repair rewrites a bad copy and says so. Where the
/// volume does not open without that node, nothing is promised.
#[test]
fn a_copy_is_repaired_beside_an_unreadable_node() {
    let forge = Forge::new(&sample(2, 0));
    let superblock = &forge.store.device.superblock;
    forge.rot_bytes(superblock.second_offset());
    let (block, node) = (u64::from(superblock.block_size), u64::from(superblock.node_size));
    for (depth, pointer) in forge.path(&Key::inode(InodeNumber::ROOT)).iter().enumerate() {
        let bad = pointer.addresses.iter().map(|at| at.0 * block..at.0 * block + node).collect();
        let medium = Unreadable { medium: &forge.medium.clone(), bad };
        let options = CheckOptions::default();
        let report = repair(&&medium, &TestPlatform::new(), &options, &mut |_| {}).unwrap();
        let promised = report.before.is_repairable();
        assert!(promised || depth > 0, "depth {depth}");
        assert_eq!((report.counts, report.copies), (0, u64::from(promised)), "depth {depth}");
        assert!(report.after.damaged > 0 && !report.after.is_repairable(), "depth {depth}");
    }
}
