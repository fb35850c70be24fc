//! Walking everything below a directory of a volume.
//!
//! The volume may be hostile: valid checksums over false contents. So no directory is entered
//! twice. A directory that is its own ancestor, or that has two names, ends the walk with a
//! failure. Two entries of one name do the same. The depth of a walk is bounded. A walk keeps one
//! path, and the listing of each directory on that path.

use std::collections::HashSet;
use std::vec::IntoIter;

use steadfast::fs::{Attributes, DirectoryEntry, FileKind};
use steadfast::{Error, InodeNumber};

use crate::failure::{Exit, Failure};
use crate::medium::HostVolume;
use crate::volume_path::{join, sorted_entries};

/// Maximum depth of nested directories.
const DEPTH_MAX: usize = 4096;

/// Why a walk ends early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// A directory cannot be read.
    Core(Error),
    /// A directory is reached a second time.
    Again,
    /// Two entries of one directory have the same name.
    SameName,
    /// The directories are nested too deep.
    TooDeep,
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Core(error)
    }
}

impl Stop {
    /// The failure of a walk that stopped at `place`.
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
    /// Enters a directory that has `depth` directories above it.
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
/// Those of reading it, or two entries have the same name.
pub fn list(
    volume: &HostVolume,
    directory: InodeNumber,
) -> Result<IntoIter<(DirectoryEntry, Attributes)>, Stop> {
    let entries = sorted_entries(volume, directory)?;
    let twice = entries.windows(2).any(|pair| matches!(pair, [a, b] if a.0.name == b.0.name));
    if twice { Err(Stop::SameName) } else { Ok(entries.into_iter()) }
}

/// A step of a walk.
#[derive(Debug)]
pub enum Step {
    /// An entry, in the order of names. A directory comes before everything in it.
    Entry(DirectoryEntry, Attributes),
    /// A directory, after everything in it.
    Left(Attributes),
}

/// A directory on the way down.
struct WalkLevel {
    attributes: Attributes,
    entries: IntoIter<(DirectoryEntry, Attributes)>,
    /// Length of its path.
    path: usize,
}

/// A walk below one directory.
pub struct Walk<'a> {
    volume: &'a HostVolume,
    levels: Vec<WalkLevel>,
    visited: Visited,
    /// The path of the last step.
    path: Vec<u8>,
    /// The directory that the next step enters.
    next: Option<Attributes>,
}

impl<'a> Walk<'a> {
    /// Begins at a directory, whose path is `path`. This directory is not itself an
    /// [entry](Step::Entry), and it is the last one to be [left](Step::Left).
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
    /// The walk cannot continue at [`path`](Self::path).
    pub fn step(&mut self) -> Result<Option<Step>, Stop> {
        if let Some(attributes) = self.next.take() {
            self.visited.enter(attributes.inode, self.levels.len())?;
            let entries = list(self.volume, attributes.inode)?;
            self.levels.push(WalkLevel { attributes, entries, path: self.path.len() });
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

    /// Skips the contents of the directory that was the last step.
    pub fn pass_by(&mut self) {
        self.next = None;
    }

    /// The path of the last step: the path of the first directory, then names after slashes. Empty
    /// for the root.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// The path of the last step, for a walk that was started with an empty path at `path` of the
    /// volume.
    pub fn path_below(&self, path: &[u8]) -> Vec<u8> {
        match self.path.strip_prefix(b"/") {
            Some(name) => join(path, name),
            None => path.to_vec(),
        }
    }

    /// The directory that contains the last step.
    pub fn directory(&self) -> Option<InodeNumber> {
        self.levels.last().map(|level| level.attributes.inode)
    }

    /// For each directory above the last step, from the first on: whether it has no more entries.
    pub fn ends(&self) -> impl Iterator<Item = bool> {
        self.levels.iter().map(|level| level.entries.as_slice().is_empty())
    }

    /// How many directories are above the last step.
    pub fn depth(&self) -> usize {
        self.levels.len()
    }
}
