use zerocopy::{FromZeros, IntoBytes};

use super::*;
use crate::abi::input::InHeader;

const FILE: u64 = 7 << 48 | 20;
const DIRECTORY: u64 = 7 << 48 | 16;
const VALID: Duration = Duration::from_millis(400);

fn bytes(opcode: u32, nodeid: u64, body: &[u8]) -> Vec<u8> {
    let len = (size_of::<InHeader>() + body.len()) as u32;
    let header = InHeader { len, opcode, nodeid, ..InHeader::new_zeroed() };
    [header.as_bytes(), body].concat()
}

fn create(flags: libc::c_int) -> Vec<u8> {
    let wanted = CreateIn { flags: flags as u32, ..CreateIn::new_zeroed() };
    bytes(opcode::CREATE, DIRECTORY, &[wanted.as_bytes(), b"name\0"].concat())
}

/// The attributes of a size, as GETATTR tells them.
fn told(size: u64) -> Vec<u8> {
    let attr = Attr { size, ..Attr::default() };
    let attr_valid_nsec = VALID.subsec_nanos();
    AttrOut { attr, attr_valid_nsec, ..AttrOut::default() }.as_bytes().to_vec()
}

fn directory(size: u64) -> AttrOut {
    AttrOut::read_from_bytes(&told(size)).unwrap()
}

/// The same of `nodeid`, as LOOKUP and CREATE tell them.
fn entry(nodeid: u64, size: u64) -> Vec<u8> {
    let attr = Attr { size, ..Attr::default() };
    let attr_valid_nsec = VALID.subsec_nanos();
    EntryOut { nodeid, attr, attr_valid_nsec, ..EntryOut::default() }.as_bytes().to_vec()
}

/// A channel: its requests, and the attributes to spare.
struct Sender {
    spares: Spares,
    number: u64,
    pending: HashMap<u64, Vec<u8>>,
    start: Instant,
}

impl Sender {
    fn new() -> Sender {
        let (spares, pending) = (Spares::default(), HashMap::new());
        Sender { spares, number: 0, pending, start: Instant::now() }
    }

    fn ask(&mut self, bytes: Vec<u8>) -> u64 {
        self.number += 1;
        self.spares.asked(&Request::parse(&bytes).unwrap(), self.number);
        self.pending.insert(self.number, bytes);
        self.number
    }

    fn answer_with(&mut self, number: u64, answer: Option<&[u8]>, directory: Option<AttrOut>) {
        let bytes = self.pending.remove(&number).unwrap();
        let told = AnswerParts { answer, directory: directory.as_ref(), asked: self.start };
        let others = self.pending.values().map(|bytes| Request::parse(bytes).unwrap());
        self.spares.answered(
            &Request::parse(&bytes).unwrap(),
            &told,
            number,
            self.number + 1,
            others,
        );
    }

    fn answer(&mut self, number: u64, answer: &[u8]) {
        self.answer_with(number, Some(answer), None);
    }

    fn getattr(&mut self, nodeid: u64) -> u64 {
        self.ask(bytes(opcode::GETATTR, nodeid, &[]))
    }

    /// GETATTR, answered.
    fn look(&mut self, size: u64) {
        let asked = self.getattr(FILE);
        self.answer(asked, &told(size));
    }

    fn take(&mut self) -> Option<u64> {
        self.take_of(FILE)
    }

    fn take_of(&mut self, nodeid: u64) -> Option<u64> {
        self.spares.take(nodeid, self.start).map(|found| {
            assert_eq!(
                (found.attr_valid, found.attr_valid_nsec),
                (0, 0),
                "the kernel keeps it not"
            );
            found.attr.size
        })
    }

    /// Makes a file, with the attributes of its directory.
    fn make(&mut self, size: u64) {
        let asked = self.ask(create(libc::O_EXCL));
        self.answer_with(asked, Some(&entry(FILE, 0)), Some(directory(size)));
    }
}

#[test]
fn what_is_delegated_is_given_once_and_in_time() {
    let mut sender = Sender::new();
    sender.look(3);
    assert!(sender.spares.take(DIRECTORY, sender.start).is_none());
    assert_eq!((sender.take(), sender.take()), (Some(3), None));
    sender.look(4);
    sender.look(5);
    assert_eq!(sender.take(), Some(5));
    for (later, found) in [(VALID - Duration::from_nanos(1), true), (VALID, false)] {
        sender.look(6);
        assert_eq!(sender.spares.take(FILE, sender.start + later).is_some(), found);
    }
    let asked = sender.ask(bytes(opcode::LOOKUP, DIRECTORY, b"name\0"));
    sender.answer(asked, &entry(FILE, 7));
    assert_eq!(sender.take(), Some(7));
    // What the owner has not delegated, what is too short, an error, and a time without an end.
    let without = AttrOut::default();
    let ever = AttrOut { attr_valid: u64::MAX, attr_valid_nsec: u32::MAX, ..without };
    for answer in [without.as_bytes(), &told(1)[..20], &[], ever.as_bytes()] {
        let asked = sender.getattr(FILE);
        sender.answer(asked, answer);
        assert_eq!(sender.take(), None);
    }
    let asked = sender.getattr(FILE);
    sender.answer_with(asked, None, None);
    assert_eq!(sender.take(), None);
}

#[test]
fn what_create_tells_is_for_the_file_and_not_for_the_directory() {
    for flags in [libc::O_EXCL, 0] {
        let mut sender = Sender::new();
        let asked = sender.getattr(DIRECTORY);
        sender.answer(asked, &told(1));
        let asked = sender.ask(create(flags));
        assert!(sender.spares.take(DIRECTORY, sender.start).is_none());
        let meanwhile = sender.getattr(DIRECTORY);
        sender.answer(asked, &entry(FILE, 9));
        sender.answer(meanwhile, &told(1));
        assert!(sender.spares.take(DIRECTORY, sender.start).is_none());
        assert_eq!(sender.take(), Some(9));
    }
}

#[test]
fn those_of_a_directory_with_a_new_name_are_given_until_they_may_be_others() {
    let mut sender = Sender::new();
    for size in [1, 2] {
        sender.make(size);
        let found = [DIRECTORY, DIRECTORY, FILE, FILE, DIRECTORY].map(|of| sender.take_of(of));
        assert_eq!(found, [Some(size), Some(size), Some(0), None, Some(size)]);
    }
    assert!(sender.spares.take(DIRECTORY, sender.start + VALID).is_none());
    assert_eq!(sender.take_of(DIRECTORY), None, "the time was over");
    let node = RecalledNode::stale(DIRECTORY);
    // A request that touches all nodes tells of its directory, too.
    let removing = sender.ask(bytes(opcode::UNLINK, DIRECTORY, b"name\0"));
    sender.answer_with(removing, Some(&[]), Some(directory(3)));
    assert_eq!(sender.take_of(DIRECTORY), Some(3));
    sender.spares.recall(&[node], sender.number + 1);
    assert_eq!(sender.take_of(DIRECTORY), None);
    // What the owner has not delegated.
    let asked = sender.ask(create(libc::O_EXCL));
    sender.answer_with(asked, Some(&entry(FILE, 0)), Some(AttrOut::default()));
    assert_eq!(sender.take_of(DIRECTORY), None);
    // Another change of the directory, or a recall, before and during the answer.
    for recalled in [false, true] {
        sender.make(4);
        let asked = sender.ask(create(libc::O_EXCL));
        assert_eq!(sender.take_of(DIRECTORY), None);
        let other = match recalled {
            true => {
                sender.spares.recall(&[node], sender.number + 1);
                None
            }
            false => Some(sender.ask(bytes(opcode::MKDIR, DIRECTORY, &[]))),
        };
        sender.answer_with(asked, Some(&entry(FILE, 0)), Some(directory(5)));
        assert_eq!(sender.take_of(DIRECTORY), None, "recalled: {recalled}");
        if let Some(other) = other {
            sender.answer_with(other, None, None);
        }
        assert_eq!(sender.take_of(DIRECTORY), None, "recalled: {recalled}");
    }
}

/// Requests that may change the file, and others.
fn changes() -> Vec<Vec<u8>> {
    let of_file = [opcode::WRITE, opcode::SETATTR, opcode::READ, opcode::OPEN, opcode::RELEASE];
    let of_any = [opcode::UNLINK, opcode::RENAME2, opcode::LINK, opcode::IOCTL, 9999];
    let here = of_file.map(|opcode| bytes(opcode, FILE, &[]));
    let there = of_any.map(|opcode| bytes(opcode, DIRECTORY, &[]));
    here.into_iter().chain(there).chain([create(0), create(libc::O_TRUNC)]).collect()
}

#[test]
fn what_this_node_changes_is_not_given_as_it_was() {
    for change in changes() {
        let opcode = Request::parse(&change).unwrap().header.opcode;
        let mut sender = Sender::new();
        sender.look(1);
        let changing = sender.ask(change.clone());
        assert_eq!(sender.take(), None, "before {opcode} is sent");
        let looking = sender.getattr(FILE);
        sender.answer(looking, &told(1));
        assert_eq!(sender.take(), None, "{opcode} may be executed after that");
        let looking = sender.getattr(FILE);
        sender.answer_with(changing, None, None);
        sender.answer(looking, &told(1));
        assert_eq!(sender.take(), None, "{opcode} may have been executed after that");
        let looking = sender.getattr(FILE);
        let changing = sender.ask(change.clone());
        sender.answer_with(changing, None, None);
        sender.answer(looking, &told(1));
        assert_eq!(sender.take(), None, "{opcode} was asked and answered meanwhile");
        sender.look(2);
        assert_eq!(sender.take(), Some(2), "{opcode} is answered");
        // A file that another program finds and changes before its maker knows of it.
        let making = sender.ask(create(libc::O_EXCL));
        let changing = sender.ask(change);
        sender.answer_with(changing, None, None);
        sender.answer(making, &entry(FILE, 0));
        assert_eq!(sender.take(), None, "{opcode} by another one");
    }
}

#[test]
fn what_concerns_other_files_takes_nothing_away() {
    let reads = [opcode::LOOKUP, opcode::FLUSH, opcode::STATFS, opcode::GETXATTR, opcode::SETLK];
    let of_others = [opcode::WRITE, opcode::RELEASE, opcode::MKDIR];
    let mut others: Vec<_> = reads.iter().map(|opcode| bytes(*opcode, FILE, &[])).collect();
    others.extend(of_others.iter().map(|opcode| bytes(*opcode, DIRECTORY, &[])));
    others.push(create(libc::O_EXCL));
    for other in others {
        let mut sender = Sender::new();
        let looking = sender.getattr(FILE);
        let before = sender.ask(other.clone());
        sender.ask(other.clone());
        sender.answer_with(before, None, None);
        sender.answer(looking, &told(3));
        sender.ask(other);
        assert_eq!(sender.take(), Some(3));
    }
}

#[test]
fn a_recall_and_the_end_of_a_session_drop_it_and_what_is_under_way() {
    let node = RecalledNode::stale;
    let mut sender = Sender::new();
    sender.look(1);
    let looking = sender.getattr(FILE);
    sender.spares.recall(&[node(DIRECTORY)], sender.number + 1);
    assert_eq!(sender.take(), Some(1), "of another node");
    sender.look(1);
    sender.spares.recall(&[node(DIRECTORY), node(FILE)], sender.number + 1);
    assert_eq!(sender.take(), None);
    sender.answer(looking, &told(1));
    assert_eq!(sender.take(), None, "the recall has overtaken it");
    sender.look(2);
    let looking = sender.getattr(FILE);
    sender.spares.lose(sender.number + 1);
    assert_eq!(sender.take(), None);
    sender.answer(looking, &told(2));
    assert_eq!(sender.take(), None);
    sender.look(3);
    assert_eq!(sender.take(), Some(3));
}

#[test]
fn the_tables_are_bounded() {
    let mut sender = Sender::new();
    let looking = sender.getattr(FILE);
    for other in 0..=TOUCHED_MAX as u64 {
        let asked = sender.ask(bytes(opcode::WRITE, other + 100, &[]));
        sender.answer_with(asked, None, None);
        let asked = sender.getattr(other + 100);
        sender.answer(asked, &told(1));
        assert!(sender.spares.since.len() <= TOUCHED_MAX);
        assert!(sender.spares.by_node.len() <= NODES_MAX);
    }
    sender.answer(looking, &told(1));
    assert_eq!(sender.take(), None, "it may have been among those that are forgotten");
}
