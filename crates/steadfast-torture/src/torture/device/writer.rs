//! Prepares a medium, and makes transaction after transaction on it.

use std::io;

use steadfast::fs::{Caller, NewNode, RenameMode, SetAttributes};
use steadfast::{
    Error, FormatOptions, InodeNumber, OpenOptions, Platform, TransactionMask, Volume,
};
use steadfast_media::Medium;

use super::layout::Layout;
use super::witness::Line;
use super::workload::{DIRECTORIES, File, Step, Tree};
use super::{DeviceError, probe};
use crate::random::pattern_vec;

/// The file with the number of the volume's last transaction.
pub const NUMBER_FILE: &[u8] = b"transaction";
/// Block size of the volume, unless the medium's unit is larger, bytes.
const BLOCK: u32 = 4096;
const CACHE: usize = 16 << 20;

/// Makes the volume and the ring. Destroys what the medium holds.
///
/// # Errors
/// `TooSmall`, the medium's.
pub fn prepare<M: Medium, P: Platform>(
    medium: &M,
    platform: &P,
    run: [u8; 16],
    seed: u64,
) -> Result<Layout, DeviceError> {
    let layout = Layout::new(medium.geometry(), run, seed)?;
    let options = FormatOptions {
        size: Some(layout.volume_size),
        block_size: BLOCK.max(layout.unit),
        uuid: run,
        label: "torture".to_owned(),
        // Only the run sets points: a timer would set points that the witness does not know.
        mask: TransactionMask::MANUAL,
        ..FormatOptions::default()
    };
    Volume::format(medium, &options, platform)?;
    probe::clear(medium, &layout)?;
    let volume = open(medium, platform, false)?;
    for directory in 0..DIRECTORIES {
        let name = format!("d{directory}");
        volume.create(InodeNumber::ROOT, name.as_bytes(), NewNode::Directory, 0o755, &caller())?;
    }
    let number =
        volume.create(InodeNumber::ROOT, NUMBER_FILE, NewNode::Regular, 0o644, &caller())?;
    volume.write(number.inode, 0, &0u64.to_le_bytes(), false)?;
    volume.checkpoint()?;
    volume.close()?;
    // The header comes last: a medium with a header is complete.
    layout.write(medium)?;
    medium.flush()?;
    Ok(layout)
}

/// Continues after the last transaction of a prepared medium, until `tell` returns `Ok(false)` or
/// an error occurs. Returns the number of the last committed transaction.
///
/// # Errors
/// `NotPrepared`; the medium's, which ends a run whose medium loses power; `Witness`.
pub fn write<M: Medium, P: Platform>(
    medium: &M,
    platform: &P,
    tell: &mut dyn FnMut(Line) -> io::Result<bool>,
) -> Result<u64, DeviceError> {
    let layout = Layout::read(medium)?;
    let volume = open(medium, platform, false)?;
    let mut directories = [InodeNumber::ROOT; DIRECTORIES as usize];
    for (index, directory) in directories.iter_mut().enumerate() {
        *directory = volume.lookup(InodeNumber::ROOT, format!("d{index}").as_bytes())?.inode;
    }
    let number_file = volume.lookup(InodeNumber::ROOT, NUMBER_FILE)?.inode;
    let mut number = number_on(&volume)?;
    let mut tree = Tree::after(layout.seed, number);
    let mut more = tell(Line::Run(layout.run)).map_err(DeviceError::Witness)?;
    while more {
        number += 1;
        probe::write(medium, &layout, number)?;
        medium.flush()?;
        more = tell(Line::Flushed(number)).map_err(DeviceError::Witness)?;
        for step in tree.advance(layout.seed, number) {
            apply(&volume, &directories, step)?;
        }
        volume.write(number_file, 0, &number.to_le_bytes(), false)?;
        volume.transact()?;
        more &= tell(Line::Committed(number)).map_err(DeviceError::Witness)?;
        while volume.background()? {}
    }
    volume.close()?;
    Ok(number)
}

/// Opens the volume of a prepared medium.
pub(super) fn open<'m, M: Medium, P: Platform>(
    medium: &'m M,
    platform: &'m P,
    read_only: bool,
) -> Result<Volume<&'m M, &'m P>, Error> {
    Volume::open(
        medium,
        OpenOptions { read_only, cache_size: CACHE, access_times: false, ..OpenOptions::default() },
        platform,
    )
}

/// The number of the volume's last transaction.
pub(super) fn number_on<M: Medium, P: Platform>(volume: &Volume<M, P>) -> Result<u64, DeviceError> {
    let file = volume.lookup(InodeNumber::ROOT, NUMBER_FILE)?.inode;
    let mut bytes = [0; 8];
    match volume.read(file, 0, &mut bytes)? {
        8 => Ok(u64::from_le_bytes(bytes)),
        _ => Err(DeviceError::NotPrepared),
    }
}

fn caller() -> Caller {
    Caller { uid: 0, gid: 0, umask: 0 }
}

fn apply<M: Medium, P: Platform>(
    volume: &Volume<M, P>,
    directories: &[InodeNumber; DIRECTORIES as usize],
    step: Step,
) -> Result<(), Error> {
    let directory = |file: File| {
        directories.get(usize::from(file.directory)).copied().unwrap_or(InodeNumber::ROOT)
    };
    let find = |file: File| Ok(volume.lookup(directory(file), file.file_name().as_bytes())?.inode);
    let set_size = |inode, size| {
        volume
            .set_attributes(inode, &SetAttributes { size: Some(size), ..SetAttributes::default() })
    };
    match step {
        Step::Replace { file, length, fill } => {
            let inode = match find(file) {
                Err(Error::NotFound) => {
                    let name = file.file_name();
                    volume
                        .create(
                            directory(file),
                            name.as_bytes(),
                            NewNode::Regular,
                            0o644,
                            &caller(),
                        )?
                        .inode
                }
                found => found?,
            };
            set_size(inode, 0)?;
            volume.write(inode, 0, &pattern_vec(fill, 0, length as usize), false)?;
        }
        Step::Write { file, offset, length, fill } => {
            volume.write(
                find(file)?,
                offset,
                &pattern_vec(fill, offset, length as usize),
                false,
            )?;
        }
        Step::Truncate { file, size } => drop(set_size(find(file)?, size)?),
        Step::Rename { from, to } => {
            let (name, new_name) = (from.file_name(), to.file_name());
            volume.rename(
                directory(from),
                name.as_bytes(),
                directory(to),
                new_name.as_bytes(),
                RenameMode::Replace,
            )?;
        }
        Step::Unlink { file } => volume.unlink(directory(file), file.file_name().as_bytes())?,
    }
    Ok(())
}
