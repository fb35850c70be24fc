//! Random operations: drawn by seed with the help of the model, so that most of them meet a file,
//! and drawn as a proptest strategy.

mod places;
mod plans;
#[cfg(feature = "proptest")]
mod strategy;

use std::collections::VecDeque;

use steadfast::TransactionMask;
use steadfast::fs::{AllocateMode, RenameMode, SetXattrMode};

use crate::model::Model;
use crate::operation::{ALL_SLOTS, Change, Make, Name, Operation, Place, SLOTS, Time};
use crate::random::Random;
use crate::world::{Extras, Profile, World, mask};

#[cfg(feature = "proptest")]
pub use strategy::operation;

/// Blocks of the longest clone. Long clones are done in steps, and a test may have to compare with
/// the state after each step.
const CLONE_BLOCKS_MAX: u64 = 256;

/// Draws operations.
#[derive(Debug, Clone)]
pub struct Generator {
    random: Random,
    profile: Profile,
    block: u64,
    /// Longest write, bytes.
    write_max: u64,
    /// Number of the next pattern.
    fill: u32,
    /// The first slot of this generator's client.
    first_slot: u8,
    extras: Extras,
    /// Random numbers for plans.
    plans: Random,
    /// The rest of the current plan.
    planned: VecDeque<Operation>,
}

impl Generator {
    /// A generator for this world; `label` distinguishes several generators of one world.
    pub fn new(world: &World, label: u64) -> Generator {
        // For this profile, a few dozen operations must fill the volume.
        let share = if world.profile == Profile::Full { 5 } else { 16 };
        let write_max = (world.size / share).clamp(2_000, 200_000);
        let random = Random::new(world.seed).fork(label);
        Generator {
            plans: random.fork(1),
            planned: VecDeque::new(),
            random,
            profile: world.profile,
            block: u64::from(world.format.block_size),
            write_max,
            fill: (label as u32) << 16,
            first_slot: 0,
            extras: world.extras,
        }
    }

    /// A generator for client `number`, with separate slots and separate bytes.
    pub fn client(world: &World, number: u8) -> Generator {
        let first_slot = (usize::from(number) * SLOTS % ALL_SLOTS) as u8;
        Generator { first_slot, ..Generator::new(world, 3 + 16 * u64::from(number)) }
    }

    fn slot(&mut self) -> u8 {
        self.first_slot + self.random.below(SLOTS as u64) as u8
    }

    /// The next operation.
    pub fn next(&mut self, model: &Model) -> Operation {
        // An atomic command lasts a few operations.
        if model.held && self.random.chance(1, 6) {
            return if self.random.chance(2, 3) { Operation::Commit } else { Operation::Abort };
        }
        if let Some(operation) = self.planned(model) {
            return operation;
        }
        if self.extras.resizes && self.random.chance(1, 30) {
            return self.resize();
        }
        if self.extras.snapshots && self.random.chance(1, 25) {
            return self.snapshot();
        }
        // Weights: names, attributes, data, held files, transactions, the environment.
        let weights: [u64; 6] = match self.profile {
            Profile::Mixed => [40, 12, 34, 6, 10, 2],
            Profile::Names => [70, 10, 6, 6, 8, 1],
            Profile::Data => [14, 3, 70, 4, 9, 1],
            Profile::Full => [24, 3, 60, 4, 8, 1],
            Profile::Transactions => [30, 8, 24, 8, 30, 10],
        };
        let mut draw = self.random.below(weights.iter().sum());
        let mut group = 0;
        while draw >= weights[group] {
            draw -= weights[group];
            group += 1;
        }
        match group {
            0 => self.names(model),
            1 => self.attributes(model),
            2 => self.data(model),
            3 => self.held(model),
            4 => self.transactions(model),
            _ => self.surroundings(),
        }
    }

    /// The operations after one that found no space: a file is emptied, and the volume is filled
    /// again.
    pub fn refill(&mut self, model: &Model) -> [Operation; 2] {
        let change = Change { size: Some(0), ..Change::default() };
        let empty = Operation::Set { place: self.file(model), change };
        let (place, length) = (self.file(model), self.write_max as u32);
        [empty, Operation::Append { place, length, fill: self.fill(), sync: false }]
    }

    fn names(&mut self, model: &Model) -> Operation {
        match self.random.below(100) {
            0..35 => {
                let make = match self.random.below(20) {
                    0..10 => Make::Regular,
                    10..15 => Make::Directory,
                    15..17 => Make::Symlink(self.random.pick(&[1, 5, 60, 200, 700])),
                    17 => Make::Fifo,
                    18 => Make::Socket,
                    _ => self
                        .random
                        .pick(&[Make::CharDevice(0x0103), Make::BlockDevice(0xfff0_0801)]),
                };
                let permissions = self.random.pick(&[0o644, 0o755, 0o600, 0o1777, 0o4755, 0]);
                let (directory, name) = (self.directory(model), self.new_name());
                Operation::Create {
                    directory,
                    name,
                    make,
                    permissions,
                    caller: self.random.below(3) as u8,
                }
            }
            35..47 => {
                let (from, directory) = (self.file(model), self.directory(model));
                Operation::Link { from, directory, name: self.new_name() }
            }
            47..62 => {
                let (directory, name) = self.entry(model);
                Operation::Unlink { directory, name }
            }
            62..70 => {
                let (directory, name) = self.entry(model);
                Operation::RemoveDirectory { directory, name }
            }
            _ => {
                let (from, from_name) = self.entry(model);
                let (to, to_name) = if self.random.chance(1, 2) {
                    self.entry(model)
                } else {
                    (self.directory(model), self.new_name())
                };
                let mode = self.random.pick(&[
                    RenameMode::Replace,
                    RenameMode::Replace,
                    RenameMode::NoReplace,
                    RenameMode::Exchange,
                ]);
                Operation::Rename { from, from_name, to, to_name, mode }
            }
        }
    }

    fn attributes(&mut self, model: &Model) -> Operation {
        let place = self.place(model);
        match self.random.below(10) {
            0..5 => {
                let random = &mut self.random;
                let mut change = Change::default();
                if random.chance(1, 3) {
                    change.permissions = Some(random.pick(&[0o644, 0o2755, 0o6755, 0o7777, 0]));
                }
                if random.chance(1, 4) {
                    change.uid = Some(random.pick(&[0, 1000, 4_000_000_000]));
                }
                if random.chance(1, 4) {
                    change.gid = Some(random.pick(&[0, 100, 4_000_000_000]));
                }
                if random.chance(1, 4) {
                    change.accessed = Some(random.pick(&[Time::Now, Time::At(-1, 999_999_999)]));
                }
                if random.chance(1, 4) {
                    change.modified = Some(random.pick(&[
                        Time::Now,
                        Time::At(-5_000_000_000, 1),
                        Time::At(1 << 33, 999_999_999),
                    ]));
                }
                if random.chance(1, 6) {
                    change.changed = Some((1_234_567, 89));
                }
                // In combination with new permissions, the order of the two changes would matter.
                change.drop_privileges = change.permissions.is_none() && random.chance(1, 8);
                Operation::Set { place, change }
            }
            5..8 => {
                let length = match self.random.below(10) {
                    0 => 0,
                    1..7 => self.random.between(1, 100),
                    7..9 => self.random.between(100, 1500),
                    _ => self.random.between(1500, 5000),
                } as u32;
                let name = if self.random.chance(9, 10) {
                    self.random.pick(&[0, 1, 2, 3, 8, 9, 10])
                } else {
                    self.random.below(8) as u8
                };
                let mode = self.random.pick(&[
                    SetXattrMode::Any,
                    SetXattrMode::Any,
                    SetXattrMode::Create,
                    SetXattrMode::Replace,
                ]);
                Operation::SetXattr { place, name, length, fill: self.fill(), mode }
            }
            _ => Operation::RemoveXattr { place, name: self.random.pick(&[0, 1, 2, 3, 8, 9]) },
        }
    }

    fn data(&mut self, model: &Model) -> Operation {
        let place = if self.random.chance(29, 30) { self.file(model) } else { self.place(model) };
        let size = self.size(model, &place);
        let full = self.profile == Profile::Full;
        if full && self.random.chance(1, 4) {
            let length = self.random.between(self.write_max / 2, self.write_max) as u32;
            return Operation::Append { place, length, fill: self.fill(), sync: false };
        }
        match self.random.below(100) {
            0..45 => {
                let length = self.length();
                let offset = self.offset(size);
                let sync = self.random.chance(1, 12);
                Operation::Write { place, offset, length, fill: self.fill(), sync }
            }
            45..60 => {
                let length = self.length();
                Operation::Append {
                    place,
                    length,
                    fill: self.fill(),
                    sync: self.random.chance(1, 12),
                }
            }
            60..75 => {
                let size = if full && self.random.chance(2, 3) { 0 } else { self.offset(size) };
                let change = Change { size: Some(size), ..Change::default() };
                Operation::Set { place, change }
            }
            75..90 => {
                let offset = self.offset(size);
                let length = match self.random.below(12) {
                    0 => 0,
                    1 => 1 << 40,
                    _ => u64::from(self.length()),
                };
                let keep_size = self.random.chance(1, 2);
                let mode = match self.random.below(3) {
                    // Allocating a tebibyte would only test for no space.
                    0 if length < 1 << 30 => AllocateMode::Allocate { keep_size },
                    1 if length < 1 << 30 => AllocateMode::ZeroRange { keep_size },
                    _ => AllocateMode::PunchHole,
                };
                Operation::Allocate { place, offset, length, mode }
            }
            90..95 => self.clone_range(model, place, size),
            _ => {
                let to = self.file(model);
                let to_size = self.size(model, &to);
                Operation::CopyRange {
                    from_offset: self.offset(size),
                    to_offset: self.offset(to_size),
                    length: u64::from(self.length()),
                    from: place,
                    to,
                }
            }
        }
    }

    /// Usually whole blocks; sometimes up to the end of the source.
    fn clone_range(&mut self, model: &Model, from: Place, size: u64) -> Operation {
        let to = if self.random.chance(1, 6) { from.clone() } else { self.file(model) };
        let (block, to_size) = (self.block, self.size(model, &to));
        let mut near = |size: u64| match self.random.below(4) {
            0 | 1 => 0,
            2 => self.random.below(size.min(1 << 20) / block + 1) * block,
            _ => (size / block + self.random.below(3)) * block,
        };
        let (mut from_offset, mut to_offset) = (near(size), near(to_size));
        if from_offset >= size && self.random.chance(3, 4) {
            from_offset = 0;
        }
        if size.saturating_sub(from_offset) < block && self.random.chance(3, 4) {
            to_offset = to_size.min(1 << 45).next_multiple_of(block);
        }
        let left = size.saturating_sub(from_offset);
        // The partial last block of a file can be shared only if it becomes the end of the target.
        let short = left / block < CLONE_BLOCKS_MAX && to_offset.saturating_add(left) >= to_size;
        let length = match self.random.below(12) {
            0..3 if short => 0,
            3..6 if short => left,
            // This length is not aligned.
            6 => u64::from(self.length()).min(CLONE_BLOCKS_MAX * block).max(1),
            _ => self.random.between(1, (left / block).clamp(1, 64)) * block,
        };
        Operation::CloneRange { from, from_offset, to, to_offset, length }
    }

    fn held(&mut self, model: &Model) -> Operation {
        let slot = self.slot();
        match self.random.below(10) {
            0..4 => Operation::Acquire { place: self.place(model), slot },
            4..7 => Operation::Release { slot },
            7..9 => {
                let directory = self.directory(model);
                Operation::CreateUnnamed { directory, slot, caller: self.random.below(3) as u8 }
            }
            _ => Operation::Closed { place: self.place(model) },
        }
    }

    fn transactions(&mut self, model: &Model) -> Operation {
        match self.random.below(20) {
            0..6 => Operation::Transact,
            6..8 => Operation::Checkpoint,
            8..11 => {
                Operation::Fsync { place: self.place(model), data_only: self.random.chance(1, 2) }
            }
            11 => Operation::Sync,
            12..14 => Operation::Rollback,
            14 => Operation::Remount { clean: self.random.chance(1, 2) },
            15 if self.extras.holds => Operation::Begin,
            _ => Operation::Background { advance_ms: self.random.pick(&[0, 50, 1000, 6000]) },
        }
    }

    /// A change of the size.
    pub fn resize(&mut self) -> Operation {
        Operation::Resize { eighths: self.random.between(1, 8) as u8 }
    }

    /// The next operation on a snapshot.
    pub fn snapshot(&mut self) -> Operation {
        let name = self.random.below(3) as u8;
        match self.random.below(6) {
            0..3 => Operation::SnapshotCreate { name },
            3 | 4 => Operation::SnapshotDelete { name },
            _ => Operation::SnapshotRollback { name, destroy_newer: self.random.chance(1, 2) },
        }
    }

    fn surroundings(&mut self) -> Operation {
        match self.random.below(4) {
            0 => Operation::SetTimer { ms: self.random.pick(&[100, 1000, 5000]) },
            1 => Operation::Compare,
            _ if self.extras.fixed_mask => Operation::Sync,
            _ => {
                let events = mask(&mut self.random);
                Operation::SetMask { mask: events.0 & TransactionMask::ALL.0 }
            }
        }
    }

    fn fill(&mut self) -> u32 {
        self.fill += 1;
        if self.random.chance(1, 10) { 0 } else { self.fill }
    }

    fn new_name(&mut self) -> Name {
        match self.random.below(60) {
            0 => self.random.pick(&[
                Name::TOO_LONG,
                Name::EMPTY,
                Name::DOT,
                Name::DOT_DOT,
                Name::SLASH,
                Name::NUL,
            ]),
            1..4 => self.random.pick(&[Name::LONGEST, Name::BINARY]),
            4..40 => Name(self.random.below(5) as u8),
            _ => Name(self.random.below(40) as u8),
        }
    }

    /// The length of a write: small, about a block, or many blocks.
    fn length(&mut self) -> u32 {
        let length = match self.random.below(20) {
            0 => 0,
            1..7 => self.random.between(1, 64),
            7..11 => self.random.between(64, self.block),
            11..14 => self.block * self.random.between(1, 4),
            14..18 => self.random.between(1, self.block * 4),
            _ => self.random.between(1, self.write_max),
        };
        length.min(self.write_max) as u32
    }

    /// An offset: the start, the end, near a block boundary, or far beyond the end.
    fn offset(&mut self, size: u64) -> u64 {
        let near = self.random.between(0, 4).wrapping_sub(2);
        match self.random.below(24) {
            0..5 => 0,
            5..9 => size,
            9..12 => self.random.below(size + 1),
            12..16 => {
                (self.random.below(size / self.block + 2) * self.block).wrapping_add(near)
                    & (i64::MAX as u64)
            }
            16..20 => size.saturating_add(self.random.below(self.block * 3)),
            20 => self.random.below(1 << 20),
            21 => self.random.between(1 << 30, 1 << 45),
            22 => i64::MAX as u64 - self.random.below(self.block * 2),
            _ => self.random.below(self.block * 8),
        }
    }
}
