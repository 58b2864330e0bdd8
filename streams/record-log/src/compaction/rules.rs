//! Treatment of a batch: it stays as it is, goes, or loses some of its records.
//!
//! A batch that cannot be read, or written again within its bounds, stays as it is, and as long as
//! it is there tombstones behind it stay too: what they delete may be in it.

use record_batch::{BatchHeader, Codec, Marker, Record, Records};

use crate::compaction::key_map::KeyMap;
use crate::compaction::transactions::{AbortedBatches, LastBatches, Markers};
use crate::records::Stale;
use crate::segment::{BATCH_BYTES_MAX, RECORDS_BYTES_MAX};

/// The same for all batches of a pass.
pub(crate) struct Rules {
    pub(crate) keys: KeyMap,
    /// Batches from here on stay as they are.
    pub(crate) map_end: i64,
    pub(crate) now_ms: i64,
    /// Until when tombstones stay that a pass meets for the first time.
    pub(crate) horizon_ms: i64,
    pub(crate) last_batches: LastBatches,
    /// Batches of more records are not looked into: their keys do not fit the map.
    pub(crate) record_count_max: usize,
}

/// Memory of a pass about the batches before the one that it is at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Met {
    pub(crate) markers: Markers,
    /// Batches that stay although the rules may want to change them.
    pub(crate) stale: Option<Stale>,
    /// Batches that could not be read.
    pub(crate) unread_count: u64,
    /// Records that were taken out.
    pub(crate) removed_count: u64,
    /// When the first of the tombstones and markers may go that stayed for their time alone.
    pub(crate) next_horizon_ms: Option<i64>,
}

impl Met {
    /// Batches stay as they are that the rules would have changed, or could not look into.
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
    /// The bytes of another batch take its place.
    Changed(Vec<u8>),
}

/// Of the records of a batch those that stay.
struct Kept {
    count: i32,
    has_tombstones: bool,
    max_timestamp: i64,
}

impl Rules {
    /// The records of a batch; `None` if it cannot be read.
    pub(crate) fn read<'a>(&self, batch: &BatchHeader, bytes: &'a [u8]) -> Option<Records<'a>> {
        let count = usize::try_from(batch.record_count).ok()?;
        if count > self.record_count_max {
            return None;
        }
        let records = Records::decode(batch, bytes, RECORDS_BYTES_MAX).ok()?;
        records.check().ok()?;
        Some(records)
    }

    /// Batches come in order. `aborted` knows those of this one's segment.
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

    /// What is left of a batch without records: nothing, unless its producer goes on from it, or
    /// the log ends with it.
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

/// Says in the batch until when its tombstones stay, if that is to be said.
fn with_horizon(batch: &BatchHeader, horizon_ms: Option<i64>) -> BatchHeader {
    horizon_ms.map_or(*batch, |horizon_ms| batch.with_delete_horizon(horizon_ms))
}

/// Appends a record of a batch whose first timestamp becomes the horizon, so that its own is the
/// same as before.
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
