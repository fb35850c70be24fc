//! Labels at the ends of lines, moved apart if they would overlap.

/// Positions for labels that want to be at `wanted`, at least `apart` from each other, and within
/// `top` and `bottom` if all of them fit. The result has the order of `wanted`. Colliding
/// neighbours move by the same amount, so a label stays as near to its line as possible.
pub fn spread(wanted: &[f64], apart: f64, top: f64, bottom: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    let want =
        |index: usize| wanted.get(index).copied().filter(|place| place.is_finite()).unwrap_or(top);
    order.sort_by(|a, b| want(*a).total_cmp(&want(*b)));
    // Blocks of touching labels: (sum of the positions wanted for the block's first label, count).
    let mut blocks: Vec<(f64, usize)> = Vec::new();
    let first = |block: &(f64, usize)| {
        let height = (block.1 - 1) as f64 * apart;
        (block.0 / block.1 as f64).min(bottom - height).max(top)
    };
    for index in &order {
        blocks.push((want(*index), 1));
        while let [.., before, last] = blocks.as_slice() {
            if first(before) + before.1 as f64 * apart <= first(last) + 1e-9 {
                break;
            }
            let joined =
                (before.0 + last.0 - before.1 as f64 * last.1 as f64 * apart, before.1 + last.1);
            blocks.truncate(blocks.len() - 2);
            blocks.push(joined);
        }
    }
    let mut placed = vec![top; wanted.len()];
    let places =
        blocks.iter().flat_map(|block| (0..block.1).map(|at| first(block) + at as f64 * apart));
    for (index, place) in order.into_iter().zip(places) {
        if let Some(slot) = placed.get_mut(index) {
            *slot = place;
        }
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_keep_their_order_and_distance() {
        let wanted = [50.0, 51.0, 10.0, 52.0, 200.0, f64::NAN];
        let placed = spread(&wanted, 12.0, 0.0, 210.0);
        let mut sorted = placed.clone();
        sorted.sort_by(f64::total_cmp);
        assert!(sorted.windows(2).all(|pair| pair[1] - pair[0] >= 12.0 - 1e-6), "{placed:?}");
        assert!(placed[0] < placed[1] && placed[1] < placed[3]);
        assert_eq!((placed[2], placed[4]), (12.0, 200.0));
        assert!((placed[1] - 51.0).abs() < 1e-6, "the middle one stays: {placed:?}");
    }

    #[test]
    fn too_many_begin_at_the_top() {
        let placed = spread(&[100.0; 20], 12.0, 5.0, 100.0);
        assert!((placed[0] - 5.0).abs() < 1e-6);
        assert!(placed.windows(2).all(|pair| (pair[1] - pair[0] - 12.0).abs() < 1e-6));
        assert!(spread(&[], 12.0, 0.0, 10.0).is_empty());
    }
}
