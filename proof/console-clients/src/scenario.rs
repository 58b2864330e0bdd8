//! One scenario of the browser: a program that requests actions from its test.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use crate::packages::browser;

/// Time without a request after which a scenario counts as hung, because no scenario waits for
/// itself.
const SILENCE_TIME_LIMIT: Duration = Duration::from_secs(240);

/// Maximum number of output lines shown after a failure.
const LINES_SHOWN: usize = 60;

/// Runs the scenario `name`. `answer` performs the requested actions.
pub(crate) fn run(
    name: &str,
    environment: &[(&str, String)],
    mut answer: impl FnMut(&[String]) -> Result<String>,
) -> Result<()> {
    let errors = tempfile::NamedTempFile::new().context("cannot make a file for errors")?;
    let mut child = Command::new("node")
        .args(["--import", "tsx", "main.ts", name])
        .current_dir(browser()?)
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(errors.reopen().context("cannot share a file for errors")?)
        .spawn()
        .context("cannot run node")?;
    let asked = converse(&mut child, &mut answer);
    if asked.is_err() {
        // It may have ended already.
        let _ = child.kill();
    }
    let status = child.wait().context("cannot wait for a scenario")?;
    let text = std::fs::read_to_string(errors.path()).unwrap_or_default();
    let last: Vec<_> = text.lines().rev().take(LINES_SHOWN).collect();
    let last: Vec<_> = last.into_iter().rev().collect();
    asked.with_context(|| format!("the scenario {name}:\n{}", last.join("\n")))?;
    ensure!(status.success(), "the scenario {name} failed:\n{}", last.join("\n"));
    Ok(())
}

/// Answers requests until the scenario has ended, or is silent for too long.
fn converse(child: &mut Child, answer: &mut impl FnMut(&[String]) -> Result<String>) -> Result<()> {
    let mut input = child.stdin.take().context("its standard input is a pipe")?;
    let output = child.stdout.take().context("its standard output is a pipe")?;
    let (sender, lines) = mpsc::channel();
    // Ends with the scenario's output, or when the receiver is dropped.
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    loop {
        match lines.recv_timeout(SILENCE_TIME_LIMIT) {
            Ok(line) => take(&line, &mut input, answer)?,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => bail!("it hangs"),
        }
    }
}

fn take(
    line: &str,
    input: &mut ChildStdin,
    answer: &mut impl FnMut(&[String]) -> Result<String>,
) -> Result<()> {
    let Some(asked) = line.strip_prefix("ask ") else {
        // Measurements are shown beside the suite's result.
        eprintln!("{line}");
        return Ok(());
    };
    let words: Vec<String> = serde_json::from_str(asked).context("it asks in JSON")?;
    let reply = match answer(&words) {
        Ok(done) => json!({ "done": done }),
        Err(error) => json!({ "failed": format!("{error:#}") }),
    };
    writeln!(input, "{reply}").context("it does not listen")
}
