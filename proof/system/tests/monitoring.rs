//! Watchers of Memlane from outside: the alerts and the dashboard fit the metrics that a real
//! daemon and the broker have.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use system::{Ability, Daemon, DaemonOptions, Tool, missing};

const PROMTOOL: &[Ability] = &[Ability::Program("promtool")];

/// What expressions name metrics of ours by.
const PREFIXES: [&str; 2] = ["memlane_", "process_"];

/// Metrics of the broker, which is not started here: its source names them.
const BROKER: &str = "memlane_broker_";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn monitoring(name: &str) -> PathBuf {
    root().join("control/monitoring").join(name)
}

fn promtool(words: &str) -> Tool {
    Tool::new("promtool").args(words.split_whitespace()).current_dir(&monitoring(""))
}

/// Says why promtool cannot be run here.
fn cannot_check() -> bool {
    match missing(PROMTOOL) {
        Some(reason) => {
            eprintln!("skipped: {reason}");
            true
        }
        None => false,
    }
}

/// The expressions of all panels, with what Grafana puts in for its variables.
fn expressions() -> Result<Vec<String>> {
    let dashboard: Value =
        serde_json::from_str(&fs::read_to_string(monitoring("dashboard.json"))?)?;
    let mut expressions = Vec::new();
    for panel in dashboard["panels"].as_array().context("no panels")? {
        for target in panel["targets"].as_array().context("a panel without targets")? {
            let expression = target["expr"].as_str().context("a target without an expression")?;
            let expression = expression.replace("$__rate_interval", "5m");
            expressions.push(expression.replace("$instance", ".*").replace("$volume", ".*"));
        }
    }
    Ok(expressions)
}

/// All names of metrics in a text.
fn names_in(text: &str) -> BTreeSet<String> {
    let is_other = |it: char| !it.is_ascii_alphanumeric() && it != '_';
    let words = text.split(is_other);
    let named = words.filter(|word| PREFIXES.iter().any(|prefix| word.starts_with(prefix)));
    named.map(str::to_owned).collect()
}

/// The names of all samples on a page of metrics.
fn samples_of(page: &str) -> BTreeSet<&str> {
    let samples = page.lines().filter(|line| !line.starts_with('#'));
    samples.filter_map(|line| line.split(['{', ' ']).next()).collect()
}

/// The metrics of a daemon that has volumes of each class, a journal and an image.
fn metrics() -> Result<String> {
    let daemon = Daemon::start(DaemonOptions { pool_size: "256MiB", flags: "--no-fuse" })?;
    for class in ["ram", "image", "journal"] {
        daemon.memlane(&format!("volume create {class} --size 8MiB --durability {class}"))?;
    }
    daemon.memlane("image rehearse")?;
    daemon.save_image()?;
    let answer = daemon.ask(api::METRICS_PATH)?;
    daemon.finish()?;
    let (_, page) = answer.split_once("\r\n\r\n").context("an answer without a body")?;
    Ok(page.to_owned())
}

#[test]
fn alerts_are_well_formed_and_come_when_they_should() -> Result<()> {
    if cannot_check() {
        return Ok(());
    }
    promtool("check rules alerts.yml").check()?;
    promtool("test rules alerts_test.yml").check()?;
    Ok(())
}

#[test]
fn each_metric_of_alerts_and_dashboard_is_one_of_the_programs() -> Result<()> {
    let page = metrics()?;
    let samples = samples_of(&page);
    let broker = fs::read_to_string(root().join("streams/broker/src/operation/metrics.rs"))?;
    let alerts = fs::read_to_string(monitoring("alerts.yml"))?;
    let mut named = names_in(&alerts);
    named.extend(expressions()?.iter().flat_map(|expression| names_in(expression)));
    ensure!(named.len() > 20, "too few metrics are named: {named:?}");
    for name in &named {
        let is_there = match name.starts_with(BROKER) {
            true => broker.contains(&format!("\"{name}\"")),
            false => samples.contains(name.as_str()),
        };
        ensure!(is_there, "{name} is no metric");
    }
    Ok(())
}

#[test]
fn expressions_and_metrics_are_what_prometheus_understands() -> Result<()> {
    if cannot_check() {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let rules = expressions()?.into_iter().enumerate().map(|(number, expression)| {
        serde_json::json!({"record": format!("panel:{number}"), "expr": expression})
    });
    let rules: Vec<_> = rules.collect();
    let groups = serde_json::json!({"groups": [{"name": "dashboard", "rules": rules}]});
    // JSON is YAML, too.
    let path = folder.path().join("rules.yml");
    fs::write(&path, groups.to_string())?;
    promtool("check rules").arg(&path).check()?;
    let page = folder.path().join("metrics");
    fs::write(&page, metrics()?)?;
    promtool("check metrics").input(fs::File::open(&page)?).check()?;
    Ok(())
}

#[test]
fn panels_have_titles_places_and_numbers_of_their_own() -> Result<()> {
    let dashboard: Value =
        serde_json::from_str(&fs::read_to_string(monitoring("dashboard.json"))?)?;
    let panels = dashboard["panels"].as_array().context("no panels")?;
    let all = |key: &str| panels.iter().map(|it| it[key].to_string()).collect::<BTreeSet<_>>();
    for key in ["id", "title", "gridPos"] {
        ensure!(all(key).len() == panels.len(), "two panels have the same {key}");
    }
    ensure!(!all("description").contains("null"), "a panel has no description");
    Ok(())
}
