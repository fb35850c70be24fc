//! A volume opened in this process, from an image file or block device that is not mounted.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use steadfast::{OpenOptions, TransactionMask, VolumeInfo};

use crate::failure::{Failure, Outcome};
use crate::host;
use crate::medium::HostVolume;

/// Memory for cached nodes while a command works on an image, bytes.
pub const CACHE_SIZE: usize = 32 << 20;

/// What a command does with an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Only reads; several readers at once are allowed.
    Read,
    /// Makes changes; no other process may have the image open.
    Write,
}

/// An open volume with the path that it came from.
pub struct Image {
    /// The volume.
    pub volume: HostVolume,
    path: PathBuf,
}

impl Image {
    /// Opens the volume on `path`. Warns on standard error if a damaged superblock copy was
    /// skipped.
    ///
    /// # Errors
    /// Everything that can be wrong with an image, each with its own message.
    pub fn open(path: &Path, access: Access) -> Outcome<Image> {
        let read_only = access == Access::Read;
        let recover = recovers();
        let options = OpenOptions {
            read_only,
            cache_size: CACHE_SIZE,
            access_times: false,
            recover,
            ..OpenOptions::default()
        };
        let volume = host::open_volume(path, host::Way::Cached, options)?;
        if let Some(warning) = superblock_warning(&volume.info(), path) {
            eprintln!("steadfast: {warning}");
        }
        if let Some(warning) = newer_state_warning(&volume, path) {
            eprintln!("steadfast: {warning}");
        }
        Ok(Image { volume, path: path.to_owned() })
    }

    /// A failure of the core at `path` on this volume.
    pub fn failure(&self, error: steadfast::Error, path: &[u8]) -> Failure {
        Failure::core(error, self.place(path))
    }

    /// A path on this volume as messages show it: `disk.img:/etc/hosts`.
    pub fn place(&self, path: &[u8]) -> impl Display + use<> {
        let slash = if path.starts_with(b"/") { "" } else { "/" };
        format!("{}:{slash}{}", self.path.display(), String::from_utf8_lossy(path))
    }

    /// Runs a change that becomes durable as a whole or not at all. Automatic transaction points
    /// are off, and one point follows at the end. An error rolls everything back.
    ///
    /// # Errors
    /// What `change` returns, or the failure to make the change durable.
    pub fn atomically<T>(self, change: impl FnOnce(&Image) -> Outcome<T>) -> Outcome<T> {
        let mask = self.volume.mask();
        let at_image = |error| Failure::core(error, self.path.display());
        self.volume.set_mask(TransactionMask::MANUAL).map_err(at_image)?;
        let result = change(&self);
        let result = match result {
            Ok(value) => self
                .volume
                .set_mask(mask)
                .and_then(|()| self.volume.transact())
                .map(|()| value)
                .map_err(at_image),
            Err(failure) => {
                // The volume on the medium is still at the point at which it was opened; the rest
                // is only cleanup.
                let _ = self.volume.rollback().and_then(|()| self.volume.set_mask(mask));
                Err(failure)
            }
        };
        self.close().and(result)
    }

    /// Closes the volume. Changes are durable afterwards if the mask has `unmount`.
    ///
    /// # Errors
    /// The last transaction point could not be made durable.
    pub fn close(self) -> Outcome {
        self.volume.close().map_err(|error| Failure::core(error, self.path.display()))
    }
}

/// The warning for a damaged superblock copy.
pub fn superblock_warning(info: &VolumeInfo, path: &Path) -> Option<String> {
    info.superblock_damaged.then(|| {
        format!(
            "warning: one superblock copy is damaged: {}: the other one was used; save what matters and run 'steadfast check'",
            path.display()
        )
    })
}

/// The warning for a volume that was opened in an older state than its newest one.
pub fn newer_state_warning(volume: &HostVolume, path: &Path) -> Option<String> {
    let what = volume.newer_state_lost()?;
    let path = path.display();
    Some(match volume.info().read_only {
        true => format!("warning: {what}: {path}: this is an older state; run 'steadfast check'"),
        false => format!(
            "warning: {what}: {path}: given up as asked, the volume goes on in an older state"
        ),
    })
}

/// Whether the command line requests an older state where the newest one is damaged.
static RECOVER: AtomicBool = AtomicBool::new(false);

/// From now on, images are opened for writing in an older state where the newest one is damaged.
pub fn recover_from_now_on() {
    RECOVER.store(true, Ordering::Relaxed);
}

/// See [`recover_from_now_on`].
pub fn recovers() -> bool {
    RECOVER.load(Ordering::Relaxed)
}
