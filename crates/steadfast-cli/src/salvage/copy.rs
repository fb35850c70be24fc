//! Writing the copies.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use steadfast::Platform;
use steadfast::fs::FileKind;
use steadfast::salvage::{Entry, Problem, Salvage};
use steadfast_media::Medium;

use super::attributes::Setter;
use super::report::{SalvageReport, Summary};
use crate::failure::{Exit, Failure, Outcome};

/// Number of names tried if a name is taken.
const NAMES_MAX: u32 = 1000;

/// A copy in progress.
pub struct SalvageCopy {
    directory: PathBuf,
    report: SalvageReport,
    setter: Setter,
    summary: Summary,
    /// The host paths of the volume's directories.
    made: HashMap<Vec<Vec<u8>>, PathBuf>,
}

impl SalvageCopy {
    /// Makes the directory, or uses an existing empty one.
    ///
    /// # Errors
    /// The host's; the directory is not empty.
    pub fn new(directory: &Path, image: &Path, snapshot: Option<&str>) -> Outcome<SalvageCopy> {
        match fs::create_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let mut entries = fs::read_dir(directory)
                    .map_err(|error| Failure::host(&error, "use as a directory", directory))?;
                if entries.next().is_some() {
                    return Err(Failure::new(
                        Exit::Usage,
                        "the directory to salvage to is not empty",
                        directory.display(),
                        "give a new directory: nothing is ever overwritten",
                    ));
                }
            }
            other => other.map_err(|error| Failure::host(&error, "create", directory))?,
        }
        let report = SalvageReport::create(directory, image, snapshot)
            .map_err(|error| Failure::host(&error, "write the report in", directory))?;
        let made = HashMap::from([(Vec::new(), directory.to_owned())]);
        let (setter, summary) = (Setter::new(), Summary::default());
        Ok(SalvageCopy { directory: directory.to_owned(), report, setter, summary, made })
    }

    /// Copies everything.
    ///
    /// # Errors
    /// The host's, such as a full disk. Completed copies stay.
    pub fn run<M: Medium, P: Platform>(mut self, salvage: &Salvage<'_, M, P>) -> Outcome<Summary> {
        for note in salvage.notes() {
            self.tell(|report| report.note(note))?;
            self.summary.notes.push(note.clone());
        }
        let entries = salvage.entries();
        let mut copies: Vec<Option<PathBuf>> = Vec::with_capacity(entries.len());
        for entry in &entries {
            let copy = self.entry(salvage, entry, &copies)?;
            copies.push(copy);
        }
        // Directories come last and from the bottom up: a new entry changes a directory's times and
        // may need its permissions.
        for (entry, copy) in entries.iter().zip(&copies).rev() {
            if let (FileKind::Directory, Some(path), Some(attributes)) =
                (entry.kind, copy, &entry.attributes)
            {
                self.setter.set(path, attributes, &salvage.xattrs(entry.inode).0);
            }
        }
        let notes: Vec<String> = self.setter.notes().map(str::to_owned).collect();
        for note in notes {
            self.tell(|report| report.note(&note))?;
            self.summary.notes.push(note);
        }
        let last = self.summary.line(&self.directory);
        let finished = self.report.finish(&last);
        finished.map_err(|error| Failure::host(&error, "write the report in", &self.directory))?;
        Ok(self.summary)
    }

    fn tell(&mut self, write: impl FnOnce(&mut SalvageReport) -> io::Result<()>) -> Outcome {
        write(&mut self.report)
            .map_err(|error| Failure::host(&error, "write the report in", &self.directory))
    }

    /// Copies one entry and returns its path, or `None` if there is nothing to copy.
    fn entry<M: Medium, P: Platform>(
        &mut self,
        salvage: &Salvage<'_, M, P>,
        entry: &Entry,
        copies: &[Option<PathBuf>],
    ) -> Outcome<Option<PathBuf>> {
        let shown = shown(&entry.path);
        for problem in &entry.problems {
            self.tell(|report| report.problem(&shown, *problem))?;
        }
        self.summary.incomplete += u64::from(!entry.problems.is_empty());
        let below =
            entry.path.first().is_some_and(|name| name == b"lost+found") && entry.path.len() == 2;
        self.summary.lost_and_found += u64::from(below);
        if entry.problems.contains(&Problem::Lost) {
            self.summary.lost += 1;
            if entry.kind != FileKind::Directory {
                return Ok(None);
            }
        }
        if entry.path.is_empty() {
            self.summary.directories += 1;
            return Ok(Some(self.directory.clone()));
        }
        let first = entry.same_as.and_then(|index| copies.get(index).cloned().flatten());
        if entry.same_as.is_some() && first.is_none() {
            return Ok(None);
        }
        let path = match &first {
            Some(first) => self.place(entry, |path| fs::hard_link(first, path))?,
            None => match entry.kind {
                FileKind::Directory => self.place(entry, |path| fs::create_dir(path))?,
                FileKind::Regular => return self.file(salvage, entry, &shown).map(Some),
                FileKind::Symlink => {
                    let target = salvage.symlink_target(entry.inode);
                    if target.is_empty() || target.contains(&0) {
                        return Ok(None);
                    }
                    self.place(entry, |path| symlink(OsStr::from_bytes(&target), path))?
                }
                _ => match self.special(entry)? {
                    Some(path) => path,
                    None => return Ok(None),
                },
            },
        };
        if entry.kind == FileKind::Directory {
            self.made.insert(entry.path.clone(), path.clone());
            self.summary.directories += 1;
            return Ok(Some(path));
        }
        self.summary.others += 1;
        if let (None, Some(attributes)) = (&first, &entry.attributes) {
            self.setter.set(&path, attributes, &salvage.xattrs(entry.inode).0);
        }
        Ok(Some(path))
    }

    fn file<M: Medium, P: Platform>(
        &mut self,
        salvage: &Salvage<'_, M, P>,
        entry: &Entry,
        shown: &str,
    ) -> Outcome<PathBuf> {
        let mut made = None;
        let path = self.place(entry, |path| {
            made = Some(File::create_new(path)?);
            Ok(())
        })?;
        let failed = |error: io::Error| Failure::host(&error, "write", &path);
        let Some(file) = made else { return Ok(path) };
        let mut bytes = 0;
        let lost = salvage.read(entry.inode, &mut |offset, piece: &[u8]| {
            bytes += piece.len() as u64;
            file.write_all_at(piece, offset)
        });
        let lost = lost.map_err(failed)?;
        if let Some(attributes) = &entry.attributes {
            file.set_len(attributes.size).map_err(failed)?;
        }
        drop(file);
        self.summary.files += 1;
        self.summary.bytes += bytes;
        if !lost.is_empty() {
            self.tell(|report| report.lost(shown, &lost))?;
            self.summary.incomplete += u64::from(entry.problems.is_empty());
            self.summary.bytes_lost +=
                lost.iter().map(|range| range.end - range.start).sum::<u64>();
        }
        if let Some(attributes) = &entry.attributes {
            self.setter.set(&path, attributes, &salvage.xattrs(entry.inode).0);
        }
        Ok(path)
    }

    /// Copies FIFOs, sockets and devices. If the host refuses one, it is left out with a note.
    fn special(&mut self, entry: &Entry) -> Outcome<Option<PathBuf>> {
        let kind = match entry.kind {
            FileKind::Fifo => FileType::Fifo,
            FileKind::Socket => FileType::Socket,
            FileKind::CharDevice => FileType::CharacterDevice,
            _ => FileType::BlockDevice,
        };
        let number = entry.attributes.map_or(0, |attributes| attributes.device);
        // The kernel's 32-bit encoding.
        let device = makedev((number >> 8) & 0xfff, (number & 0xff) | ((number >> 12) & 0xf_ff00));
        let mut refused = false;
        let path = self.place(entry, |path| {
            match mknodat(CWD, path, kind, Mode::RUSR | Mode::WUSR, device) {
                Err(rustix::io::Errno::PERM | rustix::io::Errno::ACCESS) => {
                    refused = true;
                    Ok(())
                }
                other => Ok(other?),
            }
        })?;
        if refused {
            self.setter.note("devices were left out: making them needs root");
            return Ok(None);
        }
        Ok(Some(path))
    }

    /// Makes an entry with `make`, under another name if its own is taken. The report may have the
    /// name, or, in a badly damaged volume, another entry.
    fn place(
        &mut self,
        entry: &Entry,
        mut make: impl FnMut(&Path) -> io::Result<()>,
    ) -> Outcome<PathBuf> {
        let (name, parents) =
            entry.path.split_last().map_or((&[][..], &[][..]), |(name, rest)| (name, rest));
        let parent = self.parent(parents)?;
        for attempt in 0..NAMES_MAX {
            let mut host_name = OsString::from(OsStr::from_bytes(name));
            if attempt > 0 {
                host_name.push(format!("~{attempt}"));
            }
            let path = parent.join(host_name);
            match make(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Failure::host(&error, "create", &path)),
                Ok(()) => return Ok(path),
            }
        }
        Err(Failure::new(
            Exit::Failed,
            "the name is taken",
            parent.join(OsStr::from_bytes(name)).display(),
            "give an empty directory to salvage to",
        ))
    }

    /// The host path of a directory of the volume. A directory that no entry has made, such as
    /// lost+found, is made now.
    fn parent(&mut self, path: &[Vec<u8>]) -> Outcome<PathBuf> {
        if let Some(made) = self.made.get(path) {
            return Ok(made.clone());
        }
        let mut host = self.directory.clone();
        host.extend(path.iter().map(|name| OsStr::from_bytes(name)));
        fs::create_dir(&host).map_err(|error| Failure::host(&error, "create", &host))?;
        self.made.insert(path.to_vec(), host.clone());
        Ok(host)
    }
}

/// A path of the volume as messages show it.
fn shown(path: &[Vec<u8>]) -> String {
    if path.is_empty() {
        return "/".to_owned();
    }
    path.iter().map(|name| format!("/{}", String::from_utf8_lossy(name))).collect()
}
