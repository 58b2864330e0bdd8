//! What a subscription sends: rows, and the columns in front of them.

use std::fmt::Write;

use crate::error::{SqlError, SqlState};
use crate::query::{OutputColumn, Query};
use crate::result::ResultRow;
use crate::scalar::Value;
use crate::statement::{Envelope, SubscribeOptions};
use crate::types::Type;

/// What a row says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// So many more of this row: 1 or -1.
    Diff(i8),
    /// This row in place of the one with its key.
    Upsert,
    /// No row with this key; other columns are NULL.
    Delete,
    /// All changes before this time and position have been sent; columns are NULL.
    Progress,
}

#[derive(Clone, Debug, PartialEq)]
pub struct OutputRow {
    pub event: Event,
    /// When it was applied, in milliseconds since 1970; never less than in the row before.
    pub time_ms: i64,
    /// Partition and offset of the record that made it; of progress, the next offset of each
    /// partition. Empty where time made it.
    pub positions: Vec<(i32, i64)>,
    /// As many as the query has, in the order of [`Layout::columns`].
    pub columns: Vec<Value<'static>>,
}

/// The columns of a subscription's rows.
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
    /// Where each column stands in the query's.
    sources: Vec<usize>,
    key_count: usize,
}

impl Layout {
    /// Fails if the upsert key is not what tells the query's rows apart.
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

    /// All columns that the client sees.
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

    /// The values of a row for all of these columns.
    pub fn values(&self, row: OutputRow) -> Vec<Value<'static>> {
        let mut values = vec![Value::Int(row.time_ms)];
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
        values.extend(row.columns);
        values
    }

    /// The rows that show `after` in place of `before`.
    pub(super) fn rows(
        &self,
        before: Option<&ResultRow>,
        after: Option<&ResultRow>,
        mut emit: impl FnMut(Event, Vec<Value<'static>>),
    ) {
        if before.map(|it| &it.columns) == after.map(|it| &it.columns) {
            return;
        }
        let all =
            |row: &ResultRow| self.sources.iter().map(|it| row.columns[*it].clone()).collect();
        if !self.upserts {
            before.into_iter().for_each(|row| emit(Event::Diff(-1), all(row)));
            after.into_iter().for_each(|row| emit(Event::Diff(1), all(row)));
            return;
        }
        let key = |row: &ResultRow| -> Vec<Value<'static>> {
            self.sources[..self.key_count].iter().map(|it| row.columns[*it].clone()).collect()
        };
        if let Some(before) = before
            && after.is_none_or(|it| key(it) != key(before))
        {
            let mut columns = key(before);
            columns.resize(self.sources.len(), Value::Null);
            emit(Event::Delete, columns);
        }
        after.into_iter().for_each(|row| emit(Event::Upsert, all(row)));
    }

    /// As many NULLs as the query has columns.
    pub(super) fn nulls(&self) -> Vec<Value<'static>> {
        vec![Value::Null; self.sources.len()]
    }
}

/// The columns of the key, which must hold all that tells rows apart.
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
            "the KEY of ENVELOPE UPSERT does not tell the rows apart",
        )
        .with_hint("name the column key, or all that GROUP BY groups by, and select it as it is")),
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

impl OutputRow {
    /// Bytes of memory that it takes, about.
    pub fn bytes(&self) -> usize {
        let values: usize = self.columns.iter().map(Value::bytes).sum();
        size_of::<Self>() + size_of_val(self.positions.as_slice()) + values
    }
}
