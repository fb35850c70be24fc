//! Limits of the kernel's page cache for one mount: its directory below `/sys/class/bdi`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::log::log_warning;

/// How the kernel limits dirty pages and read-ahead of a mount. Changing that takes root; without
/// it the kernel's own limits stay, a hundredth of the memory that may be dirty.
#[derive(Debug)]
pub(crate) struct CacheLimits {
    directory: PathBuf,
    /// Cleared where a change is refused.
    adjustable: AtomicBool,
}

impl CacheLimits {
    pub(super) fn new((major, minor): (u32, u32)) -> CacheLimits {
        let directory = PathBuf::from(format!("/sys/class/bdi/{major}:{minor}"));
        CacheLimits { directory, adjustable: AtomicBool::new(true) }
    }

    /// Takes the limit of dirty pages that FUSE mounts start with away, and lets the kernel read
    /// ahead further. Without that buffered writes are several times slower and nothing else
    /// changes.
    pub(crate) fn raise(&self) {
        self.lift_dirty_max();
        self.set("read_ahead_kb", "1024");
    }

    /// Dirty pages are limited as those of any other file system.
    pub(crate) fn lift_dirty_max(&self) -> bool {
        // Both in any case: before Linux 6.2 there is no strict_limit to set.
        self.set("strict_limit", "0") & self.set("max_ratio", "100")
    }

    /// Limits the bytes of dirty pages of this mount, whatever the rest of the system has. Writers
    /// that go on are slowed down until pages are written back, so there are seldom more than half
    /// as many. Whether it could be done (Linux 6.2, root).
    pub(crate) fn set_dirty_max(&self, bytes: u64) -> bool {
        // The kernel keeps a share of what may be dirty in the whole system now, and refuses more
        // than all of it.
        self.set("max_ratio", "100");
        let most = self.dirty_max().map_or(bytes, |whole| whole / 2);
        self.set("max_bytes", &bytes.min(most).to_string()) && self.set("strict_limit", "1")
    }

    /// The most bytes of dirty pages that the mount may have as things are; `None` where the kernel
    /// does not say.
    pub(crate) fn dirty_max(&self) -> Option<u64> {
        number(&self.directory.join("max_bytes")).or_else(|| self.dirty_max_by_ratio())
    }

    /// The same before Linux 6.2: a part of what may be dirty in the whole system, which is a part
    /// of the memory.
    fn dirty_max_by_ratio(&self) -> Option<u64> {
        let memory = std::fs::read_to_string("/proc/meminfo").ok()?;
        let total = memory
            .lines()
            .find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next());
        let kib: u64 = total?.parse().ok()?;
        let of_memory = number(Path::new("/proc/sys/vm/dirty_ratio"))?;
        let of_that = number(&self.directory.join("max_ratio"))?;
        Some(kib.saturating_mul(1024) / 100 * of_memory / 100 * of_that)
    }

    /// Whether the setting has this value now.
    fn set(&self, name: &str, value: &str) -> bool {
        if !self.adjustable.load(Ordering::Relaxed) {
            return false;
        }
        match std::fs::write(self.directory.join(name), value) {
            Ok(()) => return true,
            // Some settings are younger (Linux 6.2) than what we run on.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
                ) =>
            {
                self.adjustable.store(false, Ordering::Relaxed);
            }
            Err(error) => log_warning!("cannot set {name} of the mount's cache: {error}"),
        }
        false
    }
}

fn number(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}
