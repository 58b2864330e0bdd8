//! Resolution of the tables that a statement names, again after they have changed.

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

/// Resolved names of a statement.
#[derive(Default)]
pub(super) struct Looked {
    pub(super) tables: Arc<[Named]>,
    pub(super) plan: Option<LogicalPlan>,
    pub(super) insert: Option<InsertPlan>,
    pub(super) point_read: Option<Arc<PointRead>>,
}

impl Connection {
    /// Resolves the names in a statement.
    pub(super) async fn look_up(&mut self, command: &Command) -> Result<Looked, SqlError> {
        let host = Arc::clone(&self.server.host);
        let (mut looked, query) = match command {
            Command::Query(query)
            | Command::Explain { query, .. }
            | Command::CopyOut { source: CursorSource::Query(query), .. }
            | Command::Declare { source: CursorSource::Query(query), .. } => {
                // First, so that a change during planning is detected.
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
        let (plan, point_read) = self.session.plan_for_client(query.clone()).await?;
        if matches!(command, Command::Query(_)) {
            looked.point_read = point_read.map(Arc::new);
        }
        looked.plan = Some(plan);
        Ok(looked)
    }

    /// Returns a statement whose names have changed with its names resolved again, and replaces the
    /// cached one.
    ///
    /// # Errors
    /// A table no longer exists, or its columns differ from those described to the client.
    pub(super) async fn renewed(
        &mut self,
        prepared: &Arc<Prepared>,
    ) -> Result<Arc<Prepared>, SqlError> {
        let Some(command) = prepared.command.as_ref() else { return Ok(Arc::clone(prepared)) };
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

    /// Returns the typed table that is the target of an insert.
    fn typed_table(&self, name: &str) -> Result<Option<TypedTable>, SqlError> {
        let host = &*self.server.host;
        let topic = table_of(name.strip_suffix(BYTES_SUFFIX).unwrap_or(name)).0;
        if MaterializedView::find(host, topic).is_some() {
            self.client.check(host, Operation::Write, topic)?;
            let what = format!("cannot insert into materialized view {topic:?}");
            let hint = "Insert into the source that its query reads.";
            return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, what).with_hint(hint));
        }
        // A table that the client may not see is refused like a name that does not exist.
        let may_see = |it: &TypedTable| self.client.check(host, Operation::Describe, &it.topic);
        let table = TypedTable::of_name(host, name).filter(|it| may_see(it).is_ok());
        let plain = name.strip_suffix(BYTES_SUFFIX).unwrap_or(name);
        if table.is_none() && host.topic(plain).is_none() {
            self.client.check(host, Operation::Write, plain)?;
            let what = format!("relation {name:?} does not exist");
            return Err(SqlError::new(SqlState::UNDEFINED_TABLE, what));
        }
        Ok(table)
    }
}
