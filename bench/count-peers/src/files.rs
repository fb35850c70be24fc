//! The load for file systems: that of the rows of the same names in `steadfast-count`.
//!
//! These systems have paths only, so each operation also resolves a path of two names, and opens
//! and closes a file where it needs one. *Transact* is their sync of a file.

use steadfast_count::Result;
use steadfast_count::region::{Counts, Region};
use steadfast_count::volume::{
    BLOCK, DATA_EVERY, FILES_PER_DIRECTORY, Random, directory_name, file_name,
};

use crate::memory::Requests;

/// Rows of the table.
pub const OPERATIONS: [&str; 10] = [
    "create-2k",
    "mkdir",
    "rename",
    "unlink",
    "lookup-warm",
    "readdir",
    "read-4k",
    "overwrite-4k-transact",
    "append-32-transact",
    "append-4k-transact",
];
/// Repetitions of a batch, and counted batches after one that warms up.
const BATCH: u64 = 100;
const BATCHES: u64 = 2;

/// What the load needs of a file system.
pub trait Files {
    fn create(&self, path: &str, data: &[u8]) -> Result<()>;
    fn make_directory(&self, path: &str) -> Result<()>;
    fn rename(&self, from: &str, to: &str) -> Result<()>;
    fn remove(&self, path: &str) -> Result<()>;
    fn size(&self, path: &str) -> Result<u64>;
    fn entries(&self, path: &str) -> Result<usize>;
    fn read(&self, path: &str, buffer: &mut [u8]) -> Result<()>;
    /// Writes at the start or the end, and syncs.
    fn write(&self, path: &str, data: &[u8], append: bool) -> Result<()>;
}

fn path_of(file: u64) -> String {
    format!("{}/{}", directory_name(file / FILES_PER_DIRECTORY), file_name(file))
}

/// The same files as on Steadfast's volume.
pub fn fill(files: &impl Files, count: u64) -> Result<()> {
    let mut random = Random::new(count);
    let mut buffer = vec![0; BLOCK];
    for file in 0..count {
        if file % FILES_PER_DIRECTORY == 0 {
            files.make_directory(&directory_name(file / FILES_PER_DIRECTORY))?;
        }
        let small = 100 + random.below(200) as usize;
        let size = if file % DATA_EVERY == 0 { BLOCK } else { small };
        random.fill(&mut buffer[..size]);
        files.create(&path_of(file), &buffer[..size])?;
    }
    Ok(())
}

struct Load<'f, F> {
    files: &'f F,
    count: u64,
    random: Random,
    region: Region<'f>,
    /// New names so far.
    names: u64,
}

impl<F: Files> Load<'_, F> {
    fn any_directory(&mut self) -> String {
        directory_name(self.random.below(self.count / FILES_PER_DIRECTORY))
    }

    fn any_file(&mut self, every: u64) -> String {
        path_of(self.random.below(self.count / every) * every)
    }

    fn new_path(&mut self) -> String {
        self.names += 1;
        format!("{}/new-{:08}", self.any_directory(), self.names)
    }

    fn content(&mut self, length: usize) -> Vec<u8> {
        let mut content = vec![0; length];
        self.random.fill(&mut content);
        content
    }

    fn batch(&mut self, operation: &str) -> Result<()> {
        let files = self.files;
        let mut made = Vec::new();
        let content = self.content(match operation {
            "create-2k" | "unlink" => 2048,
            "append-32-transact" => 32,
            _ => BLOCK,
        });
        let mut buffer = vec![0; BLOCK];
        for number in 0..BATCH {
            match operation {
                "create-2k" => {
                    let path = self.new_path();
                    self.region.run(1, || files.create(&path, &content))?;
                    made.push(path);
                }
                // The directories stay: littlefs takes long to remove one.
                "mkdir" => {
                    let path = self.new_path();
                    self.region.run(1, || files.make_directory(&path))?;
                }
                "rename" => {
                    let path = self.any_file(1);
                    let directory = path.split('/').next().unwrap_or_default();
                    let new = format!("{directory}/new-{number:08}");
                    self.region.run(1, || files.rename(&path, &new))?;
                    files.rename(&new, &path)?;
                }
                "unlink" => {
                    let path = self.new_path();
                    files.create(&path, &content)?;
                    self.region.run(1, || files.remove(&path))?;
                }
                "lookup-warm" => {
                    let path = self.any_file(1);
                    self.region.run(1, || files.size(&path))?;
                }
                "readdir" => {
                    let path = self.any_directory();
                    let entries = self.region.run(1, || files.entries(&path))?;
                    assert!(entries >= 100, "a whole directory is listed");
                }
                "read-4k" => {
                    let path = self.any_file(DATA_EVERY);
                    self.region.run(1, || files.read(&path, &mut buffer))?;
                }
                "overwrite-4k-transact" => {
                    let path = self.any_file(DATA_EVERY);
                    self.region.run(1, || files.write(&path, &content, false))?;
                }
                "append-32-transact" | "append-4k-transact" => {
                    self.region.run(1, || files.write("directory-000000/log", &content, true))?;
                }
                _ => return Err(format!("{operation}: no such operation")),
            }
        }
        made.iter().try_for_each(|path| files.remove(path))
    }
}

/// Measures one operation on `count` files.
pub fn work(
    files: &impl Files,
    operation: &str,
    count: u64,
    requests: &Requests,
) -> Result<Counts> {
    let requests = || requests.get();
    let region = Region::new(&requests, false);
    let mut load = Load { files, count, random: Random::new(1), region, names: 0 };
    if operation.starts_with("append") {
        files.create("directory-000000/log", &load.content(BLOCK))?;
    }
    for _ in 0..=BATCHES {
        load.batch(operation)?;
        load.region.start();
    }
    Ok(load.region.counts())
}
