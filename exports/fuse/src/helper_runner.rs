//! Helper processes of the same program, for operations that the serving process must not do.
//!
//! A thread that accesses a file served by its own process cannot be killed while it waits. Such a
//! process would never exit, it would keep its locks, and the next daemon could not start.
//! Therefore each access to the served files (attaching, detaching, resizing, listing attachments)
//! is done by a short-lived helper process. If the server is killed meanwhile, the helper waits for
//! the next server and completes.

use std::ffi::OsString;
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use export_kit::{AttachError, AttachErrorKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::helper_command::{HelperCommand, Outcome};

/// Timeout of a helper. Detaching writes back the page cache, which may be large.
const PATIENCE: Duration = Duration::from_secs(60);

/// Maximum length of a response.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// Command line that starts this program so that it calls [`crate::run_command`] with the arguments
/// that follow `args`.
#[derive(Clone, Debug)]
pub struct HelperRunner {
    pub program: PathBuf,
    pub args: Vec<OsString>,
}

impl HelperRunner {
    /// Runs the current program, even if its file was replaced, with `args` before the other
    /// arguments.
    pub fn same_program(args: impl IntoIterator<Item = OsString>) -> Self {
        Self { program: PathBuf::from("/proc/self/exe"), args: args.into_iter().collect() }
    }

    /// Executes `command` in a helper process, and waits for it.
    pub(crate) fn send(&self, command: &HelperCommand) -> Result<Outcome, AttachError> {
        let start_error = |error| AttachError::at_path("start", &self.program, error);
        let mut child = Command::new(&self.program)
            .args(&self.args)
            .arg(command.to_arg())
            // The daemon's environment may contain keys, and helpers need no variables.
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(start_error)?;
        let answer = read_answer(&mut child, Instant::now() + PATIENCE);
        let answer = answer.map_err(|error| {
            // The helper may be unkillable while it waits for the connection; then it exits when
            // the connection ends.
            let _ = child.kill();
            AttachError::new(AttachErrorKind::Kernel, command.to_string()).with_source(error)
        })?;
        child.wait().map_err(start_error)?;
        Outcome::parse(&answer, command)
    }
}

/// Reads the output of the process until it exits. Fails at `deadline`.
fn read_answer(child: &mut Child, deadline: Instant) -> io::Result<String> {
    let mut stdout = child.stdout.take().expect("it was asked for");
    let mut answer = Vec::new();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).expect("a minute at most");
        match poll(&mut [PollFd::new(&stdout, PollFlags::IN)], Some(&left)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        let mut chunk = [0; 4096];
        let length = stdout.read(&mut chunk)?;
        answer.extend_from_slice(&chunk[..length]);
        if length == 0 || u64::try_from(answer.len()).unwrap_or(u64::MAX) > ANSWER_BYTES_MAX {
            return String::from_utf8(answer).map_err(io::Error::other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn command() -> HelperCommand {
        HelperCommand::List { mount_point: Path::new("/nonexistent").to_owned() }
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let helpers = HelperRunner { program: "/nonexistent/program".into(), args: Vec::new() };
        let error = helpers.send(&command()).expect_err("it cannot be started");
        assert_eq!(error.kind, AttachErrorKind::NotFound);
        assert!(error.to_string().contains("/nonexistent/program"), "{error}");
    }

    #[test]
    fn a_program_that_does_not_know_helper_commands_is_an_error() {
        let helpers = HelperRunner { program: "/bin/true".into(), args: Vec::new() };
        let error = helpers.send(&command()).expect_err("it says nothing");
        assert_eq!(error.kind, AttachErrorKind::Kernel);
    }
}
