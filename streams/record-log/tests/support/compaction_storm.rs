//! Compaction of batches with arbitrary records. Shared with the fuzzer, which declares the same
//! modules.

use std::collections::BTreeMap;
use std::io::Read;

use model::Random;
use record_batch::{BatchHeader, HEADER_BYTES};
use record_log::{CompactionOptions, Partition, Topic};

use crate::support::records::keyed_batch;
use crate::support::{Disk, NO_PRODUCER, append, change_attributes, new_topic, open, read_left};

/// Maximum batches of one run. More do not find additional defects.
const BATCH_COUNT_MAX: usize = 48;

const KEYS: [&str; 5] = ["a", "b", "c", "d", "a longer key"];

/// Retention of tombstones.
const DELETE_RETENTION_MS: i64 = 10;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    offset: i64,
    unix_ms: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
}

/// Compacts batches, each of which is selected by four bytes. A pass must succeed for any contents.
/// It must not change undecodable batches or invent records, and must retain the last record of
/// each key, or none after a tombstone. The same holds for a later pass and for an opening after a
/// kill. Returns the numbers of removed records and of undecodable batches.
pub(crate) fn compact(bytes: &[u8]) -> [u64; 2] {
    let disk = Disk::new();
    let topic = Topic::create(disk.clone(), &new_topic(1)).expect("it is made");
    let partition = topic.partition(0).expect("it is there");
    let mut before = BTreeMap::new();
    for choices in bytes.as_chunks().0.iter().take(BATCH_COUNT_MAX) {
        let mut batch = hostile_batch(*choices);
        before.insert(append(&partition, &mut batch).expect("there is room"), batch);
    }
    // The last segment is never compacted.
    partition.roll();
    let mut last = keyed_batch(NO_PRODUCER, 0, 0, &[("last", Some("stays"))]);
    before.insert(append(&partition, &mut last).expect("there is room"), last);
    topic.flush().expect("it flushes");
    let (mut removed, mut unread) = (0, 0);
    for now_ms in [0, DELETE_RETENTION_MS + 1] {
        let options = CompactionOptions {
            now_ms,
            delete_retention_ms: DELETE_RETENTION_MS,
            min_compaction_lag_ms: 0,
            max_compaction_lag_ms: i64::MAX,
            min_dirty_ratio: 0.0,
            map_bytes_max: 1 << 12,
            hash_secret: [3; 16],
        };
        let outcome = partition.compact(&options).expect("it compacts");
        removed += outcome.map_or(0, |it| it.records_removed);
        unread += outcome.map_or(0, |it| it.batches_unread);
        check(&partition, &before, now_ms);
    }
    topic.flush().expect("it flushes");
    let opened = open(&disk.after_kill());
    check(&opened.partition(0).expect("it is there"), &before, DELETE_RETENTION_MS + 1);
    [removed, unread]
}

/// Builds a batch of up to four records, with some bytes or the codec modified.
fn hostile_batch([kind, key, value, patch]: [u8; 4]) -> Vec<u8> {
    let text = "v".repeat(usize::from(value % 40));
    let records: Vec<(&str, Option<&str>)> = (0..=usize::from(key / 64))
        .map(|index| {
            let is_tombstone = (usize::from(value) + index).is_multiple_of(4);
            (KEYS[(usize::from(key) + index) % KEYS.len()], (!is_tombstone).then_some(&text[..]))
        })
        .collect();
    let mut batch = keyed_batch(NO_PRODUCER, i16::from(kind % 5), 5, &records);
    let mut attributes = i16::from_be_bytes([batch[21], batch[22]]);
    if kind & 0x80 != 0 {
        let place = HEADER_BYTES + usize::from(patch) % (batch.len() - HEADER_BYTES);
        batch[place] ^= value | 1;
    }
    if kind & 0x60 == 0x60 {
        attributes ^= i16::from(patch % 7) + 1;
    }
    change_attributes(&mut batch, attributes);
    batch
}

fn check(partition: &Partition, before: &BTreeMap<i64, Vec<u8>>, now_ms: i64) {
    let mut found = Vec::new();
    let mut next_offset = 0;
    for batch in read_left(partition, 0, &mut Random::new(1)) {
        let header = header(&batch);
        assert!(header.base_offset >= next_offset, "in order, and each once");
        next_offset = header.next_offset();
        let original = before.get(&header.base_offset).expect("its offset did not change");
        assert_eq!(header.last_offset(), self::header(original).last_offset());
        let left = records(&batch);
        if batch != *original {
            let all = records(original).expect("what cannot be read does not change");
            let left = left.as_ref().expect("what was written can be read");
            assert_eq!(usize::try_from(header.record_count).ok(), Some(left.len()));
            assert!(left.iter().all(|it| all.contains(it)), "{left:?} of {all:?}");
        }
        found.extend(left.into_iter().flatten());
    }
    let all: Vec<Record> = before.values().filter_map(|it| records(it)).flatten().collect();
    let mut latest = BTreeMap::new();
    for record in all.iter().filter(|it| it.key.is_some()) {
        latest.insert(&record.key, record);
    }
    for (key, last) in latest {
        if !found.contains(last) {
            let may_go = last.value.is_none() && now_ms > DELETE_RETENTION_MS;
            assert!(may_go, "{last:?} is the last of its key, and is gone");
            let older = found.iter().find(|it| it.key == *key);
            assert_eq!(older, None, "{last:?} deleted it");
        }
    }
}

fn header(batch: &[u8]) -> BatchHeader {
    BatchHeader::read(batch).expect("it was read as a batch")
}

/// Decodes the records of a batch, with arbitrary order and offsets; `None` if that fails.
fn records(batch: &[u8]) -> Option<Vec<Record>> {
    let header = header(batch);
    let bytes = decompress(header.attributes & 7, &batch[HEADER_BYTES..])?;
    let mut rest = &bytes[..];
    let mut found = Vec::new();
    while !rest.is_empty() {
        let mut record = take_bytes(&mut rest)??;
        record = record.get(1..)?;
        let unix_ms = header.base_timestamp.wrapping_add(take_number(&mut record)?);
        let offset = header.base_offset.wrapping_add(take_number(&mut record)?);
        let key = take_bytes(&mut record)?.map(<[u8]>::to_vec);
        let value = take_bytes(&mut record)?.map(<[u8]>::to_vec);
        found.push(Record { offset, unix_ms, key, value });
    }
    Some(found)
}

/// `Some(None)` is null.
fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let length = take_number(rest)?;
    if length == -1 {
        return Some(None);
    }
    let (bytes, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    *rest = after;
    Some(Some(bytes))
}

fn take_number(rest: &mut &[u8]) -> Option<i64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        number |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Some((number >> 1).cast_signed() ^ -(number & 1).cast_signed());
        }
    }
    None
}

fn decompress(codec: i16, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut found = Vec::new();
    match codec {
        0 => found.extend_from_slice(bytes),
        1 => {
            flate2::read::MultiGzDecoder::new(bytes).read_to_end(&mut found).ok()?;
        }
        2 if bytes.starts_with(b"\x82SNAPPY\0") => {
            let mut rest = bytes.get(16..)?;
            while let Some((length, after)) = rest.split_first_chunk() {
                let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
                let (block, after) = after.split_at_checked(length)?;
                found.extend(decompress_snappy(block)?);
                rest = after;
            }
        }
        2 => found = decompress_snappy(bytes)?,
        3 => {
            lz4_flex::frame::FrameDecoder::new(bytes).read_to_end(&mut found).ok()?;
        }
        4 => {
            let mut zstd = ruzstd::decoding::StreamingDecoder::new(bytes).ok()?;
            zstd.read_to_end(&mut found).ok()?;
        }
        _ => return None,
    }
    Some(found)
}

/// Three bytes expand to 64 at most.
fn decompress_snappy(block: &[u8]) -> Option<Vec<u8>> {
    let length = snap::raw::decompress_len(block).ok()?;
    let is_possible = length <= block.len() * 64;
    is_possible.then(|| snap::raw::Decoder::new().decompress_vec(block).ok()).flatten()
}
