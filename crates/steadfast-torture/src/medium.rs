//! The possible contents of media of several kinds after a power cut, as data.
//!
//! All kinds share these rules. Data covered by a completed flush stays, and so does a completed
//! forced write. Units written since then survive independently of each other, in any order. The
//! kinds differ in the size of the unit, and in the possible contents of a unit whose write the cut
//! interrupted.
//!
//! Steadfast requires "old or new" ([`Geometry`](steadfast_media::Geometry)). The tests also cover
//! media that leave garbage in interrupted units, because real media do that.

/// The contents of a unit that was written since it was last durable, apart from the values it was
/// given and the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remains {
    /// The front of one value and the back of another.
    Mix,
    /// Any bytes: noise, all ones (erased), all zeros, or bits of the old and the new value
    /// together.
    Garbage,
    /// Unreadable: a read is an error of the medium until the unit is written again.
    Unreadable,
}

/// A kind of medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MediumProfile {
    /// Its name on the command line.
    pub name: &'static str,
    /// The media that it represents.
    pub about: &'static str,
    /// The stated atomic unit, which survives whole, bytes; `None`: the world draws it, at most a
    /// block.
    pub unit: Option<u32>,
    /// Possible contents of interrupted units; empty means old or new.
    pub remains: &'static [Remains],
    /// Damage covers aligned stretches of this length, bytes (never more than the request); 0 means
    /// whole requests.
    pub extent: u64,
    /// A forced write in flight leaves every unit old or new, even if other writes leave garbage
    /// (eMMC reliable write).
    pub forced_is_reliable: bool,
    /// Units reach the medium in the order in which they were issued. A cut leaves all units before
    /// one, damages that one, and leaves nothing after it. Combinations in any order are also
    /// tried.
    pub in_order: bool,
}

const ANY: &[Remains] = &[Remains::Mix, Remains::Garbage];

impl MediumProfile {
    /// Any unit from 128 bytes to a block, each old or new. This is what the contract requires of a
    /// medium.
    pub const SECTOR: MediumProfile = MediumProfile {
        name: "sector",
        about: "units of 128 bytes to one block, old or new",
        unit: None,
        remains: &[],
        extent: 0,
        forced_is_reliable: true,
        in_order: false,
    };

    /// Every profile.
    pub const ALL: [MediumProfile; 8] = [
        Self::SECTOR,
        MediumProfile {
            name: "disk-512",
            about: "disk with sectors of 512 bytes and a volatile cache, sectors old or new",
            unit: Some(512),
            ..Self::SECTOR
        },
        MediumProfile {
            name: "disk-4096",
            about: "disk with sectors of 4096 bytes and a volatile cache, sectors old or new",
            unit: Some(4096),
            ..Self::SECTOR
        },
        MediumProfile {
            name: "emmc",
            about: "eMMC: units of 4096 bytes; writes in flight or in the cache leave garbage in stretches of an \
                    erase group or in the whole request; forced writes are reliable ones",
            unit: Some(4096),
            remains: ANY,
            extent: 32 << 10,
            forced_is_reliable: true,
            in_order: false,
        },
        MediumProfile {
            name: "sd-512",
            about: "card of no known make: units of 512 bytes, anything in any request that was not flushed",
            unit: Some(512),
            remains: ANY,
            extent: 0,
            forced_is_reliable: false,
            in_order: false,
        },
        MediumProfile {
            name: "nand-2048",
            about: "NAND pages of 2048 bytes, programmed in order; the page in flight holds garbage, neighbours do not",
            unit: Some(2048),
            remains: ANY,
            extent: 2048,
            forced_is_reliable: false,
            in_order: true,
        },
        MediumProfile {
            name: "disk-ecc",
            about: "disk with sectors of 512 bytes; a sector whose writing was interrupted gives a read error",
            unit: Some(512),
            remains: &[Remains::Unreadable],
            extent: 512,
            forced_is_reliable: false,
            in_order: false,
        },
        MediumProfile {
            name: "nand-ecc",
            about: "NAND pages of 2048 bytes, programmed in order; the page in flight holds garbage or cannot be corrected: \
                    a read error",
            unit: Some(2048),
            remains: &[Remains::Unreadable, Remains::Garbage, Remains::Unreadable],
            extent: 2048,
            forced_is_reliable: false,
            in_order: true,
        },
    ];

    /// The profile with this name.
    pub fn from_name(name: &str) -> Option<MediumProfile> {
        Self::ALL.into_iter().find(|profile| profile.name == name)
    }

    /// The profile of a seed if none is requested: all in turn. There are eight, and five profiles
    /// of operations, so each meets each.
    pub fn of_seed(seed: u64) -> MediumProfile {
        Self::ALL[(seed % Self::ALL.len() as u64) as usize]
    }

    /// Whether an interrupted unit may hold contents that it was never given.
    pub fn is_rough(&self) -> bool {
        !self.remains.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_has_a_name_of_its_own_and_a_sound_unit() {
        for profile in MediumProfile::ALL {
            assert_eq!(MediumProfile::from_name(profile.name), Some(profile));
            let unit = profile.unit.unwrap_or(512);
            assert!(unit.is_power_of_two() && profile.extent.is_multiple_of(u64::from(unit)));
        }
        assert_eq!(MediumProfile::from_name("drum"), None);
    }
}
