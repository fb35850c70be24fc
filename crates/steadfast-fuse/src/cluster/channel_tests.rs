use std::sync::mpsc::{Receiver, channel};

use zerocopy::IntoBytes;

use super::super::deltas::Changes;
use super::super::frame::{Progress, Told};
use super::*;
use crate::abi::input::InHeader;

type Answers = Receiver<Result<Vec<u8>, Errno>>;

/// Bytes that are sent, as a test sees them.
#[derive(Clone, Default)]
struct Sent(Arc<Mutex<Vec<u8>>>);

impl Write for Sent {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Sent {
    fn frames(&self) -> Vec<RequestFrame> {
        let bytes = std::mem::take(&mut *self.0.lock().unwrap());
        let mut rest = &bytes[..];
        let mut frames = Vec::new();
        while !rest.is_empty() {
            frames.push(RequestFrame::read(&mut rest).unwrap());
        }
        frames
    }
}

fn ask(channel: &Channel, unique: u64, opcode: u32, inode: u64) -> (Result<(), Errno>, Answers) {
    ask_from(channel, (unique, opcode, inode, 0), true)
}

fn ask_from(
    channel: &Channel,
    (unique, opcode, inode, pid): (u64, u32, u64, u32),
    waits: bool,
) -> (Result<(), Errno>, Answers) {
    let len = size_of::<InHeader>() as u32;
    let header =
        InHeader { len, opcode, unique, nodeid: inode, uid: 0, gid: 0, pid, extensions: 0 };
    let (back, answers) = channel_of();
    (channel.ask(back, &Request::parse(header.as_bytes()).unwrap(), waits), answers)
}

fn channel_of() -> (Return, Answers) {
    let (back, answers) = channel();
    (Return::Worker(back), answers)
}

fn connect(channel: &Channel) -> Sent {
    let sent = Sent::default();
    channel.connect(Box::new(sent.clone()), Arc::new(|| {}));
    sent
}

fn answer(channel: &Channel, number: u64, accepted: u64) {
    let progress = Progress { accepted, durable: 0 };
    let (told, bytes) = (Told::Answer, b"done".to_vec());
    let answer = AnswerFrame {
        told,
        number,
        error: 0,
        progress,
        bytes,
        directory: None,
        changes: Changes::Same,
    };
    channel.receive(answer, channel.lost(), |_, _, _| {});
}

/// A process that holds the mount must not wait for an owner that may never come.
#[test]
fn what_must_not_wait_fails_without_a_connection() {
    const LOOKER: u32 = 7;
    let channel = Channel::new();
    let look = || ask_from(&channel, (10, opcode::GETATTR, 1, LOOKER), false);
    assert_eq!(look().0, Err(Errno(libc::EIO)));
    connect(&channel);
    let (asked, answers) = look();
    assert_eq!(asked, Ok(()));
    let (_, others) = ask(&channel, 12, opcode::GETATTR, 1);
    channel.close(None);
    channel.give_up(|request| request.header.pid == LOOKER);
    assert_eq!(answers.try_recv(), Ok(Err(Errno(libc::EIO))));
    assert!(others.try_recv().is_err(), "it waits for the next connection");
    assert_eq!(look().0, Err(Errno(libc::EIO)));
}

#[test]
fn what_is_not_answered_is_sent_again_over_the_next_connection() {
    let channel = Channel::new();
    let first = connect(&channel);
    let (_, one) = ask(&channel, 10, opcode::MKDIR, 1);
    let (_, two) = ask(&channel, 12, opcode::MKDIR, 1);
    assert_eq!(first.frames().iter().filter(|frame| frame.kind == FrameKind::Request).count(), 2);
    answer(&channel, 1, 1);
    assert_eq!(one.try_recv(), Ok(Ok(b"done".to_vec())));
    channel.close(None);
    let (_, three) = ask(&channel, 14, opcode::RMDIR, 1);
    let frames = connect(&channel).frames();
    assert_eq!((frames[0].kind, frames[0].numbers.clone()), (FrameKind::Resume, vec![2, 3]));
    assert_eq!(frames[1..].iter().map(|frame| frame.number).collect::<Vec<_>>(), [2, 3]);
    answer(&channel, 2, 2);
    // A second answer to the same request is none.
    answer(&channel, 2, 2);
    answer(&channel, 3, 3);
    assert!(two.try_recv().is_ok() && two.try_recv().is_err() && three.try_recv().is_ok());
}

#[test]
fn the_owner_learns_which_answers_have_arrived() {
    let channel = Channel::new();
    let sent = connect(&channel);
    let _one = ask(&channel, 10, opcode::MKDIR, 1);
    answer(&channel, 1, 1);
    let _two = ask(&channel, 12, opcode::MKDIR, 1);
    assert_eq!(sent.frames().last().unwrap().numbers, [1]);
}

#[test]
fn after_a_takeover_only_what_changes_nothing_is_repeated() {
    let channel = Channel::new();
    let _sent = connect(&channel);
    let kinds = [
        (opcode::GETATTR, None),
        (opcode::LOOKUP, None),
        (opcode::MKDIR, Some(Err(Errno(libc::EIO)))),
        (opcode::FSYNC, Some(Err(Errno(libc::ESTALE)))),
        (opcode::SETLKW, Some(Err(Errno(libc::ESTALE)))),
        (opcode::RELEASE, Some(Ok(Vec::new()))),
    ];
    let asked: Vec<_> = kinds.iter().map(|(opcode, _)| ask(&channel, 2, *opcode, 7).1).collect();
    channel.close(None);
    // Not sent, so nothing is known to have happened.
    let (_, waits) = ask(&channel, 20, opcode::MKDIR, 7);
    channel.lose_session(false);
    for ((opcode, expected), answers) in kinds.iter().zip(&asked) {
        assert_eq!(answers.try_recv().ok(), *expected, "{opcode}");
    }
    assert!(waits.try_recv().is_err());
    let frames = connect(&channel).frames();
    assert_eq!(frames.iter().map(|frame| frame.number).collect::<Vec<_>>(), [0, 1, 2, 7]);
}

#[test]
fn no_fsync_that_waits_for_an_owner_confirms_what_is_lost() {
    let channel = Channel::new();
    let _sent = connect(&channel);
    let _removed = ask(&channel, 2, opcode::RMDIR, 1);
    answer(&channel, 1, 1);
    channel.close(None);
    let (asked, waits) = ask(&channel, 4, opcode::FSYNCDIR, 1);
    assert_eq!(asked, Ok(()));
    channel.lose_session(false);
    assert_eq!(waits.try_recv(), Ok(Err(Errno(libc::ESTALE))));
    assert_eq!(ask(&channel, 6, opcode::FSYNCDIR, 1).0, Ok(()), "told once");
}

#[test]
fn a_signal_ends_only_what_was_not_sent() {
    let channel = Channel::new();
    let (_, waits) = ask(&channel, 2, opcode::MKDIR, 1);
    assert!(!channel.interrupt(2));
    assert_eq!(waits.try_recv(), Ok(Err(Errno(libc::EINTR))));
    let _sent = connect(&channel);
    let (_, sent) = ask(&channel, 4, opcode::MKDIR, 1);
    let (_, lock) = ask(&channel, 6, opcode::SETLKW, 1);
    assert!(!channel.interrupt(4) && !channel.interrupt(99));
    assert!(channel.interrupt(6), "the owner ends the wait for a lock");
    assert!(sent.try_recv().is_err() && lock.try_recv().is_err());
}

/// An answer may wait for recalls of pages while the owner changes.
#[test]
fn an_answer_of_an_earlier_session_is_none() {
    let channel = Channel::new();
    connect(&channel);
    let (_, looked) = ask(&channel, 10, opcode::GETATTR, 1);
    let (before, bytes) = (channel.lost(), b"old".to_vec());
    channel.lose_session(false);
    connect(&channel);
    let progress = Progress { accepted: 9, durable: 9 };
    let late = AnswerFrame {
        told: Told::Answer,
        number: 1,
        error: 0,
        progress,
        bytes,
        directory: None,
        changes: Changes::Same,
    };
    channel.receive(late, before, |_, _, _| {});
    assert!(looked.try_recv().is_err(), "the present owner answers it");
    answer(&channel, 1, 0);
    assert_eq!(looked.try_recv(), Ok(Ok(b"done".to_vec())));
}
