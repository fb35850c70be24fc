//! Regular files and block devices as media.

mod apart;
mod batch;
mod behind;
mod below;
mod bounce;
mod device;
mod error;
mod large;
mod lock;
mod medium;
mod open;
mod tally;
mod transfer;
mod window;

pub(crate) use below::lock_below;
pub use error::{OpenError, Owner};
pub use lock::Part;
pub(crate) use lock::{lock_file, owner};
pub use medium::FileMedium;
pub use open::{FileOptions, LockMode};
pub use window::Window;
