//! Tests of `memlane-bench peers` on virtual disks, with small sizes.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use bench::targets::missing_programs;
use results::{Row, RunFolder};
use system::{Ability, missing};

const TARGETS: [(&str, &str); 2] = [
    ("volume vhost-user-blk", "memlaned"),
    ("QEMU vhost-user-blk, iothread, io_uring, over tmpfs", "iothread=own"),
];

/// Goal: vhost-user disks of the real daemon and of QEMU are measured by the same driver.
#[test]
fn disks_over_vhost_user_are_measured_beside_those_of_qemu() -> Result<()> {
    let needed = [Ability::Program("qemu-storage-daemon")];
    if let Some(reason) = missing(&needed).or_else(missing_programs) {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let place = tempfile::tempdir()?;
    let output = Command::new(env!("CARGO_BIN_EXE_memlane-bench"))
        .args(["peers", "--only=jobs", "--target=vhost-user,qsd-vhost-io_uring"])
        .args(["--seconds=0.05", "--size-mib=64", "--profile=quick", "--out=run"])
        .env("TMPDIR", place.path())
        .current_dir(place.path())
        .output()
        .context("the program starts")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let run = RunFolder::open(&place.path().join("run"))?;
    for (target, server) in TARGETS {
        let rows: Vec<&Row> = run.rows().filter(|row| row.target == target).collect();
        // Reads and writes of two sizes at two depths, three repeats.
        ensure!(rows.len() == 24, "{target} has {} rows", rows.len());
        for row in rows {
            let is_measured = row.is_valid() || row.is_spoiled();
            ensure!(is_measured, "{} on {target}: {:?}", row.case, row.validity);
            ensure!(row.app.is_some_and(|app| app.ops > 0), "{} did nothing", row.case);
            let command = row.params.get("server").and_then(|it| it.as_str());
            ensure!(command.is_some_and(|it| it.contains(server)), "{command:?}");
        }
    }
    Ok(())
}
