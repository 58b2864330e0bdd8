//! The tasks of the Makefile's targets.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail, ensure};

use crate::cargo::{self, Executable, ExecutableKind};
use crate::house::{self, House};
use crate::page::{self, Page};
use crate::progress::{Progress, clock};
use crate::suites::{Counts, Outcome, Runner, SkipPolicy};
use crate::tidy;
use crate::{deb, deb_check};

/// A suite that takes longer hangs.
const SUITE_TIME_LIMIT: Duration = Duration::from_secs(10 * 60);
const SOAK_TIME_LIMIT: Duration = Duration::from_secs(8 * 60 * 60);

/// How often the long runs do it, unless the environment says otherwise.
const COUNTS_IN_SOAK: &[(&str, &str)] = &[
    ("MEMLANE_KILLS", "10000"),
    ("MEMLANE_EARLY_KILLS", "200"),
    ("MEMLANE_GUEST_KILLS", "1000"),
    ("MEMLANE_LOG_KILLS", "5000"),
    ("MEMLANE_CUTS", "20"),
    ("MEMLANE_SEED_COUNT", "2000"),
];

/// The variable that chooses the first of the seeds that are not the same in every run.
const FRESH_SEEDS: &str = "MEMLANE_FRESH_SEEDS";

/// The suites of the long runs.
const SOAK_SUITES: &[&str] = &[
    "powercut/volumes",
    "record-log/power_cuts",
    "system/kill_storm",
    "system/early_kills",
    "system/copy_storm",
    "system/command_storm",
    "system/disk_kills",
    "system/ring_storm",
    "system/log_storm",
    "guest/power_cut",
    "guest/ublk",
    "preload/programs",
];

/// All programs, libraries, examples and tests, with the same features: most are compiled once.
const BUILD_ALL: &[&str] = &["build", "--workspace", "--all-targets"];

/// The feature with which every store to a region can end the process's life. No crate asks for
/// it, so that no program has it: what needs it is linted and built by these calls.
const CRASH_POINTS: &str = "volumes/crash-points";
const BUILD_CRASH_TESTS: &[&str] =
    &["test", "--workspace", "--features", CRASH_POINTS, "--test", "crash", "--no-run"];

/// Programs are told by it what they are built of, for the records that they write.
const COMMIT_VARIABLE: &str = "MEMLANE_COMMIT";

/// The programs as they ship, and those that the long runs need beside them.
const BUILD_SHIPPED: &[&str] = &[
    "build",
    "--release",
    "--bins",
    "--lib",
    "-p",
    "daemon",
    "-p",
    "broker",
    "-p",
    "cli",
    "-p",
    "console-server",
    "-p",
    "machines",
    "-p",
    "preload",
    "-p",
    "libmemlane",
    "-p",
    "guest",
    "-p",
    "system",
];

/// The program that measures.
const BENCH: &str = "memlane-bench";

/// The crates whose tests run programs of others that no package of Debian holds, each with the
/// program that fetches those: as long as that takes, which no suite may.
const FETCHERS: &[(&str, &str)] = &[
    ("kafka-clients", "fetch-kafka-clients"),
    ("sql-clients", "fetch-sql-clients"),
    ("console-clients", "fetch-console-clients"),
];

/// The integration tests of this name explore interleavings and need their own build.
const LOOM_TARGET: &str = "loom";

pub(crate) fn tidy() -> Result<()> {
    let house = House::read(&house::root())?;
    let complaints = tidy::complaints(&house);
    for complaint in &complaints {
        eprintln!("{complaint}");
    }
    ensure!(complaints.is_empty(), "tidy found {} complaints", complaints.len());
    let file_count = house.files.len();
    eprintln!("tidy: {} rules hold in {file_count} files", tidy::rule_count());
    Ok(())
}

/// Prints the circles between the modules of the crate at `path`, or of all.
pub(crate) fn print_circles(path: &str) -> Result<()> {
    let house = House::read(&house::root())?;
    let circles = tidy::circles(&house);
    let asked: Vec<_> = circles.iter().filter(|it| it.crate_path.ends_with(path)).collect();
    asked.iter().for_each(|circle| eprintln!("{circle}"));
    eprintln!("{} circles", asked.len());
    Ok(())
}

pub(crate) fn write_unsafe_report() -> Result<()> {
    let root = house::root();
    let text = tidy::report(&House::read(&root)?);
    fs::write(root.join(tidy::REPORT_PATH), text)
        .with_context(|| format!("cannot write {}", tidy::REPORT_PATH))
}

/// Builds the page that the console holds. Where everything is to be checked it must be there.
pub(crate) fn page() -> Result<()> {
    match page::build(&house::root())? {
        Page::Built => Ok(()),
        Page::Missing(reason) => {
            ensure!(SkipPolicy::of_environment() == SkipPolicy::Counted, "no page: {reason}");
            eprintln!("  skipped: no page, as {reason}");
            Ok(())
        }
    }
}

pub(crate) fn check() -> Result<()> {
    let root = house::root();
    let mut progress = Progress::new(5);
    lint(&root, &mut progress)?;
    progress.step("build the unit tests");
    let suites = cargo::build(&root, &["test", "--workspace", "--no-run", "--lib", "--bins"], &[])?;
    progress.step("unit tests");
    conclude(runner(&root, SUITE_TIME_LIMIT).run_all(&suites)?)
}

pub(crate) fn test(filter: &str) -> Result<()> {
    let root = house::root();
    let mut progress = Progress::new(8);
    // The console is built with the page in it.
    progress.step("build the page");
    let mut outcome = counted(page());
    // A broken rule of the house is a failure like others, and no reason not to look for them.
    outcome.add(counted(lint(&root, &mut progress)));
    progress.step("build the programs and the tests");
    let (programs, mut suites): (Vec<_>, Vec<_>) = cargo::build(&root, BUILD_ALL, &[])?
        .into_iter()
        .filter(|executable| !is_loom(executable))
        .partition(|executable| executable.kind == ExecutableKind::Program);
    progress.step("build the crash tests");
    suites.extend(cargo::build(&root, BUILD_CRASH_TESTS, &[])?);
    progress.step("build the tests that explore interleavings");
    suites.extend(loom_suites(&root)?);
    suites.retain(|suite| suite.name.contains(filter));
    ensure!(!suites.is_empty(), "no suite has {filter:?} in its name");
    progress.step("fetch clients of others");
    for (crate_name, fetcher) in FETCHERS {
        if suites.iter().any(|suite| suite.crate_name() == *crate_name) {
            outcome.add(counted(fetch_clients(&programs, fetcher)));
        }
    }
    let mut runner = with_programs(runner(&root, SUITE_TIME_LIMIT), &programs)?;
    if std::env::var_os(FRESH_SEEDS).is_none() {
        runner.variables.extend(seeds_of_commit(&root).map(|first| (FRESH_SEEDS.into(), first)));
    }
    outcome.add(runner.run_all(&suites)?);
    eprintln!("everything took {}", clock(progress.elapsed()));
    conclude(outcome)
}

/// The long runs, on the programs that ship: the release build.
pub(crate) fn soak() -> Result<()> {
    let root = house::root();
    let programs = cargo::build(&root, BUILD_SHIPPED, &[])?;
    let packages = ["system", "guest", "preload", "powercut", "record-log"];
    let packages = packages.into_iter().flat_map(|name| ["-p", name]);
    let build: Vec<_> = ["test", "--no-run"].into_iter().chain(packages).collect();
    let mut suites = cargo::build(&root, &build, &[])?;
    suites.retain(|suite| SOAK_SUITES.contains(&suite.name.as_str()));
    ensure!(suites.len() == SOAK_SUITES.len(), "only {} suites are there", suites.len());
    let mut runner = with_programs(runner(&root, SOAK_TIME_LIMIT), &programs)?;
    for (name, count) in COUNTS_IN_SOAK {
        if std::env::var_os(name).is_none() {
            runner.variables.push((name.into(), count.into()));
        }
    }
    let shipped = programs.first().context("no program was built")?.path.clone();
    let tried = deb_check(shipped.parent().context("a program lies in a folder")?);
    let mut outcome = counted(tried);
    outcome.add(runner.run_all(&suites)?);
    conclude(outcome)
}

/// Debian packages of the programs as they ship.
pub(crate) fn deb() -> Result<()> {
    let root = house::root();
    let packages = ["daemon", "cli", "console-server", "machines", "broker", "preload"];
    let packages = packages.into_iter().flat_map(|name| ["-p", name]);
    let build = ["build", "--release", "--bins", "--lib"].into_iter().chain(packages);
    let programs = cargo::build(&root, &build.collect::<Vec<_>>(), &[])?;
    let first = programs.first().context("no program was built")?;
    deb_of(first.path.parent().context("a program lies in a folder")?)
}

/// The same of programs that were built before.
pub(crate) fn deb_of(programs: &Path) -> Result<()> {
    let root = house::root();
    let made = root.join("target/deb");
    for package in deb::make(&root, programs, &made, &deb::version(&root)?)? {
        eprintln!("{}", package.display());
    }
    Ok(())
}

/// Tries packages of programs that were built before.
pub(crate) fn deb_check(programs: &Path) -> Result<()> {
    deb_check::check(&house::root(), programs)
}

/// Every suite by the quick profile, and the page that shows it.
pub(crate) fn bench() -> Result<()> {
    let root = house::root();
    let program = built_program(
        &root,
        &["-p", "daemon", "-p", "cli", "-p", "preload", "-p", "bench"],
        BENCH,
    )?;
    let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let folder = root.join("target/bench").join(seconds.as_secs().to_string());
    let folder = folder.to_str().context("the repository's path is no text")?;
    run_as_root(&program, &["all", "--profile", "quick", "--out", folder])?;
    run_as_root(&program, &["report", folder])
}

pub(crate) fn demo() -> Result<()> {
    let root = house::root();
    let packages = ["-p", "daemon", "-p", "cli", "-p", "system"];
    run_release_program(&root, &packages, "memlane-demo", &[])
}

/// The demonstration of the message log, which needs no root.
pub(crate) fn demo_log() -> Result<()> {
    let root = house::root();
    let packages = ["-p", "daemon", "-p", "cli", "-p", "broker", "-p", "system"];
    let demo = built_program(&root, &packages, "memlane-demo")?;
    let status = Command::new(&demo).arg("log").status().context("cannot run memlane-demo")?;
    ensure!(status.success(), "the demonstration failed");
    Ok(())
}

fn lint(root: &Path, progress: &mut Progress) -> Result<()> {
    progress.step("format");
    if is_there("fmt", "rustfmt")? {
        cargo::run(root, &["fmt", "--all", "--check"])?;
    }
    progress.step("lints");
    if is_there("clippy", "clippy")? {
        let what = ["clippy", "--workspace", "--all-targets", "--features", CRASH_POINTS];
        cargo::run(root, &[&what[..], &["--quiet", "--", "-D", "warnings"]].concat())?;
    }
    progress.step("tidy");
    tidy()
}

/// Whether the toolchain has a subcommand. Where everything is to be checked it must.
fn is_there(subcommand: &str, component: &str) -> Result<bool> {
    if cargo::has(subcommand) {
        return Ok(true);
    }
    let reason = format!("the toolchain has no {component} (rustup component add {component})");
    ensure!(SkipPolicy::of_environment() == SkipPolicy::Counted, "{reason}");
    eprintln!("  skipped: {reason}");
    Ok(false)
}

/// The first fresh seed of the commit: each commit has others, so that what fails is new, or was
/// always there, and fails again. `None` outside of a repository: each test draws its own.
fn seeds_of_commit(root: &Path) -> Option<OsString> {
    let asked = ["rev-parse", "--verify", "HEAD^{tree}"];
    let answer = Command::new("git").args(asked).current_dir(root).output().ok()?;
    let name = String::from_utf8(answer.stdout).ok()?;
    let first = u32::from_str_radix(name.get(..8)?, 16).ok()?;
    Some(first.to_string().into())
}

fn is_loom(suite: &Executable) -> bool {
    suite.kind == ExecutableKind::IntegrationTests
        && suite.name.rsplit('/').next() == Some(LOOM_TARGET)
}

fn loom_suites(root: &Path) -> Result<Vec<Executable>> {
    let house = House::read(root)?;
    let packages = house.packages.iter().filter(|package| {
        house.file(&format!("{}/tests/{LOOM_TARGET}.rs", package.path)).is_some()
    });
    let mut arguments = vec!["test", "--no-run", "--release", "--test", LOOM_TARGET];
    for package in packages {
        arguments.extend(["-p", &package.name]);
    }
    let target = root.join("target").join(LOOM_TARGET);
    let target = target.to_str().context("the path of the project is no UTF-8")?;
    let variables = [("RUSTFLAGS", "--cfg loom"), ("CARGO_TARGET_DIR", target)];
    let mut suites = cargo::build(root, &arguments, &variables)?;
    suites.retain(is_loom);
    ensure!(!suites.is_empty(), "no crate has tests that explore interleavings");
    Ok(suites)
}

fn fetch_clients(programs: &[Executable], fetcher: &str) -> Result<()> {
    let is_fetcher =
        |program: &&Executable| program.path.file_name().is_some_and(|name| name == fetcher);
    let found = programs.iter().find(is_fetcher);
    let found = found.with_context(|| format!("the build made no {fetcher}"))?;
    let status = Command::new(&found.path).status().context("cannot run the fetcher")?;
    ensure!(status.success(), "{fetcher} failed");
    Ok(())
}

fn runner(root: &Path, time_limit: Duration) -> Runner {
    let log_folder = root.join("target").join("test-logs");
    Runner { log_folder, time_limit, variables: Vec::new() }
}

/// Tells the end-to-end tests where the programs are.
fn with_programs(mut runner: Runner, programs: &[Executable]) -> Result<Runner> {
    let daemon = programs
        .iter()
        .find(|program| program.path.file_name().is_some_and(|name| name == "memlaned"));
    let folder = daemon.and_then(|daemon| daemon.path.parent());
    let folder = folder.context("the build made no memlaned")?;
    runner.variables.push((OsString::from("MEMLANE_BIN_DIR"), folder.into()));
    Ok(runner)
}

fn run_release_program(
    root: &Path,
    packages: &[&str],
    program: &str,
    arguments: &[&str],
) -> Result<()> {
    run_as_root(&built_program(root, packages, program)?, arguments)
}

/// Where the release build of a program is.
fn built_program(root: &Path, packages: &[&str], program: &str) -> Result<PathBuf> {
    let build = [&["build", "--release", "--bins", "--lib"], packages].concat();
    let commit = commit(root);
    let named = commit.as_deref().map(|commit| (COMMIT_VARIABLE, commit));
    let executables = cargo::build(root, &build, named.as_slice())?;
    executables
        .into_iter()
        .map(|executable| executable.path)
        .find(|path| path.file_name().is_some_and(|name| name == program))
        .with_context(|| format!("the build made no {program}"))
}

/// The revision that is built, and whether something was changed since.
fn commit(root: &Path) -> Option<String> {
    let asked = ["describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"];
    let answer = Command::new("git").args(asked).current_dir(root).output().ok()?;
    let name = String::from_utf8(answer.stdout).ok()?.trim().to_owned();
    (answer.status.success() && !name.is_empty()).then_some(name)
}

fn run_as_root(path: &PathBuf, arguments: &[&str]) -> Result<()> {
    let status = command_as_root(path)
        .args(arguments)
        .status()
        .with_context(|| format!("cannot run {}", path.display()))?;
    ensure!(status.success(), "{} failed", path.display());
    Ok(())
}

/// The program itself for root; otherwise through sudo where that asks for no password.
fn command_as_root(path: &PathBuf) -> Command {
    let is_root = rustix::process::geteuid().is_root();
    let may_sudo =
        || Command::new("sudo").args(["-n", "true"]).status().is_ok_and(|status| status.success());
    if is_root || !may_sudo() {
        return Command::new(path);
    }
    let mut command = Command::new("sudo");
    command.arg("-n").arg(path);
    command
}

fn counted(result: Result<()>) -> Outcome {
    match result {
        Ok(()) => Outcome { counts: Counts { passed: 1, failed: 0 }, ..Outcome::default() },
        Err(error) => {
            eprintln!("{error:#}");
            let failures = vec![format!("failed: {error:#}")];
            let counts = Counts { passed: 0, failed: 1 };
            Outcome { counts, failures, ..Outcome::default() }
        }
    }
}

fn conclude(outcome: Outcome) -> Result<()> {
    let outcome = outcome.judged(SkipPolicy::of_environment());
    for line in &outcome.failures {
        eprintln!("{line}");
    }
    eprintln!("{}", outcome.summary());
    let counts = outcome.counts;
    if counts.failed > 0 {
        bail!("{} tests failed", counts.failed);
    }
    ensure!(counts.passed > 0, "no test ran");
    Ok(())
}
