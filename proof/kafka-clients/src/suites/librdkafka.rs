//! The broker tests of librdkafka, from Debian's source package.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;
use system::Tool;

use super::judgement::{Outcome, Outcomes};
use crate::broker::Broker;
use crate::fetched::{Recipe, SOURCES};
use crate::java::{JAVA_FLAGS, jars};

const FETCH: &str = "suites/librdkafka/fetch";

const TIME_LIMIT: Duration = Duration::from_secs(90 * 60);

/// Folder in which the tests search for Kafka's own commands.
const KAFKA: &str = "kafka";

const OPTIONS: &[&str] = &["--partitions", "4"];

/// Test that counts access lists and needs none for access: it has a separate broker.
const COUNTS_LISTS: &str = "0081";

/// Number of concurrent tests.
const AT_ONCE: &str = "-p4";

/// Kafka's own commands, which some tests call, and their classes.
const COMMANDS: &[(&str, &str)] = &[
    ("kafka-acls.sh", "org.apache.kafka.tools.AclCommand"),
    ("kafka-topics.sh", "org.apache.kafka.tools.TopicCommand"),
];

pub(super) fn run() -> Result<Outcomes> {
    let origin = "Debian's sources";
    let recipe = Recipe { sources: SOURCES, name: "librdkafka", origin, made_of: &[FETCH] };
    let folder = recipe.folder(|folder| {
        let fetch = Path::new(SOURCES).join(FETCH);
        Tool::new("sh").arg(fetch).current_dir(folder).time_limit(TIME_LIMIT).check()?;
        Ok(())
    })?;
    put_commands(&folder.join(KAFKA).join("bin"))?;
    let broker = Broker::of_everybody("2GiB", OPTIONS)?;
    let mut outcomes = run_on(&broker, &folder, ("TESTS_SKIP", COUNTS_LISTS))?;
    drop(broker);
    let broker = Broker::of_super_user("256MiB", OPTIONS)?;
    outcomes.extend(run_on(&broker, &folder, ("TESTS", COUNTS_LISTS))?);
    Ok(outcomes)
}

/// Runs the tests selected by a variable.
fn run_on(broker: &Broker, folder: &Path, (variable, names): (&str, &str)) -> Result<Outcomes> {
    let report = folder.join("report.json");
    let tests = folder.join("tests");
    let address = broker.address();
    fs::write(tests.join("test.conf"), format!("bootstrap.servers={address}\n"))
        .context("cannot write the settings of the tests")?;
    let text = |path: &Path| path.to_str().map(str::to_owned).context("a path is no UTF-8");
    let libraries = format!("{}:{}", text(&folder.join("src"))?, text(&folder.join("src-cpp"))?);
    // Its exit code is the number of failed tests, which the report contains too.
    let output = Tool::new("./test-runner -Q -L -E")
        .arg(AT_ONCE)
        .current_dir(&tests)
        .env("LD_LIBRARY_PATH", &libraries)
        .env("BROKERS", &address)
        .env("KAFKA_PATH", &text(&folder.join(KAFKA))?)
        .env("TEST_KAFKA_VERSION", "4.0.0")
        .env("TEST_REPORT", &text(&report)?)
        .env(variable, names)
        .time_limit(TIME_LIMIT)
        .run()?;
    let report = fs::read(&report).with_context(|| {
        let last: Vec<_> = output.stderr.lines().rev().take(20).collect();
        format!("the tests left no report; they said at last: {last:?}")
    })?;
    outcomes(&report)
}

/// Creates programs of Kafka's commands, with Kafka's names.
fn put_commands(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).context("cannot make a folder for Kafka's commands")?;
    let (flags, jars) = (JAVA_FLAGS.join(" "), jars()?);
    for (name, class) in COMMANDS {
        let path = folder.join(name);
        let script = format!("#!/bin/sh\nexec java {flags} -cp '{jars}' {class} \"$@\"\n");
        fs::write(&path, script).with_context(|| format!("cannot write {name}"))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
            .with_context(|| format!("cannot make a program of {name}"))?;
    }
    Ok(())
}

/// Parses the report. Tests excluded by the run are not in the report, or not run.
fn outcomes(report: &[u8]) -> Result<Outcomes> {
    let report: Value = serde_json::from_slice(report).context("the report is no JSON")?;
    let tests = report["tests"].as_object().context("the report has no tests")?;
    let outcome = |test: &Value| match test["state"].as_str() {
        Some("PASSED") => Outcome::Passed,
        Some("SKIPPED") => Outcome::LeftOut,
        _ => Outcome::Failed,
    };
    // The report contains the runner itself as a passed test.
    let real = tests.iter().filter(|(name, _)| !name.starts_with('<'));
    Ok(real.map(|(name, test)| (name.clone(), outcome(test))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_tests_are_found_in_the_report() -> Result<()> {
        let report = br#"{ "id": "1", "tests": { "0001_a": { "state": "PASSED" },
            "0002_b": { "state": "SKIPPED" }, "0003_c": { "state": "FAILED" },
            "<MAIN>": { "state": "PASSED" } } }"#;
        let expected = [
            ("0001_a", Outcome::Passed),
            ("0002_b", Outcome::LeftOut),
            ("0003_c", Outcome::Failed),
        ];
        assert_eq!(outcomes(report)?, expected.map(|(name, it)| (name.to_owned(), it)).into());
        outcomes(b"{}").expect_err("no tests");
        Ok(())
    }
}
