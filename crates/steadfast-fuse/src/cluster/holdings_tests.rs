use zerocopy::FromZeros;

use super::*;
use crate::abi::flags::LK_FLOCK;
use crate::abi::input::InHeader;
use crate::abi::output::{EntryOut, OpenOut};

const FILE: u64 = 5 << 48 | 20;
const READ_LOCK: u32 = libc::F_RDLCK as u32;
const WRITE_LOCK: u32 = libc::F_WRLCK as u32;
const UNLOCK: u32 = libc::F_UNLCK as u32;

fn told(
    holdings: &mut Holdings,
    (opcode, nodeid): (u32, u64),
    body: &[u8],
    result: Result<&[u8], ()>,
) {
    let len = (size_of::<InHeader>() + body.len()) as u32;
    let header = InHeader { len, opcode, nodeid, ..InHeader::new_zeroed() };
    let bytes = [header.as_bytes(), body].concat();
    holdings.answered(&Request::parse(&bytes).unwrap(), result);
}

fn open(holdings: &mut Holdings, nodeid: u64, fh: u64) {
    let open = OpenOut { fh, open_flags: 0, backing_id: 0 };
    told(holdings, (opcode::OPEN, nodeid), &[], Ok(open.as_bytes()));
}

fn release(holdings: &mut Holdings, nodeid: u64, fh: u64) {
    let released = ReleaseIn { fh, ..ReleaseIn::new_zeroed() };
    told(holdings, (opcode::RELEASE, nodeid), released.as_bytes(), Ok(&[]));
}

fn lock(holdings: &mut Holdings, wanted: LkIn, granted: bool) {
    let result = if granted { Ok(&[][..]) } else { Err(()) };
    told(holdings, (opcode::SETLKW, FILE), wanted.as_bytes(), result);
}

fn wanted(owner: u64, kind: u32, (start, end): (u64, u64)) -> LkIn {
    LkIn { fh: 3, owner, start, end, kind, pid: 9, ..LkIn::new_zeroed() }
}

/// Owner, kind and range of each lock.
fn locks(holdings: &Holdings) -> Vec<(u64, bool, u64, u64)> {
    let mut found: Vec<_> = holdings
        .locks()
        .map(|(nodeid, lock)| {
            assert_eq!((nodeid, lock.handle, lock.process), (FILE, 3, 9));
            (lock.owner.number, lock.exclusive, lock.start, lock.end)
        })
        .collect();
    found.sort_unstable();
    found
}

#[test]
fn open_files_are_known_until_their_release_is_answered() {
    let mut holdings = Holdings::default();
    open(&mut holdings, FILE, 3);
    open(&mut holdings, FILE, 4);
    let entry = EntryOut { nodeid: FILE + 1, ..EntryOut::default() };
    let made = OpenOut { fh: 5, open_flags: 0, backing_id: 0 };
    let made = [entry.as_bytes(), made.as_bytes()].concat();
    told(&mut holdings, (opcode::CREATE, 1), &[], Ok(&made));
    told(&mut holdings, (opcode::OPEN, FILE + 2), &[], Err(()));
    open(&mut holdings, 1 << 63 | FILE, 6);
    release(&mut holdings, FILE, 3);
    let mut files: Vec<_> = holdings.files().collect();
    files.sort_unstable();
    assert_eq!(files, [(FILE, 4), (FILE + 1, 5)], "not what failed, nor files of snapshots");
}

#[test]
fn locks_are_known_as_the_owner_knows_them() {
    let mut holdings = Holdings::default();
    lock(&mut holdings, wanted(1, WRITE_LOCK, (0, 99)), true);
    lock(&mut holdings, wanted(2, READ_LOCK, (200, 299)), true);
    lock(&mut holdings, wanted(1, UNLOCK, (10, 19)), true);
    lock(&mut holdings, wanted(2, WRITE_LOCK, (0, 9)), false);
    let left = [(1, true, 0, 9), (1, true, 20, 99), (2, false, 200, 299)];
    assert_eq!(locks(&holdings), left);
    let closed = FlushIn { fh: 3, lock_owner: 1, ..FlushIn::new_zeroed() };
    told(&mut holdings, (opcode::FLUSH, FILE), closed.as_bytes(), Ok(&[]));
    assert_eq!(locks(&holdings), [(2, false, 200, 299)]);
    release(&mut holdings, FILE, 4);
    assert_eq!(locks(&holdings).len(), 1, "it was taken through another open file");
    release(&mut holdings, FILE, 3);
    assert_eq!(holdings, Holdings::default());
}

/// As at the owner, which gives up what is held before it waits for the other kind.
#[test]
fn a_flock_that_could_not_be_converted_is_gone() {
    let whole = (0, u64::MAX);
    let flock = |kind| LkIn { lk_flags: LK_FLOCK, ..wanted(1, kind, whole) };
    let mut holdings = Holdings::default();
    lock(&mut holdings, flock(READ_LOCK), true);
    let closed = FlushIn { fh: 3, lock_owner: 1, ..FlushIn::new_zeroed() };
    told(&mut holdings, (opcode::FLUSH, FILE), closed.as_bytes(), Ok(&[]));
    assert_eq!(locks(&holdings), [(1, false, 0, u64::MAX)], "a close ends no flock");
    lock(&mut holdings, flock(WRITE_LOCK), false);
    assert!(locks(&holdings).is_empty());
}

#[test]
fn holdings_survive_the_wire() {
    let mut holdings = Holdings::default();
    open(&mut holdings, FILE, 3);
    open(&mut holdings, FILE + 1, 4);
    lock(&mut holdings, wanted(1, WRITE_LOCK, (0, 99)), true);
    let flock = LkIn { lk_flags: LK_FLOCK, ..wanted(2, READ_LOCK, (0, u64::MAX)) };
    lock(&mut holdings, flock, true);
    let bytes = holdings.encode();
    assert_eq!(Holdings::read(&mut &bytes[..]).unwrap(), holdings);
    assert!(Holdings::read(&mut &bytes[..bytes.len() - 1]).is_err());
    for at in [0, 4] {
        let mut many = bytes.clone();
        many[at..at + 4].copy_from_slice(&u32::MAX.to_ne_bytes());
        let found = Holdings::read(&mut &many[..]).unwrap_err().kind();
        assert_eq!(found, io::ErrorKind::InvalidData);
    }
}

#[test]
fn a_node_with_too_many_open_files_brings_none() {
    let mut holdings = Holdings::default();
    for fh in 0..=HOLDINGS_MAX as u64 {
        assert!(holdings.is_complete());
        open(&mut holdings, FILE, fh);
    }
    release(&mut holdings, FILE, 0);
    let brought = Holdings::read(&mut &holdings.encode()[..]).unwrap();
    assert!(!brought.is_complete() && brought.files().next().is_none());
}
