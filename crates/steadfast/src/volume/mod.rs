//! A volume: the copy-on-write tree, space, intent log and checkpoints, and the operations on it.

mod api;

pub use api::{Volume, VolumeInfo};
