//! The choices of the writes that survive a power cut.

use crate::medium::MediumProfile;
use crate::random::Random;

/// The surviving writes, out of those that were not durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survival {
    /// Every issued write, including the one in flight.
    All,
    /// No write that was not durable.
    Nothing,
    /// Every completed write; the write in flight is lost.
    Completed,
    /// Only the write in flight; writes completed before it but not flushed are lost.
    InFlightOnly,
    /// Every completed write, and the front part of the write in flight.
    Torn(u64),
    /// Whole requests are kept or lost at random (reordering).
    Requests(u64),
    /// Every issued write except one (a single lost write).
    AllButOne(u64),
    /// The requests in order, up to one of them.
    Prefix(u64),
    /// Every atomic unit separately: kept in one of its versions, or lost.
    Units(u64),
    /// Every completed write; each stretch of the write in flight is new, lost or damaged. For
    /// media that leave damage.
    Damaged(u64),
    /// Every unit separately: in one of its versions, lost, or damaged with its stretch. For media
    /// that leave damage.
    Rubble(u64),
    /// The units in the order of writing, up to one of them, which is damaged. For media that leave
    /// damage.
    Programmed(u64),
}

impl Survival {
    /// The choices tried at every cut, whatever the seed.
    pub const FIXED: [Survival; 3] = [Survival::All, Survival::Nothing, Survival::InFlightOnly];

    /// A random choice out of those that the medium can leave.
    pub fn random(random: &mut Random, medium: &MediumProfile) -> Survival {
        let seed = random.bits();
        if medium.is_rough() && random.chance(2, 3) {
            return match random.below(4) {
                0 => Survival::Damaged(seed),
                1 => Survival::Programmed(seed),
                2 if medium.in_order => Survival::Programmed(seed),
                _ => Survival::Rubble(seed),
            };
        }
        match random.below(7) {
            0 => Survival::Completed,
            1 => Survival::Torn(seed),
            2 => Survival::Requests(seed),
            3 => Survival::AllButOne(seed),
            4 => Survival::Prefix(seed),
            _ => Survival::Units(seed),
        }
    }

    /// The number that decides the details.
    pub(super) fn seed(self) -> u64 {
        match self {
            Survival::Torn(seed)
            | Survival::Requests(seed)
            | Survival::AllButOne(seed)
            | Survival::Prefix(seed)
            | Survival::Units(seed)
            | Survival::Damaged(seed)
            | Survival::Rubble(seed)
            | Survival::Programmed(seed) => seed,
            Survival::All | Survival::Nothing | Survival::Completed | Survival::InFlightOnly => 0,
        }
    }
}
