//! File system load for flash, in a guest that contains only this program: see bench/nand.sh.
//!
//! Each command prints lines `name value`. Values are in milliseconds if the name says so.
//!
//! - `write FILE MIB`, `read FILE MIB`: sequential records of 4 KiB, then the same again; the time
//!   of writing includes fsync;
//! - `fileops DIR COUNT`: COUNT operations of each kind on names, with their mean times;
//! - `fill DIR`: writes incompressible files of 64 KiB until no space is left;
//! - `make-room DIR`: removes every tenth of these files;
//! - `overwrite DIR COUNT`: overwrites 4 KiB in one file after another, each made durable by fsync;
//! - `random DIR FROM COUNT`: the same at random places in all files except those of `overwrite`;
//!   FROM continues an earlier sequence;
//! - `verify DIR`: reads all files and compares them with the acknowledged data.

use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use steadfast_media::Random;

/// Size of a file in bytes.
const FILE: usize = 64 << 10;
/// Size of an overwrite in bytes.
const RECORD: usize = 4 << 10;
/// Number of files that `overwrite` uses.
const OVERWRITTEN: usize = 20;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["write", file, mib] => write(Path::new(file), mib.parse()?),
        ["read", file, mib] => read(Path::new(file), mib.parse()?),
        ["fileops", directory, count] => file_operations(Path::new(directory), count.parse()?),
        ["fill", directory] => fill(Path::new(directory)),
        ["make-room", directory] => make_room(Path::new(directory)),
        ["overwrite", directory, count] => overwrite(Path::new(directory), count.parse()?),
        ["random", directory, from, count] => random(Path::new(directory), from.parse()?, count.parse()?),
        ["verify", directory] => verify(Path::new(directory)),
        _ => {
            Err("usage: flash_load write|read FILE MIB, fileops|overwrite DIR COUNT, random DIR FROM COUNT, \
                  fill|make-room|verify DIR"
                .into())
        }
    }
}

fn path(directory: &Path, index: usize) -> PathBuf {
    directory.join(format!("d{}", index / 100)).join(format!("f{index}"))
}

/// Incompressible bytes, the same for the same number.
fn noise(number: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    Random::new(number).fill(&mut bytes);
    bytes
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn speed(name: &str, mib: usize, time: Duration) {
    println!("{name}_kib_s {:.0}", mib as f64 * 1024.0 / time.as_secs_f64());
}

fn write(path: &Path, mib: usize) -> Result<(), Box<dyn Error>> {
    for (pass, name) in ["write", "rewrite"].into_iter().enumerate() {
        let records: Vec<Vec<u8>> =
            (0..256).map(|record| noise(record << 8 | pass as u64, RECORD)).collect();
        let start = Instant::now();
        let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        for record in records.iter().cycle().take(mib * 256) {
            file.write_all(record)?;
        }
        file.sync_all()?;
        speed(name, mib, start.elapsed());
    }
    Ok(())
}

fn read(path: &Path, mib: usize) -> Result<(), Box<dyn Error>> {
    for name in ["read", "reread"] {
        let mut record = vec![0; RECORD];
        let start = Instant::now();
        let mut file = File::open(path)?;
        for number in 0..mib as u64 * 256 {
            file.read_exact(&mut record)?;
            if number % 64 == 0 && record != noise((number % 256) << 8 | 1, RECORD) {
                return Err(
                    format!("{}: record {number} is not what was written", path.display()).into()
                );
            }
        }
        speed(name, mib, start.elapsed());
    }
    Ok(())
}

fn file_operations(directory: &Path, count: usize) -> Result<(), Box<dyn Error>> {
    type Operation = (&'static str, fn(&Path) -> io::Result<()>);
    let operations: [Operation; 12] = [
        ("mkdir", |path| fs::create_dir(path.with_extension("d"))),
        ("create", |path| File::create(path).map(drop)),
        ("write", |path| fs::write(path, [0x55; 100])),
        ("open", |path| File::open(path).map(drop)),
        ("access", |path| {
            rustix::fs::access(path, rustix::fs::Access::READ_OK).map_err(Into::into)
        }),
        ("stat", |path| fs::metadata(path).map(drop)),
        ("chmod", |path| rustix::fs::chmod(path, rustix::fs::Mode::RUSR).map_err(Into::into)),
        ("link", |path| fs::hard_link(path, path.with_extension("l"))),
        ("rename", |path| fs::rename(path.with_extension("l"), path.with_extension("m"))),
        ("symlink", |path| std::os::unix::fs::symlink("target", path.with_extension("s"))),
        ("unlink", |path| fs::remove_file(path.with_extension("m"))),
        ("rmdir", |path| fs::remove_dir(path.with_extension("d"))),
    ];
    fs::create_dir_all(directory)?;
    for (name, operation) in operations {
        let start = Instant::now();
        for index in 0..count {
            operation(&directory.join(format!("f{index}")))?;
        }
        println!("fileops_{name}_ms {:.3}", milliseconds(start.elapsed()) / count.max(1) as f64);
    }
    Ok(())
}

fn fill(directory: &Path) -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let mut worst = Duration::ZERO;
    let mut files = 0;
    loop {
        let path = path(directory, files);
        let one = Instant::now();
        let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| {
            let mut file = File::create(&path)?;
            file.write_all(&noise(files as u64, FILE))?;
            file.sync_all()
        });
        match written {
            Ok(()) => files += 1,
            Err(error) if error.kind() == io::ErrorKind::StorageFull => break,
            Err(error) => return Err(error.into()),
        }
        worst = worst.max(one.elapsed());
    }
    // The file that did not fit.
    let _ = fs::remove_file(path(directory, files));
    println!("fill_files {files}");
    println!("fill_ms {:.1}", milliseconds(start.elapsed()));
    println!("fill_worst_ms {:.1}", milliseconds(worst));
    Ok(())
}

/// The number of files, rounded up to a multiple of ten.
fn count_files(directory: &Path) -> usize {
    // Files whose number is a multiple of ten may have been removed.
    (0..).find(|index| !path(directory, index * 10 + 1).exists()).map_or(0, |tens| tens * 10)
}

fn make_room(directory: &Path) -> Result<(), Box<dyn Error>> {
    for index in (0..count_files(directory)).step_by(10) {
        fs::remove_file(path(directory, index))?;
    }
    Ok(())
}

/// The place of overwrite `number`: a file and an offset in it.
fn place(number: usize) -> (usize, u64) {
    (1 + 10 * (number % OVERWRITTEN), ((number / OVERWRITTEN) % (FILE / RECORD) * RECORD) as u64)
}

fn overwrite(directory: &Path, count: usize) -> Result<(), Box<dyn Error>> {
    let mut latencies = Vec::with_capacity(count);
    for number in 0..count {
        let (index, offset) = place(number);
        let record = noise((number as u64) << 32 | 0xffff, RECORD);
        latencies.push(replace(&path(directory, index), offset, &record)?);
        // This output records which overwrites were acknowledged.
        println!("acknowledged {number}");
    }
    print_latencies("overwrite", &latencies);
    Ok(())
}

/// Overwrites a part of a file durably and returns the duration.
fn replace(path: &Path, offset: u64, record: &[u8]) -> io::Result<Duration> {
    let start = Instant::now();
    let mut file = OpenOptions::new().write(true).open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    file.write_all(record)?;
    file.sync_all()?;
    Ok(start.elapsed())
}

fn print_latencies(name: &str, latencies: &[Duration]) {
    let total: Duration = latencies.iter().sum();
    println!("{name}_mean_ms {:.2}", milliseconds(total) / latencies.len().max(1) as f64);
    println!(
        "{name}_worst_ms {:.1}",
        milliseconds(latencies.iter().max().copied().unwrap_or_default())
    );
}

/// The data that `random` writes to record `at` of file `index`.
fn drawn(index: usize, at: usize) -> Vec<u8> {
    noise(1 << 63 | (index as u64) << 16 | at as u64, RECORD)
}

/// Whether `overwrite` uses the file. Its contents show the acknowledged overwrites, so no other
/// command writes to it.
fn is_overwritten(index: usize) -> bool {
    index % 10 == 1 && index / 10 < OVERWRITTEN
}

fn random(directory: &Path, from: usize, count: usize) -> Result<(), Box<dyn Error>> {
    // Some of the last ten files may be missing.
    let files = count_files(directory).saturating_sub(10);
    let places =
        (0..files).filter(|index| index % 10 != 0 && !is_overwritten(*index)).collect::<Vec<_>>();
    if places.is_empty() {
        return Err(format!("{}: fill it first", directory.display()).into());
    }
    let mut random = Random::new(1);
    let mut latencies = Vec::with_capacity(count);
    for number in 0..from + count {
        let at = random.below((FILE / RECORD) as u64) as usize;
        let index = places[random.below(places.len() as u64) as usize];
        if number < from {
            continue;
        }
        latencies.push(replace(&path(directory, index), (at * RECORD) as u64, &drawn(index, at))?);
    }
    print_latencies("random", &latencies);
    Ok(())
}

/// Every file must have the contents of `fill`, or of `random` in some records. Each 4 KiB of the
/// overwritten files must be from `fill` or from an overwrite. The caller compares the number of
/// overwrites with the acknowledged number; they are counted up to the first missing one.
fn verify(directory: &Path) -> Result<(), Box<dyn Error>> {
    let (mut wrong, mut files, mut present) = (0, 0, Vec::new());
    let count = count_files(directory);
    for index in 0..count {
        // The file was removed on purpose, or is after the last one.
        let may_be_missing = index % 10 == 0 || index + 10 > count;
        let mut bytes = Vec::new();
        match File::open(path(directory, index)) {
            Ok(mut file) => file.read_to_end(&mut bytes).map(|_| ())?,
            Err(error) if error.kind() == io::ErrorKind::NotFound && may_be_missing => continue,
            Err(error) => return Err(error.into()),
        }
        files += 1;
        let original = noise(index as u64, FILE);
        if bytes == original {
            continue;
        }
        for (at, record) in bytes.chunks(RECORD).enumerate() {
            let offset = at * RECORD;
            let drawn = || !is_overwritten(index) && record == drawn(index, at);
            if original.get(offset..offset + record.len()) == Some(record) || drawn() {
                continue;
            }
            // Each place is overwritten again after this many overwrites.
            let again = OVERWRITTEN * (FILE / RECORD);
            let first = at * OVERWRITTEN + index / 10;
            let found = (0..100).map(|round| first + round * again).find(|number| {
                place(*number) == (index, offset as u64)
                    && record == noise((*number as u64) << 32 | 0xffff, RECORD)
            });
            match found {
                Some(number) => present.push(number),
                None => wrong += 1,
            }
        }
        if bytes.len() != FILE {
            wrong += 1;
        }
    }
    println!("verify_files {files}");
    println!("verify_wrong {wrong}");
    println!("verify_newest {}", present.iter().max().map_or(-1, |number| *number as i64));
    println!("verify_overwrites {}", present.len());
    if wrong == 0 { Ok(()) } else { Err("there are bytes that no writer wrote".into()) }
}
