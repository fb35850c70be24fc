//! NAND on a Linux host: the kernel's MTD character devices, and images of parts in files.
//!
//! Both implement [`Nand`](steadfast_flash::nand::Nand). [`MtdNand`] is a part whose driver and
//! code are in the kernel. [`NandImage`] is a file with the pages of a part, each as data followed
//! by out-of-band bytes, as `nanddump --oob` and device programmers use it. [`FlashDevice`] is the
//! translation layer on either of them, as a medium.

mod abi;
mod error;
mod flash;
mod image;
mod mtd;
mod mtd_open;

pub use error::NandOpenError;
pub use flash::{FlashDevice, HostNand, is_blank, medium_geometry};
pub use image::NandImage;
pub use mtd::MtdNand;
