//! Single rules of compaction: retained and removed records.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use block_device::BlockDevice;
use model::Random;
use record_batch::{BatchHeader, Marker, TransactionEnd};
use record_log::{
    Compaction, CompactionOptions, CompactionOutcome, CompactionStep, NewTopic, Partition, Topic,
    TopicOptions,
};
use support::records::{Entry, decode, entries, keyed_batch, value};
use support::{Disk, From, NO_PRODUCER, append, new_topic, open, read_all};

const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

fn options(now_ms: i64) -> CompactionOptions {
    CompactionOptions {
        now_ms,
        delete_retention_ms: DAY_MS,
        min_compaction_lag_ms: 0,
        max_compaction_lag_ms: i64::MAX,
        min_dirty_ratio: 0.0,
        map_bytes_max: 1 << 20,
        hash_secret: [3; 16],
    }
}

fn topic(disk: &Arc<Disk>, segment_bytes: u64) -> Topic {
    let device: Arc<dyn BlockDevice> = Arc::clone(disk) as _;
    let options = TopicOptions { segment_bytes };
    Topic::create(device, &NewTopic { options, ..new_topic(1) }).expect("it is made")
}

fn put(partition: &Partition, from: From, time: i64, records: &[(&str, Option<&str>)]) -> i64 {
    append(partition, &mut keyed_batch(from, 0, time, records)).expect("there is room")
}

/// Closes the active segment with a record that is never compacted.
fn close(topic: &Topic, partition: &Partition) {
    partition.roll();
    put(partition, NO_PRODUCER, 0, &[("the last segment", Some("stays"))]);
    topic.flush().expect("it flushes");
}

fn compact(partition: &Arc<Partition>, now_ms: i64) -> CompactionOutcome {
    partition.compact(&options(now_ms)).expect("it compacts").expect("there is something to do")
}

/// Returns offset, key and value of all records, except markers and those of `close`.
fn contents(partition: &Partition) -> Vec<Entry> {
    let batches = read_all(partition, partition.start_offset(), &mut Random::new(1));
    let all = batches.iter().flat_map(|batch| entries(batch));
    all.filter(|it| it.key.as_deref() != Some("the last segment")).collect()
}

fn entry(offset: i64, key: &str, value: Option<&str>) -> Entry {
    Entry { offset, key: Some(key.to_owned()), value: value.map(str::to_owned) }
}

#[test]
fn the_latest_record_of_each_key_stays_at_its_offset() {
    let disk = Disk::new();
    let topic = topic(&disk, 8 << 10);
    let partition = topic.partition(0).expect("it is there");
    let mut random = Random::new(5);
    let mut expected = BTreeMap::new();
    let mut offset = 0;
    for _ in 0..300 {
        let key = format!("key {}", random.below(20));
        let value = value(&mut random, 100);
        put(&partition, NO_PRODUCER, 0, &[(&key, Some(&value)), ("both", Some(&value))]);
        expected.insert(key.clone(), entry(offset, &key, Some(&value)));
        expected.insert("both".to_owned(), entry(offset + 1, "both", Some(&value)));
        offset += 2;
    }
    close(&topic, &partition);
    let (blocks, end) = (disk.block_count(), partition.next_offset());
    let outcome = compact(&partition, 0);
    assert_eq!((outcome.records_removed, outcome.batches_unread), (600 - 21, 0));
    assert!(outcome.segments_after <= 2 && outcome.segments_before > 5, "{outcome:?}");
    let mut expected: Vec<Entry> = expected.into_values().collect();
    expected.sort_by_key(|it| it.offset);
    assert_eq!(contents(&partition), expected);
    assert_eq!((partition.start_offset(), partition.next_offset()), (0, end));
    assert!(disk.block_count() < blocks / 2, "memory is given back at once");
    // A read from any offset finds the next remaining record.
    for from in 0..end {
        let found = read_all(&partition, from, &mut Random::new(2));
        // The first batch may begin before the offset.
        let offsets = found.iter().flat_map(|it| entries(it)).map(|it| it.offset);
        let left = expected.iter().map(|it| it.offset).chain([600]);
        let left: Vec<i64> = left.filter(|it| *it >= from).collect();
        assert_eq!(offsets.filter(|it| *it >= from).collect::<Vec<i64>>(), left, "from {from}");
    }
    for left in [disk.after_kill(), disk.after_power_loss(&mut random)] {
        let topic = open(&left);
        let partition = topic.partition(0).expect("it is there");
        assert_eq!(contents(&partition), expected);
        assert_eq!(partition.next_offset(), end);
    }
}

#[test]
fn what_is_compressed_is_compacted_and_stays_compressed() {
    for codec in 0..=4 {
        let disk = Disk::new();
        let topic = topic(&disk, 8 << 10);
        let partition = topic.partition(0).expect("it is there");
        for number in 0..3 {
            let value = format!("value {number} {}", "x".repeat(300));
            let records = [("a", Some(&*value)), (["b", "c", "d"][number], Some(&*value))];
            append(&partition, &mut keyed_batch(NO_PRODUCER, codec, 7, &records)).expect("room");
        }
        close(&topic, &partition);
        compact(&partition, 0);
        let found = contents(&partition);
        let offsets: Vec<i64> = found.iter().map(|it| it.offset).collect();
        assert_eq!(offsets, [1, 3, 4, 5], "codec {codec}");
        let batches = read_all(&partition, 0, &mut Random::new(1));
        assert_eq!(decode(&batches[0]).map(|it| it.codec), Some(codec));
        assert!(found[3].value.as_deref().is_some_and(|it| it.starts_with("value 2 xxx")));
    }
}

#[test]
fn tombstones_stay_for_a_while_after_they_were_first_compacted() {
    let disk = Disk::new();
    let topic = topic(&disk, 8 << 10);
    let partition = topic.partition(0).expect("it is there");
    put(&partition, NO_PRODUCER, 5, &[("a", Some("1")), ("b", Some("1"))]);
    put(&partition, NO_PRODUCER, 6, &[("a", None), ("c", Some("1"))]);
    close(&topic, &partition);
    let left = [entry(1, "b", Some("1")), entry(2, "a", None), entry(3, "c", Some("1"))];
    let now = 100 * DAY_MS;
    // Regardless of its age: consumers that are behind must see the deletion.
    compact(&partition, now);
    assert_eq!(contents(&partition), left);
    assert_eq!(partition.compact(&options(now + DAY_MS - 1)).expect("it looks"), None);
    // Nor in a pass that runs for another reason.
    close(&topic, &partition);
    compact(&partition, now + DAY_MS - 1);
    assert_eq!(contents(&partition), left);
    let times = read_all(&partition, 2, &mut Random::new(1));
    assert_eq!(decode(&times[0]).map(|it| it.timestamps), Some(vec![6, 6]), "times never change");
    compact(&partition, now + DAY_MS);
    assert_eq!(contents(&partition), [entry(1, "b", Some("1")), entry(3, "c", Some("1"))]);
    assert_eq!(partition.compact(&options(now + 9 * DAY_MS)).expect("it looks"), None);
}

#[test]
fn the_last_batch_of_a_log_stays_without_records_until_others_follow() {
    let disk = Disk::new();
    let topic = topic(&disk, 8 << 10);
    let partition = topic.partition(0).expect("it is there");
    put(&partition, NO_PRODUCER, 5, &[("a", Some("1"))]);
    put(&partition, NO_PRODUCER, 6, &[("a", None), ("b", None)]);
    topic.flush().expect("it flushes");
    partition.roll_now().expect("there is room");
    let ends = |partition: &Partition| -> Vec<i64> {
        let batches = read_all(partition, 0, &mut Random::new(1));
        let headers = batches.iter().filter_map(|it| BatchHeader::read(it));
        headers.map(|it| it.last_offset() + 1).collect()
    };
    compact(&partition, 0);
    assert_eq!(ends(&partition), [3]);
    // The tombstones are removed, but a consumer still reaches the end of the log.
    compact(&partition, 2 * DAY_MS);
    assert_eq!((contents(&partition), ends(&partition)), (vec![], vec![3]));
    let left = open(&disk.after_kill());
    let again = left.partition(0).expect("it is there");
    assert_eq!((contents(&again), ends(&again), again.next_offset()), (vec![], vec![3], 3));
    put(&partition, NO_PRODUCER, 7, &[("c", Some("1"))]);
    close(&topic, &partition);
    compact(&partition, 2 * DAY_MS);
    assert_eq!(ends(&partition), [4, 5]);
}

#[test]
fn records_of_aborted_transactions_go_and_their_markers_later() {
    let disk = Disk::new();
    let topic = topic(&disk, 8 << 10);
    let partition = topic.partition(0).expect("it is there");
    let from =
        |producer_id, sequence| From { producer_id, epoch: 0, sequence, is_transactional: true };
    let end = |producer_id| TransactionEnd {
        producer_id,
        producer_epoch: 0,
        coordinator_epoch: 0,
        unix_ms: 0,
    };
    put(&partition, NO_PRODUCER, 0, &[("a", Some("first"))]);
    put(&partition, from(1, 0), 0, &[("a", Some("aborted")), ("b", Some("aborted"))]);
    put(&partition, from(2, 0), 0, &[("b", Some("committed"))]);
    append(&partition, &mut Marker::Abort.to_batch(end(1))).expect("there is room");
    append(&partition, &mut Marker::Commit.to_batch(end(2))).expect("there is room");
    // Both producers continue, so nothing is retained for their sequence numbers.
    put(&partition, from(1, 2), 0, &[("c", Some("open"))]);
    put(&partition, from(2, 1), 0, &[("c", Some("open"))]);
    close(&topic, &partition);
    assert_eq!(partition.last_stable_offset(), 6);
    assert_eq!(partition.compact(&options(0)).expect("it looks"), None, "a part of it is open");
    append(&partition, &mut Marker::Commit.to_batch(end(1))).expect("there is room");
    append(&partition, &mut Marker::Commit.to_batch(end(2))).expect("there is room");
    close(&topic, &partition);
    let left = [
        entry(0, "a", Some("first")),
        entry(3, "b", Some("committed")),
        entry(7, "c", Some("open")),
    ];
    let markers = |partition: &Partition| -> Vec<i64> {
        let batches = read_all(partition, 0, &mut Random::new(1));
        let headers = batches.iter().flat_map(|batch| record_batch::headers(batch));
        headers.filter(|it| it.is_control()).map(|it| it.base_offset).collect()
    };
    let compact_until = |now_ms| {
        compact(&partition, now_ms);
        assert_eq!(contents(&partition), left);
        (markers(&partition), partition.aborted(0..100).len())
    };
    // A pass that processed records retains their marker; the next one sets its delete horizon.
    assert_eq!(compact_until(0), (vec![4, 5, 9, 10], 1));
    close(&topic, &partition);
    assert_eq!(compact_until(0), (vec![4, 5, 9, 10], 1));
    close(&topic, &partition);
    assert_eq!(compact_until(DAY_MS - 1), (vec![4, 5, 9, 10], 1));
    let (left_markers, aborted) = compact_until(DAY_MS);
    assert!(!left_markers.contains(&4) && left_markers.contains(&5), "{left_markers:?}");
    assert_eq!(aborted, 0);
}

#[test]
fn the_last_batch_of_a_producer_stays_without_records_and_its_sequence_goes_on() {
    let disk = Disk::new();
    let topic = topic(&disk, 8 << 10);
    let partition = topic.partition(0).expect("it is there");
    let from = |sequence| From { producer_id: 9, epoch: 0, sequence, is_transactional: false };
    put(&partition, from(0), 0, &[("a", Some("1"))]);
    let last = keyed_batch(from(1), 0, 0, &[("a", Some("2")), ("a", Some("3"))]);
    assert_eq!(append(&partition, &mut last.clone()).expect("there is room"), 1);
    put(&partition, NO_PRODUCER, 0, &[("a", Some("4"))]);
    close(&topic, &partition);
    compact(&partition, 0);
    let batches = read_all(&partition, 0, &mut Random::new(1));
    let headers: Vec<_> = batches.iter().flat_map(|batch| record_batch::headers(batch)).collect();
    assert_eq!(
        (headers[0].base_offset, headers[0].last_offset(), headers[0].record_count),
        (1, 2, 0)
    );
    assert_eq!((headers[0].base_sequence, headers[0].last_sequence()), (1, 2));
    assert_eq!(contents(&partition), [entry(3, "a", Some("4"))]);
    drop((topic, partition));
    let topic = open(&disk.after_kill());
    let partition = topic.partition(0).expect("it is there");
    assert_eq!(append(&partition, &mut last.clone()).expect("it was there"), 1);
    put(&partition, from(3), 0, &[("z", Some("next"))]);
    // The producer continues elsewhere, so the empty batch can be removed.
    close(&topic, &partition);
    close(&topic, &partition);
    compact(&partition, 0);
    let batches = read_all(&partition, 0, &mut Random::new(1));
    let first = record_batch::headers(&batches[0]).next().expect("there is one");
    assert_eq!((first.base_offset, first.record_count), (3, 1));
}

#[test]
fn a_batch_that_cannot_be_read_stays_and_what_it_may_hold_is_not_forgotten() {
    let disk = Disk::new();
    let topic = topic(&disk, 8 << 10);
    let partition = topic.partition(0).expect("it is there");
    put(&partition, NO_PRODUCER, 0, &[("a", Some("1"))]);
    // A batch with an unknown codec.
    let mut unread = keyed_batch(NO_PRODUCER, 0, 0, &[("a", Some("hidden"))]);
    support::change_attributes(&mut unread, 7);
    append(&partition, &mut unread).expect("the log takes what it cannot read");
    put(&partition, NO_PRODUCER, 0, &[("a", None)]);
    close(&topic, &partition);
    for now in [0, 2 * DAY_MS, 4 * DAY_MS] {
        close(&topic, &partition);
        let outcome = compact(&partition, now);
        assert_eq!(outcome.batches_unread, 1);
        let batches = read_all(&partition, 0, &mut Random::new(1));
        assert_eq!(batches[0], unread);
        assert_eq!(contents(&partition), [entry(2, "a", None)], "the tombstone stays");
    }
}

#[test]
fn new_records_wait_and_little_dirt_is_left() {
    let disk = Disk::new();
    let topic = topic(&disk, 8 << 10);
    let partition = topic.partition(0).expect("it is there");
    for time in [10, 20, 30] {
        put(&partition, NO_PRODUCER, time, &[("a", Some("1"))]);
        partition.roll();
    }
    close(&topic, &partition);
    let lag = CompactionOptions { min_compaction_lag_ms: 10, ..options(30) };
    let outcome = partition.compact(&lag).expect("it compacts").expect("two are old enough");
    assert_eq!((outcome.clean_offset, outcome.segments_before), (2, 2));
    assert_eq!(contents(&partition), [entry(1, "a", Some("1")), entry(2, "a", Some("1"))]);
    let ratio = CompactionOptions { min_dirty_ratio: 0.9, ..options(30) };
    assert_eq!(partition.compact(&ratio).expect("it looks"), None);
    let ratio = CompactionOptions { min_dirty_ratio: 0.4, ..options(30) };
    assert!(partition.compact(&ratio).expect("it compacts").is_some());
    assert_eq!(contents(&partition), [entry(2, "a", Some("1"))]);
}

#[test]
fn no_segment_waits_longer_than_the_longest_lag() {
    let disk = Disk::new();
    let topic = topic(&disk, 8 << 10);
    let partition = topic.partition(0).expect("it is there");
    put(&partition, NO_PRODUCER, 1, &[("a", Some("1"))]);
    close(&topic, &partition);
    compact(&partition, 1);
    put(&partition, NO_PRODUCER, 20, &[("b", Some("1"))]);
    close(&topic, &partition);
    let little = CompactionOptions { min_dirty_ratio: 0.99, ..options(1_000) };
    assert_eq!(partition.compact(&little).expect("it looks"), None);
    let soon = CompactionOptions { max_compaction_lag_ms: 10, now_ms: 29, ..little };
    assert_eq!(partition.compact(&soon).expect("it looks"), None);
    let late = CompactionOptions { now_ms: 30, ..soon };
    assert!(partition.compact(&late).expect("it compacts").is_some());
    assert_eq!(partition.compact(&late).expect("it looks"), None, "it has been seen");
}

#[test]
fn a_map_without_room_for_all_keys_takes_several_passes() {
    let disk = Disk::new();
    let topic = topic(&disk, 8 << 10);
    let partition = topic.partition(0).expect("it is there");
    for round in 0..2 {
        for number in 0..100 {
            let (key, value) = (format!("key {number}"), format!("round {round}"));
            put(&partition, NO_PRODUCER, 0, &[(&key, Some(&value))]);
        }
    }
    close(&topic, &partition);
    // Room for 48 keys.
    let small = CompactionOptions { map_bytes_max: 64 * 24, ..options(0) };
    let mut clean = Vec::new();
    for _ in 0..20 {
        let outcome = partition.compact(&small).expect("it compacts").expect("it was asked for");
        clean.push(outcome.clean_offset);
        if outcome.clean_offset == 200 {
            break;
        }
    }
    assert_eq!(clean, [48, 96, 144, 192, 200]);
    let found: Vec<i64> = contents(&partition).iter().map(|it| it.offset).collect();
    assert_eq!(found, (100..200).collect::<Vec<i64>>());
}

#[test]
fn a_pass_that_is_dropped_or_finds_no_room_changes_nothing() {
    let disk = Disk::new();
    let topic = topic(&disk, 8 << 10);
    let partition = topic.partition(0).expect("it is there");
    for number in 0..40 {
        let value = "v".repeat(500 + number);
        put(&partition, NO_PRODUCER, 0, &[("a", Some(&value)), ("b", Some(&value))]);
    }
    close(&topic, &partition);
    let (before, blocks) = (contents(&partition), disk.block_count());
    let mut pass = Compaction::begin(&partition, &options(0)).expect("it begins").expect("dirty");
    let again = Compaction::begin(&partition, &options(0)).expect("it looks");
    assert!(again.is_none(), "one pass at a time");
    for _ in 0..8 {
        assert_eq!(pass.step().expect("it goes on"), CompactionStep::More);
    }
    drop(pass);
    assert_eq!((contents(&partition), disk.block_count()), (before.clone(), blocks));
    disk.set_full_after(Some(0));
    let error = partition.compact(&options(0)).expect_err("no memory");
    assert_eq!(error.kind, record_log::LogErrorKind::NoSpace);
    disk.set_full_after(None);
    assert_eq!((contents(&partition), disk.block_count()), (before, blocks));
    compact(&partition, 0);
    let found: Vec<i64> = contents(&partition).iter().map(|it| it.offset).collect();
    assert_eq!(found, [78, 79]);
}

#[test]
fn appends_reads_and_deletions_go_on_during_a_pass() {
    let disk = Disk::new();
    let topic = topic(&disk, 8 << 10);
    let partition = topic.partition(0).expect("it is there");
    for number in 0..200 {
        let key = format!("key {}", number % 7);
        put(&partition, NO_PRODUCER, 0, &[(&key, Some("v"))]);
    }
    close(&topic, &partition);
    let mut pass = Compaction::begin(&partition, &options(0)).expect("it begins").expect("dirty");
    let mut steps = 0;
    while pass.step().expect("it goes on") == CompactionStep::More {
        steps += 1;
        put(&partition, NO_PRODUCER, 0, &[("new", Some("v"))]);
        topic.flush().expect("it flushes");
        assert!(!contents(&partition).is_empty());
        if steps == 5 {
            partition.delete_before(50).expect("it deletes");
        }
    }
    let outcome = pass.outcome();
    drop(pass);
    assert_eq!(outcome.clean_offset, 200);
    assert!(contents(&partition).iter().all(|it| it.offset >= 50));
    close(&topic, &partition);
    compact(&partition, 0);
    let old = contents(&partition).into_iter().filter(|it| it.key.as_deref() != Some("new"));
    assert_eq!(old.map(|it| it.offset).collect::<Vec<i64>>(), (193..200).collect::<Vec<i64>>());
}

#[test]
fn a_segment_that_was_compacted_is_read_without_its_checkpoint() {
    let disk = Disk::new();
    let topic = topic(&disk, 8 << 10);
    let partition = topic.partition(0).expect("it is there");
    for number in 0..100 {
        put(&partition, NO_PRODUCER, 0, &[(&format!("key {}", number % 3), Some("v"))]);
    }
    close(&topic, &partition);
    compact(&partition, 0);
    let found = contents(&partition);
    drop((topic, partition));
    let checkpoints = disk.stored_between(1 << 20, 2 << 20);
    assert!(!checkpoints.is_empty());
    for at in checkpoints {
        let left = disk.after_kill();
        left.flip(at + 20);
        let topic = open(&left);
        assert_eq!(contents(&topic.partition(0).expect("it is there")), found);
    }
}

#[test]
fn records_without_a_key_go_and_the_time_of_an_append_stays() {
    let disk = Disk::new();
    let topic = topic(&disk, 8 << 10);
    let partition = topic.partition(0).expect("it is there");
    // Length, attributes, timestamp, offset, no key, one byte of value, no headers.
    let without_key = [14, 0, 0, 0, 1, 2, b'v', 0];
    append(&partition, &mut support::batch(NO_PRODUCER, 1, 0, &without_key)).expect("room");
    let mut bytes = keyed_batch(NO_PRODUCER, 0, 10, &[("a", Some("1")), ("b", Some("1"))]);
    let (mut batch, _) = record_log::Batch::split_first(&mut bytes).expect("a good batch");
    batch.set_append_time(700);
    partition.append(&mut batch, 700).expect("there is room");
    put(&partition, NO_PRODUCER, 800, &[("b", Some("2"))]);
    close(&topic, &partition);
    assert_eq!(compact(&partition, 0).records_removed, 2);
    let batches = read_all(&partition, 0, &mut Random::new(1));
    let first = record_batch::headers(&batches[0]).next().expect("a batch");
    assert_eq!((first.base_offset, first.record_count, first.last_offset()), (1, 1, 2));
    assert!(first.has_append_time());
    assert_eq!((first.base_timestamp, first.max_timestamp), (10, 700));
}

#[test]
fn what_would_become_too_long_stays_as_it_is() {
    let disk = Disk::new();
    let topic = topic(&disk, 1 << 10);
    let partition = topic.partition(0).expect("it is there");
    let keys: Vec<String> = (0..400).map(|number| format!("{number:x}")).collect();
    // Minimal tombstones, in batches of which two fit into a segment.
    for keys in keys.chunks(40) {
        let records: Vec<(&str, Option<&str>)> = keys.iter().map(|it| (&**it, None)).collect();
        put(&partition, NO_PRODUCER, 0, &records);
    }
    close(&topic, &partition);
    let before = read_all(&partition, 0, &mut Random::new(1));
    // Distant timestamps take ten bytes instead of one.
    let outcome = compact(&partition, i64::MAX / 2);
    assert_eq!((outcome.clean_offset, outcome.segments_after), (400, 0), "{outcome:?}");
    assert_eq!(read_all(&partition, 0, &mut Random::new(1)), before);
    // With larger segments it succeeds.
    topic.set_options(TopicOptions { segment_bytes: 1 << 20 });
    close(&topic, &partition);
    let outcome = compact(&partition, i64::MAX / 2);
    assert_eq!(outcome.segments_after, 1, "{outcome:?}");
    assert_eq!(contents(&partition).len(), 400);
}

/// Segment size and map size in bytes.
type Room = (u64, usize);

const SMALL: Room = (512, 64 * 24);
const LARGE: Room = (1 << 20, 1 << 20);

/// A log with a value of "a" in a batch that is retained unchanged, followed by a tombstone of "a".
/// Checks that passes of these sizes never restore the value, even after reopening. Each pass runs
/// after the delete horizon that the previous one has set.
#[track_caller]
fn check_stays_deleted(batch: &mut [u8], passes: &[Room]) {
    let mut disk = Disk::new();
    {
        let topic = topic(&disk, SMALL.0);
        let partition = topic.partition(0).expect("it is there");
        append(&partition, batch).expect("there is room");
        partition.roll();
        put(&partition, NO_PRODUCER, 0, &[("a", None)]);
        topic.flush().expect("it flushes");
    }
    for (number, (segment_bytes, map_bytes_max)) in (0..).zip(passes) {
        let topic = open(&disk);
        topic.set_options(TopicOptions { segment_bytes: *segment_bytes });
        let partition = topic.partition(0).expect("it is there");
        let now_ms = 2 * number * DAY_MS;
        let options = CompactionOptions { map_bytes_max: *map_bytes_max, ..options(now_ms) };
        for _ in 0..2 {
            close(&topic, &partition);
            partition.compact(&options).expect("it compacts").expect("there is something to do");
            let mut found = contents(&partition).into_iter();
            let of_a = found.rfind(|it| it.key.as_deref() == Some("a"));
            let current = of_a.and_then(|it| it.value);
            assert_eq!(current, None, "pass {number} has a deleted key come back");
        }
        disk = disk.after_kill();
    }
}

#[test]
fn a_deleted_key_stays_deleted_where_its_batch_would_become_too_long() {
    // 20 MiB that repeat one MiB: only Snappy encoders with an unusually large window detect it.
    let mut random = Random::new(7);
    let noise: String = (0..1 << 20).map(|_| random.pick(&['a', 'b', 'c', 'd'])).collect();
    let records = [("a", Some("old")), ("filler", Some(&*noise.repeat(20)))];
    let mut batch = support::records::repeating_batch(&records, noise.len());
    assert!(batch.len() < 6 << 20, "{} bytes", batch.len());
    check_stays_deleted(&mut batch, &[LARGE; 4]);
}

#[test]
fn a_deleted_key_stays_deleted_where_its_segment_would_become_too_long() {
    let keys: Vec<String> = (0..90).map(|number| format!("{number}")).collect();
    // Minimal tombstones: distant timestamps take nine bytes instead of one.
    let mut records: Vec<(&str, Option<&str>)> = keys.iter().map(|it| (&**it, None)).collect();
    records.insert(0, ("a", Some("old")));
    let mut batch = keyed_batch(NO_PRODUCER, 0, -(1 << 60), &records);
    check_stays_deleted(&mut batch, &[SMALL, LARGE, LARGE, LARGE]);
}

#[test]
fn a_deleted_key_stays_deleted_where_a_larger_map_reads_what_a_smaller_one_did_not() {
    let keys: Vec<String> = (0..100).map(|number| format!("key {number}")).collect();
    let mut records: Vec<_> = keys.iter().map(|it| (&**it, Some("v"))).collect();
    records[7] = ("a", Some("old"));
    let mut batch = keyed_batch(NO_PRODUCER, 0, 0, &records);
    check_stays_deleted(&mut batch, &[SMALL, SMALL, LARGE, LARGE]);
}

#[test]
fn what_cannot_be_read_holds_no_pass_up_that_has_a_small_map() {
    let disk = Disk::new();
    let topic = topic(&disk, 8 << 10);
    let partition = topic.partition(0).expect("it is there");
    let mut unread = keyed_batch(NO_PRODUCER, 0, 0, &[("a", Some("hidden"))]);
    support::change_attributes(&mut unread, 7);
    append(&partition, &mut unread).expect("the log takes what it cannot read");
    partition.roll();
    for number in 0..200 {
        put(&partition, NO_PRODUCER, 0, &[(&format!("key {number}"), None)]);
    }
    // Room for 48 keys.
    let pass = |now_ms| {
        let small = CompactionOptions { map_bytes_max: SMALL.1, ..options(now_ms) };
        close(&topic, &partition);
        partition.compact(&small).expect("it compacts").expect("dirty").clean_offset
    };
    assert_eq!([pass(0), pass(0), pass(0)], [49, 97, 145]);
    // All tombstones are past their horizons, but may hide a value in the undecodable batch.
    pass(2 * DAY_MS);
    pass(4 * DAY_MS);
    assert_eq!(contents(&partition).len(), 200);
    // Without that batch they can be removed.
    partition.delete_before(1).expect("it is there");
    pass(6 * DAY_MS);
    pass(8 * DAY_MS);
    assert_eq!(contents(&partition).len(), 0);
}

#[test]
fn threads_append_read_flush_and_delete_while_others_compact() {
    let disk = Disk::new();
    let topic = topic(&disk, 4 << 10);
    let partition = topic.partition(0).expect("it is there");
    let (is_over, replaced) = (AtomicBool::new(false), AtomicU64::new(0));
    let appended_max = 200_000;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                let outcome = partition.compact(&options(0)).expect("it compacts");
                replaced.fetch_add(outcome.map_or(0, |it| it.segments_before), Ordering::SeqCst);
            }
        });
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                partition.delete_before(partition.stable_offset() / 4).expect("it deletes");
            }
        });
        for _ in 0..2 {
            scope.spawn(|| read_numbers(&partition, &is_over));
        }
        for number in 0..appended_max {
            let (key, value) = (format!("key {}", number % 11), format!("{number}"));
            put(&partition, NO_PRODUCER, 0, &[(&key, Some(&value))]);
            if number % 10 == 9 {
                topic.flush().expect("it flushes");
            }
            if number > 1_000 && replaced.load(Ordering::SeqCst) > 50 {
                break;
            }
        }
        is_over.store(true, Ordering::SeqCst);
    });
    let (end, replaced) = (partition.next_offset(), replaced.into_inner());
    assert!(replaced > 50, "only {replaced} segments were replaced while {end} records came");
    topic.flush().expect("it flushes");
    close(&topic, &partition);
    compact(&partition, 0);
    let found: Vec<i64> = contents(&partition).iter().map(|it| it.offset).collect();
    assert_eq!(found, (end - 11..end).collect::<Vec<i64>>());
}

/// Repeatedly reads the whole log: each value is the number of its record.
fn read_numbers(partition: &Partition, is_over: &AtomicBool) {
    let (mut offset, mut buffer) = (0, Vec::new());
    while !is_over.load(Ordering::SeqCst) {
        let range = match partition.read(offset, 3_000, &mut buffer) {
            Ok(range) if !range.is_empty() => range,
            _ => {
                offset = partition.start_offset();
                continue;
            }
        };
        let mut rest = &buffer[range];
        while let Some(header) = record_batch::headers(rest).next() {
            for entry in entries(&rest[..header.size_bytes]) {
                assert_eq!(entry.value, Some(entry.offset.to_string()));
            }
            assert!(header.base_offset >= offset);
            offset = header.next_offset();
            rest = &rest[header.size_bytes..];
        }
    }
}
