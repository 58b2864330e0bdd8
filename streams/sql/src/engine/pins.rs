//! Read positions of a statement: each topic is read up to the same position wherever the statement
//! names it.
//!
//! The position is the committed end of the log when the statement was first planned to read it. If
//! the statement also reads the current values, or reads them more than once, all share a snapshot
//! of the values that is at least as new as that position.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use live_queries::TableKind;
use record_log::{LogError, Topic};
use values::Snapshot;

use super::clock::unix_ms;
use crate::error::SqlError;

const NO_PANIC: &str = "no thread panics with this lock";

/// Pinned topics of a statement by name.
#[derive(Debug, Default)]
pub(super) struct Pins(Mutex<HashMap<Arc<str>, Arc<PinnedTopic>>>);

impl Pins {
    /// Pins a topic for one more reader of the statement.
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

/// A topic as pinned for a statement.
#[derive(Debug)]
pub(super) struct PinnedTopic {
    partitions: Vec<PinnedPartition>,
    /// Time of the pin in Unix milliseconds, which decides the expiration of values.
    pub(super) now_ms: i64,
    /// Number of readers in the statement. Final once it is planned.
    log_count: AtomicUsize,
    values_count: AtomicUsize,
}

#[derive(Debug)]
struct PinnedPartition {
    /// End of committed records.
    end: i64,
    /// Shared snapshot, taken by the first of several readers.
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

    /// Returns whether all readers must share a snapshot of the current values.
    pub(super) fn has_snapshot(&self) -> bool {
        let logs = self.log_count.load(Ordering::Relaxed);
        let values = self.values_count.load(Ordering::Relaxed);
        values > 0 && logs + values > 1
    }

    /// Returns the end of committed records of a partition at the time of the pin.
    pub(super) fn end(&self, number: u32) -> i64 {
        self.of(number).end
    }

    /// Returns the shared snapshot of a partition's values. `take` takes one at least as new as the
    /// pinned end.
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
