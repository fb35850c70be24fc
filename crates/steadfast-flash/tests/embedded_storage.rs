//! Drivers of the crate `embedded-storage` as NOR parts: what is asked of a driver, what does not
//! fit, and how its errors appear. `steadfast-torture/tests/embedded_storage.rs` has volumes on
//! them and power cuts.

use embedded_storage::nor_flash::{
    ErrorType, NorFlash, NorFlashErrorKind, ReadNorFlash, check_erase, check_read, check_write,
};
use steadfast_flash::ftl::{FlashError, Ftl, format};
use steadfast_flash::nand::{BlockNumber, NandError, NandOperation};
use steadfast_flash::nor::{DriverMisfit, EmbeddedNor, Nor, NorNand};

/// NOR in memory that takes whole units only, and programs none of them twice.
struct Chip<const READ: usize, const WRITE: usize, const ERASE: usize> {
    bytes: Vec<u8>,
    /// Whether the unit was programmed since its erasure.
    programmed: Vec<bool>,
    /// Reads fail.
    deaf: bool,
    /// Programs and erasures of the sector that begins here fail.
    worn: Option<u32>,
}

impl<const READ: usize, const WRITE: usize, const ERASE: usize> Chip<READ, WRITE, ERASE> {
    fn new(size: usize) -> Self {
        let programmed = vec![false; size / WRITE.max(1)];
        Chip { bytes: vec![0xff; size], programmed, deaf: false, worn: None }
    }

    fn wear(&self, address: u32) -> Result<(), NorFlashErrorKind> {
        let worn = self.worn.is_some_and(|begin| (begin..begin + 4096).contains(&address));
        if worn { Err(NorFlashErrorKind::Other) } else { Ok(()) }
    }
}

impl<const READ: usize, const WRITE: usize, const ERASE: usize> ErrorType
    for Chip<READ, WRITE, ERASE>
{
    type Error = NorFlashErrorKind;
}

impl<const READ: usize, const WRITE: usize, const ERASE: usize> ReadNorFlash
    for Chip<READ, WRITE, ERASE>
{
    const READ_SIZE: usize = READ;

    fn read(&mut self, offset: u32, bytes: &mut [u8]) -> Result<(), NorFlashErrorKind> {
        check_read(self, offset, bytes.len())?;
        if self.deaf {
            return Err(NorFlashErrorKind::Other);
        }
        bytes.copy_from_slice(&self.bytes[offset as usize..][..bytes.len()]);
        Ok(())
    }

    fn capacity(&self) -> usize {
        self.bytes.len()
    }
}

impl<const READ: usize, const WRITE: usize, const ERASE: usize> NorFlash
    for Chip<READ, WRITE, ERASE>
{
    const WRITE_SIZE: usize = WRITE;
    const ERASE_SIZE: usize = ERASE;

    fn erase(&mut self, from: u32, to: u32) -> Result<(), NorFlashErrorKind> {
        check_erase(self, from, to)?;
        self.wear(from)?;
        self.bytes[from as usize..to as usize].fill(0xff);
        self.programmed[from as usize / WRITE..to as usize / WRITE].fill(false);
        Ok(())
    }

    fn write(&mut self, offset: u32, bytes: &[u8]) -> Result<(), NorFlashErrorKind> {
        check_write(self, offset, bytes.len())?;
        self.wear(offset)?;
        let at = offset as usize;
        for unit in &mut self.programmed[at / WRITE..][..bytes.len() / WRITE] {
            assert!(!std::mem::replace(unit, true), "a unit at {at} is programmed twice");
        }
        for (to, from) in self.bytes[at..].iter_mut().zip(bytes) {
            *to &= from;
        }
        Ok(())
    }
}

fn filled(number: u32) -> [u8; 512] {
    std::array::from_fn(|at| (number.wrapping_mul(2_654_435_761) >> (at % 4 * 8)) as u8 ^ at as u8)
}

/// Writes more than the part holds, mounts, and compares.
fn round_trip<const READ: usize, const WRITE: usize, const ERASE: usize>() {
    let size = 64 * ERASE.max(4096);
    let chip = EmbeddedNor::new(Chip::<READ, WRITE, ERASE>::new(size), 100_000).unwrap();
    let mut ftl = format(NorNand::new(chip, 512).unwrap(), 1).unwrap();
    for number in 0..2000 {
        ftl.write_page(number % 150, &filled(number)).unwrap();
    }
    ftl.flush().unwrap();
    // Without closing, as after a power cut.
    let mut ftl = Ftl::mount(ftl.into_nand(), false).unwrap();
    let mut found = [0; 512];
    for page in 0..150 {
        ftl.read_page(page, &mut found).unwrap();
        let last = (0..2000).rev().find(|number| number % 150 == page).unwrap();
        assert!(found == filled(last), "page {page} with units of {READ}, {WRITE}, {ERASE}");
    }
}

#[test]
fn drivers_of_all_units_hold_what_was_written() {
    round_trip::<1, 1, 4096>();
    round_trip::<4, 4, 4096>();
    round_trip::<1, 8, 2048>();
    round_trip::<32, 32, 4096>();
    round_trip::<2, 16, 16_384>();
    round_trip::<1, 1, 1>();
}

/// Requests of any position and length, also inside one unit.
#[test]
fn requests_are_made_whole() {
    let mut chip = EmbeddedNor::new(Chip::<8, 16, 4096>::new(64 << 10), 1).unwrap();
    chip.program(4096 + 13, &[1, 2]).unwrap();
    chip.program(4096 + 40, &(0..60).collect::<Vec<u8>>()).unwrap();
    let mut expected = vec![0xff; 4096];
    expected[13..15].copy_from_slice(&[1, 2]);
    expected[40..100].copy_from_slice(&(0..60).collect::<Vec<u8>>());
    for from in 0..40 {
        for length in 0..70 {
            let mut found = vec![0; length];
            chip.read(4096 + from as u32, &mut found).unwrap();
            assert_eq!(found, expected[from..][..length], "{from}, {length}");
        }
    }
    assert_eq!(chip.driver().bytes[4096..8192], expected);
}

fn misfit<const READ: usize, const WRITE: usize, const ERASE: usize>(
    size: usize,
) -> Option<DriverMisfit> {
    EmbeddedNor::new(Chip::<READ, WRITE, ERASE>::new(size), 1).err()
}

#[test]
fn what_does_not_fit_is_refused() {
    const SIZE: usize = 1 << 20;
    assert_eq!(misfit::<0, 1, 4096>(SIZE), Some(DriverMisfit::ReadSize(0)));
    assert_eq!(misfit::<64, 1, 4096>(SIZE), Some(DriverMisfit::ReadSize(64)));
    assert_eq!(misfit::<1, 0, 4096>(SIZE), Some(DriverMisfit::WriteSize(0)));
    assert_eq!(misfit::<1, 24, 4096>(SIZE), Some(DriverMisfit::WriteSize(24)));
    assert_eq!(misfit::<1, 64, 4096>(SIZE), Some(DriverMisfit::WriteSize(64)));
    assert_eq!(misfit::<1, 1, 0>(SIZE), Some(DriverMisfit::EraseSize(0)));
    assert_eq!(misfit::<1, 8, 4>(SIZE), Some(DriverMisfit::EraseSize(4)));
    assert_eq!(misfit::<1, 1, 131_072>(SIZE), Some(DriverMisfit::EraseSize(131_072)));
    assert_eq!(misfit::<1, 1, 4096>(4095), Some(DriverMisfit::Capacity(4095)));
    let text = DriverMisfit::WriteSize(64).to_string();
    assert_eq!(text, "write size 64 is not a power of two from 1 to 32");
    // A rest below a sector is not used.
    let chip = EmbeddedNor::new(Chip::<1, 4, 2048>::new(13 * 2048), 7).unwrap();
    let geometry = chip.geometry();
    assert_eq!((geometry.sector_size, geometry.sectors, geometry.cycles), (4096, 6, 7));
}

#[test]
fn errors_of_the_driver_are_told_apart() {
    let mut chip = EmbeddedNor::new(Chip::<1, 1, 4096>::new(64 << 10), 1).unwrap();
    let (program, erase) = (NandOperation::Program, NandOperation::Erase);
    // Outside the driver: a mistake of the caller.
    let refused = |error| matches!(error, Err(NandError::Refused { block: 16, .. }));
    assert!(refused(chip.read(64 << 10, &mut [0; 4])));
    assert!(refused(chip.program(64 << 10, &[0; 4])));
    assert!(refused(chip.erase(BlockNumber(16))));
    // The sector fails and the part answers.
    chip.driver_mut().worn = Some(8192);
    let failed = |operation| Err(NandError::Failed { operation, block: 2 });
    assert_eq!(chip.program(8192, &[0; 4]), failed(program));
    assert_eq!(chip.erase(BlockNumber(2)), failed(erase));
    assert_eq!(chip.erase(BlockNumber(3)), Ok(()));
    // The part does not answer.
    chip.driver_mut().deaf = true;
    let io = |operation| Err(NandError::Io { operation, block: 2, os_error: 0 });
    assert_eq!(chip.read(8192, &mut [0; 4]), io(NandOperation::Read));
    assert_eq!(chip.program(8192, &[0; 4]), io(program));
    assert_eq!(chip.erase(BlockNumber(2)), io(erase));
}

/// The layer leaves out a sector whose programs fail, and passes on that a part does not answer.
#[test]
fn the_layer_goes_on_without_a_worn_sector() {
    let chip = EmbeddedNor::new(Chip::<1, 1, 4096>::new(256 << 10), 100_000).unwrap();
    let mut ftl = format(NorNand::new(chip, 512).unwrap(), 1).unwrap();
    ftl.nand().part_mut().driver_mut().worn = Some(40 * 4096);
    for number in 0..1000 {
        ftl.write_page(number % 50, &filled(number)).unwrap();
    }
    ftl.flush().unwrap();
    assert_eq!(ftl.info().grown_bad, 1);
    let mut found = [0; 512];
    for page in 0..50 {
        ftl.read_page(page, &mut found).unwrap();
        assert!(found == filled(950 + page), "page {page}");
    }
    ftl.nand().part_mut().driver_mut().deaf = true;
    let failed = ftl.write_page(0, &filled(1));
    assert!(matches!(failed, Err(FlashError::Nand(NandError::Io { .. }))), "{failed:?}");
}
