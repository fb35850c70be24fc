//! Volumes on drivers of the crate `embedded-storage`: serial NOR flash and a card. A power cut in
//! every operation of a short run leaves the last update that was acknowledged, or the one in
//! flight, and a check finds nothing.

use std::sync::Arc;

use embedded_storage::nor_flash::{
    ErrorType, NorFlash, NorFlashErrorKind, ReadNorFlash, check_erase, check_read, check_write,
};
use embedded_storage::{ReadStorage, Storage};
use steadfast::check::{CheckOptions, check};
use steadfast::fs::FileOptions;
use steadfast::testing::TestPlatform;
use steadfast::{Error, FormatOptions, OpenOptions, Volume};
use steadfast_flash::ftl::{FlashMedium, Ftl};
use steadfast_flash::model::{Interrupted, NorModel};
use steadfast_flash::nand::{BlockNumber, Nand};
use steadfast_flash::nor::{EmbeddedNor, Nor, NorGeometry, NorNand};
use steadfast_media::sim::Survival;
use steadfast_media::{
    ErrorClass, Medium, MediumError, SimMedium, SimOptions, StorageMedium, StorageOptions,
};
use steadfast_torture::flash::format_options;

const UPDATES: u32 = 8;

fn open<M: Medium>(medium: M) -> Volume<M, TestPlatform> {
    let options = OpenOptions { cache_size: 64 << 10, ..OpenOptions::default() };
    Volume::open(medium, options, TestPlatform::new()).expect("the volume opens")
}

/// Changes two files together.
fn update<M: Medium>(volume: &Volume<M, TestPlatform>, number: u32) -> Result<(), Error> {
    let transaction = volume.begin()?;
    volume.file_write_all(b"/settings", &number.to_le_bytes())?;
    volume.file_write_all(b"/samples", &number.to_le_bytes().repeat(400))?;
    transaction.commit()
}

/// The last update that was acknowledged, and whether the power failed.
fn run<M: Medium>(volume: &Volume<M, TestPlatform>) -> (u32, bool) {
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

/// What a volume after a cut must hold. It takes the next update.
fn judge<M: Medium>(medium: M, acknowledged: u32) {
    let options = CheckOptions::default();
    let report = check(&medium, &TestPlatform::new(), &options, &mut |_| {}).expect("a volume");
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    let volume = open(medium);
    let read = |path: &str| match volume
        .open_file(path, &FileOptions::new().read(true))
        .and_then(|file| file.read_all())
    {
        Ok(content) => content,
        Err(Error::NotFound) => Vec::new(),
        Err(error) => panic!("{path}: {error}"),
    };
    let (settings, samples) = (read("settings"), read("samples"));
    assert_eq!(settings.repeat(400), samples, "the files contradict each other");
    let found = settings.try_into().map_or(0, u32::from_le_bytes);
    let allowed = acknowledged..=acknowledged + 1;
    assert!(allowed.contains(&found), "update {found}, acknowledged was {acknowledged}");
    update(&volume, found + 1).unwrap();
}

/// A driver for NOR with words of 4 bytes, which splits writes at 256 bytes as parts want it.
#[derive(Clone)]
struct Driver(NorModel);

impl ErrorType for Driver {
    type Error = NorFlashErrorKind;
}

impl ReadNorFlash for Driver {
    const READ_SIZE: usize = 4;

    fn read(&mut self, offset: u32, bytes: &mut [u8]) -> Result<(), NorFlashErrorKind> {
        check_read(self, offset, bytes.len())?;
        self.0.read(offset, bytes).map_err(|_| NorFlashErrorKind::Other)
    }

    fn capacity(&self) -> usize {
        let geometry = self.0.geometry();
        (geometry.sectors * geometry.sector_size) as usize
    }
}

impl NorFlash for Driver {
    const WRITE_SIZE: usize = 4;
    const ERASE_SIZE: usize = 4096;

    fn erase(&mut self, from: u32, to: u32) -> Result<(), NorFlashErrorKind> {
        check_erase(self, from, to)?;
        for sector in from / 4096..to / 4096 {
            self.0.erase(BlockNumber(sector)).map_err(|_| NorFlashErrorKind::Other)?;
        }
        Ok(())
    }

    fn write(&mut self, offset: u32, bytes: &[u8]) -> Result<(), NorFlashErrorKind> {
        check_write(self, offset, bytes.len())?;
        for (number, data) in bytes.chunks(256).enumerate() {
            let at = offset + number as u32 * 256;
            self.0.program(at, data).map_err(|_| NorFlashErrorKind::Other)?;
        }
        Ok(())
    }
}

type Part = NorNand<EmbeddedNor<Driver>>;

fn model(part: &mut Part) -> &mut NorModel {
    &mut part.part_mut().driver_mut().0
}

/// A part with an empty volume.
fn formatted() -> Part {
    let driver = Driver(NorModel::new(NorGeometry::serial(512 << 10), 1));
    let part = NorNand::new(EmbeddedNor::new(driver, 100_000).unwrap(), 512).unwrap();
    let ftl = steadfast_flash::ftl::format(part, 1).unwrap();
    let geometry = ftl.geometry();
    let medium = FlashMedium::new(ftl);
    Volume::format(&&medium, &format_options(&geometry), &TestPlatform::new()).unwrap();
    medium.close().unwrap();
    medium.into_inner().into_nand()
}

fn mounted(part: Part) -> Arc<FlashMedium<Part>> {
    Arc::new(FlashMedium::new(Ftl::mount(part, false).expect("the layer mounts")))
}

#[test]
fn cuts_of_a_driver_for_nor_leave_the_last_update() {
    let base = formatted();
    let mut cuts = 0;
    for at in 0.. {
        let outcome = Interrupted::ALL[cuts % Interrupted::ALL.len()];
        let mut part = base.clone();
        model(&mut part).reseed(at);
        let medium = mounted(part);
        let volume = open(medium.clone());
        medium.with(|ftl| model(ftl.nand()).cut_after(at, outcome));
        let (acknowledged, cut) = run(&volume);
        drop(volume);
        let mut part = Arc::into_inner(medium).expect("one owner").into_inner().into_nand();
        model(&mut part).power_on();
        assert_eq!(part.geometry().page_size, 512);
        judge(mounted(part), acknowledged);
        if !cut {
            break;
        }
        cuts += 1;
    }
    assert!(cuts > 100, "{cuts} cuts");
}

/// A card with a write cache, which only takes whole sectors.
struct Card(Arc<SimMedium>);

impl ReadStorage for Card {
    type Error = MediumError;

    fn read(&mut self, offset: u32, bytes: &mut [u8]) -> Result<(), MediumError> {
        self.0.read(offset.into(), bytes)
    }

    fn capacity(&self) -> usize {
        self.0.geometry().size as usize
    }
}

impl Storage for Card {
    fn write(&mut self, offset: u32, bytes: &[u8]) -> Result<(), MediumError> {
        self.0.write(offset.into(), bytes)
    }
}

fn on_card(sim: &Arc<SimMedium>) -> StorageMedium<Card> {
    let options = StorageOptions {
        flush: |card: &mut Card| card.0.flush(),
        class: |error| error.class,
        ..StorageOptions::durable(512)
    };
    StorageMedium::new(Card(sim.clone()), options).unwrap()
}

#[test]
fn cuts_of_a_card_leave_the_last_update() {
    let simulator = || SimOptions::disk(1 << 20);
    let sim = Arc::new(SimMedium::new(simulator()));
    let options = FormatOptions { block_size: 512, ..FormatOptions::default() };
    Volume::format(&on_card(&sim), &options, &TestPlatform::new()).unwrap();
    let base = sim.power_cut_with(Survival::Everything);
    let mut cuts = 0;
    for at in 0.. {
        let sim = Arc::new(SimMedium::on(&base, simulator()));
        let volume = open(on_card(&sim));
        sim.arm_power_cut(at);
        let (acknowledged, cut) = run(&volume);
        drop(volume);
        for survival in [Survival::Everything, Survival::Flushed] {
            let after = Arc::new(SimMedium::on(&sim.power_cut_with(survival), simulator()));
            judge(on_card(&after), acknowledged);
        }
        if !cut {
            break;
        }
        cuts += 1;
    }
    assert!(cuts > 20, "{cuts} cuts");
}

/// A card that is removed is gone, and the volume says so.
#[test]
fn a_card_that_is_gone_is_reported() {
    let sim = Arc::new(SimMedium::new(SimOptions::disk(1 << 20)));
    let options = FormatOptions { block_size: 512, ..FormatOptions::default() };
    Volume::format(&on_card(&sim), &options, &TestPlatform::new()).unwrap();
    let volume = open(on_card(&sim));
    sim.power_off();
    let failed = update(&volume, 1);
    assert!(
        matches!(failed, Err(Error::Medium(MediumError { class: ErrorClass::Gone, .. }))),
        "{failed:?}"
    );
}
