//! Compares random requests to a medium with the same requests to memory.

use steadfast_media::{Medium, MemoryMedium, Temperature};

/// Size of the largest buffer: larger than a bounce buffer.
const BUFFER_MAX: usize = 600 << 10;

/// Executes `count` random requests on both, and compares every read, and all contents at the end.
/// Buffers are at arbitrary addresses, so that direct I/O has to bounce, and at aligned ones.
pub fn compare(medium: &impl Medium, seed: u64, count: usize, discards_read_as_zeros: bool) {
    let geometry = medium.geometry();
    let unit = u64::from(geometry.atomic_unit);
    let model = MemoryMedium::new(geometry.size, geometry.atomic_unit).unwrap();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut below = |bound: u64| random.u64(..bound);
    let mut memory = vec![0_u8; BUFFER_MAX + 8192];
    let mut expected = vec![0_u8; BUFFER_MAX];
    let aligned = memory.as_ptr().align_offset(4096);
    for index in 0..count {
        let offset = below(geometry.size / unit) * unit;
        let longest = if below(20) == 0 { BUFFER_MAX as u64 } else { 32 << 10 };
        let length = (1 + below(longest / unit)).min((geometry.size - offset) / unit) * unit;
        let start = if below(2) == 0 { aligned } else { aligned + 1 + below(4000) as usize };
        let buffer = &mut memory[start..start + length as usize];
        let expected = &mut expected[..length as usize];
        let kind = below(10);
        if kind < 5 {
            for (at, byte) in buffer.iter_mut().enumerate() {
                *byte = (index * 31 + at / 7) as u8;
            }
            model.write(offset, buffer).unwrap();
        }
        let (front, back) = buffer.split_at_mut((length / unit / 2 * unit) as usize);
        match kind {
            0 => medium.write_fua(offset, buffer).unwrap(),
            1 => medium.write_hinted(offset, &[buffer], Temperature::Cold).unwrap(),
            2 | 3 => medium.write_vectored(offset, &[front, &[], back]).unwrap(),
            4 => medium.write(offset, buffer).unwrap(),
            5 => medium.flush().unwrap(),
            6 if discards_read_as_zeros => {
                medium.discard(offset, length).unwrap();
                model.discard(offset, length).unwrap();
            }
            7 | 8 => {
                medium.read_vectored(offset, &mut [front, &mut [], back]).unwrap();
                model.read(offset, expected).unwrap();
                assert!(buffer == expected, "{length} bytes at {offset}, request {index}");
            }
            _ => {
                medium.read(offset, buffer).unwrap();
                model.read(offset, expected).unwrap();
                assert!(buffer == expected, "{length} bytes at {offset}, request {index}");
            }
        }
    }
    let mut all = vec![0; geometry.size as usize];
    medium.read(0, &mut all).unwrap();
    assert!(all == model.to_bytes());
}

/// Several threads write at the same time, each to its own units, and read back.
pub fn in_parallel(medium: &impl Medium) {
    let unit = medium.geometry().atomic_unit as usize;
    let threads = 4;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                for round in 0..100 {
                    let offset = ((round * threads + thread) * unit) as u64;
                    let mark = (round * threads + thread) as u8;
                    medium.write(offset, &vec![mark; unit]).unwrap();
                    if round % 25 == 0 {
                        medium.flush().unwrap();
                    }
                    let mut found = vec![0; unit];
                    medium.read(offset, &mut found).unwrap();
                    assert!(found.iter().all(|byte| *byte == mark));
                }
            });
        }
    });
}

/// Memory that direct I/O accepts directly.
#[allow(dead_code)]
pub struct Aligned {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

#[allow(dead_code)]
impl Aligned {
    pub fn new(length: usize, byte: u8) -> Aligned {
        let memory = vec![byte; length + 4096];
        let start = memory.as_ptr().addr().wrapping_neg() % 4096;
        Aligned { memory, start, length }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..][..self.length]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.length]
    }
}

/// Drops clean pages of a file from the page cache. Returns whether the pages at its start are
/// gone.
#[allow(dead_code)]
pub fn forget_pages(path: &std::path::Path) -> bool {
    let file = std::fs::File::open(path).unwrap();
    let length = file.metadata().unwrap().len();
    // Pages in use by the system stay cached, so it retries.
    (0..20).any(|_| {
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let gone = (0..length.max(1)).step_by(64 << 10).all(|at| is_cached(path, at) != Some(true));
        if !gone {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        gone
    }) && is_cached(path, 0) == Some(false)
}

/// Whether the byte at `offset` of a file or device is in the page cache; `None` if the system does
/// not report it.
#[allow(dead_code)]
pub fn is_cached(path: &std::path::Path, offset: u64) -> Option<bool> {
    use rustix::io::{Errno, ReadWriteFlags, preadv2};
    let file = std::fs::File::open(path).unwrap();
    let mut byte = [0];
    match preadv2(&file, &mut [std::io::IoSliceMut::new(&mut byte)], offset, ReadWriteFlags::NOWAIT)
    {
        Ok(count) => Some(count == 1),
        Err(Errno::AGAIN) => Some(false),
        Err(_) => None,
    }
}
