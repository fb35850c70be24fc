//! `steadfast image diff`: the differences between two images that are not mounted.

use std::cmp::Ordering;
use std::path::PathBuf;

use serde::Serialize;
use steadfast::fs::{Attributes, DirectoryEntry, FileKind};
use steadfast::{Error, InodeNumber};

use crate::failure::Outcome;
use crate::image::{Access, Image};
use crate::output::{JsonName, Output};
use crate::volume_path::join;
use crate::walk::{self, Stop, Visited};

/// Bytes compared at a time.
const CHUNK: usize = 1 << 20;

/// Show which paths differ between two images
///
/// One line per path: `+` only in B, `-` only in A, `*` in both. The last comes with what differs:
/// type, mode, owner, size, data, target, device, mtime, xattrs. Prints nothing if there is no
/// difference.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The first image
    a: PathBuf,
    /// The second image
    b: PathBuf,
    /// Ignore modification times
    #[arg(long)]
    no_times: bool,
    /// Exit with 1 if there is a difference
    #[arg(long)]
    exit_code: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A path that differs.
#[derive(Debug, Serialize)]
struct ImageDifference {
    #[serde(flatten)]
    name: JsonName,
    /// `added`, `removed` or `changed`.
    change: &'static str,
    /// What differs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    what: Vec<&'static str>,
}

/// Runs the command.
///
/// # Errors
/// Those of reading the images.
pub fn run(args: &Args) -> Outcome<u8> {
    let (a, b) = (Image::open(&args.a, Access::Read)?, Image::open(&args.b, Access::Read)?);
    let mut differ = Differ {
        a: &a,
        b: &b,
        times: !args.no_times,
        json: args.json,
        output: Output::new(),
        found: Vec::new(),
        any: false,
        buffers: [vec![0; CHUNK], vec![0; CHUNK]],
    };
    let root = |image: &Image| {
        image.volume.attributes(InodeNumber::ROOT).map_err(|error| image.failure(error, b"/"))
    };
    differ.both(b"/", &root(&a)?, &root(&b)?)?;
    if args.json {
        differ.output.json(&differ.found)?;
    }
    let any = differ.any;
    differ.output.finish()?;
    a.close()?;
    b.close()?;
    Ok(u8::from(any && args.exit_code))
}

struct Differ<'a> {
    a: &'a Image,
    b: &'a Image,
    times: bool,
    json: bool,
    output: Output,
    found: Vec<ImageDifference>,
    any: bool,
    buffers: [Vec<u8>; 2],
}

type Listing = std::vec::IntoIter<(DirectoryEntry, Attributes)>;

/// A pair of directories being compared.
struct DirectoryPair {
    path: Vec<u8>,
    a: std::iter::Peekable<Listing>,
    b: std::iter::Peekable<Listing>,
}

impl Differ<'_> {
    /// Compares everything below `path`, which exists in both images.
    fn both(&mut self, path: &[u8], a: &Attributes, b: &Attributes) -> Outcome {
        self.pair(path, a, b)?;
        if a.kind != FileKind::Directory || b.kind != FileKind::Directory {
            return Ok(());
        }
        let mut visited = [Visited::default(), Visited::default()];
        let mut levels = vec![self.level(path.to_vec(), [Some(a), Some(b)], &mut visited, 0)?];
        while let Some(level) = levels.last_mut() {
            let order = match (level.a.peek(), level.b.peek()) {
                (None, None) => {
                    levels.pop();
                    continue;
                }
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(a), Some(b)) => a.0.name.cmp(&b.0.name),
            };
            let a = if order == Ordering::Greater { None } else { level.a.next() };
            let b = if order == Ordering::Less { None } else { level.b.next() };
            let Some(name) = a.as_ref().or(b.as_ref()).map(|(entry, _)| entry.name.clone()) else {
                continue;
            };
            let path = join(&level.path, &name);
            let (a, b) = (a.map(|(_, attributes)| attributes), b.map(|(_, attributes)| attributes));
            match (&a, &b) {
                (Some(a), Some(b)) => self.pair(&path, a, b)?,
                (Some(_), None) => self.report(&path, "removed", Vec::new())?,
                _ => self.report(&path, "added", Vec::new())?,
            }
            let directory = |side: &Option<Attributes>| {
                side.filter(|attributes| attributes.kind == FileKind::Directory)
            };
            let (a, b) = (directory(&a), directory(&b));
            if a.is_some() || b.is_some() {
                let depth = levels.len();
                levels.push(self.level(path, [a.as_ref(), b.as_ref()], &mut visited, depth)?);
            }
        }
        Ok(())
    }

    fn level(
        &self,
        path: Vec<u8>,
        directories: [Option<&Attributes>; 2],
        visited: &mut [Visited; 2],
        depth: usize,
    ) -> Outcome<DirectoryPair> {
        let list = |image: &Image, directory: Option<&Attributes>, visited: &mut Visited| {
            let Some(directory) = directory else { return Ok(Vec::new().into_iter()) };
            let listed = visited
                .enter(directory.inode, depth)
                .and_then(|()| walk::list(&image.volume, directory.inode));
            listed.map_err(|stop: Stop| stop.failure(image.place(&path)))
        };
        let ([a, b], [in_a, in_b]) = (directories, visited);
        let (a, b) = (list(self.a, a, in_a)?, list(self.b, b, in_b)?);
        Ok(DirectoryPair { path, a: a.peekable(), b: b.peekable() })
    }

    /// Compares two objects of one name, without the entries below them.
    fn pair(&mut self, path: &[u8], a: &Attributes, b: &Attributes) -> Outcome {
        let mut what = Vec::new();
        let mut differs = |name, different: bool| what.extend(different.then_some(name));
        differs("type", a.kind != b.kind);
        differs("mode", a.permissions != b.permissions);
        differs("owner", (a.uid, a.gid) != (b.uid, b.gid));
        if a.kind == b.kind {
            match a.kind {
                FileKind::Regular => {
                    differs("size", a.size != b.size);
                    differs("data", self.data_differs(path, a, b)?);
                }
                FileKind::Symlink => {
                    let target = |image: &Image, link: &Attributes| {
                        image
                            .volume
                            .read_link(link.inode)
                            .map_err(|error| image.failure(error, path))
                    };
                    differs("target", target(self.a, a)? != target(self.b, b)?);
                }
                FileKind::CharDevice | FileKind::BlockDevice => {
                    differs("device", a.device != b.device)
                }
                _ => {}
            }
        }
        differs("mtime", self.times && a.modified != b.modified);
        differs("xattrs", xattrs(self.a, path, a)? != xattrs(self.b, path, b)?);
        if what.is_empty() { Ok(()) } else { self.report(path, "changed", what) }
    }

    fn data_differs(&mut self, path: &[u8], a: &Attributes, b: &Attributes) -> Outcome<bool> {
        let mut offset = 0;
        loop {
            let [left, right] = &mut self.buffers;
            let read = |image: &Image, file: &Attributes, buffer: &mut [u8]| {
                image
                    .volume
                    .read(file.inode, offset, buffer)
                    .map_err(|error| image.failure(error, path))
            };
            let (got_a, got_b) = (read(self.a, a, left)?, read(self.b, b, right)?);
            let common = got_a.min(got_b);
            if left[..common] != right[..common] {
                return Ok(true);
            }
            // If one file is longer, the sizes already differ.
            if common == 0 {
                return Ok(false);
            }
            offset += common as u64;
        }
    }

    fn report(&mut self, path: &[u8], change: &'static str, what: Vec<&'static str>) -> Outcome {
        self.any = true;
        if self.json {
            self.found.push(ImageDifference { name: JsonName::new(path), change, what });
            return Ok(());
        }
        let sign = match change {
            "added" => "+ ",
            "removed" => "- ",
            _ => "* ",
        };
        self.output.bytes(sign.as_bytes())?;
        self.output.name(path)?;
        let list = if what.is_empty() { String::new() } else { format!("  ({})", what.join(", ")) };
        self.output.line(list)
    }
}

fn xattrs(image: &Image, path: &[u8], of: &Attributes) -> Outcome<Vec<(Vec<u8>, Vec<u8>)>> {
    let read = || -> Result<_, Error> {
        let mut names = image.volume.list_xattrs(of.inode)?;
        names.sort();
        names
            .into_iter()
            .map(|name| image.volume.xattr(of.inode, &name).map(|value| (name, value)))
            .collect::<Result<Vec<_>, Error>>()
    };
    read().map_err(|error| image.failure(error, path))
}
