//! Reading and writing consecutive little-endian fields, with bounds checks and without panics.

/// Takes fields from the front of a byte slice; past the end every field reads as zero and
/// `overrun` is set.
pub struct FieldReader<'a> {
    bytes: &'a [u8],
    at: usize,
    overrun: bool,
}

impl<'a> FieldReader<'a> {
    /// Starts at the front of `bytes`.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        FieldReader { bytes, at: 0, overrun: false }
    }

    /// Whether a field lay past the end.
    pub fn overrun(&self) -> bool {
        self.overrun
    }

    /// The bytes not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or(&[])
    }

    /// The next `length` bytes, or `None` past the end. Then nothing is left to read.
    #[inline]
    pub fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(length).filter(|end| *end <= self.bytes.len());
        self.overrun |= end.is_none();
        let start = core::mem::replace(&mut self.at, end.unwrap_or(self.bytes.len()));
        self.bytes.get(start..end?)
    }

    /// The next `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        self.bytes(N).and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; N])
    }

    /// The next byte.
    #[inline]
    pub fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    /// The next two bytes.
    #[inline]
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// The next four bytes.
    #[inline]
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    /// The next eight bytes.
    #[inline]
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }
}

/// Writes consecutive fields into a slice that is large enough.
pub struct FieldWriter<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl<'a> FieldWriter<'a> {
    /// Starts at the front of `bytes`.
    pub fn new(bytes: &'a mut [u8]) -> Self {
        FieldWriter { bytes, at: 0 }
    }

    /// Appends bytes.
    pub fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.bytes[self.at..self.at + value.len()].copy_from_slice(value);
        self.at += value.len();
        self
    }

    /// Appends two bytes.
    pub fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    /// Appends four bytes.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    /// Appends eight bytes.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn past_the_end_every_field_is_zero() {
        for length in [4, usize::MAX] {
            let mut fields = FieldReader::new(&[1, 2, 3, 4]);
            assert_eq!((fields.u8(), fields.overrun()), (1, false));
            assert_eq!(fields.bytes(length), None, "three bytes are left");
            assert!(fields.overrun());
            assert_eq!((fields.u8(), fields.u16(), fields.u32(), fields.u64()), (0, 0, 0, 0));
            assert!(fields.overrun() && fields.rest().is_empty());
        }
        let mut fields = FieldReader::new(&[1, 2]);
        assert_eq!((fields.u16(), fields.overrun()), (0x0201, false));
        assert_eq!((fields.bytes(0), fields.overrun()), (Some(&[][..]), false));
    }
}
