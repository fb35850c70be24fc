//! [`MediumExport`]: any medium as an export.

use std::sync::Arc;

use steadfast_media::Medium;

use super::{Catalogue, Export, ExportError, Refusal};

/// A medium as an export. Requests must be aligned to its atomic unit, which is announced to
/// clients.
pub struct MediumExport<M> {
    medium: M,
    read_only: bool,
}

impl<M: Medium> MediumExport<M> {
    /// Serves `medium`.
    pub fn new(medium: M, read_only: bool) -> MediumExport<M> {
        MediumExport { medium, read_only }
    }

    /// The medium.
    pub fn medium(&self) -> &M {
        &self.medium
    }
}

impl<M: Medium> Export for MediumExport<M> {
    fn size(&self) -> u64 {
        self.medium.geometry().size
    }

    fn block_min(&self) -> u32 {
        self.medium.geometry().atomic_unit
    }

    fn read_only(&self) -> bool {
        self.read_only
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ExportError> {
        self.medium.read(offset, buffer).map_err(|_| ExportError::Failed)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), ExportError> {
        self.medium.write(offset, data).map_err(|_| ExportError::Failed)
    }

    fn flush(&self) -> Result<(), ExportError> {
        if self.read_only {
            return Ok(());
        }
        self.medium.flush().map_err(|_| ExportError::Failed)
    }

    fn trim(&self, offset: u64, length: u64) -> Result<(), ExportError> {
        self.medium.discard(offset, length).map_err(|_| ExportError::Failed)
    }
}

/// A catalogue of one export, with the empty name and one more name.
pub struct Single {
    name: String,
    export: Arc<dyn Export>,
}

impl Single {
    /// Serves `export` as the default export and as `name`.
    pub fn new(name: impl Into<String>, export: Arc<dyn Export>) -> Single {
        Single { name: name.into(), export }
    }
}

impl Catalogue for Single {
    fn names(&self) -> Vec<String> {
        vec![self.name.clone()]
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Export>, Refusal> {
        match name.is_empty() || name == self.name {
            true => Ok(Arc::clone(&self.export)),
            false => Err(Refusal::Unknown),
        }
    }
}
