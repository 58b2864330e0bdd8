//! Single operations of a topic.

mod support;

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use block_device::BlockDevice;
use model::Random;
use record_batch::{HEADER_BYTES, Marker, TransactionEnd, headers};
use record_log::{
    BATCH_BYTES_MAX, Batch, LogErrorKind, NewTopic, PROPERTIES_BYTES_MAX, Partition, Retention,
    SEGMENT_BYTES_MAX, Topic, TopicOptions,
};
use support::{
    Disk, From, NO_PRODUCER, OPTIONS, PROPERTIES, append, batch, contents, new_topic, open,
    read_all,
};

fn topic(disk: &Arc<Disk>, partition_count: u32) -> Topic {
    let device: Arc<dyn BlockDevice> = Arc::clone(disk) as _;
    Topic::create(device, &new_topic(partition_count)).expect("it is made")
}

/// Creates a topic with batches of ten records and 1,000 bytes each, with timestamps 0, 1, 2, ….
fn filled(disk: &Arc<Disk>, count: i64) -> (Topic, Vec<Vec<u8>>) {
    let topic = topic(disk, 1);
    let partition = topic.partition(0).expect("it is there");
    let mut random = Random::new(1);
    let batches: Vec<Vec<u8>> = (0..count)
        .map(|time| {
            let mut bytes = batch(NO_PRODUCER, 10, time, &contents(&mut random, 1_000));
            assert_eq!(append(&partition, &mut bytes).expect("there is room"), 10 * time);
            bytes
        })
        .collect();
    topic.flush().expect("it flushes");
    (topic, batches)
}

#[test]
fn what_was_appended_is_read_from_every_offset() {
    let disk = Disk::new();
    let (topic, batches) = filled(&disk, 30);
    let partition = topic.partition(0).expect("it is there");
    let mut random = Random::new(2);
    for offset in 0..300 {
        let first = usize::try_from(offset / 10).expect("positive");
        assert_eq!(read_all(&partition, offset, &mut random), batches[first..], "{offset}");
    }
    let error = partition.read(301, 10, &mut Vec::new()).expect_err("past the end");
    assert_eq!(error.kind, LogErrorKind::OffsetOutOfRange);
}

#[test]
fn readers_see_what_was_flushed() {
    let disk = Disk::new();
    let topic = topic(&disk, 1);
    let partition = topic.partition(0).expect("it is there");
    append(&partition, &mut batch(NO_PRODUCER, 3, 0, b"abc")).expect("there is room");
    assert_eq!((partition.stable_offset(), partition.next_offset()), (0, 3));
    assert_eq!(partition.read(0, 100, &mut Vec::new()).expect("it reads"), 0..0);
    topic.flush().expect("it flushes");
    assert_eq!(partition.stable_offset(), 3);
    assert!(!partition.read(0, 100, &mut Vec::new()).expect("it reads").is_empty());
}

#[test]
fn an_opening_finds_all_after_a_kill_and_begins_an_epoch() {
    let disk = Disk::new();
    let (before, batches) = filled(&disk, 30);
    let first_epoch = before.partition(0).expect("it is there").epoch();
    drop(before);
    let topic = open(&disk.after_kill());
    let partition = topic.partition(0).expect("it is there");
    assert_eq!(read_all(&partition, 0, &mut Random::new(3)), batches);
    assert_eq!(partition.epoch(), first_epoch + 1);
    append(&partition, &mut batch(NO_PRODUCER, 1, 0, b"new")).expect("there is room");
    topic.flush().expect("it flushes");
    assert_eq!(partition.end_of_epoch(first_epoch), Some((first_epoch, 300)));
    assert_eq!(partition.end_of_epoch(first_epoch + 1), Some((first_epoch + 1, 301)));
    assert_eq!(partition.end_of_epoch(first_epoch + 2), None, "nobody knows it");
}

/// Query of a consumer that has read more than the copy contains to which the volume was reverted.
#[test]
fn a_log_that_was_set_back_goes_on_in_an_epoch_that_nobody_knows() {
    let disk = Disk::new();
    let (created, _) = filled(&disk, 3);
    let of_copy = created.partition(0).expect("it is there").epoch();
    let copy = disk.after_kill();
    let opened = |disk: &Arc<Disk>, epoch: i32| {
        let topic = Topic::open_in_epoch(Arc::clone(disk) as _, OPTIONS, epoch);
        topic.expect("it opens").expect("there is a topic")
    };
    let late = opened(&disk.after_kill(), 500);
    let known = late.partition(0).expect("it is there").epoch();
    assert_eq!(known, 500);
    let topic = opened(&copy, 501);
    let partition = topic.partition(0).expect("it is there");
    assert_eq!(partition.epoch(), 501);
    assert_eq!(partition.end_of_epoch(known), Some((of_copy, 30)));
    drop(topic);
    // If the clock was set back, the next epoch is used.
    assert_eq!(opened(&copy.after_kill(), 7).partition(0).expect("it is there").epoch(), 502);
}

/// Query of a consumer that waits at the end of the log while the broker is restarted.
#[test]
fn an_epoch_without_records_ends_where_the_next_one_begins() {
    let mut disk = Disk::new();
    let created = topic(&disk, 1);
    let waited_in = created.partition(0).expect("it is there").epoch();
    drop(created);
    for openings in 1..=300 {
        disk = disk.after_kill();
        let topic = open(&disk);
        let partition = topic.partition(0).expect("it is there");
        append(&partition, &mut batch(NO_PRODUCER, 1, 0, b"new")).expect("there is room");
        topic.flush().expect("it flushes");
        let (found, end) = partition.end_of_epoch(waited_in).expect("an epoch of this log");
        assert_eq!(found, waited_in);
        // It is forgotten after many openings, and still no record before its end is missed.
        assert!(end == 0 || openings > 250, "{end} after {openings} openings");
        assert_eq!(partition.end_of_epoch(partition.epoch()), Some((partition.epoch(), openings)));
        assert_eq!(partition.end_of_epoch(-1), None);
    }
}

#[test]
fn epochs_before_deleted_records_end_where_the_log_begins() {
    let mut disk = Disk::new();
    let mut epochs = Vec::new();
    drop(topic(&disk, 1));
    // Each epoch has ten records.
    for _ in 0..3 {
        disk = disk.after_kill();
        let topic = open(&disk);
        let partition = topic.partition(0).expect("it is there");
        append(&partition, &mut batch(NO_PRODUCER, 10, 0, b"x")).expect("there is room");
        topic.flush().expect("it flushes");
        epochs.push(partition.epoch());
    }
    let topic = open(&disk);
    let partition = topic.partition(0).expect("it is there");
    let [first, second, third] = epochs[..] else { panic!("three epochs: {epochs:?}") };
    let ends = |start: i64| {
        partition.delete_before(start).expect("it deletes");
        [first, second, third].map(|epoch| partition.end_of_epoch(epoch))
    };
    let own = [Some((first, 10)), Some((second, 20)), Some((third, 30))];
    assert_eq!(ends(5), own);
    assert_eq!(ends(15), [Some((first, 15)), own[1], own[2]]);
    assert_eq!(ends(20), [Some((first, 20)), Some((second, 20)), own[2]]);
    assert_eq!(ends(25), [Some((first, 25)), Some((second, 25)), own[2]]);
    // Each epoch without records ends at the end of the log.
    assert_eq!(ends(30)[0], Some((first, 30)));
}

#[test]
fn a_volume_without_a_topic_is_told_from_one_with_something_else() {
    let disk = Disk::new();
    let device: Arc<dyn BlockDevice> = Arc::clone(&disk) as _;
    assert!(Topic::open(Arc::clone(&device), OPTIONS).expect("an empty volume").is_none());
    disk.write(0, &[7; 4096]).expect("it writes");
    let error = Topic::open(Arc::clone(&device), OPTIONS).expect_err("no topic");
    assert_eq!(error.kind, LogErrorKind::NotALog);
    let error = Topic::create(device, &new_topic(1)).expect_err("it is not empty");
    assert_eq!(error.kind, LogErrorKind::NotALog);
}

#[test]
fn deleted_records_give_their_memory_back_and_stay_deleted() {
    let disk = Disk::new();
    let (topic, batches) = filled(&disk, 100);
    let partition = topic.partition(0).expect("it is there");
    let before = disk.block_count();
    assert_eq!(partition.delete_before(905).expect("it deletes"), 905);
    topic.flush().expect("it flushes");
    assert!(disk.block_count() < before / 4, "{} of {before}", disk.block_count());
    let error = partition.read(904, 10, &mut Vec::new()).expect_err("deleted");
    assert_eq!(error.kind, LogErrorKind::OffsetOutOfRange);
    assert_eq!(read_all(&partition, 905, &mut Random::new(4)), batches[90..]);
    drop((topic, partition));
    let topic = open(&disk.after_kill());
    let partition = topic.partition(0).expect("it is there");
    assert_eq!(partition.start_offset(), 905);
    assert_eq!(read_all(&partition, 905, &mut Random::new(5)), batches[90..]);
}

#[test]
fn memory_is_used_again_after_the_flush_that_made_its_discard_stable() {
    let disk = Disk::new();
    let (topic, _) = filled(&disk, 100);
    let partition = topic.partition(0).expect("it is there");
    let most = disk.block_count();
    for round in 0..20 {
        let end = partition.stable_offset();
        partition.delete_before(end).expect("it deletes");
        for _ in 0..50 {
            let mut bytes = batch(NO_PRODUCER, 10, round, &[5; 1_000]);
            append(&partition, &mut bytes).expect("there is room");
        }
        topic.flush().expect("it flushes");
    }
    assert!(disk.block_count() < most, "{} blocks after {most}", disk.block_count());
}

#[test]
fn consecutive_slots_without_segments_are_discarded_by_one_request_at_an_opening() {
    let disk = Disk::new();
    drop(topic(&disk, 1));
    let empty = disk.after_kill();
    open(&empty);
    assert_eq!(empty.discards(), 1, "no slot has a segment");
    let disk = Disk::new();
    drop(filled(&disk, 100));
    let disk = disk.after_kill();
    let segments = open(&disk);
    let partition = segments.partition(0).expect("it is there");
    assert_eq!(partition.stable_offset(), 1_000);
    assert!(disk.discards() <= 2, "{} requests", disk.discards());
}

#[test]
fn retention_by_size_and_time_deletes_whole_segments() {
    let disk = Disk::new();
    let (topic, _) = filled(&disk, 100);
    let partition = topic.partition(0).expect("it is there");
    let policy = Retention { bytes_max: Some(50_000), ..Retention::default() };
    let start = partition.retain(policy).expect("it deletes");
    assert!(start > 400 && partition.size_bytes() >= 50_000, "{start}");
    let policy = Retention { oldest_unix_ms: Some(90), ..Retention::default() };
    let start = partition.retain(policy).expect("it deletes");
    assert!((800..=900).contains(&start), "{start}");
    partition.roll();
    let policy = Retention { bytes_max: Some(0), ..Retention::default() };
    let start = partition.retain(policy).expect("it deletes");
    assert!(start < 1_000, "the last segment stays");
    append(&partition, &mut batch(NO_PRODUCER, 1, 0, b"x")).expect("there is room");
    topic.flush().expect("it flushes");
    assert_eq!(partition.retain(policy).expect("it deletes"), 1_000);
}

/// Creates a topic with one segment of 100 batches, on a disk that accepts no more blocks.
fn full_disk(random: &mut Random) -> (Arc<Disk>, Topic, Vec<Vec<u8>>) {
    let disk = Disk::new();
    let topic = topic(&disk, 1);
    topic.set_options(TopicOptions { segment_bytes: SEGMENT_BYTES_MAX });
    let partition = topic.partition(0).expect("it is there");
    let mut batches = Vec::new();
    for round in 0..100_i32 {
        let (producer_id, sequence) = (8, 2 * round);
        let from = From { producer_id, epoch: 0, sequence, is_transactional: false };
        let mut bytes = batch(from, 2, i64::from(round), &contents(random, 5_000));
        append(&partition, &mut bytes).expect("there is room");
        topic.flush().expect("it flushes");
        batches.push(bytes);
    }
    disk.set_full(true);
    let from = From { producer_id: 8, epoch: 0, sequence: 200, is_transactional: false };
    let refused = append(&partition, &mut batch(from, 1, 0, &contents(random, 5_000)));
    assert_eq!(refused.expect_err("no room").kind, LogErrorKind::NoSpace);
    (disk, topic, batches)
}

#[test]
fn deleted_records_of_the_last_segment_make_room_in_a_full_pool() {
    let mut random = Random::new(3);
    for start in [50, 51, 199, 200] {
        let (disk, topic, batches) = full_disk(&mut random);
        let partition = topic.partition(0).expect("it is there");
        let before = disk.block_count();
        let pin = partition.pin();
        partition.delete_before(start).expect("it deletes");
        partition.cut().expect("it waits");
        assert_eq!(disk.block_count(), before, "somebody reads the log as it was");
        let mut buffer = Vec::new();
        let first = pin.read(0, 1, &mut buffer).expect("it is there");
        assert_eq!(buffer[first], batches[0][..]);
        drop(pin);
        partition.cut().expect("it needs no memory");
        let gone = before - disk.block_count();
        // Memory of deleted records is freed, except for one index interval.
        let deleted = start.unsigned_abs() / 2 * 5_000 / 4_096;
        assert!(gone as u64 + 7 >= deleted, "{gone} blocks of {deleted} for {start}");
        let index = usize::try_from(start / 2).expect("small");
        let left = &batches[index.min(batches.len())..];
        for disk in [disk.after_kill(), disk.after_power_loss(&mut random)] {
            let opened = open(&disk);
            let partition = opened.partition(0).expect("it is there");
            assert_eq!((partition.start_offset(), partition.stable_offset()), (start, 200));
            assert_eq!(read_all(&partition, start, &mut random), left);
            assert_eq!(partition.producers(), topic.partition(0).expect("it").producers());
            let newest = partition.find_time(0).expect("it looks");
            assert_eq!(newest.map(|it| it.offset), (start < 200).then_some(start));
        }
        assert_eq!(read_all(&partition, start, &mut random), left);
        disk.set_full(false);
        let from = From { producer_id: 8, epoch: 0, sequence: 200, is_transactional: false };
        append(&partition, &mut batch(from, 1, 0, b"next")).expect("there is room");
        topic.flush().expect("it flushes");
        assert_eq!(read_all(&partition, start, &mut random).len(), left.len() + 1);
    }
}

#[test]
fn retention_by_size_makes_room_within_a_long_segment_of_a_full_pool() {
    const KEPT_BYTES: u64 = 100_000;
    let mut random = Random::new(4);
    for rolls in [false, true] {
        let (disk, topic, batches) = full_disk(&mut random);
        let partition = topic.partition(0).expect("it is there");
        let (before, size_bytes) = (disk.block_count(), partition.size_bytes());
        let policy = Retention { bytes_max: Some(KEPT_BYTES), ..Retention::default() };
        assert_eq!(partition.retain(policy).expect("it looks"), 0, "segments are as long as that");
        if rolls {
            disk.set_full(false);
            partition.roll();
            let mut last = batch(NO_PRODUCER, 1, 0, b"in a segment of its own");
            append(&partition, &mut last).expect("there is room");
            topic.flush().expect("it flushes");
            disk.set_full(true);
        }
        topic.set_options(TopicOptions { segment_bytes: 50_000 });
        let most = Retention { bytes_max: Some(size_bytes - 40_000), ..Retention::default() };
        assert_eq!(partition.retain(most).expect("it looks"), 0, "a new one may be as long");
        let start = partition.retain(policy).expect("it needs no memory");
        partition.cut().expect("it needs no memory");
        let left_bytes = partition.size_bytes();
        assert!((KEPT_BYTES..KEPT_BYTES + 25_000).contains(&left_bytes), "{left_bytes} bytes");
        let gone = (before - disk.block_count()) as u64 * 4_096;
        assert!(gone + 50_000 >= size_bytes - left_bytes, "{gone} bytes were given back");
        assert_eq!(partition.retain(policy).expect("it looks"), start, "it is short enough");
        let index = usize::try_from(start / 2).expect("small");
        assert_eq!(start % 2, 0, "a batch is kept whole");
        for disk in [disk.after_kill(), disk.after_power_loss(&mut random)] {
            let opened = open(&disk);
            let partition = opened.partition(0).expect("it is there");
            assert_eq!(partition.start_offset(), start);
            let read = read_all(&partition, start, &mut random);
            assert_eq!(read[..batches.len() - index], batches[index..]);
        }
        disk.set_full(false);
        append(&partition, &mut batch(NO_PRODUCER, 1, 0, b"next")).expect("there is room");
    }
}

#[test]
fn properties_are_replaced_in_a_full_pool() {
    let disk = Disk::new();
    let topic = topic(&disk, 1);
    disk.set_full(true);
    for properties in [b"one", b"two", b"six"] {
        topic.set_properties(properties).expect("they overwrite older ones");
        let opened = open(&disk.after_kill());
        assert_eq!(opened.properties(), properties);
    }
}

#[test]
fn a_log_with_a_reserve_goes_on_in_a_full_pool_for_as_long_as_it_is_rewritten() {
    const RESERVED: u64 = 256 << 10;
    let mut random = Random::new(6);
    let disk = Disk::new();
    drop(topic(&disk, 1));
    let open = |disk: &Arc<Disk>| {
        let device: Arc<dyn BlockDevice> = Arc::clone(disk) as _;
        let options = TopicOptions { segment_bytes: SEGMENT_BYTES_MAX };
        let topic = Topic::open_reserved(device, options).expect("it opens").expect("it is there");
        let partition = topic.partition(0).expect("it is there");
        let held = partition.reserve(RESERVED).expect("it is there");
        assert_eq!(held, RESERVED);
        (topic, partition)
    };
    let (mut topic, mut partition) = open(&disk);
    let mut disk = disk;
    disk.set_full(true);
    let mut batches: Vec<Vec<u8>> = Vec::new();
    for round in 0..200 {
        let mut bytes = batch(NO_PRODUCER, 2, 0, &contents(&mut random, 5_000));
        append(&partition, &mut bytes).expect("it was reserved");
        batches.push(bytes);
        if round % 3 == 0 {
            topic.flush().expect("it flushes");
        }
        if batches.len() == 30 {
            // Like the broker's state log: live records are written again, and all others are
            // deleted.
            partition.roll();
            let begin = partition.next_offset();
            batches.drain(..25);
            for bytes in &mut batches {
                append(&partition, bytes).expect("it was reserved");
            }
            topic.flush().expect("it flushes");
            partition.delete_before(begin).expect("it is stable");
            topic.flush().expect("it flushes");
            assert_eq!(partition.reserve(RESERVED).expect("it is there"), RESERVED);
        }
        if round % 7 == 0 {
            topic.flush().expect("it flushes");
            let after = match round % 2 {
                0 => disk.after_kill(),
                _ => disk.after_power_loss(&mut random),
            };
            after.set_full(true);
            disk = after;
            (topic, partition) = open(&disk);
        }
        if round % 5 == 0 {
            topic.flush().expect("it flushes");
            let start = partition.start_offset();
            assert_eq!(read_all(&partition, start, &mut random), batches, "round {round}");
        }
    }
    // A batch that exceeds the remaining reserve is rejected and leaves the reserve unchanged.
    let mut long = batch(NO_PRODUCER, 2, 0, &contents(&mut random, 300_000));
    let refused = append(&partition, &mut long).expect_err("there is no room");
    assert_eq!(refused.kind, LogErrorKind::NoSpace);
    let mut bytes = batch(NO_PRODUCER, 2, 0, &contents(&mut random, 5_000));
    append(&partition, &mut bytes).expect("it was reserved");
    batches.push(bytes);
    topic.flush().expect("it flushes");
    assert_eq!(partition.reserve(RESERVED).expect("it is there"), RESERVED);
    let (_topic, partition) = open(&disk.after_kill());
    assert_eq!(read_all(&partition, partition.start_offset(), &mut random), batches);
    // The memory is bounded by two slots.
    let count = disk.block_count();
    assert!(count < 2 * 256 / 4 + 20, "{count} blocks");
}

/// Writes like the broker's state log until the disk fails. Returns the live stable records.
fn keep_state(disk: &Arc<Disk>, written: &mut Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let mut random = Random::new(7);
    let mut stable: Vec<Vec<u8>> = Vec::new();
    let mut next: Vec<Vec<u8>> = Vec::new();
    let mut keep = || -> Result<(), record_log::LogError> {
        let device: Arc<dyn BlockDevice> = Arc::clone(disk) as _;
        let options = TopicOptions { segment_bytes: SEGMENT_BYTES_MAX };
        let topic = Topic::open_reserved(device, options)?.expect("it is there");
        let partition = topic.partition(0)?;
        partition.reserve(64 << 10)?;
        for round in 0..40 {
            let contents = contents(&mut random, 3_000);
            written.push(contents.clone());
            append(&partition, &mut batch(NO_PRODUCER, 2, 0, &contents))?;
            next.push(contents);
            if round % 3 == 0 {
                topic.flush()?;
                stable.clone_from(&next);
            }
            if round % 10 == 9 {
                partition.roll();
                let begin = partition.next_offset();
                next.drain(..next.len() - 3);
                for contents in &next {
                    append(&partition, &mut batch(NO_PRODUCER, 2, 0, contents))?;
                }
                topic.flush()?;
                stable.clone_from(&next);
                partition.delete_before(begin)?;
                topic.flush()?;
                partition.reserve(64 << 10)?;
            }
        }
        Ok(())
    };
    // The disk may have failed.
    keep().ok();
    stable
}

#[test]
fn a_log_with_a_reserve_that_is_cut_at_any_store_keeps_what_was_flushed() {
    let made = Disk::new();
    drop(topic(&made, 1));
    let whole = made.after_kill();
    keep_state(&whole, &mut Vec::new());
    let stores = whole.stores();
    assert!(stores > 150, "{stores} stores");
    let mut random = Random::new(8);
    for cut in 0..stores {
        let disk = made.after_kill();
        disk.die_after(cut);
        let mut written = Vec::new();
        let stable = keep_state(&disk, &mut written);
        let after = match random.below(2) {
            0 => disk.after_kill(),
            _ => disk.after_power_loss(&mut random),
        };
        // Twice, because the end that the first opening finds must be correct.
        for life in 0..2 {
            let device: Arc<dyn BlockDevice> = Arc::clone(&after) as _;
            let options = TopicOptions { segment_bytes: SEGMENT_BYTES_MAX };
            let opened = Topic::open_reserved(device, options).expect("it opens");
            let topic = opened.expect("it is there");
            let partition = topic.partition(0).expect("it is there");
            assert_eq!(partition.reserve(64 << 10).expect("there is room"), 64 << 10);
            let found = read_all(&partition, partition.start_offset(), &mut random);
            let found: Vec<&[u8]> = found.iter().map(|it| &it[HEADER_BYTES..]).collect();
            for contents in &stable {
                assert!(found.contains(&&contents[..]), "cut {cut}, life {life}: one is lost");
            }
            let is_known = |it: &&[u8]| written.iter().any(|known| known == it);
            assert!(found.iter().all(is_known), "cut {cut}, life {life}: one that nobody wrote");
            let one = contents(&mut random, 3_000);
            written.push(one.clone());
            append(&partition, &mut batch(NO_PRODUCER, 2, 0, &one)).expect("there is room");
            topic.flush().expect("it flushes");
        }
    }
}

/// Returns the contents after the headers of all appended batches, including unstable ones.
fn appended(partition: &Partition) -> Vec<Vec<u8>> {
    let (mut offset, mut buffer, mut found) = (partition.start_offset(), Vec::new(), Vec::new());
    while offset < partition.next_offset() {
        let range = partition.read_appended(offset, 1 << 20, &mut buffer).expect("it reads");
        let mut at = range.start;
        for header in headers(&buffer[range]) {
            found.push(buffer[at + HEADER_BYTES..at + header.size_bytes].to_vec());
            at += header.size_bytes;
            offset = header.next_offset();
        }
    }
    found
}

#[test]
fn a_log_is_opened_and_appended_to_while_a_disk_hangs_and_loses_nothing_that_was_flushed() {
    let made = Disk::new();
    drop(topic(&made, 1));
    let whole = made.after_kill();
    keep_state(&whole, &mut Vec::new());
    let mut random = Random::new(9);
    let options = TopicOptions { segment_bytes: SEGMENT_BYTES_MAX };
    let mut appended_count = 0;
    for cut in 0..whole.stores() {
        let disk = made.after_kill();
        disk.die_after(cut);
        let mut written = Vec::new();
        let mut stable = keep_state(&disk, &mut written);
        let one = contents(&mut random, 3_000);
        written.push(one.clone());
        let check = |disk: &Arc<Disk>, stable: &[Vec<u8>], what: &str| {
            let device: Arc<dyn BlockDevice> = Arc::clone(disk) as _;
            let topic = Topic::open_reserved(device, options).expect("it opens");
            let partition = topic.expect("it is there").partition(0).expect("it is there");
            let found = appended(&partition);
            let lost = stable.iter().filter(|it| !found.contains(it)).count();
            assert_eq!(lost, 0, "cut {cut}, {what}: lost");
            assert!(found.iter().all(|it| written.contains(it)), "cut {cut}, {what}: not written");
        };
        let disk = disk.after_kill();
        disk.set_hung(true);
        let topic = Topic::open_reserved_unflushed(Arc::clone(&disk) as _, options);
        let topic = topic.expect("it opens").expect("it is there");
        let partition = topic.partition(0).expect("it is there");
        if let Err(error) = partition.reserve(64 << 10) {
            assert_eq!(error.kind, LogErrorKind::NotDurable, "cut {cut}: there will be room");
        }
        assert_eq!(partition.stable_offset(), partition.start_offset());
        let found = appended(&partition);
        assert!(stable.iter().all(|it| found.contains(it)), "cut {cut}: one is lost");
        let is_appended = match append(&partition, &mut batch(NO_PRODUCER, 2, 0, &one)) {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(error.kind, LogErrorKind::NotDurable);
                assert!(found.is_empty(), "cut {cut}: there is a segment to append to");
                false
            }
        };
        check(&disk.after_power_loss(&mut random), &stable, "before the flush");
        disk.set_hung(false);
        topic.flush().expect("it flushes");
        assert_eq!(partition.stable_offset(), partition.next_offset());
        if is_appended {
            stable.push(one);
            appended_count += 1;
        }
        check(&disk.after_power_loss(&mut random), &stable, "after the flush");
        partition.reserve(64 << 10).expect("there is room");
        topic.flush().expect("it flushes");
        check(&disk.after_power_loss(&mut random), &stable, "with what was given back");
    }
    assert!(appended_count > 100, "{appended_count} logs were appended to");
}

#[test]
fn retention_empties_the_last_segment_of_a_full_pool() {
    let mut random = Random::new(4);
    let (disk, topic, _) = full_disk(&mut random);
    let partition = topic.partition(0).expect("it is there");
    let before = disk.block_count();
    let mut policy =
        Retention { oldest_unix_ms: Some(99), empties_last: true, ..Retention::default() };
    partition.roll_now().expect("a full pool is no error");
    assert_eq!(partition.retain(policy).expect("it looks"), 0, "its newest is not as old");
    policy.oldest_unix_ms = Some(100);
    assert_eq!(partition.retain(policy).expect("it deletes"), 200);
    partition.cut().expect("it needs no memory");
    assert!(before > disk.block_count() + 110, "{} of {before}", disk.block_count());
    disk.set_full(false);
    partition.roll_now().expect("there is room");
    assert_eq!(partition.retain(policy).expect("it deletes"), 200);
    topic.flush().expect("it flushes");
    assert_eq!(disk.segment_count(), 1);
    let producers = partition.producers();
    drop((topic, partition));
    let topic = open(&disk.after_power_loss(&mut random));
    let partition = topic.partition(0).expect("it is there");
    assert_eq!((partition.start_offset(), partition.stable_offset()), (200, 200));
    assert_eq!(partition.producers(), producers);
}

#[test]
fn an_expired_last_segment_gives_its_memory_back_without_another_batch() {
    let disk = Disk::new();
    let topic = topic(&disk, 1);
    let partition = topic.partition(0).expect("it is there");
    let from = From { producer_id: 8, epoch: 0, sequence: 0, is_transactional: false };
    let mut random = Random::new(7);
    append(&partition, &mut batch(from, 5, 0, &contents(&mut random, 20_000))).expect("room");
    topic.flush().expect("it flushes");
    let before = disk.block_count();
    disk.set_full_after(Some(0));
    partition.roll_now().expect("a full pool is no error");
    disk.set_full_after(None);
    let policy = Retention { oldest_unix_ms: Some(1), ..Retention::default() };
    assert_eq!(partition.retain(policy).expect("it looks"), 0, "nothing follows the segment");
    partition.roll_now().expect("there is room");
    assert_eq!(partition.retain(policy).expect("it deletes"), 5);
    topic.flush().expect("it flushes");
    assert!(disk.block_count() + 4 < before, "{} of {before}", disk.block_count());
    assert_eq!((partition.size_bytes(), partition.max_timestamp().expect("it reads")), (0, None));
    partition.roll_now().expect("an empty segment stays the last");
    let blocks = disk.block_count();
    drop((topic, partition));
    let topic = open(&disk.after_kill());
    let partition = topic.partition(0).expect("it is there");
    assert_eq!((partition.start_offset(), partition.stable_offset()), (5, 5));
    assert!(disk.block_count() <= blocks, "{} after {blocks}", disk.block_count());
    // Deletion of its records does not make the log forget the producer.
    let mut again = batch(from, 5, 0, b"again");
    let (mut again, _) = Batch::split_first(&mut again).expect("a good batch");
    assert!(partition.append(&mut again, 0).expect("it is known").was_there);
    let next = From { sequence: 5, ..from };
    assert_eq!(append(&partition, &mut batch(next, 5, 0, b"next")).expect("room"), 5);
}

#[test]
fn a_time_is_found_at_the_first_batch_that_is_as_new() {
    let disk = Disk::new();
    let (topic, _) = filled(&disk, 100);
    let partition = topic.partition(0).expect("it is there");
    for time in 0..100 {
        let place = partition.find_time(time).expect("it looks").expect("there is one");
        assert_eq!((place.base_offset, place.max_timestamp), (10 * time, time));
    }
    assert_eq!(partition.find_time(100).expect("it looks"), None);
    partition.delete_before(500).expect("it deletes");
    let place = partition.find_time(7).expect("it looks").expect("there is one");
    assert_eq!(place.base_offset, 500);
    assert_eq!(partition.max_timestamp().expect("it reads"), Some(99));
}

#[test]
fn the_newest_time_is_of_a_record_that_is_left() {
    let disk = Disk::new();
    let topic = topic(&disk, 1);
    let partition = topic.partition(0).expect("it is there");
    for time in [5, 9, 3, 4] {
        append(&partition, &mut batch(NO_PRODUCER, 5, time, b"it")).expect("there is room");
    }
    topic.flush().expect("it flushes");
    for (start, newest) in [(0, 9), (7, 9), (10, 4), (16, 4)] {
        partition.delete_before(start).expect("it deletes");
        assert_eq!(partition.max_timestamp().expect("it reads"), Some(newest), "from {start}");
        let place = partition.find_time(newest).expect("it looks").expect("there is one");
        assert_eq!(place.timestamp, newest, "from {start}");
    }
    partition.delete_before(20).expect("it deletes");
    assert_eq!(partition.max_timestamp().expect("it reads"), None);
}

#[test]
fn the_newest_time_of_a_segment_that_was_cut_is_read_once() {
    let disk = Disk::new();
    let topic = topic(&disk, 1);
    let partition = topic.partition(0).expect("it is there");
    let newest = || {
        let before = disk.read_bytes();
        let newest = partition.max_timestamp().expect("it reads");
        (newest, disk.read_bytes() - before)
    };
    for time in [9, 3, 4] {
        append(&partition, &mut batch(NO_PRODUCER, 5, time, b"it")).expect("there is room");
    }
    topic.flush().expect("it flushes");
    partition.delete_before(5).expect("it deletes");
    assert!(matches!(newest(), (Some(4), 1..)), "it is looked for");
    assert_eq!(newest(), (Some(4), 0));
    append(&partition, &mut batch(NO_PRODUCER, 5, 6, b"it")).expect("there is room");
    topic.flush().expect("it flushes");
    assert!(matches!(newest(), (Some(6), 1..)), "what is new is looked at");
    assert_eq!(newest(), (Some(6), 0));
    partition.delete_before(16).expect("it deletes");
    append(&partition, &mut batch(NO_PRODUCER, 5, 2, b"it")).expect("there is room");
    topic.flush().expect("it flushes");
    assert_eq!(newest().0, Some(6), "another start is another rest");
    partition.delete_before(20).expect("it deletes");
    assert_eq!(newest().0, Some(2));
}

/// Timeout for appends during a flush, after which they count as blocked.
const TIME_LIMIT: Duration = Duration::from_secs(60);

#[test]
fn an_append_waits_for_no_flush_that_goes_on() {
    const PARTITIONS: u32 = 100;
    const BATCHES: i64 = 200;
    let disk = Disk::new();
    let topic = topic(&disk, PARTITIONS);
    let append_all = || {
        let mut random = Random::new(7);
        for number in (0..PARTITIONS).rev() {
            let partition = topic.partition(number).expect("it is there");
            // Each takes half a segment.
            let count = if number == 0 { BATCHES } else { 1 };
            for time in 0..count {
                let mut bytes = batch(NO_PRODUCER, 1, time, &contents(&mut random, 4_000));
                append(&partition, &mut bytes).expect("there is room");
            }
        }
    };
    disk.set_hung(true);
    thread::scope(|scope| {
        let flush = scope.spawn(|| topic.flush());
        disk.await_waiting();
        let (done, is_done) = mpsc::channel();
        scope.spawn(move || {
            append_all();
            // The test may have timed out.
            done.send(()).ok();
        });
        let appended = is_done.recv_timeout(TIME_LIMIT);
        disk.set_hung(false);
        appended.expect("nothing waits for the flush");
        flush.join().expect("it does not panic").expect("it flushes");
    });
    assert_eq!(topic.partition(0).expect("it is there").next_offset(), BATCHES);
    topic.flush().expect("it flushes");
    let disk = disk.after_power_loss(&mut Random::new(8));
    let topic = open(&disk);
    for number in 0..PARTITIONS {
        let partition = topic.partition(number).expect("it is there");
        let found = read_all(&partition, 0, &mut Random::new(9)).len();
        assert_eq!(found, if number == 0 { 200 } else { 1 }, "partition {number}");
    }
    // New segments have the usual size again.
    let (partition, segments) = (topic.partition(0).expect("it is there"), disk.segment_count());
    for time in 0..100 {
        let mut bytes = batch(NO_PRODUCER, 1, time, &[1; 4_000]);
        append(&partition, &mut bytes).expect("there is room");
    }
    assert_eq!(disk.segment_count() - segments, 50);
}

#[test]
fn partitions_are_counted_while_more_of_them_wait_for_a_disk() {
    let disk = Disk::new();
    let topic = topic(&disk, 2);
    disk.set_hung(true);
    thread::scope(|scope| {
        let adding = scope.spawn(|| topic.add_partitions(4));
        disk.await_waiting();
        let (done, is_done) = mpsc::channel();
        let counted = &topic;
        scope.spawn(move || done.send(counted.partition_count()).ok());
        let count = is_done.recv_timeout(TIME_LIMIT);
        disk.set_hung(false);
        assert_eq!(count, Ok(2));
        adding.join().expect("it does not panic").expect("they are added");
    });
    assert_eq!(topic.partition_count(), 4);
}

#[test]
fn bytes_between_offsets_are_told_without_a_look_at_them() {
    let disk = Disk::new();
    let (topic, _) = filled(&disk, 100);
    let partition = topic.partition(0).expect("it is there");
    let all = partition.size_bytes();
    let before = disk.read_bytes();
    assert_eq!(partition.bytes_between(0, partition.next_offset()), all);
    assert_eq!(partition.bytes_between(partition.next_offset(), i64::MAX), 0);
    for from in 0..partition.next_offset() {
        assert!(partition.bytes_between(from, from + 1) <= all);
    }
    assert_eq!(disk.read_bytes() - before, 0, "nothing was read for it");
    let mut buffer = Vec::new();
    for (from, to) in [(0, 10), (300, 700), (990, 1_000)] {
        let mut bytes = 0;
        let mut at = from;
        while at < to {
            let range = partition.read(at, 1, &mut buffer).expect("it reads");
            at = record_batch::headers(&buffer[range.clone()]).last().expect("one").next_offset();
            bytes += range.len() as u64;
        }
        assert!(partition.bytes_between(from, to) >= bytes, "from {from} to {to}");
    }
}

#[test]
fn a_batch_that_comes_again_is_not_appended_again_also_after_a_kill() {
    let disk = Disk::new();
    let topic = topic(&disk, 1);
    let from = From { producer_id: 8, epoch: 0, sequence: 0, is_transactional: false };
    let partition = topic.partition(0).expect("it is there");
    append(&partition, &mut batch(from, 5, 0, b"first")).expect("there is room");
    let second = From { sequence: 5, ..from };
    assert_eq!(append(&partition, &mut batch(second, 5, 0, b"second")).expect("room"), 5);
    drop(partition);
    drop(topic);
    let topic = open(&disk.after_kill());
    let partition = topic.partition(0).expect("it is there");
    // The records have timestamps of 1970, but the producer is not idle.
    let day_ms = 24 * 60 * 60 * 1_000;
    partition.forget_idle_producers(20_000 * day_ms, day_ms);
    let mut again = batch(second, 5, 0, b"second");
    let (mut again, _) = Batch::split_first(&mut again).expect("a good batch");
    let appended = partition.append(&mut again, 0).expect("it is known");
    assert_eq!((appended.base_offset, appended.was_there), (5, true));
    assert_eq!(partition.next_offset(), 10);
}

#[test]
fn aborted_transactions_are_told_and_open_ones_hold_the_last_stable_offset() {
    let disk = Disk::new();
    let topic = topic(&disk, 1);
    let partition = topic.partition(0).expect("it is there");
    let from = From { producer_id: 8, epoch: 0, sequence: 0, is_transactional: true };
    append(&partition, &mut batch(from, 5, 0, b"first")).expect("there is room");
    append(&partition, &mut batch(NO_PRODUCER, 5, 0, b"other")).expect("there is room");
    topic.flush().expect("it flushes");
    assert_eq!((partition.last_stable_offset(), partition.stable_offset()), (0, 10));
    let end =
        TransactionEnd { producer_id: 8, producer_epoch: 0, coordinator_epoch: 0, unix_ms: 0 };
    append(&partition, &mut Marker::Abort.to_batch(end)).expect("there is room");
    assert_eq!(partition.last_stable_offset(), 0, "the marker is not stable");
    topic.flush().expect("it flushes");
    assert_eq!(partition.last_stable_offset(), 11);
    let topic = open(&disk.after_kill());
    let partition = topic.partition(0).expect("it is there");
    let aborted = partition.aborted(3..4);
    assert_eq!(aborted.len(), 1);
    assert_eq!((aborted[0].first_offset, aborted[0].last_offset), (0, 10));
    assert_eq!(partition.aborted(11..12), []);
}

#[test]
fn a_batch_whose_transaction_ended_after_it_was_admitted_is_refused() {
    let disk = Disk::new();
    let topic = topic(&disk, 1);
    let partition = topic.partition(0).expect("it is there");
    let end = |producer_id| {
        let end =
            TransactionEnd { producer_id, producer_epoch: 0, coordinator_epoch: 0, unix_ms: 0 };
        append(&partition, &mut Marker::Commit.to_batch(end)).expect("there is room");
    };
    let add = |sequence, admitted_at| {
        let from = From { producer_id: 8, epoch: 0, sequence, is_transactional: true };
        let mut bytes = batch(from, 1, 0, b"late");
        let (mut batch, _) = Batch::split_first(&mut bytes).expect("a good batch");
        partition.append_to_transaction(&mut batch, 0, admitted_at).map_err(|error| error.kind)
    };
    let admitted_at = partition.next_offset();
    // Markers of other producers have no influence.
    end(9);
    add(0, admitted_at).expect("it was admitted");
    add(1, admitted_at).expect("the transaction is open");
    end(8);
    assert_eq!(add(2, admitted_at), Err(LogErrorKind::TransactionState));
    assert_eq!(partition.last_stable_offset(), 0, "nothing was flushed");
    topic.flush().expect("it flushes");
    assert_eq!(partition.last_stable_offset(), partition.next_offset(), "no transaction is open");
    add(2, partition.next_offset()).expect("it was admitted anew");
    // After too many markers the outcome is unknown, and the client must retry.
    let long_ago = partition.next_offset();
    end(8);
    for _ in 0..2_000 {
        end(9);
    }
    assert_eq!(add(3, long_ago), Err(LogErrorKind::TransactionState));
}

#[test]
fn a_full_pool_refuses_the_batch_and_nothing_else() {
    let disk = Disk::new();
    let (topic, batches) = filled(&disk, 3);
    let partition = topic.partition(0).expect("it is there");
    for blocks in 0..3 {
        disk.set_full_after(Some(blocks));
        let error =
            append(&partition, &mut batch(NO_PRODUCER, 9, 0, &[1; 12_000])).expect_err("full");
        assert_eq!(error.kind, LogErrorKind::NoSpace);
        topic.flush().expect("flushing needs no memory");
        assert_eq!(read_all(&partition, 0, &mut Random::new(6)), batches);
        disk.set_full_after(None);
        // Remains of the failed write are never mistaken for a batch.
        drop(open(&disk.after_kill()));
    }
    assert_eq!(append(&partition, &mut batch(NO_PRODUCER, 1, 0, b"x")).expect("there is room"), 30);
}

#[test]
fn what_a_new_producer_sends_behind_a_batch_that_found_no_room_waits_for_it() {
    let disk = Disk::new();
    let (topic, _) = filled(&disk, 3);
    let partition = topic.partition(0).expect("it is there");
    let numbered = |sequence| {
        batch(From { producer_id: 8, epoch: 0, sequence, is_transactional: false }, 5, 0, b"x")
    };
    disk.set_full_after(Some(0));
    let error = append(&partition, &mut numbered(0)).expect_err("full");
    assert_eq!(error.kind, LogErrorKind::NoSpace);
    disk.set_full_after(None);
    let error = append(&partition, &mut numbered(5)).expect_err("the first one is missing");
    assert_eq!(error.kind, LogErrorKind::OutOfOrderSequence);
    assert_eq!(append(&partition, &mut numbered(0)).expect("there is room"), 30);
    assert_eq!(append(&partition, &mut numbered(5)).expect("it is next"), 35);
}

#[test]
fn a_damaged_header_is_told_and_the_batches_of_other_segments_are_read() {
    let disk = Disk::new();
    let (topic, batches) = filled(&disk, 30);
    let partition = topic.partition(0).expect("it is there");
    // In the second batch of the first segment: its slot begins at 2 GiB, its batches 64 MiB
    // behind.
    disk.flip((2 << 30) + (64 << 20) + 1_061 + 16);
    let error = partition.read(0, 5_000, &mut Vec::new()).expect_err("damaged");
    assert_eq!(error.kind, LogErrorKind::Damaged);
    assert!(error.what.contains("offset 0 of partition 0"), "{}", error.what);
    let mut buffer = Vec::new();
    let range = partition.read(100, 5_000, &mut buffer).expect("another segment");
    assert_eq!(headers(&buffer[range]).next().map(|it| it.base_offset), Some(100));
    assert_eq!(batches.len(), 30);
}

#[test]
fn partitions_are_added_and_are_apart() {
    let disk = Disk::new();
    let made = topic(&disk, 2);
    made.add_partitions(5).expect("they are made");
    for number in 0..5 {
        let partition = made.partition(number).expect("it is there");
        let bytes = &mut batch(NO_PRODUCER, 1, 0, &number.to_le_bytes());
        assert_eq!(append(&partition, bytes).expect("there is room"), 0);
    }
    made.flush().expect("it flushes");
    drop(made);
    let opened = open(&disk.after_kill());
    assert_eq!(opened.partition_count(), 5);
    for number in 0..5 {
        let partition = opened.partition(number).expect("it is there");
        let found = read_all(&partition, 0, &mut Random::new(7));
        assert_eq!(found[0][61..], number.to_le_bytes());
    }
    for (count, kind) in
        [(4, LogErrorKind::NoSuchPartition), (70_000, LogErrorKind::NoSuchPartition)]
    {
        assert_eq!(opened.add_partitions(count).expect_err("refused").kind, kind);
    }
    assert_eq!(opened.partition(5).expect_err("none").kind, LogErrorKind::NoSuchPartition);
}

#[test]
fn a_batch_that_is_too_long_is_refused_and_a_long_one_is_read_whole() {
    let disk = Disk::new();
    let device: Arc<dyn BlockDevice> = Arc::clone(&disk) as _;
    let options = TopicOptions { segment_bytes: SEGMENT_BYTES_MAX };
    let topic = Topic::create(device, &NewTopic { options, ..new_topic(1) }).expect("it is made");
    let partition = topic.partition(0).expect("it is there");
    let mut too_long = batch(NO_PRODUCER, 1, 0, &vec![1; BATCH_BYTES_MAX]);
    let error = append(&partition, &mut too_long).expect_err("long");
    assert_eq!(error.kind, LogErrorKind::TooLarge);
    let mut long = batch(NO_PRODUCER, 1, 0, &vec![1; BATCH_BYTES_MAX - 100]);
    append(&partition, &mut long).expect("there is room");
    topic.flush().expect("it flushes");
    assert_eq!(read_all(&partition, 0, &mut Random::new(8)), [long.clone()]);
    drop((topic, partition));
    let topic = open(&disk.after_kill());
    let partition = topic.partition(0).expect("it is there");
    assert_eq!(read_all(&partition, 0, &mut Random::new(8)), [long]);
}

#[test]
fn a_reader_that_takes_no_longer_batch_reads_no_more_of_it_than_it_takes() {
    let disk = Disk::new();
    let device: Arc<dyn BlockDevice> = Arc::clone(&disk) as _;
    let options = TopicOptions { segment_bytes: SEGMENT_BYTES_MAX };
    let topic = Topic::create(device, &NewTopic { options, ..new_topic(1) }).expect("it is made");
    let partition = topic.partition(0).expect("it is there");
    let mut batches = [10, 1 << 20, 10].map(|bytes| batch(NO_PRODUCER, 1, 0, &vec![1; bytes]));
    for batch in &mut batches {
        append(&partition, batch).expect("there is room");
    }
    topic.flush().expect("it flushes");
    let mut buffer = Vec::new();
    let before = disk.read_bytes();
    for bytes_max in [1, 100, 10_000] {
        let range = partition.read_within(1, bytes_max, &mut buffer).expect("memory");
        assert!(range.is_empty(), "{range:?}");
    }
    let read_bytes = disk.read_bytes() - before;
    assert!(read_bytes < 30_000, "{read_bytes} bytes were read");
    for (offset, bytes_max) in [(0, 2_000), (1, 2 << 20), (2, 2_000)] {
        let range = partition.read_within(offset, bytes_max, &mut buffer).expect("memory");
        let whole: Vec<u8> = batches[usize::try_from(offset).expect("small")].clone();
        assert_eq!(buffer[range][..whole.len()], whole[..], "offset {offset}");
    }
}

#[test]
fn a_segment_that_is_being_read_is_not_taken_away() {
    let disk = Disk::new();
    let (topic, batches) = filled(&disk, 100);
    let partition = topic.partition(0).expect("it is there");
    let (has_read, first_read) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = Vec::new();
            while partition.start_offset() < 1_000 {
                let offset = partition.start_offset();
                match partition.read(offset, 3_000, &mut buffer) {
                    Ok(range) => {
                        let bytes = &buffer[range];
                        if let Some(first) = headers(bytes).next() {
                            let index = usize::try_from(first.base_offset / 10).expect("positive");
                            assert_eq!(bytes[..first.size_bytes], batches[index]);
                        }
                        has_read.send(()).expect("the other end is there");
                    }
                    Err(error) => assert_eq!(error.kind, LogErrorKind::OffsetOutOfRange),
                }
            }
        });
        first_read.recv().expect("it reads");
        for offset in (0..=1_000).step_by(10) {
            partition.delete_before(offset).expect("it deletes");
            topic.flush().expect("it flushes");
        }
    });
}

#[test]
fn a_checkpoint_that_cannot_be_written_hides_nothing_that_is_stable() {
    let disk = Disk::new();
    let topic = topic(&disk, 3);
    for number in 0..3 {
        let partition = topic.partition(number).expect("it is there");
        append(&partition, &mut batch(NO_PRODUCER, 5, 0, b"abc")).expect("there is room");
    }
    // Slots of 2 GiB are allocated in order. The second checkpoint is 32 MiB behind their start.
    let second_checkpoint = |slot: u64| (slot << 31) + (32 << 20);
    disk.set_broken(Some(second_checkpoint(1)..second_checkpoint(1) + 1));
    let error = topic.flush().expect_err("the first partition's checkpoint fails");
    assert_eq!(error.kind, LogErrorKind::Damaged);
    for number in 0..3 {
        let partition = topic.partition(number).expect("it is there");
        assert_eq!(partition.stable_offset(), 5, "partition {number}");
    }
    let written = [1, 2, 3].map(|slot| disk.holds(second_checkpoint(slot)));
    assert_eq!(written, [false, true, true]);
    disk.set_broken(None);
    topic.flush().expect("it flushes");
}

#[test]
fn properties_are_replaced_as_a_whole_and_outlive_the_process() {
    let disk = Disk::new();
    let made = topic(&disk, 1);
    assert_eq!(made.properties(), PROPERTIES);
    drop(made);
    for length in [0, 1, 5_000, PROPERTIES_BYTES_MAX, 7] {
        let bytes = contents(&mut Random::new(length as u64), length);
        let opened = open(&disk);
        opened.set_properties(&bytes).expect("there is room");
        assert_eq!(opened.properties(), bytes);
        drop(opened);
        // Durable when acknowledged: they survive a loss of power.
        assert_eq!(open(&disk.after_power_loss(&mut Random::new(3))).properties(), bytes);
    }
    let opened = open(&disk);
    let before = opened.properties();
    let error = opened.set_properties(&vec![0; PROPERTIES_BYTES_MAX + 1]).expect_err("too long");
    assert_eq!((error.kind, opened.properties()), (LogErrorKind::TooLarge, before));
}

#[test]
fn the_size_of_segments_may_change_while_the_topic_is_open() {
    let disk = Disk::new();
    let (topic, _) = filled(&disk, 100);
    let before = disk.segment_count();
    assert!(before > 5, "{before} segments of {OPTIONS:?}");
    topic.set_options(TopicOptions { segment_bytes: SEGMENT_BYTES_MAX });
    let partition = topic.partition(0).expect("it is there");
    for _ in 0..100 {
        append(&partition, &mut batch(NO_PRODUCER, 1, 0, &[7; 1_000])).expect("there is room");
    }
    topic.flush().expect("it flushes");
    assert_eq!(disk.segment_count(), before, "the last one takes all of it");
}

#[test]
fn deleting_gives_memory_back_without_a_flush_where_no_reader_is() {
    let disk = Disk::new();
    let (topic, _) = filled(&disk, 100);
    let partition = topic.partition(0).expect("it is there");
    let before = disk.block_count();
    partition.delete_before(905).expect("it deletes");
    assert!(disk.block_count() < before / 4, "{} of {before}", disk.block_count());
}

#[test]
fn an_opening_reads_little_of_what_was_flushed_however_many_partitions_there_are() {
    let disk = Disk::new();
    let device: Arc<dyn BlockDevice> = Arc::clone(&disk) as _;
    let options = TopicOptions { segment_bytes: SEGMENT_BYTES_MAX };
    let new = NewTopic { options, ..new_topic(1_000) };
    let topic = Topic::create(device, &new).expect("it is made");
    for number in [0, 500, 999] {
        let partition = topic.partition(number).expect("it is there");
        for _ in 0..150 {
            append(&partition, &mut batch(NO_PRODUCER, 1, 0, &[3; 60_000])).expect("room");
            topic.flush().expect("it flushes");
        }
    }
    drop(topic);
    let left = disk.after_kill();
    drop(open(&left));
    let records = 1_000 * 4096 + 3 * (3 * 4096 + 100_000);
    let read = left.read_bytes();
    eprintln!("{} KiB were read of 27 MiB", read >> 10);
    assert!(read < records + 3 * (2 << 20), "{read} bytes");
}

#[test]
fn a_time_is_found_at_the_first_record_that_is_as_new_and_is_left() {
    let disk = Disk::new();
    let topic = topic(&disk, 1);
    let partition = topic.partition(0).expect("it is there");
    // Length, attributes, timestamp, offset, no key, no value, no headers; zigzag doubles numbers.
    let record = |time: u8, offset: u8| [12, 0, 2 * time, 2 * offset, 1, 1, 0];
    for codec in 0..=1 {
        let records = [record(0, 0), record(5, 1), record(3, 2), record(9, 3)].concat();
        let mut bytes = batch(NO_PRODUCER, 4, 100, &support::records::compress(codec, &records));
        bytes[35..43].copy_from_slice(&109_i64.to_be_bytes());
        support::change_attributes(&mut bytes, codec);
        append(&partition, &mut bytes).expect("there is room");
    }
    topic.flush().expect("it flushes");
    let find = |unix_ms| {
        let found = partition.find_time(unix_ms).expect("it looks");
        found.map(|it| (it.offset, it.timestamp))
    };
    for (unix_ms, found) in
        [(0, (0, 100)), (101, (1, 105)), (105, (1, 105)), (106, (3, 109)), (109, (3, 109))]
    {
        assert_eq!(find(unix_ms), Some(found), "{unix_ms}");
    }
    assert_eq!(find(110), None);
    for (start, found) in [(2, (2, 103)), (3, (3, 109)), (4, (4, 100)), (6, (6, 103))] {
        partition.delete_before(start).expect("it deletes");
        assert_eq!(find(100), Some(found), "from {start}");
    }
}
