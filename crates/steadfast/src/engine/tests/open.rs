//! Opening announces its reads, so that a slow medium can do them together instead of one by one.

use alloc::vec::Vec;
use std::sync::Mutex;

use steadfast_media::{Geometry, Medium, MediumError, MemoryMedium};

use crate::fs::{Caller, NewNode};
use crate::options::{FormatOptions, OpenOptions};
use crate::testing::TestPlatform;
use crate::types::InodeNumber;
use crate::volume::Volume;

const ROOT: InodeNumber = InodeNumber::ROOT;

/// Records the announced ranges, and the reads outside them.
struct Noting {
    medium: MemoryMedium,
    announced: Mutex<Vec<(u64, u64)>>,
    unannounced: Mutex<Vec<(u64, usize)>>,
}

impl Medium for &Noting {
    fn geometry(&self) -> Geometry {
        self.medium.geometry()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        let end = offset + buffer.len() as u64;
        let known = self
            .announced
            .lock()
            .unwrap()
            .iter()
            .any(|(start, length)| *start <= offset && end <= start + length);
        if !known {
            self.unannounced.lock().unwrap().push((offset, buffer.len()));
        }
        self.medium.read(offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        self.medium.write(offset, data)
    }

    fn flush(&self) -> Result<(), MediumError> {
        self.medium.flush()
    }

    fn will_read(&self, offset: u64, length: u64) {
        self.announced.lock().unwrap().push((offset, length));
    }
}

#[test]
fn what_opening_reads_is_announced() {
    let medium = MemoryMedium::new(16 << 20, 512).unwrap();
    let noting = Noting { medium, announced: Mutex::default(), unannounced: Mutex::default() };
    Volume::format(&&noting, &FormatOptions::default(), &TestPlatform::new()).unwrap();
    let open = || Volume::open(&noting, OpenOptions::default(), TestPlatform::new()).unwrap();
    let volume = open();
    for number in 0..20 {
        let name = alloc::format!("file{number}");
        volume.create(ROOT, name.as_bytes(), NewNode::Regular, 0o644, &Caller::default()).unwrap();
        volume.transact().unwrap();
    }
    // As a power cut leaves it: the log has all of them.
    drop(volume);
    noting.announced.lock().unwrap().clear();
    noting.unannounced.lock().unwrap().clear();
    let volume = open();
    let missed = noting.unannounced.lock().unwrap().clone();
    assert!(missed.is_empty(), "{missed:?}, announced: {:?}", noting.announced.lock().unwrap());
    assert!(volume.lookup(ROOT, b"file19").is_ok());
}
