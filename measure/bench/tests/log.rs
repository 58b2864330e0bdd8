//! Tests of `memlane-bench log` on the compared brokers, with small sizes.

use std::process::Command;

use anyhow::{Result, ensure};
use results::RunFolder;
use system::{Ability, missing};

/// Minimal parameters: short measurements, and one number of threads, readers and consumers.
const LITTLE: &str = "--seconds=0.5 --log-mib=16 --mixes=0,80 --threads=2 --rates=50 \
                      --deliveries=100 --consumers=1 --out=run";

#[test]
fn a_log_is_measured_on_memlanes_broker_and_on_apache_kafka() -> Result<()> {
    if let Some(reason) = missing(&[Ability::Program("java"), Ability::Program("mvn")]) {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let place = tempfile::tempdir()?;
    // Its own temporary folder has its own lock, because other tests run benchmarks too.
    let mut command = Command::new(env!("CARGO_BIN_EXE_memlane-bench"));
    command.args(["log", "--target=broker,kafka"]).args(LITTLE.split_whitespace());
    command.env("MEMLANE_KAFKA_LIBS", kafka_clients::jars()?.trim_end_matches("/*"));
    let output = command.env("TMPDIR", place.path()).current_dir(place.path()).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let run = RunFolder::open(&place.path().join("run"))?;
    for target in ["memlane-broker embedded", "apache kafka"] {
        let rows: Vec<_> = run.rows().filter(|row| row.target == target).collect();
        ensure!(rows.iter().all(|row| !row.figures.is_empty()), "no figures of {target}: {rows:?}");
        ensure!(rows.len() == 6, "{target} was not measured in all ways: {rows:?}");
    }
    Ok(())
}
