//! Output format of a subscription: system columns, followed by the query's.

use std::fmt::Write;

use crate::error::{SqlError, SqlState};
use crate::query::{OutputColumn, Query};
use crate::result::ResultRow;
use crate::scalar::Value;
use crate::statement::{Envelope, SubscribeOptions};
use crate::subscription::rows::{Event, Head, OutputRow, OutputRows};
use crate::types::Type;

/// Columns of a subscription's rows.
///
/// | column | when |
/// |---|---|
/// | `mz_timestamp` bigint | always |
/// | `mz_progressed` boolean | WITH (PROGRESS) |
/// | `mz_position` text, `partition:offset` with commas between | WITH (POSITION) |
/// | `mz_diff` bigint, or `mz_state` text: `upsert`, `delete` | always |
/// | those of the query, the upsert key first | always |
#[derive(Clone, Debug)]
pub struct Layout {
    progress: bool,
    position: bool,
    upserts: bool,
    columns: Vec<OutputColumn>,
    /// Index of each column in the query's output.
    sources: Vec<usize>,
    key_count: usize,
}

impl Layout {
    /// Fails if the upsert key does not identify the query's rows.
    pub fn new(
        query: &Query,
        envelope: &Envelope,
        options: &SubscribeOptions,
    ) -> Result<Self, SqlError> {
        let key = match envelope {
            Envelope::Diff => Vec::new(),
            Envelope::Upsert { key } => upsert_key(query, key)?,
        };
        let rest = (0..query.columns.len()).filter(|it| !key.contains(it));
        let sources: Vec<usize> = key.iter().copied().chain(rest).collect();
        Ok(Self {
            progress: options.progress,
            position: options.position,
            upserts: matches!(envelope, Envelope::Upsert { .. }),
            columns: sources.iter().map(|it| query.columns[*it].clone()).collect(),
            sources,
            key_count: key.len(),
        })
    }

    /// Returns all columns that the client receives.
    pub fn columns(&self) -> Vec<OutputColumn> {
        let column = |name: &str, data_type| OutputColumn { name: name.to_owned(), data_type };
        let mut columns = vec![column("mz_timestamp", Type::Int8)];
        if self.progress {
            columns.push(column("mz_progressed", Type::Bool));
        }
        if self.position {
            columns.push(column("mz_position", Type::Text));
        }
        columns.push(match self.upserts {
            true => column("mz_state", Type::Text),
            false => column("mz_diff", Type::Int8),
        });
        columns.extend(self.columns.iter().cloned());
        columns
    }

    /// Moves the values of a row for all columns to `values`, whose contents are replaced.
    pub fn values<'a>(&self, row: &mut OutputRow<'a>, values: &mut Vec<Value<'a>>) {
        values.clear();
        values.push(Value::Int(row.time_ms));
        if self.progress {
            values.push(Value::Bool(row.event == Event::Progress));
        }
        if self.position {
            values.push(position_text(&row.positions));
        }
        values.push(match row.event {
            Event::Diff(diff) => Value::Int(i64::from(diff)),
            Event::Upsert => Value::Text("upsert".into()),
            Event::Delete => Value::Text("delete".into()),
            Event::Progress => Value::Null,
        });
        values.append(&mut row.columns);
    }

    /// Returns the index of each column in the query's output.
    pub(super) fn sources(&self) -> &[usize] {
        &self.sources
    }

    /// Returns the event of a new row.
    pub(super) fn event_of_new(&self) -> Event {
        if self.upserts { Event::Upsert } else { Event::Diff(1) }
    }

    /// Appends the output rows for the replacement of `before` by `after`.
    pub(super) fn put(
        &self,
        (before, after): (Option<&ResultRow>, Option<&ResultRow>),
        (time_ms, positions): (i64, &[(i32, i64)]),
        rows: &mut OutputRows,
    ) {
        if before.map(|it| &it.columns) == after.map(|it| &it.columns) {
            return;
        }
        let head = |event| Head { event, time_ms, positions };
        if let Some(before) = before {
            if !self.upserts {
                rows.push(
                    head(Event::Diff(-1)),
                    self.sources.iter().map(|it| &before.columns[*it]),
                );
            } else if after.is_none_or(|it| !self.has_same_key(it, before)) {
                let column = |(index, source): (usize, &usize)| match index < self.key_count {
                    true => &before.columns[*source],
                    false => &Value::Null,
                };
                rows.push(head(Event::Delete), self.sources.iter().enumerate().map(column));
            }
        }
        if let Some(after) = after {
            let columns = self.sources.iter().map(|it| &after.columns[*it]);
            rows.push(head(self.event_of_new()), columns);
        }
    }

    fn has_same_key(&self, left: &ResultRow, right: &ResultRow) -> bool {
        self.sources[..self.key_count].iter().all(|it| left.columns[*it] == right.columns[*it])
    }

    /// Appends a progress row.
    pub(super) fn put_progress(
        &self,
        time_ms: i64,
        positions: &[(i32, i64)],
        rows: &mut OutputRows,
    ) {
        let head = Head { event: Event::Progress, time_ms, positions };
        rows.push(head, self.sources.iter().map(|_| &Value::Null));
    }
}

/// Returns the columns of the upsert key, which must contain all identifying columns.
fn upsert_key(query: &Query, names: &[String]) -> Result<Vec<usize>, SqlError> {
    let mut key = Vec::with_capacity(names.len());
    for name in names {
        let place = query.columns.iter().position(|it| it.name == *name).ok_or_else(|| {
            let message = format!("column \"{name}\" does not exist");
            SqlError::new(SqlState::UNDEFINED_COLUMN, message)
        })?;
        if !key.contains(&place) {
            key.push(place);
        }
    }
    let is_key = !query.identity.is_empty() && query.identity.iter().all(|it| key.contains(it));
    match is_key {
        true => Ok(key),
        false => Err(SqlError::new(
            SqlState::INVALID_COLUMN_REFERENCE,
            "the KEY of ENVELOPE UPSERT does not uniquely identify rows",
        )
        .with_hint("use the column key, or all GROUP BY columns, and select them unchanged")),
    }
}

fn position_text(positions: &[(i32, i64)]) -> Value<'static> {
    let mut text = String::new();
    for (index, (partition, offset)) in positions.iter().enumerate() {
        let comma = if index > 0 { "," } else { "" };
        write!(text, "{comma}{partition}:{offset}").expect("a String takes all");
    }
    if positions.is_empty() { Value::Null } else { Value::Text(text.into()) }
}
