//! [`MountOptions`].

/// Whether requests come over io_uring, a queue for each processor, or over `/dev/fuse`. The
/// kernel's parameter `fuse.enable_uring` has to be on, which is root's decision and not made here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IoUring {
    /// Where the kernel offers it and the host allows it.
    #[default]
    Auto,
    /// Or not at all.
    On,
    /// Never.
    Off,
}

/// How to mount.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// Nothing can be changed through the mount. Implied by a volume that was opened read-only.
    pub read_only: bool,
    /// Other users than the one who mounts may use it.
    pub allow_other: bool,
    /// The kernel checks permissions and ACLs (as it does for other file systems). Without it
    /// everybody who may use the mount may do everything.
    pub default_permissions: bool,
    /// Buffered writes stay in the kernel's cache for a while. Faster; a transaction mask with
    /// `write` needs `false`.
    pub write_back: bool,
    /// Threads that execute requests, at least two.
    pub threads: usize,
    /// Whether requests come over io_uring.
    pub io_uring: IoUring,
    /// What the mount table shows as the device.
    pub fs_name: String,
    /// Further options of mount(8): `noexec`, `noatime`... A mount is `nosuid` and `nodev` unless
    /// `suid` and `dev` are among them, which only root may ask for.
    pub extra: Vec<String>,
    /// Newest minor version of the FUSE protocol to use, to try out how older kernels behave.
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
            threads: processors.clamp(2, 8),
            io_uring: IoUring::Auto,
            fs_name: "steadfast".into(),
            extra: Vec::new(),
            protocol_minor_max: crate::abi::MINOR,
        }
    }
}
