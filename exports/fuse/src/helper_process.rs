//! Main function of a helper process, which [`HelperRunner`](crate::HelperRunner) starts: it
//! executes one command or runs the fd store, and exits.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use crate::fd_store;
use crate::helper_command::{HelperCommand, Outcome};

/// Runs the command in the arguments after those of the `HelperRunner`. The program's `main` must
/// call it before it starts threads or opens files.
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
        // The parent process has exited.
        Err(_) => ExitCode::FAILURE,
    }
}
