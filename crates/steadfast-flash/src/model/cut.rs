//! Power cuts and their effect on the operation in flight, and planned block failures.

use steadfast_media::sync::Arc;

use super::cells::{Cells, Programmed, Quality};
use super::interrupted::{Interrupted, Struck};
use super::part::NandModel;
use crate::nand::{BlockNumber, NandOperation, PageAddress};

impl NandModel {
    /// Arms a power cut in the program or erasure after `operations` more. From then on every
    /// operation fails with [`NandError::Gone`](crate::nand::NandError::Gone) until
    /// [`power_on`](Self::power_on).
    pub fn cut_after(&mut self, operations: u64, outcome: Interrupted) {
        self.cut = Some((operations, outcome));
    }

    /// Arms a failure: the block of the program or erasure after `operations` more goes bad. That
    /// operation and all later ones in the block fail.
    pub fn fail_after(&mut self, operations: u64) {
        self.failing = Some(operations);
    }

    /// Restores the power; armed cuts and failures are dropped.
    pub fn power_on(&mut self) {
        (self.powered, self.cut, self.struck, self.failing) = (true, None, None, None);
    }

    /// The operation that the cut has interrupted, until the power is restored.
    #[must_use]
    pub fn struck(&self) -> Option<&Struck> {
        self.struck.as_ref()
    }

    /// Whether an armed failure has not happened yet.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        self.failing.is_some()
    }

    /// Whether the power is on.
    #[must_use]
    pub fn is_powered(&self) -> bool {
        self.powered
    }

    /// The outcome of the next program or erasure; `Some` if the power is cut in it.
    pub(super) fn strike(
        &mut self,
        operation: NandOperation,
        block: BlockNumber,
        oob: &[u8],
    ) -> Option<Interrupted> {
        let (left, outcome) = self.cut?;
        if left > 0 {
            self.cut = Some((left - 1, outcome));
            return None;
        }
        (self.cut, self.powered) = (None, false);
        self.struck = Some(Struck { operation, block, oob: oob.to_vec() });
        Some(outcome)
    }

    /// Whether the block goes bad in this program or erasure.
    pub(super) fn goes_bad(&mut self, block: BlockNumber) -> bool {
        self.failing = match self.failing {
            None => return false,
            Some(left) if left > 0 => Some(left - 1),
            Some(_) => None,
        };
        if self.failing.is_none()
            && let Some(cells) = self.block_mut(block)
        {
            cells.life = 0;
        }
        self.failing.is_none()
    }

    /// Leaves the state of an interrupted program of `page`. On parts with paired pages the other
    /// page of the pair may be damaged too.
    pub(super) fn tear_program(
        &mut self,
        page: PageAddress,
        bytes: Arc<[u8]>,
        outcome: Interrupted,
    ) {
        let (block, at) = (self.geometry.block_of(page), self.geometry.page_in_block(page));
        let partner = self.geometry.pairing.damaged_by(at);
        let damage = outcome != Interrupted::NotBegun && self.random.one_in(2);
        let harm = if self.random.one_in(2) { Quality::Garbage } else { Quality::Unstable };
        let Some(cells) = self.block_mut(block) else { return };
        let quality = match outcome {
            Interrupted::NotBegun => return,
            Interrupted::Invisible => None,
            Interrupted::Half => Some(Quality::Garbage),
            Interrupted::Unstable => Some(Quality::Unstable),
            Interrupted::Done => Some(Quality::Good),
        };
        if let Some(slot) = cells.pages.get_mut(at as usize) {
            *slot = match quality {
                None => Cells::Erased { touched: true },
                Some(quality) => {
                    Cells::Programmed(Programmed { bytes, quality, flips: 0, times: 1 })
                }
            };
        }
        if quality.is_some() {
            cells.next = at + 1;
        }
        let harmed = partner.filter(|_| damage && quality != Some(Quality::Good));
        if let Some(Cells::Programmed(page)) =
            harmed.and_then(|at| cells.pages.get_mut(at as usize))
        {
            page.quality = harm;
        }
    }

    /// Leaves the state of an interrupted erasure of `block`.
    pub(super) fn tear_erase(&mut self, block: BlockNumber, outcome: Interrupted) {
        let mut random = self.random.clone();
        self.random.bits();
        let Some(cells) = self.block_mut(block) else { return };
        match outcome {
            Interrupted::NotBegun => {}
            Interrupted::Done => cells.erase(),
            Interrupted::Invisible => {
                cells.erase();
                cells.weak = true;
            }
            Interrupted::Half | Interrupted::Unstable => {
                for page in &mut cells.pages {
                    match (random.below(3), &mut *page) {
                        (0, _) => *page = Cells::Erased { touched: true },
                        (1, Cells::Programmed(page)) => page.quality = Quality::Garbage,
                        (2, Cells::Programmed(page)) => page.quality = Quality::Unstable,
                        _ => {}
                    }
                }
                cells.weak = true;
                cells.erases += 1;
            }
        }
    }
}
