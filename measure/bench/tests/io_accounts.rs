//! Tests that 64 MiB written and read are counted as 131,072 sectors each, for every access path of
//! a volume: at the kernel's device, or by the daemon at the export.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bench::targets::{
    Kind, Layout, Place, Spec, counted_copy, counts, counts_since, daemon_counts, missing_programs,
};
use results::DeviceIo;
use sdk::{Client, Target};
use system::{Ability, Daemon, DaemonOptions, Tool, attach, missing, wait_for};

const BYTES: u64 = 64 << 20;
const SECTORS: u64 = 131_072;
const STEP_BYTES: usize = 1 << 20;
const COUNT_TIME_LIMIT: Duration = Duration::from_secs(30);
const PLACE_BYTES: u64 = 128 << 20;

fn assert_whole(moved: DeviceIo, what: &str) {
    assert_eq!((moved.read_sectors, moved.write_sectors), (SECTORS, SECTORS), "{what}: {moved:?}");
}

/// Waits for the counts, because a request may be counted just after its response.
fn wait_until_whole(daemon: &Daemon, before: DeviceIo) -> Result<()> {
    let moved = || daemon_counts(daemon).map(|now| counts_since(now, before));
    wait_for("the daemon to count", COUNT_TIME_LIMIT, || {
        let moved = moved()?;
        Ok(moved.read_sectors.min(moved.write_sectors) >= SECTORS)
    })?;
    assert_whole(moved()?, "the daemon");
    Ok(())
}

fn check(kind: Kind) -> Result<()> {
    let place = Place::new(PLACE_BYTES, None);
    let spec = Spec::from(kind);
    if let Some(reason) = spec.missing(&place) {
        eprintln!("skipped: {spec}: {reason}");
        return Ok(());
    }
    let target = spec.open(&place)?;
    let moved = counted_copy(&target, BYTES)?.context("it is counted")?;
    assert_whole(moved, &format!("{spec}, {}", target.counted_at()));
    let again = counted_copy(&target, BYTES)?.context("it is counted")?;
    assert_whole(again, "the second time");
    Ok(())
}

#[test]
fn of_an_attached_volume() -> Result<()> {
    check(Kind::Volume)
}

#[test]
fn of_the_file_of_a_volume() -> Result<()> {
    check(Kind::VolumeFile)
}

#[test]
fn of_a_volume_over_nbd() -> Result<()> {
    check(Kind::VolumeNbd)
}

#[test]
fn of_a_volume_past_the_kernel() -> Result<()> {
    check(Kind::VolumeRun)
}

#[test]
fn of_the_kernels_own_devices() -> Result<()> {
    check(Kind::Zram)?;
    check(Kind::Loop)
}

#[test]
fn of_the_ring() -> Result<()> {
    if let Some(reason) = missing_programs() {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let daemon = Daemon::start(DaemonOptions { pool_size: "512MiB", flags: "--no-fuse" })?;
    daemon.memlane("volume create v --size 128MiB")?;
    let before = daemon_counts(&daemon)?;
    let client = Client::connect(&daemon.run_dir().join("ring.sock"))?;
    let device = client.open(&Target::Name("v".to_owned()))?;
    let written: Vec<u8> = (0..=250).cycle().take(STEP_BYTES).collect();
    let mut read = vec![0; STEP_BYTES];
    for offset in (0..BYTES).step_by(STEP_BYTES) {
        device.write(offset, &written)?;
    }
    for offset in (0..BYTES).step_by(STEP_BYTES) {
        device.read(offset, &mut read)?;
        ensure!(read == written, "what was read at {offset} was not written");
    }
    wait_until_whole(&daemon, before)?;
    drop(device);
    // Counts remain after a client has disconnected.
    wait_until_whole(&daemon, before)?;
    daemon.finish()
}

#[test]
fn the_kernel_and_the_daemon_count_the_same_for_an_attached_volume() -> Result<()> {
    let missing = missing(&[Ability::BlockDevices]).or_else(missing_programs);
    if let Some(reason) = missing {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let daemon = Daemon::start(DaemonOptions { pool_size: "512MiB", flags: "" })?;
    daemon.memlane("volume create v --size 128MiB --sector 4096")?;
    let path = attach(&daemon, "v")?;
    let name = path.file_name().context("a device has a name")?.to_string_lossy().into_owned();
    let shown = path.display().to_string();
    let before = (counts(&name)?, daemon_counts(&daemon)?);
    let dd = "dd status=none conv=notrunc bs=1M count=64";
    Tool::new(dd).args(["if=/dev/urandom", &format!("of={shown}"), "oflag=direct"]).check()?;
    Tool::new(dd).args([&format!("if={shown}"), "of=/dev/null", "iflag=direct"]).check()?;
    assert_whole(counts_since(counts(&name)?, before.0), "the kernel");
    wait_until_whole(&daemon, before.1)?;
    daemon.finish()
}

#[test]
fn what_nobody_counts_is_not_said_to_be_counted() -> Result<()> {
    let place = Place::new(PLACE_BYTES, None);
    let spec = Spec { kind: Kind::Tmpfs, layout: Layout::Raw };
    if let Some(reason) = spec.missing(&place) {
        eprintln!("skipped: {spec}: {reason}");
        return Ok(());
    }
    let target = spec.open(&place)?;
    ensure!(target.counts()?.is_none(), "tmpfs passes no device and no server");
    ensure!(counted_copy(&target, BYTES)?.is_none(), "nothing was counted");
    Ok(())
}
