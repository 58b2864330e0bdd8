//! Derivation record by record: a filtered log, or complete objects of merged topics.
//!
//! Each output record names the source offset from which it was derived, and after each turn a note
//! on the output's volume stores the position in the source. After a crash, processing continues at
//! the later of both, so that each record is derived exactly once.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use live_queries::{Row, RowError};
use record_batch::{Header, NewRecord, Record};
use record_log::{LogErrorKind, Partition};
use serde::{Deserialize, Serialize};
use sql::SqlError;
use values::{Follower, Secret};

use super::committed::Committed;
use super::lookup::Lookup;
use super::merge::merged;
use super::output::SOURCE_HEADER;
use super::plan::Plan;
use super::row::with_row;
use super::state::State;
use crate::clock;
use crate::publish::{append, is_of_record};
use crate::topics::{OpenPartition, OpenTopic, RecordRules, random_id};

const READ_BYTES: usize = 1 << 20;

/// Method of deriving a record.
pub(super) enum Maker {
    /// Applies the query, possibly with a lookup in another topic.
    Query { plan: Arc<Plan>, lookup: Option<Lookup> },
    /// Merges the record into the complete object of its key.
    Merge,
}

pub(super) struct EachRecord {
    maker: Maker,
    source: Arc<OpenTopic>,
    output: Arc<OpenTopic>,
    parts: Vec<Part>,
}

/// One partition of both topics.
struct Part {
    source: Arc<OpenPartition>,
    output: Arc<OpenPartition>,
    read: Committed,
    /// Complete objects, if objects are merged.
    objects: Option<Follower>,
    is_noted: bool,
}

/// Context shared by all parts in a turn.
struct Making<'a> {
    maker: &'a Maker,
    source: &'a OpenTopic,
    output: &'a OpenTopic,
    state: &'a State,
}

/// Note on the output's volume: all source records before `position` were processed, and their
/// results are before `output`.
#[derive(Serialize, Deserialize)]
struct Note {
    source: String,
    position: i64,
    output: i64,
}

impl EachRecord {
    pub(super) fn new(maker: Maker, source: Arc<OpenTopic>, output: Arc<OpenTopic>) -> Self {
        Self { maker, source, output, parts: Vec::new() }
    }

    /// Derives a limited number of records. Returns whether more can be processed immediately.
    pub(super) fn turn(&mut self, is_look: bool, state: &State) -> Result<bool, SqlError> {
        self.open_parts(state)?;
        // Read first, so that lookups see all values committed before the records.
        let ends: Vec<i64> =
            self.parts.iter().map(|it| it.source.log.last_stable_offset()).collect();
        if let Maker::Query { lookup: Some(lookup), .. } = &mut self.maker
            && !lookup.catch_up(is_look)?
        {
            return Ok(true);
        }
        let (mut is_behind, mut lag) = (false, 0);
        let making =
            Making { maker: &self.maker, source: &self.source, output: &self.output, state };
        for (part, end) in self.parts.iter_mut().zip(ends) {
            is_behind |= part.turn(end, &making)?;
            lag += part.read.lag(&part.source.log);
        }
        state.lag.store(lag, Ordering::Relaxed);
        Ok(is_behind)
    }

    /// Opens partitions, including those added to the source later. The output has as many.
    fn open_parts(&mut self, state: &State) -> Result<(), SqlError> {
        let (sources, outputs) =
            (Arc::clone(&self.source.partitions()), Arc::clone(&self.output.partitions()));
        let both = sources.iter().zip(outputs.iter()).skip(self.parts.len());
        for (source, output) in both {
            let objects = match self.maker {
                Maker::Query { .. } => None,
                Maker::Merge => Some(open_objects(&output.log)?),
            };
            let position = find_position(&self.source, (&source.log, &output.log), state)?;
            self.parts.push(Part {
                source: Arc::clone(source),
                output: Arc::clone(output),
                read: Committed::from(position),
                objects,
                is_noted: false,
            });
        }
        Ok(())
    }
}

fn open_objects(output: &Arc<Partition>) -> Result<Follower, SqlError> {
    let (mut follower, _) = Follower::open(Arc::clone(output), Secret(random_id()))?;
    while follower.follow(READ_BYTES, None)?.is_behind {}
    Ok(follower)
}

/// Returns the source offset at which to continue.
fn find_position(
    source: &OpenTopic,
    (log, output): (&Partition, &Partition),
    state: &State,
) -> Result<i64, SqlError> {
    let note = output.note()?.and_then(|it| serde_json::from_slice::<Note>(&it).ok());
    let end = output.next_offset();
    let position = match &note {
        Some(note) if note.source != source.id.to_string() => {
            // The source was deleted and created again.
            save_note(source, 0, output)?;
            0
        }
        Some(note) => {
            let made = last_made(output, note.output)?;
            if made.is_none() && note.output < end {
                let number = output.number();
                state.missed(number, note.position, note.position);
                tracing::warn!(
                    topic = state.name,
                    partition = number,
                    "the last records of a derived topic were deleted before its position was \
                     stored; some records may be duplicated"
                );
            }
            made.unwrap_or(0).max(note.position)
        }
        None => last_made(output, 0)?.unwrap_or(0),
    };
    let stable = log.last_stable_offset();
    if position > stable {
        let what = format!(
            "partition {} of {:?} ends at offset {stable}, before the stored position \
             {position}: it has lost records",
            log.number(),
            source.name
        );
        state.wait(&what);
        return Ok(stable);
    }
    Ok(position)
}

/// Returns the offset after the source offset of the last output record at or after `from`.
fn last_made(output: &Partition, from: i64) -> Result<Option<i64>, SqlError> {
    let mut read = Committed::from(from);
    let mut last = None;
    loop {
        let outcome = read.read(output, &mut |record| {
            let header =
                record.headers.iter().filter(|(name, _)| *name == SOURCE_HEADER.as_bytes());
            let value = header.last().and_then(|(_, value)| std::str::from_utf8(value?).ok());
            if let Some(offset) = value.and_then(|it| it.parse::<i64>().ok()) {
                last = Some(offset.saturating_add(1));
            }
        })?;
        read.position = outcome.next;
        if !outcome.is_behind {
            return Ok(last);
        }
    }
}

fn save_note(source: &OpenTopic, position: i64, output: &Partition) -> Result<(), SqlError> {
    let note = Note { source: source.id.to_string(), position, output: output.stable_offset() };
    let bytes = serde_json::to_vec(&note).expect("it is plain data");
    match output.set_note(&bytes) {
        // The output records contain the position, too.
        Err(error) if error.kind == LogErrorKind::NoSpace => Ok(()),
        other => Ok(other?),
    }
}

impl Part {
    /// Processes source records up to `end`, or a limited part of them.
    fn turn(&mut self, end: i64, making: &Making<'_>) -> Result<bool, SqlError> {
        let &Making { maker, source, output, state } = making;
        if self.output.log.stable_offset() < self.output.log.next_offset() {
            // The last flush failed. Records that were already derived must not be derived again.
            output.flush()?;
        }
        if let Some(objects) = &mut self.objects {
            while objects.follow(READ_BYTES, None)?.is_behind {}
        }
        let number = self.source.log.number();
        let (mut made, mut offsets) = (Vec::new(), Vec::new());
        let mut fresh: HashMap<Bytes, Option<Bytes>> = HashMap::new();
        let (objects, mut failed) = (&self.objects, None);
        let rules = RecordRules::of(&output.settings(), clock::unix_ms());
        let outcome = self.read.read_to(end, &self.source.log, &mut |record| {
            if failed.is_some() {
                return;
            }
            let record_made = match maker {
                Maker::Query { plan, lookup } => {
                    make((plan, lookup.as_ref()), (number, record), state)
                }
                Maker::Merge => {
                    let objects = objects.as_ref().expect("they are there for merging");
                    merge(objects, &mut fresh, record)
                }
            };
            let record_made = record_made.unwrap_or_else(|error| {
                failed = Some(error);
                None
            });
            let is_own_time = |it: &NewRecord| it.timestamp_ms != record.timestamp_ms;
            if let Some(late) = record_made.as_ref().filter(|it| is_own_time(it))
                && !rules.take_time(late.timestamp_ms)
            {
                state.skip(1, &rules.bad_time(late.timestamp_ms));
            } else if let Some(mut record_made) = record_made {
                let value = Some(record.offset.to_string().into());
                record_made.headers.push(Header { name: SOURCE_HEADER.to_owned(), value });
                made.push(record_made);
                offsets.push(record.offset);
            }
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        if let Some(start) = outcome.gone_before {
            state.missed(number, self.read.position, start);
        }
        if outcome.undecodable > 0 {
            state.skip(outcome.undecodable, "cannot read a record batch");
        }
        if outcome.next == self.read.position && self.is_noted {
            return Ok(false);
        }
        self.publish(output, (&made, &offsets), state)?;
        self.read.position = outcome.next;
        save_note(source, self.read.position, &self.output.log)?;
        self.is_noted = true;
        Ok(outcome.is_behind)
    }

    /// Appends the derived records and flushes them. The position is advanced after each batch, so
    /// that no record is repeated after an error.
    fn publish(
        &mut self,
        output: &OpenTopic,
        (mut made, mut offsets): (&[NewRecord], &[i64]),
        state: &State,
    ) -> Result<(), SqlError> {
        if made.is_empty() {
            return Ok(());
        }
        let number = i32::try_from(self.output.log.number()).expect("partitions have a limit");
        let mut result = Ok(());
        while !made.is_empty() {
            let begin = self.output.log.next_offset();
            let mut count = 0;
            let appended = append(output, number, made, |end| {
                count = usize::try_from(end - begin).expect("it grows");
            });
            if let Some(last) = count.checked_sub(1) {
                self.read.position = offsets[last] + 1;
                state.records_out.fetch_add(count as u64, Ordering::Relaxed);
            }
            (made, offsets) = (&made[count..], &offsets[count..]);
            match appended {
                Err(error) if is_of_record(&error) => {
                    state.skip(1, &error.message);
                    (made, offsets) = (&made[1..], &offsets[1..]);
                }
                Err(error) => {
                    result = Err(error);
                    break;
                }
                Ok(()) => {}
            }
        }
        output.flush()?;
        result
    }
}

/// Applies the query to a record. Returns the result if the record passes.
fn make(
    (plan, lookup): (&Plan, Option<&Lookup>),
    (number, record): (u32, &Record<'_>),
    state: &State,
) -> Result<Option<NewRecord>, SqlError> {
    if plan.joined.is_none() && !plan.query.filter().may_pass(record.value) {
        return Ok(None);
    }
    let shape = plan.record_shape();
    let finish = |row: &Row<'_>| match plan.query.filter().passes(row)? {
        true => shape.record(&plan.query, (row, record)).map(Some),
        false => Ok(None),
    };
    let made = with_row((number, record), &plan.paths, |row| -> Result<_, SqlError> {
        let (Some(joined), Some(lookup)) = (&plan.joined, lookup) else { return Ok(finish(row)) };
        let join = &joined.join;
        let found = match join.key(row) {
            Ok(Some(key)) => lookup.find(key.as_bytes())?,
            Ok(None) => None,
            Err(error) => return Ok(Err(error)),
        };
        Ok(match found {
            Some(found) => {
                found.with_row(join.paths(), |joined| finish(&row.with_joined(Some(joined))))
            }
            None if join.is_left() => finish(row),
            None => Ok(None),
        })
    });
    Ok(made?.unwrap_or_else(|error: RowError| {
        state.skip(1, &error.to_string());
        None
    }))
}

/// Returns the new complete object of the record's key, or `None` without a key.
fn merge(
    objects: &Follower,
    fresh: &mut HashMap<Bytes, Option<Bytes>>,
    record: &Record<'_>,
) -> Result<Option<NewRecord>, SqlError> {
    let Some(key) = record.key else { return Ok(None) };
    let value = match record.value {
        None => None,
        Some(patch) => Some(match fresh.get(key) {
            Some(before) => merged(before.as_deref(), patch),
            None => {
                let copy = |it: &Record<'_>| it.value.map(Bytes::copy_from_slice);
                // Expired values too: they are deleted by the sweep of their owner.
                let before = objects.values().get(key, i64::MIN, &mut Vec::new(), copy)?;
                merged(before.flatten().as_deref(), patch)
            }
        }),
    };
    let key = Bytes::copy_from_slice(key);
    fresh.insert(key.clone(), value.clone());
    let timestamp_ms = record.timestamp_ms;
    Ok(Some(NewRecord { key: Some(key), value, headers: Vec::new(), timestamp_ms }))
}
