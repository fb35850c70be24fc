//! Compares the counts of shared blocks with the extents that name them. Their keys precede those
//! of files, so every count is known before the first extent.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use crate::format::Shared;
use crate::tools::check::report::{At, Reporter};
use crate::types::{BlockAddress, BlockRun};

/// Shared blocks that still lack extents.
#[derive(Default)]
pub(super) struct References {
    /// By first block: the end, and the number of extents still missing.
    missing: BTreeMap<u64, (u64, u32)>,
    /// Number of keys.
    pub keys: u64,
}

impl References {
    /// Adds a shared extent's key.
    pub fn add(&mut self, shared: Shared, reporter: &mut Reporter<'_>) {
        self.keys += 1;
        let before = self.missing.range(..shared.end).next_back();
        if before.is_some_and(|(_, (end, _))| *end > shared.start) {
            let at = At::block(BlockAddress(shared.start));
            reporter.damaged_at(at, format!("shared extents at block {} overlap", shared.start));
            return;
        }
        self.missing.insert(shared.start, (shared.end, shared.count));
    }

    /// Notes that an extent names `run`. Returns the parts that are shared, and those that are not.
    pub fn take(
        &mut self,
        run: BlockRun,
        reporter: &mut Reporter<'_>,
    ) -> (Vec<BlockRun>, Vec<BlockRun>) {
        let (mut shared, mut alone) = (Vec::new(), Vec::new());
        let part =
            |start: u64, end: u64| BlockRun { start: BlockAddress(start), count: end - start };
        let mut at = run.start.0;
        while at < run.end() {
            let before =
                self.missing.range(..=at).next_back().map(|(start, entry)| (*start, *entry));
            let Some((start, (end, left))) = before.filter(|(_, (end, _))| *end > at) else {
                let next = self.missing.range(at..).next().map_or(run.end(), |(start, _)| *start);
                let next = next.min(run.end());
                alone.push(part(at, next));
                at = next;
                continue;
            };
            let stop = end.min(run.end());
            self.missing.remove(&start);
            if start < at {
                self.missing.insert(start, (at, left));
            }
            if stop < end {
                self.missing.insert(stop, (end, left));
            }
            if left == 0 {
                let text = format!("blocks {at}..{stop} have more extents than their count says");
                reporter.damaged_at(At::block(BlockAddress(at)), text);
            }
            self.missing.insert(at, (stop, left.saturating_sub(1)));
            shared.push(part(at, stop));
            at = stop;
        }
        (shared, alone)
    }

    /// Ends the comparison after all extents have been visited.
    pub fn finish(&self, counted: u64, reporter: &mut Reporter<'_>) {
        for (start, (end, left)) in self.missing.iter().filter(|(_, (_, left))| *left > 0) {
            let text =
                format!("blocks {start}..{end} have {left} extents less than their count says");
            reporter.damaged_at(At::block(BlockAddress(*start)), text);
        }
        if counted != self.keys {
            reporter.damaged(format!(
                "the metaroot counts {counted} shared extents, {} are there",
                self.keys
            ));
        }
    }
}
