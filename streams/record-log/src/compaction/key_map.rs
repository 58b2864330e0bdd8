//! Hash table of the latest offset of each key, with fixed memory.
//!
//! Keys are represented by a hash of 128 bits only (SipHash-2-4). Two keys with equal hashes would
//! be treated as one, and the earlier record would be lost. With a million million keys, that
//! happens in one of 10^14 logs. The hash is keyed with the owner's secret, so producers cannot
//! construct collisions.

use siphasher::sip128::SipHasher24;

#[derive(Clone, Copy, Debug)]
struct Entry {
    hash: (u64, u64),
    /// -1 if the entry is empty.
    offset: i64,
}

const EMPTY: Entry = Entry { hash: (0, 0), offset: -1 };

/// Maximum load factor of 3/4, which bounds the length of searches.
const USED_NUMERATOR: usize = 3;
const USED_DENOMINATOR: usize = 4;

/// Minimum number of entries, regardless of the memory limit.
const ENTRY_COUNT_MIN: usize = 16;

fn used_count_max(entry_count: usize) -> usize {
    entry_count * USED_NUMERATOR / USED_DENOMINATOR
}

pub(crate) struct KeyMap {
    hasher: SipHasher24,
    entries: Vec<Entry>,
    count: usize,
}

impl KeyMap {
    /// Allocates a table for `key_count` keys, or for as many as fit into `bytes_max`, at least
    /// one.
    pub(crate) fn new(secret: &[u8; 16], key_count: u64, bytes_max: usize) -> Self {
        let most = (bytes_max / size_of::<Entry>()).max(ENTRY_COUNT_MIN);
        let wanted = usize::try_from(key_count).unwrap_or(usize::MAX).min(most);
        let entries = (wanted.saturating_mul(USED_DENOMINATOR) / USED_NUMERATOR + 1).min(most);
        let entries = vec![EMPTY; entries.max(ENTRY_COUNT_MIN)];
        Self { hasher: SipHasher24::new_with_key(secret), entries, count: 0 }
    }

    pub(crate) fn clear(&mut self) {
        self.entries.fill(EMPTY);
        self.count = 0;
    }

    pub(crate) fn has_room_for(&self, key_count: usize) -> bool {
        self.count.saturating_add(key_count) <= used_count_max(self.entries.len())
    }

    /// Returns the maximum number of keys in a table of `bytes_max`.
    pub(crate) fn key_count_max(bytes_max: usize) -> usize {
        used_count_max((bytes_max / size_of::<Entry>()).max(ENTRY_COUNT_MIN))
    }

    /// Inserts a record. Records of one key must be inserted in order. The table must have room.
    pub(crate) fn note(&mut self, key: &[u8], offset: i64) {
        let hash = self.hash(key);
        let index = self.index_of(hash);
        let entry = &mut self.entries[index];
        let is_new = entry.offset < 0;
        *entry = Entry { hash, offset };
        self.count += usize::from(is_new);
        assert!(self.count <= used_count_max(self.entries.len()), "the caller asked for room");
    }

    /// Returns the offset of the last record with the key, or `None`.
    pub(crate) fn latest(&self, key: &[u8]) -> Option<i64> {
        let offset = self.entries[self.index_of(self.hash(key))].offset;
        (offset >= 0).then_some(offset)
    }

    fn hash(&self, key: &[u8]) -> (u64, u64) {
        self.hasher.hash(key).as_u64()
    }

    /// Returns the index of the hash, or of the free entry for it.
    fn index_of(&self, hash: (u64, u64)) -> usize {
        let scaled = (u128::from(hash.0) * self.entries.len() as u128) >> 64;
        let mut index = usize::try_from(scaled).expect("below the number of entries");
        while self.entries[index].offset >= 0 && self.entries[index].hash != hash {
            index = (index + 1) % self.entries.len();
        }
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_offset_of_each_key_is_known() {
        let mut map = KeyMap::new(&[7; 16], 1_000, 1 << 20);
        assert!(map.has_room_for(1_000));
        for offset in 0..5_000_i64 {
            map.note(&(offset % 1_000).to_le_bytes(), offset);
        }
        for key in 0..1_000_i64 {
            assert_eq!(map.latest(&key.to_le_bytes()), Some(4_000 + key));
        }
        assert_eq!(map.latest(b"another"), None);
    }

    #[test]
    fn it_takes_no_more_memory_than_it_may_and_says_when_it_is_full() {
        let bytes_max = 24 * 1_000;
        let mut map = KeyMap::new(&[7; 16], u64::MAX, bytes_max);
        assert!(map.entries.capacity() * size_of::<Entry>() <= bytes_max);
        let mut offset = 0_i64;
        while map.has_room_for(1) {
            map.note(&offset.to_le_bytes(), offset);
            offset += 1;
        }
        assert_eq!(offset, 750);
        assert_eq!(map.latest(&0_i64.to_le_bytes()), Some(0));
        assert_eq!(map.latest(&750_i64.to_le_bytes()), None, "a full map still answers");
    }
}
