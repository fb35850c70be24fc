//! Memory, clock, checksum and panics of the kernel.

use core::sync::atomic::{AtomicBool, Ordering};

use steadfast::{Platform, Timestamp};

use crate::locks::{KernelMutex, KernelRwLock};
use crate::shim;

#[cfg(target_os = "none")]
mod bare {
    use core::alloc::{GlobalAlloc, Layout};
    use core::fmt::Write;

    use crate::shim;

    struct Memory;

    #[global_allocator]
    static MEMORY: Memory = Memory;

    // SAFETY: the kernel's allocator returns memory of the wanted size and alignment or NULL.
    unsafe impl GlobalAlloc for Memory {
        // SAFETY: any size and alignment may be passed.
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            shim::sfk_shim_allocate(layout.size(), layout.align()).cast()
        }

        // SAFETY: the caller passes memory from `alloc`.
        unsafe fn dealloc(&self, memory: *mut u8, _layout: Layout) {
            // SAFETY: `alloc` returned this memory.
            unsafe { shim::sfk_shim_release(memory.cast()) }
        }
    }

    /// A line of text without memory from the heap.
    struct Line {
        bytes: [u8; 200],
        length: usize,
    }

    impl Write for Line {
        fn write_str(&mut self, text: &str) -> core::fmt::Result {
            let room = &mut self.bytes[self.length..];
            let length = text.len().min(room.len());
            room[..length].copy_from_slice(&text.as_bytes()[..length]);
            self.length += length;
            Ok(())
        }
    }

    #[panic_handler]
    fn panic(panic: &core::panic::PanicInfo<'_>) -> ! {
        let mut line = Line { bytes: [0; 200], length: 0 };
        // A line that is full ends there.
        let _ = write!(line, "{panic}");
        loop {
            // SAFETY: the text is valid for this call.
            unsafe { shim::sfk_shim_panic(line.bytes.as_ptr(), line.length) }
        }
    }
}

/// The platform of a volume: the kernel.
#[derive(Default)]
pub struct Kernel {
    /// The next question for the time panics. For the test of what a panic does.
    pub panics: AtomicBool,
}

impl Platform for Kernel {
    type Mutex = KernelMutex;
    type RwLock = KernelRwLock;

    fn now(&self) -> Timestamp {
        assert!(!self.panics.swap(false, Ordering::Relaxed), "a test asked for this panic");
        let (mut seconds, mut nanoseconds) = (0, 0);
        // SAFETY: both pointers are valid for the call.
        unsafe { shim::sfk_shim_now(&mut seconds, &mut nanoseconds) };
        Timestamp { seconds, nanoseconds }
    }

    fn monotonic_ms(&self) -> u64 {
        self.monotonic_us() / 1000
    }

    fn monotonic_us(&self) -> u64 {
        shim::sfk_shim_monotonic_us()
    }

    fn wait_for(&self, ready: &dyn Fn() -> bool, microseconds: u64) {
        let begun = self.monotonic_us();
        while !ready() && self.monotonic_us().saturating_sub(begun) < microseconds {
            shim::sfk_shim_yield();
        }
    }

    fn crc32c(&self, crc: u32, bytes: &[u8]) -> u32 {
        // SAFETY: the pointer and the length are those of a slice.
        unsafe { shim::sfk_shim_crc32c(crc, bytes.as_ptr(), bytes.len()) }
    }
}
