//! The names of a volume: label and uuid, changed in the superblock of a volume that is not open.
//!
//! Nodes, metaroots and log records carry the uuid of format, so that uuid stays. A new uuid has
//! its own field and identifies the volume from then on. So neither the log nor the state changes.
//!
//! A power cut leaves the old names or the new ones, and perhaps a second copy that differs. The
//! next change, a scrub or a repair makes them equal.
//! [`Volume::set_label`](crate::Volume::set_label) changes the label of a volume that is open.

use steadfast_media::Medium;

use crate::error::{Error, Result};
use crate::format::{FEATURES_READ_ONLY, Superblock};
use crate::options::OpenOptions;
use crate::platform::Platform;
use crate::volume::Volume;

/// The changes; a field that is `None` keeps its value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tune {
    /// At most 32 bytes without NUL; empty: no label.
    pub label: Option<alloc::string::String>,
    /// Not zero.
    pub uuid: Option<[u8; 16]>,
    /// Also if the newest state is damaged, as when [opening](crate::OpenOptions::recover).
    pub recover: bool,
}

/// Changes names of the volume on `medium`, which must not be open. Durable when it returns. The
/// medium may be a reference, as for [`check`](crate::check::check).
///
/// # Errors
/// `NewerStateLost`, unless `recover` is set: each write makes it harder to rescue that state.
/// `InvalidArgument` (label or uuid), `ReadOnlyFeatures`, those of reading the superblock, and the
/// medium's error. `Unsupported`: the medium tears the superblock, and its second copy would not be
/// found.
pub fn tune<M, P>(medium: M, platform: P, change: &Tune) -> Result<()>
where
    M: Medium + Clone,
    P: Platform + Clone,
{
    let (old, damaged) = Superblock::read(&medium, &platform)?;
    let unknown = old.features_read_only & !FEATURES_READ_ONLY;
    if unknown != 0 {
        return Err(Error::ReadOnlyFeatures(unknown));
    }
    if !change.recover {
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        // What else is damaged has nothing to do with the names.
        let found = (old.clone(), damaged);
        let opened = Volume::open_found(medium.clone(), options, platform.clone(), found);
        if let Some(lost) = opened.ok().and_then(|volume| volume.newer_state_lost()) {
            return Err(Error::NewerStateLost(lost));
        }
    }
    let mut new = old.clone();
    if let Some(label) = &change.label {
        new.set_label(label)?;
    }
    if let Some(uuid) = change.uuid {
        if uuid == [0; 16] {
            return Err(Error::InvalidArgument("a uuid of zeros means none"));
        }
        new.given_uuid = if uuid == new.uuid { [0; 16] } else { uuid };
    }
    new.replace(&old, &medium, &platform)
}
