//! The program as a whole: arguments in, exit code out.

use std::process::ExitCode;

use clap::Parser;
use system::Interruption;

use crate::{command, output, run};

/// Does what the command line asks for, and reports a failure on standard error.
pub fn run_program() -> ExitCode {
    let arguments = command::Arguments::parse();
    let form = arguments.form();
    command::run(&arguments, form).unwrap_or_else(|error| {
        output::failure(&error, form);
        match Interruption::was_asked_for() {
            true => ExitCode::from(run::INTERRUPTED_EXIT_CODE),
            false => ExitCode::FAILURE,
        }
    })
}
