//! Rules of compaction: each batch is retained, removed, or loses some of its records.
//!
//! A batch that cannot be decoded, or encoded again within its bounds, is retained unchanged. While
//! it exists, tombstones after it are retained, too, because they may delete records in it.

use record_batch::{BatchHeader, Codec, Marker, Record, Records};

use crate::compaction::key_map::KeyMap;
use crate::compaction::transactions::{AbortedBatches, LastBatches, Markers};
use crate::records::Stale;
use crate::segment::{BATCH_BYTES_MAX, RECORDS_BYTES_MAX};

/// Rules for all batches of a pass.
pub(crate) struct Rules {
    pub(crate) keys: KeyMap,
    /// Batches from this offset on are retained unchanged.
    pub(crate) map_end: i64,
    pub(crate) now_ms: i64,
    /// Delete horizon of tombstones that a pass processes for the first time.
    pub(crate) horizon_ms: i64,
    pub(crate) last_batches: LastBatches,
    /// Batches with more records are not decoded, because their keys do not fit into the map.
    pub(crate) record_count_max: usize,
}

/// State of a pass derived from the preceding batches.
#[derive(Clone, Debug, Default)]
pub(crate) struct Met {
    pub(crate) markers: Markers,
    /// Batches that were left unchanged although the rules may require changes.
    pub(crate) stale: Option<Stale>,
    /// Number of batches that could not be decoded.
    pub(crate) unread_count: u64,
    /// Number of removed records.
    pub(crate) removed_count: u64,
    /// Earliest delete horizon of the retained tombstones and markers.
    pub(crate) next_horizon_ms: Option<i64>,
}

impl Met {
    /// Records batches that were left unchanged although rules require changes or could not be
    /// applied.
    pub(crate) fn note_stale(&mut self, first_offset: i64, last_offset: i64) {
        self.stale = Some(Stale { first_offset, last_offset }.and(self.stale));
    }

    fn note_horizon(&mut self, horizon_ms: i64) {
        let earlier = self.next_horizon_ms.is_none_or(|it| horizon_ms < it);
        if earlier {
            self.next_horizon_ms = Some(horizon_ms);
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Whole,
    Gone,
    /// Replaced by a batch with these bytes.
    Changed(Vec<u8>),
}

/// Properties of the retained records of a batch.
struct Kept {
    count: i32,
    has_tombstones: bool,
    max_timestamp: i64,
}

impl Rules {
    /// Decodes the records of a batch. Returns `None` if that fails.
    pub(crate) fn read<'a>(&self, batch: &BatchHeader, bytes: &'a [u8]) -> Option<Records<'a>> {
        let count = usize::try_from(batch.record_count).ok()?;
        if count > self.record_count_max {
            return None;
        }
        let records = Records::decode(batch, bytes, RECORDS_BYTES_MAX).ok()?;
        records.check().ok()?;
        Some(records)
    }

    /// Determines the fate of a batch. Batches must be passed in order. `aborted` is that of its
    /// segment.
    pub(crate) fn fate(
        &self,
        batch: &BatchHeader,
        bytes: &[u8],
        aborted: &AbortedBatches,
        met: &mut Met,
    ) -> Fate {
        if batch.is_control() {
            return self.fate_of_control(batch, bytes, met);
        }
        met.markers.note_records(batch);
        if batch.base_offset >= self.map_end {
            return Fate::Whole;
        }
        if aborted.contains(batch) {
            met.removed_count += u64::try_from(batch.record_count).unwrap_or(0);
            return self.emptied(batch);
        }
        if batch.record_count == 0 {
            return self.emptied(batch);
        }
        let Some(records) = self.read(batch, bytes) else {
            met.unread_count += 1;
            met.note_stale(batch.base_offset, batch.last_offset());
            return Fate::Whole;
        };
        self.fate_of_records(batch, &records, met)
    }

    fn fate_of_control(&self, batch: &BatchHeader, bytes: &[u8], met: &mut Met) -> Fate {
        let marker = self.read(batch, bytes).filter(|_| Marker::read(bytes).is_some());
        let Some(marker) = marker else { return Fate::Whole };
        let has_records = met.markers.end(batch);
        if has_records || batch.base_offset >= self.map_end {
            return Fate::Whole;
        }
        match batch.delete_horizon_ms() {
            None => {
                met.note_horizon(self.horizon_ms);
                let horizon_ms = Some(self.horizon_ms);
                let mut moved = Vec::new();
                for record in marker.iter().flatten() {
                    put_moved(&record, batch.base_timestamp, horizon_ms, &mut moved);
                }
                Fate::Changed(with_horizon(batch, horizon_ms).with_records(&moved))
            }
            Some(horizon_ms) if horizon_ms > self.now_ms => {
                met.note_horizon(horizon_ms);
                Fate::Whole
            }
            Some(_) if self.last_batches.contains(batch) => Fate::Whole,
            Some(_) => Fate::Gone,
        }
    }

    fn fate_of_records(&self, batch: &BatchHeader, records: &Records<'_>, met: &mut Met) -> Fate {
        let old_horizon_ms = batch.delete_horizon_ms();
        let tombstones_stay = met.stale.is_some_and(|it| it.first_offset <= batch.last_offset())
            || old_horizon_ms.is_none_or(|it| it > self.now_ms);
        let stays = |record: &Record<'_>| {
            record.key.is_some_and(|key| {
                let is_latest = self.keys.latest(key).is_none_or(|it| it <= record.offset);
                is_latest && (record.value.is_some() || tombstones_stay)
            })
        };
        let mut kept = Kept { count: 0, has_tombstones: false, max_timestamp: i64::MIN };
        for record in records.iter().flatten().filter(stays) {
            kept.count += 1;
            kept.has_tombstones |= record.value.is_none();
            kept.max_timestamp = kept.max_timestamp.max(record.timestamp_ms);
        }
        let new_horizon_ms =
            Some(self.horizon_ms).filter(|_| kept.has_tombstones && old_horizon_ms.is_none());
        let horizon_ms = old_horizon_ms.unwrap_or(self.horizon_ms);
        if kept.has_tombstones && horizon_ms > self.now_ms {
            met.note_horizon(horizon_ms);
        }
        let removed = u64::try_from(batch.record_count - kept.count).unwrap_or(0);
        if removed == 0 && new_horizon_ms.is_none() {
            return Fate::Whole;
        }
        if kept.count == 0 {
            met.removed_count += removed;
            return self.emptied(batch);
        }
        let mut moved = Vec::new();
        for record in records.iter().flatten().filter(stays) {
            put_moved(&record, batch.base_timestamp, new_horizon_ms, &mut moved);
        }
        let mut header = with_horizon(batch, new_horizon_ms);
        header.record_count = kept.count;
        if !header.has_append_time() {
            header.max_timestamp = kept.max_timestamp;
        }
        let codec = Codec::of(batch.attributes).expect("it was read with it");
        let bytes = header.with_records(&codec.compress(&moved));
        if bytes.len() > BATCH_BYTES_MAX {
            met.note_stale(batch.base_offset, batch.last_offset());
            return Fate::Whole;
        }
        met.removed_count += removed;
        Fate::Changed(bytes)
    }

    /// Returns the fate of a batch without records: it is removed, unless it is the last of its
    /// producer or of the log.
    fn emptied(&self, batch: &BatchHeader) -> Fate {
        if !self.last_batches.contains(batch) {
            return Fate::Gone;
        }
        match batch.record_count {
            0 => Fate::Whole,
            _ => Fate::Changed(batch.without_records().with_records(&[])),
        }
    }
}

/// Sets the delete horizon of a batch, if there is one.
fn with_horizon(batch: &BatchHeader, horizon_ms: Option<i64>) -> BatchHeader {
    horizon_ms.map_or(*batch, |horizon_ms| batch.with_delete_horizon(horizon_ms))
}

/// Appends a record of a batch whose base timestamp is replaced by the delete horizon. The record's
/// timestamp stays the same.
fn put_moved(
    record: &Record<'_>,
    base_timestamp: i64,
    horizon_ms: Option<i64>,
    into: &mut Vec<u8>,
) {
    let delta = match horizon_ms {
        None => record.timestamp_delta(),
        Some(horizon_ms) => {
            base_timestamp.wrapping_add(record.timestamp_delta()).wrapping_sub(horizon_ms)
        }
    };
    record.put(delta, into);
}
