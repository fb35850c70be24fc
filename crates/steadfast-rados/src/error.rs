//! Why an image in RADOS cannot be made, opened or changed.

use std::io;

use rustix::io::Errno;

use crate::owner::Owner;

/// The failure of a request that is not one of the open medium. Errors of RADOS have the number of
/// the operating system.
#[derive(Debug, thiserror::Error)]
pub enum RadosError {
    /// The address is malformed.
    #[error("{0}")]
    Address(String),
    /// librados cannot be loaded, or is older than Ceph 15.
    #[error("librados cannot be loaded: {0}")]
    NoLibrary(String),
    /// The configuration cannot be read.
    #[error("the configuration of Ceph cannot be read: {0}")]
    Configuration(io::Error),
    /// The user has no usable key.
    #[error("Ceph does not accept the key of client.{0}: {1}")]
    Key(String, io::Error),
    /// No monitor answers, or it refuses the client.
    #[error("the monitors of Ceph cannot be reached: {0}")]
    Unreachable(io::Error),
    /// There is no such pool.
    #[error("there is no pool '{0}'")]
    NoPool(String),
    /// The user may not do this in the pool.
    #[error("client.{0} may not {1} in the pool")]
    Forbidden(String, &'static str),
    /// There is no such image.
    #[error("there is no image '{0}' in the pool")]
    NoImage(String),
    /// There is an image of this name already.
    #[error("there is an image '{0}' in the pool already")]
    Exists(String),
    /// The header is not one of this program, or of a newer version.
    #[error("the header of the image cannot be used: {0}")]
    Header(String),
    /// A process that may be alive has the image open for writing.
    #[error("the image is in use by {0}")]
    InUse(Box<Owner>),
    /// Any other failure of a request.
    #[error("cannot {0}: {1}")]
    Failed(&'static str, io::Error),
}

/// Whether a result of librados is one of these errors.
pub(crate) fn is(result: i32, errors: &[Errno]) -> bool {
    errors.iter().any(|error| result == -error.raw_os_error())
}

/// The error of a negative result of librados.
pub(crate) fn os(result: i32) -> io::Error {
    io::Error::from_raw_os_error(-result)
}
