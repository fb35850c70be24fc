//! `mount -o remount`: makes a mount read-only, or writable again, while it is in use.
//!
//! The kernel applies the change for all users of the mount. The daemon keeps the volume open for
//! writing. When a mount has become read-only, earlier writes are durable if the mask has
//! `unmount`, as at the end of the mount. Options other than `ro`, `rw` and those of the kernel
//! stay unchanged, because mount(8) repeats those of fstab.

use std::path::Path;

use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount_remount};
use steadfast::{Error, TransactionMask};

use crate::failure::{Exit, Failure, Outcome};
use crate::live::Live;
use crate::mount_options::MountSettings;
use crate::mounts;

/// Mount flags as the kernel reports them, and as a remount sets them.
const KEPT: [(StatVfsMountFlags, MountFlags); 7] = [
    (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
    (StatVfsMountFlags::NODEV, MountFlags::NODEV),
    (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
    (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
    (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
    (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    (StatVfsMountFlags::SYNCHRONOUS, MountFlags::SYNCHRONOUS),
];

/// Whether these option lists request a remount.
pub fn is_asked(options: &[String]) -> bool {
    options.iter().flat_map(|list| list.split(',')).any(|option| option == "remount")
}

/// Changes the mount on `directory`.
///
/// # Errors
/// Nothing is mounted there, files are open for writing, the volume cannot be written to, or the
/// kernel refuses.
pub fn remount(directory: &Path, options: &[String]) -> Outcome {
    let (settings, writable) = read(directory, options)?;
    let mount = mounts::at(directory)
        .map_err(|error| Failure::host(&error, "read", Path::new("/proc/self/mountinfo")))?;
    let Some(mount) = mount else {
        return Err(Failure::new(
            Exit::Failed,
            "no Steadfast volume is mounted here",
            directory.display(),
            "leave 'remount' out to mount one",
        ));
    };
    let live = Live::open(&mount.directory)?;
    let info = live.info()?;
    let read_only = writable.map_or(mount.read_only, |writable| !writable);
    if !read_only && info.read_only {
        return Err(Failure::new(
            Exit::CannotMount,
            "the volume was opened read-only",
            directory.display(),
            "unmount it, and mount it again without 'ro'",
        ));
    }
    if let Some(why) = info.poisoned.filter(|_| !read_only) {
        return Err(Failure::core(Error::Poisoned(why), directory.display()));
    }
    let kernel = statvfs(&mount.directory)
        .map_err(|errno| Failure::host(&errno.into(), "look at", directory))?
        .f_flag;
    let flags = flags(kernel, &settings.kernel)
        | if read_only { MountFlags::RDONLY } else { MountFlags::empty() }
        | if mount.dirsync { MountFlags::DIRSYNC } else { MountFlags::empty() };
    let last_point =
        || match read_only && !info.read_only && info.mask.contains(TransactionMask::UNMOUNT) {
            true => live.transact(),
            false => Ok(()),
        };
    // The first point is made while a failure still leaves the mount unchanged; the second covers
    // the last write.
    last_point()?;
    mount_remount(&mount.directory, flags, c"").map_err(|errno| match errno {
        Errno::BUSY => Failure::new(
            Exit::Busy,
            "files are open for writing",
            directory.display(),
            format!(
                "close them and try again; 'fuser -vm {}' shows who has them",
                directory.display()
            ),
        ),
        errno => Failure::host(&errno.into(), "remount", directory),
    })?;
    last_point()
}

/// Parses the options. The second value says whether the mount is to be writable, if the options
/// say so.
fn read(directory: &Path, options: &[String]) -> Outcome<(MountSettings, Option<bool>)> {
    let mut settings = MountSettings::default();
    let mut writable = None;
    for option in
        options.iter().flat_map(|list| list.split(',')).filter(|option| *option != "remount")
    {
        settings.apply(option).map_err(|line| {
            Failure::new(Exit::Usage, line, directory.display(), "see 'steadfast mount --help'")
        })?;
        match option {
            "ro" => writable = Some(false),
            "rw" => writable = Some(true),
            _ => {}
        }
    }
    Ok((settings, writable))
}

/// The current flags of the mount, changed as requested.
fn flags(kernel: StatVfsMountFlags, wanted: &[String]) -> MountFlags {
    let mut flags = MountFlags::empty();
    for (_, flag) in KEPT.iter().filter(|(told, _)| kernel.contains(*told)) {
        flags |= *flag;
    }
    for option in wanted {
        let (name, on) = match option.strip_prefix("no") {
            Some(name) => (name, true),
            None => (option.as_str(), false),
        };
        let flag = match name {
            "suid" => MountFlags::NOSUID,
            "dev" => MountFlags::NODEV,
            "exec" => MountFlags::NOEXEC,
            _ => continue,
        };
        flags.set(flag, on);
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_stay_unless_others_are_asked_for() {
        let now =
            StatVfsMountFlags::NOSUID | StatVfsMountFlags::NODEV | StatVfsMountFlags::RELATIME;
        let wanted = ["suid".to_owned(), "noexec".to_owned()];
        assert_eq!(
            flags(now, &wanted),
            MountFlags::NODEV | MountFlags::RELATIME | MountFlags::NOEXEC
        );
    }

    #[test]
    fn options_are_read_as_for_a_mount() {
        let options = |list: &str| read(Path::new("/mnt"), &[list.to_owned()]);
        assert_eq!(options("remount,ro,noatime,timer=1s").unwrap().1, Some(false));
        assert_eq!(options("rw,remount").unwrap().1, Some(true));
        assert_eq!(options("remount,nosuid").unwrap().1, None);
        assert!(options("remount,ro,rw").is_err() && options("remount,bogus").is_err());
        assert!(is_asked(&["noatime,remount".to_owned()]) && !is_asked(&["x-remount".to_owned()]));
    }
}
