//! Steadfast on raw NAND flash.
//!
//! The file system uses a [`Medium`](steadfast_media::Medium) and knows nothing of flash. This
//! crate makes a medium out of NAND, from the part upwards:
//!
//! - [`nand`]: the [`Nand`](nand::Nand) trait that drivers implement, with
//!   [`NandGeometry`](nand::NandGeometry) and [`NandError`](nand::NandError);
//! - [`ecc`]: error-correcting codes in software, for parts without one;
//! - [`ftl`]: the translation layer, a medium over a part;
//! - [`model`]: NAND in memory, with wear, flipped bits, failures and power cuts;
//! - [`part`]: the known parts, with their timing and endurance.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod ecc;
pub mod ftl;
pub mod model;
pub mod nand;
pub mod part;
mod sabotage;
