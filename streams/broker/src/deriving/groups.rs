//! Groups with aggregates over a log or current values: the output has a current value per group.
//!
//! Groups are kept in memory. After a start they are rebuilt from the source and compared with the
//! output, and differences are published.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use live_queries::{Change, GroupLimits, ResultChange, TableKind, View};
use record_batch::{NewRecord, Record};
use sql::SqlError;
use values::ScanStep;

use super::changes::{Changed, Changes, own_values};
use super::committed::Committed;
use super::output::group_record;
use super::plan::Plan;
use super::row::with_row;
use super::state::State;
use super::upserts::{publish, tombstone};
use crate::clock;
use crate::topics::{OpenPartition, OpenTopic};

/// Memory limits of a view.
const LIMITS: GroupLimits = GroupLimits { groups_max: 100_000, kept_values_max: 1_000_000 };

/// Views have one partition, because groups span all partitions of their source.
const OUTPUT_PARTITION: i32 = 0;

pub(super) struct Groups {
    plan: Arc<Plan>,
    source: Arc<OpenTopic>,
    output: Arc<OpenTopic>,
    parts: Vec<Part>,
    view: View,
    /// Rows to publish by key. `None` deletes a row.
    rows: BTreeMap<Bytes, Option<Bytes>>,
    /// True once the rows were compared with the output.
    is_compared: bool,
    pending: Vec<NewRecord>,
    failed_count: u64,
}

struct Part {
    partition: Arc<OpenPartition>,
    input: Input,
}

enum Input {
    Log { read: Committed, end: i64 },
    Values(Box<Changes>),
}

impl Groups {
    pub(super) fn new(plan: Arc<Plan>, source: Arc<OpenTopic>, output: Arc<OpenTopic>) -> Self {
        let mut view = View::new(Arc::clone(&plan.query), LIMITS);
        let mut rows = BTreeMap::new();
        note_rows(&plan, view.start().into_iter().collect(), &mut rows);
        let (parts, pending) = Default::default();
        let (is_compared, failed_count) = (false, 0);
        Self { plan, source, output, parts, view, rows, is_compared, pending, failed_count }
    }

    pub(super) fn turn(&mut self, is_look: bool, state: &State) -> Result<bool, SqlError> {
        publish(&self.output, OUTPUT_PARTITION, &mut self.pending, state)?;
        let partitions = Arc::clone(&self.source.partitions());
        for partition in partitions.iter().skip(self.parts.len()) {
            let input = match self.plan.source_kind {
                TableKind::Log => {
                    let end = partition.log.last_stable_offset();
                    Input::Log { read: Committed::from(partition.log.start_offset()), end }
                }
                TableKind::Values => Input::Values(Box::new(Changes::open(&partition.log)?)),
            };
            self.parts.push(Part { partition: Arc::clone(partition), input });
        }
        let ttl_ms = is_look.then(|| self.source.settings().values_ttl_ms);
        let (mut is_behind, mut is_whole, mut lag) = (false, true, 0);
        for part in &mut self.parts {
            let mut applied = Applied { view: &mut self.view, changes: Vec::new(), failed: None };
            is_behind |= part.step(&self.plan, ttl_ms, (&mut applied, state))?;
            let Applied { changes, failed, .. } = applied;
            note_rows(&self.plan, changes, &mut self.rows);
            if let Some(error) = failed {
                return Err(error.into());
            }
            is_whole &= part.is_whole();
            lag += part.lag();
        }
        state.lag.store(lag, Ordering::Relaxed);
        let (failed_count, first) = self.view.failures();
        if failed_count > self.failed_count {
            let why = first.map(|it| it.to_string()).unwrap_or_default();
            state.skip(failed_count - self.failed_count, &why);
            self.failed_count = failed_count;
        }
        if is_whole {
            self.publish_rows(state)?;
        }
        Ok(is_behind)
    }

    /// Publishes rows. The first ones are compared with the output, and only differences are
    /// published.
    fn publish_rows(&mut self, state: &State) -> Result<(), SqlError> {
        if !self.is_compared {
            self.compare()?;
            self.is_compared = true;
        }
        let now_ms = clock::unix_ms();
        let rows = std::mem::take(&mut self.rows).into_iter();
        self.pending.extend(rows.map(|(key, value)| NewRecord {
            key: Some(key),
            value,
            headers: Vec::new(),
            timestamp_ms: now_ms,
        }));
        publish(&self.output, OUTPUT_PARTITION, &mut self.pending, state)
    }

    fn compare(&mut self) -> Result<(), SqlError> {
        let partition = self.output.partition(OUTPUT_PARTITION).expect("topics have a partition");
        let own = own_values(&partition.log)?;
        let snapshot = own.values().snapshot()?;
        let mut scan = snapshot.scan_all();
        let (rows, pending) = (&mut self.rows, &mut self.pending);
        loop {
            let step = scan.step(i64::MIN, &mut |record| {
                let key = record.key.unwrap_or_default();
                match rows.get(key) {
                    Some(value) if value.as_deref() == record.value => drop(rows.remove(key)),
                    Some(_) => {}
                    None => pending.push(tombstone(key)),
                }
            })?;
            if step == ScanStep::Done {
                break;
            }
        }
        // A group that was created and removed since the start needs no record.
        let values = own.values();
        let mut buffer = Vec::new();
        let mut gone = Vec::new();
        for key in rows.iter().filter(|it| it.1.is_none()).map(|it| it.0) {
            if values.get(key, i64::MIN, &mut buffer, |_| ())?.is_none() {
                gone.push(key.clone());
            }
        }
        gone.iter().for_each(|key| drop(rows.remove(key)));
        Ok(())
    }
}

/// Applies changes of records to the view.
struct Applied<'a> {
    view: &'a mut View,
    changes: Vec<ResultChange>,
    failed: Option<live_queries::SqlError>,
}

impl Applied<'_> {
    fn change(&mut self, plan: &Plan, number: u32, changed: &Changed<'_>) {
        if self.failed.is_some() {
            return;
        }
        let passes = |row: &live_queries::Row<'_>| plan.query.filter().passes(row) == Ok(true);
        let mut apply = |old: Option<&live_queries::Row<'_>>,
                         new: Option<&live_queries::Row<'_>>| {
            let change = Change {
                partition: i32::try_from(number).expect("partitions have a limit"),
                offset: changed.new.map(|it| it.offset),
                time_ms: changed.new.map_or(0, |it| it.timestamp_ms),
                key: Some(changed.key),
                old: old.filter(|it| passes(it)),
                new: new.filter(|it| passes(it)),
            };
            self.failed = self.view.apply(&change, &mut self.changes).err();
        };
        let paths = &plan.paths;
        match (changed.old, changed.new) {
            (None, None) => {}
            (Some(old), None) => with_row((number, old), paths, |old| apply(Some(old), None)),
            (None, Some(new)) => with_row((number, new), paths, |new| apply(None, Some(new))),
            (Some(old), Some(new)) => with_row((number, old), paths, |old| {
                with_row((number, new), paths, |new| apply(Some(old), Some(new)));
            }),
        }
    }
}

impl Part {
    fn step(
        &mut self,
        plan: &Plan,
        ttl_ms: Option<Option<i64>>,
        (applied, state): (&mut Applied<'_>, &State),
    ) -> Result<bool, SqlError> {
        let log = &self.partition.log;
        let number = log.number();
        match &mut self.input {
            Input::Values(changes) => {
                Ok(changes.step(ttl_ms, &mut |it| applied.change(plan, number, it))?)
            }
            Input::Log { read, .. } => {
                let outcome = read.read(log, &mut |record: &Record<'_>| {
                    let key = record.key.unwrap_or_default();
                    let changed = Changed { old: None, new: Some(record), key };
                    applied.change(plan, number, &changed);
                })?;
                if let Some(start) = outcome.gone_before {
                    state.missed(number, read.position, start);
                }
                if outcome.undecodable > 0 {
                    state.skip(outcome.undecodable, "cannot read a record batch");
                }
                read.position = outcome.next;
                Ok(outcome.is_behind)
            }
        }
    }

    /// Returns whether the view includes all records that existed at the start.
    fn is_whole(&self) -> bool {
        match &self.input {
            Input::Values(changes) => changes.is_snapshot_over(),
            Input::Log { read, end } => read.position >= *end,
        }
    }

    fn lag(&self) -> u64 {
        let log = &self.partition.log;
        match &self.input {
            Input::Values(changes) => {
                let behind = log.last_stable_offset() - changes.values().applied();
                u64::try_from(behind).unwrap_or(0)
            }
            Input::Log { read, .. } => read.lag(log),
        }
    }
}

/// Adds rows to publish. Later rows of a group replace earlier ones.
fn note_rows(plan: &Plan, changes: Vec<ResultChange>, rows: &mut BTreeMap<Bytes, Option<Bytes>>) {
    for change in changes {
        if let Some(after) = &change.after {
            let (key, value) = group_record(&plan.query, after);
            rows.insert(key, Some(value));
        } else if let Some(before) = &change.before {
            rows.insert(group_record(&plan.query, before).0, None);
        }
    }
}
