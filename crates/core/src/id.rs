//! Counter ids and the cells they name.

use xxhash_rust::xxh3::xxh3_128_with_seed;

/// The hashed id of a counter: what the table and the store know a counter by.
///
/// The low [`CellKey::FLAG_BITS`] bits are always zero, which leaves room for a slot's flags; 122 bits of a seeded hash
/// remain, so that even 10¹² counters share a key with a probability of about 10⁻¹³.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CellKey(u128);

impl CellKey {
    pub const FLAG_BITS: u32 = 6;
    /// No counter: the key of operations on the whole node.
    pub const NONE: CellKey = CellKey(0);

    pub fn as_u128(self) -> u128 {
        self.0
    }

    /// Big-endian, so that keys in byte order are keys in numeric order.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    pub fn from_bytes(bytes: [u8; 16]) -> CellKey {
        CellKey(u128::from_be_bytes(bytes))
    }

    pub(crate) fn from_u128(raw: u128) -> CellKey {
        CellKey(raw)
    }
}

/// Hashes ids to cells. The seed is drawn once per data directory, so that nobody can choose ids that collide.
#[derive(Clone, Copy, Debug)]
pub struct CellHasher {
    seed: u64,
}

impl CellHasher {
    pub fn new(seed: u64) -> CellHasher {
        CellHasher { seed }
    }

    #[inline]
    pub fn key(&self, id: &[u8]) -> CellKey {
        let hash = xxh3_128_with_seed(id, self.seed) >> CellKey::FLAG_BITS << CellKey::FLAG_BITS;
        // Zero marks an empty slot.
        CellKey(if hash == 0 { 1 << 127 } else { hash })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_an_id_is_pinned() {
        // Cells on disk are found by this hash: a change here makes every data directory unreadable.
        assert_eq!(CellHasher::new(42).key(b"views:v42").as_u128(), PINNED);
    }

    const PINNED: u128 = 0;

    #[test]
    fn the_flag_bits_of_a_key_are_free() {
        for n in 0..1000u32 {
            let key = CellHasher::new(7).key(&n.to_le_bytes());
            assert_eq!(key.as_u128() & 0x3f, 0);
            assert_eq!(CellKey::from_bytes(key.to_bytes()), key);
        }
    }
}
