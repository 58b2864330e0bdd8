//! The tasks of the Makefile's targets.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail, ensure};

use crate::builds::{self, Built, Features};
use crate::cargo::Executable;
use crate::page::{self, Page};
use crate::progress::{Steps, clock};
use crate::repository::{self, Repository};
use crate::suites::{Counts, Outcome, Runner, SkipPolicy};
use crate::{deb, deb_check, failures, leftovers, release, site, stress, tidy};

/// Time after which a suite counts as hung. The longest suites take five minutes, and three times
/// as long on a busy host.
const SUITE_TIME_LIMIT: Duration = Duration::from_secs(20 * 60);
const SOAK_TIME_LIMIT: Duration = Duration::from_secs(8 * 60 * 60);

/// Repetition counts of the long runs, unless the environment sets others.
const COUNTS_IN_SOAK: &[(&str, &str)] = &[
    ("MEMLANE_KILLS", "10000"),
    ("MEMLANE_EARLY_KILLS", "200"),
    ("MEMLANE_GUEST_KILLS", "1000"),
    ("MEMLANE_LOG_KILLS", "5000"),
    ("MEMLANE_CUTS", "20"),
    ("MEMLANE_RESTARTS", "100"),
    ("MEMLANE_SEED_COUNT", "2000"),
    ("MEMLANE_ALL_APPLICATIONS", "1"),
    ("MEMLANE_BOOTED_CLONES", "20"),
    ("MEMLANE_WATCHED_SECONDS", "20"),
    ("MEMLANE_HANG_SECONDS", "60"),
];

/// Variable with the first of the seeds that differ from run to run.
const FRESH_SEEDS: &str = "MEMLANE_FRESH_SEEDS";

/// Suites of the long runs.
const SOAK_SUITES: &[&str] = &[
    "bench/cpio",
    "console-clients/watchers",
    "console-server/console",
    "kafka-clients/hostile_bytes",
    "kafka-clients/librdkafka",
    "machines/machines",
    "sql-clients/storm",
    "powercut/volumes",
    "record-log/power_cuts",
    "system/kill_storm",
    "system/early_kills",
    "system/copy_storm",
    "system/command_storm",
    "system/disk_kills",
    "system/hung_disk",
    "system/ring_storm",
    "system/log_storm",
    "guest/power_cut",
    "guest/ublk",
    "preload/programs",
];

/// Suites that compare with PostgreSQL, which draw more than a thousand queries for each seed.
const DRAWN_SUITES: &[&str] =
    &["sql-clients/differential", "sql-clients/integers", "sql-clients/relations"];
const DRAWN_SEED_COUNT: (&str, &str) = ("MEMLANE_SEED_COUNT", "70");

/// Suites that kill and attack release programs in every run of all tests.
const ATTACKS: &[&str] =
    &["kafka-clients/hostile_bytes", "system/disk_kills", "system/kill_storm", "system/ring_storm"];

/// Packages of the release programs, and of programs that the long runs need.
const SHIPPED: &[&str] = &[
    "daemon",
    "bench",
    "broker",
    "cli",
    "console-server",
    "machines",
    "preload",
    "libmemlane",
    "guest",
    "system",
    "kafka-clients",
    "csi",
    "kubernetes",
];

/// Program that runs the test suites of Kafka clients.
const KAFKA_SUITES: &str = "run-kafka-suites";

/// Program that runs a cluster, and the packages of the release programs that it needs.
const CLUSTER: &str = "run-kubernetes";
const CLUSTER_PACKAGES: &[&str] = &["daemon", "cli", "csi", "kubernetes"];

/// Packages that become Debian packages.
const PACKAGED: &[&str] =
    &["daemon", "cli", "console-server", "csi", "machines", "broker", "preload", "libmemlane"];

/// Benchmark program.
const BENCH: &str = "memlane-bench";

/// A crate whose tests run third-party programs that no Debian package contains.
struct Fetcher {
    crate_name: &'static str,
    /// Program that fetches those, which may take longer than the time limit of a suite.
    program: &'static str,
}

const FETCHERS: &[Fetcher] = &[
    Fetcher { crate_name: "kafka-clients", program: "fetch-kafka-clients" },
    Fetcher { crate_name: "sql-clients", program: "fetch-sql-clients" },
    Fetcher { crate_name: "console-clients", program: "fetch-console-clients" },
    Fetcher { crate_name: "csi-clients", program: "fetch-csi-clients" },
];

pub(crate) fn tidy() -> Result<()> {
    let repository = Repository::read(&repository::root())?;
    let complaints = tidy::complaints(&repository);
    for complaint in &complaints {
        eprintln!("{complaint}");
    }
    ensure!(complaints.is_empty(), "tidy found {} complaints", complaints.len());
    let file_count = repository.files.len();
    eprintln!("tidy: {} rules hold in {file_count} files", tidy::rule_count());
    Ok(())
}

/// Prints the dependency cycles between the modules of the crate at `path`, or of all crates.
pub(crate) fn print_circles(path: &str) -> Result<()> {
    let repository = Repository::read(&repository::root())?;
    let circles = tidy::circles(&repository);
    let asked: Vec<_> = circles.iter().filter(|it| it.crate_path.ends_with(path)).collect();
    asked.iter().for_each(|circle| eprintln!("{circle}"));
    eprintln!("{} circles", asked.len());
    Ok(())
}

pub(crate) fn write_unsafe_report() -> Result<()> {
    let root = repository::root();
    let text = tidy::report(&Repository::read(&root)?);
    fs::write(root.join(tidy::REPORT_PATH), text)
        .with_context(|| format!("cannot write {}", tidy::REPORT_PATH))
}

/// Builds the page that the console contains. In CI it is an error if that is impossible.
pub(crate) fn page() -> Result<()> {
    match page::build(&repository::root())? {
        Page::Built => Ok(()),
        Page::Missing(reason) => {
            ensure!(SkipPolicy::of_environment() == SkipPolicy::Counted, "no page: {reason}");
            eprintln!("  skipped: no page, as {reason}");
            Ok(())
        }
    }
}

/// Builds the site. Links are checked by `tidy`, which runs first.
pub(crate) fn docs() -> Result<()> {
    tidy()?;
    let page = site::build(&repository::root())?;
    eprintln!("docs: open {}", page.display());
    Ok(())
}

pub(crate) fn check() -> Result<()> {
    let root = repository::root();
    let mut steps = Steps::new(&root, 5);
    steps.step("format", || builds::format(&root))?;
    steps.step("tidy", tidy)?;
    steps.step("lints", || builds::lint(&root))?;
    let suites = steps.step("build the unit tests", || builds::unit_tests(&root))?;
    let outcome = steps.step("unit tests", || runner(&root).run_all(&root, &suites))?;
    conclude(outcome)
}

pub(crate) fn test(filter: &str) -> Result<()> {
    let root = repository::root();
    let start = Instant::now();
    let mut outcome = Outcome::default();
    let (programs, suites) = build_tests(&root, filter, &mut outcome)?;
    let runner = with_programs(runner_of_commit(&root), &programs)?;
    if filter.is_empty() {
        outcome.add(thread::scope(|scope| {
            let shipped = scope.spawn(|| build_attacked(&root));
            let mut outcome = runner.run_all(&root, &suites)?;
            let shipped = Steps::new(&root, 1).step("wait for the programs as they ship", || {
                shipped.join().expect("a build ends or fails, without a panic")
            });
            outcome.add(attack_shipped(&root, &shipped?, &suites)?);
            Ok::<_, anyhow::Error>(outcome)
        })?);
    } else {
        outcome.add(runner.run_all(&root, &suites)?);
    }
    eprintln!("everything took {}", clock(start.elapsed()));
    conclude(outcome)
}

/// Builds the release programs that are attacked, on processors that are idle otherwise.
fn build_attacked(root: &Path) -> Result<Vec<Executable>> {
    // Of this thread and of what it starts.
    let lowest = 19;
    rustix::process::nice(lowest).context("cannot lower the priority of a build")?;
    // The same as for the demonstration of the log, so that both are built once.
    builds::shipped(root, &["daemon", "cli", "broker", "system"], Features::None)
}

/// Attacks release programs: optimized, and without debug assertions.
fn attack_shipped(root: &Path, programs: &[Executable], suites: &[Executable]) -> Result<Outcome> {
    let attacks = suites.iter().filter(|suite| ATTACKS.contains(&suite.name.as_str()));
    let attacks: Vec<_> = attacks.cloned().collect();
    ensure!(attacks.len() == ATTACKS.len(), "only {} attacks are there", attacks.len());
    let mut runner = with_programs(runner_of_commit(root), programs)?;
    runner.log_folder.push("shipped");
    runner.run_all(root, &attacks)
}

/// Runs the suites whose names contain `filter` repeatedly beside busy processes.
pub(crate) fn stress(filter: &str) -> Result<()> {
    let root = repository::root();
    let mut outcome = Outcome::default();
    let (programs, suites) = build_tests(&root, filter, &mut outcome)?;
    let load = stress::Load::start()?;
    for round in 1..=stress::ROUNDS {
        eprintln!("round {round} of {} beside {load}", stress::ROUNDS);
        outcome.add(with_programs(runner(&root), &programs)?.run_all(&root, &suites)?);
    }
    conclude(outcome)
}

/// Builds the programs, and the suites whose names contain `filter`. Failures that do not prevent
/// tests, such as a broken rule of tidy, are recorded like others.
fn build_tests(
    root: &Path,
    filter: &str,
    outcome: &mut Outcome,
) -> Result<(Vec<Executable>, Vec<Executable>)> {
    leftovers::remove();
    let mut steps = Steps::new(root, 6);
    outcome.add(counted(steps.step("format", || builds::format(root))));
    outcome.add(counted(steps.step("tidy", tidy)));
    let is_asked = |name: &str| name.contains(filter) || filter.starts_with(name);
    let fetchers: Vec<_> =
        FETCHERS.iter().filter(|it| is_asked(it.crate_name)).map(|it| it.program).collect();
    // The network is used while the compiler works. The console is built with the page.
    thread::scope(|scope| {
        let page = scope.spawn(page);
        let fetching = steps.step("build what fetches clients of others", || {
            let programs = builds::programs(root, &fetchers)?;
            fetchers.iter().map(|name| Ok(builds::path_of(&programs, name)?.clone())).collect()
        });
        let fetching: Result<Vec<PathBuf>> = fetching;
        let fetching = scope.spawn(move || fetching?.iter().try_for_each(|path| fetch(path)));
        outcome.add(counted(page.join().expect("a page is built or not, without a panic")));
        let built = steps.step("build the programs and the tests, with lints", || {
            builds::everything(root, builds::linted)
        });
        let built = match built {
            Ok(built) => built,
            Err(error) => {
                outcome.add(counted(Err(error)));
                builds::everything(root, builds::plain)?
            }
        };
        let mut suites = built.suites;
        suites
            .extend(steps.step("build the tests that explore interleavings", || {
                builds::loom_suites(root)
            })?);
        suites.retain(|suite| suite.name.contains(filter));
        ensure!(!suites.is_empty(), "no suite has {filter:?} in its name");
        let fetched = steps.step("wait for clients of others", || {
            fetching.join().expect("a program that fetches ends or fails, without a panic")
        });
        outcome.add(counted(fetched));
        Ok((built.programs, suites))
    })
}

/// Performs the long runs, on the release programs.
pub(crate) fn soak() -> Result<()> {
    let root = repository::root();
    page()?;
    let programs = builds::shipped(&root, SHIPPED, Features::Default)?;
    let Built { suites, .. } = builds::everything(&root, builds::plain)?;
    let named = |names: &[&str]| -> Result<Vec<_>> {
        let found = suites.iter().filter(|it| names.contains(&it.name.as_str()));
        let found: Vec<_> = found.cloned().collect();
        ensure!(found.len() == names.len(), "only {} of {names:?} are there", found.len());
        Ok(found)
    };
    let (long, drawn) = (named(SOAK_SUITES)?, named(DRAWN_SUITES)?);
    let mut runner = with_programs(runner(&root), &programs)?;
    runner.time_limit = SOAK_TIME_LIMIT;
    for (name, count) in COUNTS_IN_SOAK {
        if std::env::var_os(name).is_none() {
            runner.variables.push((name.into(), count.into()));
        }
    }
    let shipped = programs.first().context("no program was built")?.path.clone();
    let tried = deb_check(shipped.parent().context("a program lies in a folder")?);
    let mut outcome = counted(tried);
    let kafka_suites = builds::path_of(&programs, KAFKA_SUITES)?;
    outcome.add(counted(run_to_end(&mut Command::new(kafka_suites))));
    outcome.add(counted(run_to_end(&mut command_as_root(builds::path_of(&programs, CLUSTER)?))));
    outcome.add(runner.run_all(&root, &long)?);
    let (name, count) = DRAWN_SEED_COUNT;
    runner.variables.retain(|(variable, _)| variable != name);
    runner.variables.push((name.into(), std::env::var_os(name).unwrap_or_else(|| count.into())));
    outcome.add(runner.run_all(&root, &drawn)?);
    conclude(outcome)
}

/// Runs a cluster whose pods use volumes, with the release programs.
pub(crate) fn kubernetes() -> Result<()> {
    let programs = builds::shipped(&repository::root(), CLUSTER_PACKAGES, Features::Default)?;
    run_to_end(&mut command_as_root(builds::path_of(&programs, CLUSTER)?))
}

/// Builds Debian packages of the release programs.
pub(crate) fn deb() -> Result<()> {
    deb_of(&packaged(&repository::root())?)
}

/// Builds the contents of packages, and returns the folder of the programs.
fn packaged(root: &Path) -> Result<PathBuf> {
    if let Page::Missing(reason) = page::build(root)? {
        bail!("the console would be packed without its page, as {reason}");
    }
    let programs = builds::shipped(root, PACKAGED, Features::Default)?;
    let first = programs.first().context("no program was built")?;
    Ok(first.path.parent().context("a program lies in a folder")?.to_owned())
}

/// Creates the files of a release, from the commit with the tag of its version.
pub(crate) fn release() -> Result<()> {
    let root = repository::root();
    release::check_tag(&root)?;
    release_of(&packaged(&root)?)
}

/// Same for programs that were built before, from any sources.
pub(crate) fn release_of(programs: &Path) -> Result<()> {
    eprintln!("{}", release::make(&repository::root(), programs, PACKAGED)?.display());
    Ok(())
}

/// Builds Debian packages of programs that were built before.
pub(crate) fn deb_of(programs: &Path) -> Result<()> {
    let root = repository::root();
    let made = root.join("target/deb");
    for package in deb::make(&root, programs, &made, &deb::version(&root)?)? {
        eprintln!("{}", package.display());
    }
    Ok(())
}

/// Tests packages of programs that were built before.
pub(crate) fn deb_check(programs: &Path) -> Result<()> {
    deb_check::check(&repository::root(), programs)
}

/// Runs every benchmark suite with the quick profile, and renders the report.
pub(crate) fn bench() -> Result<()> {
    let root = repository::root();
    let packages = ["daemon", "cli", "preload", "bench"];
    let programs = builds::shipped(&root, &packages, Features::Default)?;
    let program = builds::path_of(&programs, BENCH)?;
    let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let folder = root.join("target/bench").join(seconds.as_secs().to_string());
    let folder = folder.to_str().context("the repository's path is no text")?;
    run_to_end(command_as_root(program).args(["all", "--profile", "quick", "--out", folder]))?;
    run_to_end(command_as_root(program).args(["report", folder]))
}

/// Benchmark suites of the page on performance, each with its arguments.
const PERFORMANCE: [&str; 8] = [
    "peers --only jobs,pgbench --case randread --target volume,run,nbd,vhost-user,zram,tmpfs,loop,\
     nbdkit,qemu-nbd,qsd-nbd,qsd-vhost,qsd-vhost-iothread,qsd-vhost-io_uring",
    "durability",
    "cpio --only fio --cores 1 --target volume,run,zram,loop",
    "log --target broker,kafka --mixes 0 --rates 50 --consumers 1",
    "log --target broker,kafka --mixes 0 --rates 50 --consumers 1 --sync",
    "sql",
    "reduction",
    "engine",
];

/// Measures the results of the page on performance, and writes that page. Earlier measurements of
/// the same commit in `target/performance` are not repeated.
pub(crate) fn performance() -> Result<()> {
    let root = repository::root();
    let packages = ["daemon", "cli", "preload", "broker", "bench", "kafka-clients"];
    let programs = builds::shipped(&root, &packages, Features::Default)?;
    let program = builds::path_of(&programs, BENCH)?;
    fetch(builds::path_of(&programs, "fetch-kafka-clients")?)?;
    let commit = builds::commit(&root).context("only a commit can be measured for the page")?;
    let measured = root.join("target/performance").join(commit);
    let jars = format!("MEMLANE_KAFKA_LIBS={}", root.join("target/kafka-clients/jars").display());
    let mut folders = Vec::new();
    for (index, arguments) in PERFORMANCE.iter().enumerate() {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        let folder = measured.join(format!("{}-{}", index + 1, arguments[0]));
        // sudo does not pass the caller's variables.
        let mut command = command_as_root(Path::new("env"));
        command.arg(&jars).arg(program).args(&arguments);
        command.args(["--profile", "standard", "--out"]).arg(&folder);
        if folder.join("manifest.json").exists() {
            command.arg("--resume");
        }
        run_to_end(&mut command)?;
        folders.push(folder);
    }
    let kept = root.join("docs/performance/runs");
    if kept.exists() {
        fs::remove_dir_all(&kept).with_context(|| format!("cannot remove {}", kept.display()))?;
    }
    let mut report = Command::new(program);
    report.current_dir(&root).arg("report").args(&folders).arg("--keep").arg(&kept);
    run_to_end(report.arg("--markdown").arg(root.join("docs/performance.md")))
}

/// Runs the demonstration of volumes.
pub(crate) fn demo() -> Result<()> {
    let program = built_demo(&["daemon", "cli", "system"], Features::Default, 2)?;
    run_to_end(&mut command_as_root(&program))
}

/// Runs the demonstration of the message log, which needs no root, with a broker without SQL.
pub(crate) fn demo_log() -> Result<()> {
    let program = built_demo(&["daemon", "cli", "broker", "system"], Features::None, 3)?;
    run_to_end(Command::new(program).arg("log"))
}

/// Runs the demonstration of SQL over topics, which needs no root.
pub(crate) fn demo_sql() -> Result<()> {
    let program = built_demo(&["daemon", "cli", "broker", "system"], Features::Default, 14)?;
    run_to_end(Command::new(program).arg("sql"))
}

/// Builds the demonstration program with the programs that it starts. `minutes` is the estimate for
/// the first build on two cores.
fn built_demo(packages: &[&str], features: Features, minutes: u64) -> Result<PathBuf> {
    let root = repository::root();
    let what = format!("build {}", packages.join(", "));
    let guess = Duration::from_secs(60 * minutes);
    let build = || builds::shipped(&root, packages, features);
    let programs = Steps::new(&root, 1).long_step(&what, guess, build)?;
    builds::path_of(&programs, "memlane-demo").cloned()
}

/// Returns the first fresh seed of the commit. Each commit has other seeds, so a new failure is
/// reproducible with them, and either new or always present. Outside of a repository each test
/// draws its own.
fn seeds_of_commit(root: &Path) -> Option<OsString> {
    let asked = ["rev-parse", "--verify", "HEAD^{tree}"];
    let answer = Command::new("git").args(asked).current_dir(root).output().ok()?;
    let name = String::from_utf8(answer.stdout).ok()?;
    let first = u32::from_str_radix(name.get(..8)?, 16).ok()?;
    Some(first.to_string().into())
}

fn fetch(program: &Path) -> Result<()> {
    run_to_end(&mut Command::new(program))
}

/// Returns the settings for running suites.
fn runner(root: &Path) -> Runner {
    let log_folder = root.join("target").join("test-logs");
    Runner { log_folder, time_limit: SUITE_TIME_LIMIT, variables: Vec::new() }
}

/// Same, with the seeds of the commit, unless others are requested.
fn runner_of_commit(root: &Path) -> Runner {
    let mut runner = runner(root);
    if std::env::var_os(FRESH_SEEDS).is_none() {
        runner.variables.extend(seeds_of_commit(root).map(|first| (FRESH_SEEDS.into(), first)));
    }
    runner
}

/// Passes the folder of the programs to the end-to-end tests.
fn with_programs(mut runner: Runner, programs: &[Executable]) -> Result<Runner> {
    let folder = builds::path_of(programs, "memlaned")?.parent();
    let folder = folder.context("a program lies in a folder")?;
    runner.variables.push((OsString::from("MEMLANE_BIN_DIR"), folder.into()));
    Ok(runner)
}

fn run_to_end(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(status.success(), "{command:?} failed");
    Ok(())
}

/// Returns a command that runs the program as root, through sudo if that needs no password.
fn command_as_root(path: &Path) -> Command {
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
        // Repeated, because often only the end of the output is visible.
        let named = outcome.failures.iter().filter(|line| line.starts_with(failures::FAILED));
        named.for_each(|line| eprintln!("{line}"));
        bail!("{} tests failed", counts.failed);
    }
    ensure!(counts.passed > 0, "no test ran");
    Ok(())
}
