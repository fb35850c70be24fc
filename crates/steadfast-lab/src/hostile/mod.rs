//! Hostile images: volumes that no honest writer has written, with all checksums right.
//!
//! A checksum finds rot, not malice and not a writer's mistake. So an image is taken apart by the
//! specification alone ([`anatomy`]), a field of a node, a value, a log record, the metaroot or the
//! superblock is changed ([`mutate()`]), and every checksum from there up to the metaroot is made
//! right again. Then the volume is used ([`exercise()`]): opened, walked, read, written, committed,
//! rolled back, checked. Errors are welcome; a panic, an endless loop, unbounded memory or
//! unbounded I/O is not.
//!
//! Tests draw the mutations by seed, the fuzzer by coverage: both through [`Choices`].

pub mod anatomy;
mod bench;
mod choices;
mod exercise;
mod images;
mod mutate;
mod stream;
mod unpack;

pub use bench::Bench;
pub use choices::Choices;
pub use exercise::{Outcome, exercise};
pub use images::{IMAGES, base_image};
pub use mutate::{mutate, rot};
pub use stream::run_stream;

/// What the fuzz target `image` does with its input: the first byte picks a base image, the rest
/// mutates it.
pub fn hostile_image(input: &[u8]) -> Outcome {
    let mut choices = Choices::new(input);
    let mut image = base_image(choices.below(IMAGES)).to_vec();
    mutate(&mut image, &mut choices);
    exercise(image)
}

/// What the fuzz target `raw_image` does with its input: the same without making checksums right.
pub fn raw_image(input: &[u8]) -> Outcome {
    let mut choices = Choices::new(input);
    let mut image = base_image(choices.below(IMAGES)).to_vec();
    rot(&mut image, &mut choices);
    exercise(image)
}
