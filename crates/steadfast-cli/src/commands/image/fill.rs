//! Putting a [`SourceTree`] on an empty volume.
//!
//! All work follows the order of the paths, in one thread, with a stopped clock: the same source
//! gives the same bytes. Attributes come last, so that neither a set-group-id directory nor a
//! default ACL affects the entries made in it.

use std::collections::HashMap;
use std::io::{self, Read};
use std::path::Path;

use indicatif::ProgressBar;
use steadfast::fs::{Caller, NewNode, SetAttributes, SetTime, SetXattrMode};
use steadfast::{Error, InodeNumber, TransactionMask};

use crate::failure::{Exit, Failure, Outcome};
use crate::medium::HostVolume;
use crate::source::{ContentReader, Entry, Node, SourceTree};
use crate::transfer;

/// Bytes written at a time.
const CHUNK: usize = 1 << 20;

/// Puts everything on the volume as one transaction, and leaves it with the transaction mask
/// `mask`.
///
/// # Errors
/// Those of reading the source (with its path) and of the volume (with the path in the image).
pub fn fill(
    volume: &HostVolume,
    source: &SourceTree,
    mask: TransactionMask,
    place: &Path,
    bar: &ProgressBar,
) -> Outcome {
    let at_volume = |error| Failure::core(error, place.display());
    volume.set_mask(TransactionMask::MANUAL).map_err(at_volume)?;
    let mut filler = Filler { volume, place, bar, inodes: HashMap::new(), buffer: vec![0; CHUNK] };
    filler.inodes.insert(Vec::new(), InodeNumber::ROOT);
    let links = |entry: &Entry| matches!(entry.node, Node::Hardlink(_));
    for (path, entry) in
        source.entries.iter().filter(|(path, entry)| !path.is_empty() && !links(entry))
    {
        filler.make(path, entry)?;
    }
    for (path, entry) in source.entries.iter().filter(|(_, entry)| links(entry)) {
        filler.link(path, entry)?;
    }
    // Backwards, so that the contents of a directory come before it.
    for (path, entry) in source.entries.iter().rev().filter(|(_, entry)| !links(entry)) {
        filler.describe(path, entry)?;
    }
    volume.set_mask(mask).and_then(|()| volume.checkpoint()).map_err(at_volume)
}

struct Filler<'a> {
    volume: &'a HostVolume,
    place: &'a Path,
    bar: &'a ProgressBar,
    inodes: HashMap<Vec<u8>, InodeNumber>,
    buffer: Vec<u8>,
}

impl Filler<'_> {
    fn failure(&self, error: Error, path: &[u8]) -> Failure {
        let mut failure = Failure::core(
            error,
            format!("{}:/{}", self.place.display(), String::from_utf8_lossy(path)),
        );
        if error == Error::NoSpace {
            failure.advice = "give a larger --size, or none for the least that is needed".into();
        }
        failure
    }

    fn parent<'p>(&self, path: &'p [u8]) -> Outcome<(InodeNumber, &'p [u8])> {
        let (above, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => (&path[..slash], &path[slash + 1..]),
            None => (&b""[..], path),
        };
        let parent =
            self.inodes.get(above).ok_or_else(|| self.failure(Error::NotADirectory, path))?;
        Ok((*parent, name))
    }

    fn make(&mut self, path: &[u8], entry: &Entry) -> Outcome {
        let (parent, name) = self.parent(path)?;
        let node = match &entry.node {
            Node::Directory => NewNode::Directory,
            Node::Regular { .. } => NewNode::Regular,
            Node::Symlink(target) => NewNode::Symlink(target),
            Node::Fifo => NewNode::Fifo,
            Node::Socket => NewNode::Socket,
            Node::CharDevice(number) => NewNode::CharDevice(*number),
            Node::BlockDevice(number) => NewNode::BlockDevice(*number),
            Node::Hardlink(_) => return Ok(()),
        };
        let made = self
            .volume
            .create(parent, name, node, 0o700, &Caller::default())
            .map_err(|error| self.failure(error, path))?;
        self.inodes.insert(path.to_vec(), made.inode);
        if let Node::Regular { content, size } = &entry.node {
            let origin = match content {
                crate::source::Content::Host(place) => place.clone(),
                _ => self.place.to_owned(),
            };
            let cannot = |error: io::Error| Failure::host(&error, "read", &origin);
            let mut reader = ContentReader::open(content, *size).map_err(cannot)?;
            self.write(path, made.inode, &mut reader, *size, &origin)?;
        }
        Ok(())
    }

    fn write(
        &mut self,
        path: &[u8],
        inode: InodeNumber,
        reader: &mut dyn Read,
        size: u64,
        origin: &Path,
    ) -> Outcome {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut offset = 0;
        while offset < size {
            let got = transfer::fill(reader, &mut buffer)
                .map_err(|error| Failure::host(&error, "read", origin))?;
            if got == 0 {
                return Err(Failure::new(
                    Exit::Failed,
                    format!("is shorter than it was: {offset} of {size} bytes"),
                    origin.display(),
                    "no program may change what an image is built from",
                ));
            }
            for (start, run) in transfer::data_runs(&buffer[..got]) {
                self.volume
                    .write(inode, offset + start as u64, run, false)
                    .map_err(|error| self.failure(error, path))?;
            }
            offset += got as u64;
            self.bar.inc(got as u64);
        }
        self.buffer = buffer;
        // This sets the final size if the file ends with a hole.
        let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
        self.volume.set_attributes(inode, &set).map(drop).map_err(|error| self.failure(error, path))
    }

    fn link(&mut self, path: &[u8], entry: &Entry) -> Outcome {
        let Node::Hardlink(target) = &entry.node else { return Ok(()) };
        let (parent, name) = self.parent(path)?;
        let inode = *self.inodes.get(target).ok_or_else(|| {
            Failure::new(
                Exit::Failed,
                format!(
                    "a hard link to '/{}', which is not there",
                    String::from_utf8_lossy(target)
                ),
                format!("{}:/{}", self.place.display(), String::from_utf8_lossy(path)),
                "put the target into the source as well",
            )
        })?;
        self.volume
            .link(inode, parent, name)
            .map(drop)
            .map_err(|error| self.failure(error, path))?;
        self.inodes.insert(path.to_vec(), inode);
        Ok(())
    }

    fn describe(&self, path: &[u8], entry: &Entry) -> Outcome {
        let inode = *self.inodes.get(path).ok_or_else(|| self.failure(Error::NotFound, path))?;
        let fail = |error| self.failure(error, path);
        for (name, value) in &entry.xattrs {
            self.volume.set_xattr(inode, name, value, SetXattrMode::Any).map_err(|error| {
                let mut failure = fail(error);
                failure.what =
                    format!("attribute '{}': {}", String::from_utf8_lossy(name), failure.what);
                failure
            })?;
        }
        let symlink = matches!(entry.node, Node::Symlink(_));
        let set = SetAttributes {
            permissions: (!symlink).then_some(entry.permissions),
            uid: Some(entry.uid),
            gid: Some(entry.gid),
            accessed: Some(SetTime::At(entry.modified)),
            modified: Some(SetTime::At(entry.modified)),
            ..SetAttributes::default()
        };
        self.volume.set_attributes(inode, &set).map(drop).map_err(fail)
    }
}
