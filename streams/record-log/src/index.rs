//! Sparse index of a segment by offset and time, with an entry of a few bytes per 16 KiB of
//! batches. Derived from the batches.

use record_batch::BatchHeader;

use crate::layout::{Fields, put_list};

/// Minimum distance of the batches of two entries.
const STRIDE_BYTES: u64 = 16 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    offset: i64,
    position: u32,
    /// Maximum timestamp of all earlier batches.
    max_timestamp: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Index {
    entries: Vec<Entry>,
    max_timestamp: i64,
}

impl Default for Index {
    fn default() -> Self {
        Self { entries: Vec::new(), max_timestamp: i64::MIN }
    }
}

impl Index {
    /// Adds a batch at a position. Batches must be added in order.
    pub(crate) fn note(&mut self, batch: &BatchHeader, position: u64) {
        let is_due = |last: &Entry| position >= u64::from(last.position) + STRIDE_BYTES;
        if self.entries.last().is_none_or(is_due) {
            let position = u32::try_from(position).expect("segments have a limit");
            let (offset, max_timestamp) = (batch.base_offset, self.max_timestamp);
            self.entries.push(Entry { offset, position, max_timestamp });
        }
        self.max_timestamp = self.max_timestamp.max(batch.max_timestamp);
    }

    /// Returns the maximum timestamp of all batches; `i64::MIN` if there are none.
    pub(crate) fn max_timestamp(&self) -> i64 {
        self.max_timestamp
    }

    /// Returns the maximum timestamp of the batches from an offset on, possibly including some
    /// earlier batches of the same index interval. Returns `None` if an earlier batch may have it.
    pub(crate) fn newest_from(&self, offset: i64) -> Option<i64> {
        let from = self.entries.partition_point(|entry| entry.offset < offset);
        let next = self.entries.get(from)?;
        (next.max_timestamp < self.max_timestamp).then_some(self.max_timestamp)
    }

    /// Returns the position of an indexed batch at or after the offset, or `None`.
    pub(crate) fn position_from(&self, offset: i64) -> Option<u64> {
        let from = self.entries.partition_point(|entry| entry.offset < offset);
        self.entries.get(from).map(|entry| u64::from(entry.position))
    }

    /// Returns the base offset of the last indexed batch at or before a position.
    pub(crate) fn offset_before(&self, position: u64) -> Option<i64> {
        let after = self.entries.partition_point(|entry| u64::from(entry.position) <= position);
        self.entries.get(after.checked_sub(1)?).map(|entry| entry.offset)
    }

    /// Returns the approximate size of the output of [`Index::put`].
    pub(crate) fn size_bytes(&self) -> usize {
        size_of::<Entry>() * self.entries.len()
    }

    /// Returns the position of a batch at or before the one that contains the offset.
    pub(crate) fn position_of_offset(&self, offset: i64) -> u64 {
        let after = self.entries.partition_point(|entry| entry.offset <= offset);
        self.position(after)
    }

    /// Returns the position of a batch at or before the first one with a timestamp from `unix_ms`
    /// on.
    pub(crate) fn position_of_time(&self, unix_ms: i64) -> u64 {
        let after = self.entries.partition_point(|entry| entry.max_timestamp < unix_ms);
        self.position(after)
    }

    fn position(&self, after: usize) -> u64 {
        self.entries.get(after.saturating_sub(1)).map_or(0, |entry| u64::from(entry.position))
    }

    /// Returns the position of the first indexed batch.
    pub(crate) fn head(&self) -> u64 {
        self.position(0)
    }

    /// Removes entries that are not needed for this offset and later ones.
    pub(crate) fn cut_before(&mut self, offset: i64) {
        let after = self.entries.partition_point(|entry| entry.offset <= offset);
        self.entries.drain(..after.saturating_sub(1));
    }

    pub(crate) fn put(&self, into: &mut Vec<u8>) {
        into.extend(self.max_timestamp.to_le_bytes());
        put_list(into, &self.entries, |into, entry| {
            into.extend(entry.offset.to_le_bytes());
            into.extend(entry.position.to_le_bytes());
            into.extend(entry.max_timestamp.to_le_bytes());
        });
    }

    pub(crate) fn take(fields: &mut Fields<'_>) -> Option<Self> {
        let max_timestamp = fields.i64()?;
        let entries = fields.list(|fields| {
            let (offset, position) = (fields.i64()?, fields.u32()?);
            Some(Entry { offset, position, max_timestamp: fields.i64()? })
        })?;
        Some(Self { entries, max_timestamp })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(base_offset: i64, max_timestamp: i64) -> BatchHeader {
        BatchHeader {
            base_offset,
            size_bytes: 10_000,
            epoch: 0,
            attributes: 0,
            last_offset_delta: 99,
            base_timestamp: 0,
            max_timestamp,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            record_count: 100,
        }
    }

    fn index() -> Index {
        let mut index = Index::default();
        for number in 0..10 {
            // The timestamps are out of order: the third is the maximum.
            let batch = header(100 * number, if number == 2 { 1_000 } else { number });
            index.note(&batch, 10_000 * u64::try_from(number).expect("positive"));
        }
        index
    }

    #[test]
    fn an_offset_is_at_or_after_the_position_and_less_than_a_stride_away() {
        let index = index();
        for offset in 0..1_000 {
            let position = index.position_of_offset(offset);
            let exact = 10_000 * u64::try_from(offset / 100).expect("positive");
            assert!(position <= exact && exact - position < STRIDE_BYTES, "offset {offset}");
        }
    }

    #[test]
    fn the_first_batch_of_a_time_is_at_or_after_the_position() {
        let index = index();
        assert_eq!(index.position_of_time(i64::MIN), 0);
        assert!(index.position_of_time(500) <= 20_000);
        assert!(index.position_of_time(1_000) <= 20_000);
        assert_eq!(index.max_timestamp(), 1_000);
    }

    #[test]
    fn an_index_that_is_cut_finds_what_is_left_where_it_was() {
        let whole = index();
        for start in 0..1_000 {
            let mut cut = index();
            cut.cut_before(start);
            assert_eq!(cut.head(), whole.position_of_offset(start));
            for offset in start..1_000 {
                assert_eq!(cut.position_of_offset(offset), whole.position_of_offset(offset));
            }
            assert_eq!(cut.position_of_offset(0), cut.head());
            assert_eq!(cut.position_of_time(i64::MIN), cut.head());
            assert_eq!(cut.max_timestamp(), whole.max_timestamp());
        }
    }

    #[test]
    fn an_index_comes_back_from_a_checkpoint() {
        let mut bytes = Vec::new();
        index().put(&mut bytes);
        let mut fields = Fields(&bytes);
        assert_eq!(Index::take(&mut fields), Some(index()));
        assert!(fields.0.is_empty());
    }

    #[test]
    fn the_index_of_four_gib_is_small() {
        let mut index = Index::default();
        let batch = BatchHeader { size_bytes: 64 << 10, ..header(0, 0) };
        // Each of the four segments. Batches have the usual size of a producer's.
        (0..1 << 14).for_each(|number| index.note(&batch, number << 16));
        let bytes = 4 * index.entries.capacity() * size_of::<Entry>();
        eprintln!("an index of 4 GiB in batches of 64 KiB takes {} KiB", bytes >> 10);
        assert!(bytes < 8 << 20, "{bytes} bytes");
    }
}
