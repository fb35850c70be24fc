//! The three behaviours of a mount. One word says when changes become durable.
//!
//! A behaviour is a transaction mask, a timer, and the choice whether the kernel caches writes.
//! Each of the three can also be set alone. The volume keeps the mask and the timer, so a behaviour
//! stays until another one is requested. Both belong to the volume and not to the medium below it,
//! so they work on every medium.

use std::time::Duration;

use steadfast::TransactionMask;

use crate::interval;

/// The bound of `background` when the option gives none.
const BOUND_DEFAULT: Duration = Duration::from_secs(1);

/// When changes become durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// The kernel collects writes; the timer and fsync make things durable.
    Asynchronous,
    /// Data goes to the medium as it is written, and a transaction point follows within the bound.
    Background {
        /// Most milliseconds from a change to the start of its transaction point.
        bound_ms: u32,
    },
    /// Every call that makes a change returns only when the change is durable.
    Synchronous,
}

impl Behaviour {
    /// The behaviour that a mount option selects; `None` if the option is a different one.
    ///
    /// # Errors
    /// A message for the user: the value makes no sense.
    pub fn from_option(name: &str, value: Option<&str>) -> Result<Option<Behaviour>, String> {
        match (name, value) {
            ("asynchronous", None) => Ok(Some(Behaviour::Asynchronous)),
            ("synchronous", None) => Ok(Some(Behaviour::Synchronous)),
            ("asynchronous" | "synchronous", Some(_)) => {
                Err(format!("mount option '{name}' takes no value"))
            }
            ("background", None) => {
                Ok(Some(Behaviour::Background { bound_ms: BOUND_DEFAULT.as_millis() as u32 }))
            }
            ("background", Some(bound)) => {
                Ok(Some(Behaviour::Background { bound_ms: interval::parse_ms(bound)? }))
            }
            _ => Ok(None),
        }
    }

    /// The events that set transaction points.
    pub fn mask(self) -> TransactionMask {
        match self {
            Behaviour::Asynchronous | Behaviour::Background { .. } => TransactionMask::DEFAULT,
            Behaviour::Synchronous => TransactionMask::ALL,
        }
    }

    /// Whether changes become durable with this mask when the behaviour says so.
    pub fn keeps_its_word(self, mask: TransactionMask) -> bool {
        match self {
            Behaviour::Asynchronous => true,
            Behaviour::Background { .. } => mask.contains(TransactionMask::TIMER),
            Behaviour::Synchronous => mask.contains(TransactionMask::ALL),
        }
    }

    /// The timer interval to set, milliseconds; `None` leaves the timer unchanged.
    pub fn timer_ms(self) -> Option<u32> {
        match self {
            Behaviour::Background { bound_ms } => Some(bound_ms),
            Behaviour::Asynchronous | Behaviour::Synchronous => None,
        }
    }

    /// Whether the kernel may delay writes.
    pub fn write_back(self) -> bool {
        self == Behaviour::Asynchronous
    }
}
