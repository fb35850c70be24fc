//! Shortens a failing sequence.

use crate::operation::Operation;

/// Removes operations from `operations` as long as `fails` still returns true: halves first, then
/// single ones. Ends when none can be removed or `attempts` are used up.
pub fn minimise(
    operations: &[Operation],
    mut attempts: usize,
    mut fails: impl FnMut(&[Operation]) -> bool,
) -> Vec<Operation> {
    let mut kept = operations.to_vec();
    let mut chunk = (kept.len() / 2).max(1);
    loop {
        let mut removed = false;
        // The loop starts at the end, because later operations depend on earlier ones.
        let mut end = kept.len();
        while end > 0 && attempts > 0 {
            let start = end.saturating_sub(chunk);
            let mut shorter = kept.clone();
            shorter.drain(start..end);
            attempts -= 1;
            if fails(&shorter) {
                kept = shorter;
                removed = true;
            }
            end = start;
        }
        if attempts == 0 || (chunk == 1 && !removed) {
            return kept;
        }
        chunk = (chunk / 2).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matters_stays() {
        let mut long = vec![Operation::Sync; 40];
        long[7] = Operation::Transact;
        long[31] = Operation::Rollback;
        let short = minimise(&long, 1000, |operations| {
            let transact =
                operations.iter().position(|operation| *operation == Operation::Transact);
            let rollback =
                operations.iter().position(|operation| *operation == Operation::Rollback);
            transact.is_some() && rollback > transact
        });
        assert_eq!(short, [Operation::Transact, Operation::Rollback]);
    }
}
