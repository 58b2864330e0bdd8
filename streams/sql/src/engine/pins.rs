//! Up to where a statement reads each topic: the same wherever it names it.
//!
//! The end of a log is that of the first time that the statement was planned to read it. Where it
//! reads current values too, or more than once, it is that of a snapshot of them, which is as new
//! as the log was then.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use live_queries::TableKind;
use record_log::{LogError, Topic};
use values::Snapshot;

use super::clock::unix_ms;
use crate::error::SqlError;

const NO_PANIC: &str = "no thread panics with this lock";

/// Those of one statement, by the names of topics.
#[derive(Debug, Default)]
pub(super) struct Pins(Mutex<HashMap<Arc<str>, Arc<PinnedTopic>>>);

impl Pins {
    /// Notes that the statement reads the topic once more.
    pub(super) fn read(
        &self,
        (name, topic): (&Arc<str>, &Topic),
        kind: TableKind,
    ) -> Result<Arc<PinnedTopic>, LogError> {
        let mut pins = self.0.lock().expect(NO_PANIC);
        let pinned = match pins.get(name) {
            Some(pinned) => Arc::clone(pinned),
            None => {
                let pinned = Arc::new(PinnedTopic::new(topic)?);
                pins.insert(Arc::clone(name), Arc::clone(&pinned));
                pinned
            }
        };
        let count = match kind {
            TableKind::Log => &pinned.log_count,
            TableKind::Values => &pinned.values_count,
        };
        count.fetch_add(1, Ordering::Relaxed);
        Ok(pinned)
    }
}

/// One topic, as a statement sees it.
#[derive(Debug)]
pub(super) struct PinnedTopic {
    partitions: Vec<PinnedPartition>,
    /// When it was pinned, in Unix milliseconds: values that had not expired then are there.
    pub(super) now_ms: i64,
    /// How often the statement reads it, which is known once it is planned.
    log_count: AtomicUsize,
    values_count: AtomicUsize,
}

#[derive(Debug)]
struct PinnedPartition {
    /// The end of what was committed.
    end: i64,
    /// Taken by the first that reads it, where several do.
    snapshot: Mutex<Option<Arc<Snapshot>>>,
}

impl PinnedTopic {
    fn new(topic: &Topic) -> Result<Self, LogError> {
        let partition = |number| {
            let partition = topic.partition(number)?;
            let end = partition.last_stable_offset();
            Ok(PinnedPartition { end, snapshot: Mutex::default() })
        };
        let partitions = (0..topic.partition_count()).map(partition);
        let partitions = partitions.collect::<Result<_, _>>()?;
        let (log_count, values_count) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Ok(Self { partitions, now_ms: unix_ms(), log_count, values_count })
    }

    /// Returns whether all that read it have to see one snapshot of its current values.
    pub(super) fn has_snapshot(&self) -> bool {
        let logs = self.log_count.load(Ordering::Relaxed);
        let values = self.values_count.load(Ordering::Relaxed);
        values > 0 && logs + values > 1
    }

    /// The end of what was committed in a partition when the statement was planned.
    pub(super) fn end(&self, number: u32) -> i64 {
        self.of(number).end
    }

    /// The snapshot of a partition's values that all see; `take` takes one that is as new as the
    /// end.
    pub(super) fn snapshot(
        &self,
        number: u32,
        take: impl FnOnce() -> Result<Snapshot, SqlError>,
    ) -> Result<Arc<Snapshot>, SqlError> {
        let slot = &self.of(number).snapshot;
        if let Some(snapshot) = &*slot.lock().expect(NO_PANIC) {
            return Ok(Arc::clone(snapshot));
        }
        let taken = Arc::new(take()?);
        Ok(Arc::clone(slot.lock().expect(NO_PANIC).get_or_insert(taken)))
    }

    fn of(&self, number: u32) -> &PinnedPartition {
        let index = usize::try_from(number).expect("partitions have a limit");
        &self.partitions[index]
    }
}
