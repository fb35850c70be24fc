//! Counts what each operation of the core costs, on a medium in memory.
//!
//! Counts, unlike times, are the same on a busy machine and on an idle one. So a committed table of
//! them shows each change that makes an operation dearer.
//!
//! - A *worker* ([`work`]) is a process that measures one operation. It loads a prepared volume
//!   ([`volume`]), warms up, and repeats the operation. Each repetition runs inside
//!   [`region::counted_region`].
//! - The *driver* ([`drive`]) runs workers under callgrind, which collects costs inside that
//!   function only. So preparation does not count, and no client requests are needed.
//! - [`profile`] reads what callgrind wrote, and [`table`] holds the results. [`page`] writes them
//!   as a page, and [`check`] compares them with earlier ones.

pub mod allocations;
pub mod check;
pub mod drive;
pub mod medium;
pub mod operations;
pub mod page;
pub mod platform;
pub mod profile;
pub mod region;
pub mod stack;
pub mod table;
pub mod volume;
pub mod work;

/// What stops the program: one line for its user.
pub type Result<T> = std::result::Result<T, String>;
