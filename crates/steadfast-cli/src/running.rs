//! The options of a running mount, as the command line of its daemon gives them.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;

use crate::daemon;
use crate::mount_options::{self, MountSettings};

/// The settings of the mount that this process serves. `None`: its command line cannot be read, is
/// not that of a mount, or is that of a root file system.
pub fn options_of(pid: u32) -> Option<MountSettings> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words: Vec<OsString> = line
        .strip_suffix(b"\0")?
        .split(|byte| *byte == 0)
        .map(|word| OsString::from_vec(word.to_vec()))
        .collect();
    settings(&words)
}

fn settings(words: &[OsString]) -> Option<MountSettings> {
    let words: Vec<&str> = words.iter().map(|word| word.to_str()).collect::<Option<_>>()?;
    let (name, first) = (words.first()?, words.get(1)?);
    // `steadfast mount …`, or `steadfast SOURCE DIR …` as mount(8) calls it.
    if *name == daemon::NAME_OF_ROOT || *first != "mount" && !first.contains('/') {
        return None;
    }
    let mut settings = MountSettings::default();
    let mut cache = None;
    let mut rest = words.into_iter().skip(1).take_while(|word| *word != "--");
    while let Some(word) = rest.next() {
        let (option, given) = match word.split_once('=') {
            Some((option, value)) if option.starts_with("--") => (option, Some(value)),
            _ if word.starts_with("-o") && word.len() > 2 => ("-o", word.get(2..)),
            _ => (word, None),
        };
        if !["-o", "--cache", "--snapshots", "--log"].contains(&option) {
            continue;
        }
        let value = given.or_else(|| rest.next())?;
        match option {
            "-o" => settings.apply(value).ok()?,
            "--cache" => cache = Some(mount_options::cache_size(value).ok()?),
            "--snapshots" => {
                settings.apply(&format!("snapshots={}", value.replace(',', ":"))).ok()?;
            }
            _ => {}
        }
    }
    settings.cache_size = cache.unwrap_or(settings.cache_size);
    (!settings.root).then_some(settings)
}

/// The first of these options that a remount would have to change, and cannot. `dirsync`: whether
/// the mount has that option.
pub fn first_other<'a>(
    own: &MountSettings,
    wanted: impl Iterator<Item = &'a str>,
    dirsync: bool,
) -> Option<&'a str> {
    wanted.into_iter().find(|option| *option == "dirsync" && !dirsync || own.would_change(option))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn of(line: &str) -> Option<MountSettings> {
        settings(&line.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn the_command_line_of_a_daemon_is_understood() {
        let own =
            of("steadfast mount --serve -o ro,threads=3 -o mask=manual --cache 2000000 -- /i /d");
        let own = own.unwrap();
        assert_eq!((own.threads, own.cache_size), (Some(3), 2_000_000));
        assert_eq!(of("steadfast /dev/sda /mnt -f -o threads=5").unwrap().threads, Some(5));
        assert!(of("steadfast mount -f --snapshots daily=3 i d").unwrap().snapshots.is_some());
        for line in ["@steadfast mount --serve -- /i /", "steadfast info i", "cat x"] {
            assert!(of(line).is_none(), "{line}");
        }
        assert!(of("steadfast mount -o x-initrd.mount i d").is_none());
    }

    #[test]
    fn what_is_in_force_may_be_repeated() {
        let own = of("steadfast mount -o threads=3,cache=64MiB,mask=manual i d").unwrap();
        let own = own.on(Path::new("no.img"), 1 << 30);
        let other = |list: &'static str| first_other(&own, list.split(','), false);
        assert_eq!(
            other("remount,ro,noatime,rw,nosuid,sync,x-y=z,threads=3,cache=64M,mask=manual"),
            None
        );
        // What is in force without an option.
        assert_eq!(other("remount,writeback,io_uring=auto,nodelegations"), None);
        for option in [
            "threads=4",
            "cache=32M",
            "mask=default",
            "timer=1s",
            "writethrough",
            "direct",
            "allow_other",
            "synchronous",
            "metrics=127.0.0.1:9000",
            "snapshots=daily=7",
            "io_uring=off",
            "dirsync",
        ] {
            assert_eq!(other(option), Some(option));
        }
        assert_eq!(first_other(&own, ["dirsync"].into_iter(), true), None);
    }
}
