//! The translation layer on a part of this host, as a medium.

use std::fmt;

use parking_lot::Mutex;
use steadfast_flash::ftl::{self, FlashError, FlashMedium, Ftl, Layout, RebuildReport};
use steadfast_flash::nand::{BlockNumber, Nand, NandGeometry, PageAddress};
use steadfast_media::{Geometry, Medium, MediumError, Temperature};

/// A part of this host, whatever is below.
pub type HostNand = Box<dyn Nand>;

/// A translation layer on a part of this host. Closed in good order when it is dropped.
///
/// The layer itself waits by spinning, which is right where nothing sleeps; here requests sleep in
/// the kernel, so they wait for their turn in front of it.
pub struct FlashDevice {
    layer: FlashMedium<HostNand>,
    turn: Mutex<()>,
    writable: bool,
}

impl fmt::Debug for FlashDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let geometry = self.layer.geometry();
        f.debug_struct("FlashDevice").field("geometry", &geometry).finish_non_exhaustive()
    }
}

impl FlashDevice {
    /// Opens the translation layer that is on the part.
    ///
    /// # Errors
    /// There is none, or none of this geometry and version; or the part's errors.
    pub fn open(nand: HostNand, read_only: bool) -> Result<FlashDevice, FlashError> {
        Ftl::mount(nand, read_only).map(|layer| FlashDevice::over(layer, !read_only))
    }

    /// Makes an empty translation layer; what was on the part is lost.
    ///
    /// # Errors
    /// The part is too small or has too many bad blocks; or its own errors.
    pub fn format(nand: HostNand, volume: u64) -> Result<FlashDevice, FlashError> {
        ftl::format(nand, volume).map(|layer| FlashDevice::over(layer, true))
    }

    /// Makes an empty translation layer in an image that programmers put into the good blocks of
    /// parts, in order: see [`ftl::format_image`].
    ///
    /// # Errors
    /// As [`format`](Self::format).
    pub fn format_image(nand: HostNand, volume: u64) -> Result<FlashDevice, FlashError> {
        ftl::format_image(nand, volume).map(|layer| FlashDevice::over(layer, true))
    }

    /// Makes the structures of the translation layer anew, from what every page of the part says:
    /// see [`ftl::rebuild`].
    ///
    /// # Errors
    /// There is no journal of a translation layer on the part; then nothing was written. Or the
    /// part's errors.
    pub fn rebuild(nand: HostNand) -> Result<(FlashDevice, RebuildReport), FlashError> {
        ftl::rebuild(nand).map(|(layer, report)| (FlashDevice::over(layer, true), report))
    }

    fn over(layer: Ftl<HostNand>, writable: bool) -> FlashDevice {
        FlashDevice { layer: FlashMedium::new(layer), turn: Mutex::new(()), writable }
    }

    /// Does something with the translation layer; requests wait.
    pub fn with<T>(&self, work: impl FnOnce(&mut Ftl<HostNand>) -> T) -> T {
        let _turn = self.turn.lock();
        self.layer.with(work)
    }
}

/// The medium that a part of this geometry will be once it is formatted.
///
/// # Errors
/// The part is too small or has too few out-of-band bytes.
pub fn medium_geometry(geometry: &NandGeometry) -> Result<Geometry, FlashError> {
    let size = u64::from(Layout::new(geometry)?.user_pages) * u64::from(geometry.page_size);
    let failure_model = steadfast_media::FailureModel::PowerSafe;
    Ok(Geometry { size, atomic_unit: geometry.page_size, failure_model })
}

/// Whether the first page of every good block is erased: nobody has put anything on the part.
///
/// # Errors
/// The part's.
pub fn is_blank(nand: &mut dyn Nand) -> Result<bool, FlashError> {
    let geometry = nand.geometry();
    let mut page = vec![0; geometry.page_size as usize];
    for block in (0..geometry.blocks).map(BlockNumber) {
        if nand.is_bad(block)? {
            continue;
        }
        let first: PageAddress = geometry.page(block, 0);
        nand.read(first, &mut page, &mut [])?;
        // A few flipped bits are none that somebody has written.
        let limit = geometry.page_size / 512 * u32::from(geometry.ecc.bits.max(1));
        if steadfast_flash::ecc::flips_if_erased(&page, limit).is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Drop for FlashDevice {
    fn drop(&mut self) {
        if self.writable {
            // What was flushed is safe without it: only the next mount is longer.
            let _ = self.layer.close();
        }
    }
}

impl Medium for FlashDevice {
    fn geometry(&self) -> Geometry {
        self.layer.geometry()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        let _turn = self.turn.lock();
        self.layer.read(offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        let _turn = self.turn.lock();
        self.layer.write(offset, data)
    }

    fn flush(&self) -> Result<(), MediumError> {
        let _turn = self.turn.lock();
        self.layer.flush()
    }

    fn wants_discards(&self) -> bool {
        self.layer.wants_discards()
    }

    fn wants_discards_early(&self) -> bool {
        self.layer.wants_discards_early()
    }

    fn flushes_cheaply(&self) -> bool {
        self.layer.flushes_cheaply()
    }

    fn upkeep(&self) -> Option<u64> {
        let _turn = self.turn.lock();
        self.layer.upkeep()
    }

    fn discard(&self, offset: u64, length: u64) -> Result<(), MediumError> {
        let _turn = self.turn.lock();
        self.layer.discard(offset, length)
    }

    fn write_hinted(
        &self,
        offset: u64,
        buffers: &[&[u8]],
        temperature: Temperature,
    ) -> Result<(), MediumError> {
        let _turn = self.turn.lock();
        self.layer.write_hinted(offset, buffers, temperature)
    }
}
