//! Files and names for operations, drawn from those in the model, so that most operations find a
//! file.

use steadfast::InodeNumber;
use steadfast::fs::FileKind;

use super::Generator;
use crate::model::{Body, Model};
use crate::operation::{Name, Place};

/// Maximum depth of the directories that are drawn.
const DEPTH_MAX: usize = 4;
/// Maximum number of files that are searched.
const FILES_MAX: usize = 32;

impl Generator {
    pub(super) fn size(&self, model: &Model, place: &Place) -> u64 {
        let Place::Path(names) = place else { return 0 };
        let inode = names.iter().try_fold(InodeNumber::ROOT, |directory, name| {
            model.state.entry(directory, &name.bytes(model.limits.name_max))
        });
        inode.and_then(|inode| model.content(inode).ok()).map_or(0, |content| content.size())
    }

    /// A directory, at any depth down to four.
    pub(super) fn directory(&mut self, model: &Model) -> Place {
        if self.random.chance(1, 60) {
            return self.place(model);
        }
        let mut path = Vec::new();
        let mut at = InodeNumber::ROOT;
        while path.len() < DEPTH_MAX && self.random.chance(1, 2) {
            let below: Vec<(Name, InodeNumber)> = entries(model, at)
                .filter(|(_, inode)| {
                    model.state.node(*inode).is_some_and(|node| node.kind == FileKind::Directory)
                })
                .collect();
            if below.is_empty() {
                break;
            }
            let (name, inode) = self.random.pick(&below);
            path.push(name);
            at = inode;
        }
        Place::Path(path)
    }

    /// A name in a directory, usually an existing one.
    pub(super) fn entry(&mut self, model: &Model) -> (Place, Name) {
        let directory = self.directory(model);
        let Place::Path(path) = &directory else { return (directory, Name(0)) };
        let inode = path.iter().try_fold(InodeNumber::ROOT, |at, name| {
            model.state.entry(at, &name.bytes(model.limits.name_max))
        });
        let below: Vec<Name> = inode
            .map(|inode| entries(model, inode).map(|(name, _)| name).collect())
            .unwrap_or_default();
        if below.is_empty() || self.random.chance(1, 20) {
            let name = self.new_name();
            return (directory, name);
        }
        let name = self.random.pick(&below);
        (directory, name)
    }

    /// Any place.
    pub(super) fn place(&mut self, model: &Model) -> Place {
        match self.random.below(12) {
            0 => Place::Slot(self.slot()),
            1 => Place::Path(Vec::new()),
            _ => {
                let (directory, name) = self.entry(model);
                match directory {
                    Place::Path(mut path) => {
                        path.push(name);
                        Place::Path(path)
                    }
                    slot => slot,
                }
            }
        }
    }

    /// A regular file, if there is one.
    pub(super) fn file(&mut self, model: &Model) -> Place {
        for attempt in 0..6 {
            let place = self.place(model);
            if let Place::Path(path) = &place {
                let inode = path.iter().try_fold(InodeNumber::ROOT, |at, name| {
                    model.state.entry(at, &name.bytes(model.limits.name_max))
                });
                let regular = inode
                    .and_then(|inode| model.state.node(inode))
                    .is_some_and(|node| node.kind == FileKind::Regular);
                if !regular {
                    continue;
                }
            } else if attempt > 0 {
                // Most slots are empty.
                continue;
            }
            return place;
        }
        let all = regular_files(model);
        match all.get(self.random.index(all.len())) {
            Some(path) => Place::Path(path.clone()),
            None => Place::Slot(self.slot()),
        }
    }
}

/// Paths of regular files: the first few in the order of names.
fn regular_files(model: &Model) -> Vec<Vec<Name>> {
    let mut found = Vec::new();
    let mut ahead = vec![(Vec::new(), InodeNumber::ROOT)];
    while let Some((path, directory)) = ahead.pop() {
        for (name, inode) in entries(model, directory) {
            let below = [path.as_slice(), &[name]].concat();
            match model.state.node(inode).map(|node| node.kind) {
                Some(FileKind::Regular) => found.push(below),
                Some(FileKind::Directory) if below.len() < DEPTH_MAX => ahead.push((below, inode)),
                _ => {}
            }
        }
        if found.len() >= FILES_MAX {
            break;
        }
    }
    found
}

fn entries(model: &Model, directory: InodeNumber) -> impl Iterator<Item = (Name, InodeNumber)> {
    let map = match model.state.node(directory).map(|node| &node.body) {
        Some(Body::Directory { entries, .. }) => Some(entries),
        _ => None,
    };
    map.into_iter().flatten().filter_map(|(bytes, inode)| Some((Name::of(bytes)?, *inode)))
}
