//! A manifest with one entry per line. It describes a whole image, or what the host's file system
//! cannot hold without root (owners, devices, set-id bits).
//!
//! ```text
//! # path          type  mode  uid  gid  attributes
//! /               d     0755  0    0
//! /etc/motd       f     0644  0    0    from=motd.txt mtime=1700000000
//! /dev/console    c     0600  0    5    device=5:1
//! /bin/sh         l     0777  0    0    target=busybox
//! /bin/ls         h     -     -    -    target=/bin/busybox
//! /usr/bin/ping   =     4755  0    0    xattr.user.note=hello%20world
//! ```
//!
//! Types: d directory, f file, l symbolic link, h hard link, p FIFO, s socket, c and b devices, =
//! an existing entry that only changes.
//!
//! `-` for mode, uid or gid keeps the existing value. For a new entry it means mode 0644 (0755 for
//! directories) and owner 0.
//!
//! Spaces and `%` in a word are written `%20` and `%25`; any other byte can be written that way.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use steadfast::Timestamp;

use super::{Content, Entry, Node, SourceTree, device_number, normal_path};
use crate::failure::{Exit, Failure, Outcome};
use crate::size;

/// Adds the entries of the manifest `path` in their order. Paths of files in it are relative to its
/// directory.
///
/// # Errors
/// The first wrong line, with its number.
pub fn add_manifest(source: &mut SourceTree, path: &Path) -> Outcome {
    let text = fs::read_to_string(path).map_err(|error| Failure::host(&error, "read", path))?;
    let base = path.parent().unwrap_or(Path::new(""));
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        add_line(source, line, base, path).map_err(|what| {
            Failure::new(
                Exit::Failed,
                what,
                format!("{} line {}", path.display(), number + 1),
                "write: path, type, mode, uid, gid, then attributes such as device=5:1",
            )
        })?;
    }
    Ok(())
}

fn add_line(source: &mut SourceTree, line: &str, base: &Path, place: &Path) -> Result<(), String> {
    let mut words = line.split_whitespace();
    let mut word = |what: &str| words.next().ok_or(format!("there is no {what}"));
    let path = normal_path(&decode(word("path")?)?, place).map_err(|failure| failure.what)?;
    let kind = word("type")?;
    let (mode, uid, gid) = (word("mode")?, word("uid")?, word("gid")?);
    let mut attributes: BTreeMap<&str, Vec<u8>> = BTreeMap::new();
    for attribute in words {
        let (name, value) =
            attribute.split_once('=').ok_or_else(|| format!("'{attribute}' is not name=value"))?;
        attributes.insert(name, decode(value)?);
    }
    let existing = source.entries.get(&path).cloned();
    let mut entry = match (kind, existing) {
        ("=", None) => {
            return Err(format!("'/{}' is not there yet", String::from_utf8_lossy(&path)));
        }
        ("=", Some(existing)) => existing,
        (_, existing) => {
            let node = node(kind, &mut attributes, base, place)?;
            let permissions = if matches!(node, Node::Directory) { 0o755 } else { 0o644 };
            let (uid, gid, permissions) = existing.map_or((0, 0, permissions), |existing| {
                (existing.uid, existing.gid, existing.permissions)
            });
            Entry { node, permissions, uid, gid, ..Entry::directory() }
        }
    };
    if mode != "-" {
        let parsed = u32::from_str_radix(mode, 8).ok().filter(|mode| *mode <= 0o7777);
        entry.permissions = parsed.ok_or_else(|| format!("'{mode}' is not an octal mode"))?;
    }
    for (text, id) in [(uid, &mut entry.uid), (gid, &mut entry.gid)] {
        if text != "-" {
            *id = text
                .parse()
                .map_err(|_| format!("'{text}' is not a number of an owner or group"))?;
        }
    }
    for (name, value) in attributes {
        if let Some(name) = name.strip_prefix("xattr.") {
            entry.xattrs.insert(name.as_bytes().to_vec(), value);
        } else if name == "mtime" {
            let text = String::from_utf8_lossy(&value);
            let seconds = text.parse().map_err(|_| format!("'{text}' is not a time in seconds"))?;
            entry.modified = Timestamp { seconds, nanoseconds: 0 };
        } else {
            return Err(format!("'{name}' is no attribute of type {kind}"));
        }
    }
    source
        .insert(path, entry)
        .map_err(|part| format!("'/{}' is no directory", String::from_utf8_lossy(&part)))
}

fn node(
    kind: &str,
    attributes: &mut BTreeMap<&str, Vec<u8>>,
    base: &Path,
    place: &Path,
) -> Result<Node, String> {
    let mut target = || attributes.remove("target").ok_or("there is no target=".to_owned());
    Ok(match kind {
        "d" => Node::Directory,
        "p" => Node::Fifo,
        "s" => Node::Socket,
        "l" => Node::Symlink(target()?),
        "h" => Node::Hardlink(normal_path(&target()?, place).map_err(|failure| failure.what)?),
        "c" => Node::CharDevice(device(attributes)?),
        "b" => Node::BlockDevice(device(attributes)?),
        "f" => regular(attributes, base)?,
        _ => return Err(format!("'{kind}' is no type: use d, f, l, h, p, s, c, b or =")),
    })
}

fn regular(attributes: &mut BTreeMap<&str, Vec<u8>>, base: &Path) -> Result<Node, String> {
    use std::os::unix::ffi::OsStringExt;
    if let Some(from) = attributes.remove("from") {
        let path = base.join(std::ffi::OsString::from_vec(from));
        let metadata = fs::metadata(&path).map_err(|error| {
            format!("cannot read {}: {}", path.display(), crate::failure::text_os(&error))
        })?;
        if !metadata.is_file() {
            return Err(format!("{} is not a file", path.display()));
        }
        return Ok(Node::Regular { size: metadata.len(), content: Content::Host(path) });
    }
    if let Some(text) = attributes.remove("text") {
        return Ok(Node::Regular { size: text.len() as u64, content: Content::Bytes(text) });
    }
    let size = match attributes.remove("size") {
        Some(text) => size::parse(&String::from_utf8_lossy(&text))?,
        None => 0,
    };
    Ok(Node::Regular { size, content: Content::Hole })
}

fn device(attributes: &mut BTreeMap<&str, Vec<u8>>) -> Result<u32, String> {
    let text = attributes.remove("device").ok_or("there is no device=")?;
    let text = String::from_utf8_lossy(&text);
    let parse = || {
        let (major, minor) = text.split_once(':')?;
        let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
        (major < 1 << 12 && minor < 1 << 20).then(|| device_number(major, minor))
    };
    parse().ok_or_else(|| format!("'{text}' is not a device: write MAJOR:MINOR"))
}

/// Decodes `%20` and similar.
fn decode(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = rest.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(code.ok_or_else(|| format!("'{text}': write % as %25"))?);
        rest = &rest[2..];
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(source: &mut SourceTree, line: &str) -> Result<(), String> {
        add_line(source, line, Path::new("/"), Path::new("manifest"))
    }

    #[test]
    fn lines() {
        let mut source = SourceTree::default();
        add(&mut source, "/a%20b/c f 4755 1 2 text=x%0a mtime=7 xattr.user.n=v").unwrap();
        let entry = &source.entries[&b"a b/c"[..]];
        assert_eq!((entry.permissions, entry.uid, entry.gid, entry.size()), (0o4755, 1, 2, 2));
        assert_eq!(
            (entry.modified.seconds, entry.xattrs[&b"user.n"[..]].as_slice()),
            (7, &b"v"[..])
        );
        add(&mut source, "/a%20b/c = - 5 -").unwrap();
        let entry = &source.entries[&b"a b/c"[..]];
        assert_eq!((entry.permissions, entry.uid, entry.gid, entry.size()), (0o4755, 5, 2, 2));
        add(&mut source, "/dev/tty c 0666 0 5 device=5:0").unwrap();
        assert!(matches!(source.entries[&b"dev/tty"[..]].node, Node::CharDevice(0x500)));
        for bad in [
            "/x",
            "/x q 0 0 0",
            "/x f 9 0 0",
            "/x f 0644 root 0",
            "/x f 0644 0 0 nonsense",
            "/x c 0 0 0",
            "/x c 0 0 0 device=1",
            "/x l 0 0 0",
            "/x = 0 0 0",
            "/../x d - - -",
            "/x%2 d - - -",
            "/a%20b/c/d f - - -",
            "/x f - - - from=/no/such/file",
            "/x d - - - target=y",
        ] {
            assert!(add(&mut source, bad).is_err(), "{bad}");
        }
    }
}
