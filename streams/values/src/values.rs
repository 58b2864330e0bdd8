//! Read access to the current values of one partition.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use record_batch::Record;
use record_log::{LogErrorKind, Partition};

use crate::error::ValuesError;
use crate::index::Index;
use crate::key_hash::{KeyHash, Secret};
use crate::live::Live;
use crate::pick::{FIRST_BYTES, has_expired, show_record};
use crate::snapshot::Snapshot;

/// Maximum number of lookups if a record was removed between the lookup and the read.
const TRIES_MAX: usize = 3;

/// Time to live without expiry.
const NO_TTL: i64 = i64::MAX;

/// Last record of each key of a partition, up to the offset that its [`crate::Follower`] has
/// reached. Any thread may read.
#[derive(Debug)]
pub struct Values {
    pub(crate) partition: Arc<Partition>,
    pub(crate) secret: Secret,
    ttl_ms: AtomicI64,
    state: RwLock<State>,
}

/// State that the follower changes.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) index: Index,
    pub(crate) live: Live,
    /// Records before this offset were applied.
    pub(crate) applied: i64,
    /// Readers are served once this offset was reached.
    pub(crate) serves_from: i64,
}

impl State {
    /// Makes the record at `offset` the value of a key. Returns the offset of the previous value.
    pub(crate) fn put(&mut self, hash: KeyHash, offset: i64, timestamp_ms: i64) -> Option<i64> {
        let old = self.index.insert(hash, offset);
        if let Some(old) = old {
            self.live.remove(old);
        }
        self.live.insert(offset, timestamp_ms);
        old
    }

    /// Deletes the value of a key. Returns its offset.
    pub(crate) fn delete(&mut self, hash: KeyHash) -> Option<i64> {
        let old = self.index.remove(hash)?;
        self.live.remove(old);
        Some(old)
    }

    /// Deletes the value of a key if it is the record at `offset`. Returns whether it was.
    pub(crate) fn delete_at(&mut self, hash: KeyHash, offset: i64) -> bool {
        self.index.get(hash) == Some(offset) && self.delete(hash).is_some()
    }
}

/// Memory and progress of current values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// Number of keys with a value, including expired ones that were not swept yet.
    pub key_count: usize,
    /// Size of the index in memory.
    pub index_bytes: usize,
    /// Records before this offset were applied.
    pub applied: i64,
    pub is_ready: bool,
}

impl Values {
    pub(crate) fn new(partition: Arc<Partition>, secret: Secret, state: State) -> Self {
        let (ttl_ms, state) = (AtomicI64::new(NO_TTL), RwLock::new(state));
        Self { partition, secret, ttl_ms, state }
    }

    /// Sets the time to live of values after the timestamp of their records, in milliseconds;
    /// `None` disables expiry. Applies to existing values, too.
    pub fn set_ttl(&self, ttl_ms: Option<i64>) {
        self.ttl_ms.store(ttl_ms.unwrap_or(NO_TTL), Ordering::Relaxed);
    }

    pub fn ttl_ms(&self) -> Option<i64> {
        Some(self.ttl_ms.load(Ordering::Relaxed)).filter(|it| *it != NO_TTL)
    }

    /// Returns the offset at which readers see the values: all committed records before it are
    /// applied.
    pub fn applied(&self) -> i64 {
        self.state().applied
    }

    pub fn figures(&self) -> Figures {
        let state = self.state();
        Figures {
            key_count: state.live.count().max(state.index.count()),
            index_bytes: state.index.size_bytes() + state.live.size_bytes(),
            applied: state.applied,
            is_ready: state.applied >= state.serves_from,
        }
    }

    /// Passes the current value of a key to `show`. Returns `None` if the key has no value or its
    /// value has expired. `buffer` is reused. Times are Unix milliseconds.
    pub fn get<T>(
        &self,
        key: &[u8],
        now_ms: i64,
        buffer: &mut Vec<u8>,
        show: impl FnOnce(&Record<'_>) -> T,
    ) -> Result<Option<T>, ValuesError> {
        let hash = KeyHash::of(&self.secret, key);
        let (mut sought, mut show) = (-1, Some(show));
        for _ in 0..TRIES_MAX {
            let Some(offset) = self.ready()?.index.get(hash) else { return Ok(None) };
            sought = offset;
            let range = match self.partition.read(offset, FIRST_BYTES, buffer) {
                Ok(range) => range,
                // The record was deleted with the start of the log.
                Err(error) if error.kind == LogErrorKind::OffsetOutOfRange => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            let (number, ttl_ms) = (self.partition.number(), self.ttl_ms());
            let shown = show_record(number, &buffer[range], offset, |record| {
                let is_current = record.key == Some(key) && !has_expired(record, ttl_ms, now_ms);
                is_current.then(|| (show.take().expect("one record has the offset"))(record))
            })?;
            if let Some(shown) = shown {
                return Ok(shown);
            }
        }
        Err(ValuesError::Overtaken { partition: self.partition.number(), offset: sought })
    }

    /// Takes a snapshot of all values, which remains readable while the log grows.
    pub fn snapshot(&self) -> Result<Snapshot, ValuesError> {
        loop {
            // Pinned first, so that the values copied below cannot be deleted or compacted.
            let log = self.partition.pin();
            let (live, applied) = {
                let state = self.ready()?;
                (state.live.clone(), state.applied)
            };
            if applied <= log.end_offset() {
                let ttl_ms = self.ttl_ms();
                return Ok(Snapshot { log, live, applied, ttl_ms, since: None });
            }
        }
    }

    /// Returns the offset of the first record with a timestamp after `unix_ms`, or the end offset.
    /// The values at this offset are those at that time, provided that records arrived in the order
    /// of their timestamps.
    pub fn offset_after(&self, unix_ms: i64) -> Result<i64, ValuesError> {
        let found = self.partition.find_time(unix_ms.saturating_add(1))?;
        let applied = self.applied();
        Ok(found.map_or(applied, |place| place.offset.min(applied)))
    }

    pub(crate) fn ready(&self) -> Result<RwLockReadGuard<'_, State>, ValuesError> {
        let state = self.state();
        if state.applied >= state.serves_from {
            return Ok(state);
        }
        let (applied, needed) = (state.applied, state.serves_from);
        Err(ValuesError::NotReady { partition: self.partition.number(), applied, needed })
    }

    pub(crate) fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().expect("nothing panics with the state locked")
    }

    /// Locks the state for writing. Only the follower may call this.
    pub(crate) fn state_to_change(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().expect("nothing panics with the state locked")
    }
}

#[cfg(test)]
mod tests {
    use random::Random;

    use super::*;

    const SECRET: Secret = Secret([3; 16]);

    /// Maximum memory for each of 10 million keys of 300 bytes, excluding the log.
    const KEY_BYTES_MAX: usize = 32;

    /// Memory of an index without keys.
    const BASE_BYTES: usize = 64 << 10;

    fn hash(key: u64) -> KeyHash {
        KeyHash::of(&SECRET, &key.to_le_bytes())
    }

    #[track_caller]
    fn check_bytes(state: &State) {
        let bytes = state.index.size_bytes() + state.live.size_bytes();
        let count = state.index.count();
        assert_eq!(state.live.count(), count);
        assert!(bytes <= KEY_BYTES_MAX * count + BASE_BYTES, "{bytes} bytes for {count} keys");
    }

    #[test]
    fn a_key_takes_no_more_than_32_bytes_however_many_there_are_and_whatever_was_updated() {
        const KEYS: u64 = 1_000_000;
        let mut random = Random::new(1);
        let (mut state, mut offset) = (State::default(), 0);
        let mut check_at = 100;
        for key in 0..KEYS {
            state.put(hash(key), offset, 0);
            offset += 1;
            if key == check_at {
                check_bytes(&state);
                check_at += check_at / 50;
            }
        }
        // Updates leave gaps between the offsets, and some keys are updated more often than others.
        for step in 0..KEYS {
            let most = if step % 2 == 0 { KEYS } else { KEYS / 10 };
            state.put(hash(random.below(most)), offset, 0);
            offset += 1 + i64::try_from(random.below(20)).expect("small");
            if step % 50_000 == 0 {
                check_bytes(&state);
            }
        }
        for key in 0..KEYS {
            assert!(state.delete(hash(key)).is_some());
            if key % 10_000 == 0 {
                check_bytes(&state);
            }
        }
        check_bytes(&state);
    }
}
