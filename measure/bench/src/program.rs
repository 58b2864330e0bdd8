//! The program: from arguments to exit code.

use std::process::ExitCode;

use clap::Parser;
use system::Interruption;

use crate::{command, output, run};

/// Runs the command line, and reports failures on standard error.
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
