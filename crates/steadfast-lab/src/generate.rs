//! Random operations: by seed, looking at the model so that most of them meet a file, and as a proptest strategy.

#[cfg(feature = "proptest")]
use proptest::prelude::*;
use steadfast::InodeNumber;
use steadfast::TransactionMask;
use steadfast::fs::{AllocateMode, FileKind, RenameMode, SetXattrMode};

use crate::model::{Body, Model};
use crate::operation::{ALL_SLOTS, Change, Make, Name, Operation, Place, SLOTS, Time};
use crate::random::Random;
use crate::world::{Profile, World, mask};

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
    /// The first slot of the client that this generator is.
    first_slot: u8,
    snapshots: bool,
}

impl Generator {
    /// A generator for this world; `label` tells several of one world apart.
    pub fn new(world: &World, label: u64) -> Generator {
        let write_max = (world.size / 16).clamp(2_000, 200_000);
        Generator {
            random: Random::new(world.seed).fork(label),
            profile: world.profile,
            block: u64::from(world.format.block_size),
            write_max,
            fill: (label as u32) << 16,
            first_slot: 0,
            snapshots: world.snapshots,
        }
    }

    /// A generator for client `number`: with its own slots and its own bytes.
    pub fn client(world: &World, number: u8) -> Generator {
        let first_slot = (usize::from(number) * SLOTS % ALL_SLOTS) as u8;
        Generator { first_slot, ..Generator::new(world, 3 + 16 * u64::from(number)) }
    }

    fn slot(&mut self) -> u8 {
        self.first_slot + self.random.below(SLOTS as u64) as u8
    }

    /// The next operation.
    pub fn next(&mut self, model: &Model) -> Operation {
        // Weights: names, attributes, data, held files, transactions, the world around.
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

    fn names(&mut self, model: &Model) -> Operation {
        match self.random.below(100) {
            0..35 => {
                let make = match self.random.below(20) {
                    0..10 => Make::Regular,
                    10..15 => Make::Directory,
                    15..17 => Make::Symlink(self.random.pick(&[1, 5, 60, 200, 700])),
                    17 => Make::Fifo,
                    18 => Make::Socket,
                    _ => self.random.pick(&[Make::CharDevice(0x0103), Make::BlockDevice(0xfff0_0801)]),
                };
                let permissions = self.random.pick(&[0o644, 0o755, 0o600, 0o1777, 0o4755, 0]);
                let (directory, name) = (self.directory(model), self.new_name());
                Operation::Create { directory, name, make, permissions, caller: self.random.below(3) as u8 }
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
                // Together with new permissions the order of the two would matter.
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
        match self.random.below(100) {
            0..45 => {
                let length = self.length();
                let offset = self.offset(size);
                let sync = self.random.chance(1, 12);
                Operation::Write { place, offset, length, fill: self.fill(), sync }
            }
            45..60 => {
                let length = self.length();
                Operation::Append { place, length, fill: self.fill(), sync: self.random.chance(1, 12) }
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
                    // To allocate a tebibyte is to ask for no space.
                    0 if length < 1 << 30 => AllocateMode::Allocate { keep_size },
                    1 if length < 1 << 30 => AllocateMode::ZeroRange { keep_size },
                    _ => AllocateMode::PunchHole,
                };
                Operation::Allocate { place, offset, length, mode }
            }
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
            8..11 => Operation::Fsync { place: self.place(model), data_only: self.random.chance(1, 2) },
            11 => Operation::Sync,
            12..14 if self.snapshots && self.random.chance(1, 2) => self.snapshot(),
            12..14 => Operation::Rollback,
            14 => Operation::Remount { clean: self.random.chance(1, 2) },
            _ => Operation::Background { advance_ms: self.random.pick(&[0, 50, 1000, 6000]) },
        }
    }

    fn snapshot(&mut self) -> Operation {
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

    /// The length of a write: small, about a block, many blocks.
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

    /// An offset: the start, the end, near a block's edge, far out.
    fn offset(&mut self, size: u64) -> u64 {
        let near = self.random.between(0, 4).wrapping_sub(2);
        match self.random.below(24) {
            0..5 => 0,
            5..9 => size,
            9..12 => self.random.below(size + 1),
            12..16 => {
                (self.random.below(size / self.block + 2) * self.block).wrapping_add(near) & (i64::MAX as u64)
            }
            16..20 => size.saturating_add(self.random.below(self.block * 3)),
            20 => self.random.below(1 << 20),
            21 => self.random.between(1 << 30, 1 << 45),
            22 => i64::MAX as u64 - self.random.below(self.block * 2),
            _ => self.random.below(self.block * 8),
        }
    }

    fn size(&self, model: &Model, place: &Place) -> u64 {
        let Place::Path(names) = place else { return 0 };
        let inode = names.iter().try_fold(InodeNumber::ROOT, |directory, name| {
            model.state.entry(directory, &name.bytes(model.limits.name_max))
        });
        inode.and_then(|inode| model.content(inode).ok()).map_or(0, |content| content.size())
    }

    /// A directory, at any depth down to four.
    fn directory(&mut self, model: &Model) -> Place {
        if self.random.chance(1, 60) {
            return self.place(model);
        }
        let mut path = Vec::new();
        let mut at = InodeNumber::ROOT;
        while path.len() < 4 && self.random.chance(1, 2) {
            let below: Vec<(Name, InodeNumber)> = entries(model, at)
                .filter(|(_, inode)| {
                    model.state.node(*inode).is_some_and(|node| node.kind == FileKind::Directory)
                })
                .collect();
            if below.is_empty() {
                break;
            }
            let (name, inode) = self.random.pick(&below);
            path.push(name);
            at = inode;
        }
        Place::Path(path)
    }

    /// A name in a directory, most often one that exists.
    fn entry(&mut self, model: &Model) -> (Place, Name) {
        let directory = self.directory(model);
        let Place::Path(path) = &directory else { return (directory, Name(0)) };
        let inode = path.iter().try_fold(InodeNumber::ROOT, |at, name| {
            model.state.entry(at, &name.bytes(model.limits.name_max))
        });
        let below: Vec<Name> =
            inode.map(|inode| entries(model, inode).map(|(name, _)| name).collect()).unwrap_or_default();
        if below.is_empty() || self.random.chance(1, 20) {
            let name = self.new_name();
            return (directory, name);
        }
        let name = self.random.pick(&below);
        (directory, name)
    }

    /// Anything.
    fn place(&mut self, model: &Model) -> Place {
        match self.random.below(12) {
            0 => Place::Slot(self.slot()),
            1 => Place::Path(Vec::new()),
            _ => {
                let (directory, name) = self.entry(model);
                match directory {
                    Place::Path(mut path) => {
                        path.push(name);
                        Place::Path(path)
                    }
                    slot => slot,
                }
            }
        }
    }

    /// A regular file where there is one.
    fn file(&mut self, model: &Model) -> Place {
        for _ in 0..6 {
            let place = self.place(model);
            if let Place::Path(path) = &place {
                let inode = path.iter().try_fold(InodeNumber::ROOT, |at, name| {
                    model.state.entry(at, &name.bytes(model.limits.name_max))
                });
                let regular = inode
                    .and_then(|inode| model.state.node(inode))
                    .is_some_and(|node| node.kind == FileKind::Regular);
                if !regular {
                    continue;
                }
            }
            return place;
        }
        Place::Slot(self.slot())
    }
}

fn entries(model: &Model, directory: InodeNumber) -> impl Iterator<Item = (Name, InodeNumber)> {
    let map = match model.state.node(directory).map(|node| &node.body) {
        Some(Body::Directory { entries, .. }) => Some(entries),
        _ => None,
    };
    map.into_iter().flatten().filter_map(|(bytes, inode)| Some((Name::of(bytes)?, *inode)))
}

/// A proptest strategy for one operation over a handful of names; shrinks towards simple ones.
#[cfg(feature = "proptest")]
pub fn operation() -> impl Strategy<Value = Operation> {
    let name =
        || prop_oneof![8 => (0..4u8).prop_map(Name), 1 => Just(Name::LONGEST), 1 => Just(Name::BINARY)];
    let directory = move || proptest::collection::vec(name(), 0..2).prop_map(Place::Path);
    let place = move || {
        prop_oneof![
            6 => proptest::collection::vec(name(), 1..3).prop_map(Place::Path),
            1 => (0..SLOTS as u8).prop_map(Place::Slot),
        ]
    };
    let make = prop_oneof![
        4 => Just(Make::Regular),
        3 => Just(Make::Directory),
        1 => (1..400u16).prop_map(Make::Symlink),
        1 => Just(Make::Fifo),
    ];
    let mode =
        prop_oneof![Just(RenameMode::Replace), Just(RenameMode::NoReplace), Just(RenameMode::Exchange)];
    let offset = prop_oneof![4 => Just(0u64), 4 => 0..20_000u64, 1 => 0..1u64 << 50];
    let length = prop_oneof![3 => 0..200u32, 3 => 0..9_000u32, 1 => Just(4096u32)];
    let allocate = prop_oneof![
        any::<bool>().prop_map(|keep_size| AllocateMode::Allocate { keep_size }),
        Just(AllocateMode::PunchHole),
        any::<bool>().prop_map(|keep_size| AllocateMode::ZeroRange { keep_size })
    ];
    let slot = || 0..SLOTS as u8;
    let xattr = || prop_oneof![Just(0u8), Just(1), Just(8)];
    prop_oneof![
        6 => (directory(), name(), make).prop_map(|(directory, name, make)| Operation::Create {
            directory, name, make, permissions: 0o755, caller: 0
        }),
        2 => (place(), directory(), name())
            .prop_map(|(from, directory, name)| Operation::Link { from, directory, name }),
        3 => (directory(), name()).prop_map(|(directory, name)| Operation::Unlink { directory, name }),
        1 => (directory(), name()).prop_map(|(directory, name)| Operation::RemoveDirectory { directory, name }),
        4 => (directory(), name(), directory(), name(), mode).prop_map(|(from, from_name, to, to_name, mode)| {
            Operation::Rename { from, from_name, to, to_name, mode }
        }),
        6 => (place(), offset.clone(), length.clone(), 0..1000u32, prop::bool::weighted(0.1)).prop_map(
            |(place, offset, length, fill, sync)| Operation::Write { place, offset, length, fill, sync }
        ),
        2 => (place(), length.clone(), 0..1000u32)
            .prop_map(|(place, length, fill)| Operation::Append { place, length, fill, sync: false }),
        2 => (place(), offset.clone()).prop_map(|(place, size)| Operation::Set {
            place, change: Change { size: Some(size), ..Change::default() }
        }),
        1 => (place(), any::<Option<u16>>()).prop_map(|(place, permissions)| Operation::Set {
            place,
            change: Change { permissions: permissions.map(|bits| u32::from(bits) & 0o7777), ..Change::default() }
        }),
        2 => (place(), 0..20_000u64, 0..20_000u64, allocate)
            .prop_map(|(place, offset, length, mode)| Operation::Allocate { place, offset, length, mode }),
        1 => (place(), 0..20_000u64, place(), 0..20_000u64, 0..20_000u64).prop_map(
            |(from, from_offset, to, to_offset, length)| Operation::CopyRange {
                from, from_offset, to, to_offset, length
            }
        ),
        2 => (place(), xattr(), 0..600u32, 0..1000u32).prop_map(|(place, name, length, fill)| Operation::SetXattr {
            place, name, length, fill, mode: SetXattrMode::Any
        }),
        1 => (place(), xattr()).prop_map(|(place, name)| Operation::RemoveXattr { place, name }),
        1 => (place(), slot()).prop_map(|(place, slot)| Operation::Acquire { place, slot }),
        1 => slot().prop_map(|slot| Operation::Release { slot }),
        1 => (directory(), slot())
            .prop_map(|(directory, slot)| Operation::CreateUnnamed { directory, slot, caller: 1 }),
        2 => Just(Operation::Transact),
        1 => Just(Operation::Checkpoint),
        1 => Just(Operation::Rollback),
        1 => place().prop_map(|place| Operation::Fsync { place, data_only: false }),
        1 => any::<bool>().prop_map(|clean| Operation::Remount { clean }),
        1 => (0..8_000u64).prop_map(|advance_ms| Operation::Background { advance_ms }),
    ]
}
