//! The copies of superblock and metaroot.

use alloc::format;

use steadfast_media::Medium;

use crate::format::Superblock;
use crate::platform::Platform;
use crate::tools::scrub::{Scrub, ScrubFinding};
use crate::types::BlockAddress;
use crate::volume::Volume;

impl<M: Medium, P: Platform> Volume<M, P> {
    /// Verifies both copies of the superblock and of the newest metaroot, and repairs bad ones.
    /// Returns bytes read.
    pub(super) fn scrub_fixed(&self, scrub: &mut Scrub) -> u64 {
        self.engine.with_fixed_places(|superblock| self.scrub_copies(superblock, scrub))
    }

    fn scrub_copies(&self, superblock: &Superblock, scrub: &mut Scrub) -> u64 {
        let mut read = 0;
        for offset in [0, superblock.second_offset()] {
            read += superblock.cell_size();
            let medium = &self.engine.store().device.medium;
            if superblock.verify_copy(medium, self.platform(), offset).is_err() {
                let healed = self.engine.may_repair()
                    && superblock.write_copy(medium, self.platform(), offset).is_ok()
                    && superblock.verify_copy(medium, self.platform(), offset).is_ok();
                self.found_fixed(
                    scrub,
                    format!("superblock copy at byte {offset} was bad"),
                    offset,
                    healed,
                );
            }
        }
        for (offset, generation, healed) in self.engine.scrub_metaroot(superblock, &mut read) {
            let text =
                format!("copy of metaroot generation {} at byte {offset} was bad", generation.0);
            self.found_fixed(scrub, text, offset, healed);
        }
        read
    }

    fn found_fixed(
        &self,
        scrub: &mut Scrub,
        text: alloc::string::String,
        offset: u64,
        healed: bool,
    ) {
        let block = BlockAddress(offset / u64::from(self.engine.superblock().block_size));
        let text = if healed { format!("{text}, and was written again") } else { text };
        scrub.find(ScrubFinding {
            text,
            healed,
            block,
            inode: None,
            bytes: None,
            snapshot: None,
            path: None,
        });
    }
}
