//! What the simulated hardware is like.

/// How much of each request is kept in [`SimMedium::records`](crate::SimMedium::records).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recording {
    /// Nothing; the counters still run.
    Off,
    /// Kind, place and outcome.
    Requests,
    /// The bytes of writes, too.
    Payload,
}

/// The simulated hardware. Start from a profile and change fields.
#[derive(Debug, Clone)]
pub struct SimOptions {
    /// Length of the medium in bytes; a multiple of the atomic unit.
    pub size: u64,
    /// The atomic unit in bytes: a power of two from 1 to 65,536.
    pub atomic_unit: u32,
    /// What discarded bytes read as once the discard has happened; `None` leaves them as they were.
    pub discard_fill: Option<u8>,
    /// Atomic units of writes in flight may hold garbage after a power cut, as on hardware that
    /// breaks its promise. Outside Steadfast's contract: for tests of what is found out, not of
    /// what survives.
    pub garbage_in_flight: bool,
    /// Flushes and FUA writes return at once and make nothing durable: a medium that lies, to check
    /// the checkers.
    pub ignore_flushes: bool,
    /// What is recorded.
    pub recording: Recording,
    /// Seed of everything random in the run itself (which units a failing write leaves behind).
    pub seed: u64,
}

impl SimOptions {
    /// A medium of `size` bytes with the given atomic unit that forgets what is discarded.
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

    /// A disk with sectors of 512 bytes; discard is advice that it does not take.
    pub fn disk(size: u64) -> Self {
        SimOptions { discard_fill: None, ..Self::new(size, 512) }
    }

    /// A disk or solid-state drive with sectors of 4,096 bytes; discarded sectors read as zeros.
    pub fn disk_4k(size: u64) -> Self {
        Self::new(size, 4096)
    }

    /// An eMMC: sectors of 512 bytes; trimmed ones read as erased flash.
    pub fn emmc(size: u64) -> Self {
        SimOptions { discard_fill: Some(0xff), ..Self::new(size, 512) }
    }
}
