//! The volumes that operations are measured on: made once, outside callgrind, and kept as files.
//!
//! A volume of N files has N / 100 directories (at least one) of 100 files. Each tenth file has
//! data of one block, or of one to four on an aged volume. The others are small and live in the
//! tree. An aged volume has had 10 × N random removals, creations and overwrites. Names stay, so
//! both volumes have the same ones. Everything follows from the seed.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use rustix::fs::{SeekFrom as Position, seek};
use steadfast::fs::{Attributes, Caller, NewNode};
use steadfast::{FormatOptions, InodeNumber, OpenOptions, TransactionMask, Volume};

use crate::Result;
use crate::medium::CountedMedium;
use crate::platform::CountedPlatform;

/// A volume on a counted medium.
pub type Counted<'m> = Volume<&'m CountedMedium, CountedPlatform>;

/// Files of a directory.
pub const FILES_PER_DIRECTORY: u64 = 100;
/// Each file whose number is a multiple of this has data outside the tree.
pub const DATA_EVERY: u64 = 10;
/// Bytes of a block, and of a file with data.
pub const BLOCK: usize = 4096;
/// Removals, creations and overwrites for each file of an aged volume.
const CHANGES_PER_FILE: u64 = 10;
/// Changes between two transaction points while a volume is made.
const CHANGES_PER_POINT: u64 = 100;
/// Cache while a volume is made: with less, ageing a large one takes hours.
const MAKING_CACHE: usize = 1 << 30;
/// Bytes of the medium for each file.
const BYTES_PER_FILE: u64 = 6144;
const SIZE_MIN: u64 = 64 << 20;
/// Part of the content of files; a whole block of it does not compress.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// xorshift64*: the same numbers on every machine. The committed counts depend on the sequence.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Numbers for a purpose.
    pub fn new(purpose: u64) -> Random {
        Random(SEED ^ purpose.wrapping_mul(0xd134_2543_de82_ef95))
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.bits() % limit
    }

    /// Fills `buffer`.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        for piece in buffer.chunks_mut(8) {
            piece.copy_from_slice(&self.bits().to_le_bytes()[..piece.len()]);
        }
    }
}

/// Which volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// Files.
    pub files: u64,
    /// Whether it has a past of random changes.
    pub aged: bool,
}

impl Kind {
    /// Directories.
    pub fn directories(self) -> u64 {
        self.files.div_ceil(FILES_PER_DIRECTORY)
    }

    /// Name of the file that keeps it.
    pub fn file_name(self) -> String {
        format!("{}{}.img", self.files, if self.aged { "-aged" } else { "" })
    }
}

/// Name of a directory.
pub fn directory_name(directory: u64) -> String {
    format!("directory-{directory:06}")
}

/// Name of a file.
pub fn file_name(file: u64) -> String {
    format!("file-{file:08}")
}

/// One line about an error of the core.
pub fn told(what: &str) -> impl Fn(steadfast::Error) -> String {
    move |error| format!("{what}: {error}")
}

/// Opens a volume with the defaults of a mount, but only `transact` sets transaction points.
///
/// # Errors
/// If it does not open.
pub fn open(medium: &CountedMedium, day: u64) -> Result<Counted<'_>> {
    open_with(medium, day, OpenOptions::default())
}

fn open_with(medium: &CountedMedium, day: u64, options: OpenOptions) -> Result<Counted<'_>> {
    let platform = CountedPlatform::at_day(day);
    Volume::open(medium, options, platform).map_err(told("the volume does not open"))
}

/// A transaction point, and all background work that there is.
///
/// # Errors
/// Those of the volume.
pub fn settle(volume: &Counted<'_>) -> Result<()> {
    volume.transact().map_err(told("transact"))?;
    background(volume)
}

/// All background work that there is, as the thread of a host would do it.
///
/// # Errors
/// Those of the volume.
pub fn background(volume: &Counted<'_>) -> Result<()> {
    while volume.background().map_err(told("background"))? {}
    Ok(())
}

struct Maker<'v> {
    volume: &'v Counted<'v>,
    kind: Kind,
    random: Random,
    directories: Vec<InodeNumber>,
    buffer: Vec<u8>,
    changes: u64,
}

impl Maker<'_> {
    fn directory(&self, file: u64) -> InodeNumber {
        self.directories[(file / FILES_PER_DIRECTORY) as usize]
    }

    fn size(&mut self, file: u64) -> usize {
        if !file.is_multiple_of(DATA_EVERY) {
            return 100 + self.random.below(200) as usize;
        }
        if self.kind.aged { BLOCK * (1 + self.random.below(4) as usize) } else { BLOCK }
    }

    fn write(&mut self, file: u64, inode: InodeNumber, size: usize) -> Result<()> {
        self.random.fill(&mut self.buffer[..size]);
        self.volume
            .write(inode, 0, &self.buffer[..size], false)
            .map_err(told(&format!("writing {}", file_name(file))))
    }

    fn create(&mut self, file: u64) -> Result<()> {
        let made = create(self.volume, self.directory(file), &file_name(file))?;
        let size = self.size(file);
        self.write(file, made.inode, size)?;
        self.changed()
    }

    fn changed(&mut self) -> Result<()> {
        self.changes += 1;
        if self.changes.is_multiple_of(CHANGES_PER_POINT) { settle(self.volume) } else { Ok(()) }
    }

    fn fill(&mut self) -> Result<()> {
        for directory in 0..self.kind.directories() {
            let name = directory_name(directory);
            let made = make_directory(self.volume, InodeNumber::ROOT, &name)?;
            self.directories.push(made.inode);
            let first = directory * FILES_PER_DIRECTORY;
            for file in first..(first + FILES_PER_DIRECTORY).min(self.kind.files) {
                self.create(file)?;
            }
        }
        Ok(())
    }

    fn age(&mut self) -> Result<()> {
        let mut present = vec![true; self.kind.files as usize];
        for _ in 0..CHANGES_PER_FILE * self.kind.files {
            let file = self.random.below(self.kind.files);
            let here = &mut present[file as usize];
            if !*here {
                *here = true;
                self.create(file)?;
            } else if self.random.below(2) == 0 {
                *here = false;
                remove(self.volume, self.directory(file), &file_name(file))?;
                self.changed()?;
            } else {
                let found = look_up(self.volume, self.directory(file), &file_name(file))?;
                let size = self.size(file);
                self.write(file, found.inode, size)?;
                self.changed()?;
            }
        }
        let absent = (0..self.kind.files).filter(|file| !present[*file as usize]);
        for file in absent.collect::<Vec<_>>() {
            self.create(file)?;
        }
        Ok(())
    }
}

/// Creates an empty file.
///
/// # Errors
/// Those of the volume.
pub fn create(volume: &Counted<'_>, directory: InodeNumber, name: &str) -> Result<Attributes> {
    volume
        .create(directory, name.as_bytes(), NewNode::Regular, 0o644, &Caller::default())
        .map_err(told(&format!("creating {name}")))
}

/// Makes a directory.
///
/// # Errors
/// Those of the volume.
pub fn make_directory(volume: &Counted<'_>, parent: InodeNumber, name: &str) -> Result<Attributes> {
    volume
        .create(parent, name.as_bytes(), NewNode::Directory, 0o755, &Caller::default())
        .map_err(told(&format!("making {name}")))
}

/// Removes a file.
///
/// # Errors
/// Those of the volume.
pub fn remove(volume: &Counted<'_>, directory: InodeNumber, name: &str) -> Result<()> {
    volume.unlink(directory, name.as_bytes()).map_err(told(&format!("removing {name}")))
}

/// What a name stands for.
///
/// # Errors
/// Those of the volume.
pub fn look_up(volume: &Counted<'_>, directory: InodeNumber, name: &str) -> Result<Attributes> {
    volume.lookup(directory, name.as_bytes()).map_err(told(&format!("looking up {name}")))
}

/// Makes the volume and keeps it in the file `path`, which appears when it is whole.
///
/// # Errors
/// If the file cannot be written, or the volume does not accept a change.
pub fn prepare(kind: Kind, path: &Path) -> Result<()> {
    let size = SIZE_MIN.max(kind.files * BYTES_PER_FILE).next_multiple_of(BLOCK as u64);
    let medium = CountedMedium::new(vec![0; size as usize])?;
    let options = FormatOptions {
        uuid: [0x5f; 16],
        mask: TransactionMask::MANUAL,
        ..FormatOptions::default()
    };
    Volume::format(&&medium, &options, &CountedPlatform::at_day(0)).map_err(told("mkfs"))?;
    let options = OpenOptions { cache_size: MAKING_CACHE, ..OpenOptions::default() };
    let volume = open_with(&medium, 0, options)?;
    let mut maker = Maker {
        volume: &volume,
        kind,
        random: Random::new(kind.files),
        directories: Vec::new(),
        buffer: vec![0; 4 * BLOCK],
        changes: 0,
    };
    maker.fill()?;
    if kind.aged {
        maker.age()?;
    }
    settle(&volume)?;
    volume.checkpoint().map_err(told("checkpoint"))?;
    volume.close().map_err(told("close"))?;
    drop(volume);
    let unfinished = path.with_extension("unfinished");
    medium
        .with_bytes(|bytes| keep(bytes, &unfinished))
        .and_then(|()| fs::rename(&unfinished, path))
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// Writes all blocks that are not zero.
fn keep(bytes: &[u8], path: &Path) -> std::io::Result<()> {
    let mut file = fs::File::create(path)?;
    file.set_len(bytes.len() as u64)?;
    let zero = [0; 16 * BLOCK];
    for (index, piece) in bytes.chunks(zero.len()).enumerate() {
        if piece != &zero[..piece.len()] {
            file.seek(SeekFrom::Start((index * zero.len()) as u64))?;
            file.write_all(piece)?;
        }
    }
    Ok(())
}

/// Loads a volume that [`prepare`] has kept. Only what is not a hole takes memory.
///
/// # Errors
/// If the file cannot be read.
pub fn load(path: &Path) -> Result<CountedMedium> {
    let bytes = read_sparse(path).map_err(|error| format!("{}: {error}", path.display()))?;
    CountedMedium::new(bytes)
}

fn read_sparse(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut file = fs::File::open(path)?;
    let size = file.metadata()?.len();
    let mut bytes = vec![0; size as usize];
    let mut at = 0;
    // The end of the last range of data ends the search.
    while let Ok(from) = seek(&file, Position::Data(at)) {
        at = seek(&file, Position::Hole(from))?;
        file.seek(SeekFrom::Start(from))?;
        file.read_exact(&mut bytes[from as usize..at as usize])?;
    }
    Ok(bytes)
}
