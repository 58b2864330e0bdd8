//! `memlane-bench cpio` as a user runs it, small.

use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use results::{Row, RunFolder, Validity};
use system::{Ability, missing};
use tempfile::TempDir;

/// Its own folder for temporary files has its own lock: other tests run benchmarks too.
fn bench(place: &Path, words: &[&str]) -> Result<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memlane-bench"));
    command.arg("cpio").args(words).env("TMPDIR", place).current_dir(place);
    command.output().context("the program starts")
}

#[test]
fn cycles_are_those_of_the_groups_and_the_result_is_verified() -> Result<()> {
    if let Some(reason) = missing(&[Ability::BlockDevices, Ability::Program("fio")]) {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let place: TempDir = tempfile::tempdir()?;
    let words = ["--only=sort,sqlite", "--target=loop", "--cores=1", "--size-mib=8", "--out=run"];
    let output = bench(place.path(), &words)?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let run = RunFolder::open(&place.path().join("run"))?;
    let rows: Vec<&Row> = run.rows().collect();
    assert_eq!(rows.len(), 2);
    for row in rows {
        if let Validity::Invalid(reason) = &row.validity {
            // So it is where other programs or guests run beside this; the figures are there still.
            let is_busy = reason.contains("other guests") || reason.contains("other programs");
            ensure!(is_busy, "{}: {reason}", row.case);
        }
        let figure = |name: &str| row.figures.get(name).copied().context("the figure is there");
        let of_groups = figure("application_cycles")?
            + figure("driver_cycles")?
            + figure("store_cycles")?
            + figure("rest_cycles")?;
        let total = figure("cpio_cycles")?;
        ensure!((of_groups - total).abs() <= 0.02 * total.abs(), "{of_groups} of {total} cycles");
        ensure!(figure("application_cycles")? > 0.0, "{} used nothing", row.case);
        ensure!(figure("ios")? > 1000.0, "{} did next to nothing", row.case);
        let share = figure("utilisation_share")?;
        ensure!(share > 0.0 && share <= 1.0, "{share} of a core");
    }
    Ok(())
}

#[test]
fn what_is_missing_is_said_with_how_to_get_it_and_nothing_is_done() -> Result<()> {
    let place = tempfile::tempdir()?;
    let output = bench(place.path(), &["--dry-run", "--target=nbd,loop", "--json"])?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(text.contains("the count of I/Os is unavailable"), "{text}");
    for name in ["fio", "fs_mark", "db_bench", "sqlite", "blastn", "borg-small", "sort"] {
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
