//! The header of an image: an object `NAME.steadfast` with JSON.

use serde::{Deserialize, Serialize};

use crate::error::RadosError;

const FORMAT: &str = "steadfast-rados";
const VERSION: u32 = 1;
/// Objects of this size suit RADOS: RBD has it, too.
const OBJECT_SIZE: u64 = 4 << 20;
/// The unit in which media of RADOS are written, bytes.
pub const UNIT: u32 = 4096;
/// Longest header, bytes.
pub const HEADER_MAX: usize = 4096;
const SIZE_MAX: u64 = 1 << 60;

/// What an image is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the image.
    pub size: u64,
    /// Bytes of an object.
    pub object_size: u64,
}

#[derive(Serialize, Deserialize)]
struct Json {
    format: String,
    version: u32,
    size: u64,
    object_size: u64,
}

impl Header {
    /// The header of a new image; `size` is rounded down to whole units.
    pub fn new(size: u64) -> Header {
        Header { size: size - size % u64::from(UNIT), object_size: OBJECT_SIZE }
    }

    /// Name of the header object.
    pub fn object(image: &str) -> String {
        format!("{image}.steadfast")
    }

    /// Number of objects that the image may have.
    pub fn objects(&self) -> u64 {
        self.size.div_ceil(self.object_size)
    }

    /// The bytes of the header object.
    pub fn encode(&self) -> Vec<u8> {
        let Header { size, object_size } = *self;
        let json = Json { format: FORMAT.to_owned(), version: VERSION, size, object_size };
        serde_json::to_vec(&json).unwrap_or_default()
    }

    /// # Errors
    /// What is wrong with the header.
    pub fn decode(bytes: &[u8]) -> Result<Header, RadosError> {
        let wrong = |what: &str| RadosError::Header(what.to_owned());
        let json: Json =
            serde_json::from_slice(bytes).map_err(|_| wrong("it is not one of Steadfast"))?;
        if json.format != FORMAT {
            return Err(wrong("it is not one of Steadfast"));
        }
        if json.version != VERSION {
            return Err(RadosError::Header(format!(
                "version {}, and this program knows version {VERSION}",
                json.version
            )));
        }
        let Json { size, object_size, .. } = json;
        let unit = u64::from(UNIT);
        let whole = size % unit == 0 && size <= SIZE_MAX;
        if !whole || !object_size.is_power_of_two() || !(unit..=1 << 30).contains(&object_size) {
            return Err(wrong("its sizes are out of range"));
        }
        Ok(Header { size, object_size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_comes_back() {
        let header = Header::new(10_000_000);
        assert_eq!(header.size % u64::from(UNIT), 0);
        assert_eq!(Header::decode(&header.encode()).unwrap(), header);
        assert_eq!(header.objects(), 3);
    }

    #[test]
    fn other_contents_are_refused() {
        let with = |version: u32, size: u64, object_size: u64| {
            let format = FORMAT.to_owned();
            serde_json::to_vec(&Json { format, version, size, object_size }).unwrap()
        };
        assert!(Header::decode(&with(1, 4096, 4096)).is_ok());
        for bytes in [
            b"".to_vec(),
            b"{}".to_vec(),
            b"{\"format\":\"x\",\"version\":1,\"size\":4096,\"object_size\":4096}".to_vec(),
            with(2, 4096, 4096),
            with(1, 4097, 4096),
            with(1, !4095, 4096),
            with(1, 4096, 0),
            with(1, 4096, 5000),
            with(1, 4096, 2 << 30),
        ] {
            assert!(matches!(Header::decode(&bytes), Err(RadosError::Header(_))));
        }
    }
}
