use zerocopy::IntoBytes;

use super::super::deltas::Changes;
use super::super::frame::Told;
use super::*;
use crate::abi::input::InHeader;

/// A request about an inode, in the kernel's form.
fn request(opcode: u32, inode: u64, body: &[u8]) -> Vec<u8> {
    let len = (size_of::<InHeader>() + body.len()) as u32;
    let header =
        InHeader { len, opcode, unique: 1, nodeid: inode, uid: 0, gid: 0, pid: 0, extensions: 0 };
    [header.as_bytes(), body].concat()
}

fn answered(unsynced: &mut Unsynced, bytes: &[u8], accepted: u64, durable: u64) {
    let progress = Progress { accepted, durable };
    let answer = AnswerFrame {
        told: Told::Answer,
        number: 1,
        error: 0,
        progress,
        bytes: Vec::new(),
        directory: None,
        changes: Changes::Same,
        executed: Vec::new(),
        tag: 0,
    };
    unsynced.reached(progress);
    unsynced.answered(&Request::parse(bytes).unwrap(), &answer);
}

fn fails(unsynced: &mut Unsynced, opcode: u32, inode: u64) -> bool {
    let bytes = request(opcode, inode, &[]);
    unsynced.must_fail(&Request::parse(&bytes).unwrap())
}

#[test]
fn the_first_fsync_after_a_takeover_fails_for_what_may_be_lost() {
    let mut unsynced = Unsynced::default();
    let rename = RenameIn { newdir: 20 };
    answered(&mut unsynced, &request(opcode::WRITE, 7, &[]), 1, 0);
    answered(&mut unsynced, &request(opcode::RENAME, 1, rename.as_bytes()), 2, 0);
    answered(&mut unsynced, &request(opcode::GETATTR, 9, &[]), 2, 1);
    assert!(!fails(&mut unsynced, opcode::FSYNCDIR, 1), "no takeover yet");
    unsynced.owner_changed(false);
    assert!(!fails(&mut unsynced, opcode::FSYNC, 7), "durable");
    assert!(!fails(&mut unsynced, opcode::FSYNC, 9), "not changed");
    assert!(
        fails(&mut unsynced, opcode::FSYNCDIR, 1) && fails(&mut unsynced, opcode::FSYNCDIR, 20)
    );
    assert!(!fails(&mut unsynced, opcode::FSYNCDIR, 1), "told once");
    assert!(fails(&mut unsynced, opcode::SYNCFS, 1));
    assert!(!fails(&mut unsynced, opcode::SYNCFS, 1));
}

#[test]
fn the_next_owner_counts_from_the_beginning() {
    let mut unsynced = Unsynced::default();
    answered(&mut unsynced, &request(opcode::WRITE, 7, &[]), 900, 900);
    unsynced.owner_changed(false);
    assert!(!fails(&mut unsynced, opcode::FSYNC, 7) && !fails(&mut unsynced, opcode::SYNCFS, 1));
    answered(&mut unsynced, &request(opcode::WRITE, 8, &[]), 3, 2);
    unsynced.owner_changed(false);
    assert!(fails(&mut unsynced, opcode::FSYNC, 8));
}

#[test]
fn where_the_volume_has_all_of_it_no_fsync_fails() {
    let mut unsynced = Unsynced::default();
    answered(&mut unsynced, &request(opcode::WRITE, 7, &[]), 3, 2);
    unsynced.owner_changed(true);
    assert!(!fails(&mut unsynced, opcode::FSYNC, 7) && !fails(&mut unsynced, opcode::SYNCFS, 1));
    // What an earlier takeover has lost stays lost.
    answered(&mut unsynced, &request(opcode::WRITE, 8, &[]), 3, 2);
    unsynced.owner_changed(false);
    unsynced.owner_changed(true);
    assert!(fails(&mut unsynced, opcode::FSYNC, 8));
}

#[test]
fn a_full_table_fails_every_first_fsync() {
    let mut unsynced = Unsynced::default();
    for inode in 0..INODES_MAX as u64 + 1 {
        answered(&mut unsynced, &request(opcode::WRITE, 100 + inode, &[]), inode + 1, 0);
    }
    unsynced.owner_changed(false);
    let beyond = 100 + INODES_MAX as u64;
    assert!(fails(&mut unsynced, opcode::FSYNC, beyond) && fails(&mut unsynced, opcode::FSYNC, 3));
    assert!(!fails(&mut unsynced, opcode::FSYNC, beyond), "told once");
}

#[test]
fn what_failed_has_changed_nothing() {
    let mut unsynced = Unsynced::default();
    let bytes = request(opcode::UNLINK, 7, b"name\0");
    let progress = Progress { accepted: 1, durable: 0 };
    let answer = AnswerFrame {
        told: Told::Answer,
        number: 1,
        error: libc::ENOENT,
        progress,
        bytes: Vec::new(),
        directory: None,
        changes: Changes::Same,
        executed: Vec::new(),
        tag: 0,
    };
    unsynced.answered(&Request::parse(&bytes).unwrap(), &answer);
    unsynced.owner_changed(false);
    assert!(!fails(&mut unsynced, opcode::FSYNCDIR, 7));
}
