//! Volumes of a lost pool: state about them never matches another volume in the next pool. Starts
//! that are refused lose no pool, and leave none.

use std::fs::File;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sdk::{Client, ClientOptions, Target};
use system::{
    Ability, Daemon, DaemonOptions, NbdClient, Random, Request, Tool, leftovers, missing, wait_for,
};

const LENGTH: u32 = 4096;

const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Time for which a client of the ring waits for a daemon.
const PATIENCE: Duration = Duration::from_secs(10);

fn noise(seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; LENGTH as usize];
    Random::new(seed).fill(&mut bytes);
    bytes
}

fn write_over_nbd(daemon: &Daemon, volume: &str, data: Vec<u8>) -> Result<()> {
    let mut client = NbdClient::connect(&daemon.nbd_socket(), volume)?;
    client.ask(&Request::Write { offset: 0, data })?;
    Ok(())
}

fn read_over_nbd(daemon: &Daemon, volume: &str) -> Result<Vec<u8>> {
    let mut client = NbdClient::connect(&daemon.nbd_socket(), volume)?;
    Ok(client.ask(&Request::Read { offset: 0, length: LENGTH })?)
}

/// Loses the pool with all volumes, and creates a volume with the name of the first one.
fn lose_and_make_anew(daemon: &mut Daemon) -> Result<()> {
    daemon.lose_memory()?;
    daemon.start_again()?;
    ensure!(daemon.volumes()?.is_empty(), "nothing comes back from nowhere");
    daemon.memlane("volume create v --size 16MiB")?;
    write_over_nbd(daemon, "v", noise(2))
}

/// Copies a block from or to a device of a lost pool, bypassing the page cache, which must fail as
/// for any dead device.
fn check_dead(from: &Path, to: &Path, flag: &str) -> Result<()> {
    let copied = Tool::new("dd bs=4096 count=1 status=none conv=notrunc")
        .arg(format!("if={}", from.display()))
        .arg(format!("of={}", to.display()))
        .arg(flag)
        .run()?;
    let causes = ["Input/output error", "No such device"];
    let is_dead = causes.iter().any(|cause| copied.stderr.contains(cause));
    ensure!(copied.exit_code == Some(1) && is_dead, "{copied:?}");
    Ok(())
}

#[test]
fn a_device_of_a_lost_pool_fails_and_serves_nobodys_volume() -> Result<()> {
    if let Some(reason) = missing(&[Ability::BlockDevices]) {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let mut daemon = Daemon::start(DaemonOptions { pool_size: "64MiB", flags: "" })?;
    daemon.memlane("volume create v --size 16MiB")?;
    write_over_nbd(&daemon, "v", noise(1))?;
    let device = daemon.memlane("attach v --as loop")?;
    let device = Path::new(device.trim()).to_owned();
    // A process has it open, so that the next daemon cannot remove it.
    let user = File::open(&device).context("the device can be opened")?;
    lose_and_make_anew(&mut daemon)?;
    let copy = daemon.folder().join("copy");
    check_dead(&device, &copy, "iflag=direct")?;
    let other = daemon.folder().join("other");
    std::fs::write(&other, noise(3))?;
    check_dead(&other, &device, "oflag=direct")?;
    ensure!(read_over_nbd(&daemon, "v")? == noise(2), "another volume was changed");
    let warnings = daemon.status()?.warnings;
    ensure!(warnings.iter().any(|warning| warning.kind == "device_dead"), "{warnings:?}");
    ensure!(daemon.volume("v")?.device.is_none(), "the new volume is not attached");
    drop(user);
    daemon.kill()?;
    daemon.start_again()?;
    let left = leftovers(&daemon.run_dir().join("volumes"))?;
    ensure!(!left.iter().any(|it| it.starts_with("/dev/")), "still there: {left:#?}");
    daemon.finish()
}

#[test]
fn an_unused_device_of_a_lost_pool_is_gone_after_the_start() -> Result<()> {
    if let Some(reason) = missing(&[Ability::BlockDevices]) {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let mut daemon = Daemon::start(DaemonOptions { pool_size: "64MiB", flags: "" })?;
    daemon.memlane("volume create v --size 16MiB")?;
    daemon.memlane("attach v --as loop")?;
    lose_and_make_anew(&mut daemon)?;
    let left = leftovers(&daemon.run_dir().join("volumes"))?;
    ensure!(!left.iter().any(|it| it.starts_with("/dev/")), "still there: {left:#?}");
    ensure!(daemon.volume("v")?.device.is_none(), "the new volume is not attached");
    daemon.finish()
}

#[test]
fn a_user_of_a_lost_volume_is_none_of_the_next() -> Result<()> {
    let mut daemon = Daemon::start(DaemonOptions { pool_size: "64MiB", flags: "--no-fuse" })?;
    daemon.memlane("volume create v --size 16MiB")?;
    daemon.memlane("volume set v users=65534")?;
    ensure!(daemon.volume("v")?.users == ["65534"], "the user is there");
    lose_and_make_anew(&mut daemon)?;
    let users = daemon.volume("v")?.users;
    ensure!(users.is_empty(), "the new volume has the users {users:?}");
    daemon.finish()
}

#[test]
fn a_client_of_a_lost_volume_is_refused_by_the_next_pool() -> Result<()> {
    let mut daemon = Daemon::start(DaemonOptions { pool_size: "64MiB", flags: "--no-fuse" })?;
    daemon.memlane("volume create v --size 16MiB")?;
    let socket = daemon.run_dir().join("ring.sock");
    let options = ClientOptions { patience: PATIENCE, ..ClientOptions::default() };
    let client = Client::connect_with(&socket, options)?;
    let device = client.open(&Target::Name("v".into()))?;
    device.write(0, &noise(1))?;
    lose_and_make_anew(&mut daemon)?;
    let mut found = noise(4);
    let read = device.read(0, &mut found).map_err(|error| error.to_string());
    let is_refused =
        |answer: &Result<(), String>| answer.as_ref().is_err_and(|why| why.contains("was deleted"));
    ensure!(is_refused(&read) && found == noise(4), "the client reads another volume: {read:?}");
    let written = device.write(0, &noise(3)).map_err(|error| error.to_string());
    ensure!(is_refused(&written), "the client writes another volume: {written:?}");
    ensure!(read_over_nbd(&daemon, "v")? == noise(2), "another volume was changed");
    drop(device);
    daemon.finish()
}

/// Starts the daemon with a pool at this path, which must fail and leave the path unchanged.
fn check_refused(pool: &Path, reasons: &[&str]) -> Result<()> {
    let before = std::fs::read(pool).ok();
    let flags = format!("--no-fuse --pool-path {}", pool.display());
    let Err(error) = Daemon::start_flagged("64MiB".to_owned(), flags) else {
        anyhow::bail!("{} is taken as a pool", pool.display());
    };
    let text = format!("{error:#}");
    ensure!(reasons.iter().all(|reason| text.contains(reason)), "{text}");
    ensure!(!text.contains("panicked"), "{text}");
    ensure!(std::fs::read(pool).ok() == before, "{} was changed", pool.display());
    Ok(())
}

#[test]
fn a_pool_on_a_disk_and_a_foreign_file_are_refused_and_left_alone() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: without root the pool's place is given already");
        return Ok(());
    }
    // A path that is not in memory, whatever contains the folder for temporary files.
    check_refused(Path::new("/proc/memlane-pool"), &["on a disk", "pool-on-disk", "old data"])?;
    let folder = tempfile::tempdir_in("/dev/shm")?;
    let foreign = folder.path().join("foreign");
    for length in [1, 1 << 20, 4 << 20, 64 << 20] {
        std::fs::write(&foreign, &b"anything".repeat(length / 8 + 1)[..length])?;
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&foreign, permissions)?;
        check_refused(&foreign, &["another file"])?;
    }
    Ok(())
}

/// Starts a daemon, which must be refused for this reason.
fn check_start_refused(daemon: &mut Daemon, reason: &str) -> Result<()> {
    let refused = format!("{:#}", daemon.start_again().expect_err("it cannot start"));
    ensure!(refused.contains(reason), "{reason} in {refused}");
    Ok(())
}

#[test]
fn a_start_that_is_refused_leaves_nothing_mounted_and_no_process() -> Result<()> {
    const TOO_LARGE: &str = "1000TiB";
    let taken = TcpListener::bind("127.0.0.1:0")?;
    let nbd = format!("--nbd-insecure --nbd-tcp {}", taken.local_addr()?);
    for (size, flags, reason) in [
        ("96MiB", &*nbd, "in use"),
        (TOO_LARGE, "", "not enough memory"),
        (TOO_LARGE, "--pool-hugetlb", ""),
    ] {
        let mut daemon = Daemon::prepare(size.to_owned(), flags.to_owned())?;
        check_start_refused(&mut daemon, reason)?;
        let mut left = Vec::new();
        // The fd store ends on its own.
        let is_clean = wait_for("all of it to go", TIME_LIMIT, || {
            left = leftovers(daemon.folder())?;
            Ok(left.is_empty())
        });
        is_clean.with_context(|| format!("left by {size} {flags}: {left:#?}"))?;
        daemon.set_pool_size("96MiB");
        daemon.set_flags("");
        daemon.start_again()?;
        daemon.finish()?;
    }
    Ok(())
}

#[test]
fn a_start_that_is_refused_leaves_the_pool_and_the_devices_of_an_earlier_one() -> Result<()> {
    if let Some(reason) = missing(&[Ability::BlockDevices]) {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let taken = TcpListener::bind("127.0.0.1:0")?;
    let mut daemon = Daemon::prepare("96MiB".to_owned(), String::new())?;
    daemon.start_again()?;
    daemon.memlane("volume create db --size 16MiB")?;
    write_over_nbd(&daemon, "db", noise(5))?;
    let device = daemon.memlane("attach db")?.trim().to_owned();
    daemon.stop()?;
    daemon.set_flags(&format!("--nbd-insecure --nbd-tcp {}", taken.local_addr()?));
    check_start_refused(&mut daemon, "in use")?;
    daemon.set_flags("");
    daemon.start_again()?;
    ensure!(daemon.volume("db")?.device.as_deref() == Some(&*device), "it was detached");
    ensure!(std::fs::read(&device)?.starts_with(&noise(5)), "its data is lost");
    daemon.finish()
}
