//! The translation layer on a part of this host, as a medium.

use std::fmt;

use parking_lot::Mutex;
use steadfast_flash::ftl::{self, FlashError, FlashMedium, Ftl, Layout, RebuildReport};
use steadfast_flash::nand::{BlockNumber, Nand, NandGeometry, PageAddress};
use steadfast_media::{Geometry, Medium, MediumError, Temperature};

/// A part of this host, of any kind.
pub type HostNand = Box<dyn Nand>;

/// A translation layer on a part of this host. Dropping it closes the layer properly.
///
/// The layer itself waits by spinning, which is right if requests never sleep. Here requests sleep
/// in the kernel, so they take turns with a sleeping lock before they enter the layer.
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
    /// Opens the existing translation layer of the part.
    ///
    /// # Errors
    /// There is no translation layer, or it has another geometry or version; or the part's errors.
    pub fn open(nand: HostNand, read_only: bool) -> Result<FlashDevice, FlashError> {
        Ftl::mount(nand, read_only).map(|layer| FlashDevice::over(layer, !read_only))
    }

    /// Creates an empty translation layer. All data on the part is lost.
    ///
    /// # Errors
    /// The part is too small or has too many bad blocks; or the part's errors.
    pub fn format(nand: HostNand, volume: u64) -> Result<FlashDevice, FlashError> {
        ftl::format(nand, volume).map(|layer| FlashDevice::over(layer, true))
    }

    /// Creates an empty translation layer in an image that device programmers write to the good
    /// blocks of parts, in order: see [`ftl::format_image`].
    ///
    /// # Errors
    /// As for [`format`](Self::format).
    pub fn format_image(nand: HostNand, volume: u64) -> Result<FlashDevice, FlashError> {
        ftl::format_image(nand, volume).map(|layer| FlashDevice::over(layer, true))
    }

    /// Rebuilds the structures of the translation layer from the metadata of every page of the
    /// part: see [`ftl::rebuild`].
    ///
    /// # Errors
    /// The part has no journal of a translation layer; then nothing was written. Or the part's
    /// errors.
    pub fn rebuild(nand: HostNand) -> Result<(FlashDevice, RebuildReport), FlashError> {
        ftl::rebuild(nand).map(|(layer, report)| (FlashDevice::over(layer, true), report))
    }

    fn over(layer: Ftl<HostNand>, writable: bool) -> FlashDevice {
        FlashDevice { layer: FlashMedium::new(layer), turn: Mutex::new(()), writable }
    }

    /// Runs `work` on the translation layer while other requests wait.
    pub fn with<T>(&self, work: impl FnOnce(&mut Ftl<HostNand>) -> T) -> T {
        let _turn = self.turn.lock();
        self.layer.with(work)
    }
}

/// The geometry of the medium that a part of this geometry becomes when it is formatted.
///
/// # Errors
/// The part is too small or has too few out-of-band bytes.
pub fn medium_geometry(geometry: &NandGeometry) -> Result<Geometry, FlashError> {
    let size = u64::from(Layout::new(geometry)?.user_pages) * u64::from(geometry.page_size);
    let failure_model = steadfast_media::FailureModel::PowerSafe;
    Ok(Geometry { size, atomic_unit: geometry.page_size, failure_model })
}

/// Whether the first page of every good block is erased, so the part contains no data.
///
/// # Errors
/// Those of the part.
pub fn is_blank(nand: &mut dyn Nand) -> Result<bool, FlashError> {
    let geometry = nand.geometry();
    let mut page = vec![0; geometry.page_size as usize];
    for block in (0..geometry.blocks).map(BlockNumber) {
        if nand.is_bad(block)? {
            continue;
        }
        let first: PageAddress = geometry.page(block, 0);
        nand.read(first, &mut page, &mut [])?;
        // A few flipped bits do not count as data.
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
            // Flushed data is safe without it; only the next mount takes longer.
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
