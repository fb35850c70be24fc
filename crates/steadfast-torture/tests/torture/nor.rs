//! The whole file system on serial NOR flash, with a power cut in every program and erasure of a
//! short run. Two files change together: after each cut both are of one update, and not of one
//! older than the last that was acknowledged.

use std::sync::Arc;

use steadfast::sabotage::{Sabotage, plant};
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
    format(steadfast_flash::ftl::format(part, 1).unwrap())
}

/// Makes an empty volume.
fn format(ftl: Ftl<Part>) -> Part {
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

/// Cuts the power everywhere in a run on copies of `base`, a part with an empty volume. Returns the
/// number of cuts, or what was wrong after one.
fn cut_everywhere(base: &Part) -> Result<u32, String> {
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
            if !(acknowledged..=acknowledged + 1).contains(&found) {
                return Err(format!(
                    "cut {at}, {outcome:?}: update {found}, acknowledged was {acknowledged}"
                ));
            }
            update(&volume, found + 1).unwrap();
            assert_eq!(number_in(&volume), found + 1);
        }
        if !cut {
            break;
        }
        cuts += 1;
    }
    Ok(cuts)
}

#[test]
fn every_cut_leaves_the_last_update() {
    let cuts = cut_everywhere(&made()).unwrap();
    assert!(cuts > 100, "{cuts} cuts");
}

/// A part with an empty volume, which held one before with the same uuid and the same updates. With
/// `layer` the translation layer is made anew, too.
fn made_again(layer: bool) -> Part {
    let volume = open(made()).unwrap();
    assert_eq!(run(&volume), (UPDATES, false));
    let part = part_of(volume);
    if layer {
        return format(steadfast_flash::ftl::format(part, 1).unwrap());
    }
    format(Ftl::mount(part, false).unwrap())
}

/// The updates of the two volumes are the same to the byte, so a record that stayed would fit
/// after those of the new volume.
#[test]
fn no_record_of_an_earlier_volume_comes_back() {
    for layer in [true, false] {
        let cuts = cut_everywhere(&made_again(layer)).unwrap();
        assert!(cuts > 100, "{cuts} cuts");
    }
    plant(Some(Sabotage::FormatKeepsRecords));
    let found = std::panic::catch_unwind(|| cut_everywhere(&made_again(false)));
    plant(None);
    assert!(!matches!(found, Ok(Ok(_))), "records that stay go unnoticed");
}
