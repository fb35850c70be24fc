//! Walking everything below a directory of a volume.
//!
//! The volume may be anybody's, with every checksum right and nothing true. So no directory is
//! entered twice: one that is its own ancestor, or has two names, ends the walk with a failure, and
//! so do two entries of one name. How deep a walk goes is bounded, and what it keeps is the listing
//! of each directory on the way and one path.

use std::collections::HashSet;
use std::vec::IntoIter;

use steadfast::fs::{Attributes, DirectoryEntry, FileKind};
use steadfast::{Error, InodeNumber};

use crate::failure::{Exit, Failure};
use crate::image::HostVolume;
use crate::volume_path::{join, sorted_entries};

/// Directories above one another at most.
const DEPTH_MAX: usize = 4096;

/// Why a walk ends early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// A directory cannot be read.
    Core(Error),
    /// A directory is reached a second time.
    Again,
    /// Two entries of a directory have the same name.
    SameName,
    /// More directories above one another than are followed.
    TooDeep,
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Core(error)
    }
}

impl Stop {
    /// The failure to walk on at `place`.
    pub fn failure(self, place: impl std::fmt::Display) -> Failure {
        let damaged = |what: &str| {
            let advice =
                "run 'steadfast check', and copy what is left with 'steadfast check --salvage DIR'";
            Failure::new(Exit::Damaged, what, &place, advice)
        };
        match self {
            Stop::Core(error) => Failure::core(error, place),
            Stop::Again => damaged("the directory is its own ancestor, or has two names"),
            Stop::SameName => damaged("the directory has two entries of the same name"),
            Stop::TooDeep => Failure::new(
                Exit::Failed,
                format!("more than {DEPTH_MAX} directories are nested here"),
                place,
                "give a directory further down",
            ),
        }
    }
}

/// The directories that a walk has entered.
#[derive(Debug, Default)]
pub struct Visited {
    seen: HashSet<InodeNumber>,
}

impl Visited {
    /// Enters a directory that has `depth` of them above it.
    ///
    /// # Errors
    /// It was entered before, or is too deep.
    pub fn enter(&mut self, directory: InodeNumber, depth: usize) -> Result<(), Stop> {
        if depth >= DEPTH_MAX {
            return Err(Stop::TooDeep);
        }
        if self.seen.insert(directory) { Ok(()) } else { Err(Stop::Again) }
    }
}

/// Lists a directory, sorted by name.
///
/// # Errors
/// Those of reading it; two entries have the same name.
pub fn list(
    volume: &HostVolume,
    directory: InodeNumber,
) -> Result<IntoIter<(DirectoryEntry, Attributes)>, Stop> {
    let entries = sorted_entries(volume, directory)?;
    let twice = entries.windows(2).any(|pair| matches!(pair, [a, b] if a.0.name == b.0.name));
    if twice { Err(Stop::SameName) } else { Ok(entries.into_iter()) }
}

/// What a walk comes upon.
#[derive(Debug)]
pub enum Step {
    /// An entry, in the order of names; if it is a directory, before everything in it.
    Entry(DirectoryEntry, Attributes),
    /// A directory, after everything in it.
    Left(Attributes),
}

/// A directory on the way down.
struct Level {
    attributes: Attributes,
    entries: IntoIter<(DirectoryEntry, Attributes)>,
    /// Length of its path.
    path: usize,
}

/// A walk below one directory.
pub struct Walk<'a> {
    volume: &'a HostVolume,
    levels: Vec<Level>,
    visited: Visited,
    /// The path of the last step.
    path: Vec<u8>,
    /// The directory that the next step enters.
    next: Option<Attributes>,
}

impl<'a> Walk<'a> {
    /// Begins at a directory, whose path is `path`. It is itself no [entry](Step::Entry), and is
    /// [left](Step::Left) last.
    pub fn new(volume: &'a HostVolume, path: &[u8], directory: Attributes) -> Walk<'a> {
        let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
        let path = path[..end].to_vec();
        Walk {
            volume,
            levels: Vec::new(),
            visited: Visited::default(),
            path,
            next: Some(directory),
        }
    }

    /// The next step, `None` at the end.
    ///
    /// # Errors
    /// The walk cannot go on at [`path`](Self::path).
    pub fn step(&mut self) -> Result<Option<Step>, Stop> {
        if let Some(attributes) = self.next.take() {
            self.visited.enter(attributes.inode, self.levels.len())?;
            let entries = list(self.volume, attributes.inode)?;
            self.levels.push(Level { attributes, entries, path: self.path.len() });
        }
        let Some(level) = self.levels.last_mut() else { return Ok(None) };
        self.path.truncate(level.path);
        let Some((entry, attributes)) = level.entries.next() else {
            let level = self.levels.pop();
            return Ok(level.map(|level| Step::Left(level.attributes)));
        };
        self.path.push(b'/');
        self.path.extend_from_slice(&entry.name);
        if attributes.kind == FileKind::Directory {
            self.next = Some(attributes);
        }
        Ok(Some(Step::Entry(entry, attributes)))
    }

    /// Does not enter the directory that was the last step.
    pub fn pass_by(&mut self) {
        self.next = None;
    }

    /// The path of the last step: that of the first directory, and names behind slashes; empty for
    /// the root.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// The path of the last step, where the walk began at `path` of the volume and as an empty one.
    pub fn path_below(&self, path: &[u8]) -> Vec<u8> {
        match self.path.strip_prefix(b"/") {
            Some(name) => join(path, name),
            None => path.to_vec(),
        }
    }

    /// The directory that the last step is in.
    pub fn directory(&self) -> Option<InodeNumber> {
        self.levels.last().map(|level| level.attributes.inode)
    }

    /// For each directory above the last step, from the first on, whether there is nothing more in
    /// it.
    pub fn ends(&self) -> impl Iterator<Item = bool> {
        self.levels.iter().map(|level| level.entries.as_slice().is_empty())
    }

    /// How many directories are above the last step.
    pub fn depth(&self) -> usize {
        self.levels.len()
    }
}
