use std::collections::BTreeMap;

use steadfast_media::random::Random;

use super::*;

const ME: Owner = Owner { kernel: 1, number: 1 };
const OTHER: Owner = Owner { kernel: 2, number: 1 };

fn lock(owner: Owner, exclusive: bool, start: u64, end: u64) -> Lock {
    Lock { owner, flock: false, exclusive, start, end, process: 1, handle: owner.number }
}

fn no_ticket() -> Result<Option<Ticket>, Errno> {
    Ok(None)
}

fn wait_for(locks: &Locks, inode: u64, wanted: Lock, unique: u64) -> Result<Taken, Errno> {
    locks.take(inode, wanted, Some((unique, &no_ticket)))
}

#[test]
fn ranges_split_and_exclude_other_owners() {
    let locks = Locks::default();
    assert_eq!(locks.take(7, lock(ME, true, 0, 99), None), Ok(Taken::Now));
    locks.give_up(7, &lock(ME, false, 40, 49));
    assert_eq!(locks.take(7, lock(OTHER, true, 40, 49), None), Ok(Taken::Now));
    assert_eq!(locks.take(7, lock(OTHER, false, 49, 50), None), Err(Errno(libc::EAGAIN)));
    assert_eq!(locks.conflict(7, &lock(OTHER, false, 0, 10)), Some(lock(ME, true, 0, 39)));
    assert_eq!(locks.conflict(8, &lock(OTHER, true, 0, 10)), None, "another file");
    let whole = Lock { flock: true, ..lock(OTHER, true, 0, u64::MAX) };
    assert_eq!(locks.take(7, whole, None), Ok(Taken::Now), "flock does not see fcntl");
    locks.closed(7, ME);
    assert_eq!(locks.conflict(7, &lock(OTHER, true, 0, u64::MAX)), None);
    assert!(locks.conflict(7, &Lock { flock: true, ..lock(ME, true, 0, 0) }).is_some());
    locks.released(7, OTHER.kernel, OTHER.number);
    assert!(locks.table().files.is_empty(), "nothing is left behind");
}

#[test]
fn waiting_requests_are_served_in_turn_and_can_be_interrupted() {
    let locks = Locks::default();
    locks.take(7, lock(ME, true, 0, 9), None).unwrap();
    assert_eq!(wait_for(&locks, 7, lock(OTHER, true, 0, 9), 11), Ok(Taken::Later));
    let third = Owner { kernel: 3, number: 1 };
    assert_eq!(wait_for(&locks, 7, lock(third, true, 0, 9), 12), Ok(Taken::Later));
    locks.interrupt(OTHER.kernel, 11);
    locks.leave(ME.kernel);
    assert_eq!(locks.conflict(7, &lock(ME, true, 0, 0)).unwrap().owner, third);
    // The signal has come before its request.
    locks.interrupt(ME.kernel, 13);
    assert_eq!(wait_for(&locks, 7, lock(ME, true, 0, 9), 13), Err(Errno(libc::EINTR)));
    locks.drop_all();
    assert!(locks.table().files.is_empty());
}

#[test]
fn circles_of_waiting_owners_are_refused() {
    let locks = Locks::default();
    let third = Owner { kernel: 1, number: 3 };
    locks.take(7, lock(ME, true, 0, 9), None).unwrap();
    locks.take(8, lock(OTHER, true, 0, 9), None).unwrap();
    locks.take(9, lock(third, true, 0, 9), None).unwrap();
    assert_eq!(wait_for(&locks, 8, lock(ME, true, 0, 9), 1), Ok(Taken::Later));
    assert_eq!(wait_for(&locks, 9, lock(OTHER, false, 3, 3), 2), Ok(Taken::Later));
    assert_eq!(wait_for(&locks, 7, lock(third, false, 3, 3), 3), Err(Errno(libc::EDEADLK)));
    assert_eq!(wait_for(&locks, 7, lock(third, false, 10, 10), 3), Ok(Taken::Now));
}

#[test]
fn two_conversions_of_flock_do_not_wait_for_each_other() {
    let locks = Locks::default();
    let flock = |owner, exclusive| Lock { flock: true, ..lock(owner, exclusive, 0, u64::MAX) };
    locks.take(7, flock(ME, false), None).unwrap();
    locks.take(7, flock(OTHER, false), None).unwrap();
    assert_eq!(wait_for(&locks, 7, flock(ME, true), 1), Ok(Taken::Later));
    // It gives up its shared lock first, so the other one gets the exclusive one.
    assert_eq!(wait_for(&locks, 7, flock(OTHER, true), 2), Ok(Taken::Later));
    let held = locks.conflict(7, &flock(Owner { kernel: 9, number: 9 }, true)).unwrap();
    assert_eq!((held.owner, held.exclusive), (ME, true));
    locks.released(7, ME.kernel, ME.number);
    let held = locks.conflict(7, &flock(Owner { kernel: 9, number: 9 }, true)).unwrap();
    assert_eq!((held.owner, held.exclusive), (OTHER, true));
}

/// Random requests, against a model that has one entry for each byte.
#[test]
fn agrees_with_a_model_of_bytes() {
    const BYTES: u64 = 12;
    let mut random = Random::new(1);
    let mut next = |limit: u64| random.below(limit);
    let locks = Locks::default();
    let mut model: BTreeMap<(u64, u64), bool> = BTreeMap::new();
    let mut granted = 0;
    for _ in 0..20_000 {
        let owner = Owner { kernel: 1 + next(2), number: 1 + next(2) };
        let key = owner.kernel * 10 + owner.number;
        let start = next(BYTES);
        let end = start + next(BYTES - start);
        let wanted = lock(owner, next(2) == 0, start, end);
        if next(3) == 0 {
            locks.give_up(7, &wanted);
            model.retain(|(byte, of), _| *of != key || *byte < start || *byte > end);
            continue;
        }
        let conflict = model.iter().any(|((byte, of), exclusive)| {
            *of != key && (start..=end).contains(byte) && (*exclusive || wanted.exclusive)
        });
        assert_eq!(locks.take(7, wanted, None).is_err(), conflict);
        if !conflict {
            granted += 1;
            for byte in start..=end {
                model.insert((byte, key), wanted.exclusive);
            }
        }
    }
    assert!(granted > 2_000, "{granted}");
}
