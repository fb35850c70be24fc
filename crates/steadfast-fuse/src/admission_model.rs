//! A model of the kernel's page cache above a volume. It checks that every admitted write can be
//! stored.
//!
//! The model does what the kernel does with the write-back cache. A write(2) asks if the kernel has
//! no valid attributes, makes pages dirty, and waits at some point beyond the limit of dirty pages.
//! Pages are written back in any order and at any time, in requests of adjacent pages.
//!
//! Programs write files sequentially, append, write at random offsets, overwrite, remove and
//! commit. They take snapshots and make files share blocks. The volume is in memory; it is filled
//! until all writes fail, then emptied, repeatedly.
//!
//! Checks: a write-back of admitted pages never fails, unless one write has extended a file that
//! was being overwritten. Each file has the bytes that its writes reported as stored. [`cuts`] has
//! those after a power cut.

mod cuts;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use steadfast::fs::{Caller, NewNode, SetAttributes};
use steadfast::{Error, FormatOptions, InodeNumber, OpenOptions, TransactionMask, Volume};
use steadfast_host::HostPlatform;
use steadfast_media::random::Random;
use steadfast_media::sim::Recording;
use steadfast_media::{SimMedium, SimOptions};

use self::cuts::{CutMedium, History};
use crate::admission::{Admission, Surroundings};
use crate::errno::Errno;
use crate::open::Handle;

const PAGE: u64 = 4096;
/// Pages of one request.
const REQUEST_MAX: u64 = 256;
const MIB: u64 = 1 << 20;
/// How far a writer may exceed the limit of dirty pages, in bytes.
const BEYOND_MAX: u64 = 20 * MIB;

/// One file, as the kernel knows it.
#[derive(Default)]
struct ModelFile {
    inode: u64,
    /// The contents as a reader sees them.
    bytes: Vec<u8>,
    handle: u64,
    dirty: BTreeSet<u64>,
    /// Whether the next write asks.
    asks: bool,
    /// The file has grown by a write that was admitted as an overwrite: its dirty pages may be
    /// lost.
    dared: bool,
    /// Whether it was empty when it was opened: its writes are no overwrites.
    refills: bool,
}

/// The kernel and the volume below it.
struct World {
    volume: Volume<Arc<CutMedium>, HostPlatform>,
    files: RefCell<BTreeMap<u64, ModelFile>>,
    limit: Cell<u64>,
    lost: Cell<u64>,
    /// What the volume was given, where power is cut.
    history: Option<RefCell<History>>,
}

impl World {
    fn new(size: u64, block_size: u32, mask: TransactionMask) -> World {
        let sim = SimOptions { recording: Recording::Off, ..SimOptions::disk(size) };
        let medium = Arc::new(CutMedium::new(SimMedium::new(sim)));
        let options = FormatOptions { block_size, mask, ..FormatOptions::default() };
        Volume::format(&medium, &options, &HostPlatform::new()).unwrap();
        let volume = Volume::open(medium, OpenOptions::default(), HostPlatform::new()).unwrap();
        let (limit, lost) = (Cell::new(u64::MAX), Cell::new(0));
        World { volume, files: RefCell::default(), limit, lost, history: None }
    }

    /// A request has changed a file of the volume.
    fn changed(&self, nodeid: u64) {
        if let Some(history) = &self.history {
            let inode = self.files.borrow().get(&nodeid).map(|file| InodeNumber(file.inode));
            history.borrow_mut().changed(nodeid, inode.map(|inode| (&self.volume, inode)));
        }
    }

    /// A program has changed a file.
    fn touched(&self, nodeid: u64) {
        if let Some(history) = &self.history {
            history.borrow_mut().touched(nodeid);
        }
    }

    /// Checks that no page is dirty and the volume has the written bytes, with zeros between them.
    fn assert_stored(&self, nodeid: u64) {
        let files = self.files.borrow();
        let file = &files[&nodeid];
        if file.dared {
            return;
        }
        let mut stored = vec![0xff; file.bytes.len() + 1];
        let length = self.volume.read(InodeNumber(file.inode), 0, &mut stored).unwrap();
        assert!(stored[..length] == file.bytes, "{length} bytes stored of {}", file.bytes.len());
    }

    fn dirty(&self) -> u64 {
        self.files.borrow().values().map(|file| file.dirty.len() as u64 * PAGE).sum()
    }

    /// Writes back a run of dirty pages of a file, at or after `page`. Returns whether there was
    /// one.
    fn write_back(&self, nodeid: u64, page: u64, most: u64) -> bool {
        let mut files = self.files.borrow_mut();
        let Some(file) = files.get_mut(&nodeid) else { return false };
        let Some(first) = file.dirty.range(page..).chain(file.dirty.iter()).next().copied() else {
            return false;
        };
        let mut end = first;
        while end - first < most && file.dirty.remove(&end) {
            end += 1;
        }
        let end = (end * PAGE).min(file.bytes.len() as u64);
        let data = &file.bytes[(first * PAGE) as usize..end as usize];
        let length = data.len() as u64;
        match self.volume.write(InodeNumber(file.inode), first * PAGE, data, false) {
            Ok(()) => {}
            Err(Error::NoSpace) if file.dared => self.lost.set(self.lost.get() + length),
            Err(error) => panic!("{length} bytes at {} were admitted: {error:?}", first * PAGE),
        }
        drop(files);
        self.changed(nodeid);
        true
    }
}

impl Surroundings for World {
    fn room(&self) -> u64 {
        self.volume.available_bytes().unwrap()
    }

    fn make_room(&self, bytes: u64) {
        self.volume.make_room(bytes).unwrap();
    }

    fn size(&self, nodeid: u64) -> Result<u64, Errno> {
        let inode = self.files.borrow()[&nodeid].inode;
        Ok(self.volume.attributes(InodeNumber(inode))?.size)
    }

    fn brings_back(&self) -> bool {
        self.volume.may_reclaim()
    }

    fn shares_blocks(&self, nodeid: u64) -> Result<bool, Errno> {
        let inode = self.files.borrow()[&nodeid].inode;
        Ok(self.volume.shares_blocks(InodeNumber(inode))?)
    }

    fn written(&self) -> Vec<u64> {
        self.files.borrow().keys().copied().collect()
    }

    fn have_ask(&self, nodeid: u64) {
        if let Some(file) = self.files.borrow_mut().get_mut(&nodeid) {
            file.asks = true;
        }
    }

    fn pull(&self, nodeid: u64) {
        while self.write_back(nodeid, 0, REQUEST_MAX) {}
    }

    fn lost(&self, _nodeid: u64) -> Option<Errno> {
        None
    }

    fn limit_dirty(&self, bytes: Option<u64>) -> bool {
        self.limit.set(bytes.unwrap_or(u64::MAX));
        true
    }
}

/// Running programs.
struct Run {
    world: World,
    /// Names of snapshots, oldest first.
    snapshots: VecDeque<String>,
    admission: Admission,
    random: Random,
    next: u64,
    /// How far writers exceed the limit of dirty pages, in bytes.
    beyond: u64,
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut random = Random::new(seed);
        let size = MIB * [1, 2, 4, 16, 64][random.below(5) as usize];
        Run::of_size(size, random)
    }

    fn of_size(size: u64, mut random: Random) -> Run {
        let block_size = [512, 1024, 4096, 4096][random.below(4) as usize];
        let mask =
            if random.one_in(4) { TransactionMask::MANUAL } else { TransactionMask::DEFAULT };
        let run = Run {
            world: World::new(size, block_size, mask),
            snapshots: VecDeque::new(),
            admission: Admission::new(true, size),
            beyond: random.below(BEYOND_MAX),
            random,
            next: 1,
        };
        run.admission.begin(Some(64 * MIB));
        run.admission.look(&run.world);
        run
    }

    /// Checks the room after each request, as it may have changed.
    fn looked(&self) {
        if self.admission.is_due(|| self.world.room()) {
            self.admission.look(&self.world);
        }
    }

    fn some_file(&mut self) -> Option<u64> {
        let files = self.world.files.borrow();
        let nth = self.random.below(files.len() as u64) as usize;
        files.keys().nth(nth).copied()
    }

    fn create(&mut self) {
        if !self.admission.leaves_room_for_names() {
            self.world.written().iter().for_each(|nodeid| self.world.pull(*nodeid));
        }
        let nodeid = self.next;
        let name = format!("f{nodeid}");
        let made = self.world.volume.create(
            InodeNumber::ROOT,
            name.as_bytes(),
            NewNode::Regular,
            0o644,
            &Caller::default(),
        );
        let Ok(made) = made else { return };
        self.next += 1;
        let append = if self.random.one_in(3) { libc::O_APPEND } else { 0 };
        let handle = Handle::new((libc::O_RDWR | libc::O_CREAT | append) as u32).0;
        let asks = self.admission.asks();
        let file = ModelFile { inode: made.inode.0, handle, asks, ..ModelFile::default() };
        self.world.files.borrow_mut().insert(nodeid, file);
        self.world.changed(nodeid);
        self.looked();
    }

    /// Closes a file, which writes its pages back, and opens it as it is.
    fn reopen(&mut self) {
        let Some(nodeid) = self.some_file() else { return };
        self.world.pull(nodeid);
        self.admission.closed(nodeid);
        if let Some(file) = self.world.files.borrow_mut().get_mut(&nodeid) {
            file.handle = Handle::new(libc::O_RDWR as u32).0;
            file.refills = false;
            file.asks = self.admission.asks();
        }
    }

    /// Empties a file to fill it again.
    fn empty(&mut self) {
        let Some(nodeid) = self.some_file() else { return };
        let inode = {
            let mut files = self.world.files.borrow_mut();
            let Some(file) = files.get_mut(&nodeid) else { return };
            file.dirty.clear();
            file.bytes.clear();
            file.dared = false;
            file.refills = true;
            file.handle = Handle::new((libc::O_RDWR | libc::O_TRUNC) as u32).0;
            file.asks = self.admission.asks();
            InodeNumber(file.inode)
        };
        let before = self.world.size(nodeid).unwrap();
        self.admission.emptied(nodeid, before);
        let cut = SetAttributes { size: Some(0), ..SetAttributes::default() };
        self.world.volume.set_attributes(inode, &cut).unwrap();
        self.world.touched(nodeid);
        self.world.changed(nodeid);
        self.looked();
    }

    fn remove(&mut self) {
        let Some(nodeid) = self.some_file() else { return };
        self.admission.closed(nodeid);
        self.world.files.borrow_mut().remove(&nodeid);
        let name = format!("f{nodeid}");
        self.world.volume.unlink(InodeNumber::ROOT, name.as_bytes()).unwrap();
        self.world.touched(nodeid);
        self.world.changed(nodeid);
        // The space of the removed file may still be unreclaimed when the next write asks.
        if self.random.one_in(2) {
            while self.world.volume.background_step(MIB).unwrap_or(false) {}
        }
    }

    /// Takes a snapshot, or deletes the oldest one.
    fn snapshot(&mut self) {
        if self.snapshots.len() > 1
            && let Some(oldest) = self.snapshots.pop_front()
        {
            self.world.volume.snapshot_delete(&oldest).unwrap();
            return;
        }
        self.world.written().iter().for_each(|nodeid| self.world.pull(*nodeid));
        let name = format!("s{}", self.next);
        self.next += 1;
        if self.world.volume.snapshot_create(&name).is_ok() {
            self.snapshots.push_back(name);
        }
        self.admission.shared();
        self.looked();
    }

    /// Makes one file share all blocks of another. The kernel writes both back before. It may take
    /// several steps, and a cut may fall between them.
    fn share(&mut self) {
        if self.world.history.is_some() {
            return;
        }
        let (Some(from), Some(to)) = (self.some_file(), self.some_file()) else { return };
        self.world.pull(from);
        self.world.pull(to);
        let (source, target) = {
            let files = self.world.files.borrow();
            (InodeNumber(files[&from].inode), InodeNumber(files[&to].inode))
        };
        let shared = self.world.volume.clone_range(source, 0, target, 0, 0);
        self.admission.shared();
        if shared.is_ok() {
            let mut files = self.world.files.borrow_mut();
            let (bytes, dared) = (files[&from].bytes.clone(), files[&from].dared);
            if let Some(file) = files.get_mut(&to) {
                file.dared |= dared;
                let length = bytes.len().max(file.bytes.len());
                file.bytes.resize(length, 0);
                file.bytes[..bytes.len()].copy_from_slice(&bytes);
            }
        } else if let Some(file) = self.world.files.borrow_mut().get_mut(&to) {
            // A part may be shared.
            file.dared = true;
        }
        self.looked();
    }

    /// write(2). Returns whether the write was accepted.
    fn write(&mut self, nodeid: u64, offset: u64, length: u64) -> bool {
        let (asks, handle, size) = {
            let files = self.world.files.borrow();
            let file = &files[&nodeid];
            (file.asks, Handle(file.handle), file.bytes.len() as u64)
        };
        let mut dared = false;
        if asks {
            if !self.admission.admit(&self.world, nodeid) {
                if self.admission.find_unit(&self.world, nodeid, handle).is_err() {
                    return false;
                }
                // The last unit was granted for a write that should not extend the file. It needs
                // its old and its new blocks at a time, which a small reserve cannot always give.
                // The reserve is for files that have their blocks alone.
                let alone = self.world.brings_back() && !self.world.shares_blocks(nodeid).unwrap();
                dared = !self.world.files.borrow()[&nodeid].refills
                    && (offset + length > size || alone && self.world.room() < length);
            }
            let again = self.admission.asks();
            self.world.files.borrow_mut().get_mut(&nodeid).unwrap().asks = again;
        }
        {
            let mut files = self.world.files.borrow_mut();
            let file = files.get_mut(&nodeid).unwrap();
            file.dared |= dared;
            let end = (offset + length) as usize;
            let grown = file.bytes.len().max(end);
            file.bytes.resize(grown, 0);
            file.bytes[offset as usize..end].fill(self.random.below(255) as u8 + 1);
            file.dirty.extend(offset / PAGE..(offset + length).div_ceil(PAGE));
        }
        self.world.touched(nodeid);
        // A writer at the limit waits for write-back.
        while self.world.dirty() > self.world.limit.get().saturating_add(self.beyond) {
            self.write_some_back();
        }
        true
    }

    fn write_some_back(&mut self) {
        if let Some(nodeid) = self.some_file() {
            let (page, most) = (self.random.below(4096), 1 + self.random.below(REQUEST_MAX));
            self.world.write_back(nodeid, page, most);
            self.looked();
        }
    }

    fn step(&mut self) -> bool {
        match self.random.below(14) {
            0 => self.create(),
            13 if self.random.one_in(4) => self.empty(),
            12 => self.reopen(),
            1 if self.random.one_in(8) => self.snapshot(),
            1 if self.random.one_in(8) => self.share(),
            1 if self.random.one_in(8) => self.remove(),
            2 => {
                if self.world.volume.transact().is_err() {
                    return false;
                }
                if let Some(history) = &self.world.history {
                    history.borrow_mut().all_durable();
                }
            }
            11 if self.world.history.is_some() => self.fsync(),
            3..6 => self.write_some_back(),
            _ => {
                let Some(nodeid) = self.some_file() else {
                    self.create();
                    return true;
                };
                let size = self.world.files.borrow()[&nodeid].bytes.len() as u64;
                let unit = self.admission.unit();
                let most = [100, 5000, 70_000, unit][self.random.below(4) as usize];
                let length = 1 + self.random.below(most);
                let appends = Handle(self.world.files.borrow()[&nodeid].handle).appends();
                let offset = match self.random.below(4) {
                    _ if appends => size,
                    0 | 1 => size,
                    2 => self.random.below(size),
                    _ => self.random.below(size + size / 4),
                };
                return self.write(nodeid, offset, length);
            }
        }
        true
    }
}

/// Reports the seed of a run that failed.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in the run with seed {}", self.0);
        }
    }
}

/// How many seeds to run.
fn seeds(usual: u64) -> u64 {
    let given = std::env::var("STEADFAST_ADMISSION_SEEDS").ok().and_then(|text| text.parse().ok());
    given.unwrap_or(usual)
}

#[test]
fn what_is_admitted_can_be_stored() {
    let mut refused = 0;
    for seed in 1..=seeds(60) {
        let _seed = Seed(seed);
        let mut run = Run::new(seed);
        for _ in 0..3 {
            // Runs until the volume is full, and for a while afterwards.
            let mut full = 0;
            for _ in 0..20_000 {
                full += u64::from(!run.step());
                if full > 40 {
                    break;
                }
            }
            refused += full;
            for nodeid in run.world.written() {
                run.world.pull(nodeid);
                run.world.assert_stored(nodeid);
            }
            while let Some(snapshot) = run.snapshots.pop_front() {
                run.world.volume.snapshot_delete(&snapshot).unwrap();
            }
            let count = run.world.written().len() as u64 / 2 + 1;
            (0..count).for_each(|_| run.remove());
            let _ = run.world.volume.transact();
            run.admission.look(&run.world);
        }
    }
    assert!(refused > 0, "no volume was ever full");
}
