//! The three behaviours of a mount: what is durable when, in one word.
//!
//! Each is a transaction mask, a timer and a cache of the kernel that is used or not; all three can
//! be set by themselves too. Mask and timer are kept in the volume, so a behaviour stays until
//! another one is asked for. They are a matter of the volume and not of what is below it, so they
//! work on every medium.

use std::time::Duration;

use steadfast::TransactionMask;

use crate::interval;

/// The bound of `background` where no other one is given.
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
    /// Every call that changes anything is durable when it returns.
    Synchronous,
}

impl Behaviour {
    /// The behaviour that a mount option asks for; `None` where it is another option.
    ///
    /// # Errors
    /// A line for people: a value that makes no sense.
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

    /// The interval of the timer to set, milliseconds; `None`: it stays as it is.
    pub fn timer_ms(self) -> Option<u32> {
        match self {
            Behaviour::Background { bound_ms } => Some(bound_ms),
            Behaviour::Asynchronous | Behaviour::Synchronous => None,
        }
    }

    /// Whether the kernel may keep written data back.
    pub fn write_back(self) -> bool {
        self == Behaviour::Asynchronous
    }
}
