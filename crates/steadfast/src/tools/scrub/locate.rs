//! Paths of a scrub's findings, in bounded steps. The directory entries of the live tree are walked
//! once for the files, and once more for the directories above them.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use steadfast_media::Medium;

use crate::engine::keyspace::KeyspaceRead;
use crate::error::{Error, Result};
use crate::format::dirent::Dirent;
use crate::format::inode::Inode;
use crate::format::key::{Key, Kind};
use crate::platform::Platform;
use crate::tools::scrub::ScrubFinding;
use crate::types::InodeNumber;
use crate::volume::Volume;

/// Keys read in one step.
const STEP_KEYS: usize = 256;
/// Limit of the directory levels that are followed.
const DEPTH_MAX: usize = 4096;

/// Progress of the search.
#[derive(Debug, Default)]
pub struct Locate {
    round: u32,
    key: Option<Key>,
    /// Inodes without a name so far.
    wanted: Vec<InodeNumber>,
    /// Directory and name of each.
    names: BTreeMap<InodeNumber, (InodeNumber, Vec<u8>)>,
}

impl<M: Medium, P: Platform> Volume<M, P> {
    /// One step; `false` after everything has been looked up and the paths are in `findings`.
    pub(super) fn locate_step(
        &self,
        locate: &mut Locate,
        findings: &mut [ScrubFinding],
    ) -> Result<bool> {
        let Some(mut key) = locate.key else { return self.next_round(locate, findings) };
        let reader = self.engine.reader()?;
        for _ in 0..STEP_KEYS {
            let found = match reader.next(&key, &Key::MAX) {
                Ok(found) => found,
                // Names after a damaged node are not found; the damage has been reported.
                Err(Error::CorruptMetadata { .. } | Error::Medium(_)) => None,
                Err(error) => return Err(error),
            };
            let Some((found_key, value)) = found else {
                locate.key = None;
                return Ok(true);
            };
            if found_key.kind() == Some(Kind::Dirent)
                && let Ok(entry) = Dirent::decode(&value)
                && locate.wanted.binary_search(&entry.inode).is_ok()
            {
                locate.names.entry(entry.inode).or_insert((found_key.inode_number(), entry.name));
            }
            // No names follow the entries of a directory, or a file.
            key = match found_key.kind() {
                Some(Kind::Inode | Kind::Dirent) => found_key.successor().unwrap_or(Key::MAX),
                _ => {
                    let number = found_key.inode_number().0;
                    if number == u64::MAX {
                        locate.key = None;
                        return Ok(true);
                    }
                    Key::inode(InodeNumber(number + 1))
                }
            };
        }
        locate.key = Some(key);
        Ok(true)
    }

    /// Begins the walk for files, then the walk for the directories above them, then builds the
    /// paths.
    fn next_round(&self, locate: &mut Locate, findings: &mut [ScrubFinding]) -> Result<bool> {
        locate.round += 1;
        let mut wanted: Vec<InodeNumber> = match locate.round {
            1 => findings.iter().filter_map(|finding| finding.inode).collect(),
            2 => self.directories_above(locate)?,
            _ => {
                for finding in findings {
                    finding.path = finding.inode.and_then(|inode| locate.path(inode));
                }
                return Ok(false);
            }
        };
        wanted.sort_unstable();
        wanted.dedup();
        locate.key = (!wanted.is_empty()).then_some(Key::inode(InodeNumber::ROOT));
        locate.wanted = wanted;
        Ok(true)
    }

    /// Every directory above those that were found, according to the directories themselves.
    fn directories_above(&self, locate: &Locate) -> Result<Vec<InodeNumber>> {
        let reader = self.engine.reader()?;
        let mut above = Vec::new();
        for (directory, _) in locate.names.values() {
            let mut at = *directory;
            for _ in 0..DEPTH_MAX {
                if at == InodeNumber::ROOT || above.contains(&at) {
                    break;
                }
                above.push(at);
                match Inode::load(&reader, at) {
                    Ok(inode) => at = inode.parent,
                    Err(_) => break,
                }
            }
        }
        Ok(above)
    }
}

impl Locate {
    fn path(&self, inode: InodeNumber) -> Option<Vec<u8>> {
        let mut parts = Vec::new();
        let mut at = inode;
        while at != InodeNumber::ROOT {
            let (directory, name) = self.names.get(&at)?;
            parts.push(name);
            at = *directory;
            if parts.len() > DEPTH_MAX {
                return None;
            }
        }
        let mut path = Vec::new();
        for part in parts.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(part);
        }
        Some(path)
    }
}
