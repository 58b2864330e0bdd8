//! Monitoring of Memlane: alerts, dashboard and reference match the metrics of a real daemon and
//! broker.

#[path = "../../../engine/store-server/tests/authority/mod.rs"]
mod authority;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use authority::Authority;
use serde_json::Value;
use system::{Ability, Broker, Daemon, DaemonOptions, Tool, missing, wait_for};

const PROMTOOL: &[Ability] = &[Ability::Program("promtool")];

const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Prefixes of Memlane's metrics in expressions.
const PREFIXES: [&str; 2] = ["memlane_", "process_"];

/// Reference page of all metrics.
const REFERENCE: &str = "docs/reference/metrics.md";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn monitoring(name: &str) -> PathBuf {
    root().join("control/monitoring").join(name)
}

fn promtool(words: &str) -> Tool {
    Tool::new("promtool").args(words.split_whitespace()).current_dir(&monitoring(""))
}

/// Returns whether promtool is missing, and reports the skip.
fn cannot_check() -> bool {
    match missing(PROMTOOL) {
        Some(reason) => {
            eprintln!("skipped: {reason}");
            true
        }
        None => false,
    }
}

/// Returns the expressions of all panels, with values for Grafana's variables.
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

/// Returns all names of metrics in a text.
fn names_in(text: &str) -> BTreeSet<String> {
    let is_other = |it: char| !it.is_ascii_alphanumeric() && it != '_';
    let words = text.split(is_other);
    let named = words.filter(|word| PREFIXES.iter().any(|prefix| word.starts_with(prefix)));
    named.map(str::to_owned).collect()
}

/// Returns the metrics of a daemon with volumes of each class, a journal, an image and all exports.
fn metrics() -> Result<String> {
    let daemon = Daemon::start(DaemonOptions {
        pool_size: "256MiB",
        flags: "--images-ship-every 100ms --images-mirror-flushes wait",
    })?;
    for class in ["ram", "image", "journal"] {
        daemon.memlane(&format!("volume create {class} --size 8MiB --durability {class}"))?;
    }
    daemon.memlane("image rehearse")?;
    daemon.save_image()?;
    let is_shipped = || {
        let shipping = daemon.status()?.durability.images.and_then(|images| images.shipping);
        Ok(shipping.is_some_and(|it| it.lag_seconds.is_some()))
    };
    wait_for("the journal to be shipped", TIME_LIMIT, is_shipped)?;
    let answer = daemon.ask(api::METRICS_PATH)?;
    daemon.finish()?;
    body_of(&answer)
}

fn body_of(answer: &str) -> Result<String> {
    let (_, body) = answer.split_once("\r\n\r\n").context("an answer without a body")?;
    Ok(body.to_owned())
}

/// Returns the metrics of a standby that has found an image.
fn standby_metrics() -> Result<String> {
    let folder = tempfile::tempdir()?;
    let start = |flags: &str| {
        let store = folder.path().display();
        let flags = format!("--no-fuse --images-store {store} {flags}");
        Daemon::start_flagged("96MiB".to_owned(), flags)
    };
    let writer = start("--images-ship-every 100ms")?;
    writer.memlane("volume create db --size 8MiB --durability journal")?;
    writer.save_image()?;
    let authority = Authority::new();
    let served = served_flags(&authority, &folder.path().join("served"));
    let standby = start(&format!("--standby-follow --standby-every 100ms {served}"))?;
    let has_image =
        || Ok(standby.status()?.standby.is_some_and(|it| it.journal_lag_seconds.is_some()));
    wait_for("the standby to find the image", TIME_LIMIT, has_image)?;
    let answer = standby.ask(api::METRICS_PATH)?;
    standby.finish()?;
    writer.finish()?;
    body_of(&answer)
}

/// Returns the flags of a daemon that serves an image store.
fn served_flags(authority: &Authority, directory: &Path) -> String {
    let (certificate, key) = authority.issue("localhost");
    format!(
        "--store-server-listen 127.0.0.1:0 --store-server-directory {} \
         --store-server-certificate {} --store-server-key {} --store-server-client-ca {}",
        directory.display(),
        certificate.display(),
        key.display(),
        authority.own_file.display()
    )
}

/// Returns the metrics of a broker that serves SQL and has a certificate.
fn broker_metrics() -> Result<String> {
    let authority = Authority::new();
    let (certificate, key) = authority.issue("localhost");
    let (certificate, key) = (certificate.display(), key.display());
    let tls = format!("--tls-certificate {certificate} --tls-key {key}");
    let mut broker = Broker::start(&format!("--embedded 64MiB --sql 127.0.0.1:0 {tls}"))?;
    let answer = broker.ask(api::METRICS_PATH)?;
    broker.stop()?;
    body_of(&answer)
}

/// Formats the families on a page of metrics as a table, with their types and help.
fn table_of(page: &str, is_listed: impl Fn(&str) -> bool) -> Result<String> {
    let mut table = "| metric | type | meaning |\n|---|---|---|\n".to_owned();
    let mut lines = page.lines().filter_map(|line| line.strip_prefix("# "));
    while let Some(help) = lines.next() {
        let help = help.strip_prefix("HELP ").context("a family begins with its help")?;
        let (name, help) = help.split_once(' ').context("a family without help")?;
        let kind = lines.next().and_then(|line| line.strip_prefix(&format!("TYPE {name} ")[..]));
        let kind = kind.with_context(|| format!("{name} has no type"))?;
        if is_listed(name) {
            writeln!(table, "| `{name}` | {kind} | {} |", help.replace('|', "\\|"))?;
        }
    }
    Ok(table)
}

/// To accept a change, run this with `UPDATE_REFERENCE=1`, and check the difference.
#[test]
fn the_reference_has_every_metric() -> Result<()> {
    if let Some(reason) = missing(&[Ability::BlockDevices]) {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let of_standby = standby_metrics()?;
    let text = format!(
        "# Metrics\n\n\
         Prometheus reads them at `/metrics`, in base units: bytes and seconds.\n\n\
         ## Daemon\n\n\
         On the socket of the REST API, `/run/memlane/api.sock`. Metrics of the journal, of images \
         and of exports are there while the daemon has these.\n\n{}\n\
         Of a standby:\n\n{}\n\
         Of a daemon that serves an image store:\n\n{}\n\
         Of a daemon that presents or trusts certificates:\n\n{}\n\
         ## Broker\n\n\
         On the address of `--http` or the socket of `--http-socket`. Metrics of SQL and of live \
         queries need `--sql`, those of certificates `--tls-certificate`.\n\n{}",
        table_of(&metrics()?, |_| true)?,
        table_of(&of_standby, |name| name.starts_with("memlane_standby_"))?,
        table_of(&of_standby, |name| name.starts_with("memlane_store_server_"))?,
        table_of(&of_standby, |name| name.starts_with("memlane_certificate_"))?,
        table_of(&broker_metrics()?, |_| true)?
    );
    let path = root().join(REFERENCE);
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        fs::write(&path, &text)?;
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    ensure!(committed == text, "{REFERENCE} is stale: run this test with UPDATE_REFERENCE=1");
    Ok(())
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
fn each_metric_of_alerts_and_dashboard_is_in_the_reference() -> Result<()> {
    let reference = fs::read_to_string(root().join(REFERENCE))?;
    let alerts = fs::read_to_string(monitoring("alerts.yml"))?;
    let mut named = names_in(&alerts);
    named.extend(expressions()?.iter().flat_map(|expression| names_in(expression)));
    ensure!(named.len() > 20, "too few metrics are named: {named:?}");
    for name in &named {
        let family = ["_bucket", "_count", "_sum"].iter().find_map(|it| name.strip_suffix(it));
        let is_listed = |name: &str| reference.contains(&format!("| `{name}` |"));
        ensure!(is_listed(name) || family.is_some_and(is_listed), "{name} is no metric");
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
    // JSON is valid YAML.
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
