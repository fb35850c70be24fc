//! The names of a volume: label and uuid, changed in the superblock of a volume that is not open.
//!
//! Nodes, metaroots and log records carry the uuid of format, so that uuid stays. A new uuid has
//! its own field and identifies the volume from then on. So neither the log nor the state changes.
//!
//! One copy is good at every moment. If both are good, the second copy is written first, then
//! flushed, then the first copy is written. A power cut leaves the old names or the new ones, and
//! perhaps a second copy that differs. The next change, a scrub or a repair makes them equal.

use steadfast_media::Medium;

use crate::error::{Error, Result};
use crate::format::{FEATURES_READ_ONLY, STRUCTURE_SIZE, Superblock};
use crate::platform::Platform;

/// The changes; a field that is `None` keeps its value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tune {
    /// At most 32 bytes without NUL; empty: no label.
    pub label: Option<alloc::string::String>,
    /// Not zero.
    pub uuid: Option<[u8; 16]>,
}

/// Changes names of the volume on `medium`, which must not be open. Durable when it returns.
///
/// # Errors
/// `InvalidArgument` (label or uuid), `ReadOnlyFeatures`, those of reading the superblock, and the
/// medium's error. `Unsupported`: the medium tears the superblock, and its second copy would not be
/// found.
pub fn tune<M: Medium, P: Platform>(medium: &M, platform: &P, change: &Tune) -> Result<()> {
    let (old, _) = Superblock::read(medium, platform)?;
    let unknown = old.features_read_only & !FEATURES_READ_ONLY;
    if unknown != 0 {
        return Err(Error::ReadOnlyFeatures(unknown));
    }
    let mut new = old.clone();
    if let Some(label) = &change.label {
        new.label = [0; 32];
        let room = new.label.get_mut(..label.len()).filter(|_| !label.contains('\0'));
        room.ok_or(Error::InvalidArgument("a label has at most 32 bytes, and no NUL"))?
            .copy_from_slice(label.as_bytes());
    }
    if let Some(uuid) = change.uuid {
        if uuid == [0; 16] {
            return Err(Error::InvalidArgument("a uuid of zeros means none"));
        }
        new.given_uuid = if uuid == new.uuid { [0; 16] } else { uuid };
    }
    let first_is_good = old.verify_copy(medium, platform, 0).is_ok();
    let second = old.second_offset();
    let size = medium.geometry().size;
    let whole = medium.geometry().atomic_unit as usize >= STRUCTURE_SIZE;
    if !whole && size - size % old.cell_size() != old.byte_size() {
        return Err(Error::Unsupported(
            "this change on a medium whose atomic unit is below 512 bytes",
        ));
    }
    for offset in if first_is_good { [second, 0] } else { [0, second] } {
        new.write_copy(medium, platform, offset)?;
        medium.flush()?;
    }
    new.verify_copy(medium, platform, 0)?;
    new.verify_copy(medium, platform, second)
}
