//! Randomness of the operating system.

use std::io;

/// 16 random bytes in the form of a version 4 UUID (RFC 9562): the identity of a new volume.
///
/// # Errors
/// The operating system has no randomness available.
pub fn random_uuid() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::random_uuid;

    #[test]
    fn uuids_differ_and_say_what_they_are() {
        let (one, other) = (random_uuid().unwrap(), random_uuid().unwrap());
        assert_ne!(one, other);
        for uuid in [one, other] {
            assert_eq!((uuid[6] >> 4, uuid[8] >> 6), (4, 0b10));
        }
    }
}
