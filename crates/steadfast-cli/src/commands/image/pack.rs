//! A volume as a tar archive in PAX format, with everything that a volume stores about a file. It
//! is sorted by name: the same tree gives the same archive.

use std::collections::HashMap;
use std::io::{self, Write};

use steadfast::InodeNumber;
use steadfast::fs::{Attributes, FileKind};
use tar::{Builder, EntryType, Header};

use crate::failure::{Failure, Outcome};
use crate::image::Image;
use crate::transfer;
use crate::walk::{Step, Walk};

/// Names and link targets up to this length fit into the header itself.
const SHORT: usize = 100;

/// Writes everything below `root` (whose own entry is `./`).
///
/// # Errors
/// Those of reading the volume and of writing to `sink`, which messages call `place`.
pub fn pack(
    image: &Image,
    root: &Attributes,
    sink: impl Write,
    place: &std::path::Path,
) -> Outcome {
    let mut packer = Packer { image, builder: Builder::new(sink), seen: HashMap::new(), place };
    packer.entry(b"/", root)?;
    let mut walk = Walk::new(&image.volume, b"", *root);
    while let Some(step) = walk.step().map_err(|stop| stop.failure(image.place(walk.path())))? {
        if let Step::Entry(_, attributes) = step {
            packer.entry(walk.path(), &attributes)?;
        }
    }
    packer
        .builder
        .into_inner()
        .and_then(|mut sink| sink.flush())
        .map_err(|error| cannot(&error, place))
}

fn cannot(error: &io::Error, place: &std::path::Path) -> Failure {
    Failure::host(error, "write", place)
}

struct Packer<'a, W: Write> {
    image: &'a Image,
    builder: Builder<W>,
    /// The first name of each inode with several names.
    seen: HashMap<InodeNumber, Vec<u8>>,
    place: &'a std::path::Path,
}

impl<W: Write> Packer<'_, W> {
    fn entry(&mut self, path: &[u8], attributes: &Attributes) -> Outcome {
        let fail = |error| self.image.failure(error, path);
        let mut name = [b".".as_slice(), path].concat();
        let mut header = Header::new_ustar();
        let mut pax: Vec<(String, Vec<u8>)> = Vec::new();
        let mut link = Vec::new();
        let mut size = 0;
        let first = self.seen.get(&attributes.inode).cloned();
        let kind = match (attributes.kind, first) {
            (FileKind::Directory, _) => {
                if !name.ends_with(b"/") {
                    name.push(b'/');
                }
                EntryType::Directory
            }
            (_, Some(first)) => {
                link = first;
                EntryType::Link
            }
            (FileKind::Symlink, None) => {
                link = self.image.volume.read_link(attributes.inode).map_err(fail)?;
                EntryType::Symlink
            }
            (FileKind::Regular, None) => {
                size = attributes.size;
                EntryType::Regular
            }
            (FileKind::Fifo, None) => EntryType::Fifo,
            (FileKind::CharDevice, None) => EntryType::Char,
            (FileKind::BlockDevice, None) => EntryType::Block,
            (_, None) => {
                eprintln!(
                    "steadfast: warning: tar knows no sockets: {}: left out",
                    self.image.place(path)
                );
                return Ok(());
            }
        };
        if attributes.links > 1 && attributes.kind != FileKind::Directory {
            self.seen.entry(attributes.inode).or_insert_with(|| name.clone());
        }
        header.set_entry_type(kind);
        header.set_mode(attributes.permissions);
        header.set_uid(u64::from(attributes.uid));
        header.set_gid(u64::from(attributes.gid));
        header.set_size(size);
        let device = attributes.device;
        let (major, minor) = (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xf_ff00);
        let numbers = header.set_device_major(major).and_then(|()| header.set_device_minor(minor));
        numbers.map_err(|error| cannot(&error, self.place))?;
        let time = attributes.modified;
        header.set_mtime(u64::try_from(time.seconds).unwrap_or(0));
        if time.seconds < 0 || time.nanoseconds > 0 {
            pax.push(("mtime".into(), time_text(time.seconds, time.nanoseconds).into_bytes()));
        }
        if size >= 1 << 33 {
            pax.push(("size".into(), size.to_string().into_bytes()));
        }
        for (field, text, key) in [(0, &name, "path"), (1, &link, "linkpath")] {
            if text.len() > SHORT {
                pax.push((key.into(), text.clone()));
            }
            let bytes = &text[..text.len().min(SHORT)];
            let ustar = header.as_ustar_mut();
            if let Some(ustar) = ustar {
                let target = if field == 0 { &mut ustar.name } else { &mut ustar.linkname };
                target[..bytes.len()].copy_from_slice(bytes);
            }
        }
        if kind != EntryType::Link {
            for name in self.image.volume.list_xattrs(attributes.inode).map_err(fail)? {
                let value = self.image.volume.xattr(attributes.inode, &name).map_err(fail)?;
                pax.push((format!("SCHILY.xattr.{}", String::from_utf8_lossy(&name)), value));
            }
        }
        header.set_cksum();
        let broken = |error: io::Error| cannot(&error, self.place);
        self.builder
            .append_pax_extensions(pax.iter().map(|(key, value)| (key.as_str(), value.as_slice())))
            .map_err(broken)?;
        let output = self.builder.get_mut();
        output.write_all(header.as_bytes()).map_err(broken)?;
        if kind == EntryType::Regular {
            self.contents(path, attributes)?;
        }
        Ok(())
    }

    /// Writes the bytes of a file, holes as zeros, padded to whole records.
    fn contents(&mut self, path: &[u8], file: &Attributes) -> Outcome {
        let place = self.place;
        let output = self.builder.get_mut();
        let mut written = 0u64;
        transfer::read_all(self.image, path, file, &mut |bytes| {
            written += bytes.len() as u64;
            output.write_all(bytes).map_err(|error| cannot(&error, place))
        })?;
        let padding = vec![0; (written.next_multiple_of(512) - written) as usize];
        output.write_all(&padding).map_err(|error| cannot(&error, place))
    }
}

/// Seconds with a fraction, as PAX requires.
fn time_text(seconds: i64, nanoseconds: u32) -> String {
    if seconds < 0 && nanoseconds > 0 {
        return format!("-{}.{:09}", -(seconds + 1), 1_000_000_000 - nanoseconds);
    }
    format!("{seconds}.{nanoseconds:09}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        assert_eq!(time_text(17, 250_000_000), "17.250000000");
        assert_eq!(time_text(-2, 250_000_000), "-1.750000000");
        assert_eq!(time_text(-2, 0), "-2.000000000");
    }
}
