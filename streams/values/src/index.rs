//! Index of the last record of each key: 256 shards, selected by the first byte of the key's hash.
//! Shards grow independently, so growth causes neither long pauses nor a second copy of the whole
//! index.

use crate::key_hash::KeyHash;
use crate::shard::Shard;

pub(crate) const SHARD_COUNT: usize = 256;

#[derive(Clone, Debug)]
pub(crate) struct Index {
    shards: Box<[Shard]>,
    count: usize,
}

impl Default for Index {
    fn default() -> Self {
        Self { shards: vec![Shard::default(); SHARD_COUNT].into(), count: 0 }
    }
}

impl Index {
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn size_bytes(&self) -> usize {
        let entries: usize = self.shards.iter().map(Shard::size_bytes).sum();
        entries + self.shards.len() * size_of::<Shard>()
    }

    pub(crate) fn get(&self, hash: KeyHash) -> Option<i64> {
        self.shards[usize::from(hash.shard)].get(hash.rest)
    }

    /// Inserts a key. Returns its previous offset.
    pub(crate) fn insert(&mut self, hash: KeyHash, offset: i64) -> Option<i64> {
        let old = self.shards[usize::from(hash.shard)].insert(hash.rest, offset);
        self.count += usize::from(old.is_none());
        old
    }

    /// Removes a key. Returns its offset.
    pub(crate) fn remove(&mut self, hash: KeyHash) -> Option<i64> {
        let old = self.shards[usize::from(hash.shard)].remove(hash.rest);
        self.count -= usize::from(old.is_some());
        old
    }

    pub(crate) fn shard(&self, number: usize) -> &Shard {
        &self.shards[number]
    }

    pub(crate) fn set_shard(&mut self, number: usize, shard: Shard) {
        self.count += shard.count();
        let old = std::mem::replace(&mut self.shards[number], shard);
        self.count -= old.count();
    }

    /// Removes the keys for whose offsets `keep` returns false.
    pub(crate) fn retain(&mut self, keep: impl Fn(i64) -> bool) {
        self.shards.iter_mut().for_each(|shard| shard.retain(&keep));
        self.count = self.shards.iter().map(Shard::count).sum();
    }

    pub(crate) fn offsets(&self) -> impl Iterator<Item = i64> {
        self.shards.iter().flat_map(Shard::entries).map(|(_, offset)| offset)
    }
}
