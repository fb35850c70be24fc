//! The snapshots under `.snapshots` in the mount, and their node ids.
//!
//! A snapshot gets a *slot* at its first lookup. A node id with bit 63 set contains the slot and
//! the inode number in the snapshot. A mount never reuses slots, so an id whose snapshot was
//! deleted is stale and never refers to another snapshot. Each slot has its own read-only volume (a
//! [`View`]), opened on demand. Only the [`VIEWS_MAX`] most recently used views stay open. So
//! memory is bounded, however many snapshots are visited.

mod lent;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use steadfast::{Generation, InodeNumber, Platform, Snapshot, Volume};
use steadfast_media::Medium;

use crate::errno::Errno;
use lent::Lent;

/// Name of the directory of snapshots in the root directory. It is not listed there, so that
/// copying or removing the whole tree does not include the snapshots.
pub(crate) const DIRECTORY_NAME: &[u8] = b".snapshots";
/// Inode number of that directory; the volume uses no numbers between the root and 16.
pub(crate) const DIRECTORY_INODE: u64 = 2;
/// Node id of that directory: that of inode 0, which no snapshot has.
pub(crate) const DIRECTORY_ID: u64 = MARK;

const MARK: u64 = 1 << 63;
const SLOT_SHIFT: u32 = 48;
const INODE_MASK: u64 = (1 << SLOT_SHIFT) - 1;
const SLOTS_MAX: usize = 1 << 15;
const SLOT_MASK: u16 = 0x7fff;
/// Number of views that stay open.
const VIEWS_MAX: usize = 4;
/// Cache of tree nodes for each view, in bytes.
const VIEW_CACHE: usize = 1 << 20;

/// A snapshot as a volume, on the [`Lent`] medium of the live one. The medium has no type of its
/// own: where the live volume is on a `Arc<dyn Medium>`, the program holds its code once.
pub(crate) type View<P> = Volume<Arc<dyn Medium>, P>;

/// An inode of a snapshot.
pub(crate) struct Place<P: Platform + Clone + 'static> {
    pub(crate) view: Arc<View<P>>,
    pub(crate) inode: InodeNumber,
    pub(crate) snapshot: Generation,
    slot: u16,
}

impl<P: Platform + Clone + 'static> Place<P> {
    /// The node id of another inode of the same snapshot.
    ///
    /// # Errors
    /// EOVERFLOW if the inode number leaves no room for the slot.
    pub(crate) fn id(&self, inode: InodeNumber) -> Result<u64, Errno> {
        if inode.0 > INODE_MASK { Err(Errno(libc::EOVERFLOW)) } else { Ok(id(self.slot, inode)) }
    }
}

struct Slot {
    snapshot: Snapshot,
    gone: bool,
}

struct ViewTable<P: Platform + Clone + 'static> {
    /// The number of the first slot.
    first: u16,
    slots: Vec<Slot>,
    /// Open views, the most recently used last.
    views: Vec<(u16, Arc<View<P>>)>,
}

/// See the module.
pub(crate) struct Snapshots<M: Medium + 'static, P: Platform + Clone + 'static> {
    volume: Arc<Volume<M, P>>,
    table: Mutex<ViewTable<P>>,
}

impl<M: Medium + 'static, P: Platform + Clone + 'static> Snapshots<M, P> {
    /// Slots get numbers from `first` on: a kernel may have node ids of an earlier table.
    pub(crate) fn new(volume: Arc<Volume<M, P>>, first: u16) -> Self {
        let table = Mutex::new(ViewTable { first, slots: Vec::new(), views: Vec::new() });
        Snapshots { volume, table }
    }

    /// The root directory of a snapshot.
    ///
    /// # Errors
    /// ENOENT; those of reading the snapshot.
    pub(crate) fn root(&self, name: &[u8]) -> Result<Place<P>, Errno> {
        let wanted = std::str::from_utf8(name).map_err(|_| Errno(libc::ENOENT))?;
        let snapshot = self.volume.snapshot(wanted)?;
        let slot = {
            let mut table = self.table();
            let known = |slot: &Slot| slot.snapshot.generation == snapshot.generation && !slot.gone;
            match table.slots.iter().position(known) {
                Some(place) => table.number(place),
                None if table.slots.len() >= SLOTS_MAX => return Err(Errno(libc::ENFILE)),
                None => {
                    table.slots.push(Slot { snapshot, gone: false });
                    table.number(table.slots.len() - 1)
                }
            }
        };
        self.place(id(slot, InodeNumber::ROOT))
    }

    /// The inode of a node id, except for the directory of snapshots itself.
    ///
    /// # Errors
    /// ESTALE if the snapshot was deleted; those of opening it.
    pub(crate) fn place(&self, nodeid: u64) -> Result<Place<P>, Errno> {
        let slot = (nodeid >> SLOT_SHIFT) as u16 & SLOT_MASK;
        let inode = InodeNumber(nodeid & INODE_MASK);
        let mut table = self.table();
        let known = table.slot(slot).filter(|known| !known.gone);
        let snapshot = known.ok_or(Errno(libc::ESTALE))?.snapshot.generation;
        let open = table.views.iter().position(|(number, _)| *number == slot);
        let view = match open.map(|at| table.views.remove(at).1) {
            Some(view) => view,
            None => {
                let lent: Arc<dyn Medium> = Arc::new(Lent(Arc::clone(&self.volume)));
                let platform = self.volume.platform().clone();
                let opened = self.volume.open_view(lent, platform, snapshot, VIEW_CACHE);
                if table.views.len() >= VIEWS_MAX {
                    table.views.remove(0);
                }
                Arc::new(opened.map_err(|error| match error {
                    steadfast::Error::NotFound => Errno(libc::ESTALE),
                    other => other.into(),
                })?)
            }
        };
        table.views.push((slot, Arc::clone(&view)));
        Ok(Place { view, inode, snapshot, slot })
    }

    /// Deletes a snapshot of the volume. Its ids are stale afterwards; after a refusal they are
    /// not. Other requests about snapshots wait meanwhile, so none reads blocks that are free.
    ///
    /// # Errors
    /// Those of the volume.
    pub(crate) fn delete(&self, name: &str) -> Result<(), Errno> {
        let mut table = self.table();
        let result = self.volume.snapshot_delete(name);
        // A deletion that fails late may have taken the snapshot away.
        let stays = result.is_err() && self.volume.snapshot(name).is_ok();
        table.forget(|snapshot| stays || snapshot.name != name);
        Ok(result?)
    }

    /// Forgets snapshots that the volume does not have any more, which makes their ids stale. Must
    /// be called after a rollback to a snapshot.
    pub(crate) fn forget(&self, keep: impl Fn(&Snapshot) -> bool) {
        self.table().forget(keep);
    }

    fn table(&self) -> MutexGuard<'_, ViewTable<P>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P: Platform + Clone + 'static> ViewTable<P> {
    fn forget(&mut self, keep: impl Fn(&Snapshot) -> bool) {
        for slot in &mut self.slots {
            slot.gone |= !keep(&slot.snapshot);
        }
        let views = std::mem::take(&mut self.views);
        let stays = |number: u16| self.slot(number).is_some_and(|slot| !slot.gone);
        self.views = views.into_iter().filter(|(number, _)| stays(*number)).collect();
    }

    /// The number of a place in the table.
    fn number(&self, place: usize) -> u16 {
        self.first.wrapping_add(place as u16) & SLOT_MASK
    }

    /// The slot with a number.
    fn slot(&self, number: u16) -> Option<&Slot> {
        self.slots.get(usize::from(number.wrapping_sub(self.first) & SLOT_MASK))
    }
}

/// Whether a node id belongs to an inode of a snapshot or to the directory of snapshots.
pub(crate) fn is_snapshot(nodeid: u64) -> bool {
    nodeid & MARK != 0
}

/// The inode number that programs see for an inode in a snapshot. It differs from that of the live
/// file, because programs would otherwise take both for one file. The upper 16 bits come from the
/// snapshot's generation, so the number is the same in every mount.
pub(crate) fn shown(snapshot: Generation, inode: InodeNumber) -> u64 {
    (1 + snapshot.0 % 0xffff) << SLOT_SHIFT | inode.0 & INODE_MASK
}

fn id(slot: u16, inode: InodeNumber) -> u64 {
    MARK | u64::from(slot) << SLOT_SHIFT | inode.0
}
