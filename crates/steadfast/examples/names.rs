//! The cost of operations on names without a device or a transport: the core on a medium in memory.
//!
//! `cargo run --release -p steadfast --example names` prints nanoseconds an operation, with few
//! files and with many. It prints the minimum of several rounds, because other load on the machine
//! only adds to the time.

use std::time::Instant;

use steadfast::fs::{Caller, NewNode};
use steadfast::testing::TestPlatform;
use steadfast::{Error, FormatOptions, InodeNumber, OpenOptions, TransactionMask, Volume};
use steadfast_media::MemoryMedium;

const FILE_BYTES: usize = 2048;
const ROUNDS: u32 = 7;

fn main() -> Result<(), Error> {
    println!("{:>7} {:>9} {:>9} {:>9} {:>9}", "files", "create", "lookup", "list", "unlink");
    for files in [1_000, 20_000] {
        let mut least = [u128::MAX; 4];
        for _ in 0..ROUNDS {
            let round = round(files)?;
            least.iter_mut().zip(round).for_each(|(least, now)| *least = now.min(*least));
        }
        let [create, lookup, list, unlink] =
            least.map(|nanoseconds| nanoseconds / u128::from(files));
        println!("{files:>7} {create:>6} ns {lookup:>6} ns {list:>6} ns {unlink:>6} ns");
    }
    Ok(())
}

/// Nanoseconds to create all files, look all of them up, list them with their attributes, and
/// remove them.
fn round(files: u64) -> Result<[u128; 4], Error> {
    let medium = MemoryMedium::new(256 << 20, 512).map_err(|_| Error::InvalidArgument("size"))?;
    let options = FormatOptions { mask: TransactionMask::MANUAL, ..FormatOptions::default() };
    Volume::format(&medium, &options, &TestPlatform::new())?;
    let options = OpenOptions { cache_size: 256 << 20, ..OpenOptions::default() };
    let volume = Volume::open(medium, options, TestPlatform::new())?;
    let caller = Caller::default();
    let directory =
        volume.create(InodeNumber::ROOT, b"d", NewNode::Directory, 0o755, &caller)?.inode;
    let names: Vec<String> = (0..files).map(|number| format!("file{number}")).collect();
    // In an order that gives the tree no advantage.
    let scattered = |index: usize| names[index * 7_919 % names.len()].as_bytes();
    let data = [7; FILE_BYTES];
    let create = time(|| {
        for name in &names {
            let inode =
                volume.create(directory, name.as_bytes(), NewNode::Regular, 0o644, &caller)?.inode;
            volume.write(inode, 0, &data, false)?;
        }
        Ok(())
    })?;
    let lookup = time(|| {
        (0..names.len()).try_for_each(|index| volume.lookup(directory, scattered(index)).map(drop))
    })?;
    let list = time(|| {
        let mut cookie = 0;
        while let Some((last, _)) = volume.read_directory_plus(directory, cookie, 256)?.last() {
            cookie = last.cookie;
        }
        Ok(())
    })?;
    let unlink = time(|| {
        (0..names.len()).try_for_each(|index| volume.unlink(directory, scattered(index)).map(drop))
    })?;
    Ok([create, lookup, list, unlink])
}

fn time(work: impl FnOnce() -> Result<(), Error>) -> Result<u128, Error> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_nanos())
}
