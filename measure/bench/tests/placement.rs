//! Tests of `memlane-bench placement` on its own servers, with small sizes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use results::{Row, RunFolder, Validity};
use serde_json::json;
use system::database::{Mariadb, Postgres};
use system::{Ability, Tool, missing, wait_for};

/// Runs the program. Its own temporary folder has its own lock, because other tests run benchmarks
/// too.
fn run(place: &Path, words: &[&str]) -> Result<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memlane-bench"));
    command.arg("placement").args(words).env("TMPDIR", place).current_dir(place);
    command.output().context("the program starts")
}

fn missing_here() -> Option<String> {
    let needed = [
        Ability::BlockDevices,
        Ability::Zram,
        Ability::Program("fio"),
        Ability::Program("setpriv"),
        Ability::Program("mkfs.ext4"),
    ];
    missing(&needed).or_else(|| Postgres::find().err().map(|error| format!("{error:#}")))
}

/// Lock of tests that check for leftovers on the host, so that they do not see each other's
/// resources.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns leftovers of runs on the host.
fn traces() -> Result<Vec<String>> {
    let zram = fs::read_dir("/sys/block")?.flatten().map(|it| it.file_name());
    let mut found: Vec<String> = zram
        .map(|it| it.to_string_lossy().into_owned())
        .filter(|name| name.starts_with("zram"))
        .collect();
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    found.extend(mounts.lines().filter(|it| it.contains("/dev/zram")).map(str::to_owned));
    Ok(found)
}

/// Returns whether a row is void. Other guests and programs may invalidate measurements, but not
/// counts.
fn is_void(row: &Row) -> bool {
    matches!(&row.validity, Validity::Invalid(reason) if reason.contains("void"))
}

fn word<'row>(row: &'row Row, name: &str) -> &'row str {
    row.params.get(name).and_then(serde_json::Value::as_str).unwrap_or_default()
}

/// Time limit, also for resources of other processes.
const GOING_TIME_LIMIT: Duration = Duration::from_secs(120);

/// Measured seconds: few at first, more if a slow host completes nothing.
const SECONDS: [u32; 3] = [2, 8, 32];

/// Returns the rows of a run with slow storage in a folder, in which one user completed work
/// everywhere. Checks that nothing is left over.
fn measured(words: &[&str]) -> Result<Vec<Row>> {
    let _alone = alone();
    let place = tempfile::tempdir()?;
    let slow = tempfile::tempdir_in("/var/tmp")?;
    Tool::new("chmod 755").arg(slow.path()).check()?;
    let before = traces()?;
    for seconds in SECONDS {
        let out = format!("run-{seconds}");
        let more = [format!("--slow={}", slow.path().display()), format!("--seconds={seconds}")];
        let more = [&more[0], &more[1], "--ramp=0", "--out", &out];
        let output = run(place.path(), &[words, &more].concat())?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let rows: Vec<Row> = RunFolder::open(&place.path().join(out))?.rows().cloned().collect();
        for row in &rows {
            ensure!(!is_void(row), "{}: {:?}", row.case, row.validity);
        }
        // Another program may create a device of the same kind, but it is removed as well.
        let are_gone = || Ok(traces()?.iter().all(|it| before.contains(it)));
        wait_for("devices and mounts to go", GOING_TIME_LIMIT, are_gone)?;
        let left: Vec<_> = fs::read_dir(slow.path())?.flatten().collect();
        ensure!(left.is_empty(), "{left:?} is left");
        let mut of_one = rows.iter().filter(|row| row.params.get("users") == Some(&json!(1)));
        if of_one.all(|row| rate(row) > 0.0) {
            return Ok(rows);
        }
    }
    bail!("nothing was done in {SECONDS:?} seconds")
}

fn rate(row: &Row) -> f64 {
    let is_of_orders = word(row, "workload_kind") == "orders";
    row.figures[if is_of_orders { "nopm" } else { "reports_per_minute" }]
}

#[test]
fn each_part_is_put_where_it_should_be_and_measured() -> Result<()> {
    if let Some(reason) = missing_here() {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let rows = measured(&["--fast=zram", "--users-max=1"])?;
    let mut best = BTreeMap::new();
    for row in &rows {
        ensure!(row.figures.contains_key("memory_limit_bytes") || !row.is_valid(), "{row:?}");
        ensure!(!word(row, "durability").is_empty(), "{} survives what?", row.case);
        if row.case.ends_with("saturated") {
            best.insert((word(row, "workload_kind"), word(row, "placement")), row);
        } else {
            ensure!(row.params["users"].is_number(), "{} has no number of users", row.case);
        }
    }
    for workload in ["orders", "reports"] {
        for placement in ["none", "whole", "logs", "temporary"] {
            let row = best.get(&(workload, placement));
            let row = row.with_context(|| format!("no best of {workload}, {placement}"))?;
            let is_fast = placement != "none";
            assert_eq!(row.figures.contains_key("fast_used_bytes"), is_fast, "{}", row.case);
            assert_eq!(row.target == "zram lz4 + ext4", is_fast, "{}", row.case);
            let names: Vec<&str> = row.strips.iter().map(|strip| &*strip.name).collect();
            for name in ["user_share", "io_wait_share", "out_bytes_per_s", "rate_per_minute"] {
                ensure!(names.contains(&name), "no {name} in {names:?}");
            }
        }
        let used = |placement| best[&(workload, placement)].figures["fast_used_bytes"];
        // The pages of all tables exceed a log of seconds, and temporary data.
        ensure!(used("whole") > used("temporary"), "a part takes more than the whole");
        let survives = |placement| word(best[&(workload, placement)], "durability");
        ensure!(survives("logs").contains("without their log"), "{}", survives("logs"));
        ensure!(survives("temporary").contains("survives power loss"), "temporary");
    }
    let spilled = best[&("reports", "temporary")].figures["temporary_bytes_per_report"];
    ensure!(spilled > 1e6, "reports of {spilled} bytes fit in memory");
    Ok(())
}

#[test]
fn parts_of_mariadb_are_put_where_they_should_be() -> Result<()> {
    let missing = missing_here().or_else(|| Mariadb::find().err().map(|it| format!("{it:#}")));
    if let Some(reason) = missing {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let words = ["--database=mariadb", "--placement=logs,temporary", "--fast=zram"];
    let rows = measured(&[&words[..], &["--users-max=2"]].concat())?;
    let best = |case: &str| {
        let found = rows.iter().find(|row| row.case == case);
        found.with_context(|| format!("no {case} in {rows:?}"))
    };
    for row in &rows {
        assert_eq!(word(row, "engine"), "MariaDB", "{}", row.case);
        ensure!(word(row, "durability").contains("power loss"), "{} survives what?", row.case);
    }
    for part in ["logs only", "temporary tables only"] {
        let orders = best(&format!("orders on MariaDB, {part}, saturated"))?;
        let reports = best(&format!("reports on MariaDB, {part}, saturated"))?;
        ensure!(reports.figures["temporary_files_per_report"] >= 1.0, "{:?}", reports.figures);
        ensure!(orders.figures["fast_used_bytes"] > 0.0, "{:?}", orders.figures);
        // One user, then two, and the better of both.
        best(&format!("orders on MariaDB, {part}, users=2"))?;
    }
    Ok(())
}

#[test]
fn what_would_be_done_is_told_and_nothing_is_done() -> Result<()> {
    let place = tempfile::tempdir()?;
    let output = run(place.path(), &["--dry-run", "--json", "--fast=zram,brd"])?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    for name in ["seconds", "written_bytes", "memory_bytes"] {
        ensure!(told[name].is_number(), "{name} is not told: {told}");
    }
    let runs = fs::read_dir(place.path())?.flatten().filter(|it| it.path().is_dir()).count();
    ensure!(runs == 0, "a folder was made");
    Ok(())
}

#[test]
fn files_in_the_servers_own_memory_are_no_storage() -> Result<()> {
    if let Some(reason) = missing_here() {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let place = tempfile::tempdir()?;
    for (word, reason) in
        [("--fast=tmpfs", "the server's memory"), ("--slow=nbd", "has no file system")]
    {
        let output = run(place.path(), &["--dry-run", word])?;
        ensure!(!output.status.success(), "{word} is accepted");
        let text = String::from_utf8_lossy(&output.stderr);
        ensure!(text.contains(reason), "{text}");
    }
    Ok(())
}
