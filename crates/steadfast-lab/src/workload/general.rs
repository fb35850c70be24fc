//! General file operations: a random sequence on a tree that grows and ages, the same on every
//! target, counted per minute.
//!
//! The published test ran random file and directory operations for five minutes and gave their
//! number per minute. It does not say which operations. Here the shares are, in percent:
//!
//! - create a file of up to 16 KiB: 22; read one: 18; append to one: 12; overwrite a part: 8;
//! - read attributes: 14; list a directory: 6; rename: 8; delete: 8;
//! - make a directory: 3; remove an empty one: 1.
//!
//! When the wanted number of files exists, a creation deletes one first. So the tree ages and does
//! not grow.

use super::content::{Content, below};
use super::{Bench, TestSpec, Timed, Workload};
use crate::result::Unit;
use crate::target::{Files, Open};
use crate::trouble::Doing;
use crate::{Outcome, Trouble};

/// A random sequence of operations.
#[derive(Debug, Clone, Copy)]
pub struct General {
    /// Number of operations.
    pub operations: u64,
    /// Maximum number of files.
    pub files: usize,
}

/// Maximum bytes that a creation or an append writes.
const PIECE: u64 = 16 << 10;

/// Size from which a file is no longer appended to.
const SIZE_MOST: u64 = 128 << 10;

/// The expected contents.
struct Model {
    state: u64,
    content: Content,
    directories: Vec<String>,
    files: Vec<Entry>,
    /// Number of the next name.
    next: u64,
    buffer: Vec<u8>,
    expected: Vec<u8>,
}

struct Entry {
    path: String,
    /// Number of the content: each file has its own, whatever its name.
    number: u64,
    size: u64,
}

impl General {
    fn spec(&self) -> TestSpec {
        TestSpec::new("general", "operations", Unit::OperationsPerMinute)
            .with("operations", self.operations)
            .with("files", self.files as u64)
    }
}

impl Workload for General {
    fn label(&self) -> String {
        format!("general operations={} files={}", self.operations, self.files)
    }

    fn tests(&self) -> Vec<TestSpec> {
        vec![self.spec()]
    }

    fn run(&self, bench: &mut Bench<'_>) -> Outcome {
        let mut model = Model {
            state: bench.seed,
            content: Content::new(bench.seed, 0),
            directories: vec!["g".into()],
            files: Vec::new(),
            next: 0,
            buffer: Vec::new(),
            expected: Vec::new(),
        };
        bench.files()?.mkdir("g").doing(|| "mkdir g".into())?;
        let mut timed = Timed::default();
        while timed.operations < self.operations {
            bench.check_stop()?;
            model.step(bench.files()?, self.files, &mut timed)?;
        }
        // Every accepted change is also written, so that a target that only caches has no
        // advantage.
        let files = bench.files()?;
        timed.beside(|| files.sync()).doing(|| "sync".into())?;
        bench.enter(&self.spec(), timed);
        Ok(())
    }
}

impl Model {
    fn draw(&mut self, bound: u64) -> u64 {
        below(&mut self.state, bound)
    }

    fn pick(&mut self) -> Option<usize> {
        let place = self.draw(self.files.len() as u64) as usize;
        (place < self.files.len()).then_some(place)
    }

    fn directory(&mut self) -> String {
        let place = self.draw(self.directories.len() as u64) as usize;
        self.directories.get(place).cloned().unwrap_or_default()
    }

    fn step(&mut self, files: &dyn Files, most: usize, timed: &mut Timed) -> Outcome {
        match self.draw(100) {
            0..22 => self.create(files, most, timed),
            22..40 => self.read(files, timed),
            40..52 => self.append(files, timed),
            52..60 => self.overwrite(files, timed),
            60..74 => self.stat(files, timed),
            74..80 => self.list(files, timed),
            80..88 => self.rename(files, timed),
            88..96 => self.delete(files, timed),
            96..99 => self.mkdir(files, timed),
            _ => self.rmdir(files, timed),
        }
    }

    fn create(&mut self, files: &dyn Files, most: usize, timed: &mut Timed) -> Outcome {
        if self.files.len() >= most {
            self.delete(files, timed)?;
        }
        let (number, size) = (self.next, self.draw(PIECE + 1));
        self.next += 1;
        let path = format!("{}/f{number}", self.directory());
        self.buffer.resize(size as usize, 0);
        self.content.fill(&mut self.buffer, number, 0, 1);
        let data = &self.buffer;
        let done = timed.operation(|| {
            let mut file = files.open(&path, Open::CREATE)?;
            file.write(data)?;
            file.close()
        });
        done.doing(|| format!("create {path}"))?;
        timed.bytes += size;
        self.files.push(Entry { path, number, size });
        Ok(())
    }

    fn read(&mut self, files: &dyn Files, timed: &mut Timed) -> Outcome {
        let Some(place) = self.pick() else { return Ok(()) };
        let Some(entry) = self.files.get(place) else { return Ok(()) };
        // One extra byte, so that a file that is too long is detected.
        self.buffer.resize(entry.size as usize + 1, 0);
        let buffer = &mut self.buffer;
        let done = timed.operation(|| {
            let mut file = files.open(&entry.path, Open::READ)?;
            let mut count = 0;
            while let Some(rest) = buffer.get_mut(count..).filter(|rest| !rest.is_empty()) {
                match file.read(rest)? {
                    0 => break,
                    more => count += more,
                }
            }
            file.close()?;
            Ok(count)
        });
        let count = done.doing(|| format!("read {}", entry.path))?;
        if count as u64 != entry.size {
            return Err(Trouble::Wrong {
                what: format!("size of {}: {count} instead of {}", entry.path, entry.size),
            });
        }
        self.expected.resize(count, 0);
        // Content is a function of the offset in chunks, so appended pieces equal one whole file.
        self.content.compare(
            self.buffer.get(..count).unwrap_or_default(),
            &mut self.expected,
            entry.number,
            0,
            1,
        )?;
        timed.verification.bytes += entry.size;
        timed.bytes += entry.size;
        Ok(())
    }

    /// Writes a part of a file at its end or inside, with the expected content.
    fn write(
        &mut self,
        files: &dyn Files,
        timed: &mut Timed,
        place: usize,
        offset: u64,
        length: u64,
    ) -> Outcome {
        let Some(entry) = self.files.get_mut(place) else { return Ok(()) };
        let end = (offset + length).max(entry.size);
        self.buffer.resize(end as usize, 0);
        self.content.fill(&mut self.buffer, entry.number, 0, 1);
        let data = self.buffer.get(offset as usize..(offset + length) as usize).unwrap_or_default();
        let done = timed.operation(|| {
            let file = files.open(&entry.path, Open::WRITE)?;
            file.write_at(data, offset)?;
            file.close()
        });
        done.doing(|| format!("write {} at {offset}", entry.path))?;
        entry.size = end;
        timed.bytes += length;
        Ok(())
    }

    fn append(&mut self, files: &dyn Files, timed: &mut Timed) -> Outcome {
        let length = self.draw(PIECE) + 1;
        let Some(place) = self.pick() else { return Ok(()) };
        let size = self.files.get(place).map_or(0, |entry| entry.size);
        // The last chunk is written from its stamp on, so that the appended data continues the
        // existing data.
        let offset = size;
        if size >= SIZE_MOST { Ok(()) } else { self.write(files, timed, place, offset, length) }
    }

    fn overwrite(&mut self, files: &dyn Files, timed: &mut Timed) -> Outcome {
        let Some(place) = self.pick() else { return Ok(()) };
        let size = self.files.get(place).map_or(0, |entry| entry.size);
        let offset = self.draw(size);
        let length = (self.draw(PIECE) + 1).min(size - offset);
        if length == 0 { Ok(()) } else { self.write(files, timed, place, offset, length) }
    }

    fn stat(&mut self, files: &dyn Files, timed: &mut Timed) -> Outcome {
        let Some(place) = self.pick() else { return Ok(()) };
        let Some(entry) = self.files.get(place) else { return Ok(()) };
        let found =
            timed.operation(|| files.stat(&entry.path)).doing(|| format!("stat {}", entry.path))?;
        timed.verification.items += 1;
        match found.size == entry.size {
            true => Ok(()),
            false => Err(Trouble::Wrong {
                what: format!("size of {}: {} instead of {}", entry.path, found.size, entry.size),
            }),
        }
    }

    fn list(&mut self, files: &dyn Files, timed: &mut Timed) -> Outcome {
        let directory = self.directory();
        let names =
            timed.operation(|| files.readdir(&directory)).doing(|| format!("list {directory}"))?;
        let inside =
            |path: &String| path.rsplit_once('/').is_some_and(|(parent, _)| parent == directory);
        let wanted = self
            .files
            .iter()
            .map(|entry| &entry.path)
            .chain(&self.directories)
            .filter(|path| inside(path))
            .count();
        timed.verification.items += wanted as u64;
        match names.len() == wanted {
            true => Ok(()),
            false => Err(Trouble::Wrong {
                what: format!("directory {directory}: {} names instead of {wanted}", names.len()),
            }),
        }
    }

    fn rename(&mut self, files: &dyn Files, timed: &mut Timed) -> Outcome {
        let target = format!("{}/r{}", self.directory(), self.next);
        self.next += 1;
        let Some(place) = self.pick() else { return Ok(()) };
        let Some(entry) = self.files.get_mut(place) else { return Ok(()) };
        timed
            .operation(|| files.rename(&entry.path, &target))
            .doing(|| format!("rename {}", entry.path))?;
        entry.path = target;
        Ok(())
    }

    fn delete(&mut self, files: &dyn Files, timed: &mut Timed) -> Outcome {
        let Some(place) = self.pick() else { return Ok(()) };
        let path = self.files.swap_remove(place).path;
        timed.operation(|| files.unlink(&path)).doing(|| format!("delete {path}"))
    }

    fn mkdir(&mut self, files: &dyn Files, timed: &mut Timed) -> Outcome {
        let path = format!("{}/d{}", self.directory(), self.next);
        self.next += 1;
        timed.operation(|| files.mkdir(&path)).doing(|| format!("mkdir {path}"))?;
        self.directories.push(path);
        Ok(())
    }

    fn rmdir(&mut self, files: &dyn Files, timed: &mut Timed) -> Outcome {
        let used = |directory: &str| {
            let below = format!("{directory}/");
            let mut paths = self.files.iter().map(|entry| &entry.path).chain(&self.directories);
            paths.any(|path| path.starts_with(&below))
        };
        let Some(place) = (1..self.directories.len())
            .find(|place| self.directories.get(*place).is_some_and(|path| !used(path)))
        else {
            return Ok(());
        };
        let path = self.directories.swap_remove(place);
        timed.operation(|| files.rmdir(&path)).doing(|| format!("rmdir {path}"))
    }
}
