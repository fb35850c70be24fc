//! Properties of the simulated hardware.

/// How much of each request [`SimMedium::records`](crate::SimMedium::records) contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recording {
    /// Nothing; the counters still run.
    Off,
    /// Operation, position and result.
    Requests,
    /// The bytes of writes too.
    Payload,
}

/// Properties of the simulated hardware. Start from a profile and change fields.
#[derive(Debug, Clone)]
pub struct SimOptions {
    /// Length of the medium in bytes; a multiple of the atomic unit.
    pub size: u64,
    /// The atomic unit in bytes: a power of two from 1 to 65,536.
    pub atomic_unit: u32,
    /// Value of discarded bytes after a discard; `None` leaves them unchanged.
    pub discard_fill: Option<u8>,
    /// Atomic units of writes in flight may hold garbage after a power cut, as on hardware that
    /// breaks its promise. This is outside Steadfast's contract: for tests of error detection, not
    /// of survival.
    pub garbage_in_flight: bool,
    /// Flushes and FUA writes return at once and make nothing durable. This tests the checkers.
    pub ignore_flushes: bool,
    /// What is recorded.
    pub recording: Recording,
    /// Seed of all random choices in the run itself (the units that a failing write leaves).
    pub seed: u64,
}

impl SimOptions {
    /// A medium of `size` bytes with the given atomic unit; discarded bytes read as zeros.
    pub fn new(size: u64, atomic_unit: u32) -> Self {
        SimOptions {
            size,
            atomic_unit,
            discard_fill: Some(0),
            garbage_in_flight: false,
            ignore_flushes: false,
            recording: Recording::Requests,
            seed: 0,
        }
    }

    /// A disk with sectors of 512 bytes; it ignores discards.
    pub fn disk(size: u64) -> Self {
        SimOptions { discard_fill: None, ..Self::new(size, 512) }
    }

    /// A disk or solid-state drive with sectors of 4,096 bytes; discarded sectors read as zeros.
    pub fn disk_4k(size: u64) -> Self {
        Self::new(size, 4096)
    }

    /// An eMMC with sectors of 512 bytes; discarded sectors read as erased flash.
    pub fn emmc(size: u64) -> Self {
        SimOptions { discard_fill: Some(0xff), ..Self::new(size, 512) }
    }
}
