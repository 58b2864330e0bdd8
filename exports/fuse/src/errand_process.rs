//! The process at the other end of an [`ErrandRunner`](crate::ErrandRunner): it does one errand, or
//! holds the connection, and ends.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use crate::errand::{Errand, Outcome};
use crate::holder;

/// Does what the arguments behind those of the `ErrandRunner` say. To be called by the program's
/// `main` before it starts threads or opens anything.
pub fn run_errand(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    if args.first().is_some_and(|first| first.as_bytes() == holder::HOLD.as_bytes()) {
        return if holder::run().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let Some(errand) = Errand::from_args(&args) else {
        return ExitCode::from(2);
    };
    let answer = Outcome::format(&errand.run());
    match io::stdout().write_all(answer.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever asked is gone.
        Err(_) => ExitCode::FAILURE,
    }
}
