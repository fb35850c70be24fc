//! Serial NOR flash in memory, with power cuts in the middle of programs and erasures.

use alloc::vec;
use alloc::vec::Vec;

use steadfast_media::Random;
use steadfast_media::sync::Arc;

use super::interrupted::Interrupted;
use crate::nand::{BlockNumber, NandError, NandOperation};
use crate::nor::{Nor, NorGeometry};

/// An erase sector.
#[derive(Debug, Clone)]
struct Sector {
    bytes: Vec<u8>,
    /// Bits that read differently each time.
    unstable: Vec<u8>,
    /// Bits that look erased and are unstable some time after the byte was programmed.
    weak: Vec<u8>,
    /// Bits that become unstable with the next operation on the sector: reading a program at once
    /// does not tell.
    soon: Vec<(usize, u8)>,
    erases: u32,
}

impl Sector {
    fn new(size: usize) -> Sector {
        let (bytes, none) = (vec![0xff; size], vec![0; size]);
        Sector { bytes, unstable: none.clone(), weak: none, soon: Vec::new(), erases: 0 }
    }
}

/// A NOR part in memory. A copy costs one pointer for each sector.
#[derive(Debug, Clone)]
pub struct NorModel {
    geometry: NorGeometry,
    sectors: Vec<Arc<Sector>>,
    random: Random,
    /// Programs and erasures until the armed power cut, and its outcome.
    cut: Option<(u64, Interrupted)>,
    powered: bool,
    /// Programs and erasures so far.
    operations: u64,
}

impl NorModel {
    /// A new part, all erased. The sizes are those that [`NorNand`](crate::nor::NorNand) accepts.
    #[must_use]
    pub fn new(geometry: NorGeometry, seed: u64) -> NorModel {
        let sector = Arc::new(Sector::new(geometry.sector_size as usize));
        NorModel {
            geometry,
            sectors: vec![sector; geometry.sectors as usize],
            random: Random::new(seed),
            cut: None,
            powered: true,
            operations: 0,
        }
    }

    /// Cuts the power in the operation after this many programs and erasures.
    pub fn cut_after(&mut self, operations: u64, outcome: Interrupted) {
        self.cut = Some((operations, outcome));
    }

    /// Switches the power on again, without an armed cut.
    pub fn power_on(&mut self) {
        (self.powered, self.cut) = (true, None);
    }

    /// Whether the power is on.
    #[must_use]
    pub fn is_powered(&self) -> bool {
        self.powered
    }

    /// Other random numbers from here on.
    pub fn reseed(&mut self, seed: u64) {
        self.random = Random::new(seed);
    }

    /// Programs and erasures so far.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// Erasures of the sectors: fewest, most, sum.
    #[must_use]
    pub fn wear(&self) -> (u32, u32, u64) {
        let erases = || self.sectors.iter().map(|sector| sector.erases);
        (erases().min().unwrap_or(0), erases().max().unwrap_or(0), erases().map(u64::from).sum())
    }

    fn place(&self, address: u32) -> (usize, usize) {
        let size = self.geometry.sector_size;
        ((address / size) as usize, (address % size) as usize)
    }

    /// Counts an operation. `Some`: the power fails in it.
    fn begin(&mut self) -> Result<Option<Interrupted>, NandError> {
        if !self.powered {
            return Err(NandError::Gone);
        }
        self.operations += 1;
        match &mut self.cut {
            Some((0, outcome)) => {
                let outcome = *outcome;
                self.powered = false;
                Ok(Some(outcome))
            }
            Some((left, _)) => {
                *left -= 1;
                Ok(None)
            }
            None => Ok(None),
        }
    }

    fn sector(&mut self, index: usize) -> Option<&mut Sector> {
        self.sectors.get_mut(index).map(Arc::make_mut)
    }

    /// Programs `data`, of which `outcome` leaves a part.
    fn apply(&mut self, address: u32, data: &[u8], outcome: Interrupted) {
        let (index, from) = self.place(address);
        let mut random = self.random.clone();
        self.random.bits();
        let torn_at = random.below(data.len() as u64) as usize;
        let Some(sector) = self.sector(index) else { return };
        for (at, bits) in core::mem::take(&mut sector.soon) {
            if let Some(unstable) = sector.unstable.get_mut(at) {
                *unstable |= bits;
            }
        }
        for (number, value) in data.iter().enumerate() {
            let at = from + number;
            let (Some(byte), Some(unstable), Some(weak)) =
                (sector.bytes.get_mut(at), sector.unstable.get_mut(at), sector.weak.get_mut(at))
            else {
                return;
            };
            let cleared = *byte & !value;
            let some = random.bits() as u8;
            match outcome {
                Interrupted::NotBegun => {}
                // Some charge has gone, too little to be read.
                Interrupted::Invisible => *weak |= cleared & some,
                Interrupted::Half if number < torn_at => *byte &= value,
                Interrupted::Half if number == torn_at => {
                    *byte &= !(cleared & some);
                    *unstable |= cleared & random.bits() as u8;
                }
                Interrupted::Half => {}
                Interrupted::Unstable => {
                    *byte &= value;
                    *unstable |= cleared & some;
                }
                Interrupted::Done => {
                    *byte &= value;
                    if *weak != 0 {
                        sector.soon.push((at, *weak));
                    }
                }
            }
        }
    }

    /// Erases a sector, or a part of it.
    fn erase_part(&mut self, index: usize, outcome: Interrupted) {
        let mut random = self.random.clone();
        self.random.bits();
        let Some(sector) = self.sector(index) else { return };
        if outcome == Interrupted::NotBegun {
            return;
        }
        sector.erases += 1;
        sector.soon.clear();
        for at in 0..sector.bytes.len() {
            let (value, unstable, weak) = match outcome {
                Interrupted::Invisible => (0xff, 0, random.bits() as u8),
                // The part programs all bits first, then it erases them.
                Interrupted::Half | Interrupted::Unstable => {
                    let old = sector.bytes.get(at).copied().unwrap_or(0);
                    let value = match random.below(4) {
                        0 => old,
                        1 => 0,
                        2 => 0xff,
                        _ => old | random.bits() as u8,
                    };
                    let shaky = outcome == Interrupted::Unstable && random.one_in(4);
                    (value, if shaky { random.bits() as u8 } else { 0 }, random.bits() as u8)
                }
                _ => (0xff, 0, 0),
            };
            let place =
                (sector.bytes.get_mut(at), sector.unstable.get_mut(at), sector.weak.get_mut(at));
            if let (Some(byte), Some(mask), Some(later)) = place {
                (*byte, *mask, *later) = (value, unstable, weak);
            }
        }
    }
}

impl Nor for NorModel {
    fn geometry(&self) -> NorGeometry {
        self.geometry
    }

    fn read(&mut self, address: u32, buffer: &mut [u8]) -> Result<(), NandError> {
        if !self.powered {
            return Err(NandError::Gone);
        }
        let (index, from) = self.place(address);
        let Some(sector) = self.sectors.get(index) else { return Err(NandError::Gone) };
        let bytes = sector.bytes.iter().zip(&sector.unstable).skip(from);
        let mut filled = 0;
        for (to, (byte, unstable)) in buffer.iter_mut().zip(bytes) {
            *to = *byte;
            if *unstable != 0 {
                *to ^= unstable & self.random.bits() as u8;
            }
            filled += 1;
        }
        debug_assert_eq!(filled, buffer.len(), "a read that leaves its sector");
        Ok(())
    }

    fn program(&mut self, address: u32, data: &[u8]) -> Result<(), NandError> {
        let (index, _) = self.place(address);
        let size = self.geometry.program_size as usize;
        if address as usize % size + data.len() > size || index >= self.sectors.len() {
            return Err(NandError::Refused {
                operation: NandOperation::Program,
                block: index as u32,
                rule: "a program crosses a program page",
            });
        }
        let cut = self.begin()?;
        self.apply(address, data, cut.unwrap_or(Interrupted::Done));
        cut.map_or(Ok(()), |_| Err(NandError::Gone))
    }

    fn erase(&mut self, sector: BlockNumber) -> Result<(), NandError> {
        let cut = self.begin()?;
        let index = sector.0 as usize;
        let cycles = self.geometry.cycles;
        if cut.is_none() && self.sectors.get(index).is_none_or(|sector| sector.erases >= cycles) {
            // Worn out: some bits no longer become ones.
            self.erase_part(index, Interrupted::Half);
            return Err(NandError::Failed { operation: NandOperation::Erase, block: sector.0 });
        }
        self.erase_part(index, cut.unwrap_or(Interrupted::Done));
        cut.map_or(Ok(()), |_| Err(NandError::Gone))
    }
}
