//! Operations on names and attributes.

use steadfast::fs::{Caller, NewNode, RenameMode};

use super::{BATCH, COUNTED_BATCHES, Context, ENTRIES};
use crate::Result;
use crate::volume::{self, told};

/// Repetitions of an operation that needs a freshly opened volume each time.
const COLD: u64 = 50;
/// Directories that are listed in turn.
const LISTED: usize = 10;

fn new_name(number: u64) -> String {
    format!("new-{number:08}")
}

/// Creates a file, writes `length` bytes and, if asked, sets a transaction point.
pub(super) fn create(context: &mut Context<'_, '_>, length: usize, transact: bool) -> Result<()> {
    let content = context.content(length);
    context.batches(|context| {
        let mut made = Vec::new();
        for number in 0..BATCH {
            let (directory, name) = (context.any_directory()?, new_name(number));
            let volume = &context.volume;
            context.region.run(1, || {
                let made = volume.create(
                    directory,
                    name.as_bytes(),
                    NewNode::Regular,
                    0o644,
                    &Caller::default(),
                );
                made.and_then(|made| volume.write(made.inode, 0, &content, false))
                    .and_then(|()| if transact { volume.transact() } else { Ok(()) })
                    .map_err(told("create"))
            })?;
            made.push((directory, name));
        }
        made.iter()
            .try_for_each(|(directory, name)| volume::remove(&context.volume, *directory, name))
    })
}

pub(super) fn make_directory(context: &mut Context<'_, '_>) -> Result<()> {
    context.batches(|context| {
        let mut made = Vec::new();
        for number in 0..BATCH {
            let (parent, name) = (context.any_directory()?, new_name(number));
            let volume = &context.volume;
            let caller = Caller::default();
            context
                .region
                .run(1, || {
                    volume.create(parent, name.as_bytes(), NewNode::Directory, 0o755, &caller)
                })
                .map_err(told("mkdir"))?;
            made.push((parent, name));
        }
        made.iter().try_for_each(|(parent, name)| {
            context.volume.remove_directory(*parent, name.as_bytes()).map_err(told("rmdir"))
        })
    })
}

pub(super) fn link(context: &mut Context<'_, '_>) -> Result<()> {
    context.batches(|context| {
        let mut made = Vec::new();
        for number in 0..BATCH {
            let (directory, name) = context.any_file()?;
            let inode = volume::look_up(&context.volume, directory, &name)?.inode;
            let name = new_name(number);
            let volume = &context.volume;
            context
                .region
                .run(1, || volume.link(inode, directory, name.as_bytes()))
                .map_err(told("link"))?;
            made.push((directory, name));
        }
        made.iter()
            .try_for_each(|(directory, name)| volume::remove(&context.volume, *directory, name))
    })
}

pub(super) fn rename(context: &mut Context<'_, '_>) -> Result<()> {
    context.batches(|context| {
        for number in 0..BATCH {
            let (directory, old) = context.any_file()?;
            let new = new_name(number);
            let volume = &context.volume;
            let rename = |from: &str, to: &str| {
                let mode = RenameMode::Replace;
                volume.rename(directory, from.as_bytes(), directory, to.as_bytes(), mode)
            };
            context.region.run(1, || rename(&old, &new)).map_err(told("rename"))?;
            rename(&new, &old).map_err(told("rename back"))?;
        }
        Ok(())
    })
}

pub(super) fn unlink(context: &mut Context<'_, '_>) -> Result<()> {
    context.batches(|context| {
        let made: Result<Vec<_>> =
            (0..BATCH).map(|number| context.new_file(new_name(number), 2048)).collect();
        volume::settle(&context.volume)?;
        for (directory, name, _) in made? {
            let volume = &context.volume;
            context
                .region
                .run(1, || volume.unlink(directory, name.as_bytes()))
                .map_err(told("unlink"))?;
        }
        Ok(())
    })
}

pub(super) fn look_up_warm(context: &mut Context<'_, '_>) -> Result<()> {
    let files: Vec<_> = (0..BATCH).map(|_| context.any_file()).collect::<Result<_>>()?;
    context.batches(|context| {
        for (directory, name) in &files {
            let volume = &context.volume;
            context
                .region
                .run(1, || volume.lookup(*directory, name.as_bytes()))
                .map_err(told("lookup"))?;
        }
        Ok(())
    })
}

pub(super) fn look_up_cold(context: &mut Context<'_, '_>) -> Result<()> {
    let files: Vec<_> = (0..COLD).map(|_| context.any_file()).collect::<Result<_>>()?;
    context.volume.close().map_err(told("close"))?;
    context.region.start();
    for (directory, name) in &files {
        context.volume = volume::open(context.medium, 1)?;
        let volume = &context.volume;
        context
            .region
            .run(1, || volume.lookup(*directory, name.as_bytes()))
            .map_err(told("lookup"))?;
    }
    Ok(())
}

pub(super) fn attributes(context: &mut Context<'_, '_>) -> Result<()> {
    let mut inodes = Vec::new();
    for _ in 0..BATCH {
        let (directory, name) = context.any_file()?;
        inodes.push(volume::look_up(&context.volume, directory, &name)?.inode);
    }
    context.batches(|context| {
        for inode in &inodes {
            let volume = &context.volume;
            context.region.run(1, || volume.attributes(*inode)).map_err(told("getattr"))?;
        }
        Ok(())
    })
}

pub(super) fn read_directory(context: &mut Context<'_, '_>) -> Result<()> {
    let listed: Vec<_> = (0..LISTED).map(|_| context.any_directory()).collect::<Result<_>>()?;
    // The first listing renews the access time.
    for _ in 0..=COUNTED_BATCHES {
        for directory in &listed {
            let volume = &context.volume;
            let entries = context
                .region
                .run(1, || volume.read_directory(*directory, 0, ENTRIES))
                .map_err(told("readdir"))?;
            assert!(entries.len() > 100, "a whole directory is listed");
        }
        volume::settle(&context.volume)?;
        context.region.start();
    }
    Ok(())
}
