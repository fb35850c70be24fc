//! Images written by earlier versions: every programmed page of a part, without a close.

use alloc::vec;
use alloc::vec::Vec;

use super::small;
use crate::ftl::tag::TAG_SIZE;
use crate::ftl::{Ftl, format};
use crate::model::{Ageing, NandModel};
use crate::nand::{Nand, NandGeometry, PageAddress, Pairing};
use crate::part::Part;

extern crate std;

/// Seed of the model; it does not affect the result.
const SEED: u64 = 3;

fn part() -> Part {
    let small = small(Pairing::None, 44);
    // So few that no block is bad.
    Part { geometry: NandGeometry { bad_max: 1, ..small.geometry }, ..small }
}

/// Operations on the volume of an image.
enum Act {
    Write(u32, Vec<u8>),
    Trim(u32, u32),
    Flush,
}

/// A page that takes little room in an image: `number`, and some bytes at the end unless it is to
/// be short.
fn page(number: u32, short: bool) -> Vec<u8> {
    let mut data = vec![0; part().geometry.page_size as usize];
    data[..4].copy_from_slice(&number.to_le_bytes());
    if !short {
        data[511] = 1;
    }
    data
}

/// Fills two thirds, then writes runs, single pages and short ones, and trims. Returns the final
/// contents of each logical page.
fn history(user_pages: u32, mut act: impl FnMut(Act)) -> Vec<Vec<u8>> {
    let mut expected = vec![page(0, true); user_pages as usize];
    let used = user_pages * 2 / 3;
    // The stored image depends on this sequence.
    let mut state = 5_u32;
    let mut next = |most: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % most
    };
    let mut number = 1;
    for logical in 0..used {
        act(Act::Write(logical, page(number, false)));
        expected[logical as usize] = page(number, false);
        number += 1;
    }
    for round in 0..140 {
        let (first, count) = (next(used - 8), 1 + next(8));
        if round % 9 == 8 {
            act(Act::Trim(first, count));
            (first..first + count).for_each(|logical| expected[logical as usize] = page(0, true));
        } else {
            for logical in first..first + count {
                act(Act::Write(logical, page(number, round % 5 == 4)));
                expected[logical as usize] = page(number, round % 5 == 4);
                number += 1;
            }
        }
        act(Act::Flush);
    }
    // A short page, so that the trims before it are in the journal, and a page after that journal
    // page.
    for (logical, short) in [(7, true), (9, false)] {
        act(Act::Write(logical, page(number, short)));
        expected[logical as usize] = page(number, short);
        act(Act::Flush);
    }
    expected
}

/// The programmed pages: address u32, runs n u8, (offset u16, length u16, bytes)… of data and free
/// OOB bytes.
fn dump(nand: &mut NandModel) -> Vec<u8> {
    let geometry = nand.geometry();
    let mut image = Vec::new();
    for page in 0..geometry.pages() {
        let (mut data, mut oob) = (vec![0; geometry.page_size as usize], [0; TAG_SIZE]);
        nand.read(PageAddress(page), &mut data, &mut oob).unwrap();
        if oob == [0xff; TAG_SIZE] {
            continue;
        }
        data.extend(oob);
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for at in (0..data.len()).filter(|at| data[*at] != 0) {
            match runs.last_mut() {
                Some((first, length)) if *first + *length + 4 > at => *length = at + 1 - *first,
                _ => runs.push((at, 1)),
            }
        }
        image.extend(page.to_le_bytes());
        image.push(u8::try_from(runs.len()).unwrap());
        for (first, length) in runs {
            image.extend((first as u16).to_le_bytes());
            image.extend((length as u16).to_le_bytes());
            image.extend(&data[first..first + length]);
        }
    }
    image
}

/// A part with only these pages.
fn restored(mut image: &[u8]) -> NandModel {
    fn take<'a>(image: &mut &'a [u8], count: usize) -> &'a [u8] {
        let (front, rest) = image.split_at(count);
        *image = rest;
        front
    }
    let part = part();
    let mut nand = NandModel::new(&part, SEED).with_ageing(Ageing::NONE);
    let size = part.geometry.page_size as usize;
    while !image.is_empty() {
        let page = u32::from_le_bytes(take(&mut image, 4).try_into().unwrap());
        let mut bytes = vec![0; size + TAG_SIZE];
        for _ in 0..take(&mut image, 1)[0] {
            let mut word =
                || usize::from(u16::from_le_bytes(take(&mut image, 2).try_into().unwrap()));
            let (first, length) = (word(), word());
            bytes[first..first + length].copy_from_slice(take(&mut image, length));
        }
        let (data, oob) = bytes.split_at(size);
        nand.program(PageAddress(page), data, oob).unwrap();
    }
    nand
}

/// A volume of this version with the same history, after a power cut.
fn made() -> NandModel {
    let mut nand = NandModel::new(&part(), SEED).with_ageing(Ageing::NONE);
    let mut ftl = format(&mut nand, 1).unwrap();
    let user_pages = ftl.layout().user_pages;
    history(user_pages, |act| match act {
        Act::Write(logical, data) => ftl.write_page(logical, &data).unwrap(),
        Act::Trim(first, count) => ftl.trim(first, count).unwrap(),
        Act::Flush => ftl.flush().unwrap(),
    });
    drop(ftl);
    nand
}

/// Mounts read-only, then for writing, rewrites everything, and mounts the result.
fn judge(mut nand: NandModel, spills: core::ops::RangeInclusive<usize>) {
    let mut data = page(0, true);
    let mut ftl = Ftl::mount(&mut nand, true).unwrap();
    let user_pages = ftl.layout().user_pages;
    let mut expected = history(user_pages, |_| {});
    assert!(spills.contains(&ftl.spills.len()) && !ftl.shorts.is_empty(), "{}", ftl.describe());
    for (logical, expected) in expected.iter().enumerate() {
        ftl.read_page(logical as u32, &mut data).unwrap();
        assert_eq!(&data, expected, "page {logical}, mounted for reading");
    }
    drop(ftl);
    for round in 0..3 {
        let mut ftl = Ftl::mount(&mut nand, false).unwrap();
        assert_eq!(ftl.layout().user_pages, user_pages);
        for (logical, expected) in expected.iter_mut().enumerate() {
            ftl.read_page(logical as u32, &mut data).unwrap();
            assert_eq!(&data, expected, "page {logical}, round {round}");
            *expected = page(1000 * round + logical as u32, logical % 17 == 0);
            ftl.write_page(logical as u32, expected).unwrap();
        }
        // An unclean stop once, a clean close the next time.
        if round % 2 == 0 { ftl.flush().unwrap() } else { ftl.close().unwrap() }
    }
}

/// `FLASH_GOLDEN` names a file for the image that this version makes.
#[test]
fn volumes_of_every_version_mount() {
    let mut now = made();
    let image = dump(&mut now);
    if let Ok(path) = std::env::var("FLASH_GOLDEN") {
        std::fs::write(path, &image).unwrap();
    }
    judge(restored(&image), 1..=9);
    judge(restored(include_bytes!("golden/version-3.bin")), 4..=4);
}
