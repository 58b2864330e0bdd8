//! The integration tests of kafka-python, from its source package.
//!
//! The package lacks a module that starts Apache Kafka for them. A replacement that starts nothing
//! takes its place.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use system::Tool;

use super::judgement::{Outcome, Outcomes};
use crate::broker::Broker;
use crate::fetched::{Recipe, SOURCES};
use crate::python::make_environment;

const REQUIREMENTS: &str = "suites/kafka-python/requirements.txt";
const PACKAGE: &str = "suites/kafka-python/package.txt";
const STAND_IN: &str = "suites/kafka-python/service.py";

const TIME_LIMIT: Duration = Duration::from_secs(30 * 60);

/// Exit codes of a complete run: all tests passed, or some failed.
const ENDS: [Option<i32>; 2] = [Some(0), Some(1)];

/// Test files. Those of logins and encryption are missing, because they start their own brokers.
const TESTS: &[&str] = &[
    "test/integration/test_admin_integration.py",
    "test/integration/test_consumer_integration.py",
    "test/integration/test_producer_integration.py",
];

pub(super) fn run() -> Result<Outcomes> {
    let made_of = &[REQUIREMENTS, PACKAGE, STAND_IN];
    let origin = "the Python package index";
    let recipe = Recipe { sources: SOURCES, name: "kafka-python", origin, made_of };
    let folder = recipe.folder(fetch)?;
    // Members use shorter sessions than Kafka allows by default, and access lists are changed.
    let sessions = ["--group-session-min", "1000", "--group-initial-rebalance-delay", "0"];
    let settings = [&["--partitions", "4"][..], &sessions].concat();
    let broker = Broker::of_everybody("512MiB", &settings)?;
    let sources = sources(&folder)?;
    let root = folder.to_str().context("the path of the project is no UTF-8")?;
    let output = Tool::new("env PYTHONDONTWRITEBYTECODE=1")
        .arg(folder.join("environment/bin/python"))
        // Without the options of the project, which are for debugging.
        .args(["-m", "pytest", "-o", "addopts=", "-p", "no:cacheprovider", "-rA", "--tb=short"])
        .args(["--show-capture=no", "--timeout=300"])
        .args(TESTS)
        .current_dir(&sources)
        .env("KAFKA_URI", &format!("kafka://{}", broker.address()))
        .env("KAFKA_VERSION", "4.0.0")
        // The folder must exist, but nothing in it is run.
        .env("KAFKA_ROOT", root)
        .time_limit(TIME_LIMIT)
        .run()?;
    ensure!(ENDS.contains(&output.exit_code), "pytest broke off: {}", output.stdout);
    Ok(outcomes(&output.stdout))
}

fn fetch(folder: &Path) -> Result<()> {
    let here = Path::new(SOURCES);
    let environment = folder.join("environment");
    make_environment(&environment, &here.join(REQUIREMENTS))?;
    Tool::new("env")
        .arg(environment.join("bin/python"))
        .args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"])
        .args(["--require-hashes", "--no-binary", ":all:", "--requirement"])
        .arg(here.join(PACKAGE))
        .arg("--dest")
        .arg(folder)
        .check()?;
    Tool::new("sh -euc").arg("tar xzf kafka_python-*.tar.gz").current_dir(folder).check()?;
    let tests = sources(folder)?.join("test");
    fs::write(tests.join("__init__.py"), "").context("cannot make a package of the tests")?;
    fs::copy(here.join(STAND_IN), tests.join("service.py")).context("cannot add a module")?;
    Ok(())
}

/// Returns the folder to which the package is unpacked.
fn sources(folder: &Path) -> Result<PathBuf> {
    let entries = fs::read_dir(folder).context("cannot list what was fetched")?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut folders = paths.filter(|path| path.join("test/integration").is_dir());
    folders.next().context("the package has no tests")
}

fn outcomes(printed: &str) -> Outcomes {
    let ends = [
        ("PASSED ", Outcome::Passed),
        ("FAILED ", Outcome::Failed),
        ("ERROR ", Outcome::Failed),
        ("SKIPPED ", Outcome::LeftOut),
    ];
    let found = printed.lines().filter_map(|line| {
        let (rest, outcome) =
            ends.iter().find_map(|(mark, outcome)| Some((line.strip_prefix(mark)?, *outcome)))?;
        // Skipped tests are identified by their location and the reason.
        let name = match outcome {
            Outcome::LeftOut => rest,
            _ => rest.split(' ').next()?.rsplit("::").next()?,
        };
        Some((name.to_owned(), outcome))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_tests_are_found_in_the_summary() {
        let printed = "==== short test summary info ====\nPASSED test/a.py::test_one[gzip]\n\
                       SKIPPED [1] test/a.py:300: Requires an older one\n\
                       FAILED test/a.py::test_two - AssertionError\nERROR test/b.py::test_three\n";
        let expected = [
            ("test_one[gzip]", Outcome::Passed),
            ("[1] test/a.py:300: Requires an older one", Outcome::LeftOut),
            ("test_two", Outcome::Failed),
            ("test_three", Outcome::Failed),
        ];
        assert_eq!(outcomes(printed), expected.map(|(name, it)| (name.to_owned(), it)).into());
    }
}
