//! Compares a whole volume with a state of the model, exactly.

use std::collections::BTreeMap;

use steadfast::InodeNumber;
use steadfast::fs::{Attributes, FileKind, SeekTo};

use crate::model::{Body, Content, Node, State};
use crate::platform::Clock;
use crate::subject::Subject;
use crate::tape::Tape;
use crate::world::World;

/// The extent of a comparison.
#[derive(Debug, Clone, Copy)]
pub struct Depth {
    /// Entries requested in one call when a directory is listed.
    pub list_count: usize,
    /// Whether the boundaries of data and holes are compared too.
    pub seek: bool,
}

/// Compares the mask and the timer of a newly opened volume.
///
/// # Errors
/// The first difference, as text.
pub fn compare_parameters<S: Subject>(subject: &S, state: &State) -> Result<(), String> {
    let facts = subject.facts();
    match (state.mask, state.timer_ms) {
        (Some(mask), _) if mask != facts.mask => {
            Err(format!("its mask is {:#x}, right is {:#x}", facts.mask.0, mask.0))
        }
        (_, Some(timer)) if timer != facts.timer_ms => {
            Err(format!("its timer is {} ms, right is {timer} ms", facts.timer_ms))
        }
        _ => Ok(()),
    }
}

/// Compares everything that is visible through the facade.
///
/// # Errors
/// The first difference, as text.
pub fn compare<S: Subject>(subject: &S, state: &State, depth: Depth) -> Result<(), String> {
    let mut seen = BTreeMap::new();
    let mut ahead = vec![(InodeNumber::ROOT, "/".to_owned())];
    let root = subject
        .attributes(InodeNumber::ROOT)
        .map_err(|error| format!("attributes of /: {error}"))?;
    let Some(node) = state.node(InodeNumber::ROOT) else {
        return Err("the model has no root".to_owned());
    };
    compare_node(subject, InodeNumber::ROOT, node, &root, "/", depth)?;
    while let Some((directory, path)) = ahead.pop() {
        let Some(Node { body: Body::Directory { entries, parent }, .. }) = state.node(directory)
        else {
            return Err(format!("{path}: not a directory in the model"));
        };
        let listed = list(subject, directory, *parent, &path, depth.list_count)?;
        for (name, (inode, _)) in &listed {
            if entries.get(name) != Some(inode) {
                let expected = entries.get(name).map(|inode| inode.0);
                return Err(format!(
                    "{path}{}: names inode {} but {expected:?} is right",
                    text(name),
                    inode.0
                ));
            }
        }
        if let Some(name) = entries.keys().find(|name| !listed.contains_key(*name)) {
            return Err(format!("{path}{}: missing", text(name)));
        }
        for (name, (inode, attributes)) in listed {
            let path = format!("{path}{}", text(&name));
            let found = subject
                .lookup(directory, &name)
                .map_err(|error| format!("{path}: listed, but its lookup fails: {error}"))?;
            if found != attributes {
                return Err(format!("{path}: lookup says {found:?}, readdirplus {attributes:?}"));
            }
            if let Some(known) = seen.insert(inode, attributes) {
                if known != attributes {
                    return Err(format!("{path}: attributes differ between two names"));
                }
                continue;
            }
            let Some(node) = state.node(inode) else {
                return Err(format!("{path}: inode {} is not in the model", inode.0));
            };
            compare_node(subject, inode, node, &attributes, &path, depth)?;
            if node.kind == FileKind::Directory {
                ahead.push((inode, path + "/"));
            }
        }
    }
    // Unlinked files that are held open.
    for (inode, node) in state.nodes().filter(|(_, node)| node.links == 0) {
        let path = format!("unlinked inode {}", inode.0);
        let attributes = subject.attributes(inode).map_err(|error| format!("{path}: {error}"))?;
        compare_node(subject, inode, node, &attributes, &path, depth)?;
    }
    Ok(())
}

/// Compares the list of snapshots, and the whole contents of each snapshot.
///
/// # Errors
/// The first difference.
pub fn compare_snapshots<S: Subject>(
    subject: &S,
    world: &World,
    tape: &Tape,
    clock: &Clock,
    state: &State,
) -> Result<(), String> {
    let names = subject.snapshots().map_err(|error| format!("listing snapshots: {error}"))?;
    let right: Vec<&str> = state.snapshots().iter().map(|kept| kept.name.as_str()).collect();
    if names != right {
        return Err(format!("the snapshots are {names:?}, right is {right:?}"));
    }
    for kept in state.snapshots() {
        let name = &kept.name;
        let snapshot = S::open_snapshot(world, tape, clock, name)
            .map_err(|error| format!("snapshot {name} does not open: {error}"))?;
        compare(&snapshot, &kept.state, Depth { list_count: 9, seek: false })
            .map_err(|what| format!("in snapshot {name}: {what}"))?;
    }
    Ok(())
}

type Listing = BTreeMap<Vec<u8>, (InodeNumber, Attributes)>;

fn list<S: Subject>(
    subject: &S,
    directory: InodeNumber,
    parent: InodeNumber,
    path: &str,
    count: usize,
) -> Result<Listing, String> {
    let mut listed = Listing::new();
    let mut cookie = 0;
    let mut dots = Vec::new();
    loop {
        let some = subject
            .read_directory_plus(directory, cookie, count)
            .map_err(|error| format!("{path}: listing after cookie {cookie}: {error}"))?;
        if some.is_empty() {
            break;
        }
        if some.len() > count {
            return Err(format!(
                "{path}: {} entries listed where {count} were asked for",
                some.len()
            ));
        }
        for (entry, attributes) in some {
            if entry.cookie <= cookie || entry.cookie >= 1 << 63 {
                return Err(format!("{path}: cookie {} after {cookie}", entry.cookie));
            }
            cookie = entry.cookie;
            if entry.inode != attributes.inode || entry.kind != attributes.kind {
                return Err(format!("{path}{}: entry and attributes disagree", text(&entry.name)));
            }
            if entry.name == b"." || entry.name == b".." {
                dots.push((entry.name, entry.inode, entry.cookie));
            } else if listed.insert(entry.name.clone(), (entry.inode, attributes)).is_some() {
                return Err(format!("{path}{}: listed twice", text(&entry.name)));
            }
        }
    }
    if dots != [(b".".to_vec(), directory, 1), (b"..".to_vec(), parent, 2)] {
        return Err(format!("{path}: '.' and '..' are {dots:?}, the parent is {}", parent.0));
    }
    Ok(listed)
}

fn compare_node<S: Subject>(
    subject: &S,
    inode: InodeNumber,
    node: &Node,
    seen: &Attributes,
    path: &str,
    depth: Depth,
) -> Result<(), String> {
    compare_attributes(inode, node, seen, path)?;
    let mut names =
        subject.list_xattrs(inode).map_err(|error| format!("{path}: listing xattrs: {error}"))?;
    names.sort();
    if !names.iter().eq(node.xattrs.keys()) {
        let names: Vec<String> = names.iter().map(|name| text(name)).collect();
        let right: Vec<String> = node.xattrs.keys().map(|name| text(name)).collect();
        return Err(format!("{path}: xattrs are {names:?}, right is {right:?}"));
    }
    for (name, value) in &node.xattrs {
        let seen = subject
            .xattr(inode, name)
            .map_err(|error| format!("{path}: xattr {}: {error}", text(name)))?;
        if seen != **value {
            return Err(format!("{path}: xattr {}: {}", text(name), difference(0, &seen, value)));
        }
    }
    match &node.body {
        Body::Symlink(target) => {
            let seen =
                subject.read_link(inode).map_err(|error| format!("{path}: read_link: {error}"))?;
            if seen != *target {
                return Err(format!("{path}: target: {}", difference(0, &seen, target)));
            }
            Ok(())
        }
        Body::Regular(content) => compare_content(subject, inode, content, path, depth),
        Body::Directory { .. } | Body::Special => Ok(()),
    }
}

/// Compares the attributes that `stat` shows.
///
/// # Errors
/// The first difference.
pub fn compare_attributes(
    inode: InodeNumber,
    node: &Node,
    seen: &Attributes,
    path: &str,
) -> Result<(), String> {
    // This runs for every file after every cut, and usually nothing differs. So the text is made
    // only when it is needed.
    fn check<T: PartialEq + std::fmt::Debug>(
        path: &str,
        what: &str,
        seen: T,
        right: T,
    ) -> Result<(), String> {
        if seen == right {
            Ok(())
        } else {
            Err(format!("{path}: {what} is {seen:?}, right is {right:?}"))
        }
    }
    if seen.permissions != node.permissions {
        let (seen, right) = (seen.permissions, node.permissions);
        return Err(format!("{path}: permissions are {seen:o}, right is {right:o}"));
    }
    check(path, "inode", seen.inode.0, inode.0)?;
    check(path, "kind", seen.kind, node.kind)?;
    check(path, "links", seen.links, node.links)?;
    check(path, "uid", seen.uid, node.uid)?;
    check(path, "gid", seen.gid, node.gid)?;
    check(path, "device", seen.device, node.device)?;
    check(path, "size", seen.size, node.size())?;
    check(path, "mtime", seen.modified, node.modified)?;
    check(path, "ctime", seen.changed, node.changed)?;
    check(path, "atime", seen.accessed, node.accessed)?;
    check(path, "creation time", seen.created, node.created)
}

/// Bytes read in one call. The number is odd, so that reads start and end inside blocks.
const READ_LENGTH: usize = 40_001;
/// Bytes requested at the end of a file.
const READ_BEYOND: usize = 16;

fn compare_content<S: Subject>(
    subject: &S,
    inode: InodeNumber,
    content: &Content,
    path: &str,
    depth: Depth,
) -> Result<(), String> {
    let size = content.size();
    let longest = size.clamp(READ_BEYOND as u64, READ_LENGTH as u64) as usize;
    let (mut buffer, mut right) = (vec![0; longest], vec![0; longest]);
    // The stretches that hold data, with a margin, and the end.
    let mut stretches: Vec<(u64, u64)> = content
        .ranges()
        .into_iter()
        .map(|(start, length)| {
            (start.saturating_sub(100), start.saturating_add(length).saturating_add(100).min(size))
        })
        .collect();
    stretches.push((size.saturating_sub(5_000), size));
    stretches.push((0, size.min(5_000)));
    for (start, end) in stretches {
        let mut at = start;
        while at < end {
            let count = (end - at).min(READ_LENGTH as u64) as usize;
            let read = subject
                .read(inode, at, &mut buffer[..count])
                .map_err(|error| format!("{path}: read of {count} bytes at {at}: {error}"))?;
            if read != count {
                return Err(format!(
                    "{path}: read of {count} bytes at {at} gave {read}, the size is {size}"
                ));
            }
            content.fill(at, &mut right[..count]);
            if buffer[..count] != right[..count] {
                return Err(format!(
                    "{path}: {}",
                    difference(at, &buffer[..count], &right[..count])
                ));
            }
            at += count as u64;
        }
    }
    let beyond = subject
        .read(inode, size, &mut buffer[..READ_BEYOND])
        .map_err(|error| format!("{path}: read at the end: {error}"))?;
    if beyond != 0 {
        return Err(format!("{path}: {beyond} bytes read at the end"));
    }
    if depth.seek { compare_holes(subject, inode, content, path) } else { Ok(()) }
}

/// Walks over data and holes. They must alternate and cover the file, and every hole must be zeros
/// in the model.
fn compare_holes<S: Subject>(
    subject: &S,
    inode: InodeNumber,
    content: &Content,
    path: &str,
) -> Result<(), String> {
    let size = content.size();
    let mut at = 0;
    while at < size {
        let data = match subject.seek(inode, at, SeekTo::Data) {
            Ok(offset) if offset >= at && offset < size => offset,
            Err(steadfast::Error::NoSuchOffset) => size,
            other => {
                return Err(format!(
                    "{path}: seek to data from {at} gives {other:?}, the size is {size}"
                ));
            }
        };
        if data > at && !content.is_zero(at, data - at) {
            return Err(format!("{path}: bytes {at}..{data} count as a hole but hold data"));
        }
        if data == size {
            break;
        }
        at = match subject.seek(inode, data, SeekTo::Hole) {
            Ok(offset) if offset > data && offset <= size => offset,
            other => {
                return Err(format!(
                    "{path}: seek to a hole from {data} gives {other:?}, the size is {size}"
                ));
            }
        };
    }
    match subject.seek(inode, size, SeekTo::Data) {
        Err(steadfast::Error::NoSuchOffset) => Ok(()),
        other => Err(format!("{path}: seek from the end gives {other:?}")),
    }
}

fn difference(offset: u64, seen: &[u8], right: &[u8]) -> String {
    if seen.len() != right.len() {
        return format!("{} bytes, right is {}", seen.len(), right.len());
    }
    let first = seen.iter().zip(right).position(|(seen, right)| seen != right).unwrap_or(0);
    let count = seen.iter().zip(right).filter(|(seen, right)| seen != right).count();
    format!(
        "{count} wrong bytes, the first at {}: {:#04x}, right is {:#04x}",
        offset + first as u64,
        seen.get(first).copied().unwrap_or(0),
        right.get(first).copied().unwrap_or(0)
    )
}

/// A name as text.
pub fn text(name: &[u8]) -> String {
    let shown = String::from_utf8_lossy(name).escape_debug().to_string();
    if shown.len() > 24 {
        format!("{}…({} bytes)", &shown.chars().take(12).collect::<String>(), name.len())
    } else {
        shown
    }
}
