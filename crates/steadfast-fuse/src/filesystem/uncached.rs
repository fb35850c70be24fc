//! Answers of a volume with several kernels: a kernel may keep nothing of them, because another one
//! may change what they say at any moment.

use zerocopy::{FromBytes, IntoBytes};

use crate::abi::flags::fopen;
use crate::abi::opcode;
use crate::abi::output::{AttrOut, EntryOut, OpenOut, StatxOut};

/// Makes an answer one of which the kernel keeps nothing: attributes and names are valid for no
/// time, and files are read and written without the kernel's pages.
pub(super) fn forbid(opcode: u32, answer: &mut [u8]) {
    match opcode {
        opcode::LOOKUP
        | opcode::SYMLINK
        | opcode::MKNOD
        | opcode::MKDIR
        | opcode::LINK
        | opcode::TMPFILE
        | opcode::CREATE => {
            if let Ok((entry, rest)) = EntryOut::read_from_prefix(&*answer) {
                let entry = EntryOut {
                    entry_valid: 0,
                    entry_valid_nsec: 0,
                    attr_valid: 0,
                    attr_valid_nsec: 0,
                    ..entry
                };
                let length = rest.len();
                let start = answer.len() - length;
                answer[..start].copy_from_slice(entry.as_bytes());
                opened(&mut answer[start..]);
            }
        }
        opcode::OPEN => opened(answer),
        opcode::GETATTR | opcode::SETATTR => {
            if let Ok((attributes, _)) = AttrOut::read_from_prefix(&*answer) {
                let attributes = AttrOut { attr_valid: 0, attr_valid_nsec: 0, ..attributes };
                answer[..size_of::<AttrOut>()].copy_from_slice(attributes.as_bytes());
            }
        }
        opcode::STATX => {
            if let Ok((attributes, _)) = StatxOut::read_from_prefix(&*answer) {
                let attributes = StatxOut { attr_valid: 0, attr_valid_nsec: 0, ..attributes };
                answer[..size_of::<StatxOut>()].copy_from_slice(attributes.as_bytes());
            }
        }
        _ => {}
    }
}

fn opened(answer: &mut [u8]) {
    if let Ok((open, _)) = OpenOut::read_from_prefix(&*answer) {
        // Each close is reported, because it releases locks.
        let open = OpenOut { open_flags: fopen::DIRECT_IO, ..open };
        answer[..size_of::<OpenOut>()].copy_from_slice(open.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_may_be_kept() {
        let entry = EntryOut { nodeid: 7, entry_valid: 5, attr_valid: 6, ..EntryOut::default() };
        let open = OpenOut { fh: 3, open_flags: fopen::KEEP_CACHE | fopen::NOFLUSH, backing_id: 0 };
        let mut created = [entry.as_bytes(), open.as_bytes()].concat();
        forbid(opcode::CREATE, &mut created);
        let (entry, rest) = EntryOut::read_from_prefix(&created).unwrap();
        assert_eq!((entry.nodeid, entry.entry_valid, entry.attr_valid), (7, 0, 0));
        let open = OpenOut::read_from_bytes(rest).unwrap();
        assert_eq!((open.fh, open.open_flags), (3, fopen::DIRECT_IO));
        let mut found = AttrOut { attr_valid: 9, ..AttrOut::default() }.as_bytes().to_vec();
        forbid(opcode::GETATTR, &mut found);
        assert_eq!(found, AttrOut::default().as_bytes());
        let mut found = StatxOut { attr_valid: 9, ..StatxOut::default() }.as_bytes().to_vec();
        forbid(opcode::STATX, &mut found);
        assert_eq!(found, StatxOut::default().as_bytes());
        // An answer that is too short, or of another kind, stays as it is.
        let mut short = vec![1; 20];
        forbid(opcode::LOOKUP, &mut short);
        forbid(opcode::READ, &mut short);
        assert_eq!(short, [1; 20]);
    }
}
