//! The medium under a hostile image: memory, with a limit on the number of requests.

use parking_lot::Mutex;
use steadfast_media::{ErrorClass, FailureModel, Geometry, Medium, MediumError, MediumOperation};

/// A medium in memory.
///
/// # Panics
/// The number of requests exceeds the budget: the work that an image causes must be bounded,
/// whatever it contains.
#[derive(Debug)]
pub struct BudgetMedium {
    size: u64,
    inner: Mutex<Budgeted>,
}

#[derive(Debug)]
struct Budgeted {
    bytes: Vec<u8>,
    requests: u64,
    budget: u64,
}

impl BudgetMedium {
    /// A medium with these bytes.
    pub fn new(bytes: Vec<u8>) -> BudgetMedium {
        BudgetMedium {
            size: bytes.len() as u64,
            inner: Mutex::new(Budgeted { bytes, requests: 0, budget: u64::MAX }),
        }
    }

    /// Allows this many requests from now on.
    pub fn allow(&self, requests: u64) {
        let mut inner = self.inner.lock();
        inner.budget = inner.requests + requests;
    }

    /// Requests so far.
    pub fn requests(&self) -> u64 {
        self.inner.lock().requests
    }

    fn transfer(
        &self,
        operation: MediumOperation,
        offset: u64,
        length: usize,
        transfer: impl FnOnce(&mut [u8]),
    ) -> Result<(), MediumError> {
        let mut inner = self.inner.lock();
        inner.requests += 1;
        assert!(inner.requests <= inner.budget, "unbounded work: {} requests", inner.requests);
        let range =
            usize::try_from(offset).ok().and_then(|start| Some(start..start.checked_add(length)?));
        match range.and_then(|range| inner.bytes.get_mut(range)) {
            Some(bytes) => {
                transfer(bytes);
                Ok(())
            }
            None => Err(MediumError {
                operation,
                offset,
                length: length as u64,
                class: ErrorClass::Permanent,
                os_error: 0,
            }),
        }
    }
}

impl Medium for BudgetMedium {
    fn geometry(&self) -> Geometry {
        Geometry { size: self.size, atomic_unit: 128, failure_model: FailureModel::PowerSafe }
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        self.transfer(MediumOperation::Read, offset, buffer.len(), |bytes| {
            buffer.copy_from_slice(bytes)
        })
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        self.transfer(MediumOperation::Write, offset, data.len(), |bytes| {
            bytes.copy_from_slice(data)
        })
    }

    fn flush(&self) -> Result<(), MediumError> {
        Ok(())
    }
}
