//! All that is printed.

use std::io::{self, Write};
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::failure::{EXIT_FAILED, Failure};

/// For whom to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Text,
    Json,
}

/// What a command found out or did, for people and for programs.
#[derive(Debug)]
pub(crate) struct Report {
    /// Without a line break at the end; empty for nothing to say.
    pub(crate) text: String,
    pub(crate) json: Value,
}

/// Prints what a command came to, and returns the exit code.
pub(crate) fn print(report: &Report, form: Form) -> ExitCode {
    let printed = match form {
        Form::Text if report.text.is_empty() => Ok(()),
        Form::Text => print_line(&report.text),
        Form::Json => print_line(&format!("{:#}", report.json)),
    };
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever reads has seen enough, as `head` has.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("memlane: cannot print: {error}");
            ExitCode::from(EXIT_FAILED)
        }
    }
}

/// Prints why a command failed, and returns the exit code.
pub(crate) fn report(failure: &Failure, form: Form) -> ExitCode {
    match form {
        Form::Text => eprintln!("memlane: {}", failure.message),
        Form::Json => {
            let error = json!({"error": {"kind": failure.kind, "message": failure.message}});
            // The exit code says that something failed, whether this can be printed or not.
            let _ = print_line(&format!("{error:#}"));
        }
    }
    ExitCode::from(failure.exit_code)
}

fn print_line(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{text}")?;
    stdout.flush()
}
