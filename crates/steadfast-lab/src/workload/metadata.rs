//! Names and attributes, by one client or several at once, each in a separate directory. No data
//! moves, and the cost of FUSE is highest here.
//!
//! The tests use files of 2 KiB, in this order: `create` (open, write, close), `stat`, `open-read`
//! (open, read, close) and `readdir` (the whole directory). The last three then run again as
//! `…-forgotten`, after the kernel has dropped names and attributes (`drop_caches`). So those
//! measure the file system and not the kernel's cache. `rename` and `unlink` follow.
//!
//! The daemon, and the device below, keep their caches. A library has no kernel cache, so both
//! variants are equal there.

use super::content::Content;
use super::parallel::{self, check};
use super::{Bench, TestSpec, Timed, Workload};
use crate::measure::drop_names;
use crate::result::Unit;
use crate::run::Stop;
use crate::target::{Files, Open};
use crate::trouble::Doing;
use crate::{Outcome, Trouble};

/// Work on names.
#[derive(Debug, Clone, Copy)]
pub struct Metadata {
    /// Number of concurrent clients: threads.
    pub clients: u64,
    /// Files per client.
    pub files: u64,
}

const BYTES: usize = 2048;
/// Number of listings of a directory.
const LISTS: u64 = 5;
const FORGOTTEN: &str = "-forgotten";
const NAMES: [&str; 9] = [
    "create",
    "stat",
    "open-read",
    "readdir",
    "stat-forgotten",
    "open-read-forgotten",
    "readdir-forgotten",
    "rename",
    "unlink",
];

impl Metadata {
    fn spec(&self, name: &str) -> TestSpec {
        TestSpec::new("metadata", name, Unit::OperationsPerSecond)
            .with("clients", self.clients)
            .with("files", self.files)
    }

    /// Runs one test as one client.
    fn client(
        &self,
        name: &str,
        client: u64,
        files: &dyn Files,
        stop: &Stop,
        content: &Content,
    ) -> Outcome<Timed> {
        let mut timed = Timed::default();
        let directory = format!("m{client}");
        let (mut data, mut expected) = (vec![0; BYTES], vec![0; BYTES]);
        let rounds = if name == "readdir" { 1 } else { self.files };
        for number in 0..rounds {
            check(stop)?;
            let path = format!("{directory}/f{number}");
            let moved = format!("{directory}/r{number}");
            let file = client << 32 | number;
            let doing = || format!("{name} {path}");
            match name {
                "create" => {
                    content.fill(&mut data, file, 0, 1);
                    let made = timed.operation(|| {
                        let mut file = files.open(&path, Open::CREATE)?;
                        file.write(&data)?;
                        file.close()
                    });
                    made.doing(doing)?;
                }
                "stat" => {
                    let found = timed.operation(|| files.stat(&path)).doing(doing)?;
                    if found.size != BYTES as u64 {
                        return Err(Trouble::Wrong {
                            what: format!("size of {path}: {}", found.size),
                        });
                    }
                }
                "open-read" => {
                    let count = timed.operation(|| {
                        let mut file = files.open(&path, Open::READ)?;
                        let count = file.read(&mut data)?;
                        file.close()?;
                        Ok(count)
                    });
                    let found = data.get(..count.doing(doing)?).unwrap_or_default();
                    content.compare(found, &mut expected, file, 0, 1)?;
                    timed.verification.bytes += BYTES as u64;
                }
                "readdir" => {
                    let names = timed.operation(|| files.readdir(&directory)).doing(doing)?;
                    if names.len() as u64 != self.files {
                        let what = format!("directory {directory}: {} names", names.len());
                        return Err(Trouble::Wrong { what });
                    }
                }
                "rename" => timed.operation(|| files.rename(&path, &moved)).doing(doing)?,
                _ => timed.operation(|| files.unlink(&moved)).doing(doing)?,
            }
            timed.verification.items += 1;
        }
        Ok(timed)
    }

    fn test(&self, bench: &mut Bench<'_>, name: &str, content: &Content) -> Outcome {
        let plain = name.strip_suffix(FORGOTTEN).unwrap_or(name);
        let mut sum = Timed::default();
        for _ in 0..if plain == "readdir" { LISTS } else { 1 } {
            if plain != name {
                bench.settle()?;
                drop_names()?;
            }
            let mut clients: Vec<u64> = (0..self.clients.max(1)).collect();
            let done = parallel::each(bench, &mut clients, |client, files, stop| {
                self.client(plain, *client, files, stop, content)
            });
            let mut timed = Timed::default();
            done?.into_iter().for_each(|one| timed.join_beside(one));
            sum.join_after(timed);
        }
        bench.enter(&self.spec(name), sum);
        Ok(())
    }
}

impl Workload for Metadata {
    fn label(&self) -> String {
        format!("metadata clients={} files={}", self.clients, self.files)
    }

    fn tests(&self) -> Vec<TestSpec> {
        NAMES.map(|name| self.spec(name)).into()
    }

    fn run(&self, bench: &mut Bench<'_>) -> Outcome {
        bench.check_directory(self.files)?;
        let content = Content::new(bench.seed, 0);
        for client in 0..self.clients.max(1) {
            let directory = format!("m{client}");
            bench.files()?.mkdir(&directory).doing(|| format!("mkdir {directory}"))?;
        }
        for name in NAMES {
            match self.test(bench, name, &content) {
                Err(Trouble::Skip(reason)) if name.ends_with(FORGOTTEN) => {
                    bench.skip(&self.spec(name), reason);
                }
                tested => tested?,
            }
        }
        Ok(())
    }
}
