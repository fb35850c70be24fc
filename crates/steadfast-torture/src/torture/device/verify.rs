//! After the power is back: checks that all acknowledged transactions exist, and which component
//! lost the missing ones.

use std::collections::BTreeMap;
use std::fmt;

use steadfast::check::{CheckOptions, Severity, check};
use steadfast::fs::FileKind;
use steadfast::{InodeNumber, Platform, Volume};
use steadfast_media::Medium;

use super::DeviceError;
use super::layout::Layout;
use super::probe::{self, Unit};
use super::witness::Witness;
use super::workload::{DIRECTORIES, Tree};
use super::writer::{NUMBER_FILE, number_on, open};

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BrokenPromise {
    /// The medium acknowledged a flush after this raw record and has lost it: it lies about
    /// flushes.
    FlushLost {
        /// The transaction of that record.
        number: u64,
    },
    /// A unit of the medium is neither old nor new: the medium tears inside its atomic unit, or the
    /// unit has rotted.
    UnitTorn {
        /// Position, bytes.
        offset: u64,
    },
    /// The volume is at an earlier transaction than the acknowledged one.
    TransactionLost {
        /// The transaction on the volume.
        found: u64,
        /// The acknowledged transaction.
        committed: u64,
    },
    /// The volume cannot be opened, fails its own check, or is in a state that no transaction left.
    Volume(String),
}

impl BrokenPromise {
    /// Whether the fault is in the medium itself, independent of any file system.
    pub fn is_of_medium(&self) -> bool {
        matches!(self, BrokenPromise::FlushLost { .. } | BrokenPromise::UnitTorn { .. })
    }
}

impl fmt::Display for BrokenPromise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BrokenPromise::FlushLost { number } => {
                write!(
                    f,
                    "the medium has lost raw record {number}, which it had acknowledged as flushed"
                )
            }
            BrokenPromise::UnitTorn { offset } => {
                write!(
                    f,
                    "the medium has torn the atomic unit at byte {offset}: it is neither old nor new"
                )
            }
            BrokenPromise::TransactionLost { found, committed } => {
                write!(
                    f,
                    "the volume is after transaction {found}, but {committed} was acknowledged"
                )
            }
            BrokenPromise::Volume(what) => f.write_str(what),
        }
    }
}

/// The result.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeviceVerdict {
    /// The last transaction on the volume, if known.
    pub found: Option<u64>,
    /// Raw records that were checked because a flush of them was acknowledged.
    pub records: u64,
    /// Raw records with old and new units, torn between units as every medium may do.
    pub records_mixed: u64,
    /// All broken promises.
    pub faults: Vec<BrokenPromise>,
}

impl DeviceVerdict {
    /// The component at fault, in a sentence; `None` if nothing is wrong.
    pub fn blame(&self) -> Option<&'static str> {
        let medium = self.faults.iter().any(BrokenPromise::is_of_medium);
        match (self.faults.is_empty(), medium) {
            (true, _) => None,
            (false, true) => Some(
                "the medium broke its promises: nothing that relies on its flushes is safe on it, Steadfast included",
            ),
            (false, false) => Some(
                "every raw record that the medium had flushed is there: the fault is in Steadfast, please report it",
            ),
        }
    }
}

/// Judges a prepared medium after the power was cut or the process was killed. Writes nothing.
///
/// # Errors
/// `NotPrepared`, also if the witness belongs to another run; the medium's errors while reading raw
/// records.
pub fn verify<M: Medium, P: Platform>(
    medium: &M,
    platform: &P,
    witness: &Witness,
) -> Result<DeviceVerdict, DeviceError> {
    let layout = Layout::read(medium)?;
    if witness.run.is_some_and(|run| run != layout.run) {
        return Err(DeviceError::NotPrepared);
    }
    let mut verdict = DeviceVerdict::default();
    verify_records(medium, &layout, witness.flushed, &mut verdict)?;
    match verify_volume(medium, platform, &layout) {
        Ok(found) => {
            verdict.found = Some(found);
            if found < witness.committed {
                verdict
                    .faults
                    .push(BrokenPromise::TransactionLost { found, committed: witness.committed });
            }
        }
        Err(what) => verdict.faults.push(BrokenPromise::Volume(what)),
    }
    Ok(verdict)
}

/// Checks the ring: the last `records` numbers up to `flushed` must exist, or newer ones in their
/// places.
fn verify_records<M: Medium>(
    medium: &M,
    layout: &Layout,
    flushed: u64,
    verdict: &mut DeviceVerdict,
) -> Result<(), DeviceError> {
    for place in 0..layout.records {
        // The newest acknowledged number that belongs in this place.
        let back = (flushed % layout.records + layout.records - place) % layout.records;
        let newest = flushed.checked_sub(back).filter(|number| *number > 0);
        let units = probe::read(medium, layout, place)?;
        let mut older = false;
        for (index, unit) in units.iter().enumerate() {
            match unit {
                Unit::Garbage => verdict.faults.push(BrokenPromise::UnitTorn {
                    offset: layout.record_offset(place) + index as u64 * u64::from(layout.unit),
                }),
                Unit::Blank => older |= newest.is_some(),
                Unit::Record(number) => older |= newest.is_some_and(|newest| *number < newest),
            }
        }
        if let Some(number) = newest {
            verdict.records += 1;
            if older {
                verdict.faults.push(BrokenPromise::FlushLost { number });
            }
        }
        verdict.records_mixed += u64::from(units.windows(2).any(|pair| pair[0] != pair[1]));
    }
    Ok(())
}

fn verify_volume<M: Medium, P: Platform>(
    medium: &M,
    platform: &P,
    layout: &Layout,
) -> Result<u64, String> {
    let options = CheckOptions { data: true, cache_size: 16 << 20 };
    let report = check(medium, platform, &options, &mut |_| ())
        .map_err(|error| format!("the volume cannot be checked: {error}"))?;
    if let Some(finding) =
        report.findings.iter().find(|finding| finding.severity == Severity::Damaged)
    {
        return Err(format!("the volume is damaged: {}", finding.text));
    }
    let volume = open(medium, platform, true)
        .map_err(|error| format!("the volume does not open: {error}"))?;
    let number =
        number_on(&volume).map_err(|error| format!("the number of the transaction: {error}"))?;
    let tree = Tree::after(layout.seed, number);
    let mut root = entries(&volume, InodeNumber::ROOT)?;
    if root.remove(NUMBER_FILE).is_none() {
        return Err("the file with the number is gone".to_owned());
    }
    for directory in 0..DIRECTORIES {
        let (inode, kind) = root
            .remove(format!("d{directory}").as_bytes())
            .ok_or_else(|| format!("directory d{directory} is gone"))?;
        if kind != FileKind::Directory {
            return Err(format!("d{directory} is no directory"));
        }
        let mut found = entries(&volume, inode)?;
        for (name, expected) in tree.directory(directory) {
            let place = format!("after transaction {number}: d{directory}/{name}");
            let (inode, _) =
                found.remove(name.as_bytes()).ok_or_else(|| format!("{place} is missing"))?;
            let bytes = contents(&volume, inode).map_err(|error| format!("{place}: {error}"))?;
            if bytes != expected {
                return Err(format!("{place}: {}", difference(&bytes, &expected)));
            }
        }
        if let Some((name, _)) = found.pop_first() {
            let name = String::from_utf8_lossy(&name).into_owned();
            return Err(format!(
                "after transaction {number}: d{directory}/{name} must not be there"
            ));
        }
    }
    match root.pop_first() {
        None => Ok(number),
        Some((name, _)) => Err(format!("/{} must not be there", String::from_utf8_lossy(&name))),
    }
}

fn difference(found: &[u8], expected: &[u8]) -> String {
    if found.len() != expected.len() {
        return format!("size is {}, right is {}", found.len(), expected.len());
    }
    let first = found.iter().zip(expected).position(|(found, expected)| found != expected);
    format!("wrong bytes, the first at {}", first.unwrap_or(0))
}

type Entries = BTreeMap<Vec<u8>, (InodeNumber, FileKind)>;

fn entries<M: Medium, P: Platform>(
    volume: &Volume<M, P>,
    directory: InodeNumber,
) -> Result<Entries, String> {
    let mut all = Entries::new();
    let mut cookie = 0;
    loop {
        let some = volume
            .read_directory_plus(directory, cookie, 64)
            .map_err(|error| format!("a directory cannot be read: {error}"))?;
        let Some((last, _)) = some.last() else { return Ok(all) };
        cookie = last.cookie;
        for (entry, attributes) in some {
            if entry.name != b"." && entry.name != b".." {
                all.insert(entry.name, (attributes.inode, attributes.kind));
            }
        }
    }
}

fn contents<M: Medium, P: Platform>(
    volume: &Volume<M, P>,
    inode: InodeNumber,
) -> Result<Vec<u8>, steadfast::Error> {
    let size = volume.attributes(inode)?.size;
    let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
    let count = volume.read(inode, 0, &mut bytes)?;
    bytes.truncate(count);
    Ok(bytes)
}
