//! Steadfast on raw flash: NAND, and serial NOR.
//!
//! The file system uses a [`Medium`](steadfast_media::Medium) and knows nothing of flash. This
//! crate makes a medium out of NAND, from the part upwards:
//!
//! - [`nand`]: the [`Nand`](nand::Nand) trait that drivers implement, with
//!   [`NandGeometry`](nand::NandGeometry) and [`NandError`](nand::NandError);
//! - [`ecc`]: error-correcting codes in software, for parts without one;
//! - [`nor`]: serial NOR flash as a NAND part;
//! - [`ftl`]: the translation layer, a medium over a part;
//! - [`model`]: NAND and NOR in memory, with wear, flipped bits, failures and power cuts;
//! - [`part`]: the known parts, with their timing and endurance.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod ecc;
pub mod ftl;
pub mod model;
pub mod nand;
pub mod nor;
pub mod part;
mod sabotage;
