//! The commands that ask a broker by SQL.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::streams::Login;
use crate::table::View;

#[derive(Debug, Subcommand)]
pub(crate) enum SqlCommand {
    /// Run SQL over the topics of a broker: a command, or the text of standard input
    Sql(Sql),

    /// Print the rows of a query, and then each change of them, until Ctrl-C
    Subscribe(Subscribe),

    /// Show the queries that a broker runs, and end them
    Query {
        #[command(flatten)]
        server: SqlOptions,

        #[command(subcommand)]
        command: QueryCommand,
    },
}

/// Where the broker speaks SQL, and as whom to speak to it.
#[derive(Clone, Debug, Args)]
pub(crate) struct SqlOptions {
    /// The broker, where it speaks SQL [default: $MEMLANE_SQL, or 127.0.0.1:5433]
    #[arg(long, global = true, value_name = "HOST:PORT")]
    pub(crate) server: Option<String>,

    #[command(flatten)]
    pub(crate) login: Login,
}

#[derive(Debug, Args)]
pub(crate) struct Sql {
    #[command(flatten)]
    pub(crate) server: SqlOptions,

    /// Statements, with ; between them; with --json one statement. COPY takes rows from standard
    /// input or writes them to standard output, in the format that it names
    #[arg(short, long, value_name = "SQL")]
    pub(crate) command: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Subscribe {
    /// A SELECT, or the name of a table, such as orders$current
    pub(crate) query: String,

    #[command(flatten)]
    pub(crate) server: SqlOptions,

    /// Begin with the first change, not with the rows that are there
    #[arg(long)]
    pub(crate) no_snapshot: bool,

    /// Say how far it has come, also while nothing changes
    #[arg(long)]
    pub(crate) progress: bool,

    /// Show the partition and offset of each row
    #[arg(long)]
    pub(crate) position: bool,

    /// At most one change of a key in this time: its last one
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) every: Option<Duration>,

    /// Begin there: milliseconds since 1970, a time, or offsets of partitions as 0:17,1:20
    #[arg(long, value_name = "POINT")]
    pub(crate) as_of: Option<String>,

    /// Replay what happened at this multiple of its speed
    #[arg(long, value_name = "FACTOR", value_parser = speed)]
    pub(crate) speed: Option<f64>,

    /// End after so many rows
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum QueryCommand {
    /// List the queries of all who may be seen: one's own, or everybody's for who may describe the
    /// cluster
    #[command(visible_alias = "ls")]
    List(View),

    /// End a query; its client gets an error, and stays connected
    Cancel {
        /// As `memlane query list` shows it
        pid: i32,
    },
}

fn speed(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(factor) if f64::is_finite(factor) && factor > 0.0 => Ok(factor),
        _ => Err("must be a number above 0, such as 1.0".to_owned()),
    }
}
