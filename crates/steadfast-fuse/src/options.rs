//! [`MountOptions`].

use steadfast::TransactionMask;

/// Whether requests arrive over io_uring, with a queue for each processor, or over `/dev/fuse`. The
/// kernel's parameter `fuse.enable_uring` must be on. Only root can set it; the daemon does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IoUring {
    /// Use io_uring if the kernel offers it and the host allows it.
    #[default]
    Auto,
    /// Use io_uring, or fail to mount.
    On,
    /// Never use io_uring.
    Off,
}

/// Options of a mount.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// Refuses all changes through the mount. Implied if the volume was opened read-only.
    pub read_only: bool,
    /// Users other than the mounting user may use the mount.
    pub allow_other: bool,
    /// The kernel checks permissions and ACLs, as for other file systems. Without this, every user
    /// of the mount may do everything.
    pub default_permissions: bool,
    /// Buffered writes stay in the kernel's cache for a while, which is faster. A transaction mask
    /// with `write` requires `false`.
    pub write_back: bool,
    /// Transaction mask and timer (milliseconds) to store in the volume once the mount exists.
    pub parameters: Option<(TransactionMask, u32)>,
    /// Threads that execute requests, at least two.
    pub threads: usize,
    /// Whether requests arrive over io_uring.
    pub io_uring: IoUring,
    /// The device name that the mount table shows.
    pub fs_name: String,
    /// The mount is the root file system. The kernel then keeps names for long: at shutdown systemd
    /// stops every process for a moment and walks paths meanwhile. A rollback is refused where the
    /// kernel cannot forget all names at once.
    pub root: bool,
    /// Further options of mount(8): `noexec`, `noatime`... A mount is `nosuid` and `nodev` unless
    /// `suid` and `dev` are among them; only root may use these two.
    pub extra: Vec<String>,
    /// Other kernels change the volume, too, as in a cluster. This one then caches nothing, and
    /// requests arrive over `/dev/fuse`.
    pub several_kernels: bool,
    /// With several kernels: each may keep names and attributes for a moment, while this one owns
    /// the volume.
    pub delegations: bool,
    /// Newest minor version of the FUSE protocol to use, for tests of the behaviour on older
    /// kernels.
    pub protocol_minor_max: u32,
}

impl Default for MountOptions {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(2, usize::from);
        MountOptions {
            read_only: false,
            allow_other: false,
            default_permissions: true,
            write_back: true,
            parameters: None,
            threads: processors.clamp(2, 8),
            io_uring: IoUring::Auto,
            fs_name: "steadfast".into(),
            root: false,
            extra: Vec::new(),
            several_kernels: false,
            delegations: false,
            protocol_minor_max: crate::abi::MINOR,
        }
    }
}
