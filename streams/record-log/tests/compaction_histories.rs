//! Random histories with transactions, deletions and compaction, in which the process is killed at
//! any store to the volume or power is lost. A reader must find the latest record of each key, but
//! no aborted and no deleted ones.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use block_device::BlockDevice;
use model::{Random, for_each_seed_at_once};
use record_log::{LogError, NewTopic, Topic, TopicOptions};
use support::keyed::Keyed;
use support::{Disk, contents, new_topic};

const OPTIONS: TopicOptions = TopicOptions { segment_bytes: 2 << 10 };

const PARTITION_COUNT: u32 = 2;
const STEP_COUNT: usize = 60;

/// Simulated power losses at each point.
const CUT_COUNT: usize = 3;

#[derive(Clone)]
struct History {
    partitions: Vec<Keyed>,
    properties: Vec<u8>,
    maybe_properties: Option<Vec<u8>>,
}

impl History {
    /// Runs until the disk fails or the steps are done.
    fn run(&mut self, topic: &Topic, random: &mut Random) -> Result<(), LogError> {
        for _ in 0..STEP_COUNT {
            let number = random.index(self.partitions.len());
            let partition = topic.partition(u32::try_from(number).expect("small"))?;
            let keyed = &mut self.partitions[number];
            match random.below(20) {
                0..11 => keyed.append(&partition, random)?,
                11..14 => {
                    topic.flush()?;
                    self.partitions.iter_mut().for_each(Keyed::note_flush);
                }
                14 => partition.roll(),
                15 => keyed.delete(&partition, random)?,
                16 => {
                    let bytes = contents(random, 20);
                    self.maybe_properties = Some(bytes.clone());
                    topic.set_properties(&bytes)?;
                    (self.properties, self.maybe_properties) = (bytes, None);
                }
                17 => keyed.check(&partition, random),
                _ => keyed.compact(&partition, random)?,
            }
        }
        Ok(())
    }

    /// Opens the remaining log and compares it with the model.
    fn check(&mut self, disk: &Arc<Disk>, is_kept: bool, random: &mut Random) {
        let topic = open(disk);
        for (number, keyed) in (0..).zip(&mut self.partitions) {
            let partition = topic.partition(number).expect("it is there");
            keyed.check_opened(&partition, is_kept, random);
        }
        let found = topic.properties();
        let is_known = found == self.properties || Some(&found) == self.maybe_properties.as_ref();
        assert!(is_known, "properties");
        (self.properties, self.maybe_properties) = (found, None);
    }
}

fn open(disk: &Arc<Disk>) -> Topic {
    let device: Arc<dyn BlockDevice> = Arc::clone(disk) as _;
    Topic::open(device, OPTIONS).expect("it opens").expect("there is a topic")
}

/// Runs a history up to a store, and for each state that may remain a second life.
fn check_cut(seed: u64, dies_after: Option<u64>) -> (u64, u64) {
    let mut random = Random::new(seed);
    let disk = Disk::new();
    let device: Arc<dyn BlockDevice> = Arc::clone(&disk) as _;
    let new = NewTopic { options: OPTIONS, ..new_topic(PARTITION_COUNT) };
    let topic = Topic::create(device, &new).expect("the disk lives");
    let mut history = History {
        partitions: vec![Keyed::default(); PARTITION_COUNT as usize],
        properties: new.properties.to_vec(),
        maybe_properties: None,
    };
    if let Some(dies_after) = dies_after {
        disk.die_after(disk.stores() + dies_after);
    }
    let before = disk.stores();
    let ended = history.run(&topic, &mut random);
    assert!(dies_after.is_some() || ended.is_ok(), "{ended:?}");
    drop(topic);
    let stores = disk.stores() - before;
    for cut in 0..=CUT_COUNT {
        let is_kept = cut == 0;
        let left = if is_kept { disk.after_kill() } else { disk.after_power_loss(&mut random) };
        let mut second = history.clone();
        second.check(&left, is_kept, &mut random);
        if cut > 1 {
            continue;
        }
        let topic = open(&left);
        second.run(&topic, &mut random).expect("the disk lives");
        drop(topic);
        second.clone().check(&left.after_power_loss(&mut random), false, &mut random);
        second.check(&left.after_kill(), true, &mut random);
    }
    (CUT_COUNT as u64 + 5, stores)
}

#[test]
fn a_history_with_compaction_that_is_cut_at_any_store_keeps_its_promises() {
    let command = "cargo test -p record-log --test compaction_histories";
    let states = AtomicU64::new(0);
    for_each_seed_at_once(command, 10, |seed| {
        let (mut count, stores) = check_cut(seed, None);
        for dies_after in 0..stores {
            count += check_cut(seed, Some(dies_after)).0;
        }
        states.fetch_add(count, Ordering::Relaxed);
    });
    let states = states.into_inner();
    eprintln!("{states} states");
    // A replayed single seed reaches fewer states.
    let is_whole = std::env::var_os(model::SEED_VARIABLE).is_none();
    assert!(states >= if is_whole { 2_000 } else { 1 }, "only {states} states");
}
