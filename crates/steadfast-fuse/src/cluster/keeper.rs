//! [`Keeper`]: what this node's kernel may keep of the answers that it gets.
//!
//! The owner says how long the kernel may keep an answer, and recalls that before the answer is
//! wrong ([`crate::filesystem::delegations`]). The kernel has a gap: a notification that overtakes
//! the answer to a request for attributes makes the kernel drop that answer. It then goes on with
//! the attributes that it has, which may be older than the request. So
//!
//! - attributes may be kept only once an answer with the same ones has been with the kernel for
//!   [`SETTLING`]: no notification can overtake that one. Of a directory mode and owner count
//!   ([`crate::validity`]);
//! - a notification is sent only while the kernel may still keep attributes. That of pages has to
//!   be sent in any case. Before it this node has the kernel ask again ([`super::page_keeper`]). So
//!   the kernel never goes on with a size that is older than an answered change;
//! - only GETATTR and STATX count as the first answer, because the kernel drops a cached ACL there.
//!   A directory is settled by nothing that tells of the time of its change. So there each answer
//!   that may be kept has to be one of these.
//!
//! Names have no such gap: a recall begins a new epoch of names. An answer that was asked for in an
//! earlier one is expired from the start.
//!
//! Invariant: nothing is kept of an answer that is older than [`LATE`]. The owner counts on that
//! when it waits for the end of what it cannot recall.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::page_keeper::PageKeeper;
use crate::abi::input::{BatchForgetIn, ForgetOne, RenameIn};
use crate::abi::opcode;
use crate::device::FuseDevice;
use crate::filesystem::affected::changes_names;
use crate::filesystem::delegations::LATE;
use crate::filesystem::recall::RecalledNode;
use crate::log::log_warning;
use crate::request::Request;
use crate::validity;

/// Longest time in which a thread in the kernel takes the answer that was given to it.
const SETTLING: Duration = Duration::from_millis(500);
/// Most nodes that are known. Beyond them no attributes are kept.
const NODES_MAX: usize = 1 << 16;
/// How long a node stays known that the kernel keeps nothing of, when there are too many.
const PRUNE: Duration = Duration::from_secs(5);

/// What the kernel knows of a node.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    /// The attributes, and when the kernel was given them first.
    first: Option<(u64, Instant)>,
    /// When they were recalled last.
    recalled: Option<Instant>,
    /// Until when the kernel may keep attributes.
    until: Option<Instant>,
    /// When the kernel itself was told last that it has changed names in this directory.
    changed: Option<Instant>,
}

/// The nodes whose attributes the kernel may know.
#[derive(Debug, Default)]
struct Settled {
    nodes: HashMap<u64, Known>,
    /// When everything was recalled last.
    all: Option<Instant>,
    /// Until when the kernel may keep names.
    names_until: Option<Instant>,
}

/// An answer with attributes that the owner has delegated.
#[derive(Debug, Clone, Copy)]
struct DelegatedAnswer {
    nodeid: u64,
    /// Stands for the attributes.
    same: u64,
    /// Whether the request was GETATTR or STATX.
    first: bool,
    asked: Instant,
    valid: Duration,
}

/// See the module.
pub(super) struct Keeper {
    device: FuseDevice,
    /// Whether the kernel can expire all names at once.
    epochs: bool,
    settled: Mutex<Settled>,
    /// Held while the kernel is told to drop what it keeps, so that no other thread takes that for
    /// done before.
    dropping: Mutex<()>,
    pub(super) pages: Arc<PageKeeper>,
}

impl Keeper {
    pub(super) fn new(device: FuseDevice, epochs: bool, pages: PageKeeper) -> Keeper {
        let (settled, dropping) = (Mutex::default(), Mutex::default());
        Keeper { device, epochs, settled, dropping, pages: Arc::new(pages) }
    }

    /// Prepares an answer for the kernel. `asked`: when the request has arrived.
    pub(super) fn limit(&self, request: &Request<'_>, answer: &mut [u8], asked: Instant) {
        let now = Instant::now();
        let late = asked + LATE < now;
        let first = matches!(request.header.opcode, opcode::GETATTR | opcode::STATX);
        let changed = [opcode::SETATTR, opcode::SETXATTR, opcode::REMOVEXATTR];
        if changed.contains(&request.header.opcode) {
            self.settled().unsettle(request.header.nodeid);
        }
        self.names_changed(request, now);
        let attributes = |delegated: validity::Delegated| {
            let validity::Delegated { nodeid, same, is_directory, valid } = delegated;
            let told = DelegatedAnswer { nodeid, same, first, asked, valid };
            // The kernel takes the attributes in other answers even if they were recalled
            // meanwhile. With a LOOKUP it may keep an ACL. That of a directory may be an old one.
            let taken = first || request.header.opcode == opcode::LOOKUP && !is_directory;
            match !late && taken && self.settled().may_keep(told, now) {
                true => valid,
                false => Duration::ZERO,
            }
        };
        let names = |valid| {
            if late {
                return Duration::ZERO;
            }
            self.settled().pass_names(valid, now);
            valid
        };
        let may_cache = |_| self.pages.opened(request.header.nodeid);
        validity::limit(request, answer, names, attributes, may_cache);
    }

    /// The kernel has changed names in directories. It marks their attributes as invalid then. An
    /// earlier answer that it takes only after that would make them valid again.
    fn names_changed(&self, request: &Request<'_>, now: Instant) {
        let target = match request.header.opcode {
            opcode::RENAME | opcode::RENAME2 => request.arguments().take::<RenameIn>().ok(),
            other if changes_names(other) => None,
            _ => return,
        };
        let directories = [Some(request.header.nodeid), target.map(|target| target.newdir)];
        for nodeid in directories.into_iter().flatten() {
            let _one_at_a_time = self.dropping();
            let kept = self.settled().names_changed(nodeid, now);
            if kept && self.drop_from_kernel(&[nodeid], false) {
                self.settled().dropped(nodeid);
            }
        }
    }

    /// The kernel has forgotten nodes.
    pub(super) fn forget(&self, request: &Request<'_>) {
        let (mut settled, now) = (self.settled(), Instant::now());
        if request.header.opcode == opcode::FORGET {
            self.pages.forget(request.header.nodeid);
            return settled.forget(request.header.nodeid, now);
        }
        let mut arguments = request.arguments();
        let Ok(batch) = arguments.take::<BatchForgetIn>() else { return };
        for _ in 0..batch.count {
            let Ok(one) = arguments.take::<ForgetOne>() else { return };
            self.pages.forget(one.nodeid);
            settled.forget(one.nodeid, now);
        }
    }

    /// Has the kernel drop the attributes of nodes, and all names if `names`. `then` is told
    /// whether it has. A notification must not overtake a read into pages, so those of such nodes
    /// are recalled, too.
    pub(super) fn recall(
        &self,
        nodes: &[RecalledNode],
        names: bool,
        then: impl FnOnce(bool) + Send + 'static,
    ) {
        let one_at_a_time = self.dropping();
        let earlier = self.pages.is_recalling_one(nodes);
        let (kept, names) = {
            let (mut settled, now) = (self.settled(), Instant::now());
            (settled.recall(nodes, now), names && settled.recall_names(now))
        };
        let (read, others): (Vec<RecalledNode>, Vec<RecalledNode>) =
            kept.into_iter().partition(|node| self.pages.has(node.nodeid));
        let others: Vec<u64> = others.iter().map(|node| node.nodeid).collect();
        let dropped = self.drop_from_kernel(&others, names);
        if !read.is_empty() {
            self.pages.recall(read, move |too| then(dropped && too));
        } else if earlier {
            // Nothing is kept once the earlier recall is done.
            self.pages.queue(move || then(dropped));
        } else {
            drop(one_at_a_time);
            then(dropped);
        }
    }

    /// Has the kernel drop attributes and pages of nodes. `then` is told whether it has.
    pub(super) fn recall_pages(
        &self,
        nodes: Vec<RecalledNode>,
        then: impl FnOnce(bool) + Send + 'static,
    ) {
        let _one_at_a_time = self.dropping();
        self.settled().recall(&nodes, Instant::now());
        self.pages.recall(nodes, then);
    }

    /// Has the kernel drop all attributes and names that it keeps.
    pub(super) fn recall_all(&self) {
        let _one_at_a_time = self.dropping();
        let (kept, names) = {
            let (mut settled, now) = (self.settled(), Instant::now());
            (settled.recall_all(now), settled.recall_names(now))
        };
        self.drop_from_kernel(&kept, names);
    }

    /// None of this waits for anything.
    fn drop_from_kernel(&self, nodes: &[u64], names: bool) -> bool {
        let mut failed = None;
        for node in nodes {
            failed = self.device.invalidate_inode(*node, -1).err().or(failed);
        }
        if names && self.epochs {
            failed = self.device.expire_entries().err().or(failed);
        }
        self.told(failed)
    }

    /// Whether the kernel was told. One that is no more keeps nothing.
    fn told(&self, failed: Option<std::io::Error>) -> bool {
        match failed {
            Some(error) if error.raw_os_error() != Some(libc::ENODEV) => {
                log_warning!("the kernel keeps what another node changes: {error}");
                false
            }
            _ => true,
        }
    }

    fn dropping(&self) -> MutexGuard<'_, ()> {
        self.dropping.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settled(&self) -> MutexGuard<'_, Settled> {
        self.settled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Settled {
    /// Whether the kernel may keep the attributes in an answer that is given `now`.
    fn may_keep(&mut self, told: DelegatedAnswer, now: Instant) -> bool {
        let overtaken =
            |recall: Option<Instant>| recall.is_some_and(|at| told.asked < at + SETTLING);
        if overtaken(self.all) || !self.has_place(told.nodeid, now) {
            return false;
        }
        let known = self.nodes.entry(told.nodeid).or_default();
        if overtaken(known.recalled) || known.changed.is_some_and(|at| told.asked <= at) {
            return false;
        }
        match known.first {
            Some((same, first)) if same == told.same => {
                if first + SETTLING > now {
                    return false;
                }
                known.until = known.until.max(Some(now + told.valid));
                true
            }
            _ => {
                known.first = told.first.then_some((told.same, now));
                false
            }
        }
    }

    /// The kernel has changed names in a directory. Returns whether it may keep attributes of it.
    fn names_changed(&mut self, nodeid: u64, now: Instant) -> bool {
        self.nodes.get_mut(&nodeid).is_some_and(|known| {
            known.changed = Some(now);
            known.is_kept(now)
        })
    }

    /// The kernel keeps no attributes of a node.
    fn dropped(&mut self, nodeid: u64) {
        if let Some(known) = self.nodes.get_mut(&nodeid) {
            known.until = None;
        }
    }

    /// The kernel itself has changed the attributes or the ACL of a node.
    fn unsettle(&mut self, nodeid: u64) {
        if let Some(known) = self.nodes.get_mut(&nodeid) {
            known.first = None;
        }
    }

    /// Whether there is a place for a node. Drops what says nothing any more if there is none.
    fn has_place(&mut self, nodeid: u64, now: Instant) -> bool {
        if self.nodes.len() < NODES_MAX || self.nodes.contains_key(&nodeid) {
            return true;
        }
        self.nodes.retain(|_, known| {
            known.is_kept(now)
                || known.recalled.is_some_and(|at| now < at + SETTLING)
                || known.first.is_some_and(|(_, first)| now < first + PRUNE)
        });
        self.nodes.len() < NODES_MAX
    }

    /// What the kernel may still keep stays known: it may have the node again already.
    fn forget(&mut self, nodeid: u64, now: Instant) {
        match self.nodes.get_mut(&nodeid) {
            Some(known) if known.is_kept(now) => known.first = None,
            Some(_) => drop(self.nodes.remove(&nodeid)),
            None => {}
        }
    }

    /// Returns the nodes of which the kernel may keep attributes.
    fn recall(&mut self, nodes: &[RecalledNode], now: Instant) -> Vec<RecalledNode> {
        let mut kept = Vec::new();
        for node in nodes {
            if !self.has_place(node.nodeid, now) {
                self.all = Some(now);
                continue;
            }
            let known = self.nodes.entry(node.nodeid).or_default();
            if known.is_kept(now) {
                kept.push(*node);
            }
            *known = Known { recalled: Some(now), ..Known::default() };
        }
        kept
    }

    fn pass_names(&mut self, valid: Duration, now: Instant) {
        self.names_until = self.names_until.max(Some(now + valid));
    }

    /// Whether the kernel may keep names. If not, no new epoch is begun: that would detach what is
    /// mounted inside the volume.
    fn recall_names(&mut self, now: Instant) -> bool {
        self.names_until.take().is_some_and(|until| now < until + SETTLING)
    }

    /// Returns the nodes of which the kernel may keep attributes.
    fn recall_all(&mut self, now: Instant) -> Vec<u64> {
        self.all = Some(now);
        let known = self.nodes.drain();
        known.filter(|(_, known)| known.is_kept(now)).map(|(node, _)| node).collect()
    }
}

impl Known {
    /// Whether the kernel may keep attributes.
    fn is_kept(&self, now: Instant) -> bool {
        // The kernel counts in ticks, and a thread may take its answer a little later.
        self.until.is_some_and(|until| now < until + SETTLING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: Duration = Duration::from_millis(400);

    fn node(nodeid: u64) -> RecalledNode {
        RecalledNode { nodeid, generation: 1, size: 0 }
    }

    /// An answer to GETATTR, and one to LOOKUP.
    fn told(nodeid: u64, same: u64, asked: Instant) -> [DelegatedAnswer; 2] {
        let told = DelegatedAnswer { nodeid, same, first: true, asked, valid: VALID };
        [told, DelegatedAnswer { first: false, ..told }]
    }

    #[test]
    fn attributes_are_kept_once_the_same_ones_have_settled() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut settled = Settled::default();
        let keeps = |settled: &mut Settled, node, same, asked, now| {
            let [getattr, lookup] = told(node, same, at(asked));
            let looked = settled.may_keep(lookup, at(now));
            (looked, settled.may_keep(getattr, at(now)))
        };
        assert_eq!(keeps(&mut settled, 7, 1, 0, 1), (false, false), "the first look");
        assert_eq!(keeps(&mut settled, 7, 1, 400, 401), (false, false));
        assert_eq!(keeps(&mut settled, 7, 1, 501, 502), (true, true));
        assert_eq!(keeps(&mut settled, 8, 1, 501, 502), (false, false), "another node");
        // Other attributes begin again, although no recall has told of them.
        assert_eq!(keeps(&mut settled, 7, 2, 600, 601), (false, false));
        assert_eq!(keeps(&mut settled, 7, 2, 1000, 1001), (false, false));
        assert_eq!(keeps(&mut settled, 7, 2, 1101, 1102), (true, true));
        // A recall: what was asked for before it, or shortly after it, does not count.
        assert_eq!(
            settled.recall(&[node(7), node(9)], at(1200)),
            [node(7)],
            "nothing of 9 was kept"
        );
        for asked in [1150, 1201, 1699] {
            assert_eq!(keeps(&mut settled, 7, 3, asked, 1720), (false, false));
        }
        assert_eq!(keeps(&mut settled, 7, 3, 1700, 1701), (false, false), "the first one");
        assert_eq!(keeps(&mut settled, 7, 3, 2200, 2202), (true, true));
        // A recall of everything.
        assert_eq!(settled.recall_all(at(2300)), [7], "8 was not kept");
        assert_eq!(keeps(&mut settled, 7, 3, 2700, 2701), (false, false));
        assert_eq!(keeps(&mut settled, 7, 3, 2800, 2801), (false, false));
        assert_eq!(keeps(&mut settled, 7, 3, 3302, 3303), (true, true));
    }

    #[test]
    fn names_expire_only_where_the_kernel_may_keep_some() {
        let start = Instant::now();
        let mut settled = Settled::default();
        assert!(!settled.recall_names(start), "none was passed on");
        settled.pass_names(VALID, start);
        assert!(settled.recall_names(start + VALID));
        assert!(!settled.recall_names(start + VALID), "the epoch is new");
        settled.pass_names(VALID, start);
        assert!(!settled.recall_names(start + VALID + SETTLING), "their time is over");
    }

    #[test]
    fn a_change_by_the_kernel_itself_has_to_settle() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut settled = Settled::default();
        settled.may_keep(told(7, 1, at(0))[0], at(0));
        assert!(settled.may_keep(told(7, 1, at(500))[0], at(500)));
        // Another node may change it back before this one is told again.
        assert!(settled.names_changed(7, at(600)));
        settled.dropped(7);
        assert!(!settled.names_changed(7, at(601)));
        assert!(!settled.may_keep(told(7, 1, at(590))[0], at(610)), "asked for before the change");
        assert!(settled.may_keep(told(7, 1, at(602))[0], at(610)), "it is settled all the same");
        settled.unsettle(7);
        assert!(!settled.may_keep(told(7, 1, at(620))[0], at(620)));
        assert!(settled.may_keep(told(7, 1, at(1120))[0], at(1120)));
        assert_eq!(settled.recall(&[node(7)], at(1200)), [node(7)]);
    }

    #[test]
    fn a_lookup_is_no_first_answer() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut settled = Settled::default();
        for ms in [0, 600, 1200] {
            assert!(!settled.may_keep(told(7, 1, at(ms))[1], at(ms)));
        }
        assert!(!settled.may_keep(told(7, 1, at(1300))[0], at(1300)));
        assert!(settled.may_keep(told(7, 1, at(1800))[1], at(1800)));
    }

    #[test]
    fn a_forgotten_node_is_recalled_as_long_as_it_may_be_kept() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut settled = Settled::default();
        settled.may_keep(told(7, 1, at(0))[0], at(0));
        assert!(settled.may_keep(told(7, 1, at(500))[0], at(500)));
        settled.forget(7, at(600));
        assert!(!settled.may_keep(told(7, 1, at(610))[0], at(610)), "it has to settle again");
        assert_eq!(settled.recall_all(at(700)), [7]);
        settled.may_keep(told(7, 1, at(1200))[0], at(1200));
        settled.forget(7, at(1300));
        assert!(settled.nodes.is_empty());
    }

    #[test]
    fn the_table_is_bounded_and_does_not_stay_full() {
        let start = Instant::now();
        let mut settled = Settled::default();
        for nodeid in 0..NODES_MAX as u64 {
            settled.recall(&[node(nodeid)], start);
        }
        assert!(!settled.may_keep(told(1 << 40, 1, start)[0], start));
        // The recall of a node that does not fit counts for all.
        settled.recall(&[node(1 << 40), node(5)], start);
        assert_eq!(settled.all, Some(start));
        let later = start + 2 * SETTLING;
        settled.may_keep(told(1 << 40, 1, later)[0], later);
        assert_eq!(settled.nodes.len(), 1);
    }
}
