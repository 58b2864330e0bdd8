//! Background processes.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::interruption::Interruption;
use crate::tool::{Tool, name_of, wait_a_little};

/// Unit in which the kernel reports processor time.
const TICKS_PER_S: f64 = 100.0;

/// Text that a Rust program writes at a panic.
const PANIC_WORD: &[u8] = b"panicked";

/// Maximum number of log lines shown after it.
const PANIC_LINES_SHOWN_MAX: usize = 40;

/// A program that runs in the background. Dropping it ends it.
pub struct Background {
    child: Child,
    name: String,
}

impl Background {
    pub fn start(tool: Tool) -> Result<Self> {
        let mut command = tool.into_command();
        let name = name_of(&command);
        let child = command.spawn().with_context(|| format!("cannot run {name}"))?;
        Ok(Self { child, name })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn has_ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().with_context(|| format!("cannot wait for {}", self.name))
    }

    /// Waits for the program's end, which must be successful.
    pub fn finish(mut self, time_limit: Duration) -> Result<()> {
        let deadline = Instant::now() + time_limit;
        loop {
            if let Some(status) = self.has_ended()? {
                ensure!(status.success(), "{} failed: {status}", self.name);
                return Ok(());
            }
            ensure!(!Interruption::is_asked_for(), "interrupted during {}", self.name);
            if Instant::now() >= deadline {
                bail!("{} did not end within {time_limit:?}", self.name);
            }
            wait_a_little(&self.child);
        }
    }

    /// Sends a signal to the program.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let id = i32::try_from(self.id()).ok().and_then(Pid::from_raw);
        let id = id.with_context(|| format!("{} has no process id", self.name))?;
        kill_process(id, signal).with_context(|| format!("cannot send {signal:?} to {}", self.name))
    }

    /// Sends the signal and waits until the program has ended, with any result.
    pub fn end(&mut self, signal: Signal, time_limit: Duration) -> Result<ExitStatus> {
        self.signal(signal)?;
        let deadline = Instant::now() + time_limit;
        loop {
            if let Some(status) = self.has_ended()? {
                return Ok(status);
            }
            let is_late = Instant::now() >= deadline;
            ensure!(!is_late, "{} did not end when asked to, for {time_limit:?}", self.name);
            wait_a_little(&self.child);
        }
    }
}

/// Processor time in seconds of all past and present threads of a process: fields 14 and 15 of
/// /proc/PID/stat (proc_pid_stat(5)).
pub fn processor_seconds(id: u32) -> Result<f64> {
    processor_fields(id, 11)
}

/// Processor time in seconds of the present threads of a process, in nanoseconds if the kernel
/// supports it: the first field of their /proc/PID/task/TID/schedstat.
pub fn processor_seconds_of_threads(id: u32) -> Result<f64> {
    let path = format!("/proc/{id}/task");
    let threads = std::fs::read_dir(&path).with_context(|| format!("cannot list {path}"))?;
    let mut ns = 0;
    for thread in threads.flatten() {
        let Ok(text) = std::fs::read_to_string(thread.path().join("schedstat")) else {
            // A kernel without these statistics.
            return processor_seconds(id);
        };
        let field = text.split_whitespace().next().and_then(|field| field.parse::<u64>().ok());
        ns += field.with_context(|| format!("{path} holds a schedstat of {text:?}"))?;
    }
    Ok(std::time::Duration::from_nanos(ns).as_secs_f64())
}

/// Processor time in seconds of the children that have ended and that this process has waited for,
/// and of their children.
pub fn processor_seconds_of_children() -> Result<f64> {
    processor_fields(std::process::id(), 13)
}

fn processor_fields(id: u32, skipped: usize) -> Result<f64> {
    let path = format!("/proc/{id}/stat");
    let stat = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let (_, behind_name) = stat.rsplit_once(')').with_context(|| format!("no name in {path}"))?;
    let mut ticks = 0;
    for field in behind_name.split_whitespace().skip(skipped).take(2) {
        ticks += field.parse::<u32>().with_context(|| format!("{path} holds {field:?}"))?;
    }
    Ok(f64::from(ticks) / TICKS_PER_S)
}

/// Fails if a program has logged a panic, and returns the lines. Release programs end at a panic.
/// Those of tests unwind, and may continue.
pub fn check_for_panics(log: &Path) -> Result<()> {
    let file = match File::open(log) {
        // A program that was never started.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        file => file.with_context(|| format!("cannot read {}", log.display()))?,
    };
    let mut lines = BufReader::new(file).split(b'\n');
    while let Some(line) = lines.next() {
        let line = line.with_context(|| format!("cannot read {}", log.display()))?;
        if !line.windows(PANIC_WORD.len()).any(|word| word == PANIC_WORD) {
            continue;
        }
        // The message is on the following lines.
        let rest = lines.map_while(Result::ok).take(PANIC_LINES_SHOWN_MAX);
        let said: Vec<_> = std::iter::once(line).chain(rest).collect();
        let said = said.join(&b'\n');
        bail!("{} says: {}", log.display(), String::from_utf8_lossy(&said));
    }
    Ok(())
}

impl Drop for Background {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_in_a_log_is_found_and_shown() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("log");
        check_for_panics(&log).expect("nothing was started");
        std::fs::write(&log, "one\ntwo\n").expect("it is written");
        check_for_panics(&log).expect("all went well");
        std::fs::write(&log, "one\nthread 'a' panicked at src/b.rs:1:2:\nwhy\n").expect("written");
        let found = check_for_panics(&log).expect_err("it panicked").to_string();
        assert!(found.contains("src/b.rs:1:2:\nwhy") && !found.contains("one"), "{found}");
    }

    #[test]
    fn threads_and_ticks_agree_on_what_was_used() {
        let own = std::process::id();
        let before = processor_seconds_of_threads(own).expect("the kernel tells");
        let mut sum = 0_u64;
        while processor_seconds_of_threads(own).expect("the kernel tells") < before + 0.2 {
            sum = (0..10_000).fold(sum, |sum, it| std::hint::black_box(sum ^ it));
        }
        assert!(processor_seconds(own).expect("the kernel tells") >= 0.15);
    }
}
