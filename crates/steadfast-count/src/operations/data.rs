//! Operations on the data of files.

use super::{BATCH, Context};
use crate::Result;
use crate::volume::{self, BLOCK, told};

/// Counted reads of a large file.
const LARGE_READS: u64 = 10;
/// Bytes of a small file that are read or overwritten.
const SMALL: usize = 100;
/// Operations between two turns of the background thread.
const BACKGROUND_EVERY: u64 = 16;

/// Reads `length` bytes: the first block of any file, or a whole larger file.
pub(super) fn read(context: &mut Context<'_, '_>, length: usize) -> Result<()> {
    let mut buffer = vec![0; length];
    let (mut inodes, mut repeats) = (Vec::new(), BATCH);
    if length > BLOCK {
        inodes.push(context.new_file("large".into(), length)?.2);
        volume::settle(&context.volume)?;
        repeats = LARGE_READS;
    } else {
        for _ in 0..BATCH {
            inodes.push(context.any_data_file()?);
        }
    }
    context.batches(|context| {
        for inode in inodes.iter().cycle().take(repeats as usize) {
            let volume = &context.volume;
            let count = context
                .region
                .run(1, || volume.read(*inode, 0, &mut buffer))
                .map_err(told("read"))?;
            assert_eq!(count, length, "the file is that long");
        }
        Ok(())
    })
}

/// Overwrites a block and, if asked, sets a transaction point.
pub(super) fn overwrite(context: &mut Context<'_, '_>, transact: bool) -> Result<()> {
    context.batches(|context| {
        for number in 0..BATCH {
            let (inode, content) = (context.any_data_file()?, context.content(BLOCK));
            let volume = &context.volume;
            context
                .region
                .run(1, || {
                    let written = volume.write(inode, 0, &content, false);
                    written.and_then(|()| if transact { volume.transact() } else { Ok(()) })
                })
                .map_err(told("overwrite"))?;
            if transact && number % BACKGROUND_EVERY == 0 {
                volume::background(&context.volume)?;
            }
        }
        Ok(())
    })
}

/// Overwrites small files, which live in the tree, each with a transaction point.
pub(super) fn put(context: &mut Context<'_, '_>) -> Result<()> {
    context.batches(|context| {
        for number in 0..BATCH {
            let (inode, content) = (context.any_small_file()?, context.content(SMALL));
            let volume = &context.volume;
            context
                .region
                .run(1, || {
                    let written = volume.write(inode, 0, &content, false);
                    written.and_then(|()| volume.transact())
                })
                .map_err(told("overwrite"))?;
            if number % BACKGROUND_EVERY == 0 {
                volume::background(&context.volume)?;
            }
        }
        Ok(())
    })
}

pub(super) fn get(context: &mut Context<'_, '_>) -> Result<()> {
    let inodes: Vec<_> = (0..BATCH).map(|_| context.any_small_file()).collect::<Result<_>>()?;
    let mut buffer = [0; SMALL];
    context.batches(|context| {
        for inode in &inodes {
            let volume = &context.volume;
            let count = context
                .region
                .run(1, || volume.read(*inode, 0, &mut buffer))
                .map_err(told("read"))?;
            assert_eq!(count, SMALL, "the file is at least that long");
        }
        Ok(())
    })
}

/// Appends to one file, with a transaction point each time.
pub(super) fn append(context: &mut Context<'_, '_>, length: usize) -> Result<()> {
    let inode = context.new_file("log".into(), BLOCK)?.2;
    volume::settle(&context.volume)?;
    context.batches(|context| {
        for number in 0..BATCH {
            let content = context.content(length);
            let volume = &context.volume;
            context
                .region
                .run(1, || {
                    let appended = volume.append(inode, &content, false);
                    appended.and_then(|_| volume.transact())
                })
                .map_err(told("append"))?;
            if number % BACKGROUND_EVERY == 0 {
                volume::background(&context.volume)?;
            }
        }
        Ok(())
    })
}

pub(super) fn truncate(context: &mut Context<'_, '_>) -> Result<()> {
    let empty = steadfast::fs::SetAttributes { size: Some(0), ..Default::default() };
    context.batches(|context| {
        let made: Result<Vec<_>> =
            (0..BATCH).map(|number| context.new_file(format!("new-{number}"), BLOCK)).collect();
        volume::settle(&context.volume)?;
        for (directory, name, inode) in made? {
            let volume = &context.volume;
            context
                .region
                .run(1, || volume.set_attributes(inode, &empty))
                .map_err(told("truncate"))?;
            volume::remove(volume, directory, &name)?;
        }
        Ok(())
    })
}
