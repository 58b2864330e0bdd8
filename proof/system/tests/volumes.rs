//! Volumes from a user's point of view: the command line, its exit codes, sizes, full pools,
//! restarts.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use system::{
    Ability, Daemon, DaemonOptions, NBD_NO_SPACE, NbdClient, NbdFailure, Random, Request, attach,
    device_size_bytes, missing, processor_seconds, wait_for,
};

const TIME_LIMIT: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;
const CHUNK_BYTES: u32 = 1 << 20;

fn small_daemon() -> Result<Daemon> {
    Daemon::start(DaemonOptions { pool_size: "64MiB", flags: "--no-fuse" })
}

#[track_caller]
fn check(daemon: &Daemon, words: &str, exit_code: i32) {
    let output = daemon.try_memlane(words).expect("the command line can be run");
    let said = format!("{}{}", output.stdout, output.stderr);
    assert_eq!(output.exit_code, Some(exit_code), "memlane {words}: {said}");
}

#[test]
fn the_exit_code_tells_what_went_wrong() -> Result<()> {
    let mut daemon = small_daemon()?;
    check(&daemon, "volume create v --size 16MiB", 0);
    check(&daemon, "volume create v --size 16MiB", 1);
    check(&daemon, "volume create", 2);
    check(&daemon, "volume create w --size 16XB", 2);
    check(&daemon, "volume show w", 3);
    check(&daemon, "volume delete w", 3);
    check(&daemon, "volume create w --size 128MiB --capacity guaranteed", 4);
    check(&daemon, "volume delete v", 0);
    daemon.kill()?;
    check(&daemon, "status", 5);
    daemon.start_again()?;
    check(&daemon, "status", 0);
    daemon.finish()
}

#[test]
fn mistakes_of_users_are_no_errors_in_the_log() -> Result<()> {
    let daemon = small_daemon()?;
    check(&daemon, "volume create v --size 16MiB", 0);
    check(&daemon, "volume create v --size 16MiB", 1);
    check(&daemon, "volume create w --size 128MiB --capacity guaranteed", 4);
    check(&daemon, "attach v", 1);
    check(&daemon, "pool set max-memory=1TiB", 4);
    check(&daemon, "pool set max-memory=4KiB", 1);
    check(&daemon, "image verify 7", 3);
    check(&daemon, "image restore 7", 3);
    let log = std::fs::read_to_string(daemon.log_path())?;
    ensure!(log.contains("WARN") && !log.contains("ERROR"), "{log}");
    daemon.finish()
}

#[test]
fn an_error_in_json_has_a_kind_and_a_message() -> Result<()> {
    let daemon = small_daemon()?;
    let output = daemon.try_memlane("--json volume show nothing")?;
    let printed = format!("{}{}", output.stdout, output.stderr);
    let error: serde_json::Value =
        serde_json::from_str(&printed).with_context(|| format!("this is no JSON: {printed}"))?;
    ensure!(error["error"]["kind"] == "not_found", "{error}");
    ensure!(error["error"]["message"].is_string(), "{error}");
    daemon.finish()
}

#[test]
fn a_volume_grows_and_keeps_its_data() -> Result<()> {
    let daemon = small_daemon()?;
    daemon.memlane("volume create v --size 16MiB")?;
    let written = noise(7, 4096);
    client(&daemon, "v")?
        .ask(&Request::Write { offset: 16 * MIB - 4096, data: written.clone() })?;
    daemon.memlane("volume resize v --size 32MiB")?;
    let mut client = client(&daemon, "v")?;
    ensure!(client.size_bytes() == 32 * MIB, "the volume has {} bytes", client.size_bytes());
    let found = client.ask(&Request::Read { offset: 16 * MIB - 4096, length: 8192 })?;
    ensure!(found[..4096] == written, "the data is another");
    ensure!(found[4096..].iter().all(|byte| *byte == 0), "what is new is not empty");
    drop(client);
    daemon.finish()
}

#[test]
fn a_volume_shrinks_below_its_data_only_by_force() -> Result<()> {
    let daemon = small_daemon()?;
    daemon.memlane("volume create v --size 32MiB")?;
    client(&daemon, "v")?.ask(&Request::Write { offset: 24 * MIB, data: noise(7, 4096) })?;
    check(&daemon, "volume resize v --size 16MiB", 1);
    ensure!(daemon.volume("v")?.size_bytes == 32 * MIB, "a refused shrink changed the size");
    check(&daemon, "volume resize v --size 16MiB --force", 0);
    daemon.memlane("volume resize v --size 32MiB")?;
    let found = client(&daemon, "v")?.ask(&Request::Read { offset: 24 * MIB, length: 4096 })?;
    ensure!(found.iter().all(|byte| *byte == 0), "dropped data came back");
    daemon.finish()
}

#[test]
fn a_full_pool_refuses_writes_until_something_is_discarded() -> Result<()> {
    let daemon = small_daemon()?;
    daemon.memlane("volume create v --size 1GiB")?;
    let mut client = client(&daemon, "v")?;
    let full_at = fill(&mut client)?;
    ensure!(full_at > 32 * MIB, "a pool of 64 MiB took only {full_at} bytes");
    let before = noise(0, CHUNK_BYTES);
    let found = client.ask(&Request::Read { offset: 0, length: CHUNK_BYTES })?;
    ensure!(found == before, "a full pool changed what was written before");
    let length = u32::try_from(full_at)?;
    client.ask(&Request::Trim { offset: 0, length })?;
    wait_for("room after the discard", TIME_LIMIT, || {
        match client.ask(&Request::Write { offset: 0, data: noise(1, CHUNK_BYTES) }) {
            Ok(_) => Ok(true),
            Err(NbdFailure::Refused(NBD_NO_SPACE)) => Ok(false),
            Err(other) => Err(other.into()),
        }
    })?;
    drop(client);
    daemon.finish()
}

#[test]
fn deleting_a_volume_gives_its_memory_back_also_from_a_full_pool() -> Result<()> {
    let daemon = small_daemon()?;
    let empty = daemon.status()?.pool.used_bytes;
    daemon.memlane("volume create v --size 1GiB")?;
    fill(&mut client(&daemon, "v")?)?;
    daemon.memlane("volume delete v")?;
    wait_for("the memory to come back", TIME_LIMIT, || {
        Ok(daemon.status()?.pool.used_bytes < empty + 4 * MIB)
    })?;
    check(&daemon, "volume show v", 3);
    daemon.finish()
}

#[test]
fn volumes_and_their_properties_come_back_after_a_restart() -> Result<()> {
    let mut daemon = small_daemon()?;
    daemon.memlane("volume create a --size 16MiB --reduction compress")?;
    daemon.memlane("volume create b --size 64TiB --sector 512")?;
    daemon.memlane("volume rename a c")?;
    let before = daemon.volumes()?;
    daemon.kill()?;
    daemon.start_again()?;
    ensure!(daemon.volumes()? == before, "{:?} is not {before:?}", daemon.volumes()?);
    daemon.stop()?;
    daemon.start_again()?;
    ensure!(daemon.volumes()? == before, "{:?} is not {before:?}", daemon.volumes()?);
    daemon.finish()
}

#[test]
fn attachments_come_back_after_a_restart() -> Result<()> {
    if let Some(reason) = missing(&[Ability::BlockDevices]) {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let mut daemon = Daemon::start(DaemonOptions { pool_size: "64MiB", flags: "" })?;
    daemon.memlane("volume create v --size 16MiB")?;
    let device = attach(&daemon, "v")?;
    std::fs::write(&device, noise(7, 4096))?;
    for restart in [Daemon::kill, Daemon::stop] {
        restart(&mut daemon)?;
        daemon.start_again()?;
        let shown = daemon.volume("v")?.device;
        ensure!(shown.as_deref() == device.to_str(), "the device is now {shown:?}");
        ensure!(device_size_bytes(&device)? == 16 * MIB, "the device has another size");
        let found = client(&daemon, "v")?.ask(&Request::Read { offset: 0, length: 4096 })?;
        ensure!(found == noise(7, 4096), "the device holds something else");
    }
    daemon.finish()
}

#[test]
fn an_idle_daemon_with_eight_attached_volumes_hardly_wakes() -> Result<()> {
    if let Some(reason) = missing(&[Ability::BlockDevices]) {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let daemon = Daemon::start(DaemonOptions { pool_size: "64MiB", flags: "" })?;
    for index in 0..8 {
        daemon.memlane(&format!("volume create v{index} --size 16MiB"))?;
        attach(&daemon, &format!("v{index}"))?;
    }
    // Processes started with the devices may still be active in the first window.
    let windows = (0..3).map(|_| wakes_and_share(&daemon)).collect::<Result<Vec<_>>>()?;
    eprintln!("measured: idle daemon, wakes each second and percent of a core: {windows:.1?}");
    ensure!(windows.iter().any(|&(wakes, _)| wakes < 50.0), "{windows:?}");
    for index in 0..8 {
        daemon.memlane(&format!("detach v{index}"))?;
    }
    daemon.finish()
}

/// Returns the wakes of the daemon's threads per second in a window of some seconds, and their
/// percentage of one core. The latter depends on the cost of a wake on this host.
fn wakes_and_share(daemon: &Daemon) -> Result<(f64, f64)> {
    let id = daemon.id().context("the daemon does not run")?;
    let begun = std::time::Instant::now();
    let (wakes, seconds) = (wake_count(id)?, processor_seconds(id)?);
    std::thread::sleep(Duration::from_secs(6));
    let elapsed = begun.elapsed().as_secs_f64();
    let per_second = f64::from(wake_count(id)?.saturating_sub(wakes)) / elapsed;
    Ok((per_second, (processor_seconds(id)? - seconds) / elapsed * 100.0))
}

/// Number of times that the present threads of a process have gone to sleep.
fn wake_count(id: u32) -> Result<u32> {
    let path = format!("/proc/{id}/task");
    let threads = std::fs::read_dir(&path).with_context(|| format!("cannot list {path}"))?;
    let mut count = 0;
    for thread in threads.flatten() {
        // A thread that has ended meanwhile is not counted.
        let status = std::fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count += line.map_or(Ok(0), |number| number.trim().parse::<u32>())?;
    }
    Ok(count)
}

fn client(daemon: &Daemon, volume: &str) -> Result<NbdClient> {
    Ok(NbdClient::connect(&daemon.nbd_socket(), volume)?)
}

/// Returns incompressible bytes.
fn noise(seed: u64, length: u32) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(length).expect("32 bits fit")];
    Random::new(seed).fill(&mut bytes);
    bytes
}

/// Writes noise from the beginning until the pool is full. Returns that offset.
fn fill(client: &mut NbdClient) -> Result<u64> {
    let mut offset = 0;
    while offset < client.size_bytes() {
        let data = noise(offset, CHUNK_BYTES);
        match client.ask(&Request::Write { offset, data }) {
            Ok(_) => offset += u64::from(CHUNK_BYTES),
            Err(NbdFailure::Refused(NBD_NO_SPACE)) => return Ok(offset),
            Err(failure) => return Err(failure.into()),
        }
    }
    Ok(offset)
}
