//! A volume in a part of an image file or a disk: `disk.img?offset=1M&size=512M`.
//!
//! Offset and size are [sizes](crate::size); without a size the volume may use all that is after
//! the offset. A file whose name is the whole text is that file, whatever is in its name.
//!
//! [`split`] gives the path of the file and lets bad values pass. [`find`] refuses them; every
//! volume is opened through it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::failure::{Exit, Failure, Outcome};
use crate::size;

/// A file and the part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file or block device.
    pub path: PathBuf,
    /// Where the part begins.
    pub start: u64,
    /// Its bytes; `None`: up to the end.
    pub length: Option<u64>,
}

/// The part that is meant; `None` where `path` names a whole file, device or array.
///
/// # Errors
/// Something after the `?` that is no offset and no size.
pub fn find(path: &Path) -> Outcome<Option<Place>> {
    let Some((file, text)) = divide(path) else { return Ok(None) };
    let wrong = |what: String| {
        let advice =
            "write IMAGE?offset=SIZE or IMAGE?offset=SIZE&size=SIZE, such as disk.img?offset=1M";
        Failure::new(Exit::Usage, what, path.display(), advice)
    };
    let (mut start, mut length) = (None, None);
    for parameter in text.split('&') {
        let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let field = match key {
            "offset" => &mut start,
            "size" => &mut length,
            _ => return Err(wrong(format!("'{key}' is neither offset nor size"))),
        };
        let bytes = size::parse(value).map_err(|what| wrong(format!("{key}: {what}")))?;
        if field.replace(bytes).is_some() {
            return Err(wrong(format!("{key} is given twice")));
        }
    }
    let (start, length) = (start.unwrap_or(0), length);
    if length == Some(0) {
        return Err(wrong("size: nothing fits 0 bytes".into()));
    }
    if start.checked_add(length.unwrap_or(0)).is_none_or(|end| end > i64::MAX as u64) {
        return Err(wrong("offset and size are beyond the end of every file".into()));
    }
    Ok(Some(Place { path: file, start, length }))
}

/// The path of the file or device, without the part of it that is meant.
pub fn split(path: &Path) -> PathBuf {
    divide(path).map_or_else(|| path.to_owned(), |(file, _)| file)
}

/// Whether a part is meant, well written or not.
pub fn is_part(path: &Path) -> bool {
    divide(path).is_some()
}

/// The same part of the file that `resolve` makes of the path, in the one form that mounts have.
pub fn with_path(
    path: &Path,
    resolve: impl FnOnce(&Path) -> std::io::Result<PathBuf>,
) -> std::io::Result<PathBuf> {
    let Some((file, text)) = divide(path) else { return resolve(path) };
    let file = resolve(&file)?;
    let parameters = match find(path) {
        Ok(Some(Place { start, length: None, .. })) => format!("offset={start}"),
        Ok(Some(Place { start, length: Some(length), .. })) => {
            format!("offset={start}&size={length}")
        }
        _ => text,
    };
    let mut whole = file.into_os_string();
    whole.push("?");
    whole.push(parameters);
    Ok(whole.into())
}

/// Whether both name the same volume: one file and one offset. Of two sizes the volume has one.
pub fn is_same(a: &Path, b: &Path) -> bool {
    if a == b {
        return true;
    }
    match (find(a), find(b)) {
        (Ok(Some(a)), Ok(Some(b))) => a.path == b.path && a.start == b.start,
        _ => false,
    }
}

/// The file, and what is after the last `?`, where that has a parameter in it.
fn divide(path: &Path) -> Option<(PathBuf, String)> {
    let bytes = path.as_os_str().as_bytes();
    let at = bytes.iter().rposition(|byte| *byte == b'?')?;
    let text = std::str::from_utf8(&bytes[at + 1..]).ok()?;
    let is_parameter = text.contains('=') && !text.contains('/');
    if !is_parameter || crate::network::is_address(path) || fs::symlink_metadata(path).is_ok() {
        return None;
    }
    let file: OsString = OsString::from_vec(bytes[..at].to_vec());
    (!file.is_empty()).then(|| (PathBuf::from(file), text.to_owned()))
}

/// The name of the file for people, for advice that wants a short one.
pub fn file_name(path: &Path) -> OsString {
    split(path).file_name().unwrap_or(OsStr::new("IMAGE")).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(path: &str, start: u64, length: Option<u64>) -> Option<Place> {
        Some(Place { path: path.into(), start, length })
    }

    #[test]
    fn parts_are_told_from_names() {
        let find = |text: &str| find(Path::new(text)).unwrap();
        assert_eq!(find("d.img?offset=1M"), place("d.img", 1 << 20, None));
        assert_eq!(find("/d?x.img?offset=512&size=1G"), place("/d?x.img", 512, Some(1 << 30)));
        assert_eq!(find("d.img?size=1M"), place("d.img", 0, Some(1 << 20)));
        for name in
            ["d.img", "d?.img", "what?", "?offset=1M", "remote://a,b?policy=parity", "a?b=c/d"]
        {
            assert_eq!(find(name), None, "{name}");
        }
        let directory = tempfile::tempdir().unwrap();
        let odd = directory.path().join("d.img?offset=1M");
        fs::write(&odd, "").unwrap();
        assert_eq!(super::find(&odd).unwrap(), None);
    }

    #[test]
    fn bad_values_are_refused() {
        for text in [
            "d?offset=",
            "d?offset=x",
            "d?offset=-1",
            "d?ofset=1M",
            "d?offset=1M&offset=2M",
            "d?offset=1M&size=0",
            "d?offset=1M&",
            "d?offset=16E",
            "d?offset=1&size=8E",
            "d?a=b",
        ] {
            let failure = find(Path::new(text)).unwrap_err();
            assert_eq!(failure.exit, Exit::Usage, "{text}");
            assert!(failure.line().starts_with("steadfast: ") && failure.place == text);
        }
    }

    #[test]
    fn one_form_for_the_mount_table() {
        let resolve = |text: &str| {
            with_path(Path::new(text), |file| Ok(Path::new("/there").join(file))).unwrap()
        };
        assert_eq!(resolve("d.img?offset=1M"), Path::new("/there/d.img?offset=1048576"));
        assert_eq!(
            resolve("d.img?size=1K&offset=4K"),
            Path::new("/there/d.img?offset=4096&size=1024")
        );
        assert!(is_same(Path::new("/d?offset=1M"), Path::new("/d?offset=1024K&size=2M")));
        assert!(!is_same(Path::new("/d?offset=1M"), Path::new("/d?offset=2M")));
        assert!(!is_same(Path::new("/d?offset=0"), Path::new("/d")));
    }
}
