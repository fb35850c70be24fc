//! Checksums. The algorithm is named in the superblock; every stored digest has room for 16 bytes.

use crc::{CRC_32_ISCSI, Crc, Digest, Table};

/// Tables of 1 KiB: each more lets one more byte go into a step.
const TABLES: usize = if cfg!(feature = "fast-crc") { 16 } else { 1 };

const CASTAGNOLI: Crc<u32, Table<TABLES>> = Crc::<u32, Table<TABLES>>::new(&CRC_32_ISCSI);

/// CRC-32C in portable code; `crc` is the value so far (0 at the start).
pub fn crc32c_portable(crc: u32, bytes: &[u8]) -> u32 {
    // The crate expects the register's value before the final inversion, bit-reflected.
    let mut digest: Digest<'_, u32, Table<TABLES>> =
        CASTAGNOLI.digest_with_initial((crc ^ u32::MAX).reverse_bits());
    digest.update(bytes);
    digest.finalize()
}

#[cfg(test)]
mod tests {
    use super::crc32c_portable;

    #[test]
    fn known_vector_and_continuation() {
        assert_eq!(crc32c_portable(0, b"123456789"), 0xe306_9283);
        let (a, b) = b"123456789".split_at(4);
        assert_eq!(crc32c_portable(crc32c_portable(0, a), b), 0xe306_9283);
        assert_eq!(crc32c_portable(0, b""), 0);
    }
}
