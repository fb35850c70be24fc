//! Everything that a seed decides before the first operation: the medium, the format, the
//! transaction mask.

use steadfast::{FormatOptions, TransactionMask};

use crate::bug::Bug;
use crate::medium::MediumProfile;
use crate::random::Random;
use crate::tape::{Discards, Lie};

/// Which operations are likely.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// All operations.
    Mixed,
    /// Creating, linking, renaming, removing.
    Names,
    /// Writing, truncating, allocating, copying.
    Data,
    /// Writing until the volume is full, and beyond that.
    Full,
    /// Few operations between transaction points, many remounts and rollbacks.
    Transactions,
}

impl Profile {
    /// Every profile with its name on the command line.
    pub const ALL: [(&'static str, Profile); 5] = [
        ("mixed", Profile::Mixed),
        ("names", Profile::Names),
        ("data", Profile::Data),
        ("full", Profile::Full),
        ("transactions", Profile::Transactions),
    ];

    /// The profile with this name.
    pub fn from_name(name: &str) -> Option<Profile> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, profile)| *profile)
    }
}

/// Operations beyond those of an ordinary file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Extras {
    /// Taking, deleting and rolling back to snapshots.
    pub snapshots: bool,
    /// Atomic commands.
    pub holds: bool,
    /// Growing and shrinking the volume.
    pub resizes: bool,
    /// The transaction mask never changes.
    pub fixed_mask: bool,
    /// The medium held an earlier volume with the same uuid, on which the same operations were
    /// done.
    pub used_medium: bool,
    /// Another node keeps deltas of what is not durable.
    pub deltas: bool,
}

/// The parameters of one test.
#[derive(Debug, Clone)]
pub struct World {
    /// The seed of all choices.
    pub seed: u64,
    /// Which operations are likely.
    pub profile: Profile,
    /// Size of the medium, bytes.
    pub size: u64,
    /// Atomic unit of the medium, bytes.
    pub atomic_unit: u32,
    /// The possible contents after a power cut.
    pub medium: MediumProfile,
    /// Whether the medium wants to know which blocks become free, and when.
    pub discards: Discards,
    /// Number of programs that use the volume at once, each with its own open files. Their order is
    /// drawn.
    pub clients: u8,
    /// The operations beyond those of an ordinary file system.
    pub extras: Extras,
    /// How the volume is formatted.
    pub format: FormatOptions,
    /// Memory for the cache, bytes.
    pub cache_size: usize,
    /// A medium that does not keep its promises, for testing the tests.
    pub lie: Lie,
    /// A deliberate bug between the test and the volume, for testing the tests.
    pub bug: Bug,
}

impl World {
    /// Draws the parameters.
    pub fn new(seed: u64, profile: Profile) -> World {
        let mut random = Random::new(seed).fork(1);
        let block_size = random.pick(&[128, 256, 512, 512, 1024, 4096, 4096, 4096, 16_384, 65_536]);
        let small = if profile == Profile::Full { 2 } else { 6 };
        // From the smallest possible volume to 8 MiB.
        let blocks = if random.chance(1, small) {
            random.between(64, 160)
        } else {
            random.between(200, 4096)
        };
        let size_max = if profile == Profile::Full { 1 << 20 } else { 8 << 20 };
        let size = (blocks * u64::from(block_size))
            .clamp(16 << 10, size_max.max(64 * u64::from(block_size)));
        let node_size = random.chance(1, 2).then(|| {
            let least = block_size.max(512);
            random.pick(&[512, 1024, 2048, 4096, 16_384]).max(least)
        });
        let log_size = match random.below(4) {
            0 => Some(0),
            1 => Some(u64::from(block_size) * random.between(4, 32)),
            _ => None,
        };
        let format = FormatOptions {
            size: None,
            block_size,
            node_size,
            metadata_copies: random.pick(&[None, None, Some(1), Some(2)]),
            log_size,
            uuid: random.bits().to_le_bytes().repeat(2).try_into().unwrap_or_default(),
            label: "lab".to_owned(),
            mask: mask(&mut random),
            timer_ms: random.pick(&[100, 1000, 5000]),
            ..FormatOptions::default()
        };
        let atomic_unit = match random.below(3) {
            0 => 1,
            1 => block_size.min(512),
            _ => block_size,
        };
        // A unit of one byte is legal, but then every single byte of a request may survive alone.
        let atomic_unit = if atomic_unit == 1 { block_size.min(128) } else { atomic_unit };
        let cache_size = random.pick(&[64 << 10, 256 << 10, 1 << 20, 8 << 20]);
        let clients = random.pick(&[1, 1, 2, 3, 4]);
        let extras = Extras::default();
        let medium = MediumProfile::SECTOR;
        let (lie, bug) = (Lie::None, Bug::None);
        let discards = Discards::Never;
        World {
            seed,
            profile,
            size,
            atomic_unit,
            medium,
            discards,
            clients,
            extras,
            format,
            cache_size,
            lie,
            bug,
        }
    }

    /// The same world with all features of a volume. Every second world has snapshots, every second
    /// has atomic commands, and every third changes the size. With size changes, the volume begins
    /// on a part of the medium. In every third world the medium held an earlier volume. In every
    /// fourth world another node keeps deltas. Every second world wants discards, and half of these
    /// want them early.
    #[must_use]
    pub fn with_extras(mut self) -> World {
        let one_in = |label, count| Random::new(self.seed).fork(label).chance(1, count);
        self.extras = Extras {
            snapshots: one_in(6, 2),
            holds: one_in(7, 2),
            resizes: one_in(8, 3),
            ..self.extras
        };
        self.extras.used_medium = one_in(11, 3);
        self.extras.deltas = one_in(13, 4);
        if self.extras.resizes {
            self = self.with_resizes();
        }
        let wanted =
            [Discards::Never, Discards::Never, Discards::AfterCheckpoints, Discards::Early];
        self.discards = Random::new(self.seed).fork(10).pick(&wanted);
        let mask = self.format.mask;
        self.with_mask(mask)
    }

    /// The same world with this mask. Where another node keeps deltas, it has the timer, too: without
    /// it there are none.
    #[must_use]
    pub fn with_mask(mut self, mask: TransactionMask) -> World {
        self.format.mask = match self.extras.deltas {
            true => mask.union(TransactionMask::TIMER),
            false => mask,
        };
        self
    }

    /// The same world with changes of the size. The volume may begin smaller than its medium.
    #[must_use]
    pub fn with_resizes(mut self) -> World {
        self.extras.resizes = true;
        let part = Random::new(self.seed).fork(9).between(2, 8);
        self.format.size = Some(self.size / 8 * part);
        self
    }

    /// The same world on a medium of this kind. Blocks smaller than the medium's unit grow to the
    /// unit.
    #[must_use]
    pub fn on(mut self, medium: MediumProfile) -> World {
        self.medium = medium;
        if let Some(unit) = medium.unit {
            self.atomic_unit = unit;
            if self.format.block_size < unit {
                let blocks = self.size / u64::from(self.format.block_size);
                self.format.block_size = unit;
                self.size = (blocks * u64::from(unit)).min(8 << 20);
                self.format.node_size = self.format.node_size.map(|size| size.max(unit));
                self.format.log_size =
                    self.format.log_size.map(|size| size * u64::from(unit) / 512);
            }
        }
        self
    }

    /// The same world with the smallest cache and nodes, and a log that changes more nodes than
    /// that cache holds. Operations and replays write nodes out without a checkpoint.
    #[must_use]
    pub fn with_little_memory(mut self) -> World {
        let copies = self.format.metadata_copies;
        self.format = FormatOptions {
            block_size: 512,
            node_size: Some(512),
            metadata_copies: copies,
            log_size: Some(128 << 10),
            uuid: self.format.uuid,
            mask: self.format.mask,
            ..FormatOptions::default()
        };
        self.size = 2 << 20;
        self.atomic_unit = 512;
        self.cache_size = 0;
        self
    }

    /// A simple world for short sequences: 512-byte blocks, a quarter of a MiB.
    pub fn plain(seed: u64, mask: TransactionMask) -> World {
        let mut world = World::new(seed, Profile::Mixed);
        world.size = 256 << 10;
        world.atomic_unit = 512;
        world.clients = 1;
        world.cache_size = 1 << 20;
        world.format =
            FormatOptions { block_size: 512, mask, uuid: [7; 16], ..FormatOptions::default() };
        world
    }
}

impl std::fmt::Display for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "seed {} ({:?}, {} clients): medium {} of {} bytes with units of {}, volume of {:?}, blocks of {}, nodes of {:?}, copies {:?}, log {:?}, mask {:#x}, timer {} ms, cache {}",
            self.seed,
            self.profile,
            self.clients,
            self.medium.name,
            self.size,
            self.atomic_unit,
            self.format.size,
            self.format.block_size,
            self.format.node_size,
            self.format.metadata_copies,
            self.format.log_size,
            self.format.mask.0,
            self.format.timer_ms,
            self.cache_size
        )
    }
}

/// A transaction mask: no event, the default, every event, or any set.
pub fn mask(random: &mut Random) -> TransactionMask {
    match random.below(6) {
        0 => TransactionMask::MANUAL,
        1 | 2 => TransactionMask::DEFAULT,
        3 => TransactionMask::ALL,
        // Only a few events.
        4 => TransactionMask(
            (random.bits() & random.bits() & random.bits()) as u32 & TransactionMask::ALL.0,
        ),
        _ => TransactionMask(random.bits() as u32 & TransactionMask::ALL.0),
    }
}
