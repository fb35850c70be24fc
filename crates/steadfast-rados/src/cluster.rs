//! A connection to a Ceph cluster as a client.
#![allow(unsafe_code)]

use std::ffi::{CString, c_int};
use std::ptr;
use std::time::Duration;

use rustix::io::Errno;

use crate::error::{RadosError, is, os};
use crate::library::{Library, Rados};
use crate::location::Location;

/// A connection. Ends when it is dropped.
pub struct Cluster {
    pub(crate) library: &'static Library,
    pub(crate) rados: Rados,
}

// SAFETY: librados allows any thread to use a connection, several at a time too.
unsafe impl Send for Cluster {}
// SAFETY: as above.
unsafe impl Sync for Cluster {}

/// A text for librados. Texts with a zero byte are refused before; nothing names anything with it.
pub(crate) fn text(text: &str) -> CString {
    CString::new(text).unwrap_or_default()
}

impl Cluster {
    /// Connects as the user of the location.
    ///
    /// # Errors
    /// Everything that keeps the client out.
    pub fn connect(location: &Location) -> Result<Cluster, RadosError> {
        let library = Library::get()?;
        let mut rados: Rados = ptr::null_mut();
        let user = text(&format!("client.{}", location.user));
        // SAFETY: `rados` takes the new handle; the name is a C string.
        let result =
            unsafe { (library.create2)(&raw mut rados, c"ceph".as_ptr(), user.as_ptr(), 0) };
        if result < 0 {
            return Err(RadosError::Failed("begin to use librados", os(result)));
        }
        let cluster = Cluster { library, rados };
        cluster.configure(location)?;
        // SAFETY: the handle is valid and configured.
        let result = unsafe { (library.connect)(rados) };
        if result >= 0 {
            return Ok(cluster);
        }
        let error = os(result);
        // Without a keyring, without a key in it, and with a wrong key.
        let refused = [Errno::NOENT, Errno::ACCESS, Errno::PERM, Errno::INVAL, Errno::OPNOTSUPP];
        Err(match is(result, &refused) {
            true => RadosError::Key(location.user.clone(), error),
            false => RadosError::Unreachable(error),
        })
    }

    fn configure(&self, location: &Location) -> Result<(), RadosError> {
        let path = location.conf.as_deref().map(|path| text(&path.to_string_lossy()));
        let path = path.as_ref().map_or(ptr::null(), |path| path.as_ptr());
        // SAFETY: the handle is valid; a null path means the default places.
        let result = unsafe { (self.library.conf_read_file)(self.rados, path) };
        if result < 0 {
            return Err(RadosError::Configuration(os(result)));
        }
        // SAFETY: the handle is valid; null stands for CEPH_ARGS.
        let result = unsafe { (self.library.conf_parse_env)(self.rados, ptr::null()) };
        if result < 0 {
            return Err(RadosError::Configuration(os(result)));
        }
        let seconds = location.timeout.as_secs().to_string();
        for (option, value) in [
            ("rados_osd_op_timeout", seconds.as_str()),
            ("rados_mon_op_timeout", &seconds),
            ("client_mount_timeout", &seconds),
            // What is wrong is reported by results.
            ("log_to_stderr", "false"),
            ("err_to_stderr", "false"),
            ("log_file", ""),
        ] {
            self.set(option, value)?;
        }
        Ok(())
    }

    fn set(&self, option: &str, value: &str) -> Result<(), RadosError> {
        let (option, value) = (text(option), text(value));
        // SAFETY: the handle is valid, and both are C strings.
        let result =
            unsafe { (self.library.conf_set)(self.rados, option.as_ptr(), value.as_ptr()) };
        done(result, "set an option of librados")
    }

    /// Makes RADOS refuse all requests of the client at `address` from now on, for `time`. Requests
    /// of this connection see that afterwards.
    ///
    /// # Errors
    /// The monitors do not answer, or the user may not do it.
    pub fn block(&self, address: &str, time: Duration) -> Result<(), RadosError> {
        let address = text(address);
        let seconds = u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
        // SAFETY: the handle is valid. librados only reads the address, although its type says
        // otherwise.
        let result = unsafe {
            (self.library.blocklist_add)(self.rados, address.as_ptr().cast_mut(), seconds)
        };
        done(result, "put the earlier owner on the blocklist")?;
        // SAFETY: the handle is valid.
        let result = unsafe { (self.library.wait_for_latest_osdmap)(self.rados) };
        done(result, "wait for the newest map")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SAFETY: the handle is valid, and nothing uses it any more.
        unsafe { (self.library.shutdown)(self.rados) };
    }
}

pub(crate) fn done(result: c_int, what: &'static str) -> Result<(), RadosError> {
    if result < 0 { Err(RadosError::Failed(what, os(result))) } else { Ok(()) }
}
