//! Extended query protocol: prepared statements, Bind, Describe and Execute.

use std::sync::Arc;
use std::time::Instant;

use datafusion::arrow::datatypes::{DataType, SchemaRef, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::LogicalPlan;

use super::counters::Counters;
use super::interrupt::Ending;
use super::io::{Io, Stream};
use super::live::live_words;
use super::look_up::Looked;
use super::state::{Connection, Parameter, Portal, Prepared, no_cursor, no_statement};
use crate::engine::{Inferred, inferred_types, json_parameters, text_schema, value_of_parameter};
use crate::error::{SqlError, SqlState};
use crate::panics::contain_future;
use crate::statements::{Command, Variables, Words, read_command, split};
use crate::wire::{Bind, Format, Formats, JSONB, PgType, Target, read_parameter, text_of};

/// First words of simple statements, which are parsed on the connection's thread.
const UNPARSED: &[&str] = &[
    "BEGIN",
    "COMMIT",
    "DEALLOCATE",
    "DISCARD",
    "END",
    "FETCH",
    "RESET",
    "ROLLBACK",
    "SET",
    "SHOW",
    "START",
    "UNLISTEN",
];

impl Connection {
    pub(super) async fn parse<S: Stream>(
        &mut self,
        io: &mut Io<S>,
        name: String,
        text: &str,
        types: &[u32],
    ) -> Result<(), Ending> {
        let is_named = !name.is_empty();
        if is_named && self.statements.contains_key(&name) {
            let what = format!("prepared statement {name:?} already exists");
            return Err(SqlError::new(SqlState::DUPLICATE_STATEMENT, what).into());
        }
        if is_named && self.statements.len() >= self.server.limits.statement_count {
            let count = self.server.limits.statement_count;
            let what = format!("too many prepared statements: at most {count} per connection");
            return Err(SqlError::new(SqlState::TOO_MANY, what).into());
        }
        let statements = split(text)?;
        let words = match statements.as_slice() {
            [] => Words::default(),
            [one] => one.clone(),
            _ => {
                let what = "cannot insert multiple commands into a prepared statement";
                return Err(SqlError::new(SqlState::SYNTAX, what).into());
            }
        };
        let prepared = self.prepare_unless(io, (&words, types), Instant::now()).await?;
        self.statements.insert(name, Arc::new(prepared));
        io.out.parse_complete();
        Ok(())
    }

    /// Prepares a statement that began at `begun`, unless it is interrupted.
    pub(super) async fn prepare_unless<S: Stream>(
        &mut self,
        io: &mut Io<S>,
        (words, declared): (&Words, &[u32]),
        begun: Instant,
    ) -> Result<Prepared, Ending> {
        let entry = Arc::clone(&self.entry);
        let running = entry.begin(&words.to_string());
        let interrupt = self.interrupt(&running, self.variables.statement_time(), begun);
        let prepared = contain_future(Box::pin(self.prepare(words, declared)));
        let prepared = interrupt.unless(io, prepared).await;
        if let Err(Ending::Failed(error)) = &prepared {
            if error.state == SqlState::CANCELLED {
                Counters::count(&self.server.counters.cancelled);
            }
            self.report(error, &words.to_string());
        }
        prepared
    }

    /// Resolves the statement's names and determines the types of its parameters: declared or
    /// inferred from context.
    pub(super) async fn prepare(
        &mut self,
        words: &Words,
        declared: &[u32],
    ) -> Result<Prepared, SqlError> {
        let text = words.to_string();
        if words.iter().next().is_none() {
            return Ok(Prepared { text, ..Prepared::default() });
        }
        let memory = Some(Arc::new(self.session.take_memory(words.iter().count())?));
        let command = match UNPARSED.contains(&words.keyword(0).as_str()) {
            true => read_command(words)?,
            false => {
                let read = words.clone();
                self.session.planner().run(move || read_command(&read)).await?
            }
        };
        self.check_transaction(&command)?;
        let Looked { tables, plan, insert, point_read } = self.look_up(&command).await?;
        let live = live_words(&command).map(|words| self.prepare_live(words)).transpose()?;
        let parameters = match (&plan, &insert) {
            (Some(plan), _) => query_parameters(plan, words, declared)?,
            (_, Some(insert)) => {
                let types = insert.parameter_types(&words.declared_or_cast(declared))?;
                types.into_iter().map(|oid| parameter(oid, None)).collect()
            }
            (None, None) => {
                let count = live.as_ref().map_or(0, |it| it.parameter_count);
                let declared = |index: usize| declared.get(index).copied().unwrap_or(0);
                (0..count).map(|index| parameter(declared(index), None)).collect()
            }
        };
        let columns = match &plan {
            Some(plan) => {
                let types = parameters.iter().map(|it| it.data_type.clone()).collect();
                Some(self.session.columns(plan.clone(), types).await?)
            }
            None => None,
        };
        let command = Some(command);
        let (statistics, client) = (&self.server.registry.statistics, &self.client);
        let figures = statistics.of(&client.principal, client.on_behalf_of.as_ref(), words);
        let figures = Some(figures);
        Ok(Prepared {
            command,
            text,
            tables,
            plan,
            memory,
            columns,
            point_read,
            insert,
            live,
            figures,
            parameters,
        })
    }

    pub(super) fn bind<S: Stream>(&mut self, io: &mut Io<S>, bind: Bind) -> Result<(), Ending> {
        let prepared = self.statement(&bind.statement)?;
        let is_named = !bind.portal.is_empty();
        if is_named && self.portals.contains_key(&bind.portal) {
            let what = format!("portal {:?} already exists", bind.portal);
            return Err(SqlError::new(SqlState::DUPLICATE_CURSOR, what).into());
        }
        if self.portals.len() >= self.server.limits.statement_count {
            let what = "too many portals on this connection";
            return Err(SqlError::new(SqlState::TOO_MANY, what).into());
        }
        if bind.parameters.len() != prepared.parameters.len() {
            let (found, expected) = (bind.parameters.len(), prepared.parameters.len());
            let what = format!(
                "bind message supplies {found} parameters, but prepared statement requires \
                 {expected}"
            );
            return Err(SqlError::protocol(what).into());
        }
        let formats = Formats(bind.parameter_formats);
        let values = bind.parameters.iter().zip(&prepared.parameters).enumerate();
        let is_query = prepared.plan.is_some();
        let values = values.map(|(index, (bytes, parameter))| {
            let (format, of) = (formats.of(index), (parameter.oid, &parameter.data_type));
            let text = match (bytes, format) {
                (Some(bytes), Format::Text(_)) if is_query => Some(text_of(bytes)?.to_owned()),
                _ if is_query && [PgType::JSON.oid, JSONB].contains(&parameter.oid) => {
                    match read_parameter(bytes.as_deref(), format, of)? {
                        ScalarValue::Utf8(text) => text,
                        _ => None,
                    }
                }
                _ => None,
            };
            match text.map(|it| value_of_parameter(&it, of)).transpose()?.flatten() {
                Some(value) => Ok(value),
                None => read_parameter(bytes.as_deref(), format, of),
            }
        });
        let values = values.collect::<Result<Vec<_>, _>>()?;
        let portal = Portal::new(prepared, values, Formats(bind.result_formats));
        self.portals.insert(bind.portal, portal);
        io.out.bind_complete();
        Ok(())
    }

    pub(super) fn describe<S: Stream>(
        &mut self,
        io: &mut Io<S>,
        target: &Target,
    ) -> Result<(), Ending> {
        let (prepared, formats) = match target {
            Target::Statement(name) => {
                let prepared = self.statement(name)?;
                let types: Vec<_> = prepared.parameters.iter().map(|it| it.oid).collect();
                io.out.parameter_description(&types);
                (prepared, Formats::default())
            }
            Target::Portal(name) => match (self.portals.get(name), self.cursors.get(name)) {
                (Some(portal), _) => (Arc::clone(&portal.prepared), portal.formats.clone()),
                // A cursor is a portal too: psycopg asks for its columns.
                (None, Some(cursor)) => {
                    io.out.row_description(&cursor.rows.schema(), &Formats::default());
                    return Ok(());
                }
                (None, None) => return Err(no_portal(name).into()),
            },
        };
        match self.schema_of(&prepared)? {
            Some(schema) => io.out.row_description(&schema, &formats),
            None => io.out.no_data(),
        }
        Ok(())
    }

    /// Returns the result columns of a statement, or `None` if it returns no rows.
    pub(super) fn schema_of(&self, prepared: &Prepared) -> Result<Option<SchemaRef>, SqlError> {
        let Some(command) = &prepared.command else { return Ok(None) };
        Ok(match command {
            Command::Query(_) => prepared.columns.clone(),
            Command::Extension(_) => prepared.live.as_ref().map(|it| Arc::clone(&it.schema)),
            Command::Explain { .. } => Some(text_schema(&["QUERY PLAN"])),
            Command::Show(name) => Some(text_schema(&Variables::shown_columns(name))),
            Command::Fetch { name, .. } => {
                let cursor = self.cursors.get(name).ok_or_else(|| no_cursor(name))?;
                Some(cursor.rows.schema())
            }
            _ => None,
        })
    }

    pub(super) async fn execute<S: Stream>(
        &mut self,
        io: &mut Io<S>,
        name: &str,
        rows_max: usize,
    ) -> Result<(), Ending> {
        // Removed from the map while it runs. A portal that fails is dropped.
        let mut portal = self.portals.remove(name).ok_or_else(|| no_portal(name))?;
        self.run_portal(io, &mut portal, (rows_max, Instant::now())).await?;
        self.portals.insert(name.to_owned(), portal);
        Ok(())
    }

    pub(super) fn close(&mut self, target: &Target) {
        match target {
            Target::Statement(name) => drop(self.statements.remove(name)),
            Target::Portal(name) => drop(self.portals.remove(name)),
        }
    }

    fn statement(&self, name: &str) -> Result<Arc<Prepared>, SqlError> {
        self.statements.get(name).map(Arc::clone).ok_or_else(|| no_statement(name))
    }
}

fn query_parameters(
    plan: &LogicalPlan,
    words: &Words,
    declared: &[u32],
) -> Result<Vec<Parameter>, SqlError> {
    let unknown = declared.iter().find(|oid| **oid > 0 && PgType::data_type_of(**oid).is_none());
    // `unknown` is the type of an untyped literal.
    if let Some(oid) = unknown.filter(|oid| **oid != PgType::UNKNOWN) {
        let what = format!("parameters of the type with OID {oid} are not supported");
        return Err(SqlError::unsupported(what));
    }
    let of_json = json_parameters(plan).map_err(SqlError::from)?;
    for (index, oid) in declared.iter().enumerate() {
        let is_text =
            PgType::data_type_of(*oid).is_some() && ![PgType::JSON.oid, JSONB].contains(oid);
        if is_text && of_json.contains_key(&format!("${}", index + 1)) {
            let what =
                format!("parameter ${} is used as json but declared with another type", index + 1);
            let hint = "Cast the parameter to json.";
            return Err(SqlError::new(SqlState::DATATYPE, what).with_hint(hint));
        }
    }
    let types = words.declared_or_cast(declared);
    let mut parameters: Vec<_> = types.iter().map(|oid| parameter(*oid, None)).collect();
    // Includes parameters that the plan does not use.
    let count = words.parameter_count()?;
    while parameters.len() < count {
        parameters.push(parameter(0, None));
    }
    if let Some(name) = words.unused_parameter(declared)? {
        let what = format!("could not determine data type of parameter {name}");
        return Err(SqlError::new(SqlState("42P18"), what));
    }
    for (name, inferred) in inferred_types(plan).map_err(SqlError::from)? {
        let number = name.strip_prefix('$').and_then(|it| it.parse::<u16>().ok());
        let index = number.and_then(|it| usize::from(it).checked_sub(1)).ok_or_else(|| {
            SqlError::new(SqlState::SYNTAX, format!("there is no parameter {name}"))
        })?;
        while parameters.len() <= index {
            parameters.push(parameter(0, None));
        }
        if types.get(index).is_none_or(|oid| PgType::data_type_of(*oid).is_none()) {
            let inferred = match inferred {
                Inferred::Unknown => None,
                Inferred::One(data_type) => Some(data_type),
                Inferred::Several => {
                    let what = format!("parameter {name} as values of several types");
                    return Err(SqlError::unsupported(format!("{what} is not supported"))
                        .with_hint(format!("Cast it to one of them, as in {name}::text::date.")));
                }
            };
            let json = of_json.get(&name).filter(|_| inferred.is_none());
            parameters[index] = parameter(json.map_or(0, |it| it.oid), inferred);
        }
    }
    Ok(parameters)
}

/// Returns a parameter of the declared type, else the inferred type, else text.
fn parameter(declared: u32, inferred: Option<DataType>) -> Parameter {
    if let Some(data_type) = PgType::data_type_of(declared) {
        return Parameter { oid: declared, data_type };
    }
    let data_type = match inferred {
        None | Some(DataType::Null) => DataType::Utf8,
        Some(DataType::Utf8View | DataType::LargeUtf8) => DataType::Utf8,
        // Values are read in microseconds.
        Some(DataType::Timestamp(_, zone)) => DataType::Timestamp(TimeUnit::Microsecond, zone),
        Some(data_type) => data_type,
    };
    Parameter { oid: PgType::of_data(&data_type).oid, data_type }
}

fn no_portal(name: &str) -> SqlError {
    SqlError::new(SqlState::CURSOR_NAME, format!("portal {name:?} does not exist"))
}
