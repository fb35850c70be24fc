//! Builds files and directories from the items found.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use steadfast_media::Medium;

use crate::format::dirent::Dirent;
use crate::format::inode::{FLAG_RECLAIMING, Inode};
use crate::format::key::{Key, Kind};
use crate::fs::parameters::Parameters;
use crate::fs::{Attributes, FileKind};
use crate::platform::Platform;
use crate::tools::salvage::Salvage;
use crate::types::InodeNumber;

/// Directory for files whose own directory is lost.
const LOST_AND_FOUND: &[u8] = b"lost+found";

/// An entry to be written out. A directory precedes its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Names from the root; no name is empty, `.`, `..` or holds a slash or a NUL byte. Empty: the
    /// root directory itself.
    pub path: Vec<Vec<u8>>,
    /// Inode number.
    pub inode: InodeNumber,
    /// Type: from the attributes or, if they are lost, from the directory entry.
    pub kind: FileKind,
    /// Attributes; `None` if they are lost.
    pub attributes: Option<Attributes>,
    /// Index of the entry that is the same file: this is a further name of it.
    pub same_as: Option<usize>,
    /// Problems of it, apart from its bytes.
    pub problems: Vec<Problem>,
}

/// What is missing or doubtful about an [`Entry`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Problem {
    /// Only its name is left; there is nothing to be written.
    Lost,
    /// Owner, permissions, times and size are lost.
    AttributesLost,
    /// This number of entries of the directory was not found.
    EntriesMissing(u64),
    /// Extended attributes are, or may be, incomplete.
    XattrsIncomplete,
    /// The target of this symbolic link is lost or incomplete.
    TargetLost,
    /// Parts of it were found without proof that they are its newest state.
    MayBeOutdated,
}

/// Content of directory entries.
struct Named {
    name: Vec<u8>,
    inode: InodeNumber,
    kind: FileKind,
}

type Children = BTreeMap<InodeNumber, Vec<Named>>;

impl<M: Medium, P: Platform> Salvage<'_, M, P> {
    /// Everything that has a name or an inode, in the order of creation. An inode that no directory
    /// leads to is below `lost+found`, by its inode number.
    pub fn entries(&self) -> Vec<Entry> {
        let children = self.children();
        let mut list = List {
            salvage: self,
            children: &children,
            entries: Vec::new(),
            first: BTreeMap::new(),
        };
        list.add_tree(Vec::new(), InodeNumber::ROOT, FileKind::Directory);
        for (inode, kind) in self.unreached(&list) {
            if !list.first.contains_key(&inode) {
                let name = format!("#{}", inode.0).into_bytes();
                list.add_tree(vec![LOST_AND_FOUND.to_vec(), name], inode, kind);
            }
        }
        list.entries
    }

    fn children(&self) -> Children {
        let mut children = Children::new();
        for (key, item) in &self.items {
            if key.kind() != Some(Kind::Dirent) {
                continue;
            }
            let Ok(Dirent { inode, kind, name }) = Dirent::decode(&item.value) else { continue };
            children.entry(key.inode_number()).or_default().push(Named { name, inode, kind });
        }
        for entries in children.values_mut() {
            entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        }
        children
    }

    /// Inodes that no name leads to; directories that may contain others come first.
    fn unreached(&self, list: &List<'_, '_, M, P>) -> Vec<(InodeNumber, FileKind)> {
        let mut directories = Vec::new();
        let mut others = Vec::new();
        let mut numbers: Vec<InodeNumber> = self.items.keys().map(Key::inode_number).collect();
        numbers.dedup();
        for number in numbers {
            if number == InodeNumber::SYSTEM || list.first.contains_key(&number) {
                continue;
            }
            let inode = self.inode(number);
            // Removed, and only kept until its blocks are freed.
            if inode.as_ref().is_some_and(|inode| inode.links == 0 || inode.has(FLAG_RECLAIMING)) {
                continue;
            }
            let kind = match &inode {
                Some(inode) => inode.kind,
                None if list.children.contains_key(&number) => FileKind::Directory,
                None if self.has(number, Kind::Symlink) => FileKind::Symlink,
                None if self.has(number, Kind::Extent) || self.has(number, Kind::Inline) => {
                    FileKind::Regular
                }
                None => continue,
            };
            let parent =
                inode.filter(|inode| inode.kind == FileKind::Directory).map(|inode| inode.parent);
            match kind {
                FileKind::Directory => directories.push((number, parent)),
                _ => others.push((number, kind)),
            }
        }
        let lost: BTreeSet<InodeNumber> = directories.iter().map(|(number, _)| *number).collect();
        // An inode with a lost parent is found from that parent if its name is left. The second
        // round takes the rest.
        let below =
            |parent: &Option<InodeNumber>| parent.is_some_and(|parent| lost.contains(&parent));
        let (inner, outer): (Vec<_>, Vec<_>) =
            directories.into_iter().partition(|(_, parent)| below(parent));
        let all = outer.into_iter().chain(inner).map(|(number, _)| (number, FileKind::Directory));
        all.chain(others).collect()
    }

    /// The attributes of an inode, if they are left and valid.
    pub(super) fn inode(&self, number: InodeNumber) -> Option<Inode> {
        Inode::decode(&self.items.get(&Key::inode(number))?.value).ok()
    }

    fn has(&self, number: InodeNumber, kind: Kind) -> bool {
        let (first, last) = Key::kind_range(number, kind);
        self.items.range(first..=last).next().is_some()
    }

    /// Whether some keys of this kind may be missing.
    pub(super) fn may_lack(&self, number: InodeNumber, kind: Kind) -> bool {
        let (first, last) = Key::kind_range(number, kind);
        self.gone.within(first, last).next().is_some()
    }

    fn problems(&self, number: InodeNumber, kind: FileKind, children: &Children) -> Vec<Problem> {
        let mut problems = Vec::new();
        let inode = self.inode(number);
        let (first, last) =
            (Key::new(number, Kind::Inode, 0), Key::new(number, Kind::Extent, u64::MAX));
        let mut any = false;
        let mut unproven = false;
        for (_, item) in self.items.range(first..=last) {
            any = true;
            unproven |= !item.proven;
        }
        let found = children.get(&number).map_or(0, Vec::len) as u64;
        if !any {
            problems.push(Problem::Lost);
            return problems;
        }
        if inode.is_none() {
            problems.push(Problem::AttributesLost);
        }
        if unproven {
            problems.push(Problem::MayBeOutdated);
        }
        if kind == FileKind::Directory {
            let counted = inode.as_ref().map_or(found, |inode| inode.size);
            if counted > found {
                problems.push(Problem::EntriesMissing(counted - found));
            }
        }
        if self.xattrs(number).1 {
            problems.push(Problem::XattrsIncomplete);
        }
        let size = inode.as_ref().map(|inode| inode.size);
        if kind == FileKind::Symlink && size != Some(self.symlink_target(number).len() as u64) {
            problems.push(Problem::TargetLost);
        }
        problems
    }

    pub(super) fn parameters(&self) -> Parameters {
        let superblock = &self.store.device.superblock;
        Parameters {
            block_size: superblock.block_size,
            granule: superblock.checksum_granule(),
            inline_max: superblock.inline_max(),
            name_max: superblock.name_max(),
            hash_key: superblock.hash_key,
        }
    }
}

/// The list under construction.
struct List<'s, 'm, M: Medium, P: Platform> {
    salvage: &'s Salvage<'m, M, P>,
    children: &'s Children,
    entries: Vec<Entry>,
    /// Index of the first entry of each inode.
    first: BTreeMap<InodeNumber, usize>,
}

impl<M: Medium, P: Platform> List<'_, '_, M, P> {
    /// Adds an inode and everything below it.
    fn add_tree(&mut self, path: Vec<Vec<u8>>, inode: InodeNumber, kind: FileKind) {
        let mut queue = VecDeque::from([(path, inode, kind)]);
        while let Some((path, inode, kind)) = queue.pop_front() {
            let Some(kind) = self.add(path.clone(), inode, kind) else { continue };
            if kind != FileKind::Directory {
                continue;
            }
            for named in self.children.get(&inode).into_iter().flatten() {
                let mut path = path.clone();
                path.push(named.name.clone());
                queue.push_back((path, named.inode, named.kind));
            }
        }
    }

    /// Adds one inode. Returns its type, or `None` if its content is not to be visited (again).
    fn add(&mut self, path: Vec<Vec<u8>>, inode: InodeNumber, kind: FileKind) -> Option<FileKind> {
        let found = self.salvage.inode(inode);
        let kind = found.as_ref().map_or(kind, |found| found.kind);
        let same_as = self.first.get(&inode).copied();
        if same_as.is_some() && kind == FileKind::Directory {
            // A directory has one name; a second one is damage, and may be a cycle.
            return None;
        }
        let problems = match same_as {
            Some(_) => Vec::new(),
            None => self.salvage.problems(inode, kind, self.children),
        };
        let parameters = self.salvage.parameters();
        let attributes = found.map(|found| found.attributes(inode, &parameters));
        self.first.entry(inode).or_insert(self.entries.len());
        self.entries.push(Entry { path, inode, kind, attributes, same_as, problems });
        Some(kind)
    }
}
