//! Command line arguments.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, FromArgMatches, Parser, Subcommand};
use results::Suite;
use system::Interruption;

use crate::output::{self, Form};
use crate::run::{Chosen, Options, PlannedSuite, start};
use crate::{
    advise, compare, cpio, doctor, durability, engine, forsa, fusion, log, page, peers, placement,
    project, reduction, sql, steps, tpcc,
};

#[derive(Debug, Parser)]
#[command(name = "memlane-bench", version, about = "Measure Memlane on this machine")]
pub(crate) struct Arguments {
    /// Print JSON instead of text
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

impl Arguments {
    pub(crate) fn form(&self) -> Form {
        if self.json { Form::Json } else { Form::Text }
    }
}

/// A suite's arguments beside those of every run.
#[derive(Debug, clap::Args)]
struct Planned<SuiteArguments: Args> {
    #[command(flatten)]
    arguments: SuiteArguments,
    #[command(flatten, next_help_heading = "Every run")]
    options: Options,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure the engine inside this process, compared with plain memory copies
    Engine(Planned<engine::Arguments>),
    /// Measure each step of the write and read path separately
    Steps(Planned<steps::Arguments>),
    /// Run the ForsaOS matrix with fio: block size, pattern and number of jobs
    Forsa(Planned<forsa::Arguments>),
    /// Run the Fusion ioMemory matrix with fio: transfer size, queue depth and pattern
    Fusion(Planned<fusion::Arguments>),
    /// Run the AMPS test: append and read batches of messages
    Log(Planned<log::Arguments>),
    /// Measure data reduction by deduplication and compression
    Reduction(Planned<reduction::Arguments>),
    /// Run the same jobs on volumes and on competing devices and servers
    Peers(Planned<peers::Arguments>),
    /// Measure the cost of flushes, images and snapshots
    Durability(Planned<durability::Arguments>),
    /// Measure CPU cycles per I/O of applications
    Cpio(Planned<cpio::Arguments>),
    /// Run order processing derived from TPC-C on PostgreSQL, MariaDB or SQLite
    Tpcc(Planned<tpcc::Arguments>),
    /// Measure the gain from placing a part of a database on fast storage
    Placement(Planned<placement::Arguments>),
    /// Measure SQL and live queries over topics, compared with PostgreSQL and a Kafka consumer
    Sql(Planned<sql::Arguments>),
    /// Advise which part of a running PostgreSQL database to place on fast storage
    Advise(advise::Arguments),
    /// Run all suites
    All(Options),
    /// Show the measurements that this machine supports, and reasons for those that it does not
    Doctor,
    /// Print the JSON Schema of the files of a recorded run
    Schema,
    /// Create a report of recorded runs
    Report(page::Arguments),
    /// Project recorded cycles per I/O to servers with more cores
    Project(project::Arguments),
    /// Compare two recorded runs
    Compare(compare::Arguments),
}

pub(crate) fn run(arguments: &Arguments, form: Form) -> Result<ExitCode> {
    match &arguments.command {
        Command::Engine(it) if !it.options.asks_for_record() => {
            Interruption::listen()?;
            engine::run(&it.arguments, form)?;
        }
        Command::Steps(it) if !it.options.asks_for_record() => {
            Interruption::listen()?;
            steps::run(&it.arguments, form)?;
        }
        Command::Reduction(it) if it.arguments.names_sources() && !it.options.asks_for_record() => {
            reduction::run(&it.arguments, it.options.seed, form)?;
        }
        Command::Engine(it) => return start(&it.options, &[engine(&it.arguments)], form),
        Command::Steps(it) => return start(&it.options, &[steps(&it.arguments)], form),
        Command::Forsa(it) => return start(&it.options, &[forsa(&it.arguments)], form),
        Command::Fusion(it) => return start(&it.options, &[fusion(&it.arguments)], form),
        Command::Log(it) => return start(&it.options, &[log(&it.arguments)], form),
        Command::Reduction(it) => return start(&it.options, &[reduction(&it.arguments)], form),
        Command::Peers(it) => return start(&it.options, &[peers(&it.arguments)], form),
        Command::Durability(it) => return start(&it.options, &[durability(&it.arguments)], form),
        Command::Cpio(it) => return start(&it.options, &[cpio(&it.arguments)], form),
        Command::Tpcc(it) => return start(&it.options, &[tpcc(&it.arguments)], form),
        Command::Placement(it) => return start(&it.options, &[placement(&it.arguments)], form),
        Command::Sql(it) => return start(&it.options, &[sql(&it.arguments)], form),
        Command::Advise(it) => advise::run(it, form)?,
        Command::All(options) => return start(options, &all(), form),
        Command::Doctor => doctor::run(&Options::default(), &all(), form)?,
        Command::Schema => output::json(&results::schema()),
        Command::Report(it) => page::run(it)?,
        Command::Project(it) => project::run(it, form)?,
        Command::Compare(it) => return compare::run(it, form),
    }
    Ok(ExitCode::SUCCESS)
}

fn all() -> Vec<Box<dyn PlannedSuite>> {
    vec![
        engine(&defaults()),
        steps(&defaults()),
        forsa(&defaults()),
        fusion(&defaults()),
        log(&defaults()),
        reduction(&defaults()),
        peers(&defaults()),
        durability(&defaults()),
        cpio(&defaults()),
        tpcc(&defaults()),
        placement(&defaults()),
        sql(&defaults()),
    ]
}

/// Returns a suite's default arguments.
fn defaults<SuiteArguments: Args + FromArgMatches>() -> SuiteArguments {
    let command = SuiteArguments::augment_args(clap::Command::new("suite"));
    let matches = command.get_matches_from(["suite"]);
    SuiteArguments::from_arg_matches(&matches).expect("no suite needs to be told anything")
}

macro_rules! suites {
    ($($name:ident: $suite:ident,)*) => {$(
        fn $name(arguments: &$name::Arguments) -> Box<dyn PlannedSuite> {
            Box::new(Chosen {
                suite: Suite::$suite,
                arguments: arguments.clone(),
                plan: $name::plan,
                describe: $name::describe,
            })
        }
    )*};
}

suites! {
    engine: Engine,
    steps: Steps,
    forsa: Forsa,
    fusion: Fusion,
    log: Log,
    reduction: Reduction,
    peers: Peers,
    durability: Durability,
    cpio: Cpio,
    tpcc: Tpcc,
    placement: Placement,
    sql: Sql,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_reference_has_every_option() {
        program::check_reference::<Arguments>(
            concat!(env!("CARGO_MANIFEST_DIR"), "/../..").as_ref(),
        );
    }

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_suite_can_be_told_nothing() {
        assert_eq!(all().len(), 12);
    }

    #[test]
    fn resuming_needs_a_folder() {
        Arguments::try_parse_from(["memlane-bench", "engine", "--resume"])
            .expect_err("there is nothing to continue");
    }
}
