//! Volumes of other versions.

use alloc::string::ToString;
use alloc::vec;

use super::small;
use crate::ftl::tag::Kind;
use crate::ftl::{FlashError, Ftl, format};
use crate::model::NandModel;
use crate::nand::{BlockNumber, Nand, Pairing};

/// One that is older or newer is refused with a line, and nothing is written to it.
#[test]
fn other_versions_are_refused_and_left_alone() {
    for version in [2_u16, 4] {
        let part = small(Pairing::None, 40);
        let mut nand = NandModel::new(&part, 1);
        let mut ftl = format(&mut nand, 1).unwrap();
        let mut data = vec![0; part.geometry.page_size as usize];
        let mut changed = 0;
        for slot in 0..ftl.layout.ring {
            let page = ftl.page(slot, 0);
            let Some(tag) = ftl.read_tagged(page.0, &mut data).unwrap() else { continue };
            assert_eq!(tag.kind, Kind::Anchor);
            data[4..6].copy_from_slice(&version.to_le_bytes());
            ftl.nand.erase(BlockNumber(slot)).unwrap();
            ftl.program_tagged(page, Kind::Anchor, tag.id, &data).unwrap();
            changed += 1;
        }
        assert!(changed > 0);
        drop(ftl);
        nand.reset_counts();
        let error = Ftl::mount(&mut nand, false).unwrap_err();
        assert_eq!(error, FlashError::Version(version));
        let line = error.to_string();
        assert!(line.contains(&version.to_string()) && !line.contains('\n'), "{line}");
        assert_eq!((nand.counts().programs, nand.counts().erases), (0, 0));
    }
}
