//! Reads current values of topics into columns. Blocks on the device and on the values' follower,
//! so it must not run on threads that serve others.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use datafusion::arrow::array::RecordBatch;
use record_batch::Record;
use record_log::Partition;
use values::{ScanStep, Snapshot, Values};

use super::clock::unix_ms;
use super::log_reader::{BATCH_ROWS, ReadPlan, Rows, matches};
use super::pins::PinnedTopic;
use crate::error::{SqlError, SqlState};
use crate::host::Host;

/// Maximum time that a query waits for the current values to reach the log's position at its start.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(10);
pub(super) const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// Consumer of record batches. Returns `false` to stop.
pub(super) type Send<'a> = &'a mut dyn FnMut(RecordBatch) -> bool;

/// Reader of partitions, one after the other.
pub(super) struct CurrentReader<'a> {
    plan: Arc<ReadPlan>,
    host: &'a dyn Host,
    now_ms: i64,
    rows_left: usize,
}

impl<'a> CurrentReader<'a> {
    pub(super) fn new(plan: Arc<ReadPlan>, host: &'a dyn Host) -> Self {
        let now_ms = match (&plan.past, &plan.pinned) {
            (Some(past), _) => past.time_ms(unix_ms()),
            (None, Some(pinned)) => pinned.now_ms,
            (None, None) => unix_ms(),
        };
        let rows_left = plan.limit.unwrap_or(usize::MAX);
        Self { plan, host, now_ms, rows_left }
    }

    /// Sends the values of one partition that match the filter. They include all records before the
    /// statement's pinned end, or before this call if nothing is pinned. Returns `false` when no
    /// more are wanted.
    pub(super) fn read(
        &mut self,
        partition: &Partition,
        is_wanted: &dyn Fn() -> bool,
        send: Send<'_>,
    ) -> Result<bool, SqlError> {
        let values = self.values(partition, is_wanted)?;
        let number = i32::try_from(partition.number()).expect("partitions have a limit");
        let rows_left = self.rows_left;
        let mut found =
            Found { rows: self.rows(), full: Vec::new(), failed: None, number, rows_left };
        let plan = Arc::clone(&self.plan);
        let shared = plan.pinned.as_ref().filter(|it| it.has_snapshot());
        if let Some(pinned) = shared {
            let snapshot = pinned_snapshot(&plan, (pinned, partition), (self.host, is_wanted))?;
            if self.find_unchanged(&values, &snapshot, &mut found)? {
                return self.end(found, send);
            }
            found.count_anew(self, rows_left);
            if !self.scan(&snapshot, &mut found, send)? {
                return Ok(false);
            }
            return self.end(found, send);
        }
        let then = match &plan.past {
            None => None,
            Some(past) => match past.snapshot(partition, &values, is_wanted)? {
                None => return Ok(is_wanted()),
                found => found,
            },
        };
        match plan.filter.keys.as_ref().filter(|_| then.is_none()) {
            Some(keys) => {
                let mut buffer = Vec::new();
                for key in keys {
                    values.get(key, self.now_ms, &mut buffer, |it| found.add(self, it))?;
                    if !self.send(&mut found, send)? {
                        return Ok(false);
                    }
                }
            }
            None => {
                let snapshot = then.map_or_else(|| values.snapshot(), Ok)?;
                if !self.scan(&snapshot, &mut found, send)? {
                    return Ok(false);
                }
            }
        }
        self.end(found, send)
    }

    /// Sends all values of a snapshot. Returns `false` when no more are wanted.
    fn scan(
        &self,
        snapshot: &Snapshot,
        found: &mut Found,
        send: Send<'_>,
    ) -> Result<bool, SqlError> {
        let mut scan = snapshot.scan_all();
        loop {
            let step = scan.step(self.now_ms, &mut |it| found.add(self, it))?;
            if !self.send(found, send)? {
                return Ok(false);
            }
            if step == ScanStep::Done {
                return Ok(true);
            }
        }
    }

    /// Sends the remaining rows of a partition.
    fn end(&mut self, mut found: Found, send: Send<'_>) -> Result<bool, SqlError> {
        self.rows_left = found.rows_left;
        found.end_rows(self);
        self.send(&mut found, send)
    }

    /// Looks up the wanted keys in the current values. Returns `false` without a key filter, or if
    /// a value may have changed since the snapshot.
    fn find_unchanged(
        &self,
        values: &Values,
        snapshot: &Snapshot,
        found: &mut Found,
    ) -> Result<bool, SqlError> {
        let Some(keys) = &self.plan.filter.keys else { return Ok(false) };
        let mut buffer = Vec::new();
        for key in keys {
            let seen = values.get(key, self.now_ms, &mut buffer, |it| {
                let is_seen = it.offset < snapshot.applied();
                if is_seen {
                    found.add(self, it);
                }
                is_seen
            })?;
            // A missing key may have been deleted since.
            if !seen.unwrap_or_else(|| values.applied() == snapshot.applied()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn rows(&self) -> Rows {
        Rows::new(Arc::clone(&self.plan), BATCH_ROWS)
    }

    /// Sends full batches. Returns `false` when no more are wanted.
    fn send(&self, found: &mut Found, send: Send<'_>) -> Result<bool, SqlError> {
        if let Some(error) = found.failed.take() {
            return Err(error);
        }
        if found.rows_left == 0 {
            found.end_rows(self);
        }
        for rows in found.full.drain(..) {
            if !send(rows.finish()?) {
                return Ok(false);
            }
        }
        Ok(found.rows_left > 0)
    }

    /// Waits for values as new as the log when the statement began, or as the log now if nothing is
    /// pinned.
    fn values(
        &self,
        partition: &Partition,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Arc<Values>, SqlError> {
        let number = partition.number();
        let pinned = self.plan.pinned.as_ref();
        let wanted = pinned.map_or_else(|| partition.last_stable_offset(), |it| it.end(number));
        values_at((&self.plan.topic, number), wanted, (self.host, is_wanted))
    }
}

/// Returns the snapshot of a partition's values that is shared by all its readers in a statement.
pub(super) fn pinned_snapshot(
    plan: &ReadPlan,
    (pinned, partition): (&PinnedTopic, &Partition),
    (host, is_wanted): (&dyn Host, &dyn Fn() -> bool),
) -> Result<Arc<Snapshot>, SqlError> {
    let number = partition.number();
    pinned.snapshot(number, || {
        let wanted = pinned.end(number);
        let values = values_at((&plan.topic, number), wanted, (host, is_wanted))?;
        Ok(values.snapshot()?)
    })
}

/// Waits until the values of a partition include all records before an offset.
fn values_at(
    (topic, number): (&str, u32),
    wanted: i64,
    (host, is_wanted): (&dyn Host, &dyn Fn() -> bool),
) -> Result<Arc<Values>, SqlError> {
    let begun = Instant::now();
    loop {
        let values = host.values(topic, number);
        match values.as_ref().filter(|it| it.applied() >= wanted) {
            Some(values) => return Ok(Arc::clone(values)),
            None if begun.elapsed() < WAIT_MAX && is_wanted() => thread::sleep(LOOK_INTERVAL),
            None => {
                let applied = values.map_or(0, |it| it.applied());
                return Err(behind(topic, number, applied, wanted));
            }
        }
    }
}

/// Error: the values of a partition were not available in time.
pub(super) fn behind(topic: &str, number: u32, applied: i64, wanted: i64) -> SqlError {
    let what = format!(
        "current values of partition {number} of {topic:?} are not ready: its log is indexed up \
         to offset {applied} of {wanted}"
    );
    SqlError::new(SqlState::SERIALIZATION, what).with_hint("Retry the query later.")
}

/// Rows of one partition that were not sent yet.
struct Found {
    rows: Rows,
    full: Vec<Rows>,
    failed: Option<SqlError>,
    number: i32,
    rows_left: usize,
}

impl Found {
    fn add(&mut self, reader: &CurrentReader<'_>, record: &Record<'_>) {
        let is_over = self.failed.is_some() || self.rows_left == 0;
        if is_over || !matches(&reader.plan.filter, record) {
            return;
        }
        if !self.rows.has_room() {
            self.end_rows(reader);
        }
        self.failed = self.rows.add(self.number, record, None).err();
        self.rows_left -= 1;
    }

    /// Discards rows that were found and not sent.
    fn count_anew(&mut self, reader: &CurrentReader<'_>, rows_left: usize) {
        (self.rows, self.rows_left) = (reader.rows(), rows_left);
        self.full.clear();
    }

    /// Completes the current batch.
    fn end_rows(&mut self, reader: &CurrentReader<'_>) {
        if self.rows.count > 0 {
            self.full.push(std::mem::replace(&mut self.rows, reader.rows()));
        }
    }
}
