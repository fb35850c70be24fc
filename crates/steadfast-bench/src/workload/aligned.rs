//! A buffer whose bytes begin on a page, as O_DIRECT wants them.

/// Bytes from a page boundary on.
pub(super) struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Aligned {
    /// What offsets and lengths have to be multiples of.
    pub const UNIT: usize = 4096;

    /// So many zeros.
    pub fn new(length: usize) -> Aligned {
        let bytes = vec![0; length + Aligned::UNIT];
        let start = bytes.as_ptr().align_offset(Aligned::UNIT).min(Aligned::UNIT);
        Aligned { bytes, start, length }
    }

    /// All of them.
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}
