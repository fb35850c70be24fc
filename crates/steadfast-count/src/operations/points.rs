//! Transaction points, snapshots, checkpoints, opening.

use steadfast::OpenOptions;
use steadfast::Volume;
use steadfast::fs::{Caller, NewNode};

use super::Context;
use crate::Result;
use crate::platform::CountedPlatform;
use crate::volume::{self, BLOCK, told};

/// Repetitions of these operations, after one that does not count.
const REPEATS: u64 = 20;
/// Files that one transaction point makes durable.
const MANY: usize = 100;
/// Overwrites between two snapshots, and before a checkpoint.
const CHANGES: u64 = 100;
/// Transaction points in the log of a volume that is opened.
const POINTS_IN_LOG: u64 = 50;

/// Creates files of a block, and makes all durable with one point.
pub(super) fn transact_many(context: &mut Context<'_, '_>) -> Result<()> {
    let content = context.content(BLOCK);
    for _ in 0..=REPEATS {
        let mut names = Vec::new();
        for number in 0..MANY {
            names.push((context.any_directory()?, format!("new-{number}")));
        }
        let volume = &context.volume;
        let caller = Caller::default();
        context
            .region
            .run(1, || {
                for (directory, name) in &names {
                    let node = NewNode::Regular;
                    let made = volume.create(*directory, name.as_bytes(), node, 0o644, &caller)?;
                    volume.write(made.inode, 0, &content, false)?;
                }
                volume.transact()
            })
            .map_err(told("files in one transaction"))?;
        for (directory, name) in &names {
            volume::remove(volume, *directory, name)?;
        }
        volume::settle(&context.volume)?;
        context.region.start();
    }
    Ok(())
}

fn change(context: &mut Context<'_, '_>) -> Result<()> {
    (0..CHANGES).try_for_each(|_| context.overwrite_any())?;
    context.volume.transact().map_err(told("transact"))
}

pub(super) fn snapshot_create(context: &mut Context<'_, '_>) -> Result<()> {
    for number in 0..=REPEATS {
        change(context)?;
        let name = format!("snapshot-{number}");
        let volume = &context.volume;
        context.region.run(1, || volume.snapshot_create(&name)).map_err(told("snapshot"))?;
        volume.snapshot_delete(&name).map_err(told("deleting a snapshot"))?;
        volume::settle(&context.volume)?;
        context.region.start();
    }
    Ok(())
}

pub(super) fn snapshot_delete(context: &mut Context<'_, '_>) -> Result<()> {
    for number in 0..=REPEATS {
        let name = format!("snapshot-{number}");
        context.volume.snapshot_create(&name).map_err(told("snapshot"))?;
        change(context)?;
        let volume = &context.volume;
        context
            .region
            .run(1, || volume.snapshot_delete(&name))
            .map_err(told("deleting a snapshot"))?;
        volume::settle(&context.volume)?;
        context.region.start();
    }
    Ok(())
}

/// A unit is a node that the checkpoint writes.
pub(super) fn checkpoint(context: &mut Context<'_, '_>) -> Result<()> {
    for _ in 0..=REPEATS {
        change(context)?;
        let nodes = context.volume.activity().map_err(told("activity"))?.cache.dirty as u64;
        let volume = &context.volume;
        context.region.run(nodes, || volume.checkpoint()).map_err(told("checkpoint"))?;
        volume::settle(&context.volume)?;
        context.region.start();
    }
    Ok(())
}

/// Opens a volume whose power was cut after some transaction points.
pub(super) fn open(context: &mut Context<'_, '_>) -> Result<()> {
    context.volume.checkpoint().map_err(told("checkpoint"))?;
    for _ in 0..POINTS_IN_LOG {
        context.overwrite_any()?;
        context.volume.transact().map_err(told("transact"))?;
    }
    for number in 0..=REPEATS {
        let medium = context.medium;
        // Opening changes nothing on the medium, so each repetition finds the same log.
        context.volume = context
            .region
            .run(1, || {
                Volume::open(medium, OpenOptions::default(), CountedPlatform::at_day(2 + number))
            })
            .map_err(told("open"))?;
        context.region.start();
    }
    Ok(())
}
