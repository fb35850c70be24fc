//! Processors: the number of queues that the kernel expects, and binding threads to a processor.

/// Number of queues that the kernel expects: the number of possible processors.
pub(super) fn possible() -> Option<u16> {
    count(&std::fs::read_to_string("/sys/devices/system/cpu/possible").ok()?)
}

/// Number of processors in a list such as `0-3,8`.
fn count(list: &str) -> Option<u16> {
    list.trim().split(',').try_fold(0u16, |count, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<u16>().ok()?, last.parse::<u16>().ok()?);
        count.checked_add(last.checked_sub(first)?)?.checked_add(1)
    })
}

/// Binds the calling thread to a processor. If the process may not use that processor or it does
/// not exist, the thread keeps its allowed processors.
#[allow(unsafe_code)]
pub(super) fn stay_on(processor: u16) {
    let processor = usize::from(processor);
    if processor >= libc::CPU_SETSIZE as usize {
        return;
    }
    // SAFETY: a set is plain data of the size that the calls are told. The number is below the
    // number of bits in the set.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) != 0
            || !libc::CPU_ISSET(processor, &set)
        {
            return;
        }
        libc::CPU_ZERO(&mut set);
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_lists_of_processors() {
        assert_eq!(count("0\n"), Some(1));
        assert_eq!(count("0-3,8,10-11\n"), Some(7));
        for nonsense in ["", "a", "3-0", "0-65535", "-"] {
            assert_eq!(count(nonsense), None, "{nonsense}");
        }
    }
}
