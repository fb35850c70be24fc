//! [`PageHolders`]: the kernels that may have pages of files.
//!
//! With several kernels, a file is read through a kernel's pages only if it is opened for nothing
//! else, and written without them. But a mapping, and splice(2), which sendfile(2) uses, always
//! read through pages. The kernel does not ask again for what it has in a page. So the pages of
//! other kernels are recalled before data changes. A kernel may read a page again in between, so
//! they are recalled after the change, too, before it is answered.
//!
//! Invariants:
//! - A kernel that has a page of a file is a holder: it becomes one before its read is executed.
//! - A holder stays one until it has dropped the pages that it had when it was told to. A second
//!   change waits for that, too.
//! - An answer about attributes comes after the recall of each change that it may tell of, unless
//!   that takes longer than [`CHANGE_WAIT`]. The kernel would take a larger size while it has pages
//!   that end at the smaller one.
//!
//! A recall waits until the kernel's own reads and written-back pages are answered. What it writes
//! back waits for no kernel: two kernels would wait for each other.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use steadfast::{InodeNumber, Platform};
use steadfast_media::Medium;
use zerocopy::FromBytes;

use super::Filesystem;
use super::recall::{Recall, Recalled};
use crate::abi::flags::setattr;
use crate::abi::input::{CopyFileRangeIn, CreateIn, OpenIn, SetattrIn};
use crate::abi::opcode;
use crate::abi::output::EntryOut;
use crate::errno::Errno;
use crate::node;
use crate::request::Request;
use crate::snapshots::is_snapshot;
use crate::validity::told_node;

/// How long a change waits for a kernel that does not confirm: as long as for delegated attributes.
pub(crate) const WAIT: Duration = Duration::from_millis(620);
/// Most files that are known, with one more for each reader. Beyond them a reader has the pages of
/// another file dropped first.
const INODES_MAX: usize = 1 << 16;
/// How long an answer about attributes waits for changes of the file. Most take far less. A long
/// one (a copy of gigabytes, a synced write) must not keep others from looking at the file.
const CHANGE_WAIT: Duration = Duration::from_millis(10);

/// A kernel that may have pages of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PageHolder {
    kernel: u64,
    /// The number of its last read.
    read: u64,
}

#[derive(Debug, Default)]
struct HolderTable {
    by_inode: HashMap<InodeNumber, Vec<PageHolder>>,
    reads: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct PageHolders {
    table: Mutex<HolderTable>,
    /// How many changes of a file are executed now.
    changing: Mutex<HashMap<InodeNumber, usize>>,
    changed: Condvar,
}

/// A file is changed while it lives.
pub(super) struct Changing<'a>(&'a PageHolders, InodeNumber);

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        let Changing(holders, inode) = self;
        let mut changing = holders.changing();
        if let Entry::Occupied(mut changes) = changing.entry(*inode) {
            *changes.get_mut() -= 1;
            if *changes.get() == 0 {
                changes.remove();
                holders.changed.notify_all();
            }
        }
    }
}

/// A recall that has begun.
pub(super) struct PendingRecall {
    rewrite: Rewrite,
    told: Vec<PageHolder>,
    recall: Arc<Recall>,
}

/// A change of the data of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rewrite {
    inode: InodeNumber,
    /// The pages of the kernel that asks are recalled after it, too: it drops them itself only
    /// before it asks.
    own: bool,
    /// It is answered once the kernels have confirmed.
    waits: bool,
}

impl PageHolders {
    /// Lives until the recall after a change has begun.
    fn changing_now(&self, inode: InodeNumber) -> Changing<'_> {
        *self.changing().entry(inode).or_default() += 1;
        Changing(self, inode)
    }

    /// Waits until no change of a file is executed, for [`CHANGE_WAIT`] at most. `begins` is called
    /// before.
    fn wait_for_changes(&self, inode: InodeNumber, begins: impl FnOnce()) {
        let changing = self.changing();
        if !changing.contains_key(&inode) {
            return;
        }
        drop(changing);
        begins();
        let is_changing = |changing: &mut HashMap<_, _>| changing.contains_key(&inode);
        drop(self.changed.wait_timeout_while(self.changing(), CHANGE_WAIT, is_changing));
    }

    fn changing(&self) -> MutexGuard<'_, HashMap<InodeNumber, usize>> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A kernel reads a file into pages. Returns another file whose pages must be dropped.
    pub(super) fn reads(&self, kernel: u64, inode: InodeNumber) -> Option<InodeNumber> {
        let mut table = self.table();
        let full = table.by_inode.len() >= INODES_MAX && !table.by_inode.contains_key(&inode);
        let other = table.by_inode.keys().next().copied().filter(|_| full);
        table.reads += 1;
        let holder = PageHolder { kernel, read: table.reads };
        let holders = table.by_inode.entry(inode).or_default();
        match holders.iter_mut().find(|known| known.kernel == kernel) {
            Some(known) => *known = holder,
            None => holders.push(holder),
        }
        other
    }

    fn of(&self, inode: InodeNumber) -> Vec<PageHolder> {
        self.table().by_inode.get(&inode).cloned().unwrap_or_default()
    }

    /// These have dropped what they had.
    fn dropped(&self, inode: InodeNumber, gone: &[PageHolder]) {
        let mut table = self.table();
        let Some(holders) = table.by_inode.get_mut(&inode) else { return };
        holders.retain(|holder| !gone.contains(holder));
        if holders.is_empty() {
            table.by_inode.remove(&inode);
        }
    }

    /// A kernel is gone.
    pub(super) fn leave(&self, kernel: u64) {
        self.table().by_inode.retain(|_, holders| {
            holders.retain(|holder| holder.kernel != kernel);
            !holders.is_empty()
        });
    }

    fn table(&self) -> MutexGuard<'_, HolderTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M: Medium + 'static, P: Platform + Clone + 'static> Filesystem<M, P> {
    /// Prepares what a request does to data. Returns what [`recall_pages`](Self::recall_pages) has
    /// to be told after it.
    pub(super) fn begin_rewrite(&self, request: &Request<'_>) -> Option<Rewrite> {
        if request.header.opcode == opcode::READ {
            if !request.is_for_pages() || is_snapshot(request.header.nodeid) {
                return None;
            }
            let inode = node::inode(request.header.nodeid);
            if let Some(other) = self.kernels.page_holders.reads(self.id, inode) {
                self.recall_pages(Rewrite { inode: other, own: true, waits: true });
            }
            return None;
        }
        // A request that makes no sense changes nothing.
        let rewrite = rewrites(request).ok().flatten()?;
        self.recall_pages(Rewrite { own: false, ..rewrite });
        Some(rewrite)
    }

    /// What a request has done whose file was not known before: CREATE may have found one, and
    /// truncated it.
    pub(super) fn rewritten(&self, request: &Request<'_>, answer: &[u8]) -> Option<Rewrite> {
        if request.header.opcode != opcode::CREATE {
            return None;
        }
        let wanted = request.arguments().take::<CreateIn>().ok()?;
        let truncates = wanted.flags as i32 & libc::O_TRUNC != 0;
        let (entry, _) = EntryOut::read_from_prefix(answer).ok().filter(|_| truncates)?;
        Some(Rewrite { inode: node::inode(entry.nodeid), own: false, waits: true })
    }

    /// Kept while a request is executed, until the recall after it has begun.
    pub(super) fn changing(&self, rewrite: Rewrite) -> Changing<'_> {
        self.kernels.page_holders.changing_now(rewrite.inode)
    }

    /// Lets the recalls of changes begin that an answer may tell of.
    pub(super) fn wait_for_changes(&self, request: &Request<'_>, answer: &[u8]) {
        if let Some(nodeid) = told_node(request, answer).filter(|nodeid| !is_snapshot(*nodeid)) {
            let inode = node::inode(nodeid);
            self.kernels.page_holders.wait_for_changes(inode, || self.kernels.about_to_wait());
        }
    }

    /// Has the kernels drop the pages of a file, and waits for that.
    pub(super) fn recall_pages(&self, rewrite: Rewrite) {
        self.wait_for_pages(self.begin_recall(rewrite));
    }

    /// Has the kernels drop the pages of a file.
    pub(super) fn begin_recall(&self, rewrite: Rewrite) -> PendingRecall {
        let Rewrite { inode, own, .. } = rewrite;
        let holders = &self.kernels.page_holders;
        let mut told = holders.of(inode);
        told.retain(|holder| own || holder.kernel != self.id);
        let recall = Arc::new(Recall::default());
        for holder in &told {
            self.kernels.recall(holder.kernel, &[inode], Recalled::Pages, recall.begin());
        }
        self.metrics.share(|sharing| &sharing.recalls, told.len() as u64);
        PendingRecall { rewrite, told, recall }
    }

    /// Waits until kernels have dropped the pages, if the change waits for that.
    pub(super) fn wait_for_pages(&self, recall: PendingRecall) {
        let PendingRecall { rewrite, told, recall } = recall;
        if rewrite.waits && !told.is_empty() {
            let silent = recall.wait(Instant::now() + WAIT);
            self.metrics.share(|sharing| &sharing.silent, silent as u64);
            // One that is silent drops them once it goes on.
            self.kernels.page_holders.dropped(rewrite.inode, &told);
        }
    }
}

/// The file whose data a request changes.
fn rewrites(request: &Request<'_>) -> Result<Option<Rewrite>, Errno> {
    let mut arguments = request.arguments();
    let mut nodeid = request.header.nodeid;
    let (mut own, mut waits) = (false, true);
    match request.header.opcode {
        opcode::WRITE => {
            waits = !request.is_for_pages();
            own = waits;
        }
        opcode::FALLOCATE => {}
        opcode::SETATTR if arguments.take::<SetattrIn>()?.valid & setattr::SIZE != 0 => {}
        opcode::OPEN if arguments.take::<OpenIn>()?.flags as i32 & libc::O_TRUNC != 0 => {}
        opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => {
            nodeid = arguments.take::<CopyFileRangeIn>()?.nodeid_out;
        }
        _ => return Ok(None),
    }
    let rewrite = Rewrite { inode: node::inode(nodeid), own, waits };
    Ok(Some(rewrite).filter(|_| !is_snapshot(nodeid)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: InodeNumber = InodeNumber(7);

    #[test]
    fn a_kernel_that_reads_during_a_recall_stays_a_holder() {
        let holders = PageHolders::default();
        holders.reads(1, FILE);
        holders.reads(2, FILE);
        let told = holders.of(FILE);
        assert_eq!(told.iter().map(|holder| holder.kernel).collect::<Vec<_>>(), [1, 2]);
        // Meanwhile one reads again. A second change would wait for both.
        holders.reads(1, FILE);
        assert_eq!(holders.of(FILE).len(), 2);
        holders.dropped(FILE, &told);
        let again = holders.of(FILE);
        assert_eq!(again.iter().map(|holder| holder.kernel).collect::<Vec<_>>(), [1]);
        holders.dropped(FILE, &again);
        assert!(holders.table().by_inode.is_empty());
    }

    #[test]
    fn a_kernel_that_is_gone_holds_nothing() {
        let holders = PageHolders::default();
        holders.reads(1, FILE);
        holders.reads(1, InodeNumber(8));
        holders.reads(2, FILE);
        holders.leave(1);
        assert!(holders.of(InodeNumber(8)).is_empty());
        assert_eq!(holders.of(FILE).len(), 1);
    }

    #[test]
    fn an_answer_waits_for_changes_of_its_file() {
        let holders = PageHolders::default();
        let waits = |inode| {
            let mut waited = false;
            holders.wait_for_changes(inode, || waited = true);
            waited
        };
        assert!(!waits(FILE));
        let (first, second) = (holders.changing_now(FILE), holders.changing_now(FILE));
        drop(first);
        assert!(waits(FILE), "one goes on, and the wait has an end");
        assert!(!waits(InodeNumber(8)), "another file");
        std::thread::scope(|scope| {
            let mut over = false;
            scope.spawn(|| drop(second));
            while !over {
                over = !waits(FILE);
            }
        });
        assert!(holders.changing().is_empty());
    }

    #[test]
    fn the_table_is_bounded() {
        let holders = PageHolders::default();
        for inode in 0..INODES_MAX as u64 {
            assert_eq!(holders.reads(1, InodeNumber(inode)), None);
        }
        assert_eq!(holders.reads(2, InodeNumber(5)), None, "it is known");
        let other = holders.reads(1, InodeNumber(1 << 40)).unwrap();
        let told = holders.of(other);
        assert!(!told.is_empty() && other != InodeNumber(1 << 40));
        holders.dropped(other, &told);
        assert_eq!(holders.table().by_inode.len(), INODES_MAX);
    }
}
