//! The driver under Kubernetes' conformance test `csi-sanity`, with a real daemon and kernel.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use system::{Ability, Background, Daemon, DaemonOptions, Tool, missing, product, wait_for};

const TIME_LIMIT: Duration = Duration::from_secs(600);
const START_TIME_LIMIT: Duration = Duration::from_secs(60);

/// Minimum number of passed tests. Fewer would mean that some are no longer run.
const PASSED_MIN: usize = 81;

/// Reasons for which `csi-sanity` skips tests: capabilities that the driver does not claim.
const NOT_CLAIMED: &[&str] = &[
    "Controller Publish, UnpublishVolume not supported",
    "ControllerListVolumeHealth not supported",
    "ControllerModifyVolume not supported",
    "ControllerPublishVolume not supported",
    "ControllerUnpublishVolume not supported",
    "Modify Volume not supported",
    "Modify volume not supported",
    "NodeGetStorageHealth not supported",
    "SNAPSHOT_ACCESSIBILITY_CONSTRAINTS not supported",
];

#[test]
fn all_of_what_is_claimed_passes_csi_sanity() -> Result<()> {
    if let Some(reason) = missing(&[Ability::BlockDevices, Ability::Program("mkfs.ext4")]) {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let daemon = Daemon::start(DaemonOptions { pool_size: "1GiB", flags: "" })?;
    let folder = daemon.folder().to_owned();
    let socket = folder.join("csi.sock");
    let driver = product("memlane-csi")
        .arg("--socket")
        .arg(&socket)
        .args(["--node", "node-1", "--daemon-socket"])
        .arg(daemon.api_socket());
    let driver = Background::start(driver)?;
    wait_for("the driver to serve", START_TIME_LIMIT, || Ok(socket.exists()))?;
    let report = folder.join("report.json");
    let judged = csi_clients::sanity()?
        .args(["--csi.testvolumesize", "67108864", "--csi.testvolumeexpandsize", "100663296"])
        .arg("--csi.endpoint")
        .arg(&socket)
        .arg("--csi.stagingdir")
        .arg(folder.join("staging"))
        .arg("--csi.mountdir")
        .arg(folder.join("mount"))
        .arg("--ginkgo.no-color")
        .arg(format!("--ginkgo.json-report={}", report.display()))
        .time_limit(TIME_LIMIT)
        .run()?;
    let text = std::fs::read_to_string(&report).context("csi-sanity left no report")?;
    ensure!(judged.exit_code == Some(0), "csi-sanity fails:\n{}", judged.stdout);
    check(&serde_json::from_str(&text)?)?;
    ensure!(daemon.volumes()?.is_empty(), "volumes stay: {:?}", daemon.volumes()?);
    drop(driver);
    daemon.finish()
}

fn check(report: &Value) -> Result<()> {
    let specs = report[0]["SpecReports"].as_array().context("the report has no list")?;
    let in_state = |state: &'static str| {
        specs.iter().filter(move |spec| spec["State"] == state && spec["LeafNodeType"] == "It")
    };
    let passed = in_state("passed").count();
    let skipped = in_state("skipped");
    let reasons: BTreeSet<_> =
        skipped.map(|spec| spec["Failure"]["Message"].as_str().unwrap_or_default()).collect();
    let unknown: Vec<_> = reasons.iter().filter(|it| !NOT_CLAIMED.contains(it)).collect();
    ensure!(unknown.is_empty(), "left out although it is claimed: {unknown:?}");
    let stale: Vec<_> = NOT_CLAIMED.iter().filter(|it| !reasons.contains(**it)).collect();
    ensure!(stale.is_empty(), "the judge does not say this any more: {stale:?}");
    ensure!(passed >= PASSED_MIN, "only {passed} passed");
    eprintln!("measured: csi-sanity has {passed} passed and {} reasons to skip", reasons.len());
    Ok(())
}

#[test]
fn the_driver_says_what_it_was_given_wrongly() -> Result<()> {
    let refused = product("memlane-csi").args(["--log", "a=b=c"]).run()?;
    ensure!(refused.exit_code == Some(1) && refused.stderr.contains("--log"), "{refused:?}");
    let refused = Tool::new(&system::product_path("memlane-csi").to_string_lossy())
        .args(["--socket", "/proc/nowhere/csi.sock"])
        .run()?;
    ensure!(refused.stderr.contains("/proc/nowhere/csi.sock"), "{refused:?}");
    Ok(())
}
