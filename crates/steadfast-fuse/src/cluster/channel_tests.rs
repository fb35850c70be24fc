use std::sync::mpsc::{Receiver, channel};

use zerocopy::{FromZeros, IntoBytes};

use super::super::deltas::Changes;
use super::super::frame::{Progress, Told};
use super::*;
use crate::abi::input::{InHeader, OpenIn};
use crate::abi::output::OpenOut;

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
    (channel.ask(back, &Request::parse(header.as_bytes()).unwrap(), (waits, false)), answers)
}

fn channel_of() -> (Return, Answers) {
    let (back, answers) = channel();
    (Return::Worker(back), answers)
}

fn connect(channel: &Channel) -> Sent {
    let sent = Sent::default();
    channel.connect(Box::new(sent.clone()), Arc::new(|| {}), since_boot());
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
        executed: Vec::new(),
        tag: 0,
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
    channel.lose_session(Reached::Less);
    for ((opcode, expected), answers) in kinds.iter().zip(&asked) {
        assert_eq!(answers.try_recv().ok(), *expected, "{opcode}");
    }
    assert!(waits.try_recv().is_err());
    let frames = connect(&channel).frames();
    assert_eq!(frames.iter().map(|frame| frame.number).collect::<Vec<_>>(), [7, 1, 2, 7]);
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
    channel.lose_session(Reached::Less);
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
    channel.lose_session(Reached::Less);
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
        executed: Vec::new(),
        tag: 0,
    };
    channel.receive(late, before, |_, _, _| {});
    assert!(looked.try_recv().is_err(), "the present owner answers it");
    answer(&channel, 1, 0);
    assert_eq!(looked.try_recv(), Ok(Ok(b"done".to_vec())));
}

/// The owner may answer a READ with a plan. What the kernel has asked for goes out again if that
/// cannot be read, and to each other owner.
#[test]
fn a_read_whose_plan_is_in_vain_asks_for_the_data() {
    let channel = Channel::new();
    let sent = connect(&channel);
    let read = ReadIn { size: 1 << 20, ..ReadIn::new_zeroed() };
    let len = (size_of::<InHeader>() + size_of::<ReadIn>()) as u32;
    let header = InHeader { len, opcode: opcode::READ, ..InHeader::new_zeroed() };
    let bytes = [header.as_bytes(), read.as_bytes()].concat();
    let (back, answers) = channel_of();
    channel.ask(back, &Request::parse(&bytes).unwrap(), (true, true)).unwrap();
    let flags = |frames: Vec<RequestFrame>| -> Vec<(u64, u32)> {
        let read = |frame: &RequestFrame| {
            let wanted = Request::parse(&frame.bytes)?.arguments().take::<ReadIn>().ok()?;
            Some((frame.number, wanted.read_flags))
        };
        frames.iter().filter_map(read).collect()
    };
    assert_eq!(flags(sent.frames()), [(1, flags::read::PLAN)]);
    channel.ask_for_data(1, channel.lost());
    assert_eq!(flags(sent.frames()), [(1, 0)]);
    let again = connect(&channel);
    assert_eq!(flags(again.frames()), [(1, 0)]);
    // The plan is of an owner that is no more.
    let before = channel.lost();
    channel.lose_session(Reached::All);
    channel.ask_for_data(1, before);
    assert_eq!(flags(again.frames()), []);
    answer(&channel, 1, 0);
    assert_eq!(answers.try_recv(), Ok(Ok(b"done".to_vec())));
    channel.ask_for_data(1, channel.lost());
    assert_eq!(flags(again.frames()), []);
}

/// The requests of [`fate`], with what they ask for.
fn sent_at_the_end_of_an_owner(channel: &Channel) -> Vec<(u32, Answers)> {
    let with_body = |opcode: u32, body: &[u8]| {
        let len = (size_of::<InHeader>() + body.len()) as u32;
        let header =
            InHeader { len, opcode, unique: 2, nodeid: 7, uid: 0, gid: 0, pid: 0, extensions: 0 };
        let (back, answers) = channel_of();
        let bytes = [header.as_bytes(), body].concat();
        channel.ask(back, &Request::parse(&bytes).unwrap(), (true, false)).unwrap();
        (opcode, answers)
    };
    let open = |flags: i32| OpenIn { flags: flags as u32, open_flags: 0 };
    let transact = IoctlIn { cmd: ioctl::TRANSACT, ..IoctlIn::new_zeroed() };
    let rollback = IoctlIn { cmd: ioctl::ROLLBACK, ..IoctlIn::new_zeroed() };
    vec![
        with_body(opcode::READ, &[]),
        with_body(opcode::FSYNC, &[]),
        with_body(opcode::FLUSH, &[]),
        with_body(opcode::RELEASE, &[]),
        with_body(opcode::SETLKW, &[]),
        with_body(opcode::OPEN, open(libc::O_RDWR).as_bytes()),
        with_body(opcode::IOCTL, transact.as_bytes()),
        // These may be done. The next owner knows.
        with_body(opcode::WRITE, &[]),
        with_body(opcode::MKDIR, &[]),
        with_body(opcode::OPEN, open(libc::O_WRONLY | libc::O_TRUNC).as_bytes()),
        // It does not know of commands.
        with_body(opcode::IOCTL, rollback.as_bytes()),
    ]
}

#[test]
fn an_owner_that_has_everything_is_asked_again_all_but_commands() {
    let channel = Channel::new();
    connect(&channel);
    let asked = sent_at_the_end_of_an_owner(&channel);
    channel.close(None);
    channel.lose_session(Reached::Same);
    let answered: Vec<_> = asked.iter().map(|(_, answers)| answers.try_recv().ok()).collect();
    let unsure = Some(Err(Errno(libc::EIO)));
    let expected = [vec![None; 10], vec![unsure]].concat();
    assert_eq!(answered, expected);
    channel.interrupt(2);
    assert!(channel.pending(1, |_| ()).is_some(), "it may be done");
    let (_, new) = ask(&channel, 20, opcode::MKDIR, 7);
    for _ in 0..2 {
        // Also over a second connection.
        let frames = connect(&channel).frames();
        let count = |kind| frames.iter().filter(|frame| frame.kind == kind).count();
        assert_eq!((count(FrameKind::Repeated), count(FrameKind::Request)), (10, 1));
    }
    assert!(new.try_recv().is_err());
    // The next owner knows of all that this one did, but not of all that the one before did.
    channel.lose_session(Reached::All);
    channel.lose_session(Reached::Same);
    let failed = asked.iter().filter(|(_, answers)| answers.try_recv().is_ok()).count();
    assert_eq!((failed, new.try_recv().is_ok()), (3, true), "the changes");
}

#[test]
fn an_owner_that_lacks_something_is_asked_again_only_what_tells() {
    let channel = Channel::new();
    connect(&channel);
    let asked = sent_at_the_end_of_an_owner(&channel);
    channel.lose_session(Reached::Less);
    let mut answered = asked.iter().map(|(_, answers)| answers.try_recv().ok());
    let (done, stale) = (Some(Ok(Vec::new())), Some(Err(Errno(libc::ESTALE))));
    let first: Vec<_> = answered.by_ref().take(5).collect();
    assert_eq!(first, [None, stale.clone(), done.clone(), done, stale]);
    assert!(answered.all(|answer| answer == Some(Err(Errno(libc::EIO)))));
}

#[test]
fn what_a_node_has_brought_stays_all_that_its_programs_know() {
    let channel = Channel::new();
    connect(&channel);
    let (_, opened) = ask(&channel, 10, opcode::OPEN, 7);
    let lost = channel.lost();
    assert_eq!(channel.end_session(), Holdings::default());
    let open = OpenOut { fh: 3, open_flags: 0, backing_id: 0 };
    let late = AnswerFrame {
        told: Told::Answer,
        number: 1,
        error: 0,
        progress: Progress::default(),
        bytes: open.as_bytes().to_vec(),
        directory: None,
        changes: Changes::Same,
        executed: Vec::new(),
        tag: 0,
    };
    channel.receive(late.clone(), lost, |_, _, _| {});
    assert!(opened.try_recv().is_err() && channel.end_session() == Holdings::default());
    channel.lose_session(Reached::Same);
    channel.receive(late, channel.lost(), |_, _, _| {});
    assert!(opened.try_recv().is_ok(), "the next owner has opened it");
    assert_eq!(channel.end_session().files().collect::<Vec<_>>(), [(7, 3)]);
    channel.lose_session(Reached::Less);
    assert_eq!(channel.end_session(), Holdings::default(), "its files are stale");
}

/// The owner may have given the locks of a node to others that it did not hear of for long.
#[test]
fn a_node_brings_what_it_has_only_soon_after_a_sign_of_the_owner() {
    let channel = Channel::new();
    let sent = connect(&channel);
    ask(&channel, 10, opcode::OPEN, 7).0.unwrap();
    let open = OpenOut { fh: 3, open_flags: 0, backing_id: 0 };
    let frame = AnswerFrame::telling(Told::Answer, 1, Progress::default());
    let opened = AnswerFrame { bytes: open.as_bytes().to_vec(), ..frame };
    channel.receive(opened, channel.lost(), |_, _, _| {});
    // An owner that is not sure answers none of the first ones.
    channel.ping();
    channel.ping();
    let pings: Vec<_> =
        sent.frames().into_iter().filter(|frame| frame.kind == FrameKind::Ping).collect();
    let [first, second] = &pings[..] else { panic!("{pings:?}") };
    let sent_at = |number| {
        let state = channel.state();
        state.contact.pings.iter().find(|(ping, _)| *ping == number).map(|(_, at)| *at)
    };
    let at = sent_at(second.number).unwrap();
    channel.goes_on(second.number);
    assert_eq!(channel.state().contact.known, at, "the answer tells of when it was sent");
    channel.goes_on(first.number);
    assert_eq!(channel.state().contact.known, at, "a late answer tells less");
    let (moment, begun) = (Duration::from_secs(1), since_boot());
    let expires = |channel: &Channel, at: Duration| {
        channel.owner_ends(at);
        !channel.end_session().is_complete()
    };
    assert!(expires(&channel, begun + HELD_FOR + moment), "there was no sign for long");
    channel.owner_says_it_ends();
    assert!(expires(&channel, begun), "the first end counts");
    connect(&channel);
    assert!(!expires(&channel, since_boot() + HELD_FOR - moment));
    assert_eq!(channel.end_session().files().collect::<Vec<_>>(), [(7, 3)]);
    connect(&channel);
    channel.owner_says_it_ends();
    assert!(!expires(&channel, begun + HELD_FOR + moment), "a long close is no silence");
    for _ in 0..2 * PINGS_MAX {
        channel.ping();
    }
    assert_eq!(channel.state().contact.pings.len(), PINGS_MAX);
}
