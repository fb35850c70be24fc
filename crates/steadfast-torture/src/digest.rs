//! One number for everything that happened in a world: operations, answers, every I/O, every
//! verdict.
//!
//! The same seed must give the same digest on every machine and with every number of threads. If
//! two runs of one seed differ, they depend on something that the seed does not decide.

use std::fmt::{Debug, Write};

use xxhash_rust::xxh3::Xxh3;

/// A digest that grows with each addition.
#[derive(Clone)]
pub struct Digest(Box<Xxh3>);

impl Default for Digest {
    fn default() -> Self {
        Digest(Box::new(Xxh3::new()))
    }
}

impl Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#034x}", self.value())
    }
}

impl Digest {
    /// Adds bytes together with their length, so that two pieces differ from one joined piece.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Digest {
        self.number(bytes.len() as u64);
        self.0.update(bytes);
        self
    }

    /// Adds a number.
    pub fn number(&mut self, number: u64) -> &mut Digest {
        self.0.update(&number.to_le_bytes());
        self
    }

    /// Adds the output of `{:?}`.
    pub fn shown(&mut self, value: &impl Debug) -> &mut Digest {
        struct Sink<'a>(&'a mut Xxh3);
        impl Write for Sink<'_> {
            fn write_str(&mut self, text: &str) -> std::fmt::Result {
                self.0.update(text.as_bytes());
                Ok(())
            }
        }
        // Writing to the sink cannot fail. If `Debug` itself fails, its output so far is added.
        let _ = writeln!(Sink(&mut self.0), "{value:?}");
        self
    }

    /// The digest so far.
    pub fn value(&self) -> u128 {
        self.0.digest128()
    }
}

/// The digest of these bytes alone.
pub fn digest_of(bytes: &[u8]) -> u128 {
    xxhash_rust::xxh3::xxh3_128(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_and_order_count() {
        let of = |pieces: &[&[u8]]| {
            let mut digest = Digest::default();
            for piece in pieces {
                digest.bytes(piece);
            }
            digest.value()
        };
        assert_ne!(of(&[b"ab", b"c"]), of(&[b"a", b"bc"]));
        assert_ne!(of(&[b"a", b"b"]), of(&[b"b", b"a"]));
        assert_eq!(of(&[b"a"]), of(&[b"a"]));
        assert_eq!(
            Digest::default().shown(&Some(1)).value(),
            Digest::default().shown(&Some(1)).value()
        );
        // A fixed value shows that the digest does not change with the version of the crate or the
        // compiler.
        assert_eq!(digest_of(b""), 0x99aa_06d3_0147_98d8_6001_c324_468d_497f);
    }
}
