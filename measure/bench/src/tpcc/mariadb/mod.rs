//! The suite's database on MariaDB, over its Unix socket.
//!
//! Tables are InnoDB's, ordered by primary key. Rows are loaded with multi-row inserts.
//! Transactions use read committed, as on PostgreSQL.

mod wire;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use system::database::MariadbServer;

use super::database::{
    Clerk, Database, Fill, LONG_STATEMENT_MINUTES_MAX, NAME, Observe, Reporting,
    STATEMENT_SECONDS_MAX, Session, Way,
};
use super::plain::{Cell, Dialect, Intent, PlainSession, Statement, Statements, Value, texts};
use super::rows::TABLES;
use super::schema::{KEYS, SCHEMA};
use wire::{Prepared, Wire};

const FILLERS_MAX: u32 = 4;

const DIALECT: Dialect = Dialect { hundred: "100", lock: "FOR UPDATE" };

/// Location of a database.
#[derive(Clone, Debug)]
pub(crate) struct Mariadb {
    socket: PathBuf,
}

impl Mariadb {
    /// Returns the suite's database on the server, which may not exist yet.
    pub(crate) fn of(server: &MariadbServer) -> Self {
        Self { socket: server.socket() }
    }

    pub(crate) fn connect(&self) -> Result<Connection> {
        let limit = Duration::from_secs(LONG_STATEMENT_MINUTES_MAX * 60);
        let mut own = self.connect_for(limit)?;
        own.batch(&format!("USE {NAME}"))?;
        Ok(own)
    }

    fn connect_for(&self, answer_time_limit: Duration) -> Result<Connection> {
        let wire = Wire::connect(&self.socket, answer_time_limit);
        Ok(Connection(wire.context("cannot connect to MariaDB")?))
    }
}

impl Database for Mariadb {
    fn create(&self) -> Result<()> {
        let mut own = self.connect_for(Duration::from_secs(LONG_STATEMENT_MINUTES_MAX * 60))?;
        let schema = SCHEMA.replace("timestamptz", "datetime");
        own.batch(&format!(
            "DROP DATABASE IF EXISTS {NAME};
             CREATE DATABASE {NAME} CHARACTER SET latin1 COLLATE latin1_bin;
             USE {NAME}; {schema} {KEYS}"
        ))
    }

    fn fillers_max(&self) -> u32 {
        FILLERS_MAX
    }

    fn filler(&self) -> Result<Box<dyn Fill>> {
        let mut own = self.connect()?;
        own.batch("SET autocommit = 0")?;
        Ok(Box::new(Filler { own, table: "" }))
    }

    fn complete(&self) -> Result<()> {
        let mut own = self.connect()?;
        for (table, _) in TABLES {
            own.batch(&format!("ANALYZE TABLE {table}"))?;
        }
        own.checkpoint()
    }

    fn observer(&self) -> Result<Box<dyn Observe>> {
        Ok(Box::new(self.connect()?))
    }

    fn user(&self, way: Way) -> Result<Box<dyn Session>> {
        ensure!(way == Way::Statements, "stored procedures are supported for PostgreSQL only");
        let mut own = self.connect_for(Duration::from_secs(STATEMENT_SECONDS_MAX))?;
        own.batch(&format!(
            "USE {NAME}; SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;
             SET innodb_lock_wait_timeout = {STATEMENT_SECONDS_MAX}"
        ))?;
        let prepared = texts(DIALECT).map(|text| {
            let prepared = own.0.prepare(&text);
            prepared.with_context(|| format!("cannot prepare {text}"))
        });
        let prepared = prepared.collect::<Result<Vec<_>>>()?;
        Ok(Box::new(PlainSession(User { own, prepared })))
    }
}

impl Reporting for Mariadb {
    fn clerk(&self) -> Result<Box<dyn Clerk>> {
        Ok(Box::new(self.connect()?))
    }
}

/// A blocking connection.
pub(crate) struct Connection(Wire);

impl Connection {
    /// Executes semicolon-separated statements, ignoring results.
    pub(crate) fn batch(&mut self, statements: &str) -> Result<()> {
        let mut each = statements.split(';').map(str::trim).filter(|it| !it.is_empty());
        each.try_for_each(|statement| self.rows(statement).map(|_| ()))
    }

    /// Writes all committed changes to the table files.
    pub(crate) fn checkpoint(&mut self) -> Result<()> {
        self.batch("SET GLOBAL innodb_log_checkpoint_now = ON")
    }

    fn rows(&mut self, statement: &str) -> Result<Vec<Vec<Cell>>> {
        let rows = self.0.query(statement);
        rows.with_context(|| format!("cannot run {}", beginning(statement)))
    }
}

impl Clerk for Connection {
    fn batch(&mut self, statements: &str) -> Result<()> {
        Connection::batch(self, statements)
    }

    fn count_of(&mut self, statement: &str) -> Result<u64> {
        let done = self.0.change(statement);
        done.with_context(|| format!("cannot run {}", beginning(statement)))
    }
}

impl Observe for Connection {
    fn number(&mut self, query: &str) -> Result<i64> {
        let rows = self.rows(query)?;
        let cell = rows.first().and_then(|row| row.last());
        cell.with_context(|| format!("{query} returned no number"))?.whole()
    }

    fn transactions(&mut self) -> Result<Option<i64>> {
        let status = |name: &str| format!("SHOW GLOBAL STATUS LIKE '{name}'");
        Ok(Some(self.number(&status("Com_commit"))? + self.number(&status("Com_rollback"))?))
    }

    fn user_count(&mut self) -> Result<i64> {
        self.number(&format!(
            "SELECT count(*) FROM information_schema.processlist
             WHERE db = '{NAME}' AND id <> connection_id()"
        ))
    }
}

/// Returns the first line, for messages.
fn beginning(statement: &str) -> &str {
    statement.lines().next().unwrap_or_default()
}

/// A loader of rows into a table.
struct Filler {
    own: Connection,
    table: &'static str,
}

impl Fill for Filler {
    fn begin(&mut self, table: &'static str) -> Result<()> {
        self.table = table;
        Ok(())
    }

    fn take(&mut self, rows: &str) -> Result<()> {
        match insertion(self.table, rows) {
            Some(statement) => self.own.rows(&statement).map(|_| ()),
            None => Ok(()),
        }
    }

    fn end(&mut self) -> Result<()> {
        self.own.batch("COMMIT")
    }
}

/// Returns one statement for all rows, or `None` without rows. The data contains neither quotes nor
/// backslashes, except `\N` for null.
fn insertion(table: &str, rows: &str) -> Option<String> {
    let mut statement = format!("INSERT INTO {table} VALUES ");
    for (index, row) in rows.lines().enumerate() {
        statement += if index == 0 { "(" } else { ",(" };
        for (index, field) in row.split('\t').enumerate() {
            if index > 0 {
                statement.push(',');
            }
            match field {
                "\\N" => statement += "NULL",
                // Removes the time zone, which timestamps do not have here.
                field => {
                    statement.push('\'');
                    statement += field.strip_suffix("+00").unwrap_or(field);
                    statement.push('\'');
                }
            }
        }
        statement.push(')');
    }
    statement.ends_with(')').then_some(statement)
}

/// A virtual user's connection.
struct User {
    own: Connection,
    /// In the order of [`Statement`].
    prepared: Vec<Prepared>,
}

impl Statements for User {
    fn begin(&mut self, _: Intent) -> Result<()> {
        self.own.batch("BEGIN")
    }

    fn commit(&mut self) -> Result<()> {
        self.own.batch("COMMIT")
    }

    fn roll_back(&mut self) -> Result<()> {
        self.own.batch("ROLLBACK")
    }

    fn rows(&mut self, statement: Statement, values: &[Value<'_>]) -> Result<Vec<Vec<Cell>>> {
        let prepared = self.prepared[statement as usize];
        let rows = self.own.0.execute(prepared, values);
        rows.with_context(|| format!("the statement {statement:?} failed"))
    }

    fn is_conflict(error: &anyhow::Error) -> bool {
        let refused = error.chain().find_map(|cause| cause.downcast_ref::<wire::Error>());
        refused.is_some_and(wire::Error::is_conflict)
    }
}

#[cfg(test)]
mod tests {
    use super::insertion;

    #[test]
    fn rows_become_one_statement() {
        let rows = "1\tab c\t2026-01-01 00:00:00+00\n2\t\\N\t0.05\n";
        let expected = "INSERT INTO t VALUES ('1','ab c','2026-01-01 00:00:00'),('2',NULL,'0.05')";
        assert_eq!(insertion("t", rows).as_deref(), Some(expected));
        assert_eq!(insertion("t", ""), None);
    }
}
