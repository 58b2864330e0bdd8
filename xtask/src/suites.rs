//! Runs test executables, each with a time limit, and counts what they ran.
//!
//! Suites that only compute run two at a time; those that measure, or use devices, programs or all
//! cores of the host, run alone.
//!
//! A suite that runs out of time shows its stacks and is ended with everything it started. A file
//! of tests that runs none is a failure: it would hide that something is no longer tested. So is,
//! in continuous integration, a test that could not be run there.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::cargo::{Executable, ExecutableKind};
use crate::failures;
use crate::progress::{Progress, clock};
use crate::stuck;

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Suites that run at the same time.
const SUITES_AT_ONCE: usize = 2;

/// The crates whose suites need memory, files and time to compute, and nothing else of the host.
const PAIRED_CRATES: &[&str] = &[
    "api",
    "block-device",
    "codec",
    "durable-set",
    "image",
    "journal",
    "model",
    "object-images",
    "page-store",
    "peers",
    "powercut",
    "report",
    "results",
    "shared-ring",
    "storage",
    "streaming-copy",
    "sync",
    "units",
    "volumes",
    "xtask",
];

/// How much of the output of a failed suite is shown; all of it stays in the log.
const LINES_SHOWN_MAX: usize = 200;

/// Tests print a line with one of these at its beginning to say something although they passed:
/// that they tested nothing, and why, or what they measured.
const SKIPPED: &str = "skipped:";
const REMARKS: &[&str] = &[SKIPPED, "measured:"];

/// Set in continuous integration, where everything is to be tested.
const CI_VARIABLE: &str = "CI";

/// Tests that passed and failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub passed: u64,
    pub failed: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

/// What came of everything that was run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub counts: Counts,
    /// What to say at the end of what failed.
    pub failures: Vec<String>,
    /// How often something was not tested, by the reason.
    pub skips: BTreeMap<String, u64>,
}

impl Outcome {
    pub(crate) fn add(&mut self, other: Self) {
        self.counts.add(other.counts);
        self.failures.extend(other.failures);
        for (reason, count) in other.skips {
            *self.skips.entry(reason).or_default() += count;
        }
    }

    /// Where everything is to be tested, what was not is a failure.
    #[must_use]
    pub(crate) fn judged(mut self, policy: SkipPolicy) -> Self {
        if policy == SkipPolicy::Refused {
            for (reason, count) in &self.skips {
                self.counts.failed += count;
                self.failures.push(format!("failed, as it was not tested: {count} × {reason}"));
            }
        }
        self
    }

    /// The closing line.
    pub(crate) fn summary(&self) -> String {
        let Counts { passed, failed } = self.counts;
        let mut line = format!("{passed} passed, {failed} failed");
        let skipped: u64 = self.skips.values().sum();
        if skipped > 0 {
            let reasons = self.skips.iter().map(|(reason, count)| format!("{count} × {reason}"));
            let reasons = reasons.collect::<Vec<_>>().join("; ");
            line += &format!(", {skipped} skipped ({reasons})");
        }
        line
    }
}

/// What a test that could not be run counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SkipPolicy {
    /// It is said, and no more.
    Counted,
    /// It has failed.
    Refused,
}

impl SkipPolicy {
    /// The policy of the place where this runs.
    pub(crate) fn of_environment() -> Self {
        match std::env::var_os(CI_VARIABLE) {
            Some(value) if !value.is_empty() && value != "false" => Self::Refused,
            _ => Self::Counted,
        }
    }
}

/// How suites are run.
pub(crate) struct Runner {
    /// Where each suite's output goes.
    pub log_folder: PathBuf,
    pub time_limit: Duration,
    /// Set for every suite.
    pub variables: Vec<(OsString, OsString)>,
}

impl Runner {
    /// Runs all `suites`, those that may two at a time, and says how each went.
    pub(crate) fn run_all(&self, suites: &[Executable]) -> Result<Outcome> {
        fs::create_dir_all(&self.log_folder)
            .with_context(|| format!("cannot create {}", self.log_folder.display()))?;
        let progress = Mutex::new(Progress::new(suites.len()));
        let (paired, alone): (Vec<_>, Vec<_>) =
            suites.iter().partition(|suite| PAIRED_CRATES.contains(&suite.crate_name()));
        let mut total = self.run_at_once(SUITES_AT_ONCE, &paired, &progress)?;
        total.add(self.run_at_once(1, &alone, &progress)?);
        let elapsed = progress.into_inner().unwrap_or_else(PoisonError::into_inner).elapsed();
        eprintln!("{} suites in {}", suites.len(), clock(elapsed));
        Ok(total)
    }

    /// Runs `suites` in order, `count` of them at any time.
    fn run_at_once(
        &self,
        count: usize,
        suites: &[&Executable],
        progress: &Mutex<Progress>,
    ) -> Result<Outcome> {
        let waiting = Mutex::new(suites.iter());
        let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
        let run_some = || -> Result<Outcome> {
            let mut total = Outcome::default();
            while let Some(suite) = next() {
                progress.lock().unwrap_or_else(PoisonError::into_inner).step(&suite.name);
                total.add(self.run(suite)?);
            }
            Ok(total)
        };
        thread::scope(|scope| {
            let runs: Vec<_> = (0..count).map(|_| scope.spawn(run_some)).collect();
            let mut total = Outcome::default();
            for run in runs {
                total.add(run.join().expect("a run of suites returns its errors")?);
            }
            Ok(total)
        })
    }

    fn run(&self, suite: &Executable) -> Result<Outcome> {
        let log_path = self.log_folder.join(format!("{}.log", suite.name.replace('/', "-")));
        let start = Instant::now();
        let ended = self.run_into(suite, &log_path)?;
        let log = fs::read(&log_path).context("cannot read the suite's log")?;
        let log = String::from_utf8_lossy(&log);
        let counts = verdict(suite, ended, counts_in(&log));
        let Counts { passed, failed } = counts;
        let elapsed = clock(start.elapsed());
        let mut report = format!("  {}: {passed} passed, {failed} failed in {elapsed}", suite.name);
        let mut failures = Vec::new();
        for line in log.lines().filter(|line| is_remark(line)) {
            report += &format!("\n  {line}");
        }
        if failed > 0 {
            for line in last_lines(&log) {
                report += &format!("\n  | {line}");
            }
            report += &format!("\n  {ended:?}; the whole output is in {}", log_path.display());
            failures = failures::summary(&suite.name, &log);
        }
        // In one piece, as another suite may report at the same time.
        eprintln!("{report}");
        Ok(Outcome { counts, failures, skips: skips_in(&log) })
    }

    fn run_into(&self, suite: &Executable, log_path: &Path) -> Result<Ended> {
        let log = File::create(log_path)
            .with_context(|| format!("cannot create {}", log_path.display()))?;
        let mut child = Command::new(&suite.path)
            .arg("--show-output")
            .current_dir(&suite.folder)
            .env("CARGO_MANIFEST_DIR", &suite.folder)
            .env("RUST_BACKTRACE", "1")
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("cannot share the log")?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot run {}", suite.path.display()))?;
        let deadline = Instant::now() + self.time_limit;
        loop {
            if let Some(status) = child.try_wait().context("cannot wait for the suite")? {
                return Ok(if status.success() { Ended::Well } else { Ended::WithFailures });
            }
            if Instant::now() >= deadline {
                stuck::show_stacks_and_end(child.id());
                child.wait().context("cannot wait for the suite")?;
                return Ok(Ended::OutOfTime);
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
}

/// How a suite's process came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Well,
    WithFailures,
    OutOfTime,
}

/// What the suite counts for: one that dies, hangs or runs nothing has failed at least once.
fn verdict(suite: &Executable, ended: Ended, counted: Counts) -> Counts {
    let ran_nothing = counted == Counts::default();
    let must_run = suite.kind == ExecutableKind::IntegrationTests;
    if ran_nothing && must_run {
        eprintln!("  {} ran no test", suite.name);
        return Counts { passed: 0, failed: 1 };
    }
    let failed_at_least = u64::from(ended != Ended::Well);
    Counts { failed: counted.failed.max(failed_at_least), ..counted }
}

/// Sums the lines `test result: ok. 3 passed; 0 failed; …`; a suite that died printed none.
fn counts_in(log: &str) -> Counts {
    let mut counts = Counts::default();
    for line in log.lines().filter(|line| line.starts_with("test result:")) {
        let before = |word: &str| {
            let words: Vec<_> = line.split_whitespace().collect();
            let number = words.windows(2).find(|pair| pair[1] == word).map(|pair| pair[0]);
            number.and_then(|number| number.parse().ok()).unwrap_or(0)
        };
        counts.add(Counts { passed: before("passed;"), failed: before("failed;") });
    }
    counts
}

/// The reasons in a suite's log. A test that runs alone is named on the same line before.
fn skips_in(log: &str) -> BTreeMap<String, u64> {
    let mut skips = BTreeMap::new();
    for line in log.lines() {
        let said = line.split_once(" ... ").map_or(line, |(_, said)| said);
        if let Some(reason) = said.strip_prefix(SKIPPED) {
            *skips.entry(reason.trim().to_owned()).or_default() += 1;
        }
    }
    skips
}

fn is_remark(line: &str) -> bool {
    REMARKS.iter().any(|remark| line.starts_with(remark))
}

fn last_lines(log: &str) -> impl Iterator<Item = &str> {
    let skipped = log.lines().count().saturating_sub(LINES_SHOWN_MAX);
    log.lines().skip(skipped)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suite(kind: ExecutableKind) -> Executable {
        let name = "nbd/clients".to_owned();
        Executable { kind, name, path: PathBuf::new(), folder: PathBuf::new() }
    }

    #[test]
    fn results_are_summed() {
        let log = "test result: ok. 3 passed; 0 failed; 0 ignored;\nx\n\
                   test result: FAILED. 1 passed; 2 failed; 0 ignored;\n";
        assert_eq!(counts_in(log), Counts { passed: 4, failed: 2 });
    }

    const LOG_WITH_SKIPS: &str = "test a ... skipped: no loop devices\nskipped: no loop devices\n\
                                  skipped: fio is not installed\nit was not skipped: no\n";

    #[test]
    fn what_was_not_tested_is_counted_by_the_reason() {
        let counts = Counts { passed: 4, failed: 0 };
        let outcome = Outcome { counts, failures: vec![], skips: skips_in(LOG_WITH_SKIPS) };
        let line = "4 passed, 0 failed, 3 skipped (1 × fio is not installed; 2 × no loop devices)";
        assert_eq!(outcome.judged(SkipPolicy::Counted).summary(), line);
        assert_eq!(Outcome::default().summary(), "0 passed, 0 failed");
    }

    #[test]
    fn where_everything_is_to_be_tested_a_skip_is_a_failure() {
        let outcome = Outcome { skips: skips_in(LOG_WITH_SKIPS), ..Outcome::default() };
        let judged = outcome.judged(SkipPolicy::Refused);
        assert_eq!(judged.counts, Counts { passed: 0, failed: 3 });
        assert!(judged.failures[0].contains("1 × fio is not installed"), "{:?}", judged.failures);
    }

    #[track_caller]
    fn check(kind: ExecutableKind, ended: Ended, counted: (u64, u64), expected: (u64, u64)) {
        let counted = Counts { passed: counted.0, failed: counted.1 };
        let expected = Counts { passed: expected.0, failed: expected.1 };
        assert_eq!(verdict(&suite(kind), ended, counted), expected);
    }

    #[test]
    fn a_file_of_tests_that_runs_none_has_failed() {
        check(ExecutableKind::IntegrationTests, Ended::Well, (0, 0), (0, 1));
        check(ExecutableKind::UnitTests, Ended::Well, (0, 0), (0, 0));
    }

    #[test]
    fn a_suite_that_dies_or_hangs_has_failed() {
        check(ExecutableKind::UnitTests, Ended::WithFailures, (0, 0), (0, 1));
        check(ExecutableKind::UnitTests, Ended::OutOfTime, (2, 0), (2, 1));
        check(ExecutableKind::UnitTests, Ended::WithFailures, (2, 3), (2, 3));
    }
}
