//! Tests that a closed output pipe, as with `head`, is not a failure.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

fn check(words: &str, expected_code: i32) -> Result<()> {
    let (reader, writer) = std::io::pipe()?;
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_memlane-bench"));
    command.args(words.split_whitespace()).stdout(writer).stderr(Stdio::piped());
    let output = command.output().context("the program runs")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(expected_code), "{words}: {:?}: {said}", output.status);
    ensure!(!said.contains("panicked") && !said.contains("cannot print"), "{words}: {said}");
    Ok(())
}

#[test]
fn json_into_a_closed_pipe_ends_quietly() -> Result<()> {
    check("--json schema", 0)?;
    check("--json steps --dry-run", 0)
}

#[test]
fn text_into_a_closed_pipe_ends_quietly() -> Result<()> {
    check("schema", 0)?;
    check("steps --dry-run", 0)
}

#[test]
fn a_failure_stays_one() -> Result<()> {
    check("--json project /nowhere", 1)
}
