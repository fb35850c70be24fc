//! [`Layer`]: changes between two flush points that are not on the disk yet.

use std::collections::BTreeMap;

use crate::array::BLOCK;

/// Most holes of a layer. A discard is advice: further ones are dropped.
pub(super) const HOLES_MAX: usize = 4096;

/// Changes of the medium, the last one of each block. Holes are applied first, then writes.
#[derive(Debug, Default)]
pub(super) struct Layer {
    pub(super) writes: BTreeMap<u32, Box<[u8; BLOCK]>>,
    /// First block and count.
    pub(super) holes: Vec<(u32, u32)>,
}

impl Layer {
    /// Bytes of the blocks in it.
    pub(super) fn bytes(&self) -> usize {
        self.writes.len() * BLOCK
    }

    pub(super) fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.holes.is_empty()
    }

    /// Overwrites blocks from `first` on.
    pub(super) fn write(&mut self, first: u32, data: &[u8]) {
        for (index, bytes) in data.as_chunks::<BLOCK>().0.iter().enumerate() {
            self.writes.insert(first + index as u32, Box::new(*bytes));
        }
    }

    /// Discards blocks from `first` on.
    pub(super) fn discard(&mut self, first: u32, count: u32) {
        let end = first.saturating_add(count);
        // Looks up the blocks of the layer: a discard can be as long as the medium, but the layer
        // is small.
        while let Some(block) = self.writes.range(first..end).next().map(|(block, _)| *block) {
            self.writes.remove(&block);
        }
        if let Some((start, length)) = self.holes.last_mut()
            && *start + *length == first
        {
            *length += count;
        } else if self.holes.len() < HOLES_MAX {
            self.holes.push((first, count));
        }
    }

    /// Merges a later layer into this one.
    pub(super) fn absorb(&mut self, later: Layer) {
        later.holes.into_iter().for_each(|(first, count)| self.discard(first, count));
        if self.writes.is_empty() {
            self.writes = later.writes;
        } else {
            self.writes.extend(later.writes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_change_of_a_block_counts() {
        let block = |fill: u8| vec![fill; BLOCK];
        let mut first = Layer::default();
        first.write(3, &[block(1), block(2), block(3)].concat());
        first.discard(4, 1);
        assert_eq!(first.writes.keys().copied().collect::<Vec<_>>(), [3, 5]);
        let mut later = Layer::default();
        later.discard(0, 4);
        later.write(2, &block(9));
        first.absorb(later);
        assert_eq!(first.writes.keys().copied().collect::<Vec<_>>(), [2, 5]);
        assert_eq!(first.holes, [(4, 1), (0, 4)]);
        assert_eq!(first.bytes(), 2 * BLOCK);
    }

    #[test]
    fn holes_beyond_the_limit_are_left_out_and_their_writes_forgotten() {
        let mut layer = Layer::default();
        layer.write(9, &[7; BLOCK]);
        (0..2 * HOLES_MAX as u32).for_each(|hole| layer.discard(10 + 2 * hole, 1));
        layer.discard(9, 1);
        assert_eq!(layer.holes.len(), HOLES_MAX);
        assert!(layer.writes.is_empty());
    }
}
