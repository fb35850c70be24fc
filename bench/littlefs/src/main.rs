//! littlefs over the NAND model: the load of docs/FLASH.md's figures, so that both stand beside
//! each other.
//!
//! The part is a 1 Gbit SLC. A block may be bad from the factory, and littlefs has no way around it
//! and no map of good ones. So it is shown the good blocks in a row. The model corrects flipped
//! bits for it, as the driver of such a part would. Its parameters are those that its documentation
//! names for NAND: reads and programs of a page, erase blocks of the part, 500 cycles to move
//! metadata.
//!
//! The load, as in `crates/steadfast-torture/src/flash/figures.rs`:
//! - files of 64 KiB in directories of 100, until 90 % of the blocks are used;
//! - 200 synced overwrites of 4 KiB, of 20 files in turn;
//! - synced overwrites at random places of all files.
//!
//! Everything counted and priced by the model is independent of the machine.

use littlefs2::consts::{U64, U2048};
use littlefs2::fs::{Allocation, Filesystem};
use littlefs2::io::{Error, Result, SeekFrom};
use littlefs2::path::PathBuf;
use steadfast_flash::model::{NandModel, OperationCounts};
use steadfast_flash::nand::{BlockNumber, Nand, PageAddress};
use steadfast_flash::part::Part;

const PART: Part = Part::SLC_1GBIT;
const PAGE: usize = 2048;
const PAGES: usize = 64;
const BLOCK: usize = PAGE * PAGES;
/// Blocks that littlefs is shown: all but those that may be bad.
const BLOCKS: usize = 1024 - 20;
const FILE: usize = 64 << 10;
const RECORD: usize = 4 << 10;
const FILES_OVERWRITTEN: u64 = 20;
const OVERWRITES: u64 = 200;
const RANDOM: u64 = 2000;

/// The good blocks of a part, in a row.
struct Driver {
    nand: NandModel,
    good: Vec<u32>,
}

impl Driver {
    fn new() -> Driver {
        let mut nand = NandModel::new(&PART, 1);
        let blocks = 0..PART.geometry.blocks;
        let good =
            blocks.filter(|block| !nand.is_bad(BlockNumber(*block)).unwrap_or(true)).take(BLOCKS).collect();
        Driver { nand, good }
    }

    /// The pages of `length` bytes from `offset` on.
    fn pages(&self, offset: usize, length: usize) -> Vec<PageAddress> {
        let page =
            |at: usize| PART.geometry.page(BlockNumber(self.good[at / BLOCK]), (at % BLOCK / PAGE) as u32);
        (offset..offset + length).step_by(PAGE).map(page).collect()
    }
}

impl littlefs2::driver::Storage for Driver {
    const READ_SIZE: usize = PAGE;
    const WRITE_SIZE: usize = PAGE;
    const BLOCK_SIZE: usize = BLOCK;
    const BLOCK_COUNT: usize = BLOCKS;
    const BLOCK_CYCLES: isize = 500;
    type CACHE_SIZE = U2048;
    type LOOKAHEAD_SIZE = U64;

    fn read(&mut self, offset: usize, buffer: &mut [u8]) -> Result<usize> {
        for (page, part) in self.pages(offset, buffer.len()).into_iter().zip(buffer.chunks_mut(PAGE)) {
            self.nand.read(page, part, &mut []).map_err(|_| Error::IO)?;
        }
        Ok(buffer.len())
    }

    fn write(&mut self, offset: usize, data: &[u8]) -> Result<usize> {
        for (page, part) in self.pages(offset, data.len()).into_iter().zip(data.chunks(PAGE)) {
            self.nand.program(page, part, &[]).map_err(|_| Error::IO)?;
        }
        Ok(data.len())
    }

    fn erase(&mut self, offset: usize, length: usize) -> Result<usize> {
        for block in offset / BLOCK..(offset + length) / BLOCK {
            self.nand.erase(BlockNumber(self.good[block])).map_err(|_| Error::IO)?;
        }
        Ok(length)
    }
}

/// xorshift64, for data that does not compress and for places. The program stands outside the
/// workspace, and its figures depend on the sequence.
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length / 8).flat_map(|_| self.bits().to_le_bytes()).collect()
    }
}

fn path(index: u64) -> PathBuf {
    PathBuf::try_from(format!("d{}/f{index}", index / 100).as_str()).expect("a short name")
}

/// Runs `work` on a mounted file system, which is unmounted after it; what the part has done for
/// it.
fn measured<T>(
    driver: &mut Driver,
    work: impl FnOnce(&Filesystem<'_, Driver>) -> Result<T>,
) -> Result<(T, OperationCounts)> {
    driver.nand.reset_counts();
    let mut allocation = Allocation::new();
    let filesystem = Filesystem::mount(&mut allocation, driver)?;
    let value = work(&filesystem)?;
    drop(filesystem);
    Ok((value, driver.nand.counts()))
}

fn fill(filesystem: &Filesystem<'_, Driver>, random: &mut Random) -> Result<u64> {
    let mut files = 0;
    while filesystem.available_blocks()? * 10 > BLOCKS {
        // Counting walks over the whole file system, so not after each file.
        for _ in 0..20 {
            if files % 100 == 0 {
                filesystem.create_dir(
                    &PathBuf::try_from(format!("d{}", files / 100).as_str()).expect("a short name"),
                )?;
            }
            filesystem.write(&path(files), &random.bytes(FILE))?;
            files += 1;
        }
    }
    Ok(files)
}

fn overwrite(filesystem: &Filesystem<'_, Driver>, index: u64, at: u64, random: &mut Random) -> Result<()> {
    filesystem.open_file_with_options_and_then(
        |options| options.read(true).write(true),
        &path(index),
        |file| {
            file.seek(SeekFrom::Start((at as usize * RECORD) as u32))?;
            file.write(&random.bytes(RECORD))?;
            file.sync()
        },
    )
}

fn print(what: &str, operations: u64, counts: OperationCounts) {
    let each = |count: u64| count as f64 / operations as f64;
    println!(
        "{what:<44} {:>10.1} {:>10.1} {:>10.2} {:>12.1}",
        each(counts.reads),
        each(counts.programs),
        each(counts.erases),
        each(counts.time_ns) / 1e6
    );
}

fn main() -> Result<()> {
    let mut driver = Driver::new();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    Filesystem::format(&mut driver)?;
    println!(
        "{:<44} {:>10} {:>10} {:>10} {:>12}",
        "littlefs, for each", "reads", "programs", "erases", "modelled ms"
    );
    let (files, counts) = measured(&mut driver, |filesystem| fill(filesystem, &mut random))?;
    print("file of 64 KiB, until 90 % full", files, counts);
    print("mount, 90 % full", 1, measured(&mut driver, |_| Ok(()))?.1);
    let per_file = (FILE / RECORD) as u64;
    let ((), counts) = measured(&mut driver, |filesystem| {
        (0..OVERWRITES).try_for_each(|round| {
            let (index, at) = (round % FILES_OVERWRITTEN, round / FILES_OVERWRITTEN % per_file);
            overwrite(filesystem, index, at, &mut random)
        })
    })?;
    print("synced overwrite of 4 KiB, 20 files in turn", OVERWRITES, counts);
    let ((), counts) = measured(&mut driver, |filesystem| {
        (0..RANDOM).try_for_each(|_| {
            let (index, at) = (random.bits() % files, random.bits() % per_file);
            overwrite(filesystem, index, at, &mut random)
        })
    })?;
    print("synced overwrite of 4 KiB, at random", RANDOM, counts);
    println!("{files} files");
    Ok(())
}
