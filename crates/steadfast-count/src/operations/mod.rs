//! The measured operations, and what each of them needs around it.
//!
//! An operation gets a [`Context`]: an open volume in its steady state. It prepares outside the
//! region, repeats inside it, and cleans up outside it. After each batch a transaction point and
//! the background work of a host follow, also outside. So the cost of checkpoints is in the row of
//! the checkpoint, and in no other.

mod data;
mod names;
mod points;

use steadfast::InodeNumber;
use steadfast::fs::FileKind;

use crate::Result;
use crate::medium::CountedMedium;
use crate::region::Region;
use crate::volume::{self, BLOCK, Counted, DATA_EVERY, FILES_PER_DIRECTORY, Kind, Random};

/// Repetitions of a batch: between two clean-ups.
const BATCH: u64 = 100;
/// Batches before the counted ones.
const WARM_BATCHES: u64 = 1;
/// Counted batches.
const COUNTED_BATCHES: u64 = 4;
/// Entries that one call may return: more than a directory has.
const ENTRIES: usize = 128;
/// Directories whose nodes are read before the first repetition: all of a volume of 10,000 files.
const WARM_DIRECTORIES: u64 = 100;

/// An open volume, and the region that counts.
pub struct Context<'m, 'r> {
    /// The medium of the volume.
    pub medium: &'m CountedMedium,
    /// The volume.
    pub volume: Counted<'m>,
    /// Its files.
    pub kind: Kind,
    /// Where repetitions run.
    pub region: Region<'r>,
    /// Places and content.
    pub random: Random,
}

impl Context<'_, '_> {
    fn directory(&self, directory: u64) -> Result<InodeNumber> {
        let name = volume::directory_name(directory);
        Ok(volume::look_up(&self.volume, InodeNumber::ROOT, &name)?.inode)
    }

    fn any_directory(&mut self) -> Result<InodeNumber> {
        let directory = self.random.below(self.kind.directories());
        self.directory(directory)
    }

    /// A file of the volume: its directory and its name.
    fn any_file(&mut self) -> Result<(InodeNumber, String)> {
        let file = self.random.below(self.kind.files);
        Ok((self.directory(file / FILES_PER_DIRECTORY)?, volume::file_name(file)))
    }

    /// A file with data outside the tree.
    fn any_data_file(&mut self) -> Result<InodeNumber> {
        self.any_of_ten(0)
    }

    /// A file that lives in the tree.
    fn any_small_file(&mut self) -> Result<InodeNumber> {
        self.any_of_ten(1)
    }

    fn any_of_ten(&mut self, place: u64) -> Result<InodeNumber> {
        let file = self.random.below(self.kind.files / DATA_EVERY) * DATA_EVERY + place;
        let directory = self.directory(file / FILES_PER_DIRECTORY)?;
        Ok(volume::look_up(&self.volume, directory, &volume::file_name(file))?.inode)
    }

    fn content(&mut self, length: usize) -> Vec<u8> {
        let mut content = vec![0; length];
        self.random.fill(&mut content);
        content
    }

    /// A new file with `length` bytes; its directory, its name and its inode.
    fn new_file(
        &mut self,
        name: String,
        length: usize,
    ) -> Result<(InodeNumber, String, InodeNumber)> {
        let directory = self.any_directory()?;
        let inode = volume::create(&self.volume, directory, &name)?.inode;
        let content = self.content(length);
        self.volume.write(inode, 0, &content, false).map_err(volume::told("write"))?;
        Ok((directory, name, inode))
    }

    /// Overwrites the first block of a file.
    fn overwrite_any(&mut self) -> Result<()> {
        let (inode, content) = (self.any_data_file()?, self.content(BLOCK));
        self.volume.write(inode, 0, &content, false).map_err(volume::told("write"))
    }

    /// Reads the nodes of many directories and of their files, so that small volumes are in the
    /// cache as a whole.
    fn warm(&self) -> Result<()> {
        for directory in 0..self.kind.directories().min(WARM_DIRECTORIES) {
            let inode = self.directory(directory)?;
            let listed = self.volume.read_directory_plus(inode, 0, ENTRIES);
            let listed = listed.map_err(volume::told("readdir"))?;
            for (entry, _) in listed.iter().filter(|(entry, _)| entry.kind == FileKind::Regular) {
                self.volume.file_extents(entry.inode, 0, 1).map_err(volume::told("extents"))?;
            }
        }
        Ok(())
    }

    /// Runs `batch` for each batch; the counted ones come last. A transaction point and background
    /// work follow each.
    fn batches(&mut self, mut batch: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        for number in 0..WARM_BATCHES + COUNTED_BATCHES {
            if number == WARM_BATCHES {
                self.region.start();
            }
            batch(self)?;
            volume::settle(&self.volume)?;
        }
        Ok(())
    }
}

/// One row of the table.
pub struct Operation {
    /// Its name in the table and on command lines.
    pub name: &'static str,
    /// What is counted, for people.
    pub what: &'static str,
    /// Most instructions that it should need with 10,000 files.
    pub goal: Option<u64>,
    /// Whether the checksum of the data is on top of the goal.
    pub checksum_apart: bool,
    /// Most allocations that it should need.
    pub allocations_goal: u64,
    measure: fn(&mut Context<'_, '_>) -> Result<()>,
}

impl Operation {
    /// The operation of this name.
    pub fn named(name: &str) -> Option<&'static Operation> {
        OPERATIONS.iter().find(|operation| operation.name == name)
    }

    /// Runs it, warm-up included.
    ///
    /// # Errors
    /// Those of the volume.
    pub fn measure(&self, context: &mut Context<'_, '_>) -> Result<()> {
        context.warm()?;
        (self.measure)(context)
    }
}

/// Most allocations of a change.
const CHANGE: u64 = 2;
/// Most allocations of a read.
const READ: u64 = 0;

const fn row(
    name: &'static str,
    what: &'static str,
    goal: Option<u64>,
    allocations_goal: u64,
    measure: fn(&mut Context<'_, '_>) -> Result<()>,
) -> Operation {
    Operation { name, what, goal, checksum_apart: false, allocations_goal, measure }
}

/// All operations, in the order of the table.
pub const OPERATIONS: &[Operation] = &[
    row("create-inline", "create a file and write 100 B", None, CHANGE, |context| {
        names::create(context, 100, false)
    }),
    row("create-2k", "create a file and write 2 KiB", Some(8000), CHANGE, |context| {
        names::create(context, 2048, false)
    }),
    row("create-4k", "create a file and write 4 KiB", None, CHANGE, |context| {
        names::create(context, 4096, false)
    }),
    row("create-2k-transact", "create, write 2 KiB, transact", Some(20_000), CHANGE, |context| {
        names::create(context, 2048, true)
    }),
    row("mkdir", "make a directory", Some(8000), CHANGE, names::make_directory),
    row("link", "link a file", None, CHANGE, names::link),
    row("rename", "rename a file in its directory", Some(8000), CHANGE, names::rename),
    row("unlink", "remove a file of 2 KiB", Some(8000), CHANGE, names::unlink),
    row("lookup-warm", "look up one of 100 names again", Some(800), READ, names::look_up_warm),
    row("lookup-cold", "look up a name right after opening", None, READ, names::look_up_cold),
    row("getattr", "attributes of one of 100 files", Some(200), READ, names::attributes),
    row("readdir", "list a directory of 100 files", None, READ, names::read_directory),
    Operation {
        name: "read-4k",
        what: "read 4 KiB, nodes cached",
        goal: Some(3000),
        checksum_apart: true,
        allocations_goal: READ,
        measure: |context| data::read(context, 4096),
    },
    row("read-1m", "read 1 MiB of a file in one extent", None, READ, |context| {
        data::read(context, 1 << 20)
    }),
    row("overwrite-4k", "overwrite 4 KiB of any file", None, CHANGE, |context| {
        data::overwrite(context, false)
    }),
    row("overwrite-4k-transact", "overwrite 4 KiB, transact", Some(15_000), CHANGE, |context| {
        data::overwrite(context, true)
    }),
    row("put-100-transact", "overwrite a file of 100 B, transact", None, CHANGE, data::put),
    row("read-100", "read a file of 100 B", None, READ, data::get),
    row("append-32-transact", "append 32 B to a log, transact", Some(8000), CHANGE, |context| {
        data::append(context, 32)
    }),
    row("append-4k-transact", "append 4 KiB to a log, transact", None, CHANGE, |context| {
        data::append(context, 4096)
    }),
    row("transact-100", "create 100 files of 4 KiB, transact", None, 100 * CHANGE, |context| {
        points::transact_many(context)
    }),
    row("truncate", "truncate a file of 4 KiB to nothing", None, CHANGE, data::truncate),
    row(
        "snapshot-create",
        "take a snapshot after 100 overwrites, checkpoint included",
        None,
        CHANGE,
        points::snapshot_create,
    ),
    row(
        "snapshot-delete",
        "delete a snapshot after 100 overwrites, checkpoint included",
        None,
        CHANGE,
        points::snapshot_delete,
    ),
    row("checkpoint-node", "checkpoint, for each dirty node", None, CHANGE, points::checkpoint),
    row("open-after-cut", "open after a cut, 50 points in the log", None, CHANGE, points::open),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        for (index, operation) in OPERATIONS.iter().enumerate() {
            let found = OPERATIONS.iter().position(|other| other.name == operation.name);
            assert_eq!(found, Some(index), "{}", operation.name);
        }
    }
}
