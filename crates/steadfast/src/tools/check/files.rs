//! Checks that inodes, entries, extents and orphans are consistent.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use hashbrown::HashMap;
use steadfast_media::Medium;

use crate::error::{Error, Result};
use crate::format::FEATURE_FILE_FLAGS;
use crate::format::Root;
use crate::format::dirent::Dirent;
use crate::format::extent::Extent;
use crate::format::inode::{FILE_FLAGS, FLAG_INLINE, FLAG_RECLAIMING, FLAG_TRUNCATING, Inode};
use crate::format::key::{Key, Kind};
use crate::fs::{FileFlags, FileKind, dirent, xattr};
use crate::platform::Platform;
use crate::tools::check::paths::{Name, Names};
use crate::tools::check::reason;
use crate::tools::check::report::{At, Remedy, Reporter};
use crate::types::{BlockAddress, InodeNumber};
use crate::volume::Volume;

/// Bytes of data read at once.
const READ_SIZE: usize = 1 << 20;

/// Limit of the steps up the tree in the search for cycles, on a volume that is damaged anyway.
const CIRCLE_STEPS: u64 = 1 << 20;

/// Facts known of one inode.
struct Known {
    kind: FileKind,
    links: u32,
    entries: u64,
    parent: InodeNumber,
    truncating: bool,
    /// Number of names that lead here.
    names: u64,
    /// The directory of the last name found.
    named_in: InodeNumber,
    /// Entries seen in this directory, and directories among them.
    entries_seen: u64,
    directories_seen: u64,
    orphan: bool,
}

/// The inode whose keys are being visited.
struct Current {
    number: InodeNumber,
    inode: Inode,
    blocks: u64,
    /// One past the last block of the last extent.
    end: u64,
    inline: Option<u64>,
    symlink: u64,
    xattrs: bool,
}

/// Adjacent bad granules of an extent are one finding.
struct BadData<'a> {
    inode: InodeNumber,
    block_size: usize,
    /// Block of the file with which the extent begins.
    index: u64,
    extent: &'a Extent,
    /// Bytes from the start of the extent; none if both are equal.
    from: usize,
    to: usize,
}

impl BadData<'_> {
    fn add(&mut self, from: usize, to: usize, reporter: &mut Reporter<'_>) {
        if from != self.to {
            self.flush(reporter);
            self.from = from;
        }
        self.to = to;
    }

    fn flush(&mut self, reporter: &mut Reporter<'_>) {
        if self.from == self.to {
            return;
        }
        let block = |byte: usize| self.extent.address.0 + (byte / self.block_size) as u64;
        let (first, last) = (block(self.from), block(self.to - 1));
        let text = match first == last {
            true => {
                format!("inode {}: data at block {first} does not match its checksum", self.inode.0)
            }
            false => {
                format!(
                    "inode {}: data at blocks {first} to {last} does not match its checksums",
                    self.inode.0
                )
            }
        };
        let start = self.index.saturating_mul(self.block_size as u64);
        let bytes = start.saturating_add(self.from as u64)..start.saturating_add(self.to as u64);
        let at =
            At { block: Some(BlockAddress(first)), ..At::inode(self.inode) }.remedy(Remedy::Data);
        reporter.damaged_at(at.bytes(bytes), text);
        self.from = self.to;
    }
}

/// Collects facts in key order, and compares them at the end.
pub(super) struct Files<'a, M: Medium, P: Platform> {
    volume: &'a Volume<M, P>,
    read_data: bool,
    inodes: HashMap<InodeNumber, Known>,
    current: Option<Current>,
    /// References that may occur before the inode is visited.
    names: Vec<Name>,
    orphans: Vec<InodeNumber>,
    highest: u64,
}

impl<'a, M: Medium, P: Platform> Files<'a, M, P> {
    pub fn new(volume: &'a Volume<M, P>, read_data: bool) -> Self {
        Files {
            volume,
            read_data,
            inodes: HashMap::new(),
            current: None,
            names: Vec::new(),
            orphans: Vec::new(),
            highest: 0,
        }
    }

    /// The next item in key order.
    pub fn item(&mut self, key: &Key, value: &[u8], reporter: &mut Reporter<'_>) {
        let number = key.inode_number();
        if self.current.as_ref().is_some_and(|current| current.number != number) {
            self.end_inode(reporter);
        }
        let Some(kind) = key.kind() else {
            let text = format!("inode {}: key of an unknown kind {}", number.0, key.0[8]);
            reporter.damaged_at(At::inode(number), text);
            return;
        };
        if number == InodeNumber::SYSTEM {
            match kind {
                Kind::Group | Kind::SharedExtent | Kind::DeadList | Kind::Snapshot => {}
                Kind::Orphan => self.orphans.push(InodeNumber(key.suffix())),
                _ => reporter.damaged(format!("unexpected key {key:?}")),
            }
            return;
        }
        if kind == Kind::Inode {
            self.begin_inode(number, key.suffix(), value, reporter);
            return;
        }
        let result = match &mut self.current {
            Some(_) => self.part(key, kind, value, reporter),
            None => Err(Error::Stale(number)),
        };
        match result {
            Ok(()) => {}
            Err(Error::Stale(_)) => {
                reporter.damaged_at(At::inode(number), format!("key {key:?} belongs to no inode"));
            }
            Err(error) => {
                let text = format!("inode {}: {kind:?}: {}", number.0, reason(&error));
                reporter.damaged_at(At::inode(number), text);
            }
        }
    }

    fn begin_inode(
        &mut self,
        number: InodeNumber,
        suffix: u64,
        value: &[u8],
        reporter: &mut Reporter<'_>,
    ) {
        self.highest = self.highest.max(number.0);
        if suffix != 0 {
            reporter.damaged_at(
                At::inode(number),
                format!("inode {}: a second attribute key", number.0),
            );
            return;
        }
        let inode = match Inode::decode(value) {
            Ok(inode) => inode,
            Err(error) => {
                reporter.damaged_at(
                    At::inode(number),
                    format!("inode {}: {}", number.0, reason(&error)),
                );
                return;
            }
        };
        self.check_file_flags(number, &inode, reporter);
        reporter.report.inodes += 1;
        reporter.report.directories += u64::from(inode.kind == FileKind::Directory);
        let known = Known {
            kind: inode.kind,
            links: inode.links,
            entries: inode.size,
            parent: inode.parent,
            truncating: inode.has(FLAG_TRUNCATING),
            names: 0,
            named_in: InodeNumber::SYSTEM,
            entries_seen: 0,
            directories_seen: 0,
            orphan: false,
        };
        self.inodes.insert(number, known);
        self.current = Some(Current {
            number,
            inode,
            blocks: 0,
            end: 0,
            inline: None,
            symlink: 0,
            xattrs: false,
        });
    }

    /// Flags of users are those of files and directories, and the superblock says that there are
    /// some.
    fn check_file_flags(&self, number: InodeNumber, inode: &Inode, reporter: &mut Reporter<'_>) {
        if inode.flags & FILE_FLAGS == 0 {
            return;
        }
        let features = self.volume.engine.superblock().features_read_only;
        let but = match inode.file_flags() {
            FileFlags::NONE => "it is neither a file nor a directory",
            _ if features & FEATURE_FILE_FLAGS != 0 => return,
            _ => "the superblock has no feature for them",
        };
        let text = format!("inode {} has flags of users, but {but}", number.0);
        reporter.damaged_at(At::inode(number), text);
    }

    /// A key of the current inode other than its attributes.
    fn part(
        &mut self,
        key: &Key,
        kind: Kind,
        value: &[u8],
        reporter: &mut Reporter<'_>,
    ) -> Result<()> {
        let Some(current) = &mut self.current else { return Err(Error::Stale(key.inode_number())) };
        let wrong = |reason| Err(Error::CorruptMetadata { address: Default::default(), reason });
        match kind {
            Kind::Dirent => {
                if current.inode.kind != FileKind::Directory {
                    return wrong("an entry in something that is no directory");
                }
                let entry = Dirent::decode(value)?;
                if !dirent::is_slot_of(key.suffix(), &entry.name, &self.volume.parameters()) {
                    return wrong("an entry under the wrong hash");
                }
                let number = current.number;
                let suffix = key.suffix();
                self.names.push(Name {
                    inode: entry.inode,
                    directory: number,
                    suffix,
                    kind: entry.kind,
                });
                if let Some(directory) = self.inodes.get_mut(&number) {
                    directory.entries_seen += 1;
                    directory.directories_seen += u64::from(entry.kind == FileKind::Directory);
                }
            }
            Kind::Xattr => current.xattrs = true,
            Kind::Symlink => current.symlink += value.len() as u64,
            Kind::Inline => current.inline = Some(value.len() as u64),
            Kind::Extent => {
                let superblock = self.volume.engine.superblock();
                let granules = superblock.block_size / superblock.checksum_granule();
                let extent = Extent::decode(value, granules)?;
                if key.suffix() < current.end {
                    return wrong("extents overlap");
                }
                current.end = key.suffix().saturating_add(u64::from(extent.length));
                current.blocks += u64::from(extent.length);
                let number = current.number;
                reporter.report.data_blocks += u64::from(extent.length);
                self.verify(number, key.suffix(), &extent, reporter);
            }
            _ => return wrong("unexpected kind of key"),
        }
        Ok(())
    }

    /// Reads the data of an extent, which begins at block `index` of the file, and compares it with
    /// its checksums.
    pub fn verify(
        &self,
        inode: InodeNumber,
        index: u64,
        extent: &Extent,
        reporter: &mut Reporter<'_>,
    ) {
        reporter.advance(u64::from(extent.length));
        if !self.read_data || extent.unwritten {
            return;
        }
        let superblock = self.volume.engine.superblock();
        let block_size = superblock.block_size as usize;
        let granule = superblock.checksum_granule() as usize;
        let blocks_at_once = (READ_SIZE / block_size).max(1);
        let mut buffer = vec![0; blocks_at_once.min(extent.length as usize) * block_size];
        let mut checksums = extent.checksums.iter();
        let mut bad = BadData { inode, block_size, index, extent, from: 0, to: 0 };
        let mut done = 0;
        while done < extent.length as usize {
            let count = blocks_at_once.min(extent.length as usize - done);
            let mut address = extent.address;
            address.0 += done as u64;
            let bytes = &mut buffer[..count * block_size];
            let read = self.volume.engine.device().read_blocks(address, bytes);
            if let Err(error) = &read {
                let block_size = block_size as u64;
                let start = index.saturating_add(done as u64).saturating_mul(block_size);
                let end = start.saturating_add(count as u64 * block_size);
                let at = At { block: Some(address), ..At::inode(inode) };
                let text =
                    format!("inode {}: data at block {}: {}", inode.0, address.0, reason(error));
                reporter.damaged_at(at.bytes(start..end), text);
            }
            for (piece, (bytes, expected)) in
                bytes.chunks_exact(granule).zip(checksums.by_ref()).enumerate()
            {
                if read.is_ok() && self.volume.engine.device().crc(bytes) != *expected {
                    let from = done * block_size + piece * granule;
                    bad.add(from, from + granule, reporter);
                }
            }
            done += count;
        }
        bad.flush(reporter);
    }

    fn end_inode(&mut self, reporter: &mut Reporter<'_>) {
        let Some(current) = self.current.take() else { return };
        let number = current.number.0;
        let inode = &current.inode;
        let at = || At::inode(current.number);
        // With lost keys the remaining extents cannot add up, and the loss is reported already.
        if inode.blocks != current.blocks && !reporter.tree_damaged {
            let text =
                format!("inode {number} counts {} blocks and has {}", inode.blocks, current.blocks);
            reporter.damaged_at(at().remedy(Remedy::Blocks(current.blocks)), text);
        }
        if inode.has(FLAG_RECLAIMING) {
            // Its other keys are being removed in steps, in any order.
            return;
        }
        let regular = inode.kind == FileKind::Regular;
        if current.blocks > 0 && (!regular || inode.has(FLAG_INLINE)) {
            reporter.damaged_at(at(), format!("inode {number} must not have extents"));
        }
        if let Some(length) = current.inline {
            let max = self.volume.engine.superblock().inline_max() as u64;
            if !regular || !inode.has(FLAG_INLINE) || length > inode.size || length > max {
                let text = format!("inode {number} must not have {length} bytes of inline data");
                reporter.damaged_at(at(), text);
            }
        }
        if inode.kind == FileKind::Symlink
            && current.symlink != inode.size
            && !reporter.tree_damaged
        {
            let text = format!(
                "symlink {number}: target of {} bytes, size {}",
                current.symlink, inode.size
            );
            reporter.damaged_at(at(), text);
        }
        if current.xattrs
            && let Err(error) = self.read_xattrs(current.number)
        {
            let text = format!("inode {number}: extended attributes: {}", reason(&error));
            reporter.damaged_at(at(), text);
        }
    }

    /// Reads every attribute of an inode as a whole.
    fn read_xattrs(&self, inode: InodeNumber) -> Result<()> {
        let reader = self.volume.engine.reader()?;
        for name in xattr::list(&reader, inode)? {
            xattr::find(&reader, &self.volume.parameters(), inode, &name)?
                .ok_or(Error::NoAttribute)?;
        }
        Ok(())
    }

    /// Compares references with their targets, after everything has been visited.
    pub fn finish(&mut self, inodes: u64, next_inode: u64, reporter: &mut Reporter<'_>) {
        self.end_inode(reporter);
        for Name { inode, directory, kind, .. } in &self.names {
            let at = At::inode(*inode);
            match self.inodes.get_mut(inode) {
                None => {
                    let text = format!(
                        "directory {} names inode {}, which is not there",
                        directory.0, inode.0
                    );
                    reporter.damaged_at(at, text);
                }
                Some(known) => {
                    known.names += 1;
                    known.named_in = *directory;
                    if known.kind != *kind {
                        let text = format!(
                            "directory {} has the wrong type for inode {}",
                            directory.0, inode.0
                        );
                        reporter.damaged_at(at, text);
                    }
                }
            }
        }
        for orphan in core::mem::take(&mut self.orphans) {
            match self.inodes.get_mut(&orphan) {
                None => reporter.damaged_at(
                    At::default().remedy(Remedy::DropOrphan(orphan)),
                    format!("orphan record for inode {}, which is not there", orphan.0),
                ),
                Some(known) => known.orphan = true,
            }
        }
        let mut numbers: Vec<InodeNumber> = self.inodes.keys().copied().collect();
        numbers.sort_unstable();
        for number in &numbers {
            if let Some(known) = self.inodes.get(number) {
                check_links(*number, known, reporter);
            }
        }
        self.check_circles(reporter);
        self.check_reachable(&numbers, reporter);
        if inodes != numbers.len() as u64 {
            reporter.damaged(format!(
                "the metaroot counts {inodes} inodes, {} are there",
                numbers.len()
            ));
        }
        if next_inode <= self.highest {
            reporter.damaged(format!("the next inode number {next_inode} is in use"));
        }
        if !self.inodes.contains_key(&InodeNumber::ROOT) {
            reporter.damaged("the root directory is missing".into());
        }
    }

    /// Ends the last inode if [`finish`](Self::finish) is not called, and looks up the paths of the
    /// findings. `root` is the tree that was visited.
    pub fn locate(&mut self, root: &Root, reporter: &mut Reporter<'_>) {
        self.end_inode(reporter);
        if reporter.has_places() {
            let names = Names::new(self.volume.engine.store(), root, &self.names);
            reporter.locate(|at| names.affected(at));
        }
    }

    /// Checks that no directory is below itself. Only a directory with an extra name can be, or one
    /// that does not lead to the root; [`check_reachable`](Self::check_reachable) finds the latter.
    fn check_circles(&self, reporter: &mut Reporter<'_>) {
        let mut steps = CIRCLE_STEPS;
        for Name { inode, directory, .. } in &self.names {
            let Some(known) = self.inodes.get(inode) else { continue };
            let too_many = known.names > u64::from(*inode != InodeNumber::ROOT);
            if known.kind != FileKind::Directory || !too_many {
                continue;
            }
            let mut at = *directory;
            while at != *inode && at != InodeNumber::ROOT && steps > 0 {
                steps -= 1;
                let Some(above) = self.inodes.get(&at).filter(|above| above.names > 0) else {
                    break;
                };
                at = above.named_in;
            }
            if at == *inode {
                report_circle(*inode, *directory, reporter);
            }
        }
    }

    /// Checks that every directory with a name leads to the root through its parents.
    fn check_reachable(&self, numbers: &[InodeNumber], reporter: &mut Reporter<'_>) {
        let mut reached: HashMap<InodeNumber, bool> = HashMap::new();
        reached.insert(InodeNumber::ROOT, true);
        for number in numbers {
            let mut path = Vec::new();
            let mut at = *number;
            let mut good = false;
            loop {
                if let Some(known) = reached.get(&at) {
                    good = *known;
                    if let (true, Some(known)) = (path.contains(&at), self.inodes.get(&at))
                        && known.names == 1
                    {
                        report_circle(at, known.named_in, reporter);
                    }
                    break;
                }
                let Some(known) = self.inodes.get(&at) else { break };
                if known.kind != FileKind::Directory || known.names == 0 {
                    break;
                }
                // Until the path is known to be good it counts as bad, so that a cycle ends here.
                reached.insert(at, false);
                path.push(at);
                at = known.named_in;
            }
            for directory in path {
                reached.insert(directory, good);
                if !good {
                    let text = format!("directory {} does not lead to the root", directory.0);
                    reporter.damaged_at(At::inode(directory), text);
                }
            }
        }
    }
}

fn report_circle(inode: InodeNumber, directory: InodeNumber, reporter: &mut Reporter<'_>) {
    let text = match inode == directory {
        true => format!("directory {} names itself", inode.0),
        false => {
            format!(
                "directory {} is its own ancestor: directory {}, below it, names it",
                inode.0, directory.0
            )
        }
    };
    reporter.damaged_at(At::inode(directory), text);
}

fn check_links(number: InodeNumber, known: &Known, reporter: &mut Reporter<'_>) {
    let inode = number.0;
    let at = || At::inode(number);
    if known.kind == FileKind::Directory {
        let expected_names = u64::from(known.links > 0 && number != InodeNumber::ROOT);
        if known.names != expected_names {
            reporter.damaged_at(at(), format!("directory {inode} has {} names", known.names));
        }
        if known.links > 0 && u64::from(known.links) != 2 + known.directories_seen {
            let text = format!(
                "directory {inode} counts {} links and has {} subdirectories",
                known.links, known.directories_seen
            );
            let links = u32::try_from(2 + known.directories_seen).map(Remedy::Links);
            reporter.damaged_at(at().remedy(links.unwrap_or_default()), text);
        }
        if known.entries != known.entries_seen {
            let text = format!(
                "directory {inode} counts {} entries and has {}",
                known.entries, known.entries_seen
            );
            reporter.damaged_at(at().remedy(Remedy::Entries(known.entries_seen)), text);
        }
        if known.names > 0 && known.parent != known.named_in {
            let text = format!(
                "directory {inode} says its parent is {}, but {} names it",
                known.parent.0, known.named_in.0
            );
            let only = known.names == 1;
            reporter.damaged_at(
                at().remedy(if only { Remedy::Parent(known.named_in) } else { Remedy::None }),
                text,
            );
        }
    } else if u64::from(known.links) != known.names {
        // It has no name, or it has a name although it says that it is removed. One of the two is
        // wrong, and nothing tells which.
        let links = u32::try_from(known.names).ok().filter(|names| *names > 0 && known.links > 0);
        reporter.damaged_at(
            at().remedy(links.map_or(Remedy::None, Remedy::Links)),
            format!("inode {inode} counts {} links and has {} names", known.links, known.names),
        );
    }
    let needs_record = known.links == 0 || known.truncating;
    if known.orphan != needs_record {
        let (text, remedy) = match needs_record {
            true => ("needs an orphan record", Remedy::AddOrphan),
            false => ("has an orphan record without need", Remedy::DropOrphan(number)),
        };
        reporter.damaged_at(at().remedy(remedy), format!("inode {inode} {text}"));
    }
}
