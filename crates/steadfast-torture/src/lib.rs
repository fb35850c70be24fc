//! The lab: a model file system, random operations, and power cuts at every I/O.
//!
//! docs/testing/power-cuts.md explains the method. The [`model`] defines the correct behaviour. A
//! [`session`] does every operation on a volume and on the model. The [`tape`] under the volume
//! records every I/O. The [`ledger`] knows the states that a power cut may leave. [`powercut`]
//! makes the image after a cut at each I/O, opens it and judges it. [`sabotage`] and [`toy`] test
//! the tests.

pub mod bounded;
pub mod bug;
pub mod compare;
pub mod cut;
pub mod digest;
pub mod fault;
pub mod faults;
pub mod fill;
pub mod flash;
pub mod generate;
pub mod hostile;
pub mod image;
pub mod ledger;
pub mod linear;
pub mod medium;
pub mod minimise;
pub mod model;
pub mod operation;
pub mod platform;
pub mod powercut;
pub mod random;
pub mod rot;
pub mod sabotage;
pub mod schedule;
pub mod session;
pub mod shorthand;
pub mod subject;
pub mod sweep;
pub mod tape;
pub mod torture;
pub mod toy;
pub mod triggers;
pub mod trouble;
pub mod world;
