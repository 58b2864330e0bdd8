//! The process at the other end of a [`HelperRunner`](crate::HelperRunner): it does one command, or
//! is the fd store, and ends.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use crate::fd_store;
use crate::helper_command::{HelperCommand, Outcome};

/// Runs the command in the arguments after those of the `HelperRunner`. The program's `main` calls
/// it before it starts threads or opens anything.
pub fn run_command(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    if args.first().is_some_and(|first| first.as_bytes() == fd_store::HOLD.as_bytes()) {
        return if fd_store::run().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let Some(command) = HelperCommand::from_args(&args) else {
        return ExitCode::from(2);
    };
    let answer = Outcome::format(&command.run());
    match io::stdout().write_all(answer.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        // The process that asked is gone.
        Err(_) => ExitCode::FAILURE,
    }
}
