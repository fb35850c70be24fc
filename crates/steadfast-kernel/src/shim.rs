//! The functions of `kernel/shim.c` and `kernel/device.c` that the core needs.

use core::ffi::{c_char, c_int, c_void};

/// One piece of memory of a request to the device.
#[repr(C)]
pub struct sfk_piece {
    /// Its first byte.
    pub data: *mut u8,
    /// Its length in bytes.
    pub length: usize,
}

/// `sfk_shim_transfer`: reads.
pub const SFK_READ: c_int = 0;
/// `sfk_shim_transfer`: writes.
pub const SFK_WRITE: c_int = 1;
/// `sfk_shim_transfer`: writes, and returns when these bytes are durable.
pub const SFK_WRITE_DURABLE: c_int = 2;

// SAFETY: these signatures match the functions of the C side. Functions that are not marked safe
// need a valid pointer.
unsafe extern "C" {
    /// Memory of `size` bytes at a multiple of `alignment`, or NULL.
    #[cfg(target_os = "none")]
    pub safe fn sfk_shim_allocate(size: usize, alignment: usize) -> *mut c_void;
    /// Frees memory of `sfk_shim_allocate`.
    #[cfg(target_os = "none")]
    pub fn sfk_shim_release(memory: *mut c_void);
    /// Reports the text and leaves the core; see the crate. It does not return, but is not declared
    /// so, because objtool would then find code that ends in the middle.
    #[cfg(target_os = "none")]
    pub fn sfk_shim_panic(text: *const u8, length: usize);

    /// The wall clock, coarse like that of the VFS.
    pub fn sfk_shim_now(seconds: *mut i64, nanoseconds: *mut u32);
    /// Microseconds of a clock that also advances during a suspension.
    pub safe fn sfk_shim_monotonic_us() -> u64;
    /// Lets other tasks run.
    pub safe fn sfk_shim_yield();
    /// Continues a CRC-32C.
    pub fn sfk_shim_crc32c(crc: u32, data: *const u8, length: usize) -> u32;

    /// A kernel mutex on the heap. Waits until there is memory for it.
    pub safe fn sfk_shim_mutex_new() -> *mut c_void;
    pub fn sfk_shim_mutex_free(mutex: *mut c_void);
    pub fn sfk_shim_mutex_lock(mutex: *mut c_void);
    pub fn sfk_shim_mutex_try(mutex: *mut c_void) -> bool;
    pub fn sfk_shim_mutex_unlock(mutex: *mut c_void);
    pub fn sfk_shim_mutex_held(mutex: *mut c_void) -> bool;

    /// A kernel rw_semaphore on the heap. Waits until there is memory for it.
    pub safe fn sfk_shim_rwsem_new() -> *mut c_void;
    pub fn sfk_shim_rwsem_free(rwsem: *mut c_void);
    pub fn sfk_shim_rwsem_read(rwsem: *mut c_void);
    pub fn sfk_shim_rwsem_try_read(rwsem: *mut c_void) -> bool;
    pub fn sfk_shim_rwsem_read_done(rwsem: *mut c_void);
    pub fn sfk_shim_rwsem_write(rwsem: *mut c_void);
    pub fn sfk_shim_rwsem_try_write(rwsem: *mut c_void) -> bool;
    pub fn sfk_shim_rwsem_write_done(rwsem: *mut c_void);
    pub fn sfk_shim_rwsem_held(rwsem: *mut c_void) -> bool;

    /// One request for consecutive bytes of the device. 0 or a negative error number.
    pub fn sfk_shim_transfer(
        device: *mut c_void,
        kind: c_int,
        offset: u64,
        pieces: *const sfk_piece,
        count: usize,
    ) -> c_int;
    /// Makes completed writes durable. 0 or a negative error number.
    pub fn sfk_shim_flush(device: *mut c_void) -> c_int;
    /// Discards bytes. 0 or a negative error number.
    pub fn sfk_shim_discard(device: *mut c_void, offset: u64, length: u64) -> c_int;

    /// Passes one entry of a directory on. `false`: no room for it.
    pub fn sfk_shim_emit(
        context: *mut c_void,
        name: *const c_char,
        length: usize,
        inode: u64,
        kind: u32,
        cookie: u64,
    ) -> bool;
}
