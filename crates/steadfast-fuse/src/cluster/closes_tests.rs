use std::time::Duration;

use zerocopy::{FromZeros, IntoBytes};

use super::*;
use crate::abi::flags::{fopen, write as write_flag};
use crate::abi::input::{InHeader, WriteIn};
use crate::abi::output::{EntryOut, OpenOut};
use crate::filesystem::delegations::QUIET;

const FILE: u64 = 7 << 48 | 20;

fn with_request<T>(
    (opcode, nodeid): (u32, u64),
    body: &[u8],
    what: impl FnOnce(&Request<'_>) -> T,
) -> T {
    let len = (size_of::<InHeader>() + body.len()) as u32;
    let header = InHeader { len, opcode, nodeid, ..InHeader::new_zeroed() };
    what(&Request::parse(&[header.as_bytes(), body].concat()).unwrap())
}

fn ask(closes: &Closes, opcode: u32, nodeid: u64) {
    with_request((opcode, nodeid), &[], |request| closes.asked(request));
}

fn write(closes: &Closes, write_flags: u32) {
    let wanted = WriteIn { write_flags, ..WriteIn::new_zeroed() };
    with_request((opcode::WRITE, FILE), wanted.as_bytes(), |request| closes.asked(request));
}

fn open_out(alone: bool) -> OpenOut {
    OpenOut { fh: 3, open_flags: if alone { fopen::NOFLUSH } else { 0 }, backing_id: 0 }
}

/// The owner has opened the file for this node.
fn opened(closes: &Closes, alone: bool, asked: Instant) {
    with_request((opcode::OPEN, FILE), &[], |request| {
        closes.answered(request, open_out(alone).as_bytes(), asked);
    });
}

fn answers_for(closes: &Closes, nodeid: u64, now: Instant) -> bool {
    with_request((opcode::FLUSH, nodeid), &[], |request| closes.answers(request, now))
}

fn answers(closes: &Closes, now: Instant) -> bool {
    answers_for(closes, FILE, now)
}

fn recalled(inode: u64) -> RecalledNode {
    RecalledNode::stale(7 << 48 | inode)
}

#[test]
fn a_close_is_answered_here_while_the_owner_has_nothing_to_do_for_it() {
    let (closes, now) = (Closes::default(), Instant::now());
    assert!(!answers(&closes, now), "nothing is known of the file");
    opened(&closes, true, now);
    assert!(answers(&closes, now) && answers(&closes, now));
    assert!(!answers_for(&closes, FILE + 1, now), "another file");
    for other in [opcode::FSYNC, opcode::RELEASE, opcode::SETLK] {
        assert!(!with_request((other, FILE), &[], |request| closes.answers(request, now)));
    }
    let last = CLOSES_VALID - Duration::from_nanos(1);
    assert!(answers(&closes, now + last) && !answers(&closes, now + CLOSES_VALID));
    // Each file that the owner opens so renews it for all.
    with_request((opcode::CREATE, 1), &[], |request| {
        let entry = EntryOut { nodeid: FILE + 1, ..EntryOut::default() };
        let answer = [entry.as_bytes(), open_out(true).as_bytes()].concat();
        closes.answered(request, &answer, now + CLOSES_VALID);
        // What makes no sense opens nothing.
        closes.answered(request, &answer[..answer.len() - 1], now);
        closes.answered(request, &[], now);
    });
    assert!(answers(&closes, now + CLOSES_VALID));
    assert!(answers_for(&closes, FILE + 1, now + CLOSES_VALID));
    // An answer that comes late takes nothing away.
    opened(&closes, true, now);
    assert!(answers(&closes, now + CLOSES_VALID));
}

/// The recall after a rollback does not come to a node whose time has ended, or over a connection
/// that is lost.
#[test]
fn a_file_of_before_a_rollback_is_closed_by_the_owner_without_a_recall() {
    const NEWER: u64 = 8 << 48 | 21;
    let (closes, now) = (Closes::default(), Instant::now());
    opened(&closes, true, now);
    let later = now + QUIET;
    with_request((opcode::OPEN, NEWER), &[], |request| {
        closes.answered(request, open_out(true).as_bytes(), later);
    });
    assert!(answers_for(&closes, NEWER, later) && !answers(&closes, later));
    // An answer of before the rollback that comes late.
    opened(&closes, true, now + QUIET / 2);
    assert!(answers_for(&closes, NEWER, later) && !answers(&closes, later));
}

#[test]
fn the_owner_hears_of_each_close_of_a_file_with_locks() {
    for lock in [opcode::SETLK, opcode::SETLKW] {
        let (closes, now) = (Closes::default(), Instant::now());
        opened(&closes, true, now);
        opened(&closes, true, now);
        ask(&closes, lock, FILE);
        assert!(!answers(&closes, now));
        // Through whatever descriptor: one that is opened later, and after one that is closed.
        opened(&closes, true, now);
        assert!(!answers(&closes, now));
        ask(&closes, opcode::RELEASE, FILE);
        ask(&closes, opcode::RELEASE, FILE);
        assert!(!answers(&closes, now));
        // The last one ends all locks.
        ask(&closes, opcode::RELEASE, FILE);
        opened(&closes, true, now);
        assert!(answers(&closes, now));
    }
}

#[test]
fn the_owner_hears_of_the_closes_of_what_a_mapping_has_written() {
    let (closes, now) = (Closes::default(), Instant::now());
    opened(&closes, true, now);
    write(&closes, 0);
    assert!(answers(&closes, now), "a program that writes is told of an error at once");
    write(&closes, write_flag::CACHE);
    assert!(!answers(&closes, now));
}

#[test]
fn the_owner_hears_of_each_close_that_it_wants_to_hear_of() {
    let (closes, now) = (Closes::default(), Instant::now());
    opened(&closes, false, now);
    assert!(!answers(&closes, now));
    opened(&closes, true, now);
    assert!(!answers(&closes, now), "the first descriptor may be the one that is closed");
    ask(&closes, opcode::RELEASE, FILE);
    ask(&closes, opcode::RELEASE, FILE);
    // One that is not known.
    ask(&closes, opcode::RELEASE, FILE);
    assert!(!answers(&closes, now), "it is closed");
    opened(&closes, true, now);
    assert!(answers(&closes, now));
}

#[test]
fn a_recall_ends_it_for_all_files_that_are_open_and_answers_under_way() {
    let (closes, now) = (Closes::default(), Instant::now());
    let later = now + Duration::from_millis(1);
    opened(&closes, true, now);
    let mut nodes = vec![recalled(20), recalled(21)];
    closes.recall(&mut nodes, later);
    assert_eq!(nodes, [recalled(20), recalled(21)]);
    assert!(answers(&closes, later), "attributes are recalled all the time");
    let mut nodes = vec![recalled(20), recalled(CLOSES.0), recalled(21)];
    closes.recall(&mut nodes, later);
    assert_eq!(nodes, [recalled(20), recalled(21)], "that is no node of the kernel");
    assert!(!answers(&closes, later));
    // The recall has overtaken these answers.
    opened(&closes, true, now);
    with_request((opcode::CREATE, 1), &[], |request| {
        let entry = EntryOut { nodeid: FILE + 1, ..EntryOut::default() };
        closes.answered(request, &[entry.as_bytes(), open_out(true).as_bytes()].concat(), later);
    });
    assert!(!answers(&closes, later) && !answers_for(&closes, FILE + 1, later));
    // A rollback makes them stale, so the owner has to refuse them for ever.
    let again = later + QUIET;
    opened(&closes, true, again);
    assert!(!answers(&closes, again));
    (0..3).for_each(|_| ask(&closes, opcode::RELEASE, FILE));
    opened(&closes, true, again);
    assert!(answers(&closes, again));
}

#[test]
fn another_session_knows_nothing_of_the_files_of_an_earlier_one() {
    let (closes, now) = (Closes::default(), Instant::now());
    opened(&closes, true, now);
    closes.lose();
    assert!(!answers(&closes, now));
    opened(&closes, true, now);
    assert!(answers(&closes, now));
}

#[test]
fn beyond_the_table_the_owner_hears_of_all_closes() {
    let (closes, now) = (Closes::default(), Instant::now());
    for inode in 0..FILES_MAX as u64 {
        closes.state().opened(inode + 100, true, now);
    }
    assert!(answers_for(&closes, 100, now));
    closes.state().opened(100, true, now);
    assert!(answers_for(&closes, 100, now), "it has its place");
    opened(&closes, true, now);
    assert!(!answers(&closes, now) && !answers_for(&closes, 100, now));
    // That file may have locks by now.
    closes.state().released(101);
    opened(&closes, true, now);
    assert!(!answers(&closes, now));
    closes.lose();
    opened(&closes, true, now);
    assert!(answers(&closes, now));
}
