//! A tar archive, plain or compressed with gzip, zstd or xz.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use steadfast::Timestamp;
use tar::{Archive, EntryType};

use super::{Content, Entry, Node, SourceTree, device_number, normal_path};
use crate::failure::{Exit, Failure, Outcome, text_os};

/// Prefix of the names of extended attributes in PAX headers.
const PAX_XATTR: &str = "SCHILY.xattr.";

/// Adds the entries of the archive `path`; `-` is standard input. If an entry occurs twice, the
/// last one counts.
///
/// # Errors
/// Those of reading, and what is wrong with the archive.
pub fn add_archive(source: &mut SourceTree, path: &Path) -> Outcome {
    let file = Arc::new(open_plain(path)?);
    let bad = |error: io::Error| {
        Failure::new(
            Exit::Failed,
            format!("not a readable tar archive: {}", text_os(&error)),
            path.display(),
            "give a whole archive, plain or compressed with gzip, zstd or xz",
        )
    };
    let mut archive = Archive::new(&*file);
    for entry in archive.entries().map_err(bad)? {
        let mut entry = entry.map_err(bad)?;
        let name = normal_path(&entry.path_bytes(), path)?;
        let Some(added) = read_entry(&mut entry, &file, path).map_err(bad)?.transpose()? else {
            continue;
        };
        source.insert(name.clone(), added).map_err(|part| {
            Failure::new(
                Exit::Failed,
                format!("'{}' is in '{}', which is no directory", lossy(&name), lossy(&part)),
                path.display(),
                "make the archive anew",
            )
        })?;
    }
    Ok(())
}

/// Reads one entry; `None` if it is not a file system object (a volume label).
fn read_entry(
    entry: &mut tar::Entry<'_, &File>,
    file: &Arc<File>,
    place: &Path,
) -> io::Result<Option<Outcome<Entry>>> {
    let mut xattrs = BTreeMap::new();
    let mut modified = Timestamp { seconds: entry.header().mtime()? as i64, nanoseconds: 0 };
    if let Some(extensions) = entry.pax_extensions()? {
        for extension in extensions {
            let extension = extension?;
            let Ok(key) = extension.key() else { continue };
            if let Some(name) = key.strip_prefix(PAX_XATTR) {
                xattrs.insert(name.as_bytes().to_vec(), extension.value_bytes().to_vec());
            } else if key == "mtime"
                && let Some(time) = extension.value().ok().and_then(parse_time)
            {
                modified = time;
            }
        }
    }
    let header = entry.header();
    let link = entry.link_name_bytes().map(|name| name.into_owned()).unwrap_or_default();
    let device = || -> io::Result<u32> {
        Ok(device_number(header.device_major()?.unwrap_or(0), header.device_minor()?.unwrap_or(0)))
    };
    let node = match header.entry_type() {
        EntryType::Directory => Node::Directory,
        EntryType::Symlink => Node::Symlink(link),
        EntryType::Link => match normal_path(&link, place) {
            Ok(target) => Node::Hardlink(target),
            Err(failure) => return Ok(Some(Err(failure))),
        },
        EntryType::Fifo => Node::Fifo,
        EntryType::Char => Node::CharDevice(device()?),
        EntryType::Block => Node::BlockDevice(device()?),
        EntryType::GNUSparse => {
            let size = entry.size();
            let spool = spool(entry)?;
            Node::Regular { content: Content::Part { file: Arc::new(spool), offset: 0 }, size }
        }
        EntryType::Regular | EntryType::Continuous => Node::Regular {
            content: Content::Part { file: file.clone(), offset: entry.raw_file_position() },
            size: entry.size(),
        },
        _ => return Ok(None),
    };
    let header = entry.header();
    let id = |number: u64| {
        u32::try_from(number).map_err(|_| io::Error::other("an owner is out of range"))
    };
    let added = Entry {
        node,
        permissions: header.mode()? & 0o7777,
        uid: id(header.uid()?)?,
        gid: id(header.gid()?)?,
        modified,
        xattrs,
    };
    Ok(Some(Ok(added)))
}

/// Parses `1700000000.25`; negative values are allowed.
fn parse_time(text: &str) -> Option<Timestamp> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let nanoseconds: u32 = digits.parse().ok()?;
    match whole.starts_with('-') && nanoseconds > 0 {
        true => Some(Timestamp {
            seconds: seconds.checked_sub(1)?,
            nanoseconds: 1_000_000_000 - nanoseconds,
        }),
        false => Some(Timestamp { seconds, nanoseconds }),
    }
}

/// Opens the archive as a seekable file. A plain file is used directly; everything else is unpacked
/// into a file without a name.
fn open_plain(path: &Path) -> Outcome<File> {
    let cannot = |error: io::Error| Failure::host(&error, "read", path);
    let mut file = match path.as_os_str() == "-" {
        true => spool(&mut io::stdin().lock()).map_err(cannot)?,
        false => File::open(path).map_err(cannot)?,
    };
    if file.metadata().map_err(cannot)?.is_dir() {
        return Err(Failure::new(
            Exit::Usage,
            "is a directory",
            path.display(),
            "give it without --tar",
        ));
    }
    let mut magic = Vec::new();
    (&mut file).take(6).read_to_end(&mut magic).map_err(cannot)?;
    if file.seek(SeekFrom::Start(0)).is_err() {
        // The path may name a pipe, which cannot be rewound.
        let rest = (&magic[..]).chain(&mut file);
        let mut spooled = spool(&mut { rest }).map_err(cannot)?;
        spooled.seek(SeekFrom::Start(0)).map_err(cannot)?;
        file = spooled;
    }
    let reader = BufReader::new(&file);
    let unpacked = match magic.as_slice() {
        [0x1f, 0x8b, ..] => spool(&mut flate2::bufread::MultiGzDecoder::new(reader)),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => ruzstd::decoding::StreamingDecoder::new(reader)
            .map_err(io::Error::other)
            .and_then(|mut decoder| spool(&mut decoder)),
        [0xfd, b'7', b'z', b'X', b'Z', 0] => unpack_xz(reader),
        _ => return Ok(file),
    };
    unpacked.map_err(|error| {
        Failure::new(
            Exit::Failed,
            format!("cannot unpack: {}", text_os(&error)),
            path.display(),
            "give a whole archive, or unpack it first and give it plain",
        )
    })
}

fn unpack_xz(mut reader: BufReader<&File>) -> io::Result<File> {
    let mut file = tempfile::tempfile()?;
    {
        let mut writer = io::BufWriter::new(&mut file);
        lzma_rs::xz_decompress(&mut reader, &mut writer)
            .map_err(|error| io::Error::other(format!("{error:?}")))?;
        writer.flush()?;
    }
    file.seek(SeekFrom::Start(0))?;
    Ok(file)
}

/// Copies everything from `reader` into a file without a name, and rewinds that file.
fn spool(reader: &mut dyn Read) -> io::Result<File> {
    let mut file = tempfile::tempfile()?;
    io::copy(reader, &mut file)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file)
}

fn lossy(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let time = |seconds, nanoseconds| Some(Timestamp { seconds, nanoseconds });
        assert_eq!(parse_time("17"), time(17, 0));
        assert_eq!(parse_time("17.25"), time(17, 250_000_000));
        assert_eq!(parse_time("-1.75"), time(-2, 250_000_000));
        assert_eq!(parse_time("x"), None);
    }
}
