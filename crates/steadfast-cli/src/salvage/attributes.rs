//! Owners, permissions, times and extended attributes of the copies.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, lchown};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, XattrFlags, lsetxattr, utimensat};
use steadfast::Timestamp;
use steadfast::fs::{Attributes, FileKind};
use steadfast::salvage::Xattr;

/// Sets attributes, and records which kinds the host rejects.
pub struct Setter {
    root: bool,
    /// Notes for the user; each appears once.
    notes: BTreeSet<String>,
}

impl Setter {
    pub fn new() -> Setter {
        Setter { root: rustix::process::geteuid().is_root(), notes: BTreeSet::new() }
    }

    /// The notes for the user on attributes that could not be kept.
    pub fn notes(&self) -> impl Iterator<Item = &str> {
        self.notes.iter().map(String::as_str)
    }

    /// Adds a note for the end.
    pub fn note(&mut self, text: &str) {
        self.notes.insert(text.to_owned());
    }

    /// Gives a copy the attributes of the original, as far as the host allows.
    pub fn set(&mut self, path: &Path, attributes: &Attributes, xattrs: &[Xattr]) {
        let mut owned = false;
        if self.root {
            match lchown(path, Some(attributes.uid), Some(attributes.gid)) {
                Ok(()) => owned = true,
                Err(error) => self.note(&format!("some owners were not set: {error}")),
            }
        } else if attributes.uid != rustix::process::geteuid().as_raw() {
            self.note("owners were not set: that needs root");
        }
        for (name, value) in xattrs {
            if let Err(error) = lsetxattr(path, OsStr::from_bytes(name), value, XattrFlags::empty())
            {
                let space = name.split(|byte| *byte == b'.').next().unwrap_or_default();
                let space = String::from_utf8_lossy(space);
                self.note(&format!("some extended attributes '{space}.*' were not set: {error}"));
            }
        }
        if attributes.kind != FileKind::Symlink {
            // Without the right owner, set-user-id would give rights to the wrong user.
            let mask = if owned { 0o7777 } else { 0o1777 };
            let mode = Permissions::from_mode(attributes.permissions & mask);
            if let Err(error) = fs::set_permissions(path, mode) {
                self.note(&format!("some permissions were not set: {error}"));
            }
        }
        if let Err(error) = set_times(path, attributes) {
            self.note(&format!("some times were not set: {error}"));
        }
    }
}

fn set_times(path: &Path, attributes: &Attributes) -> io::Result<()> {
    let time =
        |time: Timestamp| Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() };
    let times = Timestamps {
        last_access: time(attributes.accessed),
        last_modification: time(attributes.modified),
    };
    Ok(utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}
