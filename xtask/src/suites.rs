//! Runs test executables, each with a time limit, and counts their tests.
//!
//! `plan` determines which of them run concurrently.
//!
//! If a suite times out, its stacks are shown and all its processes are killed. A file of tests
//! that runs no test is a failure, because it would hide that something is no longer tested. In
//! continuous integration, a skipped test is a failure too.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::cargo::{Executable, ExecutableKind};
use crate::failures;
use crate::plan::{Next, Plan};
use crate::progress::{Progress, clock};
use crate::stuck;
use crate::times::Times;

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Maximum number of concurrent suites, because those that start programs take memory.
const SUITES_AT_ONCE_MAX: usize = 4;

/// Number of slowest suites named at the end.
const SLOWEST_SHOWN: usize = 20;

/// Maximum number of output lines shown of a failed suite. The log has all of them.
const LINES_SHOWN_MAX: usize = 200;

/// Prefixes of lines that passing tests print: the reason for which they were skipped, or their
/// measurements.
const SKIPPED: &str = "skipped:";
const REMARKS: &[&str] = &[SKIPPED, "measured:"];

/// Set in continuous integration, where no test may be skipped.
const CI_VARIABLE: &str = "CI";

/// Numbers of passed and failed tests.
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

/// Results of all suites.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub counts: Counts,
    /// Failure reports for the end.
    pub failures: Vec<String>,
    /// Numbers of skipped tests, by reason.
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

    /// Counts skipped tests as failures if the policy says so.
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

    /// Returns the closing line.
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

/// Effect of a skipped test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SkipPolicy {
    /// It is reported only.
    Counted,
    /// It counts as failed.
    Refused,
}

impl SkipPolicy {
    /// Returns the policy of the environment.
    pub(crate) fn of_environment() -> Self {
        match std::env::var_os(CI_VARIABLE) {
            Some(value) if !value.is_empty() && value != "false" => Self::Refused,
            _ => Self::Counted,
        }
    }
}

/// Settings for running suites.
pub(crate) struct Runner {
    /// Folder of the suites' logs.
    pub log_folder: PathBuf,
    pub time_limit: Duration,
    /// Environment variables of every suite.
    pub variables: Vec<(OsString, OsString)>,
}

impl Runner {
    /// Runs all `suites`, as many concurrently as there are cores, and reports their results.
    pub(crate) fn run_all(&self, root: &Path, suites: &[Executable]) -> Result<Outcome> {
        fs::create_dir_all(&self.log_folder)
            .with_context(|| format!("cannot create {}", self.log_folder.display()))?;
        let at_once = thread::available_parallelism().map_or(2, usize::from);
        let times = Times::read(root);
        let plan = Plan::new(suites, &times, at_once.clamp(2, SUITES_AT_ONCE_MAX));
        let run = Run { plan, progress: Progress::new(suites.len()), times };
        let shared = Shared { run: Mutex::new(run), ended: Condvar::new() };
        let total = thread::scope(|scope| {
            let workers = 0..at_once.clamp(2, SUITES_AT_ONCE_MAX);
            let workers: Vec<_> = workers.map(|_| scope.spawn(|| self.work(&shared))).collect();
            let mut total = Outcome::default();
            for worker in workers {
                total.add(worker.join().expect("a run of suites returns its errors")?);
            }
            Ok::<_, anyhow::Error>(total)
        })?;
        let Run { progress, times, .. } =
            shared.run.into_inner().unwrap_or_else(PoisonError::into_inner);
        eprintln!("{} suites in {}", suites.len(), clock(progress.elapsed()));
        show_slowest(suites, &times);
        times.save()?;
        Ok(total)
    }

    /// Runs suites one after the other until none is waiting.
    fn work(&self, shared: &Shared<'_>) -> Result<Outcome> {
        let mut total = Outcome::default();
        while let Some(suite) = shared.next() {
            let start = Instant::now();
            let outcome = self.run(suite);
            shared.ended(suite, start.elapsed());
            total.add(outcome?);
        }
        Ok(total)
    }

    fn run(&self, suite: &Executable) -> Result<Outcome> {
        let log_path = self.log_folder.join(format!("{}.log", suite.name.replace('/', "-")));
        let start = Instant::now();
        let ended = self.run_into(suite, &log_path)?;
        let log = fs::read(&log_path).context("cannot read the suite's log")?;
        let log = String::from_utf8_lossy(&log);
        let counts = verdict(suite, ended, counts_in(&log), failures::panics_in(&log));
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
        // In one call, because another suite may report concurrently.
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

/// State of one run of suites.
struct Run<'a> {
    plan: Plan<'a>,
    progress: Progress,
    times: Times,
}

/// State shared by the workers.
struct Shared<'a> {
    run: Mutex<Run<'a>>,
    /// Notified when a suite has ended.
    ended: Condvar,
}

impl<'a> Shared<'a> {
    /// Waits for the next suite that may run. Returns `None` when none is waiting.
    fn next(&self) -> Option<&'a Executable> {
        let mut run = self.lock();
        loop {
            match run.plan.next() {
                Next::Run(suite) => {
                    run.progress.step(&suite.name);
                    return Some(suite);
                }
                Next::Wait => run = self.ended.wait(run).unwrap_or_else(PoisonError::into_inner),
                Next::End => return None,
            }
        }
    }

    fn ended(&self, suite: &Executable, took: Duration) {
        let mut run = self.lock();
        run.plan.ended(suite);
        run.times.note(&suite.name, took);
        self.ended.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Run<'a>> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn show_slowest(suites: &[Executable], times: &Times) {
    let time_of = |suite: &Executable| times.of(&suite.name).unwrap_or_default();
    let mut slowest: Vec<_> = suites.iter().map(|suite| (time_of(suite), &suite.name)).collect();
    slowest.sort_unstable_by(|one, other| other.cmp(one));
    eprintln!("the slowest:");
    for (took, name) in slowest.iter().take(SLOWEST_SHOWN) {
        eprintln!("  {} {name}", clock(*took));
    }
}

/// End of a suite's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Well,
    WithFailures,
    OutOfTime,
}

/// Returns the counts of a suite. One that dies, hangs, runs no test, or in which a thread
/// panicked, has at least one failure.
fn verdict(suite: &Executable, ended: Ended, counted: Counts, panics: usize) -> Counts {
    let ran_nothing = counted == Counts::default();
    let must_run = suite.kind == ExecutableKind::IntegrationTests;
    if ran_nothing && must_run {
        eprintln!("  {} ran no test", suite.name);
        return Counts { passed: 0, failed: 1 };
    }
    let failed_at_least = u64::from(ended != Ended::Well || panics > 0);
    Counts { failed: counted.failed.max(failed_at_least), ..counted }
}

/// Sums the lines `test result: ok. 3 passed; 0 failed; …`. A suite that died printed none.
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

/// Returns the reasons for skips in a suite's log. The name of a test that runs alone is on the
/// same line.
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
        assert_eq!(verdict(&suite(kind), ended, counted, 0), expected);
    }

    #[test]
    fn a_file_of_tests_that_runs_none_has_failed() {
        check(ExecutableKind::IntegrationTests, Ended::Well, (0, 0), (0, 1));
        check(ExecutableKind::UnitTests, Ended::Well, (0, 0), (0, 0));
    }

    #[test]
    fn a_suite_in_which_a_thread_panicked_has_failed() {
        let log = "thread 'serve' (7) panicked at src/lib.rs:3:5:\nit broke\n";
        let passed = Counts { passed: 2, failed: 0 };
        let judged = verdict(
            &suite(ExecutableKind::UnitTests),
            Ended::Well,
            passed,
            failures::panics_in(log),
        );
        assert_eq!(judged, Counts { passed: 2, failed: 1 });
    }

    #[test]
    fn a_suite_that_dies_or_hangs_has_failed() {
        check(ExecutableKind::UnitTests, Ended::WithFailures, (0, 0), (0, 1));
        check(ExecutableKind::UnitTests, Ended::OutOfTime, (2, 0), (2, 1));
        check(ExecutableKind::UnitTests, Ended::WithFailures, (2, 3), (2, 3));
    }
}
