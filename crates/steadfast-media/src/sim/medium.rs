//! [`SimMedium`]: the interface of the simulator for tests.

use alloc::vec::Vec;
use core::fmt;

use spin::Mutex;

use super::fault::Fault;
use super::in_flight::Survival;
use super::options::SimOptions;
use super::record::{Counters, Record};
use super::state::{Request, State};
use crate::pages::PagedImage;
use crate::random::Random;
use crate::sync::Arc;
use crate::{
    FailureModel, Geometry, Medium, MediumError, MediumOperation, MemoryMedium, Temperature,
};

/// A medium that records requests, fails and loses power on demand; see the [module](crate::sim).
///
/// # Panics
/// Every request that is not aligned to the atomic unit or not inside the medium.
pub struct SimMedium {
    geometry: Geometry,
    state: Mutex<State>,
}

impl SimMedium {
    /// A medium that reads as zeros.
    ///
    /// # Panics
    /// Size and atomic unit are invalid.
    pub fn new(options: SimOptions) -> Self {
        Self::with_image(options, PagedImage::default())
    }

    /// A medium with the contents, the size and the atomic unit of `image`; the other options are
    /// used. Pages are shared, so this is cheap.
    pub fn on(image: &MemoryMedium, options: SimOptions) -> Self {
        let Geometry { size, atomic_unit, .. } = image.geometry();
        Self::with_image(SimOptions { size, atomic_unit, ..options }, image.image())
    }

    fn with_image(options: SimOptions, image: PagedImage) -> Self {
        let geometry =
            match Geometry::new(options.size, options.atomic_unit, FailureModel::PowerSafe) {
                Ok(geometry) => geometry,
                Err(error) => panic!("simulated medium: {error}"),
            };
        SimMedium { geometry, state: Mutex::new(State::new(options, image)) }
    }

    // ---- power

    /// An image that a power cut now could leave, determined by `seed`. The run continues
    /// unchanged.
    pub fn power_cut(&self, seed: u64) -> MemoryMedium {
        self.power_cut_with(Survival::Seeded(seed))
    }

    /// The image that a power cut now would leave with the given survivors. The run continues
    /// unchanged.
    pub fn power_cut_with(&self, survival: Survival) -> MemoryMedium {
        let image = self.state.lock().survivors(survival);
        MemoryMedium::from_image(image, self.geometry)
    }

    /// Writes (and discards) since the last flush: an upper limit for the numbers of
    /// [`Survival::Only`] and [`Survival::AllBut`].
    pub fn in_flight(&self) -> usize {
        self.state.lock().in_flight.len()
    }

    /// Every outcome of a power cut now, except the seeded ones. These are: only the flushed
    /// writes, every prefix of the writes in flight, each of them alone, and all except each. Their
    /// number grows with the writes in flight.
    ///
    /// ```
    /// # use steadfast_media::{Medium, SimMedium, SimOptions};
    /// # let sim = SimMedium::new(SimOptions::disk(4096));
    /// # fn contract_holds(_: impl Medium) -> bool { true }
    /// for survival in sim.corner_cases() {
    ///     assert!(contract_holds(sim.power_cut_with(survival)), "{survival:?}");
    /// }
    /// ```
    pub fn corner_cases(&self) -> impl Iterator<Item = Survival> + use<> {
        let count = self.in_flight();
        // Outcomes that equal a prefix or another outcome are left out. These are the first alone,
        // all except the last, and of two writes all except the first.
        let alone = (1..count).map(Survival::Only);
        let rests = (0..count.saturating_sub(1)).filter(move |_| count > 2).map(Survival::AllBut);
        (0..=count).map(Survival::First).chain(alone).chain(rests)
    }

    /// Lets `requests` more requests pass; the next one is interrupted by a power cut. That request
    /// is in flight; it and all later ones fail with [`ErrorClass::Gone`](crate::ErrorClass::Gone).
    pub fn arm_power_cut(&self, requests: u64) {
        let mut state = self.state.lock();
        state.cut_at = Some(state.sequence.saturating_add(requests));
    }

    /// Cuts the power now.
    pub fn power_off(&self) {
        self.state.lock().off = true;
    }

    /// Whether the power is off.
    pub fn is_off(&self) -> bool {
        self.state.lock().off
    }

    /// Cuts the power, if it is on, and restores it on this medium: its contents are the surviving
    /// ones. An armed cut and all faults are removed; counters and records continue.
    pub fn restart(&self, survival: Survival) {
        let mut state = self.state.lock();
        let image = state.survivors(survival);
        state.current = image.clone();
        state.durable = image;
        state.in_flight.clear();
        state.faults.clear();
        state.cut_at = None;
        state.off = false;
    }

    // ---- faults

    /// Arms a fault in addition to the armed ones. If several match, the one armed first applies.
    pub fn arm(&self, fault: Fault) {
        self.state.lock().faults.push(fault);
    }

    /// Disarms all faults and an armed power cut.
    pub fn disarm(&self) {
        let mut state = self.state.lock();
        state.faults.clear();
        state.cut_at = None;
    }

    /// Sets whether flushes and FUA writes are ignored from now on.
    pub fn ignore_flushes(&self, ignore: bool) {
        self.state.lock().options.ignore_flushes = ignore;
    }

    /// Flips one bit (0 is the lowest) of the byte at `offset`, in the current and the durable
    /// contents. Writes in flight over it are unchanged.
    pub fn flip_bit(&self, offset: u64, bit: u8) {
        assert!(
            offset < self.geometry.size && bit < 8,
            "no bit {bit} at {offset} of {:?}",
            self.geometry
        );
        self.state
            .lock()
            .alter(offset, 1, |bytes| bytes.iter_mut().for_each(|byte| *byte ^= 1 << bit));
    }

    /// Overwrites bytes without a request: no alignment is needed, and the change is not in flight.
    pub fn plant(&self, offset: u64, bytes: &[u8]) {
        let inside =
            offset.checked_add(bytes.len() as u64).is_some_and(|end| end <= self.geometry.size);
        assert!(inside, "cannot plant {} bytes at {offset} of {:?}", bytes.len(), self.geometry);
        self.state.lock().alter(offset, bytes.len(), |target| target.copy_from_slice(bytes));
    }

    /// Plants `length` bytes of garbage determined by `seed`.
    pub fn plant_garbage(&self, offset: u64, length: usize, seed: u64) {
        let mut noise = alloc::vec![0; length];
        Random::new(seed).fill(&mut noise);
        self.plant(offset, &noise);
    }

    /// The contents as reads see them, without a request.
    pub fn peek(&self, offset: u64, length: usize) -> Vec<u8> {
        let inside = offset.checked_add(length as u64).is_some_and(|end| end <= self.geometry.size);
        assert!(inside, "cannot peek {length} bytes at {offset} of {:?}", self.geometry);
        let mut bytes = alloc::vec![0; length];
        self.state.lock().current.read(offset, &mut bytes);
        bytes
    }

    // ---- records

    /// Requests and bytes since the medium was made.
    pub fn counters(&self) -> Counters {
        self.state.lock().counters
    }

    /// Every recorded request since the medium was created or the records were taken.
    pub fn records(&self) -> Vec<Record> {
        self.state.lock().records.clone()
    }

    /// Returns the [`records`](Self::records) and clears them.
    pub fn take_records(&self) -> Vec<Record> {
        core::mem::take(&mut self.state.lock().records)
    }

    /// Checks a request: an invalid one is a bug of the caller.
    fn request(&self, operation: MediumOperation, offset: u64, length: u64) -> Request {
        let Geometry { size, atomic_unit, .. } = self.geometry;
        assert!(
            self.geometry.admits(offset, length),
            "{operation:?} of {length} bytes at {offset}: not aligned to {atomic_unit} or not inside {size} bytes"
        );
        Request { operation, offset, length, buffers: 1, fua: false, temperature: None }
    }

    /// Each buffer of a vectored request must be aligned, as the trait requires.
    fn vectored(
        &self,
        operation: MediumOperation,
        offset: u64,
        lengths: impl Iterator<Item = usize>,
    ) -> Request {
        let (mut total, mut buffers) = (0, 0);
        for length in lengths {
            let _ = self.request(operation, offset + total, length as u64);
            total += length as u64;
            buffers += 1;
        }
        Request { buffers, ..self.request(operation, offset, total) }
    }
}

impl Medium for SimMedium {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        let request = self.request(MediumOperation::Read, offset, buffer.len() as u64);
        self.state.lock().read(&request, &mut [buffer])
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        let request = self.request(MediumOperation::Write, offset, data.len() as u64);
        self.state.lock().write(&request, data.into())
    }

    fn flush(&self) -> Result<(), MediumError> {
        let request = Request { buffers: 0, ..self.request(MediumOperation::Flush, 0, 0) };
        self.state.lock().flush(&request)
    }

    fn discard(&self, offset: u64, length: u64) -> Result<(), MediumError> {
        let request =
            Request { buffers: 0, ..self.request(MediumOperation::Discard, offset, length) };
        self.state.lock().discard(&request)
    }

    fn read_vectored(&self, offset: u64, buffers: &mut [&mut [u8]]) -> Result<(), MediumError> {
        let request =
            self.vectored(MediumOperation::Read, offset, buffers.iter().map(|it| it.len()));
        self.state.lock().read(&request, buffers)
    }

    fn write_vectored(&self, offset: u64, buffers: &[&[u8]]) -> Result<(), MediumError> {
        let request =
            self.vectored(MediumOperation::Write, offset, buffers.iter().map(|it| it.len()));
        let data: Arc<[u8]> = buffers.concat().into();
        self.state.lock().write(&request, data)
    }

    fn write_hinted(
        &self,
        offset: u64,
        buffers: &[&[u8]],
        temperature: Temperature,
    ) -> Result<(), MediumError> {
        let request =
            self.vectored(MediumOperation::Write, offset, buffers.iter().map(|it| it.len()));
        let request = Request { temperature: Some(temperature), ..request };
        let data: Arc<[u8]> = buffers.concat().into();
        self.state.lock().write(&request, data)
    }

    fn write_fua(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        let request = self.request(MediumOperation::Write, offset, data.len() as u64);
        let request = Request { fua: true, ..request };
        self.state.lock().write(&request, data.into())
    }

    fn report_bad(&self, _copy: u32, offset: u64, length: u64) {
        let _ = self.request(MediumOperation::Read, offset, length);
        self.state.lock().counters.bad_reports += 1;
    }
}

impl fmt::Debug for SimMedium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("SimMedium")
            .field("geometry", &self.geometry)
            .field("counters", &state.counters)
            .field("in_flight", &state.in_flight.len())
            .field("off", &state.off)
            .finish_non_exhaustive()
    }
}
