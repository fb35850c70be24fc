//! The whole file system on serial NOR flash, with a power cut in every program and erasure of a
//! short run. Two files change together: after each cut both are of one update, and not of one
//! older than the last that was acknowledged.

use std::sync::Arc;

use steadfast::testing::TestPlatform;
use steadfast::{Error, OpenOptions, Volume};
use steadfast_flash::ftl::{FlashMedium, Ftl};
use steadfast_flash::model::{Interrupted, NorModel};
use steadfast_flash::nand::Nand;
use steadfast_flash::nor::{NorGeometry, NorNand};
use steadfast_media::MediumError;
use steadfast_torture::flash::format_options;

type Part = NorNand<NorModel>;
type Mounted = Volume<Arc<FlashMedium<Part>>, TestPlatform>;

const UPDATES: u32 = 12;

fn open(part: Part) -> Result<Mounted, Error> {
    let medium = Arc::new(FlashMedium::new(Ftl::mount(part, false).expect("the layer mounts")));
    let options = OpenOptions { cache_size: 64 << 10, ..OpenOptions::default() };
    Volume::open(medium, options, TestPlatform::new())
}

/// The part, whatever state it is in.
fn part_of(volume: Mounted) -> Part {
    let medium = volume.medium().clone();
    drop(volume);
    Arc::into_inner(medium).expect("one owner").into_inner().into_nand()
}

fn made() -> Part {
    let part = NorNand::new(NorModel::new(NorGeometry::serial(512 << 10), 1), 512).unwrap();
    let ftl = steadfast_flash::ftl::format(part, 1).unwrap();
    let geometry = ftl.geometry();
    let medium = Arc::new(FlashMedium::new(ftl));
    Volume::format(&medium, &format_options(&geometry), &TestPlatform::new()).unwrap();
    medium.close().unwrap();
    Arc::into_inner(medium).unwrap().into_inner().into_nand()
}

fn update(volume: &Mounted, number: u32) -> Result<(), Error> {
    let transaction = volume.begin()?;
    volume.file_write_all(b"/settings", &number.to_le_bytes())?;
    volume.file_write_all(b"/samples", &number.to_le_bytes().repeat(400))?;
    transaction.commit()
}

/// The number in both files; 0 if there are none.
fn number_in(volume: &Mounted) -> u32 {
    let read = |path: &str| match volume
        .open_file(path, &steadfast::fs::FileOptions::new().read(true))
        .and_then(|file| file.read_all())
    {
        Ok(content) => content,
        Err(Error::NotFound) => Vec::new(),
        Err(error) => panic!("{path}: {error}"),
    };
    let (settings, samples) = (read("settings"), read("samples"));
    assert_eq!(settings.repeat(400), samples, "the files contradict each other");
    settings.try_into().map_or(0, u32::from_le_bytes)
}

/// Runs the updates; returns the last that was acknowledged, and whether the power failed.
fn run(volume: &Mounted) -> (u32, bool) {
    for number in 1..=UPDATES {
        match update(volume, number) {
            Ok(()) => {}
            Err(Error::Medium(MediumError { .. }) | Error::Poisoned(_)) => {
                return (number - 1, true);
            }
            Err(error) => panic!("update {number}: {error}"),
        }
    }
    (UPDATES, false)
}

#[test]
fn every_cut_leaves_the_last_update() {
    let base = made();
    let mut cuts = 0;
    for at in 0.. {
        let mut cut = false;
        for outcome in Interrupted::ALL {
            let mut part = base.clone();
            part.part_mut().reseed(at);
            let volume = open(part).unwrap();
            volume.medium().with(|ftl| ftl.nand().part_mut().cut_after(at, outcome));
            let (acknowledged, gone) = run(&volume);
            cut |= gone;
            let mut part = part_of(volume);
            part.part_mut().power_on();
            assert_eq!(part.geometry().page_size, 512);
            let volume = open(part).unwrap();
            let found = number_in(&volume);
            assert!(
                (acknowledged..=acknowledged + 1).contains(&found),
                "cut {at}, {outcome:?}: update {found}, acknowledged was {acknowledged}"
            );
            update(&volume, found + 1).unwrap();
            assert_eq!(number_in(&volume), found + 1);
        }
        if !cut {
            break;
        }
        cuts += 1;
    }
    assert!(cuts > 100, "{cuts} cuts");
}
