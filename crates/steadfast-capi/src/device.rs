//! A medium on top of the caller's functions.

use core::ffi::{c_int, c_void};

use steadfast_media::{ErrorClass, FailureModel, Geometry, Medium, MediumError, MediumOperation};

use crate::codes;
use crate::error::Failure;
use crate::guard::{Outcome, check_flags};

/// A quota of the storage below is used up; the interface reports it as `SF_ENOSPC`.
const EDQUOT: c_int = 122;

/// The library never calls two functions of this device at the same time.
pub const SF_DEVICE_SERIAL: u32 = 1;
/// The device is plain memory: nothing survives a power cut. Without this flag the device
/// guarantees that flushed data survives.
pub const SF_DEVICE_VOLATILE: u32 = 2;

/// A block device that the program implements with functions.
///
/// Offsets and lengths are multiples of `atomic_unit`, and requests lie within `size`. Functions
/// return 0 or a negative error number. -SF_EAGAIN: the library tries again. -SF_ENODEV: the device
/// has been removed. Any other: this request failed. The functions must not call the library with
/// the volume that uses this device.
///
/// The device guarantees: after `flush` has returned 0, everything written before survives a power
/// cut. After a power cut each aligned unit of `atomic_unit` bytes is old or new, never a mixture.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sf_device {
    /// `sizeof(sf_device)`.
    pub struct_size: u32,
    /// SF_DEVICE_SERIAL, SF_DEVICE_VOLATILE.
    pub flags: u32,
    /// Bytes of the device.
    pub size: u64,
    /// Smallest unit that is written completely or not at all (sector or page), in bytes: a power
    /// of two up to 65536.
    pub atomic_unit: u32,
    /// Zero.
    pub reserved: u32,
    /// Passed to every function. Must stay valid until the volume is closed.
    pub user: *mut c_void,
    /// Fills `buffer` from `offset`.
    pub read: Option<
        unsafe extern "C" fn(
            user: *mut c_void,
            offset: u64,
            buffer: *mut c_void,
            length: usize,
        ) -> c_int,
    >,
    /// Writes `data` at `offset`. NULL: the device is read-only.
    pub write: Option<
        unsafe extern "C" fn(
            user: *mut c_void,
            offset: u64,
            data: *const c_void,
            length: usize,
        ) -> c_int,
    >,
    /// Makes all earlier writes durable. NULL: a write is durable when it returns.
    pub flush: Option<unsafe extern "C" fn(user: *mut c_void) -> c_int>,
    /// The given range is no longer needed (TRIM, erase). NULL: the device needs no such hint.
    pub discard: Option<unsafe extern "C" fn(user: *mut c_void, offset: u64, length: u64) -> c_int>,
}

type Read = unsafe extern "C" fn(*mut c_void, u64, *mut c_void, usize) -> c_int;
type Lock = lock_api::Mutex<<crate::Surroundings as engine::Platform>::Mutex, ()>;

/// A medium that calls the caller's functions.
pub struct Callbacks {
    device: sf_device,
    read: Read,
    geometry: Geometry,
    serial: Option<Lock>,
}

// SAFETY: the header requires functions that any thread may call. Without SF_DEVICE_SERIAL the
// library may also call them concurrently.
unsafe impl Send for Callbacks {}
// SAFETY: as for `Send`; with SF_DEVICE_SERIAL a lock serialises the calls.
unsafe impl Sync for Callbacks {}

impl Callbacks {
    /// Checks and copies a description.
    pub fn new(device: &sf_device) -> Outcome<Callbacks> {
        if device.struct_size as usize != size_of::<sf_device>() {
            return Err(Failure::invalid("device.struct_size is not that of this version"));
        }
        check_flags(device.flags, SF_DEVICE_SERIAL | SF_DEVICE_VOLATILE)?;
        let read = device.read.ok_or_else(|| Failure::null("device.read"))?;
        let volatile = device.flags & SF_DEVICE_VOLATILE != 0;
        let model = if volatile { FailureModel::Volatile } else { FailureModel::PowerSafe };
        let geometry =
            Geometry::new(device.size, device.atomic_unit, model).map_err(Failure::invalid)?;
        let serial = (device.flags & SF_DEVICE_SERIAL != 0).then(|| Lock::new(()));
        Ok(Callbacks { device: *device, read, geometry, serial })
    }

    /// Whether the device has no `write` function.
    pub fn is_read_only(&self) -> bool {
        self.device.write.is_none()
    }

    fn request(
        &self,
        operation: MediumOperation,
        offset: u64,
        length: u64,
        function: impl FnOnce(*mut c_void) -> c_int,
    ) -> Result<(), MediumError> {
        let answer = {
            let _turn = self.serial.as_ref().map(|lock| lock.lock());
            function(self.device.user)
        };
        if answer == 0 {
            return Ok(());
        }
        // A positive answer violates the contract and counts as a failure.
        let code =
            if answer < 0 { answer.checked_neg().unwrap_or(codes::SF_EIO) } else { codes::SF_EIO };
        let class = match code {
            codes::SF_EAGAIN | codes::SF_EBUSY | codes::SF_ENOMEM => ErrorClass::Transient,
            codes::SF_ENODEV | codes::SF_ENXIO => ErrorClass::Gone,
            codes::SF_ENOSPC | EDQUOT => ErrorClass::Full,
            _ => ErrorClass::Permanent,
        };
        Err(MediumError { operation, offset, length, class, os_error: code })
    }
}

impl Medium for Callbacks {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        let length = buffer.len();
        self.geometry.check(MediumOperation::Read, offset, length as u64)?;
        self.request(MediumOperation::Read, offset, length as u64, |user| {
            // SAFETY: the caller's function gets a valid buffer of this length, as the header
            // promises.
            unsafe { (self.read)(user, offset, buffer.as_mut_ptr().cast(), length) }
        })
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        let length = data.len();
        self.geometry.check(MediumOperation::Write, offset, length as u64)?;
        self.request(MediumOperation::Write, offset, length as u64, |user| {
            match self.device.write {
                // SAFETY: as in `read`; the function only reads the bytes.
                Some(write) => unsafe { write(user, offset, data.as_ptr().cast(), length) },
                None => -codes::SF_EROFS,
            }
        })
    }

    fn flush(&self) -> Result<(), MediumError> {
        let Some(flush) = self.device.flush else { return Ok(()) };
        // SAFETY: the caller's function gets its own `user` pointer, as the header promises.
        self.request(MediumOperation::Flush, 0, 0, |user| unsafe { flush(user) })
    }

    fn discard(&self, offset: u64, length: u64) -> Result<(), MediumError> {
        let Some(discard) = self.device.discard else { return Ok(()) };
        self.geometry.check(MediumOperation::Discard, offset, length)?;
        // SAFETY: the caller's function gets its own `user` pointer, as the header promises.
        self.request(MediumOperation::Discard, offset, length, |user| unsafe {
            discard(user, offset, length)
        })
    }
}
