//! `memlane`: the command-line interface, for interactive use and scripts.
//!
//! Each command is one request to the daemon with one response, or a task of the daemon to wait
//! for. Commands about topics, groups, records, users and access rules use Kafka's protocol to a
//! broker; `sql`, `subscribe` and `query` use PostgreSQL's. With `--json` exactly one JSON value is
//! printed, also for an error; `consume`, `sql` and `subscribe` print one for each record or row.
//! Scripts rely on that and on the exit codes:
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | failed |
//! | 2 | usage error |
//! | 3 | not found |
//! | 4 | no space in the pool or in the image store |
//! | 5 | daemon or broker not reachable |
//! | 126, 127 | `memlane run`: the program cannot be run, or does not exist |
//! | 130 | Ctrl-C during a task, which continues, or during a statement, which is cancelled |
//!
//! This program uses the interfaces only through `api`, `kafka-client` and PostgreSQL's protocol,
//! and has no state.
#![forbid(unsafe_code)]

mod arguments;
mod commands;
mod failure;
mod output;
mod table;
mod visible;

use std::error::Error;
use std::io::{self, Write};
use std::num::{IntErrorKind, ParseIntError};
use std::process::ExitCode;

use clap::Parser;

use crate::arguments::Arguments;
use crate::failure::Failure;
use crate::output::Form;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) if error.use_stderr() => return refuse_usage(&error),
        // Requested output of help or version.
        Err(help) => return ExitCode::from(u8::from(help.print().is_err())),
    };
    let form = arguments.form();
    if form != Form::Json {
        rest_client::on_slow_answer(|place| {
            output::tell(format_args!(
                "{place} has not answered for 5 s; waiting. The operation may take long, or the \
                 daemon hangs: see its log"
            ));
        });
    }
    match commands::run(arguments) {
        Ok(result) => output::print(&result, form),
        Err(failure) => output::report(&failure, form),
    }
}

/// Reports a usage error. `--json` also applies to an otherwise invalid command line.
fn refuse_usage(error: &clap::Error) -> ExitCode {
    let bad_number = refused_number(error);
    if std::env::args_os().any(|argument| argument == "--json") {
        let message = bad_number.unwrap_or_else(|| error.render().to_string());
        return output::report(&Failure::usage(message.trim_end()), Form::Json);
    }
    // If standard error cannot be written to, only the exit code remains.
    let _ = match bad_number {
        Some(message) => write!(io::stderr(), "{message}"),
        None => error.print(),
    };
    ExitCode::from(failure::EXIT_USAGE)
}

/// Describes a value that is no number, or a number that no option takes.
fn refused_number(error: &clap::Error) -> Option<String> {
    let cause = error.source()?.downcast_ref::<ParseIntError>()?;
    let reason = match cause.kind() {
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "it is out of range",
        _ => "it is not a whole number",
    };
    Some(error.render().to_string().replace(&cause.to_string(), reason))
}
