//! Small volumes with examples of every structure, to be mutated: several levels, extents, inline
//! files, attributes, links, orphans, log records, snapshots.

use std::sync::{Arc, OnceLock};

use steadfast::fs::{AllocateMode, Caller, NewNode, SetXattrMode};
use steadfast::{FormatOptions, InodeNumber, OpenOptions, Result, TransactionMask, Volume};

use super::bench::BudgetMedium;
use crate::platform::{Clock, LabPlatform};
use crate::random::pattern_vec;

/// Number of base images.
pub const IMAGES: usize = 5;

/// One of the base images.
///
/// # Panics
/// A valid volume cannot be made, which is a bug too.
pub fn base_image(index: usize) -> &'static [u8] {
    static MADE: [OnceLock<Vec<u8>>; IMAGES] = [const { OnceLock::new() }; IMAGES];
    MADE[index % IMAGES].get_or_init(|| match make(index % IMAGES) {
        Ok(image) => image,
        Err(error) => panic!("base image {index}: {error}"),
    })
}

fn make(index: usize) -> Result<Vec<u8>> {
    // Block size, node size, copies, log bytes.
    let (block, node, copies, log) = [
        (512, 512, 1, 32 << 10),
        (512, 512, 2, 16 << 10),
        (128, 1024, 1, 16 << 10),
        (1024, 2048, 2, 0),
        (4096, 4096, 1, 64 << 10),
    ][index];
    let options = FormatOptions {
        block_size: block,
        node_size: Some(node),
        metadata_copies: Some(copies),
        log_size: Some(log),
        uuid: [index as u8 + 1; 16],
        mask: TransactionMask::MANUAL,
        ..FormatOptions::default()
    };
    let size = if block >= 1024 || copies == 2 { 1 << 20 } else { 256 << 10 };
    let medium = Arc::new(BudgetMedium::new(vec![0; size]));
    let platform = LabPlatform::new(Clock::default());
    Volume::format(&medium, &options, &platform)?;
    let open = OpenOptions { cache_size: 64 << 10, ..OpenOptions::default() };
    let volume = Volume::open(medium.clone(), open, platform)?;
    let caller = Caller::default();
    let root = InodeNumber::ROOT;
    let mut directory = root;
    for number in 0..24u32 {
        let name = format!("file-{number}");
        let file =
            volume.create(directory, name.as_bytes(), NewNode::Regular, 0o644, &caller)?.inode;
        let length = [10, 200, 3000, 9000][number as usize % 4];
        volume.write(
            file,
            u64::from(number % 3) * 2000,
            &pattern_vec(number + 1, 0, length),
            false,
        )?;
        if number % 5 == 0 {
            volume.set_xattr(file, b"user.note", &pattern_vec(99, 0, 150), SetXattrMode::Any)?;
            volume.allocate(file, 20_000, 4000, AllocateMode::Allocate { keep_size: true })?;
        }
        if number % 6 == 5 {
            let name = format!("directory-{number}");
            directory =
                volume.create(root, name.as_bytes(), NewNode::Directory, 0o755, &caller)?.inode;
            volume.create(
                root,
                format!("link-{number}").as_bytes(),
                NewNode::Symlink(b"file-1"),
                0o777,
                &caller,
            )?;
            volume.link(file, root, format!("second-{number}").as_bytes())?;
        }
        if number == 12 && index != 2 {
            volume.snapshot_create("before")?;
        }
    }
    volume.checkpoint()?;
    // Two records in the log, and an orphan.
    let held = volume.lookup(root, b"file-1")?.inode;
    volume.acquire(held)?;
    volume.unlink(root, b"file-1")?;
    volume.transact()?;
    let file = volume.lookup(root, b"file-2")?.inode;
    volume.write(file, 100, &pattern_vec(77, 0, 3000), false)?;
    volume.create(root, b"late", NewNode::Fifo, 0o600, &caller)?;
    volume.transact()?;
    let mut image = vec![0; size];
    steadfast_media::Medium::read(&medium, 0, &mut image)?;
    Ok(image)
}
