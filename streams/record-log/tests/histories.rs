//! Random histories of a topic that die at any store to the volume, or lose power: what was
//! acknowledged is there, what was flushed survives the loss of power, and nothing else appears.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use block_device::BlockDevice;
use model::{Random, for_each_seed_at_once};
use record_log::{LogError, LogErrorKind, PROPERTIES_BYTES_MAX, Partition, Retention, Topic};
use support::{
    Disk, From, OPTIONS, PROPERTIES, append, batch, contents, new_topic, open, read_all,
};

const PARTITION_COUNT: u32 = 3;
const STEP_COUNT: usize = 60;
const PRODUCER_ID: i64 = 40;

/// States after a loss of power at each moment.
const CUT_COUNT: usize = 4;

/// What a partition must hold.
#[derive(Clone, Default)]
struct Expected {
    /// Every batch in its place, those that were deleted included.
    batches: Vec<(i64, Vec<u8>)>,
    /// So many of them were flushed.
    stable: usize,
    start_offset: i64,
    /// What was being done when the disk died: it may have happened.
    maybe_appended: Option<Vec<u8>>,
    maybe_start: Option<i64>,
}

impl Expected {
    fn next_offset(&self) -> i64 {
        self.batches.last().map_or(0, |(offset, bytes)| offset + record_count(bytes))
    }

    /// The number of batches that the producer wrote before.
    fn sequence(&self) -> i32 {
        let records: i64 = self.batches.iter().map(|(_, bytes)| record_count(bytes)).sum();
        i32::try_from(records).expect("a short history")
    }
}

fn record_count(bytes: &[u8]) -> i64 {
    i64::from(i32::from_be_bytes(bytes[57..61].try_into().expect("four bytes")))
}

/// A batch of the one producer that writes to the partition.
fn next_batch(expected: &Expected, random: &mut Random) -> Vec<u8> {
    let from = From {
        producer_id: PRODUCER_ID,
        epoch: 0,
        sequence: expected.sequence(),
        is_transactional: false,
    };
    let length = random.pick(&[0, 10, 500, 3_000, 9_000]);
    let count = i32::try_from(1 + random.below(5)).expect("small");
    batch(from, count, i64::from(from.sequence), &contents(random, length))
}

/// What is known of a topic whose disk may die.
struct History {
    expected: Vec<Expected>,
}

impl History {
    fn new() -> Self {
        Self { expected: vec![Expected::default(); PARTITION_COUNT as usize] }
    }

    /// Goes on until the disk dies or the steps are done.
    fn run(&mut self, topic: &Topic, disk: &Disk, random: &mut Random) -> Result<(), LogError> {
        for _ in 0..STEP_COUNT {
            let number = random.index(self.expected.len());
            let partition = topic.partition(u32::try_from(number).expect("small"))?;
            match random.below(20) {
                0..10 => self.append(&partition, number, random)?,
                10..14 => self.flush(topic)?,
                14 if random.one_in(2) => partition.roll(),
                14 => partition.roll_now()?,
                15 => self.delete(&partition, number, random)?,
                16 => self.retain(&partition, number)?,
                17 => {
                    disk.set_full_after(Some(random.below(3)));
                    let done = self.append(&partition, number, random);
                    disk.set_full_after(None);
                    match done {
                        Err(error) if error.kind == LogErrorKind::NoSpace => {
                            // Refused: it is not in the log, now or ever.
                            self.expected[number].maybe_appended = None;
                        }
                        other => other?,
                    }
                }
                _ => self.read(&partition, number, random),
            }
        }
        Ok(())
    }

    fn append(
        &mut self,
        partition: &Partition,
        number: usize,
        random: &mut Random,
    ) -> Result<(), LogError> {
        let expected = &mut self.expected[number];
        let mut bytes = next_batch(expected, random);
        expected.maybe_appended = Some(bytes.clone());
        let offset = append(partition, &mut bytes)?;
        assert_eq!(offset, expected.next_offset());
        expected.maybe_appended = None;
        expected.batches.push((offset, bytes));
        Ok(())
    }

    fn flush(&mut self, topic: &Topic) -> Result<(), LogError> {
        topic.flush()?;
        self.expected.iter_mut().for_each(|it| it.stable = it.batches.len());
        Ok(())
    }

    fn delete(
        &mut self,
        partition: &Partition,
        number: usize,
        random: &mut Random,
    ) -> Result<(), LogError> {
        let expected = &mut self.expected[number];
        let (start, end) = (partition.start_offset(), partition.stable_offset());
        let offset =
            start + i64::try_from(random.below(1 + (end - start).unsigned_abs())).expect("small");
        expected.maybe_start = Some(offset);
        assert_eq!(partition.delete_before(offset)?, offset);
        (expected.start_offset, expected.maybe_start) = (offset, None);
        Ok(())
    }

    fn retain(&mut self, partition: &Partition, number: usize) -> Result<(), LogError> {
        let expected = &mut self.expected[number];
        let policy = Retention { bytes_max: Some(20_000), oldest_unix_ms: None };
        // Where it would lead is asked of a partition that does not die: any boundary will do.
        expected.maybe_start = Some(i64::MAX);
        expected.start_offset = partition.retain(policy)?;
        expected.maybe_start = None;
        Ok(())
    }

    fn read(&self, partition: &Partition, number: usize, random: &mut Random) {
        let expected = &self.expected[number];
        let start = partition.start_offset();
        let shown: Vec<_> = expected
            .batches
            .iter()
            .take_while(|(offset, _)| *offset < partition.stable_offset())
            .filter(|(offset, bytes)| offset + record_count(bytes) > start)
            .map(|(_, bytes)| bytes.clone())
            .collect();
        assert_eq!(read_all(partition, start, random), shown);
    }

    /// Opens what is left and compares it. What is found is what a second life goes on with.
    fn check(&self, disk: &Arc<Disk>, lost_power: bool, random: &mut Random) -> Self {
        let topic = open(disk);
        let expected = self.expected.iter().enumerate().map(|(number, expected)| {
            let partition =
                topic.partition(u32::try_from(number).expect("small")).expect("it is there");
            check_partition(&partition, expected, lost_power, random)
        });
        Self { expected: expected.collect() }
    }
}

fn check_partition(
    partition: &Partition,
    expected: &Expected,
    lost_power: bool,
    random: &mut Random,
) -> Expected {
    let mut known = expected.batches.clone();
    if let Some(bytes) = &expected.maybe_appended {
        known.push((expected.next_offset(), bytes.clone()));
    }
    let end = partition.next_offset();
    assert_eq!(end, partition.stable_offset(), "an opening flushes");
    let kept = known.iter().take_while(|(offset, _)| *offset < end).count();
    let least = if lost_power { expected.stable } else { expected.batches.len() };
    assert!(kept >= least, "{kept} batches are left of {least} that were promised");
    known.truncate(kept);
    let start_offset = partition.start_offset();
    match expected.maybe_start {
        Some(most) => assert!((expected.start_offset..=most).contains(&start_offset)),
        None => assert_eq!(start_offset, expected.start_offset),
    }
    let found = read_all(partition, start_offset, random);
    let shown = known.iter().filter(|(offset, bytes)| offset + record_count(bytes) > start_offset);
    let shown: Vec<&Vec<u8>> = shown.map(|(_, bytes)| bytes).collect();
    assert_eq!(found.len(), shown.len(), "batches from offset {start_offset} to {end}");
    for (found, known) in found.iter().zip(shown) {
        // The offsets and the epoch are the log's.
        assert_eq!(found[16..], known[16..]);
    }
    let batches: Vec<_> = known
        .into_iter()
        .map(|(offset, mut bytes)| {
            bytes[..8].copy_from_slice(&offset.to_be_bytes());
            (offset, bytes)
        })
        .collect();
    check_producer(partition, &batches);
    let stable = batches.len();
    // Epochs differ from what the model wrote down for a batch in flight: read them as they are.
    let mut expected = Expected { batches, stable, start_offset, ..Expected::default() };
    let skipped = expected.batches.len() - found.len();
    for ((_, known), found) in expected.batches.iter_mut().skip(skipped).zip(found) {
        *known = found;
    }
    expected
}

/// The last batch is known as one that was there, if the producer is remembered at all.
fn check_producer(partition: &Partition, batches: &[(i64, Vec<u8>)]) {
    let Some((offset, bytes)) = batches.last() else { return };
    let end = partition.next_offset();
    let again = append(partition, &mut bytes.clone()).expect("it is known");
    assert_eq!((again, partition.next_offset()), (*offset, end));
}

fn topic(disk: &Arc<Disk>) -> Result<Topic, LogError> {
    let device: Arc<dyn BlockDevice> = Arc::clone(disk) as _;
    Topic::create(device, &new_topic(PARTITION_COUNT))
}

/// One history, cut at a store; all states that it may leave, and a second life of each.
fn check_cut(seed: u64, dies_after: Option<u64>) -> (u64, u64) {
    let mut random = Random::new(seed);
    let disk = Disk::new();
    let topic = topic(&disk).expect("the disk lives");
    let mut history = History::new();
    if let Some(dies_after) = dies_after {
        disk.die_after(disk.stores() + dies_after);
    }
    let before = disk.stores();
    let ended = history.run(&topic, &disk, &mut random);
    assert!(dies_after.is_some() || ended.is_ok(), "{ended:?}");
    drop(topic);
    let mut states = 0;
    for cut in 0..=CUT_COUNT {
        let lost_power = cut > 0;
        let left = if lost_power { disk.after_power_loss(&mut random) } else { disk.after_kill() };
        let mut second = history.check(&left, lost_power, &mut random);
        let topic = open(&left);
        second.run(&topic, &left, &mut random).expect("the disk lives");
        drop(topic);
        second.check(&left.after_kill(), false, &mut random);
        second.check(&left.after_power_loss(&mut random), true, &mut random);
        states += 3;
    }
    (states, disk.stores() - before)
}

#[test]
fn a_history_that_is_cut_at_any_store_keeps_its_promises() {
    let command = "cargo test -p record-log --test histories";
    let states = AtomicU64::new(0);
    for_each_seed_at_once(command, 8, |seed| {
        let (mut count, stores) = check_cut(seed, None);
        for dies_after in 0..stores {
            count += check_cut(seed, Some(dies_after)).0;
        }
        states.fetch_add(count, Ordering::Relaxed);
    });
    let states = states.into_inner();
    eprintln!("{states} states");
    // One seed that is replayed has fewer.
    let is_whole = std::env::var_os(model::SEED_VARIABLE).is_none();
    assert!(states >= if is_whole { 10_000 } else { 1 }, "only {states} states");
}

#[test]
fn a_topic_whose_making_is_cut_is_there_or_not() {
    let whole = Disk::new();
    topic(&whole).expect("the disk lives");
    let mut random = Random::new(1);
    let mut made = 0;
    for dies_after in 0..=whole.stores() {
        let disk = Disk::new();
        disk.die_after(dies_after);
        let is_acknowledged = topic(&disk).is_ok();
        for left in [disk.after_kill(), disk.after_power_loss(&mut random)] {
            let device: Arc<dyn BlockDevice> = Arc::clone(&left) as _;
            let found = Topic::open(device, OPTIONS).expect("a topic is there whole or not");
            assert!(found.is_some() || !is_acknowledged);
            if let Some(found) = found {
                assert_eq!(found.partition_count(), PARTITION_COUNT);
                assert_eq!(found.properties(), PROPERTIES);
                made += 1;
            }
        }
    }
    assert!(made >= 1, "it was made at last");
}

#[test]
fn properties_whose_change_is_cut_at_any_store_are_the_old_or_the_new() {
    let command = "cargo test -p record-log --test histories";
    for_each_seed_at_once(command, 16, |seed| {
        let mut random = Random::new(seed);
        let before = Disk::new();
        let topic = topic(&before).expect("the disk lives");
        let mut versions = vec![PROPERTIES.to_vec()];
        for _ in 0..random.index(3) {
            let length = random.index(10_000);
            versions.push(contents(&mut random, length));
            topic.set_properties(versions.last().expect("one was pushed")).expect("it lives");
        }
        drop(topic);
        let old = versions.pop().expect("there is one");
        let length = random.index(PROPERTIES_BYTES_MAX + 1);
        let new = contents(&mut random, length);
        let mut is_new = [false; 2];
        for dies_after in 0.. {
            let disk = before.after_kill();
            let topic = open(&disk);
            disk.die_after(disk.stores() + dies_after);
            let is_acknowledged = topic.set_properties(&new).is_ok();
            drop(topic);
            for left in [disk.after_kill(), disk.after_power_loss(&mut random)] {
                let found = open(&left).properties();
                assert!(found == new || found == old && !is_acknowledged, "cut at {dies_after}");
                is_new[usize::from(found == new)] = true;
            }
            if is_acknowledged {
                break;
            }
        }
        assert_eq!(is_new, [true, true], "both were seen");
    });
}
