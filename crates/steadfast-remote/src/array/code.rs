//! [`Code`]: computes parity from data, and data from the remaining shards.

use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};

use super::BLOCK;

/// Bytes of each shard coded at once, so that input and output stay in the CPU cache.
const PART: usize = 8 * BLOCK;

/// The code of an array: copies, exclusive or, or Reed-Solomon. Rows are coded independently, so a
/// single block can be recovered from the same row of other shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code {
    data: usize,
    parity: usize,
}

impl Code {
    pub(crate) fn new(data: usize, parity: usize) -> Code {
        Code { data, parity }
    }

    /// Parity shards of data shards. All have the same length, a multiple of a block. `buffers` are
    /// reused, and allocated if missing: fresh memory costs more than the code does.
    pub(crate) fn encode<'a>(
        &self,
        shards: &[&'a [u8]],
        buffers: &'a mut Vec<Vec<u8>>,
    ) -> Option<Vec<&'a [u8]>> {
        let first = *shards.first()?;
        if shards.len() != self.data || shards.iter().any(|shard| shard.len() != first.len()) {
            return None;
        }
        if self.data == 1 {
            return Some(vec![first; self.parity]);
        }
        buffers.resize_with(self.parity, Vec::new);
        for buffer in buffers.iter_mut() {
            buffer.clear();
            buffer.reserve_exact(first.len());
        }
        match &mut buffers[..] {
            [] => {}
            [sum] => {
                for at in (0..first.len()).step_by(PART) {
                    sum.extend_from_slice(part(first, at));
                    let sum = sum.get_mut(at..)?;
                    shards.iter().skip(1).for_each(|shard| add(sum, part(shard, at)));
                }
            }
            coded => {
                // The code works on 64 bytes at a time, independently. So coding in parts equals
                // coding the whole, and coding all rows at once equals coding row by row.
                let mut encoder =
                    ReedSolomonEncoder::new(self.data, self.parity, PART.min(first.len())).ok()?;
                for at in (0..first.len()).step_by(PART) {
                    if first.len() - at < PART {
                        encoder.reset(self.data, self.parity, first.len() - at).ok()?;
                    }
                    shards
                        .iter()
                        .try_for_each(|shard| encoder.add_original_shard(part(shard, at)))
                        .ok()?;
                    let parts = encoder.encode().ok()?;
                    for (coded, part) in coded.iter_mut().zip(parts.recovery_iter()) {
                        coded.extend_from_slice(part);
                    }
                }
            }
        }
        Some(buffers.iter().map(|buffer| &buffer[..]).collect())
    }

    /// One row of shard `wanted` from the same row of `k` others: (index of the shard, its row).
    pub(crate) fn recover(&self, wanted: usize, rows: &[(usize, &[u8])]) -> Option<Vec<u8>> {
        if let Some((_, row)) = rows.iter().find(|(index, _)| *index == wanted) {
            return Some(row.to_vec());
        }
        if rows.len() < self.data || rows.iter().any(|(_, row)| row.len() != BLOCK) {
            return None;
        }
        match (self.data, self.parity) {
            (1, _) => rows.first().map(|(_, row)| row.to_vec()),
            (_, 1) => {
                let mut sum = vec![0; BLOCK];
                rows.iter().for_each(|(_, row)| add(&mut sum, row));
                Some(sum)
            }
            _ => {
                let originals = self.originals(rows)?;
                match wanted < self.data {
                    true => originals.into_iter().nth(wanted),
                    false => {
                        let originals: Vec<&[u8]> = originals.iter().map(|row| &row[..]).collect();
                        let mut buffers = Vec::new();
                        let coded = self.encode(&originals, &mut buffers)?;
                        coded.get(wanted - self.data).map(|row| row.to_vec())
                    }
                }
            }
        }
    }

    /// One row of every data shard.
    fn originals(&self, rows: &[(usize, &[u8])]) -> Option<Vec<Vec<u8>>> {
        let mut found: Vec<Option<Vec<u8>>> = vec![None; self.data];
        let mut decoder = ReedSolomonDecoder::new(self.data, self.parity, BLOCK).ok()?;
        for (index, row) in rows.iter().take(self.data) {
            if *index < self.data {
                decoder.add_original_shard(*index, row).ok()?;
                *found.get_mut(*index)? = Some(row.to_vec());
            } else {
                decoder.add_recovery_shard(index - self.data, row).ok()?;
            }
        }
        if found.iter().any(Option::is_none) {
            let decoded = decoder.decode().ok()?;
            for (index, row) in decoded.restored_original_iter() {
                *found.get_mut(index)? = Some(row.to_vec());
            }
        }
        found.into_iter().collect()
    }
}

/// The part that is coded at once.
fn part(shard: &[u8], at: usize) -> &[u8] {
    let rest = shard.get(at..).unwrap_or_default();
    rest.get(..PART).unwrap_or(rest)
}

fn add(sum: &mut [u8], other: &[u8]) {
    sum.iter_mut().zip(other).for_each(|(sum, other)| *sum ^= other);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_k_of_n_bring_every_row_back() {
        for (data, parity) in [(1, 0), (1, 1), (1, 2), (2, 1), (4, 1), (2, 2), (4, 2), (5, 3)] {
            let code = Code::new(data, parity);
            let shards: Vec<Vec<u8>> = (0..data)
                .map(|shard| {
                    (0..19 * BLOCK).map(|at| (at * (shard + 3) + at / 97 + shard) as u8).collect()
                })
                .collect();
            let slices: Vec<&[u8]> = shards.iter().map(|shard| &shard[..]).collect();
            // Old contents of the buffers do not matter.
            let mut buffers = vec![vec![9; 100], vec![8; 30 * BLOCK], Vec::new(), Vec::new()];
            let coded = code.encode(&slices, &mut buffers).unwrap().into_iter().map(<[u8]>::to_vec);
            let all: Vec<Vec<u8>> = shards.iter().cloned().chain(coded).collect();
            assert_eq!(all.len(), data + parity);
            for mask in 0_u32..1 << all.len() {
                if mask.count_ones() as usize != data {
                    continue;
                }
                // A row of the first part, of the second, or of the short last one.
                let row = [2, 9, 18][mask as usize % 3] * BLOCK;
                let row = row..row + BLOCK;
                let rows: Vec<(usize, &[u8])> = (0..all.len())
                    .filter(|index| mask & (1 << index) != 0)
                    .map(|index| (index, &all[index][row.clone()]))
                    .collect();
                for (wanted, whole) in all.iter().enumerate() {
                    let found = code.recover(wanted, &rows).unwrap();
                    assert!(found == whole[row.clone()], "{data}+{parity}: {wanted} from {mask:b}");
                }
            }
        }
    }
}
