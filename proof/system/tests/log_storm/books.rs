//! Acknowledgements that clients received, and the contents that follow from them.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, ensure};
use kafka_client::CommittedOffset;

use crate::entry::Entry;

/// Partition, by topic and number.
pub(crate) type Place = (String, i32);

/// Offsets of groups in partitions.
pub(crate) type Offsets = BTreeMap<(String, Place), i64>;

#[derive(Debug, Default)]
pub(crate) struct Books {
    pages: Mutex<Pages>,
}

#[derive(Debug, Default)]
struct Pages {
    /// Number of acknowledged records of each producer, by partition.
    acknowledged: BTreeMap<(Place, u32), u64>,
    /// Number of unread records of each committed transaction, by producer and number.
    unseen: HashMap<(u32, u64), u64>,
    /// Maximum number of records that may exist, acknowledged or not.
    attempted: BTreeMap<(Place, u32), u64>,
    /// Maximum offset that a group may have reached, by group and partition.
    processed: Offsets,
    /// Offset acknowledged to a client.
    committed: Offsets,
}

impl Books {
    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a producer's records up to this count are acknowledged.
    pub(crate) fn acknowledge(&self, place: Place, producer: u32, count: u64) {
        self.pages().acknowledged.insert((place, producer), count);
    }

    /// Records that a producer is about to send records up to this count.
    pub(crate) fn attempt(&self, place: Place, producer: u32, count: u64) {
        self.pages().attempted.insert((place, producer), count);
    }

    /// Returns the number of acknowledged records of a producer, and the number sent.
    pub(crate) fn counts(&self, place: &Place, producer: u32) -> (u64, u64) {
        let pages = self.pages();
        let key = (place.clone(), producer);
        let count = |counts: &BTreeMap<_, u64>| counts.get(&key).copied().unwrap_or(0);
        (count(&pages.acknowledged), count(&pages.attempted))
    }

    /// Returns the acknowledged records of a topic.
    pub(crate) fn acknowledged(&self, topic: &str) -> Vec<(Place, u32, u64)> {
        let pages = self.pages();
        let of_topic = pages.acknowledged.iter().filter(|((place, _), _)| place.0 == topic);
        of_topic.map(|((place, producer), count)| (place.clone(), *producer, *count)).collect()
    }

    /// Records that a transaction is about to be committed.
    pub(crate) fn commit(&self, producer: u32, transaction: u64, record_count: u64) {
        self.pages().unseen.insert((producer, transaction), record_count);
    }

    /// Records that a record was read, which must belong to a committed transaction.
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

    /// Checks, after everything was read, that no record of any transaction is missing.
    pub(crate) fn check_all_seen(&self) -> Result<()> {
        let pages = self.pages();
        ensure!(pages.unseen.is_empty(), "of these transactions parts lack: {:?}", pages.unseen);
        Ok(())
    }

    /// Records that the group is about to commit these offsets.
    pub(crate) fn process(&self, group: &str, offsets: &[CommittedOffset]) {
        note(&mut self.pages().processed, group, offsets);
    }

    /// Records that a commit of these offsets was acknowledged.
    pub(crate) fn acknowledge_offsets(&self, group: &str, offsets: &[CommittedOffset]) {
        note(&mut self.pages().committed, group, offsets);
    }

    /// Returns the acknowledged offsets of groups, which are lower bounds of all later answers.
    pub(crate) fn acknowledged_offsets(&self) -> Offsets {
        self.pages().committed.clone()
    }

    /// Checks the offsets of a group that the broker reported for a request made after `floor` was
    /// acknowledged.
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

    /// Same, for an answer with all partitions of the group.
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

/// Records the offsets of a group, which never decrease.
pub(crate) fn note(known: &mut Offsets, group: &str, offsets: &[CommittedOffset]) {
    for it in offsets {
        let key = (group.to_owned(), (it.topic.clone(), it.partition));
        let furthest = known.entry(key).or_insert(0);
        *furthest = it.offset.max(*furthest);
    }
}
