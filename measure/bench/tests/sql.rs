//! Tests of `memlane-bench sql` on its own broker and PostgreSQL, with small sizes.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use results::{LatencyKind, Row, RunFolder};
use system::database::Postgres;
use system::{Ability, missing, product_path};

const LIVE_QUERY: &str = "live query of memlane-broker";

/// Runs the program. Its own temporary folder has its own lock, because other tests run benchmarks
/// too.
fn run(place: &Path, words: &[&str]) -> Result<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memlane-bench"));
    command.arg("sql").args(words).env("TMPDIR", place).current_dir(place);
    command.output().context("the program starts")
}

fn missing_broker() -> Option<String> {
    let path = product_path("memlane-broker");
    let is_there = path.exists();
    let missing = missing(&[Ability::Program("taskset")]);
    missing.or_else(|| (!is_there).then(|| format!("{} is not built", path.display())))
}

fn missing_neighbour() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("cannot start PostgreSQL as its own user".to_owned());
    }
    missing(&[Ability::Program("setpriv")])
        .or_else(|| Postgres::find().err().map(|error| format!("{error:#}")))
}

/// Returns the rows of a run, all of which must count.
fn measured(place: &Path, words: &[&str]) -> Result<Vec<Row>> {
    let output = run(place, &[words, &["--out=run"]].concat())?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows: Vec<Row> = RunFolder::open(&place.join("run"))?.rows().cloned().collect();
    ensure!(!rows.is_empty(), "nothing was measured");
    for row in &rows {
        // Other guests of the host may invalidate measurements, but not counts.
        let is_measured = row.is_valid() || row.is_spoiled();
        ensure!(is_measured, "{} {}: {:?}", row.target, row.case, row.validity);
    }
    Ok(rows)
}

/// Returns a figure of all rows that have it.
fn figures(rows: &[Row], name: &str) -> Vec<f64> {
    rows.iter().filter_map(|row| row.figures.get(name).copied()).collect()
}

#[test]
fn queries_give_the_same_on_both_systems() -> Result<()> {
    if let Some(reason) = missing_broker().or_else(missing_neighbour) {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let place = tempfile::tempdir()?;
    let sizes = ["--records=3000", "--keys=500", "--seconds=1"];
    let rows = measured(place.path(), &[&["--only=point,scan,groups"], &sizes[..]].concat())?;
    let cases = [
        "current value by key",
        "scan, equality that 0.1 % pass",
        "scan, range that 1 % pass",
        "scan, range that 50 % pass",
        "groups, count and sum by symbol",
    ];
    let expected: Vec<(&str, &str)> = cases
        .iter()
        .flat_map(|&case| ["memlane-broker", "PostgreSQL"].map(|target| (case, target)))
        .collect();
    let found: Vec<(&str, &str)> = rows.iter().map(|row| (&*row.case, &*row.target)).collect();
    assert_eq!(found, expected);
    for row in &rows {
        assert_eq!(row.rounds.len(), 2, "{}", row.case);
        ensure!(row.rounds.iter().all(|&rate| rate > 0.0), "{}: {:?}", row.case, row.rounds);
        ensure!(row.params.contains_key("postgresql_version"), "{}", row.case);
    }
    Ok(())
}

#[test]
fn live_queries_are_followed_beside_a_consumer() -> Result<()> {
    if let Some(reason) = missing_broker() {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let place = tempfile::tempdir()?;
    let words = ["--only=follow,delivery,produce", "--records=3000", "--seconds=1"];
    let rows = measured(place.path(), &words)?;
    // The consumer and four queries, over a filled log and over one being filled.
    let followed = rows.iter().filter(|row| row.case.starts_with("follow")).count();
    assert_eq!(followed, 10);
    let delivered: Vec<&Row> =
        rows.iter().filter(|row| row.case == "delivery of 5000 messages/s").collect();
    assert_eq!(delivered.len(), 2);
    for row in delivered {
        let latency = row.latency.as_ref().context("messages have a latency")?;
        assert_eq!(latency.kind, LatencyKind::Intended);
        assert_eq!(row.app.map(|app| app.ops), Some(5_000));
    }
    let produced = rows.iter().filter(|row| row.case.starts_with("produce")).count();
    assert_eq!((produced, rows.len()), (2, 14));
    assert_eq!(figures(&rows, "values_behind_ns").len(), 1);
    assert_eq!(figures(&rows, "records_per_s").len(), 12);
    Ok(())
}

#[test]
fn many_live_queries_give_all_their_rows() -> Result<()> {
    if let Some(reason) = missing_broker() {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let place = tempfile::tempdir()?;
    let words = ["--only=many", "--records=20000", "--queries=250"];
    let rows = measured(place.path(), &words)?;
    let of: Vec<(&str, &str)> = rows.iter().map(|row| (&*row.case, &*row.target)).collect();
    let cases =
        ["0.1", "0.001"].map(|it| format!("many live queries, each of {it} % of the records"));
    assert_eq!(of, cases.each_ref().map(|case| (&**case, LIVE_QUERY)));
    // 250 queries that each match one in a thousand of 20,000 records.
    let given = rows[0].params["rows"].as_u64().context("rows are counted")?;
    ensure!((3_500..6_500).contains(&given), "{given} rows");
    ensure!(rows[0].params["queries"] == 250 && rows[0].params["records"] == 20_000);
    ensure!(figures(&rows, "records_per_s").iter().all(|&rate| rate > 0.0));
    Ok(())
}

#[test]
fn current_values_are_read_after_a_restart_and_a_kill() -> Result<()> {
    if let Some(reason) = missing_broker() {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let place = tempfile::tempdir()?;
    let rows = measured(place.path(), &["--only=keys", "--keys=2000"])?;
    assert_eq!(rows.len(), 3);
    assert_eq!(figures(&rows, "index_bytes_per_key").len(), 1);
    ensure!(figures(&rows, "index_bytes_per_key")[0] > 0.0);
    let first_reads = figures(&rows, "first_read_ns");
    ensure!(first_reads.len() == 2 && first_reads.iter().all(|&ns| ns > 0.0), "{first_reads:?}");
    Ok(())
}

#[test]
fn what_would_be_done_is_told_and_nothing_is_done() -> Result<()> {
    let place = tempfile::tempdir()?;
    let output = run(place.path(), &["--dry-run", "--json"])?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    for name in ["seconds", "written_bytes", "memory_bytes"] {
        ensure!(told[name].is_number(), "{name} is not told: {told}");
    }
    // Each part is planned, or skipped with a reason.
    for part in ["current value by key", "scan", "many live queries", "keys with a current value"] {
        ensure!(told.to_string().contains(part), "{part} is not told of: {told}");
    }
    let runs = fs::read_dir(place.path())?.flatten().filter(|it| it.path().is_dir()).count();
    ensure!(runs == 0, "a folder was made");
    Ok(())
}
