//! Requests to the objects of a pool.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr;

use rustix::io::Errno;

use crate::cluster::{Cluster, done, text};
use crate::error::{RadosError, is};
use crate::library::{Completion, Context, Library};
use crate::location::Location;

/// The name of the lock on a header.
const LOCK: &CStr = c"steadfast";
/// Room for the owner of a lock in the answers of RADOS, bytes.
const LOCKER: usize = 4096;
/// `LIBRADOS_CREATE_EXCLUSIVE`.
const EXCLUSIVE: c_int = 1;

/// The objects of a pool, in a namespace.
pub struct Pool {
    cluster: Cluster,
    context: Context,
    user: String,
}

// SAFETY: librados allows any thread to use a pool, several at a time too.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

/// The owner of a lock, as RADOS tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Locker {
    client: CString,
    cookie: CString,
    /// The address for the blocklist.
    pub address: String,
}

impl Locker {
    /// The cookie that the owner gave.
    pub fn cookie(&self) -> String {
        self.cookie.to_string_lossy().into_owned()
    }
}

/// A read from one object.
pub struct Read<'a> {
    pub object: String,
    pub offset: u64,
    pub buffer: &'a mut [u8],
}

/// What runs when a change ends, with 0 or the negative error. It must not panic or wait: it runs
/// on the thread of librados.
pub type Done = Box<dyn FnOnce(i32) + Send>;

impl Pool {
    /// Connects to the pool of a location.
    ///
    /// # Errors
    /// Those of [`Cluster::connect`]; `NoPool`.
    pub fn open(location: &Location) -> Result<Pool, RadosError> {
        let cluster = Cluster::connect(location)?;
        let mut context: Context = ptr::null_mut();
        let name = text(&location.pool);
        // SAFETY: the connection is valid, and `context` takes the new handle.
        let result = unsafe {
            (cluster.library.ioctx_create)(cluster.rados, name.as_ptr(), &raw mut context)
        };
        if is(result, &[Errno::NOENT]) {
            return Err(RadosError::NoPool(location.pool.clone()));
        }
        done(result, "open the pool")?;
        let pool = Pool { cluster, context, user: location.user.clone() };
        let namespace = text(&location.namespace);
        // SAFETY: the handle is valid, and the name a C string.
        unsafe { (pool.library().ioctx_set_namespace)(context, namespace.as_ptr()) };
        Ok(pool)
    }

    fn library(&self) -> &'static Library {
        self.cluster.library
    }

    /// The connection.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    fn checked(&self, result: c_int, what: &'static str) -> Result<(), RadosError> {
        if is(result, &[Errno::PERM, Errno::ACCESS]) {
            return Err(RadosError::Forbidden(self.user.clone(), what));
        }
        done(result, what)
    }

    /// Reads a whole small object; `None` if there is none.
    ///
    /// # Errors
    /// `Forbidden`, `Failed`.
    pub fn read_object(&self, object: &str, most: usize) -> Result<Option<Vec<u8>>, RadosError> {
        let mut buffer = vec![0; most];
        let name = text(object);
        // SAFETY: the buffer has `most` bytes.
        let result = unsafe {
            (self.library().read)(self.context, name.as_ptr(), buffer.as_mut_ptr().cast(), most, 0)
        };
        if is(result, &[Errno::NOENT]) {
            return Ok(None);
        }
        self.checked(result, "read")?;
        buffer.truncate(result.max(0) as usize);
        Ok(Some(buffer))
    }

    /// Makes an object with these bytes. `false`: there is one of this name.
    ///
    /// # Errors
    /// `Forbidden`, `Failed`.
    pub fn create_object(&self, object: &str, bytes: &[u8]) -> Result<bool, RadosError> {
        let (library, name) = (self.library(), text(object));
        // SAFETY: the operation is valid until it is released, and the bytes are copied before
        // that.
        let result = unsafe {
            let operation = (library.create_write_op)();
            (library.write_op_create)(operation, EXCLUSIVE, ptr::null());
            (library.write_op_write_full)(operation, bytes.as_ptr().cast(), bytes.len());
            let result = (library.write_op_operate)(
                operation,
                self.context,
                name.as_ptr(),
                ptr::null_mut(),
                0,
            );
            (library.release_write_op)(operation);
            result
        };
        if is(result, &[Errno::EXIST]) {
            return Ok(false);
        }
        self.checked(result, "write").map(|()| true)
    }

    /// Replaces the bytes of an object.
    ///
    /// # Errors
    /// `Forbidden`, `Failed`.
    pub fn write_object(&self, object: &str, bytes: &[u8]) -> Result<(), RadosError> {
        let name = text(object);
        // SAFETY: the bytes are valid during the call.
        let result = unsafe {
            let bytes = (bytes.as_ptr().cast(), bytes.len());
            (self.library().write_full)(self.context, name.as_ptr(), bytes.0, bytes.1)
        };
        self.checked(result, "write")
    }

    /// Removes an object, if there is one.
    ///
    /// # Errors
    /// `Forbidden`, `Failed`.
    pub fn remove_object(&self, object: &str) -> Result<(), RadosError> {
        let name = text(object);
        // SAFETY: the handle is valid, and the name a C string.
        let result = unsafe { (self.library().remove)(self.context, name.as_ptr()) };
        if is(result, &[Errno::NOENT]) {
            return Ok(());
        }
        self.checked(result, "remove")
    }

    /// Reads from several objects at a time. What is missing reads as zeros.
    ///
    /// # Errors
    /// The negative result of the first read that failed.
    pub fn read_all(&self, reads: &mut [Read<'_>]) -> Result<(), i32> {
        let library = self.library();
        let mut begun: Vec<Result<Completion, c_int>> = Vec::with_capacity(reads.len());
        for read in &mut *reads {
            begun.push(self.completion(ptr::null_mut(), false).and_then(|completion| {
                let name = text(&read.object);
                let length = read.buffer.len();
                let buffer = read.buffer.as_mut_ptr().cast();
                // SAFETY: the buffer is borrowed until the wait below has ended. librados copies
                // the name.
                let result = unsafe {
                    let (name, offset) = (name.as_ptr(), read.offset);
                    (library.aio_read)(self.context, name, completion, buffer, length, offset)
                };
                if result < 0 {
                    // SAFETY: the request has not begun.
                    unsafe { (library.aio_release)(completion) };
                    return Err(result);
                }
                Ok(completion)
            }));
        }
        let mut failed = None;
        for (read, begun) in reads.iter_mut().zip(begun) {
            let result = begun.map_or_else(
                |error| error,
                // SAFETY: the completion is valid until it is released here.
                |completion| unsafe {
                    (library.aio_wait_for_complete)(completion);
                    let result = (library.aio_get_return_value)(completion);
                    (library.aio_release)(completion);
                    result
                },
            );
            match usize::try_from(result) {
                Ok(length) => read.buffer[length..].fill(0),
                Err(_) if is(result, &[Errno::NOENT]) => read.buffer.fill(0),
                Err(_) => failed = failed.or(Some(result)),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Begins to write a part of an object.
    pub fn begin_write(&self, object: &str, offset: u64, data: &[u8], done: Done) {
        let name = text(object);
        self.begin(done, |completion| {
            // SAFETY: librados copies the name and the data before it returns.
            unsafe {
                let data = (data.as_ptr().cast(), data.len());
                let name = name.as_ptr();
                (self.library().aio_write)(self.context, name, completion, data.0, data.1, offset)
            }
        });
    }

    /// Begins to remove an object.
    pub fn begin_remove(&self, object: &str, done: Done) {
        let name = text(object);
        let done: Done = Box::new(|result| {
            done(if is(result, &[Errno::NOENT]) { 0 } else { result });
        });
        self.begin(done, |completion| {
            // SAFETY: librados copies the name.
            unsafe { (self.library().aio_remove)(self.context, name.as_ptr(), completion) }
        });
    }

    /// Begins to give back a part of an object, which then reads as zeros.
    pub fn begin_zero(&self, object: &str, offset: u64, length: u64, done: Done) {
        let (library, name) = (self.library(), text(object));
        self.begin(done, |completion| {
            // SAFETY: the operation is valid until it is released; librados keeps what it needs.
            unsafe {
                let operation = (library.create_write_op)();
                (library.write_op_zero)(operation, offset, length);
                let name = name.as_ptr();
                let result = (library.aio_write_op_operate)(
                    operation,
                    self.context,
                    completion,
                    name,
                    ptr::null_mut(),
                    0,
                );
                (library.release_write_op)(operation);
                result
            }
        });
    }

    fn begin(&self, done: Done, begin: impl FnOnce(Completion) -> c_int) {
        let library = self.library();
        let ending = Box::into_raw(Box::new(Ending { library, done }));
        let begun = self.completion(ending.cast(), true).and_then(|completion| {
            let result = begin(completion);
            if result < 0 {
                // SAFETY: the request has not begun.
                unsafe { (library.aio_release)(completion) };
            }
            if result < 0 { Err(result) } else { Ok(()) }
        });
        if let Err(error) = begun {
            // SAFETY: no callback will run, so the box is still this function's.
            let ending = unsafe { Box::from_raw(ending) };
            (ending.done)(error);
        }
    }

    fn completion(&self, argument: *mut c_void, calls: bool) -> Result<Completion, c_int> {
        let mut completion: Completion = ptr::null_mut();
        let callback = calls.then_some(ended as _);
        // SAFETY: `completion` takes the new handle. `ended` gets the argument that it expects.
        let result = unsafe {
            (self.library().aio_create_completion2)(argument, callback, &raw mut completion)
        };
        if result < 0 { Err(result) } else { Ok(completion) }
    }

    /// Takes the lock of an object. `false`: another client has it.
    ///
    /// # Errors
    /// `Forbidden`, `Failed`.
    pub fn lock(&self, object: &str, cookie: &str) -> Result<bool, RadosError> {
        let (name, cookie) = (text(object), text(cookie));
        // SAFETY: all are C strings; a null duration means no expiry.
        let result = unsafe {
            (self.library().lock_exclusive)(
                self.context,
                name.as_ptr(),
                LOCK.as_ptr(),
                cookie.as_ptr(),
                c"".as_ptr(),
                ptr::null_mut(),
                0,
            )
        };
        if is(result, &[Errno::BUSY]) {
            return Ok(false);
        }
        self.checked(result, "lock").map(|()| true)
    }

    /// Gives the lock back.
    ///
    /// # Errors
    /// `Failed`.
    pub fn unlock(&self, object: &str, cookie: &str) -> Result<(), RadosError> {
        let (name, cookie) = (text(object), text(cookie));
        // SAFETY: all are C strings.
        let result = unsafe {
            let (name, cookie) = (name.as_ptr(), cookie.as_ptr());
            (self.library().unlock)(self.context, name, LOCK.as_ptr(), cookie)
        };
        self.checked(result, "unlock")
    }

    /// The owner of the lock; `None` if it is free or there is no such object.
    ///
    /// # Errors
    /// `Forbidden`, `Failed`.
    pub fn locker(&self, object: &str) -> Result<Option<Locker>, RadosError> {
        let name = text(object);
        let mut exclusive = 0;
        let mut buffers: [Vec<u8>; 4] = std::array::from_fn(|_| vec![0; LOCKER]);
        let mut lengths = [LOCKER; 4];
        let [tag, clients, cookies, addresses] = &mut buffers;
        let [tag_length, client_length, cookie_length, address_length] = &mut lengths;
        // SAFETY: each buffer has the length beside it. librados writes lists of C strings.
        let result = unsafe {
            (self.library().list_lockers)(
                self.context,
                name.as_ptr(),
                LOCK.as_ptr(),
                &raw mut exclusive,
                tag.as_mut_ptr().cast(),
                tag_length,
                clients.as_mut_ptr().cast(),
                client_length,
                cookies.as_mut_ptr().cast(),
                cookie_length,
                addresses.as_mut_ptr().cast(),
                address_length,
            )
        };
        let result = c_int::try_from(result).unwrap_or(c_int::MAX);
        if result == 0 || is(result, &[Errno::NOENT]) {
            return Ok(None);
        }
        self.checked(result, "look at the lock")?;
        let first = |list: &[u8]| CStr::from_bytes_until_nul(list).unwrap_or_default().to_owned();
        let address = first(addresses).to_string_lossy().into_owned();
        Ok(Some(Locker { client: first(clients), cookie: first(cookies), address }))
    }

    /// Takes the lock away from its owner, if that still has it.
    ///
    /// # Errors
    /// `Forbidden`, `Failed`.
    pub fn break_lock(&self, object: &str, locker: &Locker) -> Result<(), RadosError> {
        let name = text(object);
        // SAFETY: all are C strings.
        let result = unsafe {
            let (name, client) = (name.as_ptr(), locker.client.as_ptr());
            let cookie = locker.cookie.as_ptr();
            (self.library().break_lock)(self.context, name, LOCK.as_ptr(), client, cookie)
        };
        if is(result, &[Errno::NOENT]) {
            return Ok(());
        }
        self.checked(result, "break the lock")
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: the handle is valid, and nothing uses it any more.
        unsafe { (self.library().ioctx_destroy)(self.context) };
    }
}

/// The argument of [`ended`].
struct Ending {
    library: &'static Library,
    done: Done,
}

unsafe extern "C" fn ended(completion: Completion, argument: *mut c_void) {
    // SAFETY: the argument is the box of `begin`, and librados calls back once.
    let ending = unsafe { Box::from_raw(argument.cast::<Ending>()) };
    // SAFETY: the completion is valid until it is released here.
    let result = unsafe {
        let result = (ending.library.aio_get_return_value)(completion);
        (ending.library.aio_release)(completion);
        result
    };
    (ending.done)(result.min(0));
}
