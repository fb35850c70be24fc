//! Attributes of files as text and JSON: modes, owners, times.

use serde::Serialize;
use steadfast::Timestamp;
use steadfast::fs::{Attributes, FileKind};
use steadfast_host::civil_from_days;

/// Attributes in JSON. Sizes are in bytes, times are RFC 3339 in UTC with nanoseconds.
#[derive(Debug, Serialize)]
pub struct JsonStat {
    kind: &'static str,
    inode: u64,
    mode: String,
    links: u32,
    uid: u32,
    gid: u32,
    size: u64,
    allocated: u64,
    modified: String,
    changed: String,
    accessed: String,
    created: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<String>,
}

impl JsonStat {
    /// The attributes for JSON.
    pub fn new(attributes: &Attributes) -> JsonStat {
        JsonStat {
            kind: kind_name(attributes.kind),
            inode: attributes.inode.0,
            mode: format!("{:04o}", attributes.permissions),
            links: attributes.links,
            uid: attributes.uid,
            gid: attributes.gid,
            size: attributes.size,
            allocated: attributes.allocated,
            modified: time(attributes.modified, true),
            changed: time(attributes.changed, true),
            accessed: time(attributes.accessed, true),
            created: time(attributes.created, true),
            device: is_device(attributes).then(|| device(attributes.device)),
        }
    }
}

/// The attributes as a line: `-rw-r--r--  1 1000 1000     4096 2026-01-31 12:00:00`.
pub fn long(attributes: &Attributes) -> String {
    let size =
        if is_device(attributes) { device(attributes.device) } else { attributes.size.to_string() };
    format!(
        "{} {:>3} {:>5} {:>5} {size:>12} {}",
        mode_text(attributes),
        attributes.links,
        attributes.uid,
        attributes.gid,
        time(attributes.modified, false),
    )
}

fn is_device(attributes: &Attributes) -> bool {
    matches!(attributes.kind, FileKind::CharDevice | FileKind::BlockDevice)
}

/// Decodes major and minor from the kernel's 32-bit encoding.
fn device(number: u32) -> String {
    let major = (number & 0xf_ff00) >> 8;
    let minor = (number & 0xff) | ((number >> 12) & 0xf_ff00);
    format!("{major}:{minor}")
}

fn kind_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Fifo => "fifo",
        FileKind::CharDevice => "character-device",
        FileKind::Directory => "directory",
        FileKind::BlockDevice => "block-device",
        FileKind::Regular => "file",
        FileKind::Symlink => "symlink",
        FileKind::Socket => "socket",
    }
}

fn mode_text(attributes: &Attributes) -> String {
    let kind = match attributes.kind {
        FileKind::Fifo => 'p',
        FileKind::CharDevice => 'c',
        FileKind::Directory => 'd',
        FileKind::BlockDevice => 'b',
        FileKind::Regular => '-',
        FileKind::Symlink => 'l',
        FileKind::Socket => 's',
    };
    let bits = attributes.permissions;
    let mut text = String::with_capacity(10);
    text.push(kind);
    // (shift, special bit, its letter)
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let executable = bits >> shift & 1 != 0;
        text.push(if bits >> shift & 4 != 0 { 'r' } else { '-' });
        text.push(if bits >> shift & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & special != 0, executable) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// A time in UTC: `2026-01-31 12:00:00`, or RFC 3339 with nanoseconds.
pub fn time(time: Timestamp, rfc3339: bool) -> String {
    let (days, second) = (time.seconds.div_euclid(86_400), time.seconds.rem_euclid(86_400));
    let (year, month, day) = civil_from_days(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    if rfc3339 {
        let nanoseconds = time.nanoseconds;
        return format!(
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanoseconds:09}Z"
        );
    }
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast::InodeNumber;

    fn at(seconds: i64) -> String {
        time(Timestamp { seconds, nanoseconds: 7 }, true)
    }

    #[test]
    fn times_before_and_after_everything() {
        assert_eq!(at(0), "1970-01-01T00:00:00.000000007Z");
        assert_eq!(at(-1), "1969-12-31T23:59:59.000000007Z");
        assert_eq!(at(951_827_696), "2000-02-29T12:34:56.000000007Z");
        assert_eq!(at(4_102_444_800), "2100-01-01T00:00:00.000000007Z");
        assert_eq!(at(-2_203_891_200), "1900-03-01T00:00:00.000000007Z");
        // Every value on the medium can be printed.
        at(i64::MIN);
        at(i64::MAX);
    }

    #[test]
    fn modes() {
        let mut attributes = Attributes {
            inode: InodeNumber::ROOT,
            kind: FileKind::Directory,
            permissions: 0o1777,
            links: 2,
            uid: 0,
            gid: 0,
            device: (8 << 8) | 17,
            size: 0,
            allocated: 0,
            shrinking: false,
            block_size: 4096,
            accessed: Timestamp::default(),
            modified: Timestamp::default(),
            changed: Timestamp::default(),
            created: Timestamp::default(),
            flags: steadfast::fs::FileFlags::NONE,
        };
        assert_eq!(mode_text(&attributes), "drwxrwxrwt");
        (attributes.kind, attributes.permissions) = (FileKind::Regular, 0o6744);
        assert_eq!(mode_text(&attributes), "-rwsr-Sr--");
        assert_eq!(device(attributes.device), "8:17");
    }
}
