//! The transactions: the changes of each one, and the contents of the volume after it. All follow
//! from the seed alone.
//!
//! Transaction *n* changes a few of the files, which are in four directories, and always writes *n*
//! into the file `transaction`. So the volume itself shows its last transaction, and everything in
//! it must agree with that.

use std::collections::BTreeMap;

use crate::random::{Random, pattern};

/// Directories, named `d0` and so on.
pub const DIRECTORIES: u8 = 4;
/// Names in each directory.
const NAMES: u64 = 10;
/// The longest file, bytes; all files together stay well below the smallest volume.
const LENGTH_MAX: u64 = 48 << 10;
/// Overwrites of a file before it is rewritten.
const PIECES_MAX: usize = 12;

/// A file: its directory and its number in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct File {
    /// Which directory.
    pub directory: u8,
    /// Which name in it.
    pub name: u8,
}

impl File {
    /// The name in the directory.
    pub fn file_name(self) -> String {
        format!("file-{}", self.name)
    }
}

/// One change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Makes the file, if it is missing, and writes all of it: this many bytes of pattern `fill`.
    Replace {
        /** The file. */
        file: File,
        /** Bytes. */
        length: u64,
        /** Pattern. */
        fill: u32,
    },
    /// Writes into an existing file, possibly beyond its end.
    Write {
        /** The file. */
        file: File,
        /** Where. */
        offset: u64,
        /** Bytes. */
        length: u64,
        /** Pattern. */
        fill: u32,
    },
    /// Cuts or extends an existing file.
    Truncate {
        /** The file. */
        file: File,
        /** Bytes. */
        size: u64,
    },
    /// Renames an existing file, replacing another one if it exists.
    Rename {
        /** The file. */
        from: File,
        /** Its new name. */
        to: File,
    },
    /// Removes an existing file.
    Unlink {
        /** The file. */
        file: File,
    },
}

/// The contents of a file: zeros, and the pieces written over them, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct FileContents {
    size: u64,
    pieces: Vec<(u64, u64, u32)>,
}

impl FileContents {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.size as usize];
        for (offset, length, fill) in &self.pieces {
            let range = *offset as usize..(offset + length) as usize;
            // A truncation also shortens the pieces.
            if let Some(piece) = bytes.get_mut(range) {
                pattern(*fill, *offset, piece);
            }
        }
        bytes
    }

    fn truncate(&mut self, size: u64) {
        self.size = size;
        self.pieces.retain_mut(|(offset, length, _)| {
            *length = (*length).min(size.saturating_sub(*offset));
            *length > 0
        });
    }
}

/// The files after a transaction.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tree {
    files: BTreeMap<File, FileContents>,
}

impl Tree {
    /// The files after transaction `number`; 0 is the empty volume.
    pub fn after(seed: u64, number: u64) -> Tree {
        let mut tree = Tree::default();
        (1..=number).for_each(|number| drop(tree.advance(seed, number)));
        tree
    }

    /// Draws and makes the changes of the next transaction.
    pub fn advance(&mut self, seed: u64, number: u64) -> Vec<Step> {
        let mut random = Random::new(seed).fork(number);
        let count = random.between(1, 5);
        (0..count)
            .map(|index| {
                let step =
                    self.draw(&mut random, (number as u32).wrapping_mul(8) + index as u32 + 1);
                self.apply(step);
                step
            })
            .collect()
    }

    /// Names and contents of one directory.
    pub fn directory(&self, directory: u8) -> impl Iterator<Item = (String, Vec<u8>)> {
        let files = self.files.iter().filter(move |(file, _)| file.directory == directory);
        files.map(|(file, contents)| (file.file_name(), contents.bytes()))
    }

    fn draw(&self, random: &mut Random, fill: u32) -> Step {
        let any = |random: &mut Random| File {
            directory: random.below(DIRECTORIES.into()) as u8,
            name: random.below(NAMES) as u8,
        };
        let length = |random: &mut Random| match random.below(3) {
            0 => random.between(1, 300),
            1 => random.between(1, 8_000),
            _ => random.between(1, LENGTH_MAX),
        };
        let index = random.index(self.files.len());
        let Some((file, contents)) =
            self.files.iter().nth(index).map(|(file, contents)| (*file, contents))
        else {
            return Step::Replace { file: any(random), length: length(random), fill };
        };
        match random.below(10) {
            0..3 => Step::Replace { file: any(random), length: length(random), fill },
            3..6 if contents.pieces.len() < PIECES_MAX => {
                let length = length(random);
                Step::Write { file, offset: random.below(LENGTH_MAX - length + 1), length, fill }
            }
            3..6 => Step::Replace { file, length: length(random), fill },
            6 => Step::Truncate { file, size: random.below(LENGTH_MAX) },
            7..9 => Step::Rename { from: file, to: any(random) },
            _ => Step::Unlink { file },
        }
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Replace { file, length, fill } => {
                self.files
                    .insert(file, FileContents { size: length, pieces: vec![(0, length, fill)] });
            }
            Step::Write { file, offset, length, fill } => {
                let contents = self.files.entry(file).or_default();
                contents.size = contents.size.max(offset + length);
                contents.pieces.push((offset, length, fill));
            }
            Step::Truncate { file, size } => self.files.entry(file).or_default().truncate(size),
            // A file renamed to itself stays.
            Step::Rename { from, to } => {
                if let Some(contents) = self.files.remove(&from) {
                    self.files.insert(to, contents);
                }
            }
            Step::Unlink { file } => drop(self.files.remove(&file)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_files() {
        assert_eq!(Tree::after(1, 200), Tree::after(1, 200));
        assert_ne!(Tree::after(1, 200), Tree::after(2, 200));
        assert_ne!(Tree::after(1, 200), Tree::after(1, 201));
    }

    #[test]
    fn every_kind_of_step_comes_and_files_stay_small() {
        let mut tree = Tree::default();
        let mut seen = [false; 5];
        for number in 1..2_000 {
            for step in tree.advance(3, number) {
                seen[match step {
                    Step::Replace { .. } => 0,
                    Step::Write { .. } => 1,
                    Step::Truncate { .. } => 2,
                    Step::Rename { .. } => 3,
                    Step::Unlink { .. } => 4,
                }] = true;
            }
            assert!(tree.files.len() as u64 <= NAMES * u64::from(DIRECTORIES));
            assert!(tree.files.values().all(|contents| contents.size <= LENGTH_MAX));
        }
        assert_eq!(seen, [true; 5]);
    }

    #[test]
    fn what_was_cut_off_does_not_come_back() {
        let mut contents = FileContents { size: 10, pieces: vec![(0, 10, 7)] };
        contents.truncate(4);
        contents.size = 10;
        let bytes = contents.bytes();
        assert!(bytes[..4].iter().any(|byte| *byte != 0) && bytes[4..] == [0; 6]);
    }
}
