//! Volumes of other versions.

use alloc::string::ToString;
use alloc::vec;

use super::small;
use crate::ftl::format::make_with;
use crate::ftl::tag::Kind;
use crate::ftl::{FlashError, Ftl, Layout, format, rebuild};
use crate::model::NandModel;
use crate::nand::{BlockNumber, Nand, Pairing};

/// A volume with more or fewer logical pages than a new one can be mounted, written and rebuilt,
/// and keeps its size.
#[test]
fn a_volume_of_another_size_keeps_it() {
    let part = small(Pairing::None, 40);
    let layout = Layout::new(&part.geometry).unwrap();
    let none = layout.with_user_pages(layout.user_pages_max + 1);
    assert!(none.is_none() && layout.with_user_pages(0).is_none());
    for user_pages in [layout.user_pages - 5, layout.user_pages_max] {
        let other = layout.with_user_pages(user_pages).unwrap();
        let mut nand = NandModel::new(&part, 1);
        let mut ftl = make_with(&mut nand, 1, false, other).unwrap();
        let page = vec![7; part.geometry.page_size as usize];
        let mut found = vec![0; page.len()];
        ftl.write_page(user_pages - 1, &page).unwrap();
        ftl.flush().unwrap();
        drop(ftl);
        for rebuilt in [false, true] {
            let mut ftl = if rebuilt {
                rebuild(&mut nand).unwrap().0
            } else {
                Ftl::mount(&mut nand, false).unwrap()
            };
            assert_eq!(ftl.layout().user_pages, user_pages);
            ftl.read_page(user_pages - 1, &mut found).unwrap();
            assert_eq!(found, page);
            ftl.write_page(0, &page).unwrap();
            assert!(ftl.write_page(user_pages, &page).is_err());
            ftl.close().unwrap();
        }
    }
}

/// An older or newer version is refused with a message, and nothing is written to the part.
#[test]
fn other_versions_are_refused_and_left_alone() {
    for version in [2_u16, 5] {
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
