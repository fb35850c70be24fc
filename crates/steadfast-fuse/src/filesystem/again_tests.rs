//! A takeover in one process: what a node keeps of an owner goes to the next one.

use std::sync::{Arc, mpsc};

use steadfast::volume::{KeptDeltas, Reached};
use steadfast::{FormatOptions, OpenOptions, Volume};
use steadfast_host::HostPlatform;
use steadfast_media::MemoryMedium;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::*;
use crate::abi::ROOT_ID;
use crate::abi::input::{InHeader, LinkIn, MkdirIn, RenameIn, SetattrIn, WriteIn};
use crate::abi::output::{AttrOut, OpenOut};
use crate::executing::{Execution, batch};
use crate::filesystem::Kernel;
use crate::filesystem::kernels::Kernels;
use crate::init::Agreement;
use crate::metrics::Metrics;
use crate::open::Handle;
use crate::service::{Return, Service};

type Owner = Arc<Filesystem<Arc<MemoryMedium>, HostPlatform>>;

const TAG: u16 = 5;

/// An owner of the volume, as the kernel of another node sees it.
fn owner(medium: &Arc<MemoryMedium>, kept: &[KeptDeltas]) -> (Owner, Vec<Reached>) {
    let (platform, options) = (HostPlatform::new(), OpenOptions::default());
    let opened = Volume::open_after(Arc::clone(medium), options, platform, kept);
    let (mut volume, reached) = opened.unwrap();
    volume.observe_batches(Box::new(batch));
    let (volume, metrics) = (Arc::new(volume), Arc::new(Metrics::shared(1, 1)));
    let kernels = Kernels::new(&volume, true, None, &metrics, TAG);
    let agreement = Agreement::of_peer(44, 0);
    let kernel = Kernel { id: 1, device: None, agreement, owner: 0, tag: TAG };
    let (jobs, _) = mpsc::channel();
    let filesystem = Filesystem::new(volume, Arc::clone(&kernels), kernel, jobs, metrics);
    (Arc::new(filesystem), reached)
}

fn bytes(opcode: u32, nodeid: u64, body: &[&[u8]]) -> Vec<u8> {
    let body = body.concat();
    let len = (size_of::<InHeader>() + body.len()) as u32;
    let (unique, uid, gid, pid, extensions) = (1, 0, 0, 1, 0);
    let header = InHeader { len, opcode, unique, nodeid, uid, gid, pid, extensions };
    [header.as_bytes(), &body].concat()
}

fn back() -> Result<Return, Errno> {
    Err(Errno(libc::EAGAIN))
}

fn serve(owner: &Owner, request: &[u8]) -> Result<Vec<u8>, Errno> {
    let mut memory = vec![0; 4096];
    let mut out = AnswerBuffer::new(&mut memory);
    owner.serve(&back, &Request::parse(request).unwrap(), &mut out)?;
    Ok(out.filled().to_vec())
}

fn again(owner: &Owner, request: &[u8], ending: Ending) -> Result<Vec<u8>, Errno> {
    let mut memory = vec![0; 4096];
    let mut out = AnswerBuffer::new(&mut memory);
    owner.answer_again(&Request::parse(request).unwrap(), ending, &mut out)?;
    Ok(out.filled().to_vec())
}

fn nodeid(answer: &[u8]) -> u64 {
    EntryOut::read_from_prefix(answer).unwrap().0.nodeid
}

fn size(answer: &[u8]) -> u64 {
    AttrOut::read_from_prefix(answer).unwrap().0.attr.size
}

/// Everything is asked of one owner, which then dies, and asked again of the next one.
#[test]
fn the_next_owner_answers_what_is_done_without_doing_it_again() {
    let medium = Arc::new(MemoryMedium::new(8 << 20, 512).unwrap());
    let platform = HostPlatform::new();
    Volume::<Arc<MemoryMedium>, HostPlatform>::format(
        &medium,
        &FormatOptions::default(),
        &platform,
    )
    .unwrap();
    let (first, _) = owner(&medium, &[]);
    let flags = (libc::O_RDWR | libc::O_CREAT | libc::O_EXCL) as u32;
    let create = CreateIn { flags, mode: libc::S_IFREG | 0o644, umask: 0, open_flags: 0 };
    let made = serve(&first, &bytes(opcode::CREATE, ROOT_ID, &[create.as_bytes(), b"old\0"]));
    let old = nodeid(&made.unwrap());
    let write = WriteIn {
        fh: Handle::new(libc::O_RDWR as u32).numbered(1).0,
        offset: 100,
        size: 7,
        write_flags: 0,
        lock_owner: 0,
        flags: 0,
        padding: 0,
    };
    let cut = SetattrIn { valid: 1 << 3, size: 50, ..SetattrIn::new_zeroed() };
    let mkdir = MkdirIn { mode: 0o755, umask: 0 };
    let link = LinkIn { oldnodeid: old };
    let rename = RenameIn { newdir: ROOT_ID };
    let empties = OpenIn { flags: (libc::O_WRONLY | libc::O_TRUNC) as u32, open_flags: 0 };
    let asked = [
        bytes(opcode::WRITE, old, &[write.as_bytes(), b"written"]),
        bytes(opcode::SETATTR, old, &[cut.as_bytes()]),
        bytes(opcode::CREATE, ROOT_ID, &[create.as_bytes(), b"new\0"]),
        bytes(opcode::MKDIR, ROOT_ID, &[mkdir.as_bytes(), b"directory\0"]),
        bytes(opcode::SYMLINK, ROOT_ID, &[b"symlink\0", b"target\0"]),
        bytes(opcode::LINK, ROOT_ID, &[link.as_bytes(), b"link\0"]),
        bytes(opcode::UNLINK, ROOT_ID, &[b"link\0"]),
        bytes(opcode::RENAME, ROOT_ID, &[rename.as_bytes(), b"old\0", b"moved\0"]),
        bytes(opcode::OPEN, old, &[empties.as_bytes()]),
        // This one fails, and changes nothing.
        bytes(opcode::RMDIR, ROOT_ID, &[b"none\0"]),
    ];
    let mut answers = Vec::new();
    let mut endings = Vec::new();
    let mut kept = KeptDeltas::default();
    for request in &asked {
        let execution = Arc::new(Execution::default());
        answers.push(execution.during(|| serve(&first, request)));
        let sequence = first.volume.progress().0;
        kept.keep(first.volume.delta(kept.sequence).unwrap().unwrap()).unwrap();
        endings.push(execution.in_state(sequence));
    }
    assert_eq!(answers[9], Err(Errno(libc::ENOENT)));
    assert_eq!(endings.pop(), Some(None), "it is executed again");
    drop(first);

    let (next, reached) = owner(&medium, &[kept]);
    assert_eq!(reached, [Reached::Same]);
    let before = next.volume.progress();
    let mut told = Vec::new();
    for (request, ending) in asked.iter().zip(&endings) {
        told.push(again(&next, request, ending.unwrap().unwrap()).unwrap());
    }
    assert_eq!(next.volume.progress(), before, "nothing has changed");
    let answers: Vec<_> = answers.into_iter().take(9).map(Result::unwrap).collect();
    assert_eq!(told[0], answers[0], "as many bytes are written");
    assert_eq!(size(&told[1]), 0, "the attributes of now");
    for number in 2..6 {
        assert_eq!(nodeid(&told[number]), nodeid(&answers[number]));
    }
    for number in [6, 7] {
        assert_eq!((&told[number][..], &answers[number][..]), (&[][..], &[][..]));
    }
    for (number, entry) in [(2, size_of::<EntryOut>()), (8, 0)] {
        let opened = OpenOut::read_from_bytes(&told[number][entry..]).unwrap();
        let earlier = OpenOut::read_from_bytes(&answers[number][entry..]).unwrap();
        assert_eq!(Handle(opened.fh).is_writable(), Handle(earlier.fh).is_writable());
        assert_eq!(opened.open_flags, earlier.open_flags);
    }
    // A second execution of each of them would have failed, or changed something.
    assert_eq!(serve(&next, &asked[3]), Err(Errno(libc::EEXIST)));
    assert_eq!(serve(&next, &asked[6]), Err(Errno(libc::ENOENT)));
    assert_eq!(serve(&next, &asked[7]), Err(Errno(libc::ENOENT)));
    let refused = Ending { error: libc::ENOTEMPTY, detail: 0 };
    assert_eq!(again(&next, &asked[9], refused), Err(Errno(libc::ENOTEMPTY)));
}
