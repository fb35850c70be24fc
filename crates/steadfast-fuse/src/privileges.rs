//! What a daemon of root keeps of root's capabilities.
//!
//! The daemon reads what strangers have written: requests, images, answers of servers. Of what the capabilities allow it needs: unmounting,
//! the image and sockets wherever they are, files of others whose pages the helper process writes back, space and memory
//! that the host keeps for root, low ports. Everything else it gives away for good, also for programs that it might execute.
//!
//! Capabilities belong to a thread, and new threads inherit them: to be called before there are any.
#![allow(unsafe_code)]

use std::io;

/// Numbers of linux/capability.h.
const DAC_OVERRIDE: u32 = 1;
const DAC_READ_SEARCH: u32 = 2;
const NET_BIND_SERVICE: u32 = 10;
const IPC_LOCK: u32 = 14;
const SYS_ADMIN: u32 = 21;
const SYS_RESOURCE: u32 = 24;

const NEEDED: [u32; 6] = [DAC_OVERRIDE, DAC_READ_SEARCH, NET_BIND_SERVICE, IPC_LOCK, SYS_ADMIN, SYS_RESOURCE];
/// Version 3: two words for each set.
const VERSION: u32 = 0x2008_0522;

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Sets {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Gives away the capabilities of this thread that a mount does not need. Nothing happens where it has none.
///
/// # Errors
/// The system does not say what there is, or does not take it back.
pub fn keep_needed_capabilities() -> io::Result<()> {
    let mut header = Header { version: VERSION, pid: 0 };
    let mut sets = [Sets::default(); 2];
    // SAFETY: both point to live structures of the layout that the version asks for.
    if unsafe { libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    for capability in (0..64).filter(|capability| !NEEDED.contains(capability)) {
        // Numbers that this kernel does not have, and threads that may not: an executed program gets no more than it would have.
        // SAFETY: takes integers.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(capability), 0, 0, 0) };
    }
    // SAFETY: takes integers.
    unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) };
    for (word, set) in (0..).zip(&mut sets) {
        let needed = NEEDED.iter().filter(|capability| **capability / 32 == word);
        let needed = needed.fold(0, |bits, capability| bits | 1 << (capability % 32));
        set.permitted &= needed;
        set.effective &= needed;
        set.inheritable = 0;
    }
    // SAFETY: as above; the kernel only reads.
    if unsafe { libc::syscall(libc::SYS_capset, &raw mut header, sets.as_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
