//! The handle of a volume, from opening to closing.

use alloc::boxed::Box;
use core::alloc::Layout;
use core::ffi::{c_char, c_int};

use steadfast_media::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::codes;
use crate::device::{Callbacks, sf_device};
use crate::error::Failure;
use crate::guard::{Outcome, call_int, check_place, reference, store};
use crate::medium::AnyMedium;
use crate::options::{self, sf_format_options, sf_open_options};
use crate::{Core, Surroundings, probe};

/// Version of the interface, which is the number in the name of the shared library. It changes when
/// programs compiled with an older header stop working.
pub const SF_ABI_VERSION: u32 = 1;

/// An open volume. Several threads may use it at the same time, except for closing it.
pub struct sf_volume {
    pub(crate) core: Core,
    /// Number of open files, directories and transactions; each refers to this volume.
    handles: AtomicUsize,
    /// A panic happened: the state in memory is unknown.
    pub(crate) broken: AtomicBool,
    #[cfg(feature = "std")]
    background: std::sync::Mutex<Option<steadfast_host::BackgroundThread>>,
}

/// Puts a value on the heap, or reports that memory is exhausted.
pub fn boxed<T>(value: T) -> Outcome<Box<T>> {
    const { assert!(size_of::<T>() != 0) };
    // SAFETY: the layout has a size other than 0.
    let place = unsafe { alloc::alloc::alloc(Layout::new::<T>()) }.cast::<T>();
    if place.is_null() {
        return Err(Failure::new(codes::SF_ENOMEM, "out of memory"));
    }
    // SAFETY: the memory comes from the global allocator with the layout of `T`. It is written
    // before the box owns it.
    Ok(unsafe {
        place.write(value);
        Box::from_raw(place)
    })
}

impl sf_volume {
    /// Counts one more object that refers to the handle. The reference is valid until
    /// [`let_go`](Self::let_go).
    pub(crate) fn hold(&self) -> &'static sf_volume {
        self.handles.fetch_add(1, Ordering::AcqRel);
        // SAFETY: closing refuses while the count is not zero, so the volume outlives every counted
        // reference.
        unsafe { &*core::ptr::from_ref(self) }
    }

    /// Ends a reference from [`hold`](Self::hold).
    pub(crate) fn let_go(&self) {
        self.handles.fetch_sub(1, Ordering::AcqRel);
    }

    #[cfg(feature = "std")]
    fn start_background(&'static self) -> Outcome {
        // The next call that is affected by a background failure reports it, and so does `sf_info`.
        let thread =
            steadfast_host::BackgroundThread::spawn_work(steadfast_host::turns(&self.core), |_| {});
        let thread = thread.map_err(|error| {
            Failure::new(codes::SF_EAGAIN, format_args!("no thread for background work: {error}"))
        })?;
        *self.background.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(thread);
        Ok(())
    }

    /// Stops the background thread, if there is one.
    #[cfg(feature = "std")]
    fn stop_background(&self) {
        drop(self.background.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take());
    }
}

/// Marks a volume as broken if it is dropped, which only a panic causes. The core publishes nothing
/// more then, also not by the background thread.
struct Breaker<'v>(&'v sf_volume);

impl Drop for Breaker<'_> {
    fn drop(&mut self) {
        self.0.broken.store(true, Ordering::Release);
        self.0.core.fail_after_panic();
    }
}

/// Runs `work` on a volume, unless an earlier panic has broken the volume.
pub fn on<T>(volume: &sf_volume, work: impl FnOnce(&sf_volume) -> Outcome<T>) -> Outcome<T> {
    if volume.broken.load(Ordering::Acquire) {
        return Err(Failure::new(
            codes::SF_ENOTRECOVERABLE,
            "an internal error happened before; close the volume and open it again",
        ));
    }
    let breaker = Breaker(volume);
    let result = work(volume);
    core::mem::forget(breaker);
    result
}

/// Runs `work` on the volume of a handle.
///
/// # Safety
/// `volume` is NULL, or came from an open function and is not closed.
pub unsafe fn with<T>(
    volume: *const sf_volume,
    work: impl FnOnce(&sf_volume) -> Outcome<T>,
) -> Outcome<T> {
    // SAFETY: the caller guarantees that a handle that is not NULL is an open volume.
    on(unsafe { reference(volume, "volume") }?, work)
}

/// Hands an opened volume to the caller, with a background thread if `background` is set.
///
/// # Safety
/// `volume` is NULL or has room for a pointer.
pub unsafe fn open(core: Core, background: bool, volume: *mut *mut sf_volume) -> Outcome {
    let pointer = Box::into_raw(boxed(sf_volume {
        core,
        handles: AtomicUsize::new(0),
        broken: AtomicBool::new(false),
        #[cfg(feature = "std")]
        background: std::sync::Mutex::new(None),
    })?);
    #[cfg(feature = "std")]
    if background {
        // SAFETY: the pointer came from a box just now. From here on only shared references exist
        // until the volume is closed. Closing joins the thread before it takes the box back.
        let opened: &'static sf_volume = unsafe { &*pointer };
        if let Err(failure) = opened.start_background() {
            // SAFETY: the pointer came from the box above, and no thread refers to it.
            drop(unsafe { Box::from_raw(pointer) });
            return Err(failure);
        }
    }
    #[cfg(not(feature = "std"))]
    let _ = background;
    // SAFETY: the caller keeps the contract in `# Safety`.
    unsafe { store(volume, pointer, "volume") }
}

#[cfg(not(feature = "std"))]
use crate::bare::failure_of_mount;

/// A failure of making or opening a volume.
#[cfg(feature = "std")]
fn failure_of_mount(error: engine::Error) -> Failure {
    error.into()
}

/// Returns the interface version of the linked or loaded library. Compare it with SF_ABI_VERSION.
#[unsafe(no_mangle)]
pub extern "C" fn sf_abi_version() -> u32 {
    SF_ABI_VERSION
}

/// Returns the version of the library as text, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn sf_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Creates a volume on a device. All data on the device is lost. `options` may be NULL.
/// -SF_EOVERFLOW: the device has fewer bytes than its `size`; nothing has changed.
/// -SF_ENOBUFS: as for `sf_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_format(
    device: *const sf_device,
    options: *const sf_format_options,
) -> c_int {
    call_int("sf_format", || {
        // SAFETY: the header requires valid structures.
        let device = Callbacks::new(unsafe { reference(device, "device") }?)?;
        // SAFETY: the header requires options that are NULL or of the size that they state.
        let (options, _) = unsafe { options::format(options) }?;
        probe::check_size(&device, options.size, failure_of_mount)?;
        Core::format(&AnyMedium::Device(device), &options, &Surroundings::default())
            .map_err(failure_of_mount)
    })
}

/// Opens the volume on a device. The description is copied; its functions and `user` are used until
/// the volume is closed. `options` may be NULL. On failure `*volume` is unchanged. Fails with
/// -SF_EOVERFLOW if the volume is larger than the device. Without an operating system it fails with
/// -SF_ENOBUFS if the arena is too small to open the volume; nothing is lost.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_open(
    device: *const sf_device,
    options: *const sf_open_options,
    volume: *mut *mut sf_volume,
) -> c_int {
    call_int("sf_open", || {
        check_place(volume, "volume")?;
        // SAFETY: the header requires valid structures.
        let device = Callbacks::new(unsafe { reference(device, "device") }?)?;
        // SAFETY: the header requires options that are NULL or of the size that they state.
        let (mut options, background) = unsafe { options::open(options) }?;
        options.read_only |= device.is_read_only();
        let core = Core::open(AnyMedium::Device(device), options, Surroundings::default())
            .map_err(failure_of_mount)?;
        // SAFETY: the header requires room for a pointer.
        unsafe { open(core, background, volume) }
    })
}

/// Closes a volume. Sets a last transaction point if the mask has SF_ON_UNMOUNT; otherwise
/// uncommitted changes are dropped. Fails with -SF_EBUSY if files, directories or a transaction are
/// open; the volume stays open. In every other case, even after another error, the volume is closed
/// and the pointer becomes invalid. NULL is allowed and does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_close(volume: *mut sf_volume) -> c_int {
    call_int("sf_close", || {
        if volume.is_null() {
            return Ok(());
        }
        // SAFETY: the header requires an open volume, and that no other thread uses it any
        // more.
        let closing = unsafe { reference(volume, "volume") }?;
        let open = closing.handles.load(Ordering::Acquire);
        if open > 0 {
            return Err(Failure::new(
                codes::SF_EBUSY,
                format_args!(
                    "{open} files, directories or transactions are open; close them first"
                ),
            ));
        }
        #[cfg(feature = "std")]
        closing.stop_background();
        // SAFETY: `open` made the pointer from a box, and no handle or thread refers to it.
        let closing = unsafe { Box::from_raw(volume) };
        if closing.broken.load(Ordering::Acquire) {
            return Err(Failure::internal(
                "closed without a last transaction point, because of an earlier one",
            ));
        }
        Ok(closing.core.close()?)
    })
}
