//! Threads that the kernel may not make wait for themselves.

/// Keeps memory reclaim from waiting for this thread's own writes, and keeps dirty-page throttling
/// from slowing the thread down. Needs a capability; without it only extreme memory pressure is a
/// risk.
#[allow(unsafe_code)]
pub(crate) fn set_io_flusher() {
    const PR_SET_IO_FLUSHER: libc::c_int = 57;
    // SAFETY: only changes a flag of the calling thread.
    unsafe {
        libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);
    }
}
