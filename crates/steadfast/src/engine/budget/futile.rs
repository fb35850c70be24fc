//! What there was no space for, and checkpoints that were made for it without success.

use crate::engine::keyspace::SpaceClass;

/// What there was no space for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shortage {
    /// A change of the tree. Blocks that it needs after a checkpoint, beside what its class must
    /// leave, if they were counted.
    Change(SpaceClass, Option<u64>),
    /// A number of data blocks, for a request as a whole.
    Data(SpaceClass, u64),
    /// A snapshot, which needs the room for removals under it.
    Snapshot,
}

impl Shortage {
    /// The class of space that it may use.
    pub fn class(self) -> SpaceClass {
        match self {
            Shortage::Change(class, _) | Shortage::Data(class, _) => class,
            Shortage::Snapshot => SpaceClass::Normal,
        }
    }

    /// Blocks, as far as they are known: what was not counted may need any number.
    fn blocks(self) -> u64 {
        match self {
            Shortage::Change(_, blocks) => blocks.unwrap_or(u64::MAX),
            Shortage::Data(_, blocks) => blocks,
            Shortage::Snapshot => u64::MAX,
        }
    }

    /// The place of its kind in [`FutileCheckpoints`]. A removal has none.
    fn place(self) -> Option<usize> {
        match self {
            Shortage::Change(SpaceClass::Normal, _) => Some(0),
            Shortage::Change(SpaceClass::Rewrite, _) => Some(1),
            Shortage::Change(SpaceClass::Freeing, _) => None,
            Shortage::Data(SpaceClass::Normal | SpaceClass::Freeing, _) => Some(2),
            Shortage::Data(SpaceClass::Rewrite, _) => Some(3),
            Shortage::Snapshot => Some(4),
        }
    }
}

/// A checkpoint that freed too little.
#[derive(Debug, Clone, Copy)]
struct Futile {
    /// Blocks that there was room for after it.
    room: u64,
    /// Blocks that were wanted.
    blocks: u64,
}

/// An entry that rules out no checkpoint.
const NONE: Futile = Futile { room: 0, blocks: u64::MAX };

impl Futile {
    /// Whether this entry rules out every checkpoint that `other` rules out.
    fn covers(&self, other: &Futile) -> bool {
        self.room >= other.room && self.blocks <= other.blocks
    }
}

/// How many are remembered for each kind: two needs may take turns, each with the larger room or
/// the smaller need.
const REMEMBERED: usize = 3;

/// Checkpoints that freed too little: the last ones for each kind of [`Shortage`], newest first.
/// None of them covers another one.
#[derive(Debug, Clone, Copy)]
pub struct FutileCheckpoints {
    /// Whether one was made since the last [`note`](Self::note).
    made: bool,
    last: [[Futile; REMEMBERED]; 5],
}

impl Default for FutileCheckpoints {
    fn default() -> FutileCheckpoints {
        FutileCheckpoints { made: false, last: [[NONE; REMEMBERED]; 5] }
    }
}

impl FutileCheckpoints {
    /// A checkpoint is made for want of space.
    pub fn begin(&mut self) {
        self.made = true;
    }

    /// Whether a checkpoint for this would free too little, too: as much or more is wanted, and
    /// there are no more than `room` blocks for it.
    pub fn again(&self, wanted: Shortage, room: u64) -> bool {
        let this = Futile { room, blocks: wanted.blocks() };
        let last = wanted.place().map(|place| &self.last[place]);
        last.is_some_and(|last| last.iter().any(|futile| futile.room > 0 && futile.covers(&this)))
    }

    /// Notes that there was no space after the last checkpoint, with room for `room` blocks.
    pub fn note(&mut self, wanted: Shortage, room: u64) {
        if core::mem::take(&mut self.made)
            && let Some(place) = wanted.place()
        {
            let this = Futile { room: room.max(1), blocks: wanted.blocks() };
            let last = &mut self.last[place];
            // The new one takes the first place that is empty or that it covers, or the oldest.
            let covered = last.iter().position(|old| this.covers(old));
            last[..=covered.unwrap_or(REMEMBERED - 1)].rotate_right(1);
            last[0] = this;
            for old in &mut last[1..] {
                if this.covers(old) {
                    *old = NONE;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(wanted: Shortage, room: u64) -> FutileCheckpoints {
        let mut futile = FutileCheckpoints::default();
        futile.begin();
        futile.note(wanted, room);
        futile
    }

    #[test]
    fn only_as_much_or_more_in_no_more_room_is_in_vain_again() {
        let futile = noted(Shortage::Change(SpaceClass::Normal, Some(60)), 50);
        let again = |needed, room| futile.again(Shortage::Change(SpaceClass::Normal, needed), room);
        assert!(again(Some(60), 50) && again(Some(70), 40) && again(None, 50));
        assert!(!again(Some(59), 50) && !again(Some(60), 51));
        assert!(!futile.again(Shortage::Data(SpaceClass::Normal, 60), 50));
        let removal = Shortage::Change(SpaceClass::Freeing, Some(60));
        assert!(!noted(removal, 50).again(removal, 50));
    }

    #[test]
    fn two_needs_that_take_turns_are_both_remembered() {
        let mut futile = FutileCheckpoints::default();
        let change = |needed| Shortage::Change(SpaceClass::Normal, Some(needed));
        for (needed, room) in [(60, 100), (50, 99)] {
            assert!(!futile.again(change(needed), room));
            futile.begin();
            futile.note(change(needed), room);
        }
        assert!(futile.again(change(60), 100) && futile.again(change(50), 99));
        assert!(!futile.again(change(59), 100));
        // One that covers both leaves places for others.
        for (needed, room) in [(50, 100), (40, 60), (30, 50)] {
            futile.begin();
            futile.note(change(needed), room);
        }
        for (needed, room) in [(50, 100), (40, 60), (30, 50)] {
            assert!(futile.again(change(needed), room) && !futile.again(change(needed), room + 1));
        }
    }

    #[test]
    fn what_was_in_vain_for_a_snapshot_says_nothing_about_writes() {
        let futile = noted(Shortage::Snapshot, 1000);
        assert!(futile.again(Shortage::Snapshot, 900));
        assert!(!futile.again(Shortage::Change(SpaceClass::Normal, None), 900));
        assert!(!futile.again(Shortage::Data(SpaceClass::Normal, 800), 900));
    }

    #[test]
    fn without_a_checkpoint_nothing_was_in_vain() {
        let mut futile = FutileCheckpoints::default();
        futile.note(Shortage::Snapshot, 1000);
        assert!(!futile.again(Shortage::Snapshot, 1000));
    }
}
