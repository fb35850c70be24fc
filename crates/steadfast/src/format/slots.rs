//! The two metaroot slots as found at opening: the newest metaroot, whether a newer one existed,
//! and the remains of power cuts to repair.

use steadfast_media::Medium;

use crate::error::{Error, Result};
use crate::format::metaroot::{Metaroot, SlotCopy, read_size};
use crate::format::{STRUCTURE_SIZE, Superblock};
use crate::memory::{self, Boxed};
use crate::platform::Platform;
use crate::sabotage::{Sabotage, planted};

/// Value of erased bytes of metaroots and of the log; no part of a metaroot looks like it, and no
/// record begins with it. It is not zero, so that copies of an image without its zeros have it.
pub const ERASED: u8 = 0xff;

/// All four copies.
#[derive(Debug)]
pub struct Slots {
    copies: [[SlotCopy; 2]; 2],
    newest: Metaroot,
}

impl Slots {
    /// Reads the slots.
    ///
    /// # Errors
    /// `NoMetaroot`, or the medium's error if neither copy of a slot can be read. The newest state
    /// may be there, and an older one must not be taken for it. But permanently unreadable copies
    /// cause no such error. A power cut leaves such copies on flash, or on a disk whose checksums
    /// no longer match.
    pub fn read(
        medium: &impl Medium,
        superblock: &Superblock,
        platform: &impl Platform,
    ) -> Result<Boxed<Slots>> {
        let mut buffer = memory::zeroed(read_size(medium))?;
        let mut copies = [[SlotCopy::Invalid; 2]; 2];
        let mut newest: Option<Metaroot> = None;
        let mut unreadable = None;
        for slot in 0..2_u64 {
            let mut readable = 0;
            let mut failure = None;
            // A power cut can leave the two copies of a slot one write apart, so both are read.
            for (copy, offset) in
                copies[slot as usize].iter_mut().zip(superblock.metaroot_offsets(slot))
            {
                if let Err(error) = medium.read(offset, &mut buffer) {
                    failure = Some(Error::from(error));
                    continue;
                }
                readable += 1;
                let found = Metaroot::decode(&buffer, superblock, platform);
                let of_slot = |found: &Metaroot| {
                    found.generation.0 % 2 == slot || planted(Sabotage::OneMetarootSlot)
                };
                *copy = match found.filter(of_slot) {
                    Some(found) => {
                        if newest.is_none_or(|known| known.generation < found.generation) {
                            newest = Some(found);
                        }
                        SlotCopy::Valid(found)
                    }
                    None => SlotCopy::without_metaroot(&buffer[..STRUCTURE_SIZE]),
                };
            }
            match failure.filter(|_| readable == 0) {
                Some(error) if error.is_unreadable() => unreadable = Some(error),
                Some(error) => return Err(error),
                None => {}
            }
        }
        let newest = newest.ok_or(unreadable.unwrap_or(Error::NoMetaroot))?;
        Boxed::new(|| Slots { copies, newest })
    }

    /// The newest valid metaroot.
    pub fn newest(&self) -> &Metaroot {
        &self.newest
    }

    /// Whether both copies of the other slot hold something, and neither is a metaroot. A copy is
    /// written only when the other is durable, and each opening [repairs](Self::mend) bad ones. So
    /// power cuts leave at most one bad copy.
    pub fn newer_is_damaged(&self) -> bool {
        let other = (self.newest.generation.0 + 1) % 2;
        self.copies[other as usize] == [SlotCopy::Invalid; 2]
    }

    /// Repairs what power cuts have left. The copies of the newest metaroot are made equal. Invalid
    /// copies of the other slot are erased, so that units of a torn metaroot cannot complete the
    /// next one of the same generation. Only bad copies are written, so a power cut during the
    /// repair spoils no good one.
    ///
    /// # Errors
    /// The medium's; `OutOfMemory`.
    #[inline(never)]
    pub fn mend(
        &self,
        medium: &impl Medium,
        superblock: &Superblock,
        platform: &impl Platform,
    ) -> Result<()> {
        let mut mended = false;
        let own = if planted(Sabotage::OneMetarootSlot) { 0 } else { self.newest.generation.0 % 2 };
        for slot in 0..2 {
            for (copy, offset) in
                self.copies[slot as usize].iter().zip(superblock.metaroot_offsets(slot))
            {
                if slot == own && *copy != SlotCopy::Valid(self.newest) {
                    self.newest.write_copy(medium, superblock, platform, offset)?;
                } else if slot != own && *copy == SlotCopy::Invalid {
                    medium
                        .write(offset, &memory::filled(ERASED, superblock.cell_size() as usize)?)?;
                } else {
                    continue;
                }
                mended = true;
            }
        }
        if mended { Ok(medium.flush()?) } else { Ok(()) }
    }
}

impl Metaroot {
    /// Reads the newest valid metaroot.
    ///
    /// # Errors
    /// `NoMetaroot`, or the medium's error if neither copy of a slot can be read. The newest state
    /// may be there, and an older one must not be taken for it. But permanently unreadable copies
    /// cause no such error. A power cut leaves such copies on flash, or on a disk whose checksums
    /// no longer match.
    // Its variables must not stay on the stack of the caller.
    #[inline(never)]
    pub fn read_newest(
        medium: &impl Medium,
        superblock: &Superblock,
        platform: &impl Platform,
    ) -> Result<Metaroot> {
        Ok(*Slots::read(medium, superblock, platform)?.newest())
    }
}
