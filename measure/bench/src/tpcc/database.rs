//! Needs of loads and drives from a database, whichever engine it is.

use anyhow::Result;
use serde::Serialize;

use super::input::Input;

/// The sessions of virtual users call themselves so, where sessions have names.
pub(crate) const USERS: &str = "tpcc user";
pub(crate) const OBSERVER: &str = "tpcc observer";

/// The database in servers that hold several.
pub(crate) const NAME: &str = "tpcc";

/// Number of times that a transaction is tried again before it counts as failed.
pub(super) const RETRIES_MAX: u32 = 10;

/// A user's statement that takes longer fails.
pub(super) const STATEMENT_SECONDS_MAX: u64 = 60;

/// All others' statements that take longer fail: the load and its indexes are the longest.
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

    /// Counter by which transactions a minute are counted. They compare with those of the same
    /// engine alone.
    pub(crate) fn transaction_counter(self) -> &'static str {
        match self {
            Self::Postgresql => "pg_stat_database: xact_commit + xact_rollback of all databases",
            Self::Mariadb => "global status: Com_commit + Com_rollback",
            Self::Sqlite => "this driver: SQLite counts none",
        }
    }

    /// Whose processor time the database's is.
    pub(crate) fn process(self) -> &'static str {
        match self {
            Self::Postgresql | Self::Mariadb => "of its own",
            Self::Sqlite => "the driver's: what it computes counts as the load's",
        }
    }
}

/// Way by which transactions reach the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Way {
    /// Each statement by itself, prepared.
    Statements,
    /// A procedure that the database keeps; of PostgreSQL alone.
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

/// End of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Committed,
    /// As its input wanted.
    RolledBack,
}

/// End of a transaction, and the number of times that it was tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) end: End,
    pub(crate) retries: u32,
}

/// A place for the suite's database, which is reached by as many connections as are made.
pub(crate) trait Database: Send + Sync {
    /// Makes the database anew, with its tables and no rows.
    fn create(&self) -> Result<()>;

    /// How many connections can fill tables at a time.
    fn fillers_max(&self) -> u32;

    fn filler(&self) -> Result<Box<dyn Fill>>;

    /// What comes after the rows. Afterwards everything is on storage.
    fn complete(&self) -> Result<()>;

    fn observer(&self) -> Result<Box<dyn Observe>>;

    fn user(&self, way: Way) -> Result<Box<dyn Session>>;
}

/// A connection that rows of one table after the other pass.
pub(crate) trait Fill {
    fn begin(&mut self, table: &'static str) -> Result<()>;

    /// Whole lines in the form of PostgreSQL's COPY.
    fn take(&mut self, rows: &str) -> Result<()>;

    /// Without it the rows since the beginning are not kept.
    fn end(&mut self) -> Result<()>;
}

/// A connection that asks and changes nothing.
pub(crate) trait Observe: Send {
    /// A whole number that a query gives.
    fn number(&mut self, query: &str) -> Result<i64>;

    /// Transactions that the database counted since its start; none where it does not count.
    fn transactions(&mut self) -> Result<Option<i64>>;

    /// Sessions of virtual users that have not left yet.
    fn user_count(&mut self) -> Result<i64>;
}

/// A place that reports can be made of too.
pub(crate) trait Reporting: Database {
    fn clerk(&self) -> Result<Box<dyn Clerk>>;
}

/// A connection of somebody who makes reports.
pub(crate) trait Clerk: Send {
    /// Statements without results.
    fn batch(&mut self, statements: &str) -> Result<()>;

    /// One statement. Returns how many rows it made or changed.
    fn count_of(&mut self, statement: &str) -> Result<u64>;
}

/// A virtual user's connection.
pub(crate) trait Session: Send {
    /// Runs one transaction from its beginning to its end, and again where the database ended it
    /// for the sake of another one.
    fn run(&mut self, warehouse: i32, input: &Input) -> Result<Done>;
}
