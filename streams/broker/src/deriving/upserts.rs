//! Derivation of current values from current values: the output has the same partitions and keys as
//! the source. After a start it is compared with the source, and differences are published.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use record_batch::{NewRecord, Record};
use sql::{SqlError, SqlState};
use values::{Follower, ScanStep};

use super::changes::{Changed, Changes, own_values};
use super::plan::Plan;
use super::row::with_row;
use super::state::State;
use crate::clock;
use crate::publish::{append, is_of_record};
use crate::topics::{OpenPartition, OpenTopic};

pub(super) struct Upserts {
    plan: Arc<Plan>,
    source: Arc<OpenTopic>,
    output: Arc<OpenTopic>,
    parts: Vec<Part>,
}

struct Part {
    source: Arc<OpenPartition>,
    number: i32,
    changes: Changes,
    /// The output's values, during the comparison.
    own: Option<Follower>,
    /// Records that were not published yet.
    pending: Vec<NewRecord>,
}

impl Upserts {
    pub(super) fn new(plan: Arc<Plan>, source: Arc<OpenTopic>, output: Arc<OpenTopic>) -> Self {
        Self { plan, source, output, parts: Vec::new() }
    }

    pub(super) fn turn(&mut self, is_look: bool, state: &State) -> Result<bool, SqlError> {
        let (sources, outputs) =
            (Arc::clone(&self.source.partitions()), Arc::clone(&self.output.partitions()));
        for (source, output) in sources.iter().zip(outputs.iter()).skip(self.parts.len()) {
            self.parts.push(Part {
                source: Arc::clone(source),
                number: i32::try_from(source.log.number()).expect("partitions have a limit"),
                changes: Changes::open(&source.log)?,
                own: Some(own_values(&output.log)?),
                pending: Vec::new(),
            });
        }
        let ttl_ms = is_look.then(|| self.source.settings().values_ttl_ms);
        let (mut is_behind, mut lag) = (false, 0);
        for part in &mut self.parts {
            publish(&self.output, part.number, &mut part.pending, state)?;
            is_behind |= part.step(&Maker(&self.plan), ttl_ms, state)?;
            publish(&self.output, part.number, &mut part.pending, state)?;
            let behind = part.source.log.last_stable_offset() - part.changes.values().applied();
            lag += u64::try_from(behind).unwrap_or(0);
        }
        state.lag.store(lag, Ordering::Relaxed);
        Ok(is_behind)
    }
}

impl Part {
    fn step(
        &mut self,
        maker: &Maker<'_>,
        ttl_ms: Option<Option<i64>>,
        state: &State,
    ) -> Result<bool, SqlError> {
        let number = self.source.log.number();
        let (own, pending) = (&self.own, &mut self.pending);
        let mut failed = None;
        let is_behind = self.changes.step(ttl_ms, &mut |changed| match maker.change(
            (number, changed),
            own.as_ref(),
            state,
        ) {
            Ok(made) => pending.extend(made),
            Err(error) => drop(failed.get_or_insert(error)),
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        if self.changes.is_snapshot_over()
            && let Some(own) = self.own.take()
        {
            self.find_outdated(maker, &own, state)?;
        }
        Ok(is_behind)
    }

    /// Deletes output values whose keys no longer pass.
    fn find_outdated(
        &mut self,
        maker: &Maker<'_>,
        own: &Follower,
        state: &State,
    ) -> Result<(), SqlError> {
        let number = self.source.log.number();
        let snapshot = own.values().snapshot()?;
        let mut scan = snapshot.scan_all();
        let (mut buffer, mut failed) = (Vec::new(), None);
        loop {
            let step = scan.step(i64::MIN, &mut |record| {
                let key = record.key.unwrap_or_default();
                let values = self.changes.values();
                let is_made = |it: &Record<'_>| maker.make((number, it), state).is_some();
                match values.get(key, i64::MIN, &mut buffer, is_made) {
                    Ok(Some(true)) => {}
                    Ok(_) => self.pending.push(tombstone(key)),
                    Err(error) => drop(failed.get_or_insert(error)),
                }
            })?;
            if let Some(error) = failed {
                return Err(error.into());
            }
            if step == ScanStep::Done {
                return Ok(());
            }
        }
    }
}

/// Converts values to output records.
struct Maker<'a>(&'a Plan);

impl Maker<'_> {
    fn make(&self, row_of: (u32, &Record<'_>), state: &State) -> Option<NewRecord> {
        let (plan, record) = (self.0, row_of.1);
        let made = with_row(row_of, &plan.paths, |row| match plan.query.filter().passes(row)? {
            true => plan.record_shape().record(&plan.query, (row, record)).map(Some),
            false => Ok(None),
        });
        made.unwrap_or_else(|error| {
            state.skip(1, &error.to_string());
            None
        })
    }

    /// Returns the record to publish for a change of the source. `own` are the output's values
    /// during the comparison.
    fn change(
        &self,
        (number, changed): (u32, &Changed<'_>),
        own: Option<&Follower>,
        state: &State,
    ) -> Result<Option<NewRecord>, SqlError> {
        let new = changed.new.and_then(|it| self.make((number, it), state));
        if let Some(own) = own {
            let Some(new) = new else { return Ok(None) };
            let is_same = |it: &Record<'_>| it.value == new.value.as_deref();
            let key = changed.key;
            let found = own.values().get(key, i64::MIN, &mut Vec::new(), is_same)?;
            return Ok((found != Some(true)).then_some(new));
        }
        let was_there = || changed.old.is_some_and(|it| self.make((number, it), state).is_some());
        Ok(match new {
            Some(new) => Some(new),
            None => was_there().then(|| tombstone(changed.key)),
        })
    }
}

pub(super) fn tombstone(key: &[u8]) -> NewRecord {
    let key = Some(Bytes::copy_from_slice(key));
    NewRecord { key, timestamp_ms: clock::unix_ms(), ..NewRecord::default() }
}

/// Appends pending records in order, and flushes them. Records that could not be appended remain
/// pending.
pub(super) fn publish(
    output: &OpenTopic,
    number: i32,
    pending: &mut Vec<NewRecord>,
    state: &State,
) -> Result<(), SqlError> {
    if pending.is_empty() {
        return Ok(());
    }
    let partition = output.partition(number).ok_or_else(|| {
        let what = format!("topic {:?} has no partition {number}", output.name);
        SqlError::new(SqlState::IO, what)
    })?;
    let begin = partition.log.next_offset();
    let mut count = 0;
    let appended = append(output, number, pending, |end| {
        count = usize::try_from(end - begin).expect("it grows");
    });
    state.records_out.fetch_add(count as u64, Ordering::Relaxed);
    pending.drain(..count);
    output.flush()?;
    match appended {
        Err(error) if is_of_record(&error) => {
            state.skip(1, &error.message);
            pending.remove(0);
            publish(output, number, pending, state)
        }
        other => other,
    }
}
