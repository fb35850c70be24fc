//! Short plans: a few related operations, for faults that independently drawn operations rarely
//! meet.
//!
//! Each plan makes what it needs (a file of some length, many extents, three snapshots in a row)
//! and ends where the fault would show. Operations of other clients, background work and power cuts
//! may come between its operations. Plans use a separate random generator, so the other operations
//! stay the same.

use steadfast::TransactionMask;
use steadfast::fs::AllocateMode;

use super::Generator;
use crate::model::Model;
use crate::operation::{Change, Make, Name, Operation, Place};

/// One in this many operations begins a plan.
const ONE_IN: u64 = 25;
/// Number of pieces of a file that a truncation cannot remove in one step.
const PIECES: (u64, u64) = (58, 75);

impl Generator {
    /// The next operation of the current plan, or the first one of a new plan.
    pub(super) fn planned(&mut self, model: &Model) -> Option<Operation> {
        if self.planned.is_empty() && self.plans.chance(1, ONE_IN) {
            std::mem::swap(&mut self.random, &mut self.plans);
            let plan = if self.extras.snapshots && self.random.chance(1, 2) {
                self.snapshots_that_go(model)
            } else if self.extras.resizes && self.random.chance(1, 3) {
                self.changes_of_the_size()
            } else {
                match self.random.below(6) {
                    0 => self.clone_of_a_truncated_file(model),
                    1 => self.zeros_at_the_end(model),
                    2 => self.parameters_alone(model),
                    3 | 4 => self.long_truncation(model),
                    _ => self.zeros_at_the_end(model),
                }
            };
            std::mem::swap(&mut self.random, &mut self.plans);
            self.planned.extend(plan);
        }
        self.planned.pop_front()
    }

    /// The bytes after the end of the source must not reappear when the clone grows.
    fn clone_of_a_truncated_file(&mut self, model: &Model) -> Vec<Operation> {
        let (from, to) = (self.a_name(model), self.a_name(model));
        let blocks = self.random.between(1, 4);
        let size = (blocks - 1) * self.block + self.random.between(1, self.block - 1);
        let resize = |place: &Place, size| Operation::Set {
            place: place.clone(),
            change: Change { size: Some(size), ..Change::default() },
        };
        let grown = size + self.random.between(1, 2 * self.block);
        vec![
            create(&from),
            create(&to),
            self.whole_blocks(&from, blocks + 1),
            resize(&from, size),
            resize(&to, 0),
            Operation::CloneRange { from, from_offset: 0, to: to.clone(), to_offset: 0, length: 0 },
            resize(&to, grown),
        ]
    }

    /// Ranges that end at the end of a file, one byte before it and one byte after it.
    fn zeros_at_the_end(&mut self, model: &Model) -> Vec<Operation> {
        let file = self.a_name(model);
        let blocks = self.random.between(1, 5);
        let size = blocks * self.block + self.random.between(0, 2) - 1;
        let mut plan = vec![
            create(&file),
            Operation::Set {
                place: file.clone(),
                change: Change { size: Some(0), ..Change::default() },
            },
            self.whole_blocks(&file, blocks + 1),
            Operation::Set {
                place: file.clone(),
                change: Change { size: Some(size), ..Change::default() },
            },
        ];
        for end in [size - 1, size, size + 1] {
            let offset = end - self.random.between(1, (2 * self.block).min(end));
            let mode = match self.random.below(3) {
                0 => AllocateMode::ZeroRange { keep_size: self.random.chance(1, 2) },
                _ => AllocateMode::PunchHole,
            };
            let place = file.clone();
            plan.push(Operation::Allocate { place, offset, length: end - offset, mode });
            plan.push(Operation::Compare);
        }
        plan
    }

    /// A transaction point after a change of only the mask or the timer, or one set by an O_SYNC
    /// write alone.
    fn parameters_alone(&mut self, model: &Model) -> Vec<Operation> {
        if !self.extras.fixed_mask && self.random.chance(1, 3) {
            let file = self.a_name(model);
            let write = match self.whole_blocks(&file, 1) {
                Operation::Write { place, offset, length, fill, .. } => {
                    Operation::Write { place, offset, length, fill, sync: true }
                }
                other => other,
            };
            let mask = Operation::SetMask { mask: TransactionMask::SYNC_WRITE.0 };
            return vec![create(&file), mask, write, Operation::Remount { clean: false }];
        }
        let change = if self.extras.fixed_mask || self.random.chance(1, 2) {
            Operation::SetTimer { ms: self.random.between(50, 9000) as u32 }
        } else {
            Operation::SetMask { mask: crate::world::mask(&mut self.random).0 }
        };
        let remount = Operation::Remount { clean: self.random.chance(1, 2) };
        vec![Operation::Transact, change, Operation::Transact, remount]
    }

    /// A file without a name, in more pieces than one step removes, is truncated. It may get a name
    /// during the truncation.
    fn long_truncation(&mut self, model: &Model) -> Vec<Operation> {
        let (slot, directory) = (self.slot(), self.directory(model));
        let place = Place::Slot(slot);
        let count = self.random.between(PIECES.0, PIECES.1) as u16;
        let size = self.random.below(3 * self.block);
        let caller = self.random.below(3) as u8;
        let mut plan = vec![
            Operation::CreateUnnamed { directory: directory.clone(), slot, caller },
            Operation::Scatter { place: place.clone(), count, fill: self.fill() },
            Operation::Set {
                place: place.clone(),
                change: Change { size: Some(size), ..Change::default() },
            },
        ];
        match self.random.below(3) {
            0 => plan.push(Operation::Background { advance_ms: 0 }),
            1 => plan.push(Operation::Link { from: place, directory, name: self.new_name() }),
            _ => {}
        }
        plan.push(Operation::Transact);
        plan
    }

    /// Three snapshots are taken, and one of three things happens:
    /// - the middle one and then the newest are deleted, and data older than both is overwritten;
    /// - data that the oldest one was taken with is overwritten after the middle one was taken. The
    ///   middle one is deleted, and the oldest still has that data;
    /// - the oldest is deleted, and the volume rolls back to the middle one, in whose state the
    ///   oldest still existed.
    fn snapshots_that_go(&mut self, model: &Model) -> Vec<Operation> {
        let (file, other) = (self.a_name(model), self.a_name(model));
        let scatter = |generator: &mut Generator| Operation::Scatter {
            place: file.clone(),
            count: 24,
            fill: generator.fill(),
        };
        let first = self.random.below(3) as u8;
        let [oldest, middle, newest] = [first, (first + 1) % 3, (first + 2) % 3];
        let what = self.random.pick(&[0, 1, 2, 2]);
        let mut plan = vec![create(&file), create(&other)];
        plan.extend([oldest, middle, newest].map(|name| Operation::SnapshotDelete { name }));
        plan.push(scatter(self));
        plan.push(Operation::SnapshotCreate { name: oldest });
        if what != 1 {
            plan.push(scatter(self));
        }
        plan.push(self.whole_blocks(&other, 3));
        plan.push(Operation::SnapshotCreate { name: middle });
        plan.push(scatter(self));
        if what == 1 {
            plan.push(Operation::SnapshotDelete { name: middle });
            plan.push(Operation::Background { advance_ms: 0 });
            plan.extend([self.whole_blocks(&other, 3), Operation::Checkpoint, Operation::Compare]);
            return plan;
        }
        plan.push(Operation::SnapshotCreate { name: newest });
        if what == 2 {
            plan.push(Operation::SnapshotDelete { name: oldest });
            plan.push(Operation::Background { advance_ms: 0 });
            plan.push(Operation::SnapshotRollback { name: middle, destroy_newer: true });
            plan.push(Operation::Compare);
            return plan;
        }
        plan.extend([middle, newest].map(|name| Operation::SnapshotDelete { name }));
        plan.push(Operation::Background { advance_ms: 0 });
        plan.extend([self.whole_blocks(&other, 3), Operation::Checkpoint]);
        plan
    }

    /// The volume becomes smaller and then larger, several times: a larger size takes few writes,
    /// which few cuts meet.
    fn changes_of_the_size(&mut self) -> Vec<Operation> {
        let mut plan = vec![Operation::Checkpoint];
        for _ in 0..3 {
            let least = self.random.between(2, 6) as u8;
            plan.extend([least, least + 1, 8].map(|eighths| Operation::Resize { eighths }));
        }
        plan
    }

    /// A name for a regular file; the plan makes the file if it does not exist.
    fn a_name(&mut self, model: &Model) -> Place {
        let Place::Path(mut path) = self.directory(model) else {
            return Place::Path(vec![Name(20)]);
        };
        path.push(Name(20 + self.random.below(6) as u8));
        Place::Path(path)
    }

    /// Writes this many blocks from the start of a file.
    fn whole_blocks(&mut self, place: &Place, blocks: u64) -> Operation {
        let length = (blocks * self.block) as u32;
        Operation::Write { place: place.clone(), offset: 0, length, fill: self.fill(), sync: false }
    }
}

/// Makes a regular file at a path.
fn create(place: &Place) -> Operation {
    let (directory, name) = match place {
        Place::Path(path) => match path.split_last() {
            Some((name, above)) => (above.to_vec(), *name),
            None => (Vec::new(), Name(20)),
        },
        Place::Slot(_) => (Vec::new(), Name(20)),
    };
    let directory = Place::Path(directory);
    Operation::Create { directory, name, make: Make::Regular, permissions: 0o644, caller: 0 }
}
