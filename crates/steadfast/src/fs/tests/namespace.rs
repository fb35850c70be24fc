//! Random operations on names over a keyspace in memory, against a plain model; after each one the
//! keys are checked against each other.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use proptest::prelude::*;

use crate::engine::keyspace::{Keyspace, KeyspaceRead, SpaceClass};
use crate::error::{Error, Result};
use crate::format::dirent::Dirent;
use crate::format::inode::{FLAG_TRUNCATING, FileKind, Inode, root_value};
use crate::format::key::{Key, Kind};
use crate::fs::orphan::{self, Progress};
use crate::fs::parameters::Parameters;
use crate::fs::rename::{self, Side};
use crate::fs::stat::{Caller, NewNode, RenameMode};
use crate::fs::tests::keyspace::{MemoryKeyspace, update};
use crate::fs::tx::Tx;
use crate::fs::{create, link};
use crate::types::InodeNumber;

/// A place: the index of an existing directory, and a name.
type At = (usize, u8);

#[derive(Debug, Clone)]
enum Step {
    Create(At, bool),
    Unnamed(usize),
    Link(usize, At),
    Unlink(At),
    RemoveDirectory(At),
    Rename(At, At, RenameMode),
    Acquire(usize),
    Release(usize),
    Reclaim,
}

fn step() -> impl Strategy<Value = Step> {
    let at = || (0usize..6, 0u8..5);
    let mode = prop_oneof![
        3 => Just(RenameMode::Replace),
        1 => Just(RenameMode::NoReplace),
        2 => Just(RenameMode::Exchange),
    ];
    prop_oneof![
        6 => (at(), any::<bool>()).prop_map(|(at, directory)| Step::Create(at, directory)),
        1 => (0usize..6).prop_map(Step::Unnamed),
        2 => (0usize..20, at()).prop_map(|(inode, at)| Step::Link(inode, at)),
        3 => at().prop_map(Step::Unlink),
        2 => at().prop_map(Step::RemoveDirectory),
        6 => (at(), at(), mode).prop_map(|(from, to, mode)| Step::Rename(from, to, mode)),
        1 => (0usize..20).prop_map(Step::Acquire),
        1 => (0usize..20).prop_map(Step::Release),
        1 => Just(Step::Reclaim),
    ]
}

/// The expected state.
struct Model {
    entries: BTreeMap<(InodeNumber, String), InodeNumber>,
    kinds: BTreeMap<InodeNumber, FileKind>,
    /// Made without a name and not named since.
    unnamed: BTreeSet<InodeNumber>,
    acquired: BTreeSet<InodeNumber>,
}

impl Model {
    fn directories(&self) -> Vec<InodeNumber> {
        let is_directory = |inode: &&InodeNumber| self.kinds[*inode] == FileKind::Directory;
        self.kinds.keys().filter(is_directory).copied().collect()
    }

    fn directory(&self, index: usize) -> InodeNumber {
        let all = self.directories();
        all[index % all.len()]
    }

    fn inode(&self, index: usize) -> InodeNumber {
        *self.kinds.keys().nth(index % self.kinds.len()).expect("root")
    }

    fn links(&self, inode: InodeNumber) -> u32 {
        let named = self.entries.values().filter(|named| **named == inode).count() as u32;
        if self.kinds[&inode] != FileKind::Directory {
            return named;
        }
        let below = |(parent, _): &(InodeNumber, String), child: &InodeNumber| {
            *parent == inode && self.kinds[child] == FileKind::Directory
        };
        let subdirectories =
            self.entries.iter().filter(|(at, child)| below(at, child)).count() as u32;
        if named == 0 && inode != InodeNumber::ROOT { 0 } else { 2 + subdirectories }
    }

    fn is_empty(&self, directory: InodeNumber) -> bool {
        !self.entries.keys().any(|(parent, _)| *parent == directory)
    }

    fn parent(&self, directory: InodeNumber) -> InodeNumber {
        let found = self.entries.iter().find(|(_, child)| **child == directory);
        found.map_or(directory, |((parent, _), _)| *parent)
    }

    fn is_below(&self, directory: InodeNumber, top: InodeNumber) -> bool {
        let mut at = directory;
        loop {
            if at == top {
                return true;
            }
            let parent = self.parent(at);
            if parent == at {
                return false;
            }
            at = parent;
        }
    }

    /// Drops inodes without a name that are not open.
    fn collect(&mut self) {
        let gone: Vec<_> = self
            .kinds
            .keys()
            .copied()
            .filter(|inode| {
                self.links(*inode) == 0
                    && !self.acquired.contains(inode)
                    && !self.unnamed.contains(inode)
            })
            .collect();
        for inode in gone {
            self.kinds.remove(&inode);
        }
    }

    fn rename(
        &mut self,
        from: (InodeNumber, String),
        to: (InodeNumber, String),
        mode: RenameMode,
    ) -> Result<()> {
        let dead = |inode| self.links(inode) == 0;
        if dead(from.0) || dead(to.0) {
            return Err(Error::NotFound);
        }
        let source = *self.entries.get(&from).ok_or(Error::NotFound)?;
        let target = self.entries.get(&to).copied();
        let is_directory = |inode| self.kinds[&inode] == FileKind::Directory;
        match (mode, target) {
            (RenameMode::NoReplace, Some(_)) => return Err(Error::AlreadyExists),
            (RenameMode::Exchange, None) => return Err(Error::NotFound),
            (_, Some(target)) if target == source => return Ok(()),
            _ => {}
        }
        if is_directory(source) && self.is_below(to.0, source) {
            return Err(Error::MoveIntoSelf);
        }
        match (mode, target) {
            (RenameMode::Exchange, Some(target)) => {
                if is_directory(target) && self.is_below(from.0, target) {
                    return Err(Error::MoveIntoSelf);
                }
                self.entries.insert(from, target);
            }
            (_, Some(target)) => match (is_directory(source), is_directory(target)) {
                (true, false) => return Err(Error::NotADirectory),
                (false, true) => return Err(Error::IsADirectory),
                (true, true) if !self.is_empty(target) => return Err(Error::DirectoryNotEmpty),
                _ => drop(self.entries.remove(&from)),
            },
            (_, None) => drop(self.entries.remove(&from)),
        }
        self.entries.insert(to, source);
        Ok(())
    }
}

struct World {
    keyspace: MemoryKeyspace,
    parameters: Parameters,
    model: Model,
}

impl World {
    fn new() -> World {
        let keyspace = MemoryKeyspace::new();
        update(&keyspace, SpaceClass::Normal, |tx| {
            let now = tx.now();
            tx.put(Key::inode(InodeNumber::ROOT), root_value(0, 0, 0o755, now)?)
        })
        .unwrap();
        let model = Model {
            entries: BTreeMap::new(),
            kinds: BTreeMap::from([(InodeNumber::ROOT, FileKind::Directory)]),
            unnamed: BTreeSet::new(),
            acquired: BTreeSet::new(),
        };
        World { keyspace, parameters: Parameters::for_tests(), model }
    }

    fn run<T>(&self, operation: impl Fn(&mut Tx<'_, MemoryKeyspace>) -> Result<T>) -> Result<T> {
        update(&self.keyspace, SpaceClass::Normal, operation)
    }

    fn at(&self, at: &At) -> (InodeNumber, String) {
        (self.model.directory(at.0), format!("n{}", at.1))
    }

    fn apply(&mut self, step: &Step) {
        let parameters = self.parameters;
        match step {
            Step::Create(at, is_directory) => {
                let (directory, name) = self.at(at);
                let (node, kind) = match is_directory {
                    true => (NewNode::Directory, FileKind::Directory),
                    false => (NewNode::Regular, FileKind::Regular),
                };
                let made = self.run(|tx| {
                    create::create(
                        tx,
                        &parameters,
                        directory,
                        name.as_bytes(),
                        &node,
                        0,
                        &Caller::default(),
                    )
                });
                let expected = if self.model.links(directory) == 0 {
                    Err(Error::NotFound)
                } else if self.model.entries.contains_key(&(directory, name.clone())) {
                    Err(Error::AlreadyExists)
                } else {
                    Ok(())
                };
                assert_eq!(made.map(drop), expected);
                if let Ok((inode, _)) = made {
                    self.model.entries.insert((directory, name), inode);
                    self.model.kinds.insert(inode, kind);
                }
            }
            Step::Unnamed(directory) => {
                let directory = self.model.directory(*directory);
                let made = self.run(|tx| {
                    create::create_unnamed(tx, &parameters, directory, 0, &Caller::default())
                });
                assert_eq!(made.is_ok(), self.model.links(directory) > 0);
                if let Ok((inode, _)) = made {
                    self.model.kinds.insert(inode, FileKind::Regular);
                    self.model.unnamed.insert(inode);
                    self.model.acquired.insert(inode);
                }
            }
            Step::Link(inode, at) => {
                let inode = self.model.inode(*inode);
                let (directory, name) = self.at(at);
                let linked =
                    self.run(|tx| link::link(tx, &parameters, inode, directory, name.as_bytes()));
                let nameless = self.model.links(inode) == 0 && !self.model.unnamed.contains(&inode);
                let expected = if self.model.kinds[&inode] == FileKind::Directory {
                    Err(Error::NotPermitted)
                } else if self.model.links(directory) == 0 || nameless {
                    Err(Error::NotFound)
                } else if self.model.entries.contains_key(&(directory, name.clone())) {
                    Err(Error::AlreadyExists)
                } else {
                    self.model.unnamed.remove(&inode);
                    self.model.entries.insert((directory, name), inode);
                    Ok(())
                };
                assert_eq!(linked.map(drop), expected);
            }
            Step::Unlink(at) | Step::RemoveDirectory(at) => {
                let (directory, name) = self.at(at);
                let acquired = |inode| self.model.acquired.contains(&inode);
                let wants_directory = matches!(step, Step::RemoveDirectory(_));
                let removed = self.run(|tx| match wants_directory {
                    false => link::unlink(tx, &parameters, directory, name.as_bytes(), &acquired),
                    true => link::remove_directory(
                        tx,
                        &parameters,
                        directory,
                        name.as_bytes(),
                        &acquired,
                    ),
                });
                let at = (directory, name);
                let expected = match self.model.entries.get(&at) {
                    None => Err(Error::NotFound),
                    Some(inode) => {
                        match (self.model.kinds[inode] == FileKind::Directory, wants_directory) {
                            (true, false) => Err(Error::IsADirectory),
                            (false, true) => Err(Error::NotADirectory),
                            (true, true) if !self.model.is_empty(*inode) => {
                                Err(Error::DirectoryNotEmpty)
                            }
                            _ => {
                                self.model.entries.remove(&at);
                                Ok(())
                            }
                        }
                    }
                };
                assert_eq!(removed, expected);
            }
            Step::Rename(from, to, mode) => {
                let (from, to) = (self.at(from), self.at(to));
                let acquired = |inode| self.model.acquired.contains(&inode);
                let renamed = self.run(|tx| {
                    let from = Side { directory: from.0, name: from.1.as_bytes() };
                    let to = Side { directory: to.0, name: to.1.as_bytes() };
                    rename::rename(tx, &parameters, from, to, *mode, &acquired)
                });
                assert_eq!(renamed, self.model.rename(from, to, *mode));
            }
            Step::Acquire(inode) => drop(self.model.acquired.insert(self.model.inode(*inode))),
            Step::Release(inode) => {
                let inode = self.model.inode(*inode);
                self.model.acquired.remove(&inode);
                if self.model.unnamed.remove(&inode) {
                    self.reclaim();
                }
            }
            Step::Reclaim => self.reclaim(),
        }
        // A small inode that is not open is deleted at once; the rest waits for background work.
        if !matches!(step, Step::Release(_)) {
            self.model.collect();
        } else {
            self.reclaim();
            self.model.collect();
        }
        self.check();
    }

    fn reclaim(&self) {
        let mut after = 0;
        while let Some(inode) = orphan::following(&self.keyspace, after).unwrap() {
            let acquired = self.model.acquired.contains(&inode);
            let progress =
                self.run(|tx| orphan::delete_step(tx, &self.parameters, inode, acquired)).unwrap();
            if progress != Progress::More {
                after = inode.0;
            }
        }
    }

    /// The keys are exactly those of the model, and every count in them is right.
    fn check(&self) {
        let mut entries = BTreeMap::new();
        let mut inodes = BTreeMap::new();
        let mut orphans = BTreeSet::new();
        for key in self.keyspace.keys() {
            let value = self.keyspace.get(&key).unwrap().unwrap();
            match key.kind().unwrap() {
                Kind::Inode => {
                    inodes.insert(key.inode_number(), Inode::decode(&value).unwrap());
                }
                Kind::Dirent => {
                    let entry = Dirent::decode(&value).unwrap();
                    let name = String::from_utf8(entry.name).unwrap();
                    assert_eq!(entry.kind, self.model.kinds[&entry.inode]);
                    entries.insert((key.inode_number(), name), entry.inode);
                }
                Kind::Orphan => drop(orphans.insert(InodeNumber(key.suffix()))),
                other => panic!("unexpected {other:?}"),
            }
        }
        assert_eq!(entries, self.model.entries);
        assert_eq!(
            inodes.iter().map(|(inode, found)| (*inode, found.kind)).collect::<BTreeMap<_, _>>(),
            self.model.kinds
        );
        for (number, inode) in &inodes {
            assert_eq!(inode.links, self.model.links(*number), "links of {number:?}");
            let is_orphan = inode.links == 0 || inode.has(FLAG_TRUNCATING);
            assert_eq!(orphans.contains(number), is_orphan, "orphan record of {number:?}");
            if inode.kind == FileKind::Directory {
                let count = entries.keys().filter(|(parent, _)| parent == number).count();
                assert_eq!(inode.size, count as u64);
                if inode.links > 0 {
                    assert_eq!(inode.parent, self.model.parent(*number));
                }
            }
        }
        assert!(orphans.iter().all(|orphan| inodes.contains_key(orphan)));
        let _ = self.keyspace.generation();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn names_follow_the_model(steps in prop::collection::vec(step(), 1..80)) {
        let mut world = World::new();
        for step in &steps {
            world.apply(step);
        }
    }
}
