//! Acknowledgements that clients were told, and what they may therefore find.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, ensure};
use kafka_client::CommittedOffset;

use crate::entry::Entry;

/// A partition by its topic and number.
pub(crate) type Place = (String, i32);

/// Where groups are in partitions.
pub(crate) type Offsets = BTreeMap<(String, Place), i64>;

#[derive(Debug, Default)]
pub(crate) struct Books {
    pages: Mutex<Pages>,
}

#[derive(Debug, Default)]
struct Pages {
    /// How many records of each producer are acknowledged, by where they are.
    acknowledged: BTreeMap<(Place, u32), u64>,
    /// Of each transaction that is committed, by producer and number: the records not yet seen.
    unseen: HashMap<(u32, u64), u64>,
    /// How many may be there, acknowledged or not.
    attempted: BTreeMap<(Place, u32), u64>,
    /// Where a group may have come to, by group and partition.
    processed: Offsets,
    /// Where a client was told that it has.
    committed: Offsets,
}

impl Books {
    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records of a producer up to this count are acknowledged.
    pub(crate) fn acknowledge(&self, place: Place, producer: u32, count: u64) {
        self.pages().acknowledged.insert((place, producer), count);
    }

    /// Records of a producer up to this count are about to be sent.
    pub(crate) fn attempt(&self, place: Place, producer: u32, count: u64) {
        self.pages().attempted.insert((place, producer), count);
    }

    /// Number of records of a producer that are acknowledged, and how many were sent.
    pub(crate) fn counts(&self, place: &Place, producer: u32) -> (u64, u64) {
        let pages = self.pages();
        let key = (place.clone(), producer);
        let count = |counts: &BTreeMap<_, u64>| counts.get(&key).copied().unwrap_or(0);
        (count(&pages.acknowledged), count(&pages.attempted))
    }

    /// Acknowledged records of a topic.
    pub(crate) fn acknowledged(&self, topic: &str) -> Vec<(Place, u32, u64)> {
        let pages = self.pages();
        let of_topic = pages.acknowledged.iter().filter(|((place, _), _)| place.0 == topic);
        of_topic.map(|((place, producer), count)| (place.clone(), *producer, *count)).collect()
    }

    /// A transaction is about to be committed.
    pub(crate) fn commit(&self, producer: u32, transaction: u64, record_count: u64) {
        self.pages().unseen.insert((producer, transaction), record_count);
    }

    /// A record is seen, which must be of a transaction that is committed.
    pub(crate) fn see(&self, entry: Entry) -> Result<()> {
        let mut pages = self.pages();
        let transaction = (entry.producer, entry.transaction);
        let unseen = pages.unseen.get_mut(&transaction);
        let unseen = unseen.with_context(|| {
            format!("{entry:?} is of a transaction that is not committed, or was seen before")
        })?;
        *unseen -= 1;
        if *unseen == 0 {
            pages.unseen.remove(&transaction);
        }
        Ok(())
    }

    /// After everything was read, all of each transaction has been.
    pub(crate) fn check_all_seen(&self) -> Result<()> {
        let pages = self.pages();
        ensure!(pages.unseen.is_empty(), "of these transactions parts lack: {:?}", pages.unseen);
        Ok(())
    }

    /// The group is about to commit that it has come so far.
    pub(crate) fn process(&self, group: &str, offsets: &[CommittedOffset]) {
        note(&mut self.pages().processed, group, offsets);
    }

    /// A client was told that the group has come so far.
    pub(crate) fn acknowledge_offsets(&self, group: &str, offsets: &[CommittedOffset]) {
        note(&mut self.pages().committed, group, offsets);
    }

    /// Where clients were told that groups are: no answer to what is asked from now on may be less.
    pub(crate) fn acknowledged_offsets(&self) -> Offsets {
        self.pages().committed.clone()
    }

    /// The broker says that the group has come so far, asked when it had acknowledged `floor`.
    pub(crate) fn check_offsets(
        &self,
        group: &str,
        floor: &Offsets,
        offsets: &[CommittedOffset],
    ) -> Result<()> {
        let mut pages = self.pages();
        for it in offsets {
            let key = (group.to_owned(), (it.topic.clone(), it.partition));
            let processed = pages.processed.get(&key).copied().unwrap_or(0);
            let offset = it.offset;
            let known = floor.get(&key).copied().unwrap_or(0);
            ensure!(offset >= known, "{key:?} is at {offset}, acknowledged was {known}");
            ensure!(offset <= processed, "{key:?} is at {offset}, processed is {processed}");
        }
        note(&mut pages.committed, group, offsets);
        Ok(())
    }

    /// The same of an answer with all the partitions in which the group is.
    pub(crate) fn check_all_offsets(
        &self,
        group: &str,
        floor: &Offsets,
        offsets: &[CommittedOffset],
    ) -> Result<()> {
        let mut of_group = floor.iter().filter(|((name, _), offset)| name == group && **offset > 0);
        let lost = of_group.find(|((_, place), _)| {
            !offsets.iter().any(|it| it.topic == place.0 && it.partition == place.1)
        });
        ensure!(lost.is_none(), "an offset of group {group:?} is gone: {lost:?}");
        self.check_offsets(group, floor, offsets)
    }
}

/// Notes where a group is, which is never before where it was.
pub(crate) fn note(known: &mut Offsets, group: &str, offsets: &[CommittedOffset]) {
    for it in offsets {
        let key = (group.to_owned(), (it.topic.clone(), it.partition));
        let furthest = known.entry(key).or_insert(0);
        *furthest = it.offset.max(*furthest);
    }
}
