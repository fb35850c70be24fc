//! Locks of the kernel's own kinds, so that lockdep, spinning and priorities work as elsewhere.
//!
//! The core makes a lock as a constant and moves it afterwards, which a kernel mutex does not
//! survive. So each lock is a pointer to one on the heap, made when it is first taken.

use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use lock_api::{RawMutex, RawRwLock};

use crate::shim;

/// The lock in `slot`. Two tasks may make one at a time; the later one frees its own.
fn made(
    slot: &AtomicPtr<c_void>,
    make: extern "C" fn() -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void),
) -> *mut c_void {
    let found = slot.load(Ordering::Acquire);
    if !found.is_null() {
        return found;
    }
    let new = make();
    match slot.compare_exchange(null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => new,
        Err(other) => {
            // SAFETY: no other thread has seen this lock.
            unsafe { free(new) };
            other
        }
    }
}

extern "C" fn new_mutex() -> *mut c_void {
    shim::sfk_shim_mutex_new()
}

extern "C" fn new_rwsem() -> *mut c_void {
    shim::sfk_shim_rwsem_new()
}

/// A kernel mutex.
pub struct KernelMutex(AtomicPtr<c_void>);

impl KernelMutex {
    fn get(&self) -> *mut c_void {
        made(&self.0, new_mutex, shim::sfk_shim_mutex_free)
    }
}

impl Drop for KernelMutex {
    fn drop(&mut self) {
        let mutex = *self.0.get_mut();
        if !mutex.is_null() {
            // SAFETY: the owner drops the lock, so no thread holds it or waits for it.
            unsafe { shim::sfk_shim_mutex_free(mutex) }
        }
    }
}

// SAFETY: the kernel's mutex excludes other tasks from `lock` to `unlock`.
unsafe impl RawMutex for KernelMutex {
    const INIT: KernelMutex = KernelMutex(AtomicPtr::new(null_mut()));
    type Guard = ();

    fn lock(&self) -> Self::Guard {
        // SAFETY: `get` returns a live mutex.
        unsafe { shim::sfk_shim_mutex_lock(self.get()) };
    }

    fn try_lock(&self) -> Option<Self::Guard> {
        // SAFETY: `get` returns a live mutex.
        unsafe { shim::sfk_shim_mutex_try(self.get()) }.then_some(())
    }

    // SAFETY: the caller holds the lock.
    unsafe fn unlock(&self, _guard: Self::Guard) {
        // SAFETY: a held lock was made before.
        unsafe { shim::sfk_shim_mutex_unlock(self.get()) }
    }

    fn is_locked(&self) -> bool {
        // SAFETY: `get` returns a live mutex.
        unsafe { shim::sfk_shim_mutex_held(self.get()) }
    }
}

/// A kernel rw_semaphore.
pub struct KernelRwLock(AtomicPtr<c_void>);

impl KernelRwLock {
    fn get(&self) -> *mut c_void {
        made(&self.0, new_rwsem, shim::sfk_shim_rwsem_free)
    }
}

impl Drop for KernelRwLock {
    fn drop(&mut self) {
        let rwsem = *self.0.get_mut();
        if !rwsem.is_null() {
            // SAFETY: the owner drops the lock, so no thread holds it or waits for it.
            unsafe { shim::sfk_shim_rwsem_free(rwsem) }
        }
    }
}

// SAFETY: the kernel's rw_semaphore lets in one writer, or readers only.
unsafe impl RawRwLock for KernelRwLock {
    const INIT: KernelRwLock = KernelRwLock(AtomicPtr::new(null_mut()));
    type SharedGuard = ();
    type ExclusiveGuard = ();

    fn lock_shared(&self) -> Self::SharedGuard {
        // SAFETY: `get` returns a live semaphore.
        unsafe { shim::sfk_shim_rwsem_read(self.get()) };
    }

    fn try_lock_shared(&self) -> Option<Self::SharedGuard> {
        // SAFETY: `get` returns a live semaphore.
        unsafe { shim::sfk_shim_rwsem_try_read(self.get()) }.then_some(())
    }

    // SAFETY: the caller holds the lock for reading.
    unsafe fn unlock_shared(&self, _guard: Self::SharedGuard) {
        // SAFETY: a held lock was made before.
        unsafe { shim::sfk_shim_rwsem_read_done(self.get()) }
    }

    fn lock_exclusive(&self) -> Self::ExclusiveGuard {
        // SAFETY: `get` returns a live semaphore.
        unsafe { shim::sfk_shim_rwsem_write(self.get()) };
    }

    fn try_lock_exclusive(&self) -> Option<Self::ExclusiveGuard> {
        // SAFETY: `get` returns a live semaphore.
        unsafe { shim::sfk_shim_rwsem_try_write(self.get()) }.then_some(())
    }

    // SAFETY: the caller holds the lock for writing.
    unsafe fn unlock_exclusive(&self, _guard: Self::ExclusiveGuard) {
        // SAFETY: a held lock was made before.
        unsafe { shim::sfk_shim_rwsem_write_done(self.get()) }
    }

    fn is_locked(&self) -> bool {
        // SAFETY: `get` returns a live semaphore.
        unsafe { shim::sfk_shim_rwsem_held(self.get()) }
    }

    fn is_locked_exclusive(&self) -> bool {
        if self.try_lock_shared().is_none() {
            return true;
        }
        // SAFETY: this task holds it for reading.
        unsafe { self.unlock_shared(()) };
        false
    }
}
