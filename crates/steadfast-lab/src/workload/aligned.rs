//! A buffer that begins on a page boundary, as O_DIRECT requires.

/// Bytes from a page boundary on.
pub(super) struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Aligned {
    /// Offsets and lengths must be multiples of this.
    pub const UNIT: usize = 4096;

    /// A buffer of `length` zeros.
    pub fn new(length: usize) -> Aligned {
        let bytes = vec![0; length + Aligned::UNIT];
        let start = bytes.as_ptr().align_offset(Aligned::UNIT).min(Aligned::UNIT);
        Aligned { bytes, start, length }
    }

    /// The whole buffer.
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}
