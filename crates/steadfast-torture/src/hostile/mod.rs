//! Hostile images: volumes with valid checksums that no correct program has written.
//!
//! A checksum detects rot. It detects neither an attack nor a bug of the writer. So [`anatomy`]
//! parses an image by the specification alone. [`mutate()`] changes a field of a node, a value, a
//! log record, the metaroot or the superblock, and corrects every checksum up to the metaroot. Then
//! [`exercise()`] uses the volume: it opens, walks, reads, writes, commits, rolls back and checks.
//! Errors are allowed. A panic, an endless loop, unbounded memory or unbounded I/O is a finding.
//!
//! Tests draw the mutations by seed, the fuzzer draws them by coverage; both use [`Choices`].

pub mod anatomy;
mod bench;
mod choices;
mod exercise;
mod images;
mod mutate;
mod stream;
mod unpack;

pub use bench::BudgetMedium;
pub use choices::Choices;
pub use exercise::{ExerciseOutcome, exercise};
pub use images::{IMAGES, base_image};
pub use mutate::{mutate, rot};
pub use stream::run_stream;

/// The fuzz target `image`: the first byte of the input selects a base image, the rest mutates it.
pub fn hostile_image(input: &[u8]) -> ExerciseOutcome {
    let mut choices = Choices::new(input);
    let mut image = base_image(choices.below(IMAGES)).to_vec();
    mutate(&mut image, &mut choices);
    exercise(image)
}

/// The fuzz target `raw_image`: the same without correcting checksums.
pub fn raw_image(input: &[u8]) -> ExerciseOutcome {
    let mut choices = Choices::new(input);
    let mut image = base_image(choices.below(IMAGES)).to_vec();
    rot(&mut image, &mut choices);
    exercise(image)
}
