//! What the semantics need to know of the volume's format.

/// Parameters of a volume that the semantics depend on; fixed at format.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parameters {
    /// Block size in bytes, a power of two.
    pub block_size: u32,
    /// Bytes under one data checksum: min(block size, 4096).
    pub granule: u32,
    /// Largest file that is stored in the tree, bytes.
    pub inline_max: usize,
    /// Longest name, bytes; at most 255.
    pub name_max: usize,
    /// Key of the name hash.
    pub hash_key: [u8; 16],
}

impl Parameters {
    /// Checksums of one block.
    pub fn granules_per_block(&self) -> u32 {
        (self.block_size / self.granule.max(1)).max(1)
    }

    /// The block size as a file offset.
    pub fn block(&self) -> u64 {
        u64::from(self.block_size)
    }

    /// Index of the block that holds byte `offset`.
    pub fn block_of(&self, offset: u64) -> u64 {
        offset / self.block()
    }

    /// Number of blocks that the first `bytes` bytes of a file reach into.
    pub fn blocks_for(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.block())
    }
}

#[cfg(test)]
impl Parameters {
    /// Parameters for tests: 512-byte blocks.
    pub fn for_tests() -> Parameters {
        Parameters {
            block_size: 512,
            granule: 512,
            inline_max: 128,
            name_max: 255,
            hash_key: [7; 16],
        }
    }
}
