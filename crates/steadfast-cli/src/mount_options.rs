//! The `-o` list of a mount: the options of Steadfast, those for mount(8) itself, and those for the
//! kernel.

use std::path::Path;

use steadfast::TransactionMask;
use steadfast_fuse::IoUring;

use crate::behaviour::Behaviour;
use crate::flash_place::FlashPlace;
use crate::host::Way;
use crate::observe::address::Address;
use crate::schedule::Schedule;
use crate::{interval, mask_text, size};

/// The default amount of memory for cached nodes, bytes.
pub const CACHE_SIZE_DEFAULT: u64 = 32 << 20;

/// The least memory that a mount accepts, bytes.
const CACHE_SIZE_MIN: u64 = 1 << 20;

/// Size of a volume, bytes, from which on the kernel delays writes without being asked to. The room
/// of a smaller one is kept in units that are shorter than the writes of many programs. So such a
/// write would find out too late that the volume is full. On NAND the kernel delays them in any
/// case, because each small write would use up a page.
const WRITE_BACK_MIN: u64 = 64 << 20;

/// All options of a mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountSettings {
    /// Nothing is written.
    pub read_only: bool,
    /// It is the root file system, mounted in the initramfs: `x-initrd.mount`.
    pub root: bool,
    /// If the newest state is damaged, the volume is opened in an older one.
    pub recover: bool,
    /// Other machines can write to the medium: the check for another writer surrounds every point.
    pub shared: bool,
    /// Other users may use the mount.
    pub allow_other: bool,
    /// Access times are updated as with relatime.
    pub access_times: bool,
    /// The kernel collects small writes before it sends them. `None`: if the volume is large
    /// enough.
    pub write_back: Option<bool>,
    /// Kernels of a volume that nodes share may keep names and attributes.
    pub delegations: bool,
    /// How image I/O uses the page cache of the host.
    pub way: Way,
    /// Memory for cached nodes and bitmaps, bytes.
    pub cache_size: u64,
    /// Threads that answer the kernel; `None` lets the mount choose.
    pub threads: Option<usize>,
    /// Whether requests come over io_uring.
    pub io_uring: IoUring,
    /// When changes become durable, if the options say so; `mask` and `timer_ms` refine it.
    pub behaviour: Option<Behaviour>,
    /// Transaction mask to set, as text because it may be relative to the volume's.
    pub mask: Option<String>,
    /// Interval of the transaction timer to set, milliseconds.
    pub timer_ms: Option<u32>,
    /// Address that serves the mount's metrics.
    pub metrics: Option<Address>,
    /// Automatic snapshots.
    pub snapshots: Option<Schedule>,
    /// Name of the snapshot to mount instead of the live volume; read-only.
    pub snapshot: Option<String>,
    /// Options for the kernel: suid, dev, noexec, …
    pub kernel: Vec<String>,
    /// Options so far that exclude others, with the subject of each.
    given: Vec<(&'static str, String)>,
}

impl Default for MountSettings {
    fn default() -> Self {
        MountSettings {
            read_only: false,
            root: false,
            recover: false,
            shared: false,
            allow_other: false,
            access_times: true,
            write_back: None,
            delegations: false,
            way: Way::CachedAbove,
            cache_size: CACHE_SIZE_DEFAULT,
            threads: None,
            io_uring: IoUring::Auto,
            behaviour: None,
            mask: None,
            timer_ms: None,
            metrics: None,
            snapshots: None,
            snapshot: None,
            kernel: Vec::new(),
            given: Vec::new(),
        }
    }
}

impl MountSettings {
    /// Applies a comma-separated list of options.
    ///
    /// # Errors
    /// A message for the user that names the option: it is unknown, or contradicts an earlier one.
    pub fn apply(&mut self, list: &str) -> Result<(), String> {
        list.split(',').filter(|option| !option.is_empty()).try_for_each(|option| {
            self.note(option)?;
            self.apply_one(option)?;
            self.check_pairs()
        })
    }

    /// Finds two options of different subjects that contradict each other.
    fn check_pairs(&self) -> Result<(), String> {
        let given = |name: &str| {
            let is = |option: &&String| option.split('=').next() == Some(name);
            self.given.iter().map(|(_, option)| option).find(is)
        };
        let refuse = |a: Option<&String>, b: Option<&String>| match (a, b) {
            (Some(a), Some(b)) => {
                Err(format!("mount options '{a}' and '{b}' contradict each other"))
            }
            _ => Ok(()),
        };
        for (a, b) in PAIRS {
            refuse(given(a), given(b))?;
        }
        let Some(behaviour) = self.behaviour else { return Ok(()) };
        let (named, mask, timer) = (
            given("synchronous").or(given("background")).or(given("asynchronous")),
            given("mask"),
            given("timer"),
        );
        if let Some(text) = &self.mask {
            let of = |base| mask_text::parse(&[text], base);
            let whole = of(TransactionMask::ALL)?;
            // A relative mask refines the behaviour, and says so.
            let replaces = whole == of(TransactionMask::MANUAL)?;
            if replaces && !behaviour.keeps_its_word(whole) {
                refuse(named, mask)?;
            }
        }
        // The bound that the options name is the interval of the timer.
        if named.is_some_and(|option| option.contains('='))
            && self.timer_ms.is_some_and(|timer_ms| behaviour.timer_ms() != Some(timer_ms))
        {
            refuse(named, timer)?;
        }
        Ok(())
    }

    /// Records an option that excludes others.
    fn note(&mut self, option: &str) -> Result<(), String> {
        let Some(subject) = subject(option.split_once('=').map_or(option, |(name, _)| name)) else {
            return Ok(());
        };
        match self.given.iter().find(|(of, _)| *of == subject) {
            Some((_, earlier)) if earlier != option => {
                Err(format!("mount options '{earlier}' and '{option}' contradict each other"))
            }
            Some(_) => Ok(()),
            None => {
                self.given.push((subject, option.to_owned()));
                Ok(())
            }
        }
    }

    /// Whether the option would change something that lasts as long as the daemon.
    pub fn would_change(&self, option: &str) -> bool {
        let mut changed = self.clone();
        // What is wrong with an option is found elsewhere.
        changed.apply_one(option).is_ok() && changed.lasting() != self.lasting()
    }

    /// Whether the kernel may delay writes to a volume of `size` bytes in `image`.
    pub fn write_back_on(&self, image: &Path, size: u64) -> bool {
        self.write_back
            .unwrap_or_else(|| size >= WRITE_BACK_MIN || FlashPlace::find(image).is_some())
    }

    /// Says what holds for a volume of `size` bytes in `image` where no option does.
    pub fn on(self, image: &Path, size: u64) -> MountSettings {
        MountSettings { write_back: Some(self.write_back_on(image, size)), ..self }
    }

    /// What lasts as long as the daemon.
    fn lasting(&self) -> impl PartialEq + use<'_> {
        (
            (self.recover, self.shared, self.allow_other, self.write_back, self.delegations),
            (self.way, self.cache_size, self.threads, self.io_uring, self.behaviour),
            (&self.mask, self.timer_ms, &self.metrics, &self.snapshots, &self.snapshot),
        )
    }

    fn apply_one(&mut self, option: &str) -> Result<(), String> {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        if let Some(behaviour) = Behaviour::from_option(name, value)? {
            self.behaviour = Some(behaviour);
            self.write_back = Some(behaviour.write_back());
            return Ok(());
        }
        let needed = || value.ok_or_else(|| format!("mount option '{name}' needs a value"));
        match name {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "recover" => self.recover = true,
            "shared" => self.shared = true,
            "allow_other" => self.allow_other = true,
            "noatime" => {
                self.access_times = false;
                // The daemon acts on it; the kernel shows it, and mount(8) repeats it at a remount.
                self.kernel.push(option.to_owned());
            }
            "atime" | "relatime" => self.access_times = true,
            "strictatime" | "lazytime" => {
                return Err(format!(
                    "mount option '{name}' is not available: use relatime or noatime"
                ));
            }
            "writeback" => self.write_back = Some(true),
            "writethrough" => self.write_back = Some(false),
            "delegations" => self.delegations = true,
            "nodelegations" => self.delegations = false,
            "direct" => self.way = Way::Direct,
            "nodirect" => self.way = Way::Cached,
            "cache" => self.cache_size = cache_size(needed()?)?,
            "metrics" => self.metrics = Some(Address::parse(needed()?)?),
            "threads" => self.threads = Some(threads(needed()?)?),
            "io_uring" => self.io_uring = io_uring(value)?,
            "mask" => {
                let text = needed()?;
                // A mistake is found here, before the volume is opened.
                mask_text::parse(&[text], TransactionMask::DEFAULT)?;
                self.mask = Some(text.to_owned());
            }
            "timer" => self.timer_ms = Some(interval::parse_ms(needed()?)?),
            "snapshots" => self.snapshots = Some(Schedule::parse(needed()?)?),
            "snapshot" => {
                self.snapshot = Some(needed()?.to_owned());
                self.read_only = true;
            }
            "nosuid" | "suid" | "nodev" | "dev" | "noexec" | "exec" | "sync" | "dirsync"
            | "nodiratime" | "nosymfollow" => self.kernel.push(option.to_owned()),
            "async"
            | "diratime"
            | "symfollow"
            | "defaults"
            | "default_permissions"
            | "auto"
            | "noauto"
            | "user"
            | "nouser"
            | "users"
            | "owner"
            | "group"
            | "nofail"
            | "_netdev"
            | "mand"
            | "nomand"
            | "silent"
            | "loud"
            | "fsname"
            | "subtype"
            | "nonempty"
            | "comment"
            | "iversion"
            | "noiversion" => {}
            "x-initrd.mount" => self.root = true,
            _ if name.starts_with("x-") || name.starts_with("X-") => {}
            _ => return Err(format!("unknown mount option '{name}'")),
        }
        Ok(())
    }
}

/// Options of different subjects that contradict each other. The kernel makes each write of a mount
/// with `sync` durable.
const PAIRS: [(&str, &str); 5] = [
    ("asynchronous", "writethrough"),
    ("synchronous", "writeback"),
    ("asynchronous", "sync"),
    ("synchronous", "async"),
    ("snapshot", "snapshots"),
];

/// The subject of an option; the options of one subject exclude each other.
fn subject(name: &str) -> Option<&'static str> {
    const SUBJECTS: [&[&str]; 20] = [
        &["ro", "rw"],
        &["noatime", "atime", "relatime"],
        &["writeback", "writethrough"],
        &["delegations", "nodelegations"],
        &["direct", "nodirect"],
        &["asynchronous", "background", "synchronous"],
        &["suid", "nosuid"],
        &["dev", "nodev"],
        &["exec", "noexec"],
        &["sync", "async"],
        &["nodiratime", "diratime"],
        &["nosymfollow", "symfollow"],
        &["cache"],
        &["threads"],
        &["io_uring"],
        &["mask"],
        &["timer"],
        &["metrics"],
        &["snapshot"],
        &["snapshots"],
    ];
    SUBJECTS.iter().find(|names| names.contains(&name)).map(|names| names[0])
}

/// Parses a cache size from the command line.
///
/// # Errors
/// A message for the user.
pub fn cache_size(text: &str) -> Result<u64, String> {
    let bytes = size::parse(text)?;
    if bytes < CACHE_SIZE_MIN {
        return Err(format!("a cache of {} is too small: use at least 1MiB", size::human(bytes)));
    }
    usize::try_from(bytes)
        .map(|_| bytes)
        .map_err(|_| format!("'{text}' is more than this machine can address"))
}

fn threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(threads @ 1..=256) => Ok(threads),
        _ => Err(format!("'{text}' is not a number of threads: use 1 to 256")),
    }
}

fn io_uring(text: Option<&str>) -> Result<IoUring, String> {
    match text {
        None | Some("on") => Ok(IoUring::On),
        Some("auto") => Ok(IoUring::Auto),
        Some("off") => Ok(IoUring::Off),
        Some(other) => Err(format!("'{other}' is no choice for io_uring: use auto, on or off")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(list: &str) -> Result<MountSettings, String> {
        let mut settings = MountSettings::default();
        settings.apply(list).map(|()| settings)
    }

    #[test]
    fn own_options() {
        let settings = parse(
            "ro,allow_other,noatime,timer=500ms,mask=fsync:sync,cache=64MiB,direct,writethrough,threads=3",
        )
        .unwrap();
        assert!(settings.read_only && settings.allow_other && settings.way == Way::Direct);
        assert!(!settings.access_times && settings.write_back == Some(false));
        assert_eq!(settings.cache_size, 64 << 20);
        assert_eq!((settings.timer_ms, settings.threads), (Some(500), Some(3)));
        assert_eq!(settings.mask.as_deref(), Some("fsync:sync"));
        assert_eq!(settings.io_uring, IoUring::Auto);
        assert_eq!(parse("nodirect").unwrap().way, Way::Cached);
        assert_eq!(parse("").unwrap().way, Way::CachedAbove);
        assert_eq!(parse("io_uring").unwrap().io_uring, IoUring::On);
        assert_eq!(parse("io_uring=off,io_uring=off").unwrap().io_uring, IoUring::Off);
    }

    #[test]
    fn behaviours() {
        let settings = parse("asynchronous").unwrap();
        assert_eq!(
            (settings.behaviour, settings.write_back),
            (Some(Behaviour::Asynchronous), Some(true))
        );
        let settings = parse("background").unwrap();
        assert_eq!(settings.behaviour, Some(Behaviour::Background { bound_ms: 1000 }));
        assert_eq!(settings.write_back, Some(false));
        let settings = parse("background=250ms,mask=+close").unwrap();
        assert_eq!(settings.behaviour, Some(Behaviour::Background { bound_ms: 250 }));
        assert_eq!(settings.mask.as_deref(), Some("+close"));
        assert_eq!(parse("synchronous").unwrap().write_back, Some(false));
        assert_eq!(parse("background,writeback").unwrap().write_back, Some(true));
    }

    #[test]
    fn small_volumes_delay_no_writes_unless_asked_to() {
        for (list, small, large) in
            [("", false, true), ("writethrough", false, false), ("asynchronous", true, true)]
        {
            let settings = parse(list).unwrap();
            let image = Path::new("no.img");
            assert_eq!(settings.write_back_on(image, (64 << 20) - 1), small, "{list}");
            assert_eq!(settings.write_back_on(image, 64 << 20), large, "{list}");
            assert_eq!(settings.on(image, 1 << 20).write_back, Some(small), "{list}");
        }
    }

    #[test]
    fn fstab_options_pass() {
        let settings =
            parse("rw,nosuid,nodev,user=me,x-systemd.automount,_netdev,nofail,,defaults").unwrap();
        assert_eq!(settings.kernel, ["nosuid", "nodev"]);
        assert!(parse("ro,ro,nodev,nodev").unwrap().read_only);
    }

    #[test]
    fn contradictions_are_refused() {
        for (list, part) in [
            ("ro,rw", "'ro' and 'rw'"),
            ("noatime,ro,relatime", "'noatime' and 'relatime'"),
            ("direct,nodirect", "'direct' and 'nodirect'"),
            ("writeback,writethrough", "'writeback' and 'writethrough'"),
            ("synchronous,background=250ms", "'synchronous' and 'background=250ms'"),
            ("io_uring=on,io_uring=off", "'io_uring=on' and 'io_uring=off'"),
            ("timer=1s,timer=2s", "'timer=1s' and 'timer=2s'"),
            ("suid,nosuid", "'suid' and 'nosuid'"),
            ("writethrough,asynchronous", "'asynchronous' and 'writethrough'"),
            ("synchronous,writeback", "'synchronous' and 'writeback'"),
            ("synchronous,mask=manual", "'synchronous' and 'mask=manual'"),
            ("mask=default,synchronous", "'synchronous' and 'mask=default'"),
            ("background,mask=manual", "'background' and 'mask=manual'"),
            ("background=250ms,timer=1s", "'background=250ms' and 'timer=1s'"),
            ("asynchronous,sync", "'asynchronous' and 'sync'"),
            ("async,synchronous", "'synchronous' and 'async'"),
            ("snapshot=x,snapshots=daily=7", "'snapshot=x' and 'snapshots=daily=7'"),
        ] {
            assert!(parse(list).unwrap_err().contains(part), "{list}");
        }
        let mut settings = MountSettings::default();
        settings.apply("rw").unwrap();
        assert!(settings.apply("ro").is_err(), "of another -o");
        for list in [
            "ro,synchronous",
            "asynchronous,mask=manual,timer=9s",
            "synchronous,mask=no-close,timer=7s",
            "synchronous,mask=all",
            "background,timer=2s,mask=+close",
            "background=2s,timer=2s",
            "asynchronous,writeback",
            "synchronous,writethrough,sync",
        ] {
            assert!(parse(list).is_ok(), "{list}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (list, part) in [
            ("cahce=1M", "cahce"),
            ("cache", "needs a value"),
            ("cache=12", "too small"),
            ("timer=x", "interval"),
            ("mask=nothing", "unknown event"),
            ("strictatime", "relatime"),
            ("threads=0", "threads"),
            ("io_uring=yes", "auto, on or off"),
            ("synchronous=1", "no value"),
            ("background=soon", "interval"),
        ] {
            assert!(parse(list).unwrap_err().contains(part), "{list}");
        }
    }
}
