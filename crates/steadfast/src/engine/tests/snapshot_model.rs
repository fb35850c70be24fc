//! Snapshots compared with a simple model: random files, transaction points, snapshots, deletions,
//! rollbacks, and power cuts in the middle of any of them.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use std::sync::Arc;

use proptest::prelude::*;
use steadfast_media::sim::Survival;
use steadfast_media::{SimMedium, SimOptions};

use crate::error::{Error, Result};
use crate::fs::{Caller, NewNode, SetAttributes};
use crate::mask::TransactionMask;
use crate::options::{FormatOptions, OpenOptions};
use crate::testing::TestPlatform;
use crate::tools::check::{CheckOptions, CheckReport, check};
use crate::types::InodeNumber;
use crate::volume::Volume;

type TestVolume = Volume<Arc<SimMedium>, TestPlatform>;
type Files = BTreeMap<String, Vec<u8>>;

const ROOT: InodeNumber = InodeNumber::ROOT;

/// The expected state of the volume.
#[derive(Debug, Clone, Default, PartialEq)]
struct Model {
    files: Files,
    /// Oldest first.
    snapshots: Vec<(String, Files)>,
}

#[derive(Debug, Clone)]
enum Step {
    Write { file: u8, offset: u16, length: u16 },
    Truncate { file: u8, size: u16 },
    Clone { from: u8, at: u8, to: u8, to_at: u8, blocks: u8 },
    Remove { file: u8 },
    Transact,
    Checkpoint,
    Rollback,
    Take,
    Delete { which: u8 },
    GoBack { which: u8 },
    Background,
    Reopen { clean: bool },
}

fn step() -> impl Strategy<Value = (Step, Option<u8>)> {
    let step = prop_oneof![
        10 => (0u8..30, 0u16..4000, 1u16..5000)
            .prop_map(|(file, offset, length)| Step::Write { file, offset, length }),
        2 => (0u8..30, 0u16..6000).prop_map(|(file, size)| Step::Truncate { file, size }),
        5 => (0u8..30, 0u8..8, 0u8..30, 0u8..8, 0u8..12)
            .prop_map(|(from, at, to, to_at, blocks)| Step::Clone { from, at, to, to_at, blocks }),
        4 => (0u8..30).prop_map(|file| Step::Remove { file }),
        3 => Just(Step::Transact),
        2 => Just(Step::Checkpoint),
        1 => Just(Step::Rollback),
        4 => Just(Step::Take),
        2 => (0u8..6).prop_map(|which| Step::Delete { which }),
        1 => (0u8..6).prop_map(|which| Step::GoBack { which }),
        3 => Just(Step::Background),
        1 => any::<bool>().prop_map(|clean| Step::Reopen { clean }),
    ];
    // Number of requests of this step after which the power fails.
    (step, prop::option::weighted(0.15, 0u8..40))
}

struct World {
    medium: Arc<SimMedium>,
    options: OpenOptions,
    working: Model,
    /// The last acknowledged transaction point, and what may have become durable since.
    durable: Model,
    in_flight: Vec<Model>,
    taken: u32,
}

impl World {
    fn open(&self) -> TestVolume {
        Volume::open(self.medium.clone(), self.options.clone(), TestPlatform::new()).unwrap()
    }

    /// The present working state is durable.
    fn acknowledge(&mut self) {
        self.durable = self.working.clone();
        self.in_flight.clear();
    }

    fn run(&mut self, volume: &TestVolume, step: &Step) -> Result<()> {
        let which = |which: u8, model: &Model| usize::from(which) % model.snapshots.len().max(1);
        match step {
            Step::Write { file, offset, length } => {
                let (name, offset, length) =
                    (name_of(*file), usize::from(*offset), usize::from(*length));
                self.taken += 1;
                let data = vec![self.taken as u8; length];
                let inode = match volume.lookup(ROOT, name.as_bytes()) {
                    Err(Error::NotFound) => {
                        let made = volume.create(
                            ROOT,
                            name.as_bytes(),
                            NewNode::Regular,
                            0o644,
                            &Caller::default(),
                        )?;
                        self.working.files.insert(name.clone(), Vec::new());
                        made.inode
                    }
                    found => found?.inode,
                };
                volume.write(inode, offset as u64, &data, false)?;
                let content = self.working.files.entry(name).or_default();
                content.resize(content.len().max(offset + length), 0);
                content[offset..offset + length].copy_from_slice(&data);
            }
            Step::Truncate { file, size } => {
                let name = name_of(*file);
                let Ok(found) = volume.lookup(ROOT, name.as_bytes()) else { return Ok(()) };
                let size = usize::from(*size);
                let change = SetAttributes { size: Some(size as u64), ..Default::default() };
                volume.set_attributes(found.inode, &change)?;
                self.working.files.entry(name).or_default().resize(size, 0);
            }
            Step::Clone { from, at, to, to_at, blocks } => {
                self.clone_range(volume, (*from, *at), (*to, *to_at), *blocks)?
            }
            Step::Remove { file } => {
                let name = name_of(*file);
                if self.working.files.contains_key(&name) {
                    volume.unlink(ROOT, name.as_bytes())?;
                    self.working.files.remove(&name);
                }
            }
            Step::Transact | Step::Checkpoint => {
                self.in_flight.push(self.working.clone());
                match step {
                    Step::Transact => volume.transact()?,
                    _ => volume.checkpoint()?,
                }
                self.acknowledge();
            }
            Step::Rollback => {
                volume.rollback()?;
                self.working = self.durable.clone();
            }
            Step::Take => {
                self.taken += 1;
                let name = alloc::format!("snapshot {}", self.taken);
                let mut with = self.working.clone();
                with.snapshots.push((name.clone(), with.files.clone()));
                self.in_flight.extend([self.working.clone(), with.clone()]);
                volume.snapshot_create(&name)?;
                self.working = with;
                self.acknowledge();
            }
            Step::Delete { which: number } => {
                let mut without = self.working.clone();
                if without.snapshots.is_empty() {
                    return Ok(());
                }
                let (name, _) = without.snapshots.remove(which(*number, &self.working));
                self.in_flight.push(without.clone());
                volume.snapshot_delete(&name)?;
                self.working = without;
                self.acknowledge();
            }
            Step::GoBack { which: number } => {
                if self.working.snapshots.is_empty() {
                    return Ok(());
                }
                let at = which(*number, &self.working);
                let mut back = self.working.clone();
                back.snapshots.truncate(at + 1);
                let (name, files) = back.snapshots[at].clone();
                back.files = files;
                self.in_flight.push(back.clone());
                if at + 1 < self.working.snapshots.len() {
                    match volume.snapshot_rollback(&name, false) {
                        Err(Error::NewerSnapshots) => {}
                        other => return Err(other.expect_err("newer ones exist")),
                    }
                }
                match volume.snapshot_rollback(&name, true) {
                    Err(Error::NoSpace) => self.working = self.durable.clone(),
                    result => {
                        result?;
                        self.working = back;
                        self.acknowledge();
                    }
                }
            }
            Step::Background => drop(volume.background()?),
            Step::Reopen { .. } => {}
        }
        Ok(())
    }

    fn clone_range(
        &mut self,
        volume: &TestVolume,
        from: (u8, u8),
        to: (u8, u8),
        blocks: u8,
    ) -> Result<()> {
        let block = volume.engine.superblock().block_size as usize;
        let (source, target) = (name_of(from.0), name_of(to.0));
        let (Some(data), true) =
            (self.working.files.get(&source).cloned(), self.working.files.contains_key(&target))
        else {
            return Ok(());
        };
        let inode = |name: &str| volume.lookup(ROOT, name.as_bytes()).map(|found| found.inode);
        let (at, to_at) = (usize::from(from.1) * block, usize::from(to.1) * block);
        let length = usize::from(blocks) * block;
        let result = volume.clone_range(
            inode(&source)?,
            at as u64,
            inode(&target)?,
            to_at as u64,
            length as u64,
        );
        let end = if blocks == 0 { data.len() } else { at + length };
        let content = self.working.files.get_mut(&target).unwrap();
        let to_end = to_at + end.saturating_sub(at);
        let aligned = end.is_multiple_of(block) || (end == data.len() && to_end >= content.len());
        let overlaps = source == target && at < to_end && to_at < end;
        if end > data.len() || at > end || !aligned || overlaps {
            assert!(
                matches!(result, Err(Error::InvalidArgument(_) | Error::Medium(_))),
                "{result:?}"
            );
            return result.map(drop);
        }
        assert_eq!(result?, (end - at) as u64);
        if at < end {
            content.resize(content.len().max(to_end), 0);
            content[to_at..to_end].copy_from_slice(&data[at..end]);
        }
        Ok(())
    }

    /// Everything in the volume and its snapshots, as far as it can be listed.
    fn look(&self, volume: &TestVolume) -> Model {
        let snapshots = volume.snapshots().unwrap().into_iter().map(|snapshot| {
            let view = Volume::open_snapshot(
                self.medium.clone(),
                TestPlatform::new(),
                self.options.clone(),
                &snapshot.name,
            );
            (snapshot.name, files_of(&view.unwrap()))
        });
        Model { snapshots: snapshots.collect(), files: files_of(volume) }
    }

    fn assert_clean(&self) -> CheckReport {
        let report =
            check(self.medium.clone(), TestPlatform::new(), &CheckOptions::default(), &mut |_| ())
                .unwrap();
        // A cut between the two copies of a metaroot leaves one of them old.
        assert_eq!(report.damaged, 0, "{:#?}", report.findings);
        report
    }
}

fn name_of(file: u8) -> String {
    alloc::format!("{file}-{}", "x".repeat(usize::from(file) * 3))
}

fn files_of(volume: &TestVolume) -> Files {
    let read = |entry: crate::fs::DirectoryEntry| {
        let name = String::from_utf8(entry.name.to_vec()).unwrap();
        let mut data = vec![0; volume.attributes(entry.inode).unwrap().size as usize];
        volume.read(entry.inode, 0, &mut data).unwrap();
        (name, data)
    };
    let mut files = Files::new();
    let mut cookie = 0;
    loop {
        let entries = volume.read_directory(ROOT, cookie, 16).unwrap();
        let Some(last) = entries.last() else { return files };
        cookie = last.cookie;
        let own = |entry: &crate::fs::DirectoryEntry| !matches!(&entry.name[..], b"." | b"..");
        files.extend(entries.into_iter().filter(own).map(read));
    }
}

fn check_steps(
    options: FormatOptions,
    size: u64,
    cache_size: usize,
    steps: Vec<(Step, Option<u8>)>,
) {
    let sim = SimOptions::new(size, options.block_size.min(512));
    let medium = Arc::new(SimMedium::new(sim));
    let options = FormatOptions { mask: TransactionMask::MANUAL, ..options };
    Volume::format(&medium, &options, &TestPlatform::new()).unwrap();
    let mut world = World {
        medium: medium.clone(),
        options: OpenOptions { cache_size, ..OpenOptions::default() },
        working: Model::default(),
        durable: Model::default(),
        in_flight: Vec::new(),
        taken: 0,
    };
    let mut volume = world.open();
    for (index, (step, cut)) in steps.into_iter().enumerate() {
        if let Some(requests) = cut {
            medium.arm_power_cut(u64::from(requests));
        }
        let result = world.run(&volume, &step);
        let reopen = matches!(step, Step::Reopen { .. });
        if medium.is_off() || (reopen && cut.is_some()) {
            drop(volume);
            medium.restart(Survival::Seeded(index as u64));
            volume = world.open();
            let found = world.look(&volume);
            assert!(
                found == world.durable || world.in_flight.contains(&found),
                "after {step:?}: {found:#?}\nis neither {:#?}\nnor in flight",
                world.durable
            );
            world.working = found;
            world.acknowledge();
            world.assert_clean();
        } else {
            if cut.is_some() {
                // The step finished before the power could fail.
                medium.disarm();
            }
            world.in_flight.clear();
            match result {
                Ok(()) => {}
                Err(Error::InvalidArgument(_)) => {}
                Err(Error::NoSpace) => {
                    // The file may have been made, and a long write has several steps.
                    if let Step::Write { file, .. } | Step::Clone { to: file, .. } = &step {
                        let name = name_of(*file);
                        if let Some(found) = files_of(&volume).remove(&name) {
                            world.working.files.insert(name, found);
                        }
                    }
                    // A transaction point and background work free space.
                    volume.checkpoint().unwrap();
                    world.acknowledge();
                    while volume.background().unwrap() {}
                }
                Err(error) => panic!("{step:?}: {error}"),
            }
            if let Step::Reopen { clean } = step {
                if clean {
                    volume.set_mask(TransactionMask::UNMOUNT).unwrap();
                    volume.close().unwrap();
                    world.acknowledge();
                }
                drop(volume);
                volume = world.open();
                volume.set_mask(TransactionMask::MANUAL).unwrap();
                world.working = world.durable.clone();
            }
        }
        if index % 5 == 0 {
            assert_eq!(world.look(&volume), world.working, "after {step:?}");
        }
    }
    assert_eq!(world.look(&volume), world.working);
    volume.checkpoint().unwrap();
    world.assert_clean();
    for (name, _) in &world.working.snapshots {
        volume.snapshot_delete(name).unwrap();
    }
    for name in world.working.files.keys() {
        // With `volume full` masked out, a full volume may need a transaction point in between.
        if volume.unlink(ROOT, name.as_bytes()) == Err(Error::NoSpace) {
            volume.checkpoint().unwrap();
            while volume.background().unwrap() {}
            volume.unlink(ROOT, name.as_bytes()).unwrap();
        }
    }
    volume.checkpoint().unwrap();
    while volume.background().unwrap() {}
    volume.checkpoint().unwrap();
    let report = world.assert_clean();
    let superblock = volume.engine.superblock();
    let node_cost = superblock.node_blocks() * u64::from(superblock.metadata_copies);
    assert_eq!((report.snapshots, report.snapshot_blocks, report.data_blocks), (0, 0, 0));
    assert_eq!(report.used_blocks, report.nodes * node_cost, "nothing leaks");
    let statistics = volume.statistics().unwrap();
    assert_eq!(statistics.blocks - statistics.blocks_free, report.used_blocks);
    assert_eq!((statistics.blocks_snapshots, volume.engine.working.lock().snapshots.keys), (0, 0));
}

/// Cases of each test; STEADFAST_CASES raises the number.
fn cases() -> u32 {
    std::env::var("STEADFAST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn small_nodes(steps in prop::collection::vec(step(), 1..160)) {
        check_steps(FormatOptions { block_size: 512, ..FormatOptions::default() }, 2 << 20, 0, steps);
    }

    #[test]
    fn no_log_and_one_copy(steps in prop::collection::vec(step(), 1..160)) {
        let options = FormatOptions {
            block_size: 512,
            log_size: Some(0),
            metadata_copies: Some(1),
            ..FormatOptions::default()
        };
        check_steps(options, 1 << 20, 1 << 20, steps);
    }

    #[test]
    fn a_tight_volume(steps in prop::collection::vec(step(), 1..160)) {
        let options =
            FormatOptions { block_size: 128, node_size: Some(512), log_size: Some(4 << 10), ..FormatOptions::default() };
        check_steps(options, 160 << 10, 0, steps);
    }
}
