//! One pass over the records of a file: the timed calls, and the comparison.

use std::io::{BufRead, BufReader, BufWriter, Read, Write};

use super::super::Timed;
use super::super::aligned::Aligned;
use super::super::content::Content;
use super::map;
use super::options::{Options, Way};
use super::pattern::Pattern;
use crate::run::Stop;
use crate::target::{Files, Open, OpenFile};
use crate::trouble::Doing;
use crate::{Outcome, Trouble};

/// What a pass uses: the file system, and the request to stop.
#[derive(Clone, Copy)]
pub(super) struct Context<'p> {
    pub files: &'p dyn Files,
    pub stop: &'p Stop,
}

impl Context<'_> {
    fn check_stop(&self) -> Outcome {
        if self.stop.is_set() { Err(Trouble::Stopped) } else { Ok(()) }
    }
}

/// The calls that read and write records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) enum Call {
    /// `read` and `write`, with `lseek` if the next record is not adjacent in the file.
    Sequential,
    /// `pread` and `pwrite`.
    Positional,
    /// `fread` and `fwrite`: a buffered stream whose buffer is one record.
    Stream,
}

/// One test: a pass over all records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct Pass {
    pub pattern: Pattern,
    pub write: bool,
    pub call: Call,
    /// The pass uses a new, empty file.
    pub fresh: bool,
}

/// One file with one record size.
pub(super) struct RecordFile<'c> {
    /// Number of the file; in throughput mode, that of the thread.
    file: u64,
    name: String,
    content: &'c Content,
    options: &'c Options,
    record_size: u64,
    records: u64,
    seed: u64,
    /// Number of writes of each record, equal for all records after each pass.
    version: u64,
    buffer: Aligned,
    expected: Aligned,
}

impl<'c> RecordFile<'c> {
    /// A cell without any written data.
    pub fn new(
        file: u64,
        content: &'c Content,
        options: &'c Options,
        file_size: u64,
        record_size: u64,
        seed: u64,
    ) -> RecordFile<'c> {
        let length = usize::try_from(record_size).unwrap_or(0);
        RecordFile {
            file,
            name: format!("iozone.{file}"),
            content,
            options,
            record_size,
            records: file_size / record_size.max(1),
            // Threads use different orders.
            seed: seed.wrapping_add(file),
            version: 0,
            buffer: Aligned::new(length),
            expected: Aligned::new(length),
        }
    }

    /// Writes the file, untimed, for tests that only read.
    pub fn prepare(&mut self, context: Context<'_>) -> Outcome {
        let pass =
            Pass { pattern: Pattern::Forward, write: true, call: Call::Positional, fresh: true };
        self.run(context, pass).map(|_| ())
    }

    /// Removes the files of the passes.
    pub fn remove(&self, files: &dyn Files) -> Outcome {
        for name in [self.name.clone(), self.name_of_one_record()] {
            match files.unlink(&name) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                unlinked => unlinked.doing(|| format!("unlink {name}"))?,
            }
        }
        Ok(())
    }

    /// The file of record re-write, which always has one record.
    fn name_of_one_record(&self) -> String {
        format!("{}.one", self.name)
    }

    /// Runs one test.
    pub fn run(&mut self, context: Context<'_>, pass: Pass) -> Outcome<Timed> {
        if self.options.way == Way::Direct && !self.record_size.is_multiple_of(Aligned::UNIT as u64)
        {
            return Err(Trouble::Skip("O_DIRECT needs records of whole pages".into()));
        }
        if self.options.way != Way::Calls && pass.call == Call::Stream {
            return Err(Trouble::Skip(
                "streams are not run through memory maps or O_DIRECT".into(),
            ));
        }
        let same = pass.pattern == Pattern::Same;
        let name = if same { self.name_of_one_record() } else { self.name.clone() };
        let fresh = pass.fresh || same;
        let open = Open {
            write: pass.write,
            create: fresh,
            truncate: fresh,
            sync: self.options.sync && pass.write,
            direct: self.options.way == Way::Direct,
        };
        if pass.write && !same {
            self.version += 1;
        }
        let mut file = context.files.open(&name, open).doing(|| format!("open {name}"))?;
        let mut timed = Timed::default();
        match (self.options.way, pass.call) {
            (Way::Map, _) => self.through_map(context, pass, &*file, &mut timed)?,
            (_, Call::Stream) => self.through_stream(context, pass, &mut *file, &mut timed)?,
            _ => self.by_calls(context, pass, &mut *file, &mut timed)?,
        }
        let mapped = self.options.way == Way::Map;
        if self.options.flush && !mapped {
            timed.beside(|| file.sync(false)).doing(|| format!("fsync {name}"))?;
        } else if pass.write {
            file.sync(false).doing(|| format!("fsync {name}"))?;
        }
        if self.options.close {
            timed.beside(|| file.close()).doing(|| format!("close {name}"))?;
        } else {
            file.close().doing(|| format!("close {name}"))?;
        }
        Ok(timed)
    }

    fn by_calls(
        &mut self,
        context: Context<'_>,
        pass: Pass,
        file: &mut dyn OpenFile,
        timed: &mut Timed,
    ) -> Outcome {
        let in_order = pass.pattern == Pattern::Forward;
        for record in pass.pattern.records(self.records, self.seed) {
            context.check_stop()?;
            let offset = record * self.record_size;
            if pass.write {
                self.fill(offset);
            }
            let buffer = self.buffer.bytes();
            let done = timed.operation(|| match pass.call {
                Call::Positional if pass.write => file.write_at(buffer, offset),
                Call::Positional => read_whole(buffer, |part, at| file.read_at(part, offset + at)),
                _ => {
                    if !in_order {
                        file.seek(offset)?;
                    }
                    if pass.write {
                        file.write(buffer)
                    } else {
                        read_whole(buffer, |part, _| file.read(part))
                    }
                }
            });
            done.doing(|| self.doing(pass, offset))?;
            self.count(pass, offset, timed)?;
        }
        Ok(())
    }

    fn through_stream(
        &mut self,
        context: Context<'_>,
        pass: Pass,
        file: &mut dyn OpenFile,
        timed: &mut Timed,
    ) -> Outcome {
        let capacity = self.buffer.bytes().len();
        if pass.write {
            let mut stream = BufWriter::with_capacity(capacity, Stream(file));
            for record in 0..self.records {
                context.check_stop()?;
                self.fill(record * self.record_size);
                let buffer = self.buffer.bytes();
                timed
                    .operation(|| stream.write_all(buffer))
                    .doing(|| self.doing(pass, record * self.record_size))?;
                self.count(pass, record * self.record_size, timed)?;
            }
            timed.beside(|| stream.flush()).doing(|| format!("flush {}", self.name))?;
        } else {
            let mut stream = BufReader::with_capacity(capacity, Stream(file));
            for record in 0..self.records {
                context.check_stop()?;
                let buffer = self.buffer.bytes();
                timed
                    .operation(|| stream.read_exact(buffer))
                    .doing(|| self.doing(pass, record * self.record_size))?;
                self.count(pass, record * self.record_size, timed)?;
            }
            let more = stream.fill_buf().doing(|| format!("read {}", self.name))?;
            if !more.is_empty() {
                return Err(Trouble::Wrong {
                    what: format!("size of {}: there is more than was written", self.name),
                });
            }
        }
        Ok(())
    }

    fn through_map(
        &mut self,
        context: Context<'_>,
        pass: Pass,
        file: &dyn OpenFile,
        timed: &mut Timed,
    ) -> Outcome {
        let Some(descriptor) = file.descriptor() else {
            return Err(Trouble::Skip("a library has no memory maps".into()));
        };
        let records = if pass.pattern == Pattern::Same { 1 } else { self.records };
        let length = usize::try_from(records * self.record_size).unwrap_or(0);
        if pass.fresh || pass.pattern == Pattern::Same {
            file.set_len(length as u64).doing(|| format!("extend {}", self.name))?;
        }
        let mut map =
            map::Map::new(descriptor, length, pass.write).doing(|| format!("map {}", self.name))?;
        for record in pass.pattern.records(self.records, self.seed) {
            context.check_stop()?;
            let offset = record * self.record_size;
            if pass.write {
                self.fill(offset);
            }
            let start = usize::try_from(offset).unwrap_or(usize::MAX);
            let buffer = self.buffer.bytes();
            let inside = timed.operation(|| {
                if pass.write { map.write(start, buffer) } else { map.read(start, buffer) }
            });
            if !inside {
                return Err(Trouble::Wrong {
                    what: format!("size of {}: it ends before {offset}", self.name),
                });
            }
            self.count(pass, offset, timed)?;
        }
        if pass.write && self.options.flush {
            timed.beside(|| map.flush()).doing(|| format!("msync {}", self.name))?;
        }
        Ok(())
    }

    fn fill(&mut self, offset: u64) {
        self.content.fill(self.buffer.bytes(), self.file, offset, self.version.max(1));
    }

    fn count(&mut self, pass: Pass, offset: u64, timed: &mut Timed) -> Outcome {
        timed.bytes += self.record_size;
        if !pass.write {
            let version = self.version;
            self.content.compare(
                self.buffer.bytes(),
                self.expected.bytes(),
                self.file,
                offset,
                version,
            )?;
            timed.verification.bytes += self.record_size;
        }
        Ok(())
    }

    fn doing(&self, pass: Pass, offset: u64) -> String {
        format!("{} {} at {offset}", if pass.write { "write" } else { "read" }, self.name)
    }
}

/// Reads until the buffer is full; an earlier end of the file is an error.
fn read_whole(
    buffer: &mut [u8],
    mut read: impl FnMut(&mut [u8], u64) -> std::io::Result<usize>,
) -> std::io::Result<()> {
    let mut done = 0;
    while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match read(rest, done as u64)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            count => done += count,
        }
    }
    Ok(())
}

/// An open file as a stream of the standard library.
struct Stream<'f>(&'f mut dyn OpenFile);

impl Read for Stream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Stream<'_> {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        self.0.write(data).map(|()| data.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
