//! The order in which IOzone's tests visit the records of a file.

use super::super::content::below;

/// An order of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Pattern {
    /// From the first to the last.
    Forward,
    /// From the last to the first.
    Backward,
    /// Each record once, in an order drawn from the seed. IOzone before 3.3 drew each offset
    /// independently, so that some records came twice and others not at all. Later versions
    /// shuffle.
    Random,
    /// Each 17th record (IOzone's `-j`), from the first one on. Past the end, the order continues
    /// with the record after the previous start, until each was visited once.
    Stride(u64),
    /// Always the first record.
    Same,
}

impl Pattern {
    /// The visited records, in order; as many as the file has.
    pub fn records(self, count: u64, seed: u64) -> Vec<u64> {
        match self {
            Pattern::Forward => (0..count).collect(),
            Pattern::Backward => (0..count).rev().collect(),
            Pattern::Same => vec![0; usize::try_from(count).unwrap_or(0)],
            Pattern::Stride(stride) => {
                let stride = stride.max(1);
                (0..stride.min(count))
                    .flat_map(|start| (start..count).step_by(stride as usize))
                    .collect()
            }
            Pattern::Random => {
                let mut records: Vec<u64> = (0..count).collect();
                let mut state = seed;
                // The shuffle of Fisher and Yates.
                for place in (1..records.len()).rev() {
                    records.swap(place, below(&mut state, place as u64 + 1) as usize);
                }
                records
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exact_records() {
        assert_eq!(Pattern::Forward.records(4, 1), [0, 1, 2, 3]);
        assert_eq!(Pattern::Backward.records(4, 1), [3, 2, 1, 0]);
        assert_eq!(Pattern::Same.records(4, 1), [0, 0, 0, 0]);
        assert_eq!(Pattern::Stride(3).records(8, 1), [0, 3, 6, 1, 4, 7, 2, 5]);
        assert_eq!(Pattern::Stride(17).records(40, 1)[..6], [0, 17, 34, 1, 18, 35]);
        assert_eq!(Pattern::Stride(17).records(3, 1), [0, 1, 2]);
        assert_eq!(Pattern::Stride(0).records(2, 1), [0, 1]);
        assert_eq!(Pattern::Random.records(8, 42), [4, 3, 2, 0, 7, 6, 1, 5]);
    }

    #[test]
    fn each_record_once() {
        for pattern in [
            Pattern::Forward,
            Pattern::Backward,
            Pattern::Random,
            Pattern::Stride(17),
            Pattern::Stride(5),
        ] {
            for count in [0, 1, 2, 16, 17, 18, 100, 4096] {
                let mut records = pattern.records(count, 9);
                records.sort_unstable();
                assert_eq!(records, (0..count).collect::<Vec<_>>(), "{pattern:?} {count}");
            }
        }
    }

    #[test]
    fn a_seed_is_an_order_and_an_order_is_mixed() {
        let one = Pattern::Random.records(1000, 1);
        assert_eq!(one, Pattern::Random.records(1000, 1));
        assert_ne!(one, Pattern::Random.records(1000, 2));
        let neighbours = one.windows(2).filter(|pair| pair[0] + 1 == pair[1]).count();
        assert!(neighbours < 10, "{neighbours} of 999 are sequential");
    }
}
