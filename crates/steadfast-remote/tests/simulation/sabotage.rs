//! Bugs planted on purpose: each makes a world fail that passes without it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use steadfast_media::Medium;
use steadfast_remote::array::{Array, BLOCK, Call, Contact, CreateOptions, Fleet, Policy};
use steadfast_remote::client::Ask;
use steadfast_remote::export::{Catalogue, GranuleSize, MemoryPool, PoolOptions};
use steadfast_remote::sabotage::{Sabotage, plant};

use crate::fleet::{Notebook, SimFleet, Trouble};
use crate::found::{SIZE, STRIPED, late, packed, rack, versions, write};
use crate::late::{dies_opening, waited};
use crate::world::{fill, options};

/// Whether a world fails with the planted bug.
fn fails(bug: Sabotage, world: impl FnOnce()) -> bool {
    plant(Some(bug));
    let failed = catch_unwind(AssertUnwindSafe(world)).is_err();
    plant(None);
    failed
}

/// Returned memory goes to another client, and later to the first client again. `start` is the
/// offset of that client's first write.
fn memory_comes_back(start: usize) {
    let pool = MemoryPool::new(PoolOptions {
        limit: 64 << 16,
        quota: 16 << 16,
        lease: None,
        names_max: 4,
        granules: GranuleSize::Small,
    });
    let one = pool.open("one").unwrap();
    for next in ["two", "one"] {
        one.write(0, &[7; 4 << 16]).unwrap();
        one.trim(0, 4 << 16).unwrap();
        let next = pool.open(next).unwrap();
        next.write(start as u64, &[9; 100]).unwrap();
        let mut found = [1; 4 << 16];
        next.read(0, &mut found).unwrap();
        let right =
            |(at, byte): (usize, &u8)| *byte == 9 * u8::from((start..start + 100).contains(&at));
        assert!(found.iter().enumerate().all(right), "old contents are seen");
    }
}

#[test]
fn memory_with_old_contents_is_found() {
    for start in [0, 1 << 16, (2 << 16) - 100, (3 << 16) + 5000] {
        memory_comes_back(start);
        assert!(fails(Sabotage::ShowOldGranules, || memory_comes_back(start)), "from {start}");
    }
}

#[test]
fn marks_ahead_of_their_flush_are_found() {
    for (policy, servers) in [
        (Policy::None, 2),
        (Policy::Mirror, 2),
        (Policy::Parity, 3),
        (Policy::Erasure { data: 2, parity: 2 }, 4),
    ] {
        // Each of these passes without the bug: `found.rs` runs them all.
        let cut = |calls| {
            let mut died = false;
            fails(Sabotage::MarkBeforeFlush, || died = rack(policy, servers, calls, 1)) || !died
        };
        let found = (0..).find(|calls| cut(*calls)).unwrap();
        assert!(rack(policy, servers, found, 1), "{policy}: not found within {found} calls");
    }
}

/// Servers with an event between two steps of a read.
struct Hooked {
    fleet: SimFleet,
    array: OnceLock<Weak<Array<Arc<Hooked>>>>,
    /// Rounds of reads until the event.
    rounds: AtomicUsize,
    /// How often the event overwrites the array.
    turns: usize,
}

impl Fleet for Hooked {
    fn servers(&self) -> usize {
        self.fleet.servers()
    }
    fn contact(&self, server: usize) -> Result<Contact, String> {
        self.fleet.contact(server)
    }
    fn set_proof(&self, server: usize, offset: u64, bytes: &[u8]) {
        self.fleet.set_proof(server, offset, bytes);
    }
    fn round(&self, calls: &mut [Call<'_>], patience_ms: u64) {
        self.fleet.round(calls, patience_ms);
        if !matches!(calls.first(), Some(Call { ask: Ask::Read(_), .. }))
            || self.rounds.fetch_sub(1, Ordering::Relaxed) != 1
        {
            return;
        }
        let array = self.array.get().and_then(Weak::upgrade).unwrap();
        for turn in 0..self.turns {
            write(&*array, 2 + (turn % 2) as u64).unwrap();
            array.flush().unwrap();
            array.tidy().unwrap();
        }
    }
    fn breaks(&self, server: usize) -> u64 {
        self.fleet.breaks(server)
    }
    fn pause(&self, ms: u64) {
        self.fleet.pause(ms);
    }
}

/// A block is read from a wrong copy. Before the repair, everything is overwritten and segments are
/// reused. Then the other copy is lost.
fn moved_meanwhile(turns: usize, server: usize) {
    let rounds = AtomicUsize::new(usize::MAX);
    let fleet = SimFleet::new(2, SIZE, 1);
    let fleet = Arc::new(Hooked { fleet, array: OnceLock::new(), rounds, turns });
    let notebook = Arc::new(Notebook::default());
    let create = CreateOptions { policy: Policy::Mirror, uuid: [3; 16], spares: 0 };
    let array = Arc::new(Array::create(fleet.clone(), &create, options(&notebook)).unwrap());
    fleet.array.set(Arc::downgrade(&array)).unwrap();
    write(&*array, 1).unwrap();
    array.flush().unwrap();
    assert_eq!(fleet.fleet.damage(server, &fill(1, 3)[..64]), 1);
    // The second round asks all copies.
    fleet.rounds.store(2, Ordering::Relaxed);
    array.read(3 * BLOCK as u64, &mut [0; BLOCK]).unwrap();
    let newest = 2 + (turns as u64 + 1) % 2;
    if fleet.rounds.swap(usize::MAX, Ordering::Relaxed) != 0 {
        // The other copy was read.
        return;
    }
    fleet.fleet.set_trouble(1 - server, Trouble::Down);
    let found = versions(&*array);
    assert!(found.iter().all(|version| *version == newest), "{turns} turns: {found:?}");
}

#[test]
fn repairs_of_what_has_moved_are_found() {
    let mut found = 0;
    for turns in 1..40 {
        for server in 0..2 {
            moved_meanwhile(turns, server);
            found +=
                u32::from(fails(Sabotage::RepairWhereItWas, || moved_meanwhile(turns, server)));
        }
    }
    assert!(found > 0);
}

#[test]
fn marks_ahead_of_the_flush_of_what_was_packed_are_found() {
    for (policy, servers) in STRIPED {
        let fails = |calls| {
            let mut died = true;
            fails(Sabotage::MarkBeforeFlush, || died = packed(policy, servers, calls, 1).0) || !died
        };
        let found = (0..).find(|calls| fails(*calls)).unwrap();
        assert!(packed(policy, servers, found, 1).0, "{policy}: not found within {found} calls");
    }
}

/// A waiting block is overwritten by a large write, and the held blocks are read.
fn written_over(policy: Policy, servers: usize) {
    let fleet = Arc::new(SimFleet::new(servers, SIZE, 1));
    let notebook = Arc::new(Notebook::default());
    let create = CreateOptions { policy, uuid: [3; 16], spares: 0 };
    let array = Array::create(fleet, &create, options(&notebook)).unwrap();
    for version in 1..9 {
        array.write(5 * BLOCK as u64, &fill(version, 5)).unwrap();
        let whole: Vec<u8> = (0..28).flat_map(|block| fill(version + 1, block)).collect();
        array.write(0, &whole).unwrap();
        if version % 2 == 0 {
            array.flush().unwrap();
        }
        let mut found = vec![0; BLOCK];
        array.read(5 * BLOCK as u64, &mut found).unwrap();
        assert!(found == fill(version + 1, 5), "version {version}");
    }
}

#[test]
fn older_bytes_in_memory_are_found() {
    for (policy, servers) in STRIPED {
        written_over(policy, servers);
        assert!(fails(Sabotage::HoldOlder, || written_over(policy, servers)), "{policy}");
    }
}

#[test]
fn late_writes_that_nobody_waits_for_are_found() {
    let policy = Policy::Parity;
    let fails = |calls: &u64| {
        fails(Sabotage::LateIgnored, || _ = waited(policy, 3, 1 + calls % 5, *calls, 20))
    };
    let found = (0..200).find(fails).expect("a death that hurts");
    waited(policy, 3, 1 + found % 5, found, 20);
}

#[test]
fn closed_arrays_that_are_open_are_found() {
    let cases = |bug: Option<Sabotage>, case: &dyn Fn(u64)| {
        let hurts = |calls: &u64| match bug {
            Some(bug) => fails(bug, || case(*calls)),
            None => {
                case(*calls);
                false
            }
        };
        (0..300).find(hurts)
    };
    let closed = |calls| _ = dies_opening(Policy::Parity, 3, 1, true, calls, 2);
    let at_once = |calls| _ = late(Policy::Parity, 3, calls, true);
    for case in [&closed as &dyn Fn(u64), &at_once] {
        let found = cases(Some(Sabotage::ClosedStands), case).expect("a death that hurts");
        case(found);
    }
}
