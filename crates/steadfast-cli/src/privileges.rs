//! The capabilities of root's daemon.
//!
//! A daemon decodes images that may come from anywhere. So it keeps only what it uses of root's
//! rights, before it opens one. Threads inherit the capabilities of the thread that starts them, so
//! this happens before the first one starts.

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, remove_capability_from_bounding_set,
    set_capabilities,
};

use crate::logger::{Priority, message};

/// What a daemon uses:
/// - `SYS_ADMIN`: mount(2), umount(2), io_uring as a transport;
/// - `DAC_OVERRIDE`, `DAC_READ_SEARCH`: images and logs of any owner, and files of any owner on the
///   mount whose dirty pages it fetches;
/// - `SYS_RESOURCE`: memory for writing back while the system has none left (`PR_SET_IO_FLUSHER`);
/// - `IPC_LOCK`: memory of io_uring.
const KEPT: CapabilitySet = CapabilitySet::SYS_ADMIN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::SYS_RESOURCE)
    .union(CapabilitySet::IPC_LOCK);

/// Gives up every capability that a daemon does not use. With `for_children`, programs that it
/// starts as root get them back: the fencing command of a cluster may need any.
pub fn give_up(for_children: bool) {
    let Ok(now) = capabilities(None) else { return };
    if now.permitted.is_empty() {
        return;
    }
    if !for_children {
        // A kernel that does not know a capability, or a container, refuses; there is none to drop.
        for capability in CapabilitySet::from_bits_retain(u64::MAX >> 23).difference(KEPT).iter() {
            let _ = remove_capability_from_bounding_set(capability);
        }
    }
    let kept = CapabilitySets {
        effective: now.effective.intersection(KEPT),
        permitted: now.permitted.intersection(KEPT),
        inheritable: now.inheritable.intersection(KEPT),
    };
    if let Err(errno) = set_capabilities(None, kept) {
        message(Priority::Warning, format_args!("cannot give up capabilities: {errno}"));
    }
}
