//! Walking a whole tree, leaf after leaf in key order.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use hashbrown::HashMap;
use steadfast_media::Medium;
use steadfast_media::sync::Arc;

use crate::error::{Error, Result};
use crate::format::key::Key;
use crate::format::{Node, NodePointer, Root};
use crate::platform::Platform;
use crate::tools::check::reason;
use crate::tools::check::report::{At, Remedy, Reporter};
use crate::tree::Store;
use crate::types::Generation;

/// Visited nodes: the content of their pointers, by the block of the first copy.
#[derive(Default)]
pub(super) struct SeenNodes {
    seen: HashMap<u64, (Generation, [u8; 4])>,
}

impl SeenNodes {
    /// Notes a visit. Returns `false` if the node was already visited through an equal pointer.
    pub fn visit(&mut self, pointer: &NodePointer, reporter: &mut Reporter<'_>) -> bool {
        let [a, b, c, d, ..] = pointer.digest;
        let identity = (pointer.generation, [a, b, c, d]);
        match self.seen.insert(pointer.addresses[0].0, identity) {
            None => true,
            Some(before) => {
                if before != identity {
                    let address = pointer.addresses[0].0;
                    reporter.damaged(format!("block {address} is two different nodes"));
                }
                false
            }
        }
    }
}

/// Which copies of a node to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Copies {
    /// All of them, from the medium.
    All,
    /// Any good one, from memory if it is there.
    Any,
}

/// What the walk visits.
pub(super) enum Event<'a> {
    /// A readable node.
    Node(NodePointer),
    /// An item of a leaf.
    Item(Key, &'a [u8]),
}

/// A node still to be visited, with the range of its keys: `low..high`; `None` means no bound.
struct NodeToVisit {
    pointer: NodePointer,
    level: u8,
    low: Key,
    high: Option<Key>,
}

/// Visits every node and item below `root`, except nodes that another tree in `seen` has too.
/// Unreadable nodes are reported and skipped.
pub(super) fn walk<M: Medium, P: Platform>(
    store: &Store<M, P>,
    root: &Root,
    copies: Copies,
    mut seen: Option<&mut SeenNodes>,
    reporter: &mut Reporter<'_>,
    visit: &mut dyn FnMut(Event<'_>, &mut Reporter<'_>),
) {
    let mut stack =
        vec![NodeToVisit { pointer: root.pointer, level: root.level(), low: Key::MIN, high: None }];
    // No tree has more nodes than fit the volume; a tree that seems to have more leads to the same
    // nodes repeatedly.
    let mut left =
        store.device.superblock_now().usable_blocks() / store.device.superblock.node_blocks();
    while let Some(next) = stack.pop() {
        if left == 0 {
            reporter.tree_damaged = true;
            reporter.damaged("the tree has more nodes than fit the volume".into());
            return;
        }
        left -= 1;
        if seen.as_mut().is_some_and(|seen| !seen.visit(&next.pointer, reporter)) {
            continue;
        }
        let node = match read(store, &next, copies, reporter) {
            Ok(node) => node,
            Err(error) => {
                reporter.tree_damaged = true;
                let to = next.high.map_or("the end".into(), |high| format!("{high:?}"));
                let address = next.pointer.addresses[0];
                let at = At { keys: Some((next.low, next.high)), ..At::block(address) };
                let text = format!(
                    "node at block {} cannot be read ({}); keys from {:?} to {to} are lost",
                    address.0,
                    reason(&error),
                    next.low,
                );
                reporter.damaged_at(at, text);
                continue;
            }
        };
        visit(Event::Node(next.pointer), reporter);
        reporter.advance(store.device.superblock.node_blocks());
        check_bounds(&node, &next, reporter);
        if node.level() == 0 {
            for index in 0..node.count() {
                visit(Event::Item(node.key(index), node.value(index)), reporter);
            }
            continue;
        }
        for index in (0..node.count()).rev() {
            stack.push(NodeToVisit {
                pointer: node.child(index),
                level: next.level - 1,
                low: if index == 0 { next.low } else { node.key(index) },
                high: if index + 1 < node.count() { Some(node.key(index + 1)) } else { next.high },
            });
        }
    }
}

fn read<M: Medium, P: Platform>(
    store: &Store<M, P>,
    next: &NodeToVisit,
    copies: Copies,
    reporter: &mut Reporter<'_>,
) -> Result<Arc<Node>> {
    if copies == Copies::Any {
        return store.node(&next.pointer, next.level);
    }
    let mut good = None;
    let mut bad = Vec::new();
    for address in next.pointer.copies() {
        match store.read_node_copy(&next.pointer, address) {
            Ok(node) => good = Some(node),
            Err(error) => bad.push((address, error)),
        }
    }
    let failure = bad.last().map(|(_, error)| *error);
    if next.pointer.copies().count() > 1 {
        let remedy = if good.is_some() { Remedy::Copy } else { Remedy::None };
        for (address, error) in &bad {
            let text = format!("copy of a node at block {}: {}", address.0, reason(error));
            reporter.degraded_at(At::block(*address).remedy(remedy), text);
        }
    }
    let none = Error::CorruptMetadata { address: next.pointer.addresses[0], reason: "no copy" };
    let node = good.ok_or(failure.unwrap_or(none))?;
    let corrupt =
        |reason| Err(Error::CorruptMetadata { address: next.pointer.addresses[0], reason });
    if node.level() != next.level {
        return corrupt("node on the wrong level");
    }
    if node.generation() != next.pointer.generation {
        return corrupt("node of another generation");
    }
    Ok(Arc::new(node))
}

fn check_bounds(node: &Node, place: &NodeToVisit, reporter: &mut Reporter<'_>) {
    if node.count() == 0 {
        return;
    }
    // The first key of a branch is only a lower bound. It may lie below the range after removals on
    // its left.
    let first_counts = node.level() == 0;
    let low = first_counts && node.key(0) < place.low;
    let high = place.high.is_some_and(|high| node.key(node.count() - 1) >= high);
    if low || high {
        let address = place.pointer.addresses[0];
        let at = At {
            keys: Some((node.key(0), Some(node.key(node.count() - 1)))),
            ..At::block(address)
        };
        reporter.damaged_at(at, format!("node at block {} has keys outside its range", address.0));
    }
}
