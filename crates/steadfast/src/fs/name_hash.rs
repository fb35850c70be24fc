//! Names: what is allowed, and the keyed hash that orders them.
//!
//! The hash is SipHash-2-4 of the bytes, keyed with 16 bytes of the superblock, so an attacker
//! cannot make many names collide. A name is any bytes but `/` and NUL; `.` and `..` are not names.

use siphasher::sip::SipHasher24;

use crate::error::{Error, Result};
use crate::format::dirent::is_name;
use crate::fs::parameters::Parameters;

/// Checks the name of a new or existing entry.
///
/// # Errors
/// `InvalidName`: empty, `.`, `..`, or with a slash or NUL. `NameTooLong`.
pub(crate) fn check(name: &[u8], parameters: &Parameters) -> Result<()> {
    if !is_name(name) {
        return Err(Error::InvalidName);
    }
    if name.len() > parameters.name_max {
        return Err(Error::NameTooLong);
    }
    Ok(())
}

/// The keyed hash.
pub(crate) fn hash(name: &[u8], parameters: &Parameters) -> u64 {
    SipHasher24::new_with_key(&parameters.hash_key).hash(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_a_name() {
        let parameters = Parameters { name_max: 10, ..Parameters::for_tests() };
        for good in [&b"a"[..], b"...", b".x", b"\xff\xfe", b"0123456789"] {
            assert_eq!(check(good, &parameters), Ok(()));
        }
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0"] {
            assert_eq!(check(bad, &parameters), Err(Error::InvalidName));
        }
        assert_eq!(check(b"0123456789x", &parameters), Err(Error::NameTooLong));
    }

    #[test]
    fn hash_is_siphash_2_4() {
        // The reference vector of the algorithm: key 00..0f, message 00..0e.
        let mut key = [0; 16];
        key.iter_mut().enumerate().for_each(|(i, byte)| *byte = i as u8);
        let message: alloc::vec::Vec<u8> = (0..15).collect();
        let parameters = Parameters { hash_key: key, ..Parameters::for_tests() };
        assert_eq!(hash(&message, &parameters), 0xa129_ca61_49be_45e5);
    }
}
