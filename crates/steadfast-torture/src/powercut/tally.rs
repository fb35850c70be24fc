//! The counts of sequences and power cuts.

/// The amount of work, and its outcome.
#[derive(Debug, Clone, Copy, Default)]
pub struct PowercutTally {
    /// Sequences.
    pub sequences: u64,
    /// Operations of the sequences.
    pub operations: u64,
    /// Power cuts (images after a cut that were opened and judged).
    pub cuts: u64,
    /// Cuts during the recovery from a cut, contained in `cuts`.
    pub recovery_cuts: u64,
    /// These cuts by depth: in the recovery, in the recovery from that, and so on.
    pub deep_cuts: [u64; 3],
    /// Cuts after which another node knew a state from its deltas, contained in `cuts`.
    pub told: u64,
    /// Further cuts that left an image already judged against the same states.
    pub repeated: u64,
    /// Operations that found no space.
    pub no_space: u64,
    /// Images at a later point than the last acknowledged one, because some of the writes in flight
    /// survived.
    pub later_points: u64,
    /// Worlds whose medium is too small for a volume.
    pub too_small: u64,
    /// Recoveries after which everything was deleted, and every block was free again.
    pub emptied: u64,
    /// Digest of all sequences together: operations, answers, I/Os, verdicts. It does not depend on
    /// the order of seeds.
    pub digest: u64,
}

impl PowercutTally {
    /// Adds another tally.
    pub fn add(&mut self, other: &PowercutTally) {
        self.sequences += other.sequences;
        self.operations += other.operations;
        self.cuts += other.cuts;
        self.recovery_cuts += other.recovery_cuts;
        for (sum, count) in self.deep_cuts.iter_mut().zip(other.deep_cuts) {
            *sum += count;
        }
        self.told += other.told;
        self.repeated += other.repeated;
        self.no_space += other.no_space;
        self.later_points += other.later_points;
        self.too_small += other.too_small;
        self.emptied += other.emptied;
        self.digest = self.digest.wrapping_add(other.digest);
    }
}

impl std::fmt::Display for PowercutTally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} sequences, {} operations ({} found no space), {} cuts ({} during recovery, {} during that, {} during that; {} with deltas of a node), \
             {} more left an image judged before, {} left a point in flight, {} recoveries emptied to the block, \
             {} worlds too small, digest {:016x}",
            self.sequences,
            self.operations,
            self.no_space,
            self.cuts,
            self.deep_cuts[0],
            self.deep_cuts[1],
            self.deep_cuts[2],
            self.told,
            self.repeated,
            self.later_points,
            self.emptied,
            self.too_small,
            self.digest,
        )
    }
}
