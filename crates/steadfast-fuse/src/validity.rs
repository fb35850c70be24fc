//! How long the kernel may keep what an answer tells, where a volume has several kernels: another
//! one may change it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use zerocopy::{FromBytes, IntoBytes};

use crate::abi::flags::{fopen, setattr};
use crate::abi::input::{OpenIn, SetattrIn};
use crate::abi::opcode;
use crate::abi::output::{Attr, AttrOut, EntryOut, OpenOut, StatxOut};
use crate::request::Request;

/// The attributes of a node in an answer, which may be kept for `valid`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Delegated {
    pub(crate) nodeid: u64,
    /// Equal for equal mode, owner, links, size and times of change. A directory has only mode and
    /// owner in it. The kernel uses no other attribute of one after an answer that it has dropped.
    pub(crate) same: u64,
    pub(crate) is_directory: bool,
    pub(crate) valid: Duration,
}

/// Shortens the times in an answer: that of a name by `names`, and that of the attributes of a node
/// by `attributes`. A time of 0 stays. An opened file is read and written without the kernel's
/// pages, unless `may_cache` allows it for the flags of open(2).
pub(crate) fn limit(
    request: &Request<'_>,
    answer: &mut [u8],
    names: impl FnOnce(Duration) -> Duration,
    attributes: impl FnOnce(Delegated) -> Duration,
    may_cache: impl FnOnce(u32) -> bool,
) {
    match request.header.opcode {
        opcode::LOOKUP
        | opcode::SYMLINK
        | opcode::MKNOD
        | opcode::MKDIR
        | opcode::LINK
        | opcode::TMPFILE
        | opcode::CREATE => {
            let Ok((mut entry, rest)) = EntryOut::read_from_prefix(&*answer) else { return };
            let start = answer.len() - rest.len();
            shorten(&mut entry.entry_valid, &mut entry.entry_valid_nsec, names);
            let (nodeid, attr) = (entry.nodeid, entry.attr);
            let (same, is_directory) = (same_as(&attr), is_directory(attr.mode));
            let by = |valid| attributes(Delegated { nodeid, same, is_directory, valid });
            shorten(&mut entry.attr_valid, &mut entry.attr_valid_nsec, by);
            answer[..start].copy_from_slice(entry.as_bytes());
            opened(&mut answer[start..], || false);
        }
        opcode::OPEN => {
            let wanted = request.arguments().take::<OpenIn>();
            opened(answer, || wanted.is_ok_and(|wanted| may_cache(wanted.flags)));
        }
        opcode::GETATTR | opcode::SETATTR => {
            let Ok((mut found, _)) = AttrOut::read_from_prefix(&*answer) else { return };
            let (nodeid, attr) = (request.header.nodeid, found.attr);
            let (same, is_directory) = (same_as(&attr), is_directory(attr.mode));
            let by = |valid| attributes(Delegated { nodeid, same, is_directory, valid });
            shorten(&mut found.attr_valid, &mut found.attr_valid_nsec, by);
            answer[..size_of::<AttrOut>()].copy_from_slice(found.as_bytes());
        }
        opcode::STATX => {
            let Ok((mut found, _)) = StatxOut::read_from_prefix(&*answer) else { return };
            let (nodeid, stat) = (request.header.nodeid, found.stat);
            let times = [stat.mtime, stat.ctime].map(|at| (at.seconds as u64, at.nanoseconds));
            let owner = [stat.mode.into(), stat.uid, stat.gid, stat.nlink];
            let same = same(owner, stat.size, times);
            let is_directory = is_directory(stat.mode.into());
            let by = |valid| attributes(Delegated { nodeid, same, is_directory, valid });
            shorten(&mut found.attr_valid, &mut found.attr_valid_nsec, by);
            answer[..size_of::<StatxOut>()].copy_from_slice(found.as_bytes());
        }
        _ => {}
    }
}

/// A file that an answer opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpenedNode {
    pub(crate) nodeid: u64,
    pub(crate) handle: u64,
    /// Closes of it need not be told, see [`crate::cluster`]. [`limit`] takes that out.
    pub(crate) no_flush: bool,
}

/// The file that an answer opens, if it is one that does.
pub(crate) fn opened_node(request: &Request<'_>, answer: &[u8]) -> Option<OpenedNode> {
    let (nodeid, start) = opens(request, answer)?;
    let (open, _) = OpenOut::read_from_prefix(&answer[start..]).ok()?;
    let no_flush = open.open_flags & fopen::NOFLUSH != 0;
    Some(OpenedNode { nodeid, handle: open.fh, no_flush })
}

/// Marks the file that an answer opens as one whose closes need not be told.
pub(crate) fn set_no_flush(request: &Request<'_>, answer: &mut [u8]) {
    if let Some((_, start)) = opens(request, answer)
        && let Ok((open, _)) = OpenOut::mut_from_prefix(&mut answer[start..])
    {
        open.open_flags |= fopen::NOFLUSH;
    }
}

/// The node that an answer opens, and where the answer tells how.
fn opens(request: &Request<'_>, answer: &[u8]) -> Option<(u64, usize)> {
    match request.header.opcode {
        opcode::OPEN => Some((request.header.nodeid, 0)),
        opcode::CREATE | opcode::TMPFILE => {
            let (entry, _) = EntryOut::read_from_prefix(answer).ok()?;
            Some((entry.nodeid, size_of::<EntryOut>()))
        }
        _ => None,
    }
}

/// Whether an answer tells the kernel attributes of a node that it may know.
pub(crate) fn tells_attributes(opcode: u32) -> bool {
    matches!(
        opcode,
        opcode::GETATTR
            | opcode::STATX
            | opcode::SETATTR
            | opcode::LOOKUP
            | opcode::LINK
            | opcode::CREATE
    )
}

/// The node whose attributes an answer [tells](tells_attributes). A kernel that changes a size
/// itself takes no other one before that is answered, so nothing may wait for one.
pub(crate) fn told_node(request: &Request<'_>, answer: &[u8]) -> Option<u64> {
    match request.header.opcode {
        opcode::GETATTR | opcode::STATX => Some(request.header.nodeid),
        opcode::SETATTR => {
            let wanted = request.arguments().take::<SetattrIn>().ok()?;
            (wanted.valid & setattr::SIZE == 0).then_some(request.header.nodeid)
        }
        other if tells_attributes(other) => {
            EntryOut::read_from_prefix(answer).ok().map(|(entry, _)| entry.nodeid)
        }
        _ => None,
    }
}

fn same_as(attr: &Attr) -> u64 {
    let times = [(attr.mtime, attr.mtime_nsec), (attr.ctime, attr.ctime_nsec)];
    same([attr.mode, attr.uid, attr.gid, attr.nlink], attr.size, times)
}

fn same(numbers: [u32; 4], size: u64, times: [(u64, u32); 2]) -> u64 {
    let mut hasher = DefaultHasher::new();
    let [mode, uid, gid, _] = numbers;
    match is_directory(mode) {
        true => (mode, uid, gid).hash(&mut hasher),
        false => (numbers, size, times).hash(&mut hasher),
    }
    hasher.finish()
}

fn is_directory(mode: u32) -> bool {
    mode & libc::S_IFMT == libc::S_IFDIR
}

fn shorten(seconds: &mut u64, nanoseconds: &mut u32, by: impl FnOnce(Duration) -> Duration) {
    let now = Duration::new(*seconds, *nanoseconds);
    if now.is_zero() {
        return;
    }
    let to = by(now).min(now);
    (*seconds, *nanoseconds) = (to.as_secs(), to.subsec_nanos());
}

fn opened(answer: &mut [u8], may_cache: impl FnOnce() -> bool) {
    if let Ok((open, _)) = OpenOut::read_from_prefix(&*answer) {
        // Each close is reported, because it releases locks.
        let open_flags = match open.open_flags & fopen::DIRECT_IO == 0 && may_cache() {
            true => open.open_flags & fopen::KEEP_CACHE,
            false => fopen::DIRECT_IO,
        };
        let open = OpenOut { open_flags, ..open };
        answer[..size_of::<OpenOut>()].copy_from_slice(open.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;
    use crate::abi::input::InHeader;

    /// Shortens an answer: names to 3 s, attributes of node 7 to 2.5 s and those of others to 0.
    fn limited(opcode: u32, answer: &[u8]) -> Vec<u8> {
        let mut header = InHeader::new_zeroed();
        (header.len, header.opcode, header.nodeid) = (size_of::<InHeader>() as u32, opcode, 7);
        let request = Request::parse(header.as_bytes()).unwrap();
        let mut answer = answer.to_vec();
        let attributes = |told: Delegated| match told.nodeid {
            7 => Duration::from_millis(2500),
            _ => Duration::ZERO,
        };
        limit(&request, &mut answer, |_| Duration::from_secs(3), attributes, |_| false);
        answer
    }

    #[test]
    fn no_time_is_longer_than_allowed() {
        let entry = EntryOut { nodeid: 7, entry_valid: 5, attr_valid: 6, ..EntryOut::default() };
        let open = OpenOut { fh: 3, open_flags: fopen::KEEP_CACHE | fopen::NOFLUSH, backing_id: 0 };
        let created = limited(opcode::CREATE, &[entry.as_bytes(), open.as_bytes()].concat());
        let (entry, rest) = EntryOut::read_from_prefix(&created).unwrap();
        assert_eq!((entry.nodeid, entry.entry_valid, entry.entry_valid_nsec), (7, 3, 0));
        assert_eq!((entry.attr_valid, entry.attr_valid_nsec), (2, 500_000_000));
        let open = OpenOut::read_from_bytes(rest).unwrap();
        assert_eq!((open.fh, open.open_flags), (3, fopen::DIRECT_IO));
        // Other nodes, and a time that is shorter already.
        let entry = EntryOut { nodeid: 8, entry_valid: 1, attr_valid: 6, ..EntryOut::default() };
        let found = limited(opcode::LOOKUP, entry.as_bytes());
        let entry = EntryOut::read_from_bytes(&found).unwrap();
        assert_eq!((entry.entry_valid, entry.attr_valid, entry.attr_valid_nsec), (1, 0, 0));
        let attributes = AttrOut { attr_valid: 9, ..AttrOut::default() };
        let expected = AttrOut { attr_valid: 2, attr_valid_nsec: 500_000_000, ..attributes };
        assert_eq!(limited(opcode::GETATTR, attributes.as_bytes()), expected.as_bytes());
        let attributes = StatxOut { attr_valid: 9, ..StatxOut::default() };
        let expected = StatxOut { attr_valid: 2, attr_valid_nsec: 500_000_000, ..attributes };
        assert_eq!(limited(opcode::STATX, attributes.as_bytes()), expected.as_bytes());
        // What the kernel must not keep stays so.
        assert_eq!(
            limited(opcode::GETATTR, AttrOut::default().as_bytes()),
            AttrOut::default().as_bytes()
        );
        // An answer that is too short, or of another kind, stays as it is.
        assert_eq!(limited(opcode::LOOKUP, &[1; 20]), [1; 20]);
        assert_eq!(limited(opcode::READ, &[1; 200]), [1; 200]);
    }

    #[test]
    fn names_of_a_directory_do_not_make_its_attributes_others() {
        let file = Attr { mode: libc::S_IFREG | 0o755, size: 1, ..Attr::default() };
        let directory = Attr { mode: libc::S_IFDIR | 0o755, ..file };
        for (attr, counts) in [(file, true), (directory, false)] {
            let differs = |other: Attr| same_as(&other) != same_as(&attr);
            assert!(differs(Attr { mode: attr.mode ^ 1, ..attr }));
            assert!(differs(Attr { uid: 1, ..attr }) && differs(Attr { gid: 1, ..attr }));
            assert_eq!(differs(Attr { nlink: 3, ..attr }), counts);
            assert_eq!(differs(Attr { size: 3, ..attr }), counts);
            assert_eq!(differs(Attr { mtime: 3, ..attr }), counts);
            assert_eq!(differs(Attr { ctime_nsec: 3, ..attr }), counts);
        }
    }

    #[test]
    fn the_node_whose_attributes_an_answer_tells() {
        let told = |opcode, body: &[u8], answer: &[u8]| {
            let mut header = InHeader::new_zeroed();
            header.len = (size_of::<InHeader>() + body.len()) as u32;
            (header.opcode, header.nodeid) = (opcode, 7);
            let bytes = [header.as_bytes(), body].concat();
            told_node(&Request::parse(&bytes).unwrap(), answer)
        };
        let entry = EntryOut { nodeid: 9, ..EntryOut::default() };
        for opcode in [opcode::LOOKUP, opcode::LINK, opcode::CREATE] {
            assert_eq!(told(opcode, &[], entry.as_bytes()), Some(9));
            assert_eq!(told(opcode, &[], &[]), None);
        }
        assert_eq!(told(opcode::GETATTR, &[], &[]), Some(7));
        assert_eq!(told(opcode::STATX, &[], &[]), Some(7));
        assert_eq!(told(opcode::READ, &[], entry.as_bytes()), None);
        for (valid, node) in [(setattr::MODE, Some(7)), (setattr::SIZE | setattr::MODE, None)] {
            let wanted = SetattrIn { valid, ..SetattrIn::new_zeroed() };
            assert_eq!(told(opcode::SETATTR, wanted.as_bytes(), &[]), node);
        }
    }

    #[test]
    fn the_file_that_an_answer_opens() {
        let with = |opcode, answer: &[u8]| {
            let mut header = InHeader::new_zeroed();
            (header.len, header.opcode, header.nodeid) = (size_of::<InHeader>() as u32, opcode, 7);
            let request = Request::parse(header.as_bytes()).unwrap();
            let before = opened_node(&request, answer);
            let mut answer = answer.to_vec();
            set_no_flush(&request, &mut answer);
            (before, opened_node(&request, &answer), answer)
        };
        let opened = |nodeid, no_flush| Some(OpenedNode { nodeid, handle: 3, no_flush });
        let entry = EntryOut { nodeid: 9, ..EntryOut::default() };
        let open = OpenOut { fh: 3, open_flags: fopen::DIRECT_IO, backing_id: 0 };
        let (before, after, answer) = with(opcode::OPEN, open.as_bytes());
        assert_eq!((before, after), (opened(7, false), opened(7, true)));
        let marked = OpenOut { open_flags: fopen::DIRECT_IO | fopen::NOFLUSH, ..open };
        assert_eq!(answer, marked.as_bytes());
        let made = [entry.as_bytes(), open.as_bytes()].concat();
        for opcode in [opcode::CREATE, opcode::TMPFILE] {
            let (before, after, answer) = with(opcode, &made);
            assert_eq!((before, after), (opened(9, false), opened(9, true)));
            assert_eq!(answer, [entry.as_bytes(), marked.as_bytes()].concat());
            // The kernel must not be told so.
            let kernel = limited(opcode, &answer);
            assert_eq!(kernel[size_of::<EntryOut>()..], *open.as_bytes());
        }
        // What is too short opens nothing, and other requests neither.
        for (opcode, answer) in [
            (opcode::CREATE, &made[..made.len() - 1]),
            (opcode::CREATE, &made[..7]),
            (opcode::OPEN, &[]),
            (opcode::LOOKUP, &made),
        ] {
            assert_eq!(with(opcode, answer), (None, None, answer.to_vec()));
        }
    }

    #[test]
    fn pages_are_allowed_only_where_nothing_forbids_them() {
        let mut header = InHeader::new_zeroed();
        let wanted = OpenIn { flags: 5, ..OpenIn::new_zeroed() };
        header.len = (size_of::<InHeader>() + size_of::<OpenIn>()) as u32;
        header.opcode = opcode::OPEN;
        let bytes = [header.as_bytes(), wanted.as_bytes()].concat();
        let request = Request::parse(&bytes).unwrap();
        let opened = |open_flags, allowed: Option<bool>| {
            let mut answer = OpenOut { fh: 3, open_flags, backing_id: 0 }.as_bytes().to_vec();
            let may_cache = |flags| {
                assert_eq!(flags, 5);
                allowed.expect("nothing is left to allow")
            };
            limit(&request, &mut answer, |valid| valid, |told| told.valid, may_cache);
            OpenOut::read_from_bytes(&answer).unwrap().open_flags
        };
        let usual = fopen::KEEP_CACHE | fopen::NOFLUSH;
        assert_eq!(opened(usual, Some(true)), fopen::KEEP_CACHE, "each close is reported");
        assert_eq!(opened(usual, Some(false)), fopen::DIRECT_IO);
        assert_eq!(opened(fopen::DIRECT_IO, None), fopen::DIRECT_IO);
    }
}
