//! IOzone's `fileop`: each operation on names and attributes, with the time of every single
//! operation. The tree has X directories with X directories with X files (`-f X`).
//!
//! The order is IOzone's: mkdir, create, write, open, read, close, stat, access, chmod and readdir.
//! Then come link, rename, symlink, readlink, unlink (of the links), delete (of the files) and
//! rmdir. Files hold one record of `file_bytes`, as with `-s`.

use super::content::Content;
use super::{Bench, TestSpec, Timed, Workload};
use crate::result::Unit;
use crate::target::{Kind, Open};
use crate::trouble::Doing;
use crate::{Outcome, Trouble};

/// The operations, on a tree.
#[derive(Debug, Clone)]
pub struct FileOperations {
    /// X: X³ files in X² directories in X.
    pub force: u32,
    /// Bytes in each file.
    pub file_bytes: usize,
}

const NAMES: [&str; 17] = [
    "mkdir", "create", "write", "open", "read", "close", "stat", "access", "chmod", "readdir",
    "link", "rename", "symlink", "readlink", "unlink", "delete", "rmdir",
];

impl FileOperations {
    fn spec(&self, name: &str) -> TestSpec {
        let files = u64::from(self.force).pow(3);
        TestSpec::new("fileops", name, Unit::SecondsPerOperation)
            .with("files", files)
            .with("file_bytes", self.file_bytes as u64)
    }

    /// The directories, parents first.
    fn directories(&self) -> Vec<String> {
        let upper = (0..self.force).map(|upper| format!("d{upper}"));
        upper
            .flat_map(|upper| {
                std::iter::once(upper.clone())
                    .chain((0..self.force).map(move |lower| format!("{upper}/d{lower}")))
            })
            .collect()
    }

    /// The files, by directory.
    fn files(&self) -> Vec<String> {
        let lower = self.directories().into_iter().filter(|directory| directory.contains('/'));
        lower
            .flat_map(|directory| (0..self.force).map(move |file| format!("{directory}/f{file}")))
            .collect()
    }

    /// Times `operation` on each path.
    fn each<'p>(
        &self,
        bench: &mut Bench<'_>,
        name: &str,
        paths: impl Iterator<Item = &'p String>,
        mut operation: impl FnMut(&dyn crate::target::Files, &str) -> std::io::Result<()>,
    ) -> Outcome {
        let mut timed = Timed::default();
        let all = || -> Outcome {
            for path in paths {
                bench.check_stop()?;
                let files = bench.files()?;
                timed.operation(|| operation(files, path)).doing(|| format!("{name} {path}"))?;
            }
            Ok(())
        };
        let outcome = all();
        bench.enter_or_skip(&self.spec(name), outcome.map(|()| timed))
    }

    /// Times open, read or write, and close in one loop, because a file must be open to be closed.
    fn open_files(&self, bench: &mut Bench<'_>, paths: &[String]) -> Outcome {
        let content = Content::new(bench.seed, 0);
        let (mut buffer, mut expected) = (vec![0; self.file_bytes], vec![0; self.file_bytes]);
        let [mut create, mut write, mut open, mut read, mut close] =
            [(); 5].map(|()| Timed::default());
        for (number, path) in paths.iter().enumerate() {
            bench.check_stop()?;
            let files = bench.files()?;
            let mut file = create
                .operation(|| files.open(path, Open::CREATE))
                .doing(|| format!("create {path}"))?;
            content.fill(&mut buffer, number as u64, 0, 1);
            write.operation(|| file.write(&buffer)).doing(|| format!("write {path}"))?;
            file.close().doing(|| format!("close {path}"))?;
        }
        for (number, path) in paths.iter().enumerate() {
            bench.check_stop()?;
            let files = bench.files()?;
            let mut file =
                open.operation(|| files.open(path, Open::READ)).doing(|| format!("open {path}"))?;
            buffer.fill(0);
            let count =
                read.operation(|| file.read(&mut buffer)).doing(|| format!("read {path}"))?;
            close.operation(|| file.close()).doing(|| format!("close {path}"))?;
            let found = buffer.get(..count).unwrap_or_default();
            if count != expected.len() {
                return Err(Trouble::Wrong {
                    what: format!("size of {path}: {count} instead of {}", expected.len()),
                });
            }
            content.compare(found, &mut expected, number as u64, 0, 1)?;
            read.verification.bytes += count as u64;
        }
        for (name, mut timed) in
            [("create", create), ("write", write), ("open", open), ("read", read), ("close", close)]
        {
            timed.bytes = if matches!(name, "write" | "read") {
                (self.file_bytes * paths.len()) as u64
            } else {
                0
            };
            bench.enter(&self.spec(name), timed);
        }
        Ok(())
    }
}

impl Workload for FileOperations {
    fn label(&self) -> String {
        format!("fileops force={} file_bytes={}", self.force, self.file_bytes)
    }

    fn tests(&self) -> Vec<TestSpec> {
        NAMES.iter().map(|name| self.spec(name)).collect()
    }

    fn run(&self, bench: &mut Bench<'_>) -> Outcome {
        let (directories, files) = (self.directories(), self.files());
        let size = self.file_bytes as u64;
        self.each(bench, "mkdir", directories.iter(), |on, path| on.mkdir(path))?;
        self.open_files(bench, &files)?;
        let mut wrong = None;
        self.each(bench, "stat", files.iter(), |on, path| {
            let found = on.stat(path)?;
            if (found.kind, found.size) != (Kind::File, size) {
                wrong.get_or_insert_with(|| format!("attributes of {path}: {found:?}"));
            }
            Ok(())
        })?;
        self.each(bench, "access", files.iter(), |on, path| on.access(path))?;
        self.each(bench, "chmod", files.iter(), |on, path| on.chmod(path, 0o600))?;
        let lower = directories.iter().filter(|path| path.contains('/'));
        self.each(bench, "readdir", lower, |on, path| {
            let count = on.readdir(path)?.len();
            if count != self.force as usize {
                wrong.get_or_insert_with(|| format!("directory {path}: {count} names"));
            }
            Ok(())
        })?;
        if let Some(what) = wrong {
            return Err(Trouble::Wrong { what });
        }
        self.each(bench, "link", files.iter(), |on, path| on.link(path, &format!("{path}.l")))?;
        let linked =
            bench.files()?.stat(&format!("{}.l", files.first().map_or("", String::as_str))).is_ok();
        let suffix = if linked { "l" } else { "r" };
        if linked {
            self.each(bench, "rename", files.iter(), |on, path| {
                on.rename(&format!("{path}.l"), &format!("{path}.r"))
            })?;
        } else {
            // Without links, the files themselves are renamed there and (untimed) back.
            self.each(bench, "rename", files.iter(), |on, path| {
                on.rename(path, &format!("{path}.{suffix}"))
            })?;
            for path in &files {
                bench
                    .files()?
                    .rename(&format!("{path}.{suffix}"), path)
                    .doing(|| format!("rename {path}"))?;
            }
        }
        self.each(bench, "symlink", files.iter(), |on, path| {
            on.symlink("target", &format!("{path}.s"))
        })?;
        self.each(bench, "readlink", files.iter(), |on, path| {
            on.readlink(&format!("{path}.s")).map(|_| ())
        })?;
        let symlinked = bench.has_value(&self.spec("symlink"));
        if linked {
            self.each(bench, "unlink", files.iter(), |on, path| on.unlink(&format!("{path}.r")))?;
        } else {
            bench.skip(&self.spec("unlink"), "there are no hard links to unlink".into());
        }
        if symlinked {
            for path in &files {
                bench.files()?.unlink(&format!("{path}.s")).doing(|| format!("unlink {path}.s"))?;
            }
        }
        self.each(bench, "delete", files.iter(), |on, path| on.unlink(path))?;
        self.each(bench, "rmdir", directories.iter().rev(), |on, path| on.rmdir(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_has_a_cube_of_files() {
        let operations = FileOperations { force: 3, file_bytes: 1 };
        assert_eq!(operations.directories()[..5], ["d0", "d0/d0", "d0/d1", "d0/d2", "d1"]);
        assert_eq!(operations.directories().len(), 12);
        assert_eq!(operations.files().len(), 27);
        assert_eq!(operations.files()[26], "d2/d2/f2");
    }
}
