//! [`PageKeeper`]: the pages of files that this node's kernel may have, and the thread that has the
//! kernel drop them.
//!
//! With a [`Refresher`] files may be read through the kernel's pages. Each such read begins with a
//! look at the attributes, unless the kernel may keep them. So no node reads a page longer than it
//! may keep attributes, even one that hears of no recall.
//!
//! Invariants:
//! - Before a notification the size that the kernel has is right ([`super::refresh`]).
//! - An answer about attributes is given to the kernel behind the recalls that came before it. So
//!   the pages that a program then finds are not older than the answer.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use super::refresh::Refresher;
use crate::abi::opcode;
use crate::device::Device;
use crate::filesystem::recall::NodeHandle;
use crate::log::log_warning;
use crate::request::Request;

/// Most nodes that are known to have pages. Beyond them the pages of another one are dropped.
const NODES_MAX: usize = 1 << 16;
/// How long no recall comes before the thread lets go of the mount.
const REST: Duration = Duration::from_millis(100);

/// Nodes whose pages the kernel must drop. What is called behind it is told whether it has.
type PageRecall = (Vec<NodeHandle>, Box<dyn FnOnce(bool) + Send>);

/// See the module.
pub(super) struct PageKeeper {
    device: Device,
    /// Nodes of which the kernel may have pages.
    pages: Mutex<HashSet<u64>>,
    queue: Sender<PageRecall>,
    /// How often nodes are in recalls that wait for the thread, or that it executes.
    recalling: Mutex<HashMap<u64, usize>>,
    /// Whether files may be read through pages.
    able: AtomicBool,
    /// The thread, as the kernel tells of it.
    thread: OnceLock<u32>,
}

/// What the thread is told.
pub(super) struct PageRecalls(Receiver<PageRecall>);

/// A node that the kernel is not asked about: it is stale, or there are too many.
fn stale(nodeid: u64) -> NodeHandle {
    NodeHandle { nodeid, generation: 0 }
}

impl PageKeeper {
    /// A thread has to [`run`](Self::run) with the second result.
    pub(super) fn new(device: Device) -> (PageKeeper, PageRecalls) {
        let (queue, recalls) = channel();
        let keeper = PageKeeper {
            device,
            pages: Mutex::default(),
            queue,
            recalling: Mutex::default(),
            able: AtomicBool::new(false),
            thread: OnceLock::new(),
        };
        (keeper, PageRecalls(recalls))
    }

    /// Whether files may be read through pages.
    pub(super) fn is_able(&self) -> bool {
        self.able.load(Ordering::Relaxed)
    }

    fn cannot(&self, error: &std::io::Error) {
        if self.able.swap(false, Ordering::Relaxed) {
            log_warning!("from now on no file is read through the kernel's pages: {error}");
        }
    }

    /// The kernel sends a request. It may be one that reads into pages.
    pub(super) fn asked(&self, request: &Request<'_>) {
        if request.header.opcode != opcode::READ || !request.is_for_pages() {
            return;
        }
        let mut pages = self.pages();
        if pages.len() >= NODES_MAX
            && let Some(other) = pages.iter().next().copied()
        {
            pages.remove(&other);
            self.recall(vec![stale(other)], drop);
        }
        pages.insert(request.header.nodeid);
    }

    /// Whether the kernel may have read pages of a node.
    pub(super) fn has(&self, nodeid: u64) -> bool {
        self.pages().contains(&nodeid)
    }

    /// The nodes that the kernel has are stale, and so are their pages.
    pub(super) fn lose(&self) {
        let nodes: Vec<NodeHandle> = self.pages().drain().map(stale).collect();
        if !nodes.is_empty() {
            self.recall(nodes, drop);
        }
    }

    /// Has the thread recall attributes and pages of nodes. `then` is told whether the kernel has
    /// dropped them.
    pub(super) fn recall(&self, nodes: Vec<NodeHandle>, then: impl FnOnce(bool) + Send + 'static) {
        {
            let mut recalling = self.recalling();
            nodes.iter().for_each(|node| *recalling.entry(node.nodeid).or_default() += 1);
        }
        // Without the thread the mount has ended.
        let _ = self.queue.send((nodes, Box::new(then)));
    }

    /// Calls `then` behind the recalls so far, if an answer about the attributes of a node has to
    /// wait for them, or returns it. The thread's own requests wait for nothing.
    pub(super) fn behind<F: FnOnce() + Send + 'static>(
        &self,
        (nodeid, thread): (u64, u32),
        then: F,
    ) -> Option<F> {
        if self.thread.get() == Some(&thread) || !self.recalling().contains_key(&nodeid) {
            return Some(then);
        }
        self.recall(Vec::new(), move |_| then());
        None
    }

    /// Recalls pages, until the mount ends. Waits for requests of this kernel that are under way,
    /// so these must not need this thread. `mount`: its directory and its device number, if files
    /// may be read through pages.
    pub(super) fn run(
        keeper: &Weak<PageKeeper>,
        recalls: &PageRecalls,
        mount: Option<(PathBuf, (u32, u32))>,
    ) {
        let mut refresher = mount.and_then(|(directory, device)| {
            Refresher::new(directory, device)
                .inspect_err(|error| {
                    log_warning!("no file is read through the kernel's pages: {error}");
                })
                .ok()
        });
        if let Some(keeper) = keeper.upgrade().filter(|_| refresher.is_some()) {
            let _ = keeper.thread.set(rustix::thread::gettid().as_raw_nonzero().get() as u32);
            keeper.able.store(true, Ordering::Relaxed);
        }
        loop {
            let received = match &mut refresher {
                Some(refresher) if refresher.is_awake() => {
                    let received = recalls.0.recv_timeout(REST);
                    if matches!(received, Err(RecvTimeoutError::Timeout)) {
                        refresher.rest();
                        continue;
                    }
                    received.ok()
                }
                _ => recalls.0.recv().ok(),
            };
            let Some((nodes, then)) = received else { return };
            let keeper = keeper.upgrade();
            then(keeper.is_some_and(|keeper| keeper.drop_pages(&nodes, &mut refresher)));
        }
    }

    /// Returns whether the kernel has dropped the attributes and pages of nodes.
    fn drop_pages(&self, nodes: &[NodeHandle], refresher: &mut Option<Refresher>) -> bool {
        let mut dropped = true;
        for node in nodes {
            if let Some(Err(error)) = refresher.as_mut().map(|refresher| refresher.refresh(*node)) {
                self.cannot(&error);
                dropped = false;
            }
            match self.device.invalidate_inode(node.nodeid, 0) {
                // A kernel that is no more keeps nothing.
                Err(error) if error.raw_os_error() != Some(libc::ENODEV) => {
                    log_warning!("the kernel keeps pages that another node changes: {error}");
                    dropped = false;
                }
                _ => {}
            }
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

    fn recalling(&self) -> MutexGuard<'_, HashMap<u64, usize>> {
        self.recalling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pages(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
