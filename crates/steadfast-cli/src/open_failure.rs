//! The failures to open an image, a device or flash, with advice for each.

use std::io;
use std::path::Path;

use rustix::io::Errno;
use steadfast_flash::ftl::FlashError;
use steadfast_host::nand::NandOpenError;
use steadfast_host::{OpenError, Owner};

use crate::failure::{Exit, Failure, advice_permission};
use crate::mounts::mount_point_of;
use crate::{size, window};

/// The failure to open an image or a device.
pub fn of_file(error: &OpenError, path: &Path) -> Failure {
    let place = path.display();
    match error {
        OpenError::InUse { owner, .. } => {
            let what = match owner {
                Some(owner) => match &owner.name {
                    Some(name) => format!("the image is in use by process {} ({name})", owner.pid),
                    None => format!("the image is in use by process {}", owner.pid),
                },
                None => "the image is in use by another process".to_owned(),
            };
            Failure::new(Exit::Busy, what, place, in_use_advice(path))
        }
        OpenError::InUseBelow { below, owner, .. } => {
            let who = match owner {
                Some(Owner { pid, name: Some(name) }) => format!("process {pid} ({name})"),
                Some(Owner { pid, name: None }) => format!("process {pid}"),
                None => "another process".to_owned(),
            };
            let what = format!("the device shows {}, which is in use by {who}", below.display());
            Failure::new(Exit::Busy, what, place, in_use_advice(below))
        }
        OpenError::DeviceInUse(_) => {
            Failure::new(Exit::Busy, "the device is in use", place, in_use_advice(path))
        }
        OpenError::NotFound(_) => without_directory(path).unwrap_or_else(|| {
            let advice = "check the path, or make it with 'steadfast mkfs'";
            Failure::new(Exit::Failed, "no such image or device", place, advice)
        }),
        OpenError::AlreadyExists(_) => {
            Failure::new(Exit::Failed, "exists already", place, "choose another name or remove it")
        }
        OpenError::PermissionDenied { writing, .. } => Failure::new(
            Exit::NoPermission,
            if *writing { "no permission to read and write" } else { "no permission to read" },
            place,
            advice_permission(),
        ),
        OpenError::WriteProtected(_) => {
            let advice = match path.exists() {
                true => {
                    "make that writable, or copy the image to another place; 'mount -o ro' only reads"
                }
                false => "use another place",
            };
            Failure::new(Exit::Failed, "the host's file system is read-only", place, advice)
        }
        OpenError::NotAMedium { what, .. } => Failure::new(
            Exit::NotAVolume,
            format!("is a {what}"),
            place,
            "give an image file or a block device",
        ),
        OpenError::Window { what, .. } => Failure::new(
            Exit::Usage,
            what.clone(),
            place,
            "give a part that lies inside, such as IMAGE?offset=1M",
        ),
        OpenError::DirectUnsupported(_) => Failure::new(
            Exit::Failed,
            "the host's file system has no direct I/O",
            place,
            "leave -o direct out",
        ),
        OpenError::Size { source, size: bytes, .. } => {
            let mut failure =
                Failure::host(source, &format!("make a file of {}", size::human(*bytes)), path);
            // There is no error number if the size does not even fit the system call.
            if matches!(Errno::from_io_error(source), None | Some(Errno::INVAL)) {
                failure.what = format!("no file can have {}", size::human(*bytes));
                failure.exit = Exit::NoSpace;
                failure.advice = "ask for less: files have at most 2^63 - 1 bytes".into();
            }
            failure
        }
        OpenError::Io { source, action, .. } => Failure::host(source, action, path),
        // These errors begin with the path; the message line has the path in the middle.
        other => {
            let text = other.to_string();
            let prefix = format!("{place}: ");
            Failure::new(
                Exit::Failed,
                text.strip_prefix(&prefix).unwrap_or(&text),
                place,
                "see the message",
            )
        }
    }
}

/// The failure to make an image.
pub fn of_new_file(error: &OpenError, path: &Path) -> Failure {
    // The file systems of the kernel refuse a new name in one of these ways.
    let refused = match error {
        OpenError::NotFound(_) => without_directory(path).is_none(),
        OpenError::PermissionDenied { .. } => rustix::process::geteuid().is_root(),
        _ => false,
    };
    match refused {
        true => Failure::new(
            Exit::Failed,
            "its directory takes no new files",
            path.display(),
            "use another directory",
        ),
        false => of_file(error, path),
    }
}

/// The failure to write a file that gets its name when it is complete.
pub fn of_destination(error: &io::Error, path: &Path) -> Failure {
    match error.get_ref().and_then(|inside| inside.downcast_ref()) {
        Some(in_use) => of_file(in_use, path),
        None => Failure::host(error, "write", path),
    }
}

/// The failure for a path whose directory does not exist; `None` if the directory is there.
pub fn without_directory(path: &Path) -> Option<Failure> {
    let directory = directory_of(path).filter(|directory| !directory.exists())?.display();
    let advice = format!("check the path, or make the directory with 'mkdir -p {directory}'");
    Some(Failure::new(Exit::Failed, "there is no directory for it", path.display(), advice))
}

fn directory_of(path: &Path) -> Option<&Path> {
    path.parent().filter(|parent| !parent.as_os_str().is_empty())
}

fn in_use_advice(path: &Path) -> String {
    match mount_point_of(path) {
        Some(directory) => format!(
            "it is mounted on {0}: work there, or unmount it with 'steadfast umount {0}'",
            directory.display()
        ),
        None if window::is_part(path) => {
            "end what uses it; a part without a size reaches to the end of the file".into()
        }
        None => "wait for the other process or end it".into(),
    }
}

/// The failure to open a part or an image of one.
pub fn of_flash(error: NandOpenError, path: &Path) -> Failure {
    match error {
        NandOpenError::File(error) => of_file(&error, path),
        NandOpenError::UsedBy { user, .. } => Failure::new(
            Exit::Busy,
            format!("the flash is in use by {user}"),
            path.display(),
            "detach or unmount it first ('ubidetach', 'umount')",
        ),
        // These errors begin with the path, which has its own place in a failure.
        other => {
            let line = other.to_string();
            let what =
                line.strip_prefix(&format!("{}: ", path.display())).unwrap_or(&line).to_owned();
            Failure::new(
                Exit::NotAVolume,
                what,
                path.display(),
                "see 'mtdinfo' for what the device is",
            )
        }
    }
}

/// The failure of the translation layer on a part.
pub fn of_layer(error: &FlashError, path: &Path) -> Failure {
    let (exit, advice) = match error {
        FlashError::NotFormatted => (Exit::NotAVolume, "make a volume with 'steadfast mkfs'"),
        FlashError::OtherGeometry { .. } => (
            Exit::NotAVolume,
            "use the part or partition that it was made for, or make a new volume",
        ),
        FlashError::Version(_) => (Exit::NotAVolume, "use a newer program"),
        FlashError::TooSmall { .. } => {
            (Exit::NoSpace, "use a larger part, or one with fewer bad blocks")
        }
        FlashError::OobTooSmall(_) | FlashError::Geometry(_) => {
            (Exit::NotAVolume, "use another part")
        }
        _ => (Exit::Failed, "see the kernel's log; what was durable can still be read with -o ro"),
    };
    Failure::new(exit, error.to_string(), path.display(), advice)
}
