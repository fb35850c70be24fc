//! The contents of a campaign's files: for each block, a number that determines its bytes.

use steadfast::fs::{Caller, NewNode};
use steadfast::{Error, InodeNumber, Volume};
use steadfast_media::Medium;

use crate::platform::LabPlatform;
use crate::random::Random;

/// Number of files.
pub(super) const FILES: usize = 6;
/// Bytes of a block of a file.
pub(super) const BLOCK: usize = 4096;
/// Blocks written or read at once.
const AT_ONCE: usize = 16;

/// A volume on the translation layer of a part.
pub(super) type ContentsVolume<'a> = Volume<&'a dyn Medium, LabPlatform>;

/// The number of each block, by file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FlashContents([Vec<u64>; FILES]);

fn name(file: usize) -> String {
    format!("file-{file}")
}

/// The number of a block of zeros. Flash has no page for such a block, so the file system records
/// it in another way.
const ZEROS: u64 = 0;

/// The words of a block. Each word differs from every other word of the block, and from the words
/// of other numbers.
fn words(number: u64) -> impl Iterator<Item = [u8; 8]> {
    (1..=BLOCK as u64 / 8).map(move |word| match number {
        ZEROS => [0; 8],
        _ => number.wrapping_add(word.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes(),
    })
}

fn is_block(bytes: &[u8], number: u64) -> bool {
    bytes.len() == BLOCK
        && bytes.chunks_exact(8).zip(words(number)).all(|(bytes, word)| bytes == word)
}

impl FlashContents {
    /// Makes the files, with `blocks` blocks each.
    pub fn create(
        volume: &ContentsVolume<'_>,
        blocks: u64,
        random: &mut Random,
    ) -> Result<FlashContents, Error> {
        let caller = Caller { uid: 0, gid: 0, umask: 0 };
        let mut contents =
            FlashContents(std::array::from_fn(|_| (0..blocks).map(|_| random.bits()).collect()));
        for (file, numbers) in contents.0.iter_mut().enumerate() {
            let root = InodeNumber::ROOT;
            let made =
                volume.create(root, name(file).as_bytes(), NewNode::Regular, 0o644, &caller)?;
            for (at, numbers) in numbers.chunks(AT_ONCE).enumerate() {
                let data: Vec<u8> =
                    numbers.iter().flat_map(|number| words(*number)).flatten().collect();
                volume.write(made.inode, (at * AT_ONCE * BLOCK) as u64, &data, false)?;
            }
            volume.transact()?;
        }
        Ok(contents)
    }

    /// Writes one block.
    pub fn overwrite(
        &mut self,
        volume: &ContentsVolume<'_>,
        random: &mut Random,
    ) -> Result<(), Error> {
        let file = random.index(FILES);
        let (at, number) = (random.index(self.0[file].len()), random.bits());
        let number = if random.chance(1, 8) { ZEROS } else { number };
        let inode = volume.lookup(InodeNumber::ROOT, name(file).as_bytes())?.inode;
        let data: Vec<u8> = words(number).flatten().collect();
        volume.write(inode, (at * BLOCK) as u64, &data, false)?;
        self.0[file][at] = number;
        Ok(())
    }

    /// Whether the volume holds exactly these contents in every block of every file.
    pub fn is_in(&self, volume: &ContentsVolume<'_>) -> Result<bool, Error> {
        let mut found = vec![0; AT_ONCE * BLOCK];
        for (file, numbers) in self.0.iter().enumerate() {
            let inode = match volume.lookup(InodeNumber::ROOT, name(file).as_bytes()) {
                Ok(attributes) => attributes.inode,
                Err(Error::NotFound) => return Ok(false),
                Err(error) => return Err(error),
            };
            for (at, numbers) in numbers.chunks(AT_ONCE).enumerate() {
                let wanted = numbers.len() * BLOCK;
                let count =
                    volume.read(inode, (at * AT_ONCE * BLOCK) as u64, &mut found[..wanted])?;
                let blocks = found[..count].chunks(BLOCK).zip(numbers);
                if count != wanted
                    || !blocks.into_iter().all(|(bytes, number)| is_block(bytes, *number))
                {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Whether the volume holds these contents and not `other`. The check reads only the first
    /// differing block.
    pub fn rather_than(
        &self,
        other: &FlashContents,
        volume: &ContentsVolume<'_>,
    ) -> Result<bool, Error> {
        let mut found = [0; BLOCK];
        for (file, (numbers, others)) in self.0.iter().zip(&other.0).enumerate() {
            let Some(at) = numbers.iter().zip(others).position(|(number, other)| number != other)
            else {
                continue;
            };
            let inode = volume.lookup(InodeNumber::ROOT, name(file).as_bytes())?.inode;
            let count = volume.read(inode, (at * BLOCK) as u64, &mut found)?;
            return Ok(is_block(&found[..count], numbers[at]));
        }
        Ok(false)
    }
}
