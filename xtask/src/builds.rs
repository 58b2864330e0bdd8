//! Builds for the tasks: everything with tests and lints, and the release programs.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cargo::{self, Executable, ExecutableKind};
use crate::repository::Repository;
use crate::suites::SkipPolicy;

/// Arguments that build all programs, libraries, examples and tests with the same features, so that
/// most crates are compiled once.
const ALL: &[&str] = &["build", "--workspace", "--all-targets"];

/// Feature with which every store to a region can be a crash point. No crate enables it, so no
/// program contains it: code that needs it is linted and built by these calls.
const CRASH_POINTS: &str = "volumes/crash-points";
const CRASH_TESTS: &[&str] =
    &["test", "--workspace", "--features", CRASH_POINTS, "--test", "crash", "--no-run"];

/// Variable with the commit, which programs write into their records.
const COMMIT_VARIABLE: &str = "MEMLANE_COMMIT";

/// Name of integration tests that explore interleavings and need a separate build.
const LOOM_TARGET: &str = "loom";

/// Executables of one build.
pub(crate) struct Built {
    pub programs: Vec<Executable>,
    pub suites: Vec<Executable>,
}

/// Lints all targets, without code generation.
pub(crate) fn lint(root: &Path) -> Result<()> {
    if has_clippy()? {
        let what = ["clippy", "--workspace", "--all-targets", "--features", CRASH_POINTS];
        cargo::run(root, &[&what[..], &["--quiet", "--", "-D", "warnings"]].concat())?;
    }
    Ok(())
}

/// Checks the formatting of all sources.
pub(crate) fn format(root: &Path) -> Result<()> {
    match is_there("fmt", "rustfmt")? {
        true => cargo::run(root, &["fmt", "--all", "--check"]),
        false => Ok(()),
    }
}

/// Builds all unit tests.
pub(crate) fn unit_tests(root: &Path) -> Result<Vec<Executable>> {
    linted(root, &["test", "--workspace", "--no-run", "--lib", "--bins"])
}

/// Builds the programs of these names, with the same features as everything.
pub(crate) fn programs(root: &Path, names: &[&str]) -> Result<Vec<Executable>> {
    let names = names.iter().flat_map(|name| ["--bin", name]);
    let build: Vec<_> = ["build", "--workspace"].into_iter().chain(names).collect();
    linted(root, &build)
}

/// A compilation at the root with these arguments for cargo.
pub(crate) type Compile = fn(&Path, &[&str]) -> Result<Vec<Executable>>;

/// Builds all programs, and all suites but those of loom.
pub(crate) fn everything(root: &Path, compile: Compile) -> Result<Built> {
    let (programs, mut suites): (Vec<_>, Vec<_>) = compile(root, ALL)?
        .into_iter()
        .filter(|executable| !is_loom(executable))
        .partition(|executable| executable.kind == ExecutableKind::Program);
    suites.extend(compile(root, CRASH_TESTS)?);
    Ok(Built { programs, suites })
}

/// Builds the suites that explore interleavings.
pub(crate) fn loom_suites(root: &Path) -> Result<Vec<Executable>> {
    let repository = Repository::read(root)?;
    let packages = repository.packages.iter().filter(|package| {
        repository.file(&format!("{}/tests/{LOOM_TARGET}.rs", package.path)).is_some()
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

/// Builds the release programs of these packages.
pub(crate) fn shipped(
    root: &Path,
    packages: &[&str],
    features: Features,
) -> Result<Vec<Executable>> {
    let packages = packages.iter().flat_map(|name| ["-p", name]);
    let mut build: Vec<_> =
        ["build", "--release", "--bins", "--lib"].into_iter().chain(packages).collect();
    if features == Features::None {
        build.push("--no-default-features");
    }
    let commit = commit(root);
    let named = commit.as_deref().map(|commit| (COMMIT_VARIABLE, commit));
    cargo::build(root, &build, named.as_slice())
}

/// Features of the built packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Features {
    Default,
    /// No default features: a broker without SQL.
    None,
}

/// Returns the path of one of the programs.
pub(crate) fn path_of<'a>(programs: &'a [Executable], name: &str) -> Result<&'a PathBuf> {
    let mut paths = programs.iter().map(|program| &program.path);
    paths
        .find(|path| path.file_name().is_some_and(|file| file == name))
        .with_context(|| format!("the build made no {name}"))
}

/// Compiles with lints, if the toolchain has them. A warning is an error.
pub(crate) fn linted(root: &Path, arguments: &[&str]) -> Result<Vec<Executable>> {
    match has_clippy()? {
        true => cargo::build_linted(root, arguments),
        false => plain(root, arguments),
    }
}

/// Compiles without lints.
pub(crate) fn plain(root: &Path, arguments: &[&str]) -> Result<Vec<Executable>> {
    cargo::build(root, arguments, &[])
}

fn has_clippy() -> Result<bool> {
    is_there("clippy", "clippy")
}

/// Returns whether the toolchain has a subcommand. In CI it is an error if it does not.
fn is_there(subcommand: &str, component: &str) -> Result<bool> {
    if cargo::has(subcommand) {
        return Ok(true);
    }
    let reason = format!("the toolchain has no {component} (rustup component add {component})");
    ensure!(SkipPolicy::of_environment() == SkipPolicy::Counted, "{reason}");
    eprintln!("  skipped: {reason}");
    Ok(false)
}

/// Returns the built revision, with a mark for uncommitted changes.
pub(crate) fn commit(root: &Path) -> Option<String> {
    let asked = ["describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"];
    let answer = Command::new("git").args(asked).current_dir(root).output().ok()?;
    let name = String::from_utf8(answer.stdout).ok()?.trim().to_owned();
    (answer.status.success() && !name.is_empty()).then_some(name)
}

fn is_loom(suite: &Executable) -> bool {
    suite.kind == ExecutableKind::IntegrationTests
        && suite.name.rsplit('/').next() == Some(LOOM_TARGET)
}
