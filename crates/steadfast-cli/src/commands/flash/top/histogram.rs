//! The distribution of erase counts: the number of blocks in each of a few ranges.

use serde::Serialize;

/// Maximum number of ranges.
pub const BARS_MAX: u32 = 24;

/// A range of erase counts, and the number of blocks in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Bar {
    /// Fewest erasures.
    pub erases_min: u32,
    /// Most erasures.
    pub erases_max: u32,
    /// Good blocks in this range.
    pub blocks: u32,
}

/// Ranges of equal width from the fewest to the most erasures, at most `bars` of them. `erases` is
/// in rising order.
pub fn bars(erases: &[u32], bars: u32) -> Vec<Bar> {
    let (Some(least), Some(most)) = (erases.first().copied(), erases.last().copied()) else {
        return Vec::new();
    };
    let width = (most - least + 1).div_ceil(bars.max(1)).max(1);
    let mut found: Vec<Bar> = (0..(most - least + 1).div_ceil(width))
        .map(|bar| {
            let erases_min = least + bar * width;
            Bar { erases_min, erases_max: erases_min + width - 1, blocks: 0 }
        })
        .collect();
    for count in erases {
        if let Some(bar) = found.get_mut(((count - least) / width) as usize) {
            bar.blocks += 1;
        }
    }
    found
}

/// A range as text: `3`, `10-19`.
pub fn range(bar: &Bar) -> String {
    if bar.erases_min == bar.erases_max {
        bar.erases_min.to_string()
    } else {
        format!("{}-{}", bar.erases_min, bar.erases_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_is_in_one_range() {
        let erases: Vec<u32> = (0..500_u32).map(|number| 1000 + number / 7).collect();
        for most in [1, 2, 10, 24] {
            let found = bars(&erases, most);
            assert!(found.len() <= most as usize && !found.is_empty());
            assert_eq!(found.iter().map(|bar| bar.blocks).sum::<u32>(), 500);
            assert_eq!(found[0].erases_min, 1000);
            assert!(found.windows(2).all(|pair| pair[0].erases_max + 1 == pair[1].erases_min));
        }
        assert_eq!(bars(&[7, 7], 24), [Bar { erases_min: 7, erases_max: 7, blocks: 2 }]);
        assert_eq!(bars(&[], 24), []);
        assert_eq!(bars(&[0, (1 << 19) - 1], 24).len(), 24);
    }
}
