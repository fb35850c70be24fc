//! What the program gives to the library, and the lock around all functions.

use core::alloc::Layout;
use core::ffi::{c_char, c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};

use steadfast_bare::{Arena, RacyCell};

use crate::codes;
use crate::error::{self, Failure, Outcome};

/// What the library gets from the program. Set `struct_size` and the memory, and whatever else
/// there is; every other field may be 0 or NULL. The library calls these functions with its lock
/// held, so they must not call the library (-SF_EDEADLK).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sf_port {
    /// `sizeof(sf_port)`.
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// Passed to every function.
    pub user: *mut c_void,
    /// Memory for everything that the library keeps, `arena_size` bytes. It is the library's until
    /// `sf_stop`. `sf_memory` says how much is in use.
    pub arena: *mut c_void,
    /// Bytes of `arena`.
    pub arena_size: usize,
    /// Instead of an arena: `size` bytes at a multiple of 8, or NULL.
    pub allocate: Option<unsafe extern "C" fn(user: *mut c_void, size: usize) -> *mut c_void>,
    /// Frees memory from `allocate`.
    pub release: Option<unsafe extern "C" fn(user: *mut c_void, memory: *mut c_void)>,
    /// Nanoseconds since 1970-01-01 UTC, for time stamps. NULL: all time stamps are 0.
    pub now_ns: Option<unsafe extern "C" fn(user: *mut c_void) -> i64>,
    /// Monotonic milliseconds since any fixed moment, for the transaction timer. NULL: the timer
    /// sets no transaction points.
    pub monotonic_ms: Option<unsafe extern "C" fn(user: *mut c_void) -> u64>,
    /// Fills `buffer` with random bytes, for the identity of a new volume. Returns 0 or a negative
    /// error number. NULL: `sf_format_options.uuid` is used as it is.
    pub entropy: Option<
        unsafe extern "C" fn(user: *mut c_void, buffer: *mut c_void, length: usize) -> c_int,
    >,
    /// Takes the lock of the library: a recursive mutex, with priority inheritance if the system
    /// has it. NULL: one task alone uses the library.
    pub lock: Option<unsafe extern "C" fn(user: *mut c_void)>,
    /// Releases the lock once.
    pub unlock: Option<unsafe extern "C" fn(user: *mut c_void)>,
    /// Called after an internal error, with a line about it. Must not return: reset the machine.
    /// Acknowledged data is safe. NULL: the library loops for ever.
    pub panic: Option<unsafe extern "C" fn(user: *mut c_void, text: *const c_char)>,
}

/// Use of the arena, in bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sf_memory_use {
    /// The whole arena; 0 with `sf_port.allocate`.
    pub size: usize,
    /// In use now.
    pub used: usize,
    /// The most that was in use at once since `sf_start`.
    pub peak: usize,
    /// The largest free block.
    pub largest_free: usize,
    /// The largest sum of what was in use and a request that was refused; 0: none was. A larger
    /// arena gets further, and may be asked for more then.
    pub wanted: usize,
}

/// Memory in use.
struct State {
    arena: Arena,
    /// Bytes from `sf_port.allocate` in use, and the most at once.
    used: usize,
    peak: usize,
    wanted: usize,
}

/// `sf_start` writes it before any other task uses the library.
static PORT: RacyCell<sf_port> = RacyCell::new(NO_PORT);
/// It is used only with the lock of the library held.
static STATE: RacyCell<State> = RacyCell::new(NO_STATE);
static STARTED: AtomicBool = AtomicBool::new(false);
/// A task is inside a function. It changes with the lock held.
static INSIDE: AtomicBool = AtomicBool::new(false);

const NO_STATE: State = State { arena: Arena::EMPTY, used: 0, peak: 0, wanted: 0 };

const NO_PORT: sf_port = sf_port {
    struct_size: 0,
    reserved: 0,
    user: ptr::null_mut(),
    arena: ptr::null_mut(),
    arena_size: 0,
    allocate: None,
    release: None,
    now_ns: None,
    monotonic_ms: None,
    entropy: None,
    lock: None,
    unlock: None,
    panic: None,
};

fn port() -> &'static sf_port {
    // SAFETY: only `sf_start` writes it, while no other task uses the library and no function that
    // has this reference runs.
    unsafe { &*PORT.get() }
}

/// The lock of the library, held until this is dropped.
pub struct Turn(());

impl Turn {
    /// Waits for the lock. Fails instead of waiting for itself.
    pub fn take() -> Outcome<Turn> {
        if !STARTED.load(Ordering::Acquire) {
            return Err(Failure::invalid("sf_start was not called"));
        }
        let port = port();
        if let Some(lock) = port.lock {
            // SAFETY: the program's function gets its own `user`, as the header promises.
            unsafe { lock(port.user) };
        }
        if INSIDE.load(Ordering::Relaxed) {
            // The lock is recursive, so this task came from inside; or there is no lock, and an
            // interrupt or a second task came in between.
            release_lock();
            return Err(Failure::new(
                codes::SF_EDEADLK,
                "a function of the device or of sf_port called the library",
            ));
        }
        INSIDE.store(true, Ordering::Relaxed);
        Ok(Turn(()))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        INSIDE.store(false, Ordering::Relaxed);
        release_lock();
    }
}

fn release_lock() {
    let port = port();
    if let Some(unlock) = port.unlock {
        // SAFETY: as for `lock`, which was called before.
        unsafe { unlock(port.user) };
    }
}

/// Memory for a layout, or NULL.
pub fn allocate(layout: Layout) -> *mut u8 {
    let port = port();
    let Some(allocate) = port.allocate else {
        // SAFETY: allocations happen inside functions, so the lock is held.
        return unsafe { (*STATE.get()).arena.allocate(layout) };
    };
    if layout.align() > 8 {
        return ptr::null_mut();
    }
    // SAFETY: the program's function gets its own `user`, as the header promises.
    let memory = unsafe { allocate(port.user, layout.size()) };
    // SAFETY: as above.
    let state = unsafe { &mut *STATE.get() };
    let sum = state.used + layout.size();
    if memory.is_null() {
        state.wanted = state.wanted.max(sum);
    } else {
        state.used = sum;
        state.peak = state.peak.max(sum);
    }
    memory.cast()
}

/// Frees memory.
///
/// # Safety
/// The memory came from [`allocate`] for this layout.
pub unsafe fn release(memory: *mut u8, layout: Layout) {
    let port = port();
    let Some(release) = port.release else {
        // SAFETY: memory is freed inside functions, so the lock is held. The rest is the contract
        // of the caller.
        return unsafe { (*STATE.get()).arena.release(memory, layout) };
    };
    // SAFETY: the lock is held. The program's function gets what its `allocate` returned.
    unsafe {
        (*STATE.get()).used -= layout.size();
        release(port.user, memory.cast());
    }
}

pub fn now_ns() -> i64 {
    let port = port();
    // SAFETY: the program's function gets its own `user`, as the header promises.
    port.now_ns.map_or(0, |now| unsafe { now(port.user) })
}

pub fn monotonic_ms() -> u64 {
    let port = port();
    // SAFETY: the program's function gets its own `user`, as the header promises.
    port.monotonic_ms.map_or(0, |now| unsafe { now(port.user) })
}

/// Fills a buffer with random bytes, if the program has any.
pub fn entropy(buffer: &mut [u8]) -> Outcome {
    let port = port();
    let Some(entropy) = port.entropy else { return Ok(()) };
    // SAFETY: the program's function gets a valid buffer of this length, as the header promises.
    match unsafe { entropy(port.user, buffer.as_mut_ptr().cast(), buffer.len()) } {
        0 => Ok(()),
        code => Err(Failure::new(
            code.checked_neg().filter(|code| *code > 0).unwrap_or(codes::SF_EIO),
            "sf_port.entropy failed",
        )),
    }
}

/// The end after an internal error.
pub fn stop_here(text: *const c_char) -> ! {
    let port = port();
    if let Some(panic) = port.panic {
        // SAFETY: the program's function gets its own `user` and a C string.
        unsafe { panic(port.user, text) };
    }
    loop {
        core::hint::spin_loop();
    }
}

/// The use of memory. Called inside a function.
pub fn memory() -> sf_memory_use {
    // SAFETY: the lock is held.
    let state = unsafe { &*STATE.get() };
    let arena = &state.arena;
    sf_memory_use {
        size: arena.size(),
        used: arena.used() + state.used,
        peak: arena.peak().max(state.peak),
        largest_free: arena.largest_free(),
        wanted: arena.wanted().max(state.wanted),
    }
}

fn begin(port: *const sf_port) -> Outcome {
    if STARTED.load(Ordering::Acquire) {
        return Err(Failure::new(codes::SF_EBUSY, "sf_start was called before"));
    }
    if port.is_null() {
        return Err(Failure::null("port"));
    }
    // SAFETY: not NULL, and the header requires a valid structure.
    let port = unsafe { port.read_unaligned() };
    if port.struct_size as usize != size_of::<sf_port>() || port.reserved != 0 {
        return Err(Failure::invalid("port.struct_size is not that of this version"));
    }
    if port.allocate.is_some() != port.release.is_some()
        || port.lock.is_some() != port.unlock.is_some()
    {
        return Err(Failure::invalid("one function of a pair in port is NULL"));
    }
    if port.allocate.is_some() != port.arena.is_null() {
        return Err(Failure::invalid("port has no memory, or both an arena and functions"));
    }
    // SAFETY: the header requires that the arena is the library's, and that no other task uses the
    // library before this function returns.
    unsafe {
        let arena = Arena::new(port.arena.cast(), port.arena_size);
        *STATE.get() = State { arena, ..NO_STATE };
        *PORT.get() = port;
    }
    STARTED.store(true, Ordering::Release);
    Ok(())
}

fn end() -> Outcome {
    let turn = Turn::take()?;
    // SAFETY: the lock is held.
    let state = unsafe { &mut *STATE.get() };
    if state.arena.used() + state.used > 0 {
        return Err(Failure::new(codes::SF_EBUSY, "a volume is open"));
    }
    STARTED.store(false, Ordering::Release);
    drop(turn);
    Ok(())
}

fn number(name: &str, outcome: Outcome) -> c_int {
    outcome.map_or_else(
        |failure| {
            error::remember(name, &failure);
            -failure.code
        },
        |()| 0,
    )
}

/// Starts the library. Call it once, before every other function, while no other task uses the
/// library. The description is copied. -SF_EBUSY: it is started already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_start(port: *const sf_port) -> c_int {
    number("sf_start", begin(port))
}

/// Gives the memory back to the program. Afterwards `sf_start` may be called again. -SF_EBUSY: a
/// volume is open.
#[unsafe(no_mangle)]
pub extern "C" fn sf_stop() -> c_int {
    number("sf_stop", end())
}

/// Returns the use of memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_memory(place: *mut sf_memory_use) -> c_int {
    let found = Turn::take().and_then(|_turn| {
        if place.is_null() {
            return Err(Failure::null("memory"));
        }
        // SAFETY: not NULL, and the header requires room for the structure.
        unsafe { place.write_unaligned(memory()) };
        Ok(())
    });
    number("sf_memory", found)
}
