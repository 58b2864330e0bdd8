//! Live queries of a connection: `SUBSCRIBE`, directly, in a COPY or with a cursor.

use std::sync::Arc;
use std::time::Duration;

use access::Operation;
use datafusion::arrow::datatypes::{DataType, Field, IntervalUnit, Schema, SchemaRef, TimeUnit};
use datafusion::common::ScalarValue;
use live_queries::{OutputColumn, Query, Statement, Table, TableKind, Type, parse_statement};
use tokio::task::unconstrained;

use super::interrupt::{Ending, Interrupt};
use super::io::{Io, SEND_BYTES, Stream};
use super::meaning::{are_same_columns, changed_columns};
use super::rows::Rows;
use super::state::{Connection, LivePlan, Prepared};
use crate::definition::table_of;
use crate::engine::BYTES_SUFFIX;
use crate::error::{SqlError, SqlState};
use crate::host::{Client, Flow, Host, LiveQuery};
use crate::statements::{Command, CursorSource, Extension, Words};
use crate::typed::{MaterializedView, TypedTable};
use crate::wire::{Formats, json_field};

/// Returns the words of the command's live query, if it has one.
pub(super) fn live_words(command: &Command) -> Option<&Words> {
    match command {
        Command::Extension(Extension::Subscribe(words))
        | Command::CopyOut {
            source: CursorSource::Extension(Extension::Subscribe(words)), ..
        }
        | Command::Declare {
            source: CursorSource::Extension(Extension::Subscribe(words)), ..
        } => Some(words),
        _ => None,
    }
}

impl Connection {
    /// Determines the result columns of a live query.
    pub(super) fn prepare_live(&self, words: &Words) -> Result<LivePlan, SqlError> {
        let parameter_count = words.parameter_count()?;
        // Column names and types do not depend on the parameter values.
        let parameters = vec![ScalarValue::Utf8(None); parameter_count];
        let host = &*self.server.host;
        let live = live_query(host, &self.client, words, &parameters)?;
        let schema = schema_of(&host.live_columns(&self.client, &live)?);
        Ok(LivePlan { words: words.clone(), schema, parameter_count })
    }

    /// Starts a live query.
    pub(super) async fn subscribe(
        &mut self,
        plan: &LivePlan,
        parameters: &[ScalarValue],
    ) -> Result<Rows, SqlError> {
        let host = Arc::clone(&self.server.host);
        let live = live_query(&*host, &self.client, &plan.words, parameters)?;
        let rows = host.subscribe(&self.client, live).await?;
        let columns = rows.layout.columns();
        let schema = schema_of(&columns);
        match are_same_columns(&plan.schema, &schema) {
            true => Ok(Rows::live(schema, &columns, rows)),
            false => Err(changed_columns()),
        }
    }

    /// Sends up to `rows_max` rows of a live query until the timeout. Without a timeout, waits for
    /// the first row and sends those available then.
    pub(super) async fn fetch_live<S: Stream>(
        &mut self,
        io: &mut Io<S>,
        rows: &mut Rows,
        ((rows_max, time), formats): ((usize, Option<Duration>), &Formats),
        interrupt: &Interrupt,
    ) -> Result<usize, Ending> {
        let begun = tokio::time::Instant::now();
        let mut count = 0;
        while count < rows_max {
            let until = match (time, count) {
                (Some(time), _) => Some(begun + time),
                (None, 0) => None,
                (None, _) => Some(begun),
            };
            let next = async {
                let next = unconstrained(rows.next(rows_max - count));
                match until {
                    None => next.await.map(Some),
                    Some(until) => tokio::time::timeout_at(until, next).await.ok().transpose(),
                }
            };
            interrupt.unless(io, self.wait_for_rate(Flow::Received)).await?;
            // The timeout has passed, or the subscription has ended.
            let Some(Some(chunk)) = interrupt.unless(io, next).await? else { break };
            count += chunk.len();
            self.put_rows(&mut io.out, chunk.len(), |out| chunk.put(&mut out.0, formats))?;
            if io.out.0.len() >= SEND_BYTES {
                interrupt.send(io).await?;
            }
        }
        Ok(count)
    }

    /// Returns whether a statement runs or fetches from a live query.
    pub(super) fn is_live(&self, prepared: &Prepared) -> bool {
        let cursor = prepared.cursor().and_then(|name| self.cursors.get(name));
        prepared.live.is_some() || cursor.is_some_and(|it| it.rows.is_live())
    }
}

/// Parses a live query with its parameters, and resolves its table.
fn live_query(
    host: &dyn Host,
    client: &Client,
    words: &Words,
    parameters: &[ScalarValue],
) -> Result<LiveQuery, SqlError> {
    let text = words.source(&|name| {
        let number = name.strip_prefix('$').and_then(|it| it.parse::<usize>().ok());
        let value = number.and_then(|it| parameters.get(it.checked_sub(1)?));
        value.map_or_else(|| name.to_owned(), literal)
    });
    let Some(Statement::Subscribe(subscribe)) = parse_statement(&text)? else {
        return Err(SqlError::new(SqlState::SYNTAX, "SUBSCRIBE requires a query or a table"));
    };
    let name = Query::table_name(&subscribe.query)?;
    let (topic, table) = find_table(host, &name);
    let topic = match table.kind {
        TableKind::Log => topic.into(),
        TableKind::Values => host.values_topic(&topic),
    };
    let may_see = client.check(host, Operation::Describe, &topic).is_ok();
    let is_kept = table.kind == TableKind::Log || host.keeps_values(&topic);
    if !may_see || !is_kept || host.topic(&topic).is_none() {
        let what = format!("relation {name:?} does not exist");
        return Err(SqlError::new(SqlState::UNDEFINED_TABLE, what));
    }
    Ok(LiveQuery { topic, table, subscribe })
}

/// Resolves a table name to a topic, which may not exist, and the table. Topics take precedence.
/// The plain name of a materialized view is its current result.
fn find_table(host: &dyn Host, name: &str) -> (String, Table) {
    if let Some(typed) = TypedTable::of_name(host, name) {
        return (typed.topic.clone(), typed.live());
    }
    let (rest, is_bytes) = match name.strip_suffix(BYTES_SUFFIX) {
        Some(rest) => (rest, true),
        None => (name, false),
    };
    let (topic, mut table) = table_of(rest);
    match MaterializedView::find(host, rest) {
        Some(view) if !is_bytes => table = view.table,
        Some(_) => table = Table::values(name),
        None => name.clone_into(&mut table.name),
    }
    if is_bytes {
        let texts = table.columns.iter_mut().filter(|it| it.data_type == Type::Text);
        texts.for_each(|it| it.data_type = Type::Bytea);
    }
    (topic.to_owned(), table)
}

/// Formats a value as an SQL literal. The context determines its type.
fn literal(value: &ScalarValue) -> String {
    let text = value.cast_to(&DataType::Utf8).ok();
    let is_decimal = matches!(value.data_type(), DataType::Decimal128(..));
    match text {
        // Trailing zeros of its scale could exceed the digits of a numeric in that place.
        Some(ScalarValue::Utf8(Some(text))) if is_decimal && text.contains('.') => {
            format!("'{}'", text.trim_end_matches('0').trim_end_matches('.'))
        }
        Some(ScalarValue::Utf8(Some(text))) => format!("'{}'", text.replace('\'', "''")),
        _ => "NULL".to_owned(),
    }
}

fn schema_of(columns: &[OutputColumn]) -> SchemaRef {
    let fields = columns.iter().map(|column| {
        let data_type = match column.data_type {
            Type::Json => return json_field(&column.name, DataType::Utf8View),
            Type::Unknown | Type::Text => DataType::Utf8View,
            Type::Bool => DataType::Boolean,
            Type::Int4 => DataType::Int32,
            Type::Int8 => DataType::Int64,
            Type::Numeric => DataType::Decimal128(38, 10),
            Type::Float8 => DataType::Float64,
            Type::Bytea => DataType::BinaryView,
            Type::Timestamptz => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Type::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
        };
        Field::new(&column.name, data_type, true)
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}
