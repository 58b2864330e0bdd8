//! Running of fio processes.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use system::Tool;

use super::job::{Amount, Job};
use super::outcome::{Outcome, parse};
use crate::targets::target::Target;

/// Maximum time beyond the measured time, for starting and for writing everything once.
const EXTRA_TIME_LIMIT: Duration = Duration::from_secs(600);

/// Reports total latencies. The two parts are only reported as means.
const REPORT: &[&str] =
    &["--output-format=json+", "--lat_percentiles=1", "--percentile_list=50:90:99:99.9:99.99"];

/// Returns fio's command line for the job, for the record.
pub fn command_line(job: &Job, target: &Target) -> String {
    let arguments = job.arguments(target);
    let report = REPORT.iter().map(|argument| (*argument).to_owned());
    let program = program(target).into_iter();
    program.chain(arguments).chain(report).collect::<Vec<_>>().join(" ")
}

/// Runs the job on the target to completion. Returns the results and the raw report.
pub fn run(job: &Job, target: &Target) -> Result<(Outcome, String)> {
    let seconds = match job.amount {
        Amount::Seconds(seconds) => Duration::from_secs_f64(seconds),
        Amount::Once => Duration::ZERO,
    };
    let text = run_with(target, &job.arguments(target), REPORT, seconds)?;
    let outcome = parse(&text).with_context(|| format!("cannot measure {}", target.name()))?;
    Ok((outcome, text))
}

/// Writes the first `bytes` of the target with checksums, reads them back and verifies them.
pub(crate) fn verify(job: &Job, target: &Target, bytes: u64) -> Result<()> {
    let mut arguments = job.arguments(target);
    arguments.retain(|argument| !argument.starts_with("--size="));
    arguments.push(format!("--size={bytes}"));
    let verify = ["--verify=crc32c", "--verify_fatal=1", "--do_verify=1", "--verify_state_save=0"];
    run_with(target, &arguments, &verify, Duration::ZERO).with_context(|| {
        format!("verification failed: {} does not contain the data written to it", target.name())
    })?;
    Ok(())
}

/// Returns the fio command with its prefix.
fn program(target: &Target) -> Vec<String> {
    target.starter().iter().cloned().chain(["fio".to_owned()]).collect()
}

fn run_with(
    target: &Target,
    arguments: &[String],
    more: &[&str],
    seconds: Duration,
) -> Result<String> {
    let tool = Tool::new("env").args(program(target)).args(arguments).args(more);
    let tool = tool.time_limit(seconds + EXTRA_TIME_LIMIT);
    // Its jobs have separate sessions and must be signalled, otherwise they would continue.
    let tool = tool.own_group().ended_by(Signal::INT);
    let output = tool.run()?;
    // Limited, because fio prints each failed request.
    let mut lines = output.stderr.lines().chain(output.stdout.lines());
    let said = lines.find(|line| !line.trim().is_empty()).unwrap_or("no output");
    ensure!(output.exit_code == Some(0), "fio failed ({:?}): {said}", output.exit_code);
    Ok(output.stdout)
}

/// Returns the names of the available fio engines.
pub fn engines() -> Result<Vec<String>> {
    let text = Tool::new("fio --enghelp").check()?;
    Ok(text.lines().skip(1).map(|line| line.trim().to_owned()).collect())
}
