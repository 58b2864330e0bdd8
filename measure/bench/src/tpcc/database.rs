//! Engine-independent interface of databases for loading and driving.

use anyhow::Result;
use serde::Serialize;

use super::input::Input;

/// Session name of virtual users, for engines with session names.
pub(crate) const USERS: &str = "tpcc user";
pub(crate) const OBSERVER: &str = "tpcc observer";

/// Name of the database in servers with several.
pub(crate) const NAME: &str = "tpcc";

/// Maximum number of retries of a transaction.
pub(super) const RETRIES_MAX: u32 = 10;

/// Timeout of a user's statement.
pub(super) const STATEMENT_SECONDS_MAX: u64 = 60;

/// Timeout of all other statements. Loading and indexing take longest.
pub(super) const LONG_STATEMENT_MINUTES_MAX: u64 = 60;

/// Program that keeps the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Engine {
    /// A server
    Postgresql,
    /// A server
    Mariadb,
    /// A library inside this program; one writer at a time
    Sqlite,
}

impl Engine {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Postgresql => "PostgreSQL",
            Self::Mariadb => "MariaDB",
            Self::Sqlite => "SQLite",
        }
    }

    pub(crate) fn isolation(self) -> &'static str {
        match self {
            Self::Postgresql | Self::Mariadb => "read committed",
            Self::Sqlite => "serializable",
        }
    }

    /// Returns the counter of transactions per minute. It is comparable only within an engine.
    pub(crate) fn transaction_counter(self) -> &'static str {
        match self {
            Self::Postgresql => "pg_stat_database: xact_commit + xact_rollback of all databases",
            Self::Mariadb => "global status: Com_commit + Com_rollback",
            Self::Sqlite => "this driver: SQLite counts none",
        }
    }

    /// Returns the process that the database's processor time belongs to.
    pub(crate) fn process(self) -> &'static str {
        match self {
            Self::Postgresql | Self::Mariadb => "of its own",
            Self::Sqlite => "the driver's: what it computes counts as the load's",
        }
    }
}

/// Method of executing transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Way {
    /// Individual prepared statements.
    Statements,
    /// Stored procedures, on PostgreSQL only.
    Procedures,
}

impl Way {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Statements => "prepared statements",
            Self::Procedures => "stored procedures",
        }
    }
}

/// Outcome of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Committed,
    /// Rolled back, as requested by the input.
    RolledBack,
}

/// Outcome of a transaction, with the number of retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) end: End,
    pub(crate) retries: u32,
}

/// The suite's database, with any number of connections.
pub(crate) trait Database: Send + Sync {
    /// Creates the database with empty tables, replacing an existing one.
    fn create(&self) -> Result<()>;

    /// Returns the maximum number of concurrent loading connections.
    fn fillers_max(&self) -> u32;

    fn filler(&self) -> Result<Box<dyn Fill>>;

    /// Completes the load after all rows. On return everything is on storage.
    fn complete(&self) -> Result<()>;

    fn observer(&self) -> Result<Box<dyn Observe>>;

    fn user(&self, way: Way) -> Result<Box<dyn Session>>;
}

/// A connection that loads rows, one table after the other.
pub(crate) trait Fill {
    fn begin(&mut self, table: &'static str) -> Result<()>;

    /// Adds complete lines in the format of PostgreSQL's COPY.
    fn take(&mut self, rows: &str) -> Result<()>;

    /// Commits the rows since `begin`. Otherwise they are discarded.
    fn end(&mut self) -> Result<()>;
}

/// A read-only connection.
pub(crate) trait Observe: Send {
    /// Returns an integer query result.
    fn number(&mut self, query: &str) -> Result<i64>;

    /// Returns the database's count of transactions since its start, if it has one.
    fn transactions(&mut self) -> Result<Option<i64>>;

    /// Returns the number of remaining sessions of virtual users.
    fn user_count(&mut self) -> Result<i64>;
}

/// A database that also supports reports.
pub(crate) trait Reporting: Database {
    fn clerk(&self) -> Result<Box<dyn Clerk>>;
}

/// A connection that creates reports.
pub(crate) trait Clerk: Send {
    /// Executes statements without results.
    fn batch(&mut self, statements: &str) -> Result<()>;

    /// Executes a statement. Returns the number of affected rows.
    fn count_of(&mut self, statement: &str) -> Result<u64>;
}

/// A virtual user's connection.
pub(crate) trait Session: Send {
    /// Runs one transaction to completion, retrying it after conflicts.
    fn run(&mut self, warehouse: i32, input: &Input) -> Result<Done>;
}
