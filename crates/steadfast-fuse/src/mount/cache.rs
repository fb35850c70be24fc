//! Limits of the kernel's page cache for one mount: its directory below `/sys/class/bdi`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::log::log_warning;

/// The kernel's limits of dirty pages and read-ahead for a mount. Only root can change them.
/// Otherwise the kernel's limit remains: a hundredth of the memory that may be dirty.
#[derive(Debug)]
pub(crate) struct CacheLimits {
    directory: PathBuf,
    /// Cleared when the kernel refuses a change.
    adjustable: AtomicBool,
}

impl CacheLimits {
    pub(super) fn new((major, minor): (u32, u32)) -> CacheLimits {
        let directory = PathBuf::from(format!("/sys/class/bdi/{major}:{minor}"));
        CacheLimits { directory, adjustable: AtomicBool::new(true) }
    }

    /// Removes the limit of dirty pages that FUSE mounts start with, and increases read-ahead.
    /// Without this, buffered writes are several times slower; nothing else changes.
    pub(crate) fn raise(&self) {
        self.lift_dirty_max();
        self.raise_read_ahead();
    }

    /// Increases read-ahead: a large read takes fewer requests.
    pub(crate) fn raise_read_ahead(&self) {
        self.set("read_ahead_kb", "1024");
    }

    /// Limits dirty pages like those of any other file system.
    pub(crate) fn lift_dirty_max(&self) -> bool {
        self.set("min_ratio", "0");
        // Set both in any case: before Linux 6.2 `strict_limit` does not exist.
        self.set("strict_limit", "0") & self.set("max_ratio", "100")
    }

    /// Limits the bytes of dirty pages of this mount, regardless of the rest of the system.
    /// Continuing writers are slowed down until pages are written back, so usually at most half of
    /// the limit is dirty. Returns whether it worked (needs Linux 6.2 and root).
    pub(crate) fn set_dirty_max(&self, bytes: u64) -> bool {
        // The kernel stores the limit as a share of the dirty pages currently allowed system-wide,
        // and refuses more than all of them.
        self.set("max_ratio", "100");
        let most = self.dirty_max().map_or(bytes, |whole| whole / 2);
        // The lower limit of before may be above the new upper one, which the kernel refuses.
        self.set("min_ratio", "0");
        let limited =
            self.set("max_bytes", &bytes.min(most).to_string()) && self.set("strict_limit", "1");
        if limited {
            self.keep_share();
        }
        limited
    }

    /// Keeps the whole limit for this mount. With `strict_limit` the kernel multiplies the limit by
    /// the device's share of all recent write-back, so writes to other devices slow this mount
    /// down. A lower limit that equals the upper one is not multiplied.
    fn keep_share(&self) {
        if let Ok(share) = std::fs::read_to_string(self.directory.join("max_ratio_fine")) {
            // The kernel refuses where the lower limits of all devices would be more than the
            // whole. Then the mount is slower, but its dirty pages stay bounded.
            let _ = std::fs::write(self.directory.join("min_ratio_fine"), share.trim());
        }
    }

    /// The largest number of dirty bytes that the mount may have at present; `None` if the kernel
    /// does not report it.
    pub(crate) fn dirty_max(&self) -> Option<u64> {
        number(&self.directory.join("max_bytes")).or_else(|| self.dirty_max_by_ratio())
    }

    /// The same before Linux 6.2: a share of the dirty pages allowed system-wide, which are a share
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

    /// Sets a value. Returns whether the setting has this value now.
    fn set(&self, name: &str, value: &str) -> bool {
        if !self.adjustable.load(Ordering::Relaxed) {
            return false;
        }
        match std::fs::write(self.directory.join(name), value) {
            Ok(()) => return true,
            // Some settings exist only from Linux 6.2.
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
