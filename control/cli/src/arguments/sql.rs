//! Commands that use the SQL interface of a broker.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::streams::{BROKER, Login};
use crate::table::View;

#[derive(Debug, Subcommand)]
pub(crate) enum SqlCommand {
    /// Run SQL statements over topics of a broker, from -c or standard input
    Sql(Sql),

    /// Run a live query: print its rows, then each change, until Ctrl-C
    Subscribe(Subscribe),

    /// List and cancel running SQL queries of a broker
    Query {
        #[command(flatten)]
        server: SqlOptions,

        #[command(subcommand)]
        command: QueryCommand,
    },
}

/// SQL address of the broker, and the login.
#[derive(Clone, Debug, Args)]
pub(crate) struct SqlOptions {
    /// SQL address of the broker [default: $MEMLANE_SQL, or 127.0.0.1:5433]
    #[arg(long, global = true, help_heading = BROKER, value_name = "HOST:PORT")]
    pub(crate) server: Option<String>,

    #[command(flatten)]
    pub(crate) login: Login,
}

#[derive(Debug, Args)]
pub(crate) struct Sql {
    #[command(flatten)]
    pub(crate) server: SqlOptions,

    /// Statements, separated by ;, or a single one with --json. COPY reads rows from standard input
    /// or writes them to standard output, in the format that it names
    #[arg(short, long, value_name = "SQL")]
    pub(crate) command: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Subscribe {
    /// A SELECT, or the name of a table, such as orders$current
    pub(crate) query: String,

    #[command(flatten)]
    pub(crate) server: SqlOptions,

    /// Omit existing rows, and start with the first change
    #[arg(long)]
    pub(crate) no_snapshot: bool,

    /// Also print rows that report progress
    #[arg(long)]
    pub(crate) progress: bool,

    /// Show the partition and offset of each row
    #[arg(long)]
    pub(crate) position: bool,

    /// Minimum interval between changes of a key; only the last state is printed
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) every: Option<Duration>,

    /// Start at this point: milliseconds since 1970, a time, or offsets such as 0:17,1:20
    /// (partition:offset)
    #[arg(long, value_name = "POINT")]
    pub(crate) as_of: Option<String>,

    /// Replay records at this multiple of their original speed
    #[arg(long, value_name = "FACTOR", value_parser = speed)]
    pub(crate) speed: Option<f64>,

    /// Stop after this number of rows
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum QueryCommand {
    /// List your own running queries, or those of all users if you may describe the cluster
    #[command(visible_alias = "ls")]
    List(View),

    /// Cancel a query; its client gets an error and stays connected
    Cancel {
        /// Process id, from memlane query list
        pid: i32,
    },
}

fn speed(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(factor) if f64::is_finite(factor) && factor > 0.0 => Ok(factor),
        _ => Err("must be a number above 0, such as 1.0".to_owned()),
    }
}
