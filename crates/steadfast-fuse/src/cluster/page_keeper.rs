//! [`PageKeeper`]: the pages of files that this node's kernel may have, and the thread that has the
//! kernel drop them.
//!
//! If the helper process can [look](Puller::look) at files, they may be read through the kernel's
//! pages. Each such read begins with a look at the attributes, unless the kernel may keep them. So
//! no node reads a page longer than it may keep attributes, even one that hears of no recall.
//!
//! Invariants:
//! - Before a notification about pages the size that the kernel has is that of before the change,
//!   or right ([`crate::pull`]). After it, and before a change is confirmed, it is right.
//! - The kernel takes a larger size only when it has dropped the pages that end at the smaller one.
//!   These pages show zero bytes from there on. The kernel takes a smaller size first: a read that
//!   finds the end tells the kernel so, unless a notification has overtaken it.
//! - An answer about attributes is given to the kernel after the recalls that came before it. So
//!   the pages that a program then finds are not older than the answer.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use crate::abi::opcode;
use crate::cluster::paged_nodes::PagedNodes;
use crate::device::FuseDevice;
use crate::filesystem::recall::RecalledNode;
use crate::log::log_warning;
use crate::pull::{Looked, Puller};
use crate::request::Request;
use crate::validity::told_node;

/// Nodes whose pages the kernel must drop. What is called after it is told whether it has.
type PageRecall = (Vec<RecalledNode>, Box<dyn FnOnce(bool) + Send>);

/// See the module.
pub(super) struct PageKeeper {
    device: FuseDevice,
    puller: Puller,
    /// The process that looks at files; none: no file is read through pages.
    looks: Option<u32>,
    /// Whether it has not found the mount any more.
    lost: AtomicBool,
    /// Nodes of which the kernel may have pages.
    pages: Mutex<PagedNodes>,
    queue: Sender<PageRecall>,
    /// How often nodes are in recalls that wait for the thread, or that it executes.
    recalling: Mutex<HashMap<u64, usize>>,
}

/// What the thread is told.
pub(super) struct PageRecalls(Receiver<PageRecall>);

impl PageKeeper {
    /// A thread has to [`run`](Self::run) with the second result. `reads`: files may be read
    /// through pages.
    pub(super) fn new(
        device: FuseDevice,
        puller: Puller,
        reads: bool,
    ) -> (PageKeeper, PageRecalls) {
        let (queue, recalls) = channel();
        let looks = puller.looks().filter(|_| reads);
        if reads && looks.is_none() {
            log_warning!("no file is read through the kernel's pages: it takes root's rights");
        }
        let keeper = PageKeeper {
            device,
            puller,
            looks,
            lost: AtomicBool::new(false),
            pages: Mutex::default(),
            queue,
            recalling: Mutex::default(),
        };
        (keeper, PageRecalls(recalls))
    }

    /// Whether a request is from the process that looks at files.
    pub(super) fn is_look(&self, request: &Request<'_>) -> bool {
        self.looks == Some(request.header.pid)
    }

    /// A file is opened, only for reading. Returns whether it is read through pages. It is not while
    /// pages of it are recalled: the kernel may still have older ones.
    pub(super) fn opened(&self, nodeid: u64) -> bool {
        let recalled = self.recalling().contains_key(&nodeid);
        let able = self.looks.is_some() && !self.lost.load(Ordering::Relaxed);
        able && !recalled && self.pages().add(nodeid, Instant::now())
    }

    /// The kernel has forgotten a node, and so had no pages of it then.
    pub(super) fn forget(&self, nodeid: u64) {
        self.pages().forget(nodeid, Instant::now());
    }

    /// Ends the helper process.
    pub(super) fn end(&self) {
        self.puller.stop();
    }

    /// The kernel sends a request. It may be one that reads into pages.
    pub(super) fn asked(&self, request: &Request<'_>) {
        if request.header.opcode != opcode::READ || !request.is_for_pages() {
            return;
        }
        let (mut pages, nodeid, now) = (self.pages(), request.header.nodeid, Instant::now());
        // Without a place the pages of another node are dropped.
        while !pages.add(nodeid, now)
            && let Some(other) = pages.take_one()
        {
            self.recall(vec![other], drop);
        }
    }

    /// Whether the kernel may read a node through pages, so that a notification must not overtake
    /// an answer.
    pub(super) fn has(&self, nodeid: u64) -> bool {
        self.looks.is_some() && self.pages().has(nodeid, Instant::now())
    }

    /// The owner is no more, and the next one does not know which pages the kernel has.
    pub(super) fn lose(&self) {
        let nodes = self.pages().take_all();
        if !nodes.is_empty() {
            self.recall(nodes, drop);
        }
    }

    /// Has the thread recall attributes and pages of nodes. `then` is told whether the kernel has
    /// dropped them.
    pub(super) fn recall(
        &self,
        nodes: Vec<RecalledNode>,
        then: impl FnOnce(bool) + Send + 'static,
    ) {
        {
            let mut recalling = self.recalling();
            nodes.iter().for_each(|node| *recalling.entry(node.nodeid).or_default() += 1);
        }
        // Without the thread the mount has ended.
        let _ = self.queue.send((nodes, Box::new(then)));
    }

    /// Whether the answer to a request, which tells attributes, has to be [queued](Self::queue)
    /// after recalls of pages.
    pub(super) fn is_recalling(&self, request: &Request<'_>, answer: &[u8]) -> bool {
        !self.is_look(request)
            && told_node(request, answer).is_some_and(|node| self.recalling().contains_key(&node))
    }

    /// Whether one of these nodes is recalled, and the kernel may not have dropped it yet.
    pub(super) fn is_recalling_one(&self, nodes: &[RecalledNode]) -> bool {
        let recalling = self.recalling();
        nodes.iter().any(|node| recalling.contains_key(&node.nodeid))
    }

    /// Calls `then` after the recalls so far.
    pub(super) fn queue(&self, then: impl FnOnce() + Send + 'static) {
        self.recall(Vec::new(), move |_| then());
    }

    /// Recalls pages, until the mount ends. Waits for requests of this kernel that are under way,
    /// so these must not need this thread.
    pub(super) fn run(keeper: &Weak<PageKeeper>, recalls: &PageRecalls) {
        for (nodes, then) in &recalls.0 {
            then(keeper.upgrade().is_some_and(|keeper| keeper.drop_pages(&nodes)));
        }
    }

    /// Returns whether the kernel has dropped the attributes and pages of nodes.
    fn drop_pages(&self, nodes: &[RecalledNode]) -> bool {
        let mut dropped = true;
        for node in nodes {
            let taken = self.look(*node, false);
            match self.device.invalidate_inode(node.nodeid, 0) {
                // A kernel that is no more keeps nothing.
                Err(error) if error.raw_os_error() != Some(libc::ENODEV) => {
                    log_warning!("the kernel keeps pages that another node changes: {error}");
                    dropped = false;
                }
                _ => {}
            }
            dropped &= match taken {
                Looked::Yes => true,
                Looked::Larger => self.look(*node, true) == Looked::Yes,
                Looked::No => false,
            };
        }
        let mut recalling = self.recalling();
        for node in nodes {
            if let Entry::Occupied(mut queued) = recalling.entry(node.nodeid) {
                *queued.get_mut() -= 1;
                if *queued.get() == 0 {
                    queued.remove();
                }
            }
        }
        dropped
    }

    /// Has the kernel take the attributes of a node, unless the size is larger than the one that it
    /// has. `grows`: that one, too.
    fn look(&self, node: RecalledNode, grows: bool) -> Looked {
        if self.looks.is_none() || node.generation == 0 || self.lost.load(Ordering::Relaxed) {
            return Looked::Yes;
        }
        match self.puller.look(node, grows) {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {
                self.lost.store(true, Ordering::Relaxed);
                Looked::Yes
            }
            result => result.unwrap_or(Looked::No),
        }
    }

    fn recalling(&self) -> MutexGuard<'_, HashMap<u64, usize>> {
        self.recalling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pages(&self) -> MutexGuard<'_, PagedNodes> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
