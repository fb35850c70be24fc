//! The choices of what survives a power cut.

use crate::medium::MediumProfile;
use crate::random::Random;

/// Which of the writes that were not durable survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survival {
    /// Everything issued, the one in flight included.
    All,
    /// Nothing that was not durable.
    Nothing,
    /// Everything completed; the write in flight is lost.
    Completed,
    /// Only the write in flight; everything completed before it but not flushed is lost.
    InFlightOnly,
    /// Everything completed and the front part of the write in flight.
    Torn(u64),
    /// Whole requests are kept or lost by coin (reordering).
    Requests(u64),
    /// Everything issued but one request (a single lost write).
    AllButOne(u64),
    /// The requests in order up to one of them.
    Prefix(u64),
    /// Every atomic unit by itself: kept in one of its versions, or lost.
    Units(u64),
    /// Everything completed; of the write in flight every stretch is new, lost or damaged. On media
    /// that leave damage.
    Damaged(u64),
    /// Every unit by itself: in one of its versions, lost, or damaged with its stretch. On media
    /// that leave damage.
    Rubble(u64),
    /// The units in the order in which they were written up to one of them, which is damaged. On
    /// media that leave damage.
    Programmed(u64),
}

impl Survival {
    /// The choices that are tried at every cut, whatever the seed.
    pub const FIXED: [Survival; 3] = [Survival::All, Survival::Nothing, Survival::InFlightOnly];

    /// A choice by chance, of those that the medium can leave.
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
