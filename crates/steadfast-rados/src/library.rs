//! librados, loaded when an address of RADOS is first used.
//!
//! The types are those of Ceph's `rados/librados.h`, from version 15 (Octopus) on.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

use crate::error::RadosError;

/// A connection: `rados_t`.
pub type Rados = *mut c_void;
/// A pool of a connection: `rados_ioctx_t`.
pub type Context = *mut c_void;
/// A request in flight: `rados_completion_t`.
pub type Completion = *mut c_void;
/// Changes of an object that take effect together: `rados_write_op_t`.
pub type WriteOperation = *mut c_void;
/// `rados_callback_t`.
pub type Callback = unsafe extern "C" fn(Completion, *mut c_void);

const FILE: &str = "librados.so.2";

macro_rules! functions {
    ($($name:ident($($argument:ty),*) -> $result:ty;)*) => {
        /// The functions in use, without their prefix `rados_`.
        pub struct Library {
            $(pub $name: unsafe extern "C" fn($($argument),*) -> $result,)*
            /// `rados_blocklist_add`, which was `rados_blacklist_add` before Ceph 16.
            pub blocklist_add: unsafe extern "C" fn(Rados, *mut c_char, u32) -> c_int,
        }

        impl Library {
            fn load() -> Result<Library, libloading::Error> {
                // SAFETY: the initialisers of librados have no requirements.
                let library = unsafe { libloading::Library::new(FILE)? };
                // The functions are used as long as the process runs.
                let library: &'static libloading::Library = Box::leak(Box::new(library));
                // SAFETY: the declared types are those of the header.
                let old = || unsafe { library.get(b"rados_blacklist_add\0") };
                // SAFETY: as above.
                let new = unsafe { library.get(b"rados_blocklist_add\0") };
                Ok(Library {
                    $(
                        // SAFETY: the declared type is that of the header.
                        $name: unsafe {
                            *library.get(concat!("rados_", stringify!($name), "\0").as_bytes())?
                        },
                    )*
                    blocklist_add: *new.or_else(|_| old())?,
                })
            }
        }
    };
}

functions! {
    create2(*mut Rados, *const c_char, *const c_char, u64) -> c_int;
    conf_read_file(Rados, *const c_char) -> c_int;
    conf_parse_env(Rados, *const c_char) -> c_int;
    conf_set(Rados, *const c_char, *const c_char) -> c_int;
    connect(Rados) -> c_int;
    shutdown(Rados) -> ();
    wait_for_latest_osdmap(Rados) -> c_int;
    ioctx_create(Rados, *const c_char, *mut Context) -> c_int;
    ioctx_destroy(Context) -> ();
    ioctx_set_namespace(Context, *const c_char) -> ();
    read(Context, *const c_char, *mut c_char, usize, u64) -> c_int;
    write_full(Context, *const c_char, *const c_char, usize) -> c_int;
    remove(Context, *const c_char) -> c_int;
    create_write_op() -> WriteOperation;
    release_write_op(WriteOperation) -> ();
    write_op_create(WriteOperation, c_int, *const c_char) -> ();
    write_op_write_full(WriteOperation, *const c_char, usize) -> ();
    write_op_zero(WriteOperation, u64, u64) -> ();
    write_op_operate(WriteOperation, Context, *const c_char, *mut c_void, c_int) -> c_int;
    aio_write_op_operate(
        WriteOperation, Context, Completion, *const c_char, *mut c_void, c_int
    ) -> c_int;
    aio_create_completion2(*mut c_void, Option<Callback>, *mut Completion) -> c_int;
    aio_wait_for_complete(Completion) -> c_int;
    aio_get_return_value(Completion) -> c_int;
    aio_release(Completion) -> ();
    aio_read(Context, *const c_char, Completion, *mut c_char, usize, u64) -> c_int;
    aio_write(Context, *const c_char, Completion, *const c_char, usize, u64) -> c_int;
    aio_remove(Context, *const c_char, Completion) -> c_int;
    lock_exclusive(
        Context, *const c_char, *const c_char, *const c_char, *const c_char, *mut c_void, u8
    ) -> c_int;
    unlock(Context, *const c_char, *const c_char, *const c_char) -> c_int;
    break_lock(Context, *const c_char, *const c_char, *const c_char, *const c_char) -> c_int;
    list_lockers(
        Context, *const c_char, *const c_char, *mut c_int, *mut c_char, *mut usize, *mut c_char,
        *mut usize, *mut c_char, *mut usize, *mut c_char, *mut usize
    ) -> isize;
}

impl Library {
    /// librados.
    ///
    /// # Errors
    /// `NoLibrary`. It is looked for again the next time.
    pub fn get() -> Result<&'static Library, RadosError> {
        // Known when it is built, so a static program has nothing of the rest.
        if cfg!(target_feature = "crt-static") {
            return Err(RadosError::NoLibrary("this program is static".to_owned()));
        }
        static LOADED: OnceLock<Library> = OnceLock::new();
        if let Some(library) = LOADED.get() {
            return Ok(library);
        }
        let library = Library::load().map_err(|error| RadosError::NoLibrary(error.to_string()))?;
        Ok(LOADED.get_or_init(|| library))
    }
}
