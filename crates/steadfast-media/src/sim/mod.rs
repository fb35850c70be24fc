//! The simulator: a medium for tests that records requests, fails and loses power on demand.
//!
//! # State
//!
//! - the *current* image, which reads return;
//! - the *durable* image, as of the last flush;
//! - the writes *in flight*: those after the last flush, in order. A power cut may keep, lose or
//!   tear each of them.
//!
//! [`SimMedium::power_cut`] makes a new image from the last two and does not affect the run. Images
//! share their pages, so a cut after every request of a run costs little even with 64 MiB images:
//!
//! ```
//! # use steadfast_media::{Medium, SimMedium, SimOptions};
//! # fn run(medium: &impl Medium) { let _ = medium.write(0, &[1; 512]); let _ = medium.flush(); }
//! # fn contract_holds(_: impl Medium) -> bool { true }
//! let sim = SimMedium::new(SimOptions::disk(64 << 20));
//! run(&sim);
//! for seed in 0..10 {
//!     assert!(contract_holds(sim.power_cut(seed)));
//! }
//! ```
//!
//! The other way interrupts each request in turn with a power cut, until a run completes:
//!
//! ```
//! # use steadfast_media::{Medium, SimMedium, SimOptions};
//! # fn run(medium: &impl Medium) { let _ = medium.write(0, &[1; 512]); let _ = medium.flush(); }
//! # fn contract_holds(_: impl Medium) -> bool { true }
//! for request in 0.. {
//!     let sim = SimMedium::new(SimOptions::disk(1 << 20));
//!     sim.arm_power_cut(request);
//!     run(&sim);
//!     if !sim.is_off() {
//!         break;
//!     }
//!     assert!(contract_holds(sim.power_cut(request)));
//! }
//! ```
//!
//! # Guarantees
//!
//! The same requests, faults and seeds give the same images, byte for byte. A request that is not
//! aligned or not inside the medium is a bug of the caller and panics. No other medium does so.

mod fault;
mod in_flight;
mod medium;
mod options;
mod record;
mod state;

pub use fault::{Action, Fault};
pub use in_flight::Survival;
pub use medium::SimMedium;
pub use options::{Recording, SimOptions};
pub use record::{Counters, Outcome, Record};
