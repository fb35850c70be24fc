//! The lab's own tests, in one program: each further one would compile the file system again.
//! `hostile.rs` has an allocator of its own, and `schedules.rs` threads that it orders.

mod chain;
mod device;
mod embedded_storage;
mod faults;
mod fill;
mod format;
mod nor;
mod one_seed_is_one_world;
mod planted;
mod regressions;
mod rot;
mod sabotage;
mod tests_of_the_tests;
mod two_openers;
mod volume;
