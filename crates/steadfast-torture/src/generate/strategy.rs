//! Operations as a proptest strategy, so that failing cases shrink.

use proptest::prelude::*;
use steadfast::fs::{AllocateMode, RenameMode, SetXattrMode};

use crate::operation::{Change, Make, Name, Operation, Place, SLOTS};

/// A proptest strategy for one operation over a few names; it shrinks towards simple ones.
pub fn operation() -> impl Strategy<Value = Operation> {
    let name = || prop_oneof![8 => (0..4u8).prop_map(Name), 1 => Just(Name::LONGEST), 1 => Just(Name::BINARY)];
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
    let mode = prop_oneof![
        Just(RenameMode::Replace),
        Just(RenameMode::NoReplace),
        Just(RenameMode::Exchange)
    ];
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
        1 => (place(), 40..80u16, 0..1000u32)
            .prop_map(|(place, count, fill)| Operation::Scatter { place, count, fill }),
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
        1 => (place(), 0..20u64, place(), 0..20u64, 0..20u64).prop_map(
            |(from, from_block, to, to_block, blocks)| Operation::CloneRange {
                from, from_offset: from_block * 4096, to, to_offset: to_block * 4096, length: blocks * 4096
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
