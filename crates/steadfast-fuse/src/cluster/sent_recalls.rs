//! [`SentRecalls`]: the recalls of one peer that it has not confirmed.
//!
//! Invariant: pages that were recalled without a confirmation are recalled again over the next
//! connection, because they have no time after which the kernel drops them.

use std::collections::HashMap;

use super::frame::AnswerFrame;
use crate::filesystem::recall::{Done, Recalled, RecalledNode};

/// A recall that the peer has not confirmed.
pub(super) struct Unconfirmed {
    done: Done,
    nodes: Vec<RecalledNode>,
    /// Whether it is about pages.
    pages: bool,
}

/// See the module.
#[derive(Default)]
pub(super) struct SentRecalls {
    unconfirmed: HashMap<u64, Unconfirmed>,
    /// Nodes whose pages the peer must drop when it is back.
    missed: HashMap<u64, RecalledNode>,
    /// Number of the last recall.
    pub(super) last: u64,
}

impl SentRecalls {
    /// Recalls nodes by `send`, which returns whether there is a connection.
    pub(super) fn begin(
        &mut self,
        nodes: &[RecalledNode],
        what: Recalled,
        done: Done,
        send: impl FnOnce(AnswerFrame) -> bool,
    ) {
        self.last += 1;
        let recall = Unconfirmed { done, nodes: nodes.to_vec(), pages: what == Recalled::Pages };
        match send(AnswerFrame::recall(self.last, nodes, what)) {
            true => drop(self.unconfirmed.insert(self.last, recall)),
            false => self.give_up(recall),
        }
    }

    /// The peer has confirmed a recall. Dropping the result lets the change go on.
    pub(super) fn confirm(&mut self, number: u64) -> Option<Unconfirmed> {
        self.unconfirmed.remove(&number)
    }

    /// Whether a recall of a node is not confirmed.
    pub(super) fn has(&self, nodeid: u64) -> bool {
        let is_it = |node: &RecalledNode| node.nodeid == nodeid;
        self.unconfirmed.values().any(|recall| recall.nodes.iter().any(is_it))
    }

    /// Whether a recall of pages is not confirmed.
    pub(super) fn has_pages(&self) -> bool {
        self.unconfirmed.values().any(|recall| recall.pages)
    }

    /// Without the connection nothing is confirmed.
    pub(super) fn give_up_all(&mut self) {
        for (_, recall) in std::mem::take(&mut self.unconfirmed) {
            self.give_up(recall);
        }
    }

    fn give_up(&mut self, recall: Unconfirmed) {
        if recall.pages {
            self.missed.extend(recall.nodes.iter().map(|node| (node.nodeid, *node)));
        }
        recall.done.never();
    }

    /// The nodes whose pages the peer must drop now that it is back.
    pub(super) fn take_missed(&mut self) -> Vec<RecalledNode> {
        std::mem::take(&mut self.missed).into_values().collect()
    }
}
