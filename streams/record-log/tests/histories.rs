//! Random histories of a topic in which the process is killed at any store to the volume or power
//! is lost. Acknowledged batches survive a kill, flushed ones survive a loss of power, and nothing
//! else appears. Producers of several epochs, plain and transactional, use all codecs. Retention by
//! size and time must delete what sizes and timestamps of the batches require.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use block_device::BlockDevice;
use model::{Random, for_each_seed_at_once};
use record_log::{
    LogError, LogErrorKind, PROPERTIES_BYTES_MAX, Partition, Retention, Topic, TopicOptions,
};
use support::keyed::Keyed;
use support::{Disk, OPTIONS, PROPERTIES, contents, new_topic, open};

const PARTITION_COUNT: u32 = 3;
const STEP_COUNT: usize = 60;

/// Some batches exceed the segment size.
const MORE_VALUE_BYTES_MAX: usize = 6_000;

/// Simulated power losses at each point.
const CUT_COUNT: usize = 4;

/// Counts of events in all histories.
#[derive(Default)]
struct Happened {
    states: AtomicU64,
    /// Batches that retention deleted because of size only, and because of time only.
    gone_by_size: AtomicU64,
    gone_by_time: AtomicU64,
    refused: AtomicU64,
    reopened: AtomicU64,
}

/// Model of a topic whose disk may fail.
struct History<'a> {
    partitions: Vec<Keyed>,
    segment_bytes: u64,
    happened: &'a Happened,
}

impl<'a> History<'a> {
    fn new(segment_bytes: u64, happened: &'a Happened) -> Self {
        let partition = Keyed::with_long_values(MORE_VALUE_BYTES_MAX);
        let partitions = vec![partition; PARTITION_COUNT as usize];
        Self { partitions, segment_bytes, happened }
    }

    /// Runs until the disk fails or the steps are done.
    fn run(
        &mut self,
        mut topic: Topic,
        disk: &Arc<Disk>,
        random: &mut Random,
    ) -> Result<(), LogError> {
        let options = TopicOptions { segment_bytes: self.segment_bytes };
        for _ in 0..STEP_COUNT {
            topic.set_options(options);
            let number = random.index(self.partitions.len());
            let partition = topic.partition(u32::try_from(number).expect("small"))?;
            let keyed = &mut self.partitions[number];
            match random.below(22) {
                0..10 => keyed.append(&partition, random)?,
                10..14 => {
                    topic.flush()?;
                    self.partitions.iter_mut().for_each(Keyed::note_flush);
                }
                14 if random.one_in(2) => partition.roll(),
                14 => partition.roll_now()?,
                15 => keyed.delete(&partition, random)?,
                16 | 17 => self.retain(&partition, disk, random)?,
                18 => self.append_to_full(&partition, disk, random)?,
                19 if random.one_in(3) => {
                    drop((partition, topic));
                    topic = self.open_again(disk, random)?;
                }
                _ => keyed.check(&partition, random),
            }
        }
        Ok(())
    }

    fn retain(
        &mut self,
        partition: &Partition,
        disk: &Disk,
        random: &mut Random,
    ) -> Result<(), LogError> {
        let keyed = &mut self.partitions[partition.number() as usize];
        let policy = keyed.policy(random);
        let gone = keyed.retain(partition, policy, &disk.segment_bases(partition.number()))?;
        match policy {
            Retention { bytes_max: Some(_), oldest_unix_ms: None, .. } => {
                self.happened.gone_by_size.fetch_add(gone, Ordering::Relaxed);
            }
            Retention { bytes_max: None, .. } => {
                self.happened.gone_by_time.fetch_add(gone, Ordering::Relaxed);
            }
            _ => {}
        }
        Ok(())
    }

    /// The log continues whether or not there is room for the batch.
    fn append_to_full(
        &mut self,
        partition: &Partition,
        disk: &Disk,
        random: &mut Random,
    ) -> Result<(), LogError> {
        let keyed = &mut self.partitions[partition.number() as usize];
        disk.set_full_after(Some(random.below(3)));
        let appended = keyed.append(partition, random);
        disk.set_full_after(None);
        match appended {
            Err(error) if error.kind == LogErrorKind::NoSpace => {
                self.happened.refused.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            other => other,
        }
    }

    /// Reopens the topic in a new epoch, as a new process would.
    fn open_again(&mut self, disk: &Arc<Disk>, random: &mut Random) -> Result<Topic, LogError> {
        let device: Arc<dyn BlockDevice> = Arc::clone(disk) as _;
        let topic = Topic::open(device, OPTIONS)?.expect("there is a topic");
        self.check_opened(&topic, true, random);
        self.happened.reopened.fetch_add(1, Ordering::Relaxed);
        Ok(topic)
    }

    /// Opens the remaining log, compares it, and returns a model with which a second life
    /// continues.
    fn check(&self, disk: &Arc<Disk>, is_kept: bool, random: &mut Random) -> Self {
        let mut found = Self { partitions: self.partitions.clone(), ..*self };
        found.check_opened(&open(disk), is_kept, random);
        self.happened.states.fetch_add(1, Ordering::Relaxed);
        found
    }

    fn check_opened(&mut self, topic: &Topic, is_kept: bool, random: &mut Random) {
        for (number, keyed) in (0..).zip(&mut self.partitions) {
            let partition = topic.partition(number).expect("it is there");
            keyed.check_opened(&partition, is_kept, random);
        }
    }
}

fn topic(disk: &Arc<Disk>) -> Result<Topic, LogError> {
    let device: Arc<dyn BlockDevice> = Arc::clone(disk) as _;
    Topic::create(device, &new_topic(PARTITION_COUNT))
}

/// Runs a history up to a store, and for each state that may remain a second life. Returns the
/// number of stores.
fn check_cut(seed: u64, dies_after: Option<u64>, happened: &Happened) -> u64 {
    let mut random = Random::new(seed);
    let disk = Disk::new();
    let topic = topic(&disk).expect("the disk lives");
    // Every other history has segments that are long enough to be cut.
    let segment_bytes = if seed.is_multiple_of(2) { OPTIONS.segment_bytes } else { 80 << 10 };
    let mut history = History::new(segment_bytes, happened);
    if let Some(dies_after) = dies_after {
        disk.die_after(disk.stores() + dies_after);
    }
    let before = disk.stores();
    let ended = history.run(topic, &disk, &mut random);
    assert!(dies_after.is_some() || ended.is_ok(), "{ended:?}");
    for cut in 0..=CUT_COUNT {
        let is_kept = cut == 0;
        let left = if is_kept { disk.after_kill() } else { disk.after_power_loss(&mut random) };
        let mut second = history.check(&left, is_kept, &mut random);
        second.run(open(&left), &left, &mut random).expect("the disk lives");
        second.check(&left.after_kill(), true, &mut random);
        second.check(&left.after_power_loss(&mut random), false, &mut random);
    }
    disk.stores() - before
}

#[test]
fn a_history_that_is_cut_at_any_store_keeps_its_promises() {
    let command = "cargo test -p record-log --test histories";
    let happened = Happened::default();
    for_each_seed_at_once(command, 10, |seed| {
        let stores = check_cut(seed, None, &happened);
        for dies_after in 0..stores {
            check_cut(seed, Some(dies_after), &happened);
        }
    });
    let Happened { states, gone_by_size, gone_by_time, refused, reopened } = happened;
    let counts = [states, gone_by_size, gone_by_time, refused, reopened];
    let counts = counts.map(AtomicU64::into_inner);
    let [states, by_size, by_time, refused, reopened] = counts;
    eprintln!(
        "{states} states; retention deleted {by_size} batches by size and {by_time} by time; \
         {refused} had no room; {reopened} openings in a history"
    );
    // A replayed single seed reaches fewer events.
    if std::env::var_os(model::SEED_VARIABLE).is_none() {
        assert!(states >= 7_000 && counts.iter().all(|it| *it >= 100), "too little happened");
    }
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
