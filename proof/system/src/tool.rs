//! Third-party programs, run to their end with a time limit.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use crate::interruption::Interruption;

/// Interval at which a thread that waits for a program checks for Ctrl-C.
const LOOK_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

const TIME_LIMIT: Duration = Duration::from_secs(300);

/// Time limit for the end of a program after the signal.
const END_TIME_LIMIT: Duration = Duration::from_secs(10);

/// A program to run.
pub struct Tool {
    command: Command,
    time_limit: Duration,
    end_signal: Option<Signal>,
}

/// Result of a program, and its output.
#[derive(Debug)]
pub struct ToolOutput {
    /// `None` if a signal ended it.
    pub exit_code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Tool {
    /// Creates a command of `words`, the program and its arguments, none of which contains a blank.
    pub fn new(words: &str) -> Self {
        let mut words = words.split_whitespace();
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).stdin(Stdio::null());
        // Debian installs administration programs in other folders.
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{path}:/usr/local/sbin:/usr/sbin:/sbin"));
        Self { command, time_limit: TIME_LIMIT, end_signal: None }
    }

    /// Returns the program and its arguments, for records.
    pub fn command_line(&self) -> String {
        name_of(&self.command)
    }

    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    pub fn args<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.command.args(arguments);
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    pub fn current_dir(mut self, folder: &Path) -> Self {
        self.command.current_dir(folder);
        self
    }

    /// Uses the file as the program's standard input.
    pub fn input(mut self, file: File) -> Self {
        self.command.stdin(file);
        self
    }

    /// Redirects the output of a background program.
    pub fn output_to(mut self, file: File) -> Result<Self> {
        self.command.stderr(file.try_clone().context("cannot share a file for output")?);
        self.command.stdout(file);
        Ok(self)
    }

    /// Starts the program in a separate process group, so that Ctrl-C reaches only its parent.
    pub fn own_group(mut self) -> Self {
        self.command.process_group(0);
        self
    }

    /// Sets the signal sent first to a program that must end early, so that it can end its
    /// children.
    pub fn ended_by(mut self, signal: Signal) -> Self {
        self.end_signal = Some(signal);
        self
    }

    pub fn time_limit(mut self, time_limit: Duration) -> Self {
        self.time_limit = time_limit;
        self
    }

    pub(crate) fn into_command(self) -> Command {
        self.command
    }

    /// Runs the program to its end and returns its result.
    pub fn run(mut self) -> Result<ToolOutput> {
        let name = name_of(&self.command);
        let mut stdout = tempfile::tempfile().context("cannot make a file for output")?;
        let mut stderr = tempfile::tempfile().context("cannot make a file for output")?;
        self.command.stdout(stdout.try_clone()?).stderr(stderr.try_clone()?);
        let mut child = self.command.spawn().with_context(|| format!("cannot run {name}"))?;
        let deadline = Instant::now() + self.time_limit;
        let status = loop {
            if let Some(status) =
                child.try_wait().with_context(|| format!("cannot wait for {name}"))?
            {
                break status;
            }
            let is_late = Instant::now() >= deadline;
            if is_late || Interruption::is_asked_for() {
                end(&mut child, self.end_signal).with_context(|| format!("cannot end {name}"))?;
                ensure!(is_late, "interrupted during {name}");
                bail!("{name} did not end within {:?}: {}", self.time_limit, text_of(&mut stderr)?);
            }
            wait_a_little(&child);
        };
        Ok(ToolOutput {
            exit_code: status.code(),
            stdout: text_of(&mut stdout)?,
            stderr: text_of(&mut stderr)?,
        })
    }

    /// Runs the program, which must succeed, and returns its standard output.
    pub fn check(self) -> Result<String> {
        let name = name_of(&self.command);
        let output = self.run()?;
        if output.exit_code != Some(0) {
            bail!("{name} failed ({:?}): {}{}", output.exit_code, output.stdout, output.stderr);
        }
        Ok(output.stdout)
    }
}

/// Sends the program its signal, if it has one, and kills it if it does not end.
fn end(child: &mut Child, signal: Option<Signal>) -> std::io::Result<()> {
    let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some((signal, id)) = signal.zip(id) {
        kill_process(id, signal)?;
        let deadline = Instant::now() + END_TIME_LIMIT;
        while Instant::now() < deadline {
            if child.try_wait()?.is_some() {
                return Ok(());
            }
            wait_a_little(child);
        }
    }
    child.kill()?;
    child.wait().map(|_| ())
}

/// Waits for the end of the program, up to the interval in which Ctrl-C must be noticed. Wakes no
/// processor while the program runs, so that it can be measured.
pub(crate) fn wait_a_little(child: &Child) {
    let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let process = id.and_then(|id| pidfd_open(id, PidfdFlags::empty()).ok());
    let Some(process) = process else {
        // On a kernel without process descriptors, waits by the clock.
        return std::thread::sleep(Duration::from_millis(2));
    };
    // A signal ends the wait, as intended.
    let _ = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&LOOK_INTERVAL));
}

/// Returns the program and its arguments, without its environment.
pub(crate) fn name_of(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

fn text_of(file: &mut File) -> Result<String> {
    let mut bytes = Vec::new();
    file.rewind().context("cannot read output")?;
    file.read_to_end(&mut bytes).context("cannot read output")?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_exit_code_are_told() {
        let output = Tool::new("sh -c").arg("echo out; echo err >&2; exit 3").run().expect("runs");
        assert_eq!(output.exit_code, Some(3));
        assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("out\n", "err\n"));
    }

    #[test]
    fn a_program_that_fails_is_named_with_its_words() {
        let error = Tool::new("sh -c").arg("echo why >&2; exit 1").check().expect_err("it fails");
        assert!(error.to_string().contains("why"), "{error}");
    }

    #[test]
    fn a_program_that_does_not_end_is_ended() {
        let tool = Tool::new("sleep 60").time_limit(Duration::from_millis(10));
        let error = tool.run().expect_err("it takes too long");
        assert!(error.to_string().contains("did not end"), "{error}");
    }

    #[test]
    fn a_program_that_is_asked_to_end_may_tidy_up_first() {
        let script = "trap 'kill $!; echo tidied >&2; exit 0' INT; sleep 60 & wait";
        // On a busy host the signal may arrive before the handler is set, so the time is increased.
        let has_tidied = |time_ms| {
            let tool = Tool::new("sh -c").arg(script).ended_by(Signal::INT);
            let error = tool.time_limit(Duration::from_millis(time_ms)).run();
            error.expect_err("it is late").to_string().contains("tidied")
        };
        assert!((0..8).any(|nth| has_tidied(300 << nth)), "it was ended without a word");
    }
}
