//! Reading and writing the medium.

mod device;
pub(crate) mod retry;

pub(crate) use device::Device;
