//! IOzone's options, by letter.

use serde::{Deserialize, Serialize};

use super::Iozone;
use crate::{Outcome, Trouble};

/// How the file is accessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Way {
    /// Read and write calls.
    #[default]
    Calls,
    /// Through a memory map (`-B`).
    Map,
    /// O_DIRECT, which bypasses the page cache (`-I`).
    Direct,
}

impl Way {
    /// The name for parameters.
    pub fn name(self) -> &'static str {
        match self {
            Way::Calls => "calls",
            Way::Map => "mmap",
            Way::Direct => "O_DIRECT",
        }
    }
}

/// A test group of `-i`: IOzone runs some tests in pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TestGroup {
    /// 0: write, re-write.
    Write,
    /// 1: read, re-read.
    Read,
    /// 2: random read, random write.
    Random,
    /// 3: backward read.
    Backward,
    /// 4: record re-write.
    RecordRewrite,
    /// 5: stride read.
    Stride,
    /// 6: fwrite, re-fwrite.
    Fwrite,
    /// 7: fread, re-fread.
    Fread,
    /// 9: pwrite, re-pwrite.
    Pwrite,
    /// 10: pread, re-pread.
    Pread,
}

/// All options except the sizes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// `-i`: the selected tests; empty means all.
    pub groups: Vec<TestGroup>,
    /// `-e`: the time includes fsync.
    pub flush: bool,
    /// `-c`: the time includes close.
    pub close: bool,
    /// `-o`: files are written with O_SYNC.
    pub sync: bool,
    /// `-U`: the volume is unmounted, the caches are emptied, and it is mounted again before each
    /// read test.
    pub cold: bool,
    /// `-B` and `-I`.
    pub way: Way,
    /// `-+w`: percentage of each record that is identical everywhere.
    pub dedupable: u8,
    /// `-j`: stride in records.
    pub stride: u64,
    /// `-t`: number of processes or threads, each with its own file; at least 1.
    pub threads: u64,
    /// Whether `-t` counts processes; with `-T` it counts threads of one process.
    pub processes: bool,
}

impl Options {
    /// The name of the parameter for `-t`.
    pub fn crew(&self) -> &'static str {
        if self.processes { "processes" } else { "threads" }
    }
}

impl Default for Options {
    fn default() -> Self {
        Options {
            groups: Vec::new(),
            flush: false,
            close: false,
            sync: false,
            cold: false,
            way: Way::Calls,
            dedupable: 0,
            stride: 17,
            threads: 1,
            processes: true,
        }
    }
}

/// Sizes of the automatic matrix, bytes.
const RECORD_LEAST: u64 = 4 << 10;
const RECORD_MOST: u64 = 16 << 20;
const FILE_LEAST: u64 = 64 << 10;
const FILE_MOST: u64 = 512 << 20;
/// For files of at least this size, records below [`SMALL_RECORD`] are left out unless `-z` is
/// given.
const LARGE_FILE: u64 = 32 << 20;
const SMALL_RECORD: u64 = 64 << 10;

/// More threads than any machine can use.
const THREADS_MOST: u64 = 256;

/// The matrix of `-a`: each doubling of the file size with each doubling of the record size that
/// fits.
pub(super) fn matrix(file: (u64, u64), record: (u64, u64), all: bool) -> Vec<(u64, Vec<u64>)> {
    let doublings = |(least, most): (u64, u64)| {
        std::iter::successors(Some(least), |size| size.checked_mul(2))
            .take_while(move |size| *size <= most)
    };
    let mut cells = Vec::new();
    for file_size in doublings(file) {
        let fits = |size: &u64| {
            *size <= file_size && (all || file_size < LARGE_FILE || *size >= SMALL_RECORD)
        };
        let records: Vec<u64> = doublings(record).filter(fits).collect();
        if !records.is_empty() {
            cells.push((file_size, records));
        }
    }
    cells
}

impl Iozone {
    /// The workloads that IOzone would run with these words: `-a -e -c -+w 1 -g 128m -q 16m`. `-s`
    /// and `-r` (several times) may replace `-a`. `-R` (Excel output) has no effect.
    ///
    /// # Errors
    /// `Skip` with the word that is not understood.
    pub fn parse(text: &str) -> Outcome<Vec<Iozone>> {
        let mut options = Options::default();
        let (mut file, mut record) = ((FILE_LEAST, FILE_MOST), (RECORD_LEAST, RECORD_MOST));
        let (mut files, mut records) = (Vec::new(), Vec::new());
        let mut all = false;
        let mut words = text.split_whitespace();
        while let Some(word) = words.next() {
            let Some(letters) = word.strip_prefix('-') else {
                return Err(Trouble::Skip(format!("IOzone has no option '{word}'")));
            };
            let mut value = || {
                words
                    .next()
                    .ok_or_else(|| Trouble::Skip(format!("IOzone's option {word} needs a value")))
            };
            match letters {
                "i" => options.groups.push(group(value()?)?),
                "s" => files.push(size(value()?)?),
                "r" => records.push(size(value()?)?),
                "g" => file.1 = size(value()?)?,
                "n" => file.0 = size(value()?)?,
                "q" => record.1 = size(value()?)?,
                "y" => record.0 = size(value()?)?,
                "t" => options.threads = number(value()?)?.clamp(1, THREADS_MOST),
                "j" => options.stride = number(value()?)?.max(1),
                "+w" => options.dedupable = number(value()?)?.min(100) as u8,
                _ => {
                    for letter in letters.chars() {
                        match letter {
                            'a' | 'R' => {}
                            'z' => all = true,
                            'e' => options.flush = true,
                            'c' => options.close = true,
                            'o' => options.sync = true,
                            'T' => options.processes = false,
                            'U' => options.cold = true,
                            'B' => options.way = Way::Map,
                            'I' => options.way = Way::Direct,
                            _ => {
                                return Err(Trouble::Skip(format!(
                                    "the lab does not know IOzone's option -{letter}"
                                )));
                            }
                        }
                    }
                }
            }
        }
        let cells = match (files.is_empty(), records.is_empty()) {
            (true, true) => matrix(file, record, all),
            (true, false) => matrix(file, record, true)
                .into_iter()
                .map(|(file_size, _)| {
                    (file_size, records.iter().copied().filter(|size| *size <= file_size).collect())
                })
                .collect(),
            (false, _) => files
                .iter()
                .map(|file_size| {
                    let all = if records.is_empty() { vec![RECORD_LEAST] } else { records.clone() };
                    (*file_size, all.into_iter().filter(|size| size <= file_size).collect())
                })
                .collect(),
        };
        let cells: Vec<(u64, Vec<u64>)> =
            cells.into_iter().filter(|(_, records)| !records.is_empty()).collect();
        if cells.is_empty() {
            return Err(Trouble::Skip(
                "no record fits a file: see -s, -r, -n, -g, -y and -q".into(),
            ));
        }
        let build = |(file_size, record_sizes)| Iozone {
            file_size,
            record_sizes,
            options: options.clone(),
        };
        Ok(cells.into_iter().map(build).collect())
    }
}

fn group(word: &str) -> Outcome<TestGroup> {
    use TestGroup::*;
    let known = [
        ("0", Write),
        ("1", Read),
        ("2", Random),
        ("3", Backward),
        ("4", RecordRewrite),
        ("5", Stride),
        ("6", Fwrite),
        ("7", Fread),
        ("9", Pwrite),
        ("10", Pread),
    ];
    let found = known.into_iter().find(|(number, _)| *number == word);
    found
        .map(|(_, group)| group)
        .ok_or_else(|| Trouble::Skip(format!("the lab does not know IOzone's test -i {word}")))
}

fn number(word: &str) -> Outcome<u64> {
    word.parse().map_err(|_| Trouble::Skip(format!("'{word}' is not a number")))
}

/// A size in IOzone's form: KiB without a letter, otherwise k, m or g.
fn size(word: &str) -> Outcome<u64> {
    let lower = word.to_ascii_lowercase();
    let (digits, shift) = match lower.strip_suffix(['k', 'm', 'g']) {
        Some(digits) if lower.ends_with('m') => (digits, 20),
        Some(digits) if lower.ends_with('g') => (digits, 30),
        Some(digits) => (digits, 10),
        None => (lower.as_str(), 10),
    };
    let size = number(digits)?.checked_mul(1 << shift).filter(|size| *size > 0 && *size <= 1 << 50);
    size.ok_or_else(|| Trouble::Skip(format!("'{word}' is not a size for a file or record")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_matrix_is_iozones() {
        let cells = matrix((64 << 10, 512 << 20), (4 << 10, 16 << 20), false);
        assert_eq!(cells.len(), 14);
        assert_eq!(cells[0], (64 << 10, vec![4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10]));
        // 4 KiB to 16 MiB is 13 doublings; four of them are below 64 KiB.
        assert_eq!(cells[8].1.len(), 13);
        assert_eq!(cells[9].0, 32 << 20);
        assert_eq!(cells[9].1.len(), 9);
        assert_eq!(matrix((64 << 10, 512 << 20), (4 << 10, 16 << 20), true)[9].1.len(), 13);
    }

    #[test]
    fn the_command_lines_of_the_published_test() {
        let runs = Iozone::parse("-Raze -+w 1 -q 16m -g 128m").expect("parsed");
        assert_eq!(runs.len(), 12);
        assert!(
            runs.iter()
                .all(|run| run.options.flush && !run.options.close && run.options.dedupable == 1)
        );
        assert_eq!(
            runs.last().map(|run| (run.file_size, run.record_sizes.len())),
            Some((128 << 20, 13))
        );
        let runs = Iozone::parse("-s 100m -r 8k -r 128 -i 0 -i 1 -ceo").expect("parsed");
        assert_eq!(runs.len(), 1);
        assert_eq!(runs[0].record_sizes, [8 << 10, 128 << 10]);
        assert_eq!(runs[0].options.groups, [TestGroup::Write, TestGroup::Read]);
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for text in
            ["-x", "-s", "-s x", "a", "-i 8", "-s 4k -r 8k", "-g 0", "-q 99999999999999999g"]
        {
            let error = Iozone::parse(text).expect_err(text).to_string();
            assert!(!error.is_empty() && !error.contains('\n'), "{error}");
        }
    }
}
