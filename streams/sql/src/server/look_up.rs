//! Finds what the tables are that a statement names, and finds them again where they have changed.

use std::sync::Arc;

use access::Operation;
use datafusion::logical_expr::LogicalPlan;

use super::meaning::{Named, are_same_columns, changed_columns};
use super::state::{Connection, Prepared};
use crate::definition::table_of;
use crate::engine::{BYTES_SUFFIX, PointRead};
use crate::error::{SqlError, SqlState};
use crate::statements::{Command, CursorSource, InsertPlan};
use crate::typed::{MaterializedView, TypedTable};

/// Meaning of the names of a statement.
#[derive(Default)]
pub(super) struct Looked {
    pub(super) tables: Arc<[Named]>,
    pub(super) plan: Option<LogicalPlan>,
    pub(super) insert: Option<InsertPlan>,
    pub(super) point_read: Option<Arc<PointRead>>,
}

impl Connection {
    /// Finds what the names of a statement mean.
    pub(super) async fn look_up(&mut self, command: &Command) -> Result<Looked, SqlError> {
        let host = Arc::clone(&self.server.host);
        let (mut looked, query) = match command {
            Command::Query(query)
            | Command::Explain { query, .. }
            | Command::CopyOut { source: CursorSource::Query(query), .. }
            | Command::Declare { source: CursorSource::Query(query), .. } => {
                // First: what changes while it is planned is seen as a change.
                let tables = Named::all(&*host, query).into();
                (Looked { tables, ..Looked::default() }, query)
            }
            Command::Insert(insert) | Command::CopyIn { insert, .. } => {
                let mut tables = Vec::new();
                let insert = InsertPlan::new(insert, |name| {
                    tables.push(Named::new(&*host, name));
                    self.typed_table(name)
                })?;
                let (tables, insert) = (tables.into(), Some(insert));
                return Ok(Looked { tables, insert, ..Looked::default() });
            }
            _ => return Ok(Looked::default()),
        };
        let (plan, point_read) = self.session.plan(query.as_ref().clone()).await?;
        if matches!(command, Command::Query(_)) {
            looked.point_read = point_read.map(Arc::new);
        }
        looked.plan = Some(plan);
        Ok(looked)
    }

    /// The statement as its names mean it now, for all that execute it from now on.
    ///
    /// # Errors
    /// A table is gone, or the client was told of other columns.
    pub(super) async fn renewed(
        &mut self,
        prepared: &Arc<Prepared>,
    ) -> Result<Arc<Prepared>, SqlError> {
        let host = Arc::clone(&self.server.host);
        let command = prepared.command.as_ref();
        let is_same = prepared.tables.iter().all(|it| it.is_same(&*host));
        let Some(command) = command.filter(|_| !is_same) else {
            return Ok(Arc::clone(prepared));
        };
        let Looked { tables, plan, insert, point_read } = self.look_up(command).await?;
        if let (Command::Query(_), Some(old), Some(new)) = (command, &prepared.plan, &plan)
            && !are_same_columns(old.schema().inner(), new.schema().inner())
        {
            return Err(changed_columns());
        }
        let old = Prepared::clone(prepared);
        let new = Arc::new(Prepared { tables, plan, insert, point_read, ..old });
        for kept in self.statements.values_mut().filter(|it| Arc::ptr_eq(it, prepared)) {
            *kept = Arc::clone(&new);
        }
        Ok(new)
    }

    /// The typed table of a name that is inserted into.
    fn typed_table(&self, name: &str) -> Result<Option<TypedTable>, SqlError> {
        let host = &*self.server.host;
        let topic = table_of(name.strip_suffix(BYTES_SUFFIX).unwrap_or(name)).0;
        if MaterializedView::find(host, topic).is_some() {
            self.client.check(host, Operation::Write, topic)?;
            let what = format!("cannot insert into materialized view {topic:?}");
            let hint = "Its query fills it: insert into what that selects from.";
            return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, what).with_hint(hint));
        }
        let table = TypedTable::of_name(host, name);
        let plain = name.strip_suffix(BYTES_SUFFIX).unwrap_or(name);
        if table.is_none() && host.topic(plain).is_none() {
            self.client.check(host, Operation::Write, plain)?;
            let what = format!("relation {name:?} does not exist");
            return Err(SqlError::new(SqlState::UNDEFINED_TABLE, what));
        }
        Ok(table)
    }
}
