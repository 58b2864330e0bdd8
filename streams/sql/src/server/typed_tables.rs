//! `CREATE TABLE` and `DROP TABLE`. The host stores the definitions.

use access::Operation;

use super::state::Connection;
use crate::definition::{DefinitionKind, NewDefinition};
use crate::error::{SqlError, SqlState};
use crate::statements::Command;
use crate::typed::TypedTable;

impl Connection {
    /// Executes the command. Returns its command tag.
    pub(super) async fn table_command(
        &mut self,
        command: &Command,
    ) -> Result<&'static str, SqlError> {
        match command {
            Command::CreateTable { table, statement, may_be_there } => {
                self.create_table(table, (statement, *may_be_there)).await?;
                Ok("CREATE TABLE")
            }
            Command::DropTable { names, may_be_gone } => {
                self.drop_tables(names, *may_be_gone).await?;
                Ok("DROP TABLE")
            }
            _ => unreachable!("the caller hands over commands for tables alone"),
        }
    }

    /// Stores a table through the host. Queries can use it on return.
    async fn create_table(
        &mut self,
        table: &TypedTable,
        (statement, may_be_there): (&str, bool),
    ) -> Result<(), SqlError> {
        let host = &self.server.host;
        let may_see = self.client.check(&**host, Operation::Describe, &table.topic).is_ok();
        if !may_see || host.topic(&table.topic).is_none() {
            let what = format!("topic {:?} does not exist", table.topic);
            return Err(SqlError::new(SqlState::UNDEFINED_TABLE, what)
                .with_hint("Create the topic before the table."));
        }
        let (name, kind) = (table.name.clone(), DefinitionKind::Table);
        let new = NewDefinition { name, kind, statement: statement.to_owned() };
        match host.define(&self.client, new).await {
            Err(error) if may_be_there && error.state == SqlState::DUPLICATE_TABLE => Ok(()),
            done => done,
        }
    }

    async fn drop_tables(&mut self, names: &[String], may_be_gone: bool) -> Result<(), SqlError> {
        for name in names {
            match self.server.host.undefine(&self.client, DefinitionKind::Table, name).await {
                Err(error) if may_be_gone && error.state == SqlState::UNDEFINED_TABLE => {}
                done => done?,
            }
        }
        Ok(())
    }
}
