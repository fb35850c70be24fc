//! Counts of valid pages. A block whose count reaches zero is pending first, and later free or bad.

use super::error::Result;
use super::state::Ftl;
use super::table::{BlockInfo, BlockState};
use crate::nand::{BlockNumber, Nand, NandError};

impl<N: Nand> Ftl<N> {
    pub(super) fn increment(&mut self, block: u32) -> Result<()> {
        let info = self.block(block)?;
        self.table.set(block, BlockInfo { valid: info.valid + 1, ..info });
        Ok(())
    }

    pub(super) fn decrement(&mut self, block: u32) -> Result<()> {
        let info = self.block(block)?;
        let valid = info.valid.saturating_sub(1);
        self.table.set(block, BlockInfo { valid, ..info });
        if valid == 0 {
            self.leave_if_empty(block)?;
        }
        Ok(())
    }

    /// Makes a block without valid pages pending, unless it is open.
    pub(super) fn leave_if_empty(&mut self, block: u32) -> Result<()> {
        let info = self.block(block)?;
        let used = matches!(info.state, BlockState::Data | BlockState::Map);
        if used && info.valid == 0 && !self.is_open(block) {
            self.leave(block, info);
        }
        Ok(())
    }

    /// Makes a block pending: none of its contents is needed any more.
    pub(super) fn leave(&mut self, block: u32, info: BlockInfo) {
        self.table.set(block, BlockInfo { state: BlockState::Pending, valid: 0, ..info });
        self.pending.push_back((block, self.journal.written + 2));
        self.collector.emptied.remove(&block);
        self.collector.stuck.remove(&block);
        self.collector.renew.remove(&block);
        if self.collector.victim.is_some_and(|(victim, _)| victim == block) {
            self.collector.victim = None;
        }
    }

    /// Frees pending blocks after two journal pages, or marks them bad if they are to be retired.
    pub(super) fn promote(&mut self) -> Result<()> {
        while let Some((block, due)) = self.pending.front().copied()
            && self.journal.written >= due
        {
            self.pending.pop_front();
            if self.collector.retire.remove(&block) {
                self.mark_bad(block)?;
                continue;
            }
            let info = self.block(block)?;
            // A mount that finds the block pending waits again, which is harmless.
            self.table.set_quietly(block, BlockInfo { state: BlockState::Free, valid: 0, ..info });
            self.free.insert((info.erases, block));
        }
        Ok(())
    }

    /// Marks a block bad in the table, and on the part if it takes the mark.
    pub(super) fn mark_bad(&mut self, block: u32) -> Result<()> {
        match self.nand.mark_bad(BlockNumber(block)) {
            Ok(()) | Err(NandError::Failed { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let info = self.block(block)?;
        self.table.set(block, BlockInfo { state: BlockState::Bad, valid: 0, ..info });
        self.info.grown_bad += 1;
        Ok(())
    }
}
