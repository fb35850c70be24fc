//! Paths of damaged files and directories, as far as names can still be read.

use alloc::format;
use alloc::vec::Vec;

use hashbrown::HashMap;
use steadfast_media::Medium;

use crate::format::Root;
use crate::format::dirent::Dirent;
use crate::format::inode::FileKind;
use crate::format::key::{Key, Kind};
use crate::platform::Platform;
use crate::tools::check::report::{At, PATHS_MAX};
use crate::tree::Store;
use crate::types::InodeNumber;

/// Limit of the directory levels that are followed; it also ends a cycle.
const DEPTH_MAX: usize = 4096;

/// A directory entry.
pub(super) struct Name {
    pub inode: InodeNumber,
    pub directory: InodeNumber,
    /// Suffix of its key.
    pub suffix: u64,
    pub kind: FileKind,
}

/// Place of each inode's name.
pub(super) struct Names<'a, M: Medium, P: Platform> {
    store: &'a Store<M, P>,
    root: &'a Root,
    /// Directory and key suffix of one of its names.
    named: HashMap<InodeNumber, (InodeNumber, u64)>,
}

impl<'a, M: Medium, P: Platform> Names<'a, M, P> {
    pub fn new(store: &'a Store<M, P>, root: &'a Root, names: &[Name]) -> Self {
        let mut named = HashMap::with_capacity(names.len());
        for name in names {
            named.entry(name.inode).or_insert((name.directory, name.suffix));
        }
        Names { store, root, named }
    }

    /// Paths affected by a finding, and the number of further ones.
    pub fn affected(&self, at: &At) -> (Vec<Vec<u8>>, u64) {
        if let Some(inode) = at.inode {
            return (self.path(inode).into_iter().collect(), 0);
        }
        let Some((low, high)) = &at.keys else { return (Vec::new(), 0) };
        let reached = |inode: &InodeNumber| {
            let below = high.is_none_or(|high| Key::new(*inode, Kind::Inode, 0) < high);
            *inode >= low.inode_number() && below
        };
        let known = self.named.keys().chain([&InodeNumber::ROOT]);
        let mut inodes: Vec<InodeNumber> = known.copied().filter(reached).collect();
        inodes.sort_unstable();
        let more = inodes.len().saturating_sub(PATHS_MAX) as u64;
        let paths = inodes.iter().take(PATHS_MAX).filter_map(|inode| self.path(*inode));
        (paths.collect(), more)
    }

    /// The path from the root, or from `<directory N>` if the path to the root is lost; `None` if
    /// there is no name at all.
    fn path(&self, inode: InodeNumber) -> Option<Vec<u8>> {
        let mut parts: Vec<Vec<u8>> = Vec::new();
        let mut at = inode;
        while at != InodeNumber::ROOT && parts.len() < DEPTH_MAX {
            let Some((directory, suffix)) = self.named.get(&at) else { break };
            let key = Key::new(*directory, Kind::Dirent, *suffix);
            let Ok(Some(value)) = self.store.get(self.root, &key) else { break };
            let Ok(entry) = Dirent::decode(&value) else { break };
            parts.push(entry.name);
            at = *directory;
        }
        let mut path = match (at == InodeNumber::ROOT, parts.is_empty()) {
            (true, true) => return Some(b"/".to_vec()),
            (true, false) => Vec::new(),
            (false, true) => return None,
            (false, false) => format!("<directory {}>", at.0).into_bytes(),
        };
        for part in parts.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(part);
        }
        Some(path)
    }
}
