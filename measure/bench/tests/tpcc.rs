//! Tests of `memlane-bench tpcc` on its own databases, with small sizes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use results::{LatencyKind, Row, RunFolder, Validity};
use system::database::{Mariadb, Postgres};
use system::{Ability, Tool, missing, wait_for};

const FOUND_TIME_LIMIT: Duration = Duration::from_secs(60);

/// Creates a command. Its own temporary folder has its own lock, because other tests run benchmarks
/// too.
fn bench(place: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memlane-bench"));
    command.arg("tpcc").args(words).env("TMPDIR", place).current_dir(place);
    command
}

fn run(place: &Path, words: &[&str]) -> Result<Output> {
    bench(place, words).output().context("the program starts")
}

fn missing_here() -> Option<String> {
    missing(&[Ability::BlockDevices, Ability::Program("fio"), Ability::Program("setpriv")])
        .or_else(|| Postgres::find().err().map(|error| format!("{error:#}")))
}

fn rows_in(place: &Path) -> Result<Vec<Row>> {
    Ok(RunFolder::open(&place.join("run"))?.rows().cloned().collect())
}

/// Returns whether a row is void. Other guests and programs may invalidate measurements, but not
/// counts.
fn is_void(row: &Row) -> bool {
    matches!(&row.validity, Validity::Invalid(reason) if reason.contains("void"))
}

#[test]
fn drivers_count_what_the_database_counts_and_it_stays_consistent() -> Result<()> {
    if let Some(reason) = missing_here() {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let place = tempfile::tempdir()?;
    let words = ["--target=tmpfs", "--driver=pgbench", "--mix=spec", "--rates=50", "--users=3"];
    let times = ["--ramp=0", "--seconds=1", "--out=run"];
    let output = run(place.path(), &[&words[..], &times[..]].concat())?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows = rows_in(place.path())?;
    let cases: Vec<&str> = rows.iter().map(|row| &*row.case).collect();
    let (own, by_pgbench) =
        ("spec closed warehouses=1 users=3", "spec closed warehouses=1 users=3 driver=pgbench");
    let turns = [own, by_pgbench].repeat(4);
    assert_eq!(cases, [&turns[..], &["spec open 50 % warehouses=1 users=3"]].concat());
    for row in &rows {
        ensure!(!is_void(row), "{}: {:?}", row.case, row.validity);
        ensure!(row.figures["nopm"] > 0.0 && row.figures["tpm"] > row.figures["nopm"]);
    }
    let (closed, pgbench, open) = (&rows[0], &rows[1], &rows[8]);
    for row in [closed, open] {
        // Nobody else uses the database, so both counts are of the same orders.
        assert_eq!(row.figures["new_orders_by_database"], row.figures["new_orders_by_driver"]);
        for kind in ["new_order", "payment", "order_status", "delivery", "stock_level"] {
            ensure!(row.figures.contains_key(&format!("{kind}_committed")), "no {kind}");
        }
    }
    let asked_for = pgbench.figures["new_orders_asked_for"];
    let made = pgbench.figures["new_orders_by_database"];
    ensure!(made > 0.0 && made <= asked_for, "{made} new orders of {asked_for} asked for");
    // A slow host makes only a few, of which one may exceed one in a hundred.
    let most = made + 3.0 >= asked_for * 0.9;
    ensure!(most, "only one in a hundred is rolled back: {made} of {asked_for}");
    ensure!(pgbench.figures.contains_key("pgbench_difference_share"));
    ensure!(rows[..8].iter().all(|row| row.params["autovacuum"] == "off"));
    let kind = |row: &Row| row.latency.as_ref().map(|latency| latency.kind);
    assert_eq!(kind(closed), Some(LatencyKind::Service));
    assert_eq!(kind(open), Some(LatencyKind::Intended));
    ensure!(open.figures.contains_key("payment_intended_ns_p99"));
    Ok(())
}

/// Checks orders on an engine other than PostgreSQL: counts agree with the driver, and the database
/// is consistent.
fn check_engine(database: &str, name: &str) -> Result<()> {
    let place = tempfile::tempdir()?;
    let words = ["--target=tmpfs", "--mix=spec", "--rates=50", "--users=3", "--warehouses=2"];
    let more = [&format!("--database={database}"), "--ramp=0", "--seconds=1", "--out=run"];
    let output = run(place.path(), &[&words[..], &more[..]].concat())?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows = rows_in(place.path())?;
    let cases: Vec<&str> = rows.iter().map(|row| &*row.case).collect();
    let case = |pace: &str| format!("spec {pace} warehouses=2 users=3 engine={name}");
    assert_eq!(cases, [case("closed"), case("open 50 %")]);
    for row in &rows {
        ensure!(!is_void(row), "{}: {:?}", row.case, row.validity);
        assert_eq!(row.params["engine"], name);
        ensure!(row.figures["nopm"] > 0.0 && row.figures["tpm"] > row.figures["nopm"], "{row:?}");
        // Nobody else uses the database, so both counts are of the same orders.
        assert_eq!(row.figures["new_orders_by_database"], row.figures["new_orders_by_driver"]);
    }
    for kind in ["new_order", "payment", "order_status", "delivery", "stock_level"] {
        let committed = rows.iter().map(|row| row.figures[&format!("{kind}_committed")]);
        ensure!(committed.sum::<f64>() > 0.0, "no {kind} was committed");
    }
    Ok(())
}

#[test]
fn orders_are_processed_on_mariadb() -> Result<()> {
    let missing = missing_here().or_else(|| Mariadb::find().err().map(|it| format!("{it:#}")));
    if let Some(reason) = missing {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    check_engine("mariadb", "MariaDB")
}

#[test]
fn orders_are_processed_on_sqlite() -> Result<()> {
    if let Some(reason) = missing(&[Ability::BlockDevices, Ability::Program("fio")]) {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    check_engine("sqlite", "SQLite")
}

#[test]
fn procedures_are_refused_where_there_are_none() -> Result<()> {
    let place = tempfile::tempdir()?;
    for word in ["--stored", "--driver=pgbench"] {
        let words = ["--dry-run", "--target=tmpfs", "--database=sqlite", word];
        let output = run(place.path(), &words)?;
        ensure!(!output.status.success(), "{word} is accepted");
        let text = String::from_utf8_lossy(&output.stderr);
        ensure!(text.contains("PostgreSQL only"), "{text}");
    }
    Ok(())
}

/// A run that a test interferes with, killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself, which is equally fine.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the socket folder of the server that this process started.
fn sockets_of(parent: u32) -> Option<PathBuf> {
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let behind_name = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
        if behind_name.split_whitespace().nth(1) != Some(&parent.to_string()) {
            continue;
        }
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).into_owned();
        let found = words.split('\0').find_map(|it| it.strip_prefix("unix_socket_directories="));
        if let Some(sockets) = found {
            return Some(PathBuf::from(sockets));
        }
    }
    None
}

fn ask(sockets: &Path, statement: &str) -> Result<String> {
    let psql = Tool::new("psql -XAt -U postgres -d tpcc -h").arg(sockets).arg("-c").arg(statement);
    Ok(psql.check()?.trim().to_owned())
}

#[test]
fn a_run_whose_database_is_broken_meanwhile_is_void() -> Result<()> {
    if let Some(reason) = missing_here() {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let place = tempfile::tempdir()?;
    let words = ["--target=tmpfs", "--rates=0", "--users=2", "--ramp=0", "--seconds=8"];
    let mut command = bench(place.path(), &[&words[..], &["--out=run"]].concat());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = Running(command.spawn().context("the program starts")?);
    let mut sockets = None;
    wait_for("virtual users to work", FOUND_TIME_LIMIT, || {
        let ended = running.0.try_wait()?;
        ensure!(ended.is_none(), "the run ended early: {ended:?}");
        sockets = sockets_of(running.0.id());
        let Some(sockets) = &sockets else { return Ok(false) };
        let users = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tpcc user'";
        let ordered = "SELECT count(*) FROM orders WHERE o_id > 3001";
        let is_at_work = ask(sockets, users).is_ok_and(|count| count != "0");
        Ok(is_at_work && ask(sockets, ordered).is_ok_and(|count| count != "0"))
    })?;
    let sockets = sockets.context("it was just found")?;
    // Modified without the driver: money without a payment, and an order without lines.
    ask(&sockets, "UPDATE warehouse SET w_ytd = w_ytd + 0.01")?;
    let lost = "DELETE FROM order_line WHERE ol_d_id = 4 AND ol_o_id = 7 AND ol_number = 1";
    ask(&sockets, lost)?;
    ensure!(running.0.wait()?.success(), "the run goes on, and says that it is void");
    let rows = rows_in(place.path())?;
    ensure!(rows.len() == 1, "{} rows", rows.len());
    let Validity::Invalid(reason) = &rows[0].validity else {
        anyhow::bail!("a broken database counts: {:?}", rows[0]);
    };
    ensure!(reason.starts_with("void: "), "{reason}");
    for said in ["condition 1", "in 1 warehouses", "condition 4", "in 1 districts"] {
        ensure!(reason.contains(said), "{said} is not in: {reason}");
    }
    ensure!(!reason.contains("condition 2") && !reason.contains("condition 3"), "{reason}");
    Ok(())
}

#[test]
fn what_would_be_done_is_told_and_nothing_is_done() -> Result<()> {
    let place = tempfile::tempdir()?;
    let words = ["--dry-run", "--json", "--target=tmpfs,brd", "--clones=2", "--databases=1,2"];
    let output = run(place.path(), &words)?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    for name in ["seconds", "written_bytes", "memory_bytes"] {
        ensure!(told[name].is_number(), "{name} is not told: {told}");
    }
    // Each is planned, or skipped with a reason.
    let clones = "clones of a volume attached + ext4";
    for name in ["tmpfs file", "brd + ext4", clones, "virtual machines, a volume each"] {
        ensure!(told.to_string().contains(name), "{name} is not told of: {told}");
    }
    let runs = fs::read_dir(place.path())?.flatten().filter(|it| it.path().is_dir()).count();
    ensure!(runs == 0, "a folder was made");
    Ok(())
}

#[test]
fn a_target_without_files_is_refused() -> Result<()> {
    let place = tempfile::tempdir()?;
    let output = run(place.path(), &["--dry-run", "--target=nbd"])?;
    ensure!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(text.contains("has no file system"), "{text}");
    Ok(())
}
