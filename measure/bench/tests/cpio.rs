//! Tests of `memlane-bench cpio`, with small sizes.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use bench::targets::missing_programs;
use kafka_clients::{Recipe, make_environment, modules_in};
use results::{Row, RunFolder, Validity};
use system::database::Postgres;
use system::debian::unpack_package;
use system::{Ability, missing};
use tempfile::TempDir;

const REQUIREMENTS: &str = "tests/requirements.txt";

/// Returns a folder with dependencies that no installed package provides: `python` with modules,
/// and `nats` with a broker whose package would start a service.
fn fetched() -> Result<PathBuf> {
    let sources = env!("CARGO_MANIFEST_DIR");
    let origin = "the Python package index and Debian";
    let made_of = [REQUIREMENTS];
    let recipe = Recipe { sources, name: "applications", origin, made_of: &made_of };
    recipe.folder(|folder| {
        make_environment(&folder.join("python"), &Path::new(sources).join(REQUIREMENTS))?;
        unpack_package("nats-server", &folder.join("nats"))
    })
}

/// Runs the program. Its own temporary folder has its own lock, because other tests run benchmarks
/// too.
fn bench(place: &Path, words: &[&str]) -> Result<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memlane-bench"));
    command.arg("cpio").args(words).env("TMPDIR", place).current_dir(place);
    let fetched = fetched()?;
    let path = std::env::var("PATH").context("there is a PATH")?;
    command.env("PATH", format!("{}:{path}", fetched.join("nats/usr/sbin").display()));
    command.env("PYTHONPATH", modules_in(&fetched.join("python"))?);
    command.output().context("the program starts")
}

fn recorded(place: &Path, words: &[&str]) -> Result<RunFolder> {
    let words: Vec<&str> = words.iter().copied().chain(["--size-mib=8", "--out=run"]).collect();
    let output = bench(place, &words)?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    RunFolder::open(&place.join("run"))
}

/// Checks that a row is valid, or invalid with figures because of a busy machine.
fn check_validity(row: &Row) -> Result<()> {
    let is_measured = row.is_valid() || row.is_spoiled();
    ensure!(is_measured, "{} on {}: {:?}", row.case, row.target, row.validity);
    Ok(())
}

/// Variable that also enables applications which differ only in data size from those below.
const ALL_VARIABLE: &str = "MEMLANE_ALL_APPLICATIONS";
const ONE_OF_EACH: &str = "--only=blastn,borg-small,business,db_bench,duckdb,fio,fio-ior,fs_mark,\
                           index-flat-small,index-tree-small,lmdb,similar,sort,sqlite,streams-64,\
                           tpcc";

#[test]
fn each_application_that_is_installed_does_its_work_and_is_verified() -> Result<()> {
    let needed = [Ability::BlockDevices, Ability::Program("fio"), Ability::Program("pgbench")];
    let missing = missing(&needed).or_else(|| Postgres::find().err().map(|it| format!("{it:#}")));
    if let Some(reason) = missing {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let place: TempDir = tempfile::tempdir()?;
    let mut words = vec!["--target=loop", "--cores=1", "--seconds=1"];
    if std::env::var_os(ALL_VARIABLE).is_none() {
        words.push(ONE_OF_EACH);
    }
    let run = recorded(place.path(), &words)?;
    let mut names = Vec::new();
    for row in run.rows() {
        if let Validity::Skipped(reason) = &row.validity {
            let has_hint = ["apt install", "pip install"].iter().any(|it| reason.contains(it));
            ensure!(has_hint, "{}: {reason}", row.case);
            eprintln!("skipped: {}: {reason}", row.case);
            continue;
        }
        check_validity(row)?;
        check_cycles(row)?;
        names.push(row.params.get("application").and_then(|it| it.as_str()).unwrap_or_default());
        if row.case.starts_with("tpcc") {
            assert_eq!(row.params["stands_for"], "TPC-C");
            for name in ["application_cycles", "driver_cycles"] {
                ensure!(row.figures[name] > 0.0, "no {name}: {:?}", row.figures);
            }
        }
    }
    eprintln!("{} applications: {}", names.len(), names.join(", "));
    for name in ["sort", "sqlite", "tpcc"] {
        ensure!(names.contains(&name), "only {names:?} ran");
    }
    Ok(())
}

/// Checks that the total is the sum of the groups, and not zero.
fn check_cycles(row: &Row) -> Result<()> {
    let figure = |name: &str| row.figures.get(name).copied().context("the figure is there");
    let working = figure("application_cycles")? + figure("driver_cycles")?;
    let of_groups = working + figure("store_cycles")? + figure("rest_cycles")?;
    let total = figure("cpio_cycles")?;
    ensure!((of_groups - total).abs() <= 0.02 * total.abs() + 1.0, "{of_groups} of {total} cycles");
    ensure!(working > 0.0, "{} used nothing", row.case);
    ensure!(figure("ios")? > 100.0, "{} did next to nothing", row.case);
    let share = figure("utilisation_share")?;
    ensure!(share > 0.0 && share <= 1.0, "{share} of a core");
    Ok(())
}

#[test]
fn what_goes_past_the_kernel_is_counted_by_the_daemon() -> Result<()> {
    let needed = [Ability::BlockDevices, Ability::Program("fio")];
    if let Some(reason) = missing(&needed).or_else(missing_programs) {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let place: TempDir = tempfile::tempdir()?;
    let words = ["--only=fio", "--target=run,nbd,volume", "--cores=1", "--seconds=1"];
    let run = recorded(place.path(), &words)?;
    let mut counted = Vec::new();
    for row in run.rows() {
        if matches!(row.validity, Validity::Skipped(_)) {
            eprintln!("skipped: {}: {:?}", row.target, row.validity);
            continue;
        }
        check_validity(row)?;
        let at = row.params.get("ios_counted_at").and_then(|it| it.as_str());
        let at = at.context("it says where")?;
        ensure!(row.target.contains("ext4") == at.contains("kernel"), "{}: {at}", row.target);
        ensure!(row.figures["driver_cycles"] > 0.0, "fio used nothing on {}", row.target);
        counted.push(at);
    }
    ensure!(counted.len() >= 2, "only {counted:?} were measured");
    Ok(())
}

#[test]
fn what_is_missing_is_said_with_how_to_get_it_and_nothing_is_done() -> Result<()> {
    let place = tempfile::tempdir()?;
    let output = bench(place.path(), &["--dry-run", "--target=tmpfs,run,loop", "--json"])?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(text.contains("the count of I/Os is unavailable"), "{text}");
    let named = ["fio", "fs_mark", "db_bench", "sqlite", "lmdb", "business", "blastn", "similar"];
    for name in named.into_iter().chain(["borg-small", "index-flat-large", "sort"]) {
        ensure!(text.contains(name), "{name} is neither planned nor skipped: {text}");
    }
    let runs = std::fs::read_dir(place.path())?.flatten().filter(|it| it.path().is_dir()).count();
    ensure!(runs == 0, "a folder was made");
    Ok(())
}

#[test]
fn an_application_that_is_none_is_refused() -> Result<()> {
    let place = tempfile::tempdir()?;
    let output = bench(place.path(), &["--only=doom", "--dry-run"])?;
    ensure!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(text.contains("doom") && text.contains("db_bench"), "{text}");
    Ok(())
}
