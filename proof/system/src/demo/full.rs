//! The demonstration in full: the same database on disk, on tmpfs and on a volume, the volume's
//! daemon killed under load; then everything is verified.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use system::database::{self, Load, Postgres, Rush, Server};
use system::{
    Ability, Daemon, DaemonOptions, Interruption, KernelLog, Mounted, Tool, attach, missing,
};
use tempfile::TempDir;

use crate::demo::over_nbd;
use crate::demo::progress::Progress;
use crate::demo::table::{Table, thousands};

const STEPS: usize = 13;
const SCALE: u32 = 30;
const LOAD: Rush = Rush { clients: 4, duration: Duration::from_secs(24) };
const COMPARED_LOAD: Rush = Rush { clients: 4, duration: Duration::from_secs(12) };

/// Held back after the start and the restart, where caches are filled.
const SETTLING: Duration = Duration::from_secs(1);

/// What the pool, the tmpfs to compare with and PostgreSQL itself need together.
const MEMORY_BYTES_MIN: u64 = 6 << 30;

/// Runs what this host can run.
pub(crate) fn run() -> Result<()> {
    Interruption::listen()?;
    let needed = [
        Ability::BlockDevices,
        Ability::Program("mkfs.ext4"),
        Ability::Program("setpriv"),
        Ability::Program("mount"),
    ];
    let postgres = match (missing(&needed), Postgres::find()) {
        (None, Ok(postgres)) => postgres,
        (Some(reason), _) => return over_nbd::run(&reason),
        (None, Err(error)) => return over_nbd::run(&format!("{error:#}")),
    };
    let available_bytes = available_memory_bytes()?;
    ensure!(
        available_bytes >= MEMORY_BYTES_MIN,
        "the demonstration needs {} GiB of free memory; there are {:.1} GiB",
        MEMORY_BYTES_MIN >> 30,
        gib(available_bytes),
    );
    let progress = Progress::new(STEPS);
    let disk = on_disk(&postgres, &progress)?;
    let tmpfs = on_tmpfs(&postgres, &progress)?;
    let memlane = on_memlane(&postgres, &progress)?;
    drop(progress);
    print(&memlane, &disk, &tmpfs)
}

/// The database somewhere that is only compared.
struct Compared {
    load: Load,
    data_bytes: u64,
}

/// The database on a volume.
struct OnMemlane {
    load: Load,
    killed_at: Duration,
    restarted_at: Duration,
    restart: Duration,
    used_bytes: u64,
    written_bytes: u64,
    ratio: Option<f64>,
    data_bytes: u64,
}

fn on_disk(postgres: &Postgres, progress: &Progress) -> Result<Compared> {
    let folder = tempfile::Builder::new().prefix("memlane-disk-").tempdir_in("/var/tmp");
    let folder = open_to_all(folder.context("cannot make a folder on disk")?)?;
    compare("disk", postgres, folder.path(), progress)
}

fn on_tmpfs(postgres: &Postgres, progress: &Progress) -> Result<Compared> {
    let folder = tempfile::Builder::new().prefix("memlane-tmpfs-").tempdir_in("/var/tmp");
    let folder = open_to_all(folder.context("cannot make a folder for tmpfs")?)?;
    Tool::new("mount -t tmpfs -o size=3g,mode=755 memlane-demo").arg(folder.path()).check()?;
    let mounted = Mounted::existing(folder.path());
    let compared = compare("tmpfs", postgres, mounted.folder(), progress);
    mounted.unmount()?;
    compared
}

fn compare(
    place: &str,
    postgres: &Postgres,
    folder: &Path,
    progress: &Progress,
) -> Result<Compared> {
    progress.step(&format!("{place}: make and fill a database"));
    let mut server = Server::create(postgres, folder)?;
    database::fill(&server, SCALE)?;
    progress.step(&format!("{place}: run pgbench"));
    let load = database::run(&server, COMPARED_LOAD, || Ok(()))?;
    let data_bytes = disk_usage_bytes(server.data())?;
    server.stop()?;
    Ok(Compared { load, data_bytes })
}

fn on_memlane(postgres: &Postgres, progress: &Progress) -> Result<OnMemlane> {
    let kernel_log = KernelLog::follow();
    progress.step("memlane: start a daemon, create and attach a volume of 6 GiB");
    let mut daemon = Daemon::start(DaemonOptions { pool_size: "4GiB", flags: "" })?;
    daemon.memlane("volume create pg --size 6GiB")?;
    let device = attach(&daemon, "pg")?;
    progress.step("memlane: make ext4");
    Tool::new("mkfs.ext4 -q").arg(&device).check()?;
    let mount_point =
        open_to_all(tempfile::Builder::new().prefix("memlane-mnt-").tempdir_in("/var/tmp")?)?;
    let mounted = Mounted::new(&device, mount_point.path(), "noatime,discard")?;
    let result = live_through_a_kill(&mut daemon, mounted.folder(), postgres, progress)?;
    progress.step("memlane: unmount, e2fsck -fn");
    mounted.unmount()?;
    Tool::new("e2fsck -fn").arg(&device).check()?;
    progress.step("memlane: detach, stop, look for leftovers");
    daemon.memlane("detach pg")?;
    daemon.memlane("volume delete pg")?;
    daemon.finish()?;
    match kernel_log {
        Ok(mut kernel_log) => {
            let complaints = kernel_log.complaints(&device)?;
            ensure!(complaints.is_empty(), "the kernel complained: {complaints:#?}");
        }
        Err(error) => eprintln!("not looked for: complaints of the kernel ({error:#})"),
    }
    Ok(result)
}

fn live_through_a_kill(
    daemon: &mut Daemon,
    folder: &Path,
    postgres: &Postgres,
    progress: &Progress,
) -> Result<OnMemlane> {
    progress.step("memlane: make a database with checksums");
    let mut server = Server::create(postgres, folder)?;
    progress.step("memlane: fill it");
    database::fill(&server, SCALE)?;
    progress.step("memlane: run pgbench, kill -9 the daemon in the middle");
    let mut killed_at = Duration::ZERO;
    let mut restarted_at = Duration::ZERO;
    let mut restart = Duration::ZERO;
    let load = database::run(&server, LOAD, || {
        killed_at = database::now()?;
        daemon.kill()?;
        restarted_at = database::now()?;
        restart = daemon.start_again()?;
        Ok(())
    })?;
    progress.step("memlane: check the books and pg_amcheck");
    database::check_books(&server, load.transaction_count)?;
    let amcheck = ["--all", "--install-missing", "--heapallindexed"];
    server.client("pg_amcheck").args(amcheck).check()?;
    let complaints = server.complaints();
    ensure!(complaints.is_empty(), "PostgreSQL complained: {complaints:#?}");
    let data_bytes = disk_usage_bytes(server.data())?;
    server.stop()?;
    progress.step("memlane: pg_checksums");
    postgres.tool("pg_checksums").arg("--check").arg("-D").arg(server.data()).check()?;
    let pool = daemon.status()?.pool;
    Ok(OnMemlane {
        load,
        killed_at,
        restarted_at,
        restart,
        used_bytes: pool.used_bytes,
        written_bytes: pool.written_bytes,
        ratio: pool.ratio,
        data_bytes,
    })
}

fn print(memlane: &OnMemlane, disk: &Compared, tmpfs: &Compared) -> Result<()> {
    let commits = &memlane.load.commits;
    let back_at = commits
        .first_after(memlane.restarted_at + memlane.restart)
        .context("there was no commit after the restart")?;
    let before = commits.rate(commits.first() + SETTLING, memlane.killed_at);
    let after = commits.rate(back_at + SETTLING, commits.last());
    let rate = |compared: &Compared| {
        let commits = &compared.load.commits;
        Some(rounded(commits.rate(commits.first() + SETTLING, commits.last())))
    };
    let seconds = |duration: Duration| Some(format!("{:.3} s", duration.as_secs_f64()));
    let gap = |compared: &Compared| seconds(compared.load.commits.longest_gap());
    let size = |bytes: u64| Some(format!("{} MiB", thousands(bytes >> 20)));
    let mut table = Table::default();
    let head = ["memlane", "disk", "tmpfs"].map(|place| Some(place.to_owned()));
    table.row("PostgreSQL, pgbench, 4 clients", &head);
    table.row("transactions/s, before the kill", &[Some(rounded(before)), rate(disk), rate(tmpfs)]);
    table.row("transactions/s, after the kill", &[Some(rounded(after)), None, None]);
    let stall = commits.longest_gap();
    table.row("longest time without a commit", &[seconds(stall), gap(disk), gap(tmpfs)]);
    let since_restart = back_at.saturating_sub(memlane.restarted_at);
    table.row("first commit after the restart", &[seconds(since_restart), None, None]);
    table.row("daemon serving after the restart", &[seconds(memlane.restart), None, None]);
    let sizes = [memlane.data_bytes, disk.data_bytes, tmpfs.data_bytes].map(size);
    table.row("files of the database", &sizes);
    table.row("RAM used", &[size(memlane.used_bytes), None, size(tmpfs.data_bytes)]);
    table.row("bytes readable on the volume", &[size(memlane.written_bytes), None, None]);
    table.row("ratio", &[memlane.ratio.map(|ratio| format!("{ratio:.2}")), None, None]);
    let count = thousands(u64::try_from(memlane.load.transaction_count)?);
    table.row("", &[]);
    table.row(&format!("All {count} acknowledged transactions are there. No I/O error."), &[]);
    table.row("Verified: sums of all tables, pg_amcheck, pg_checksums, e2fsck -fn.", &[]);
    table.print()
}

/// PostgreSQL's user must be able to enter what root made.
fn open_to_all(folder: TempDir) -> Result<TempDir> {
    rustix::fs::chmod(folder.path(), rustix::fs::Mode::from_raw_mode(0o755))
        .context("cannot open a folder to PostgreSQL")?;
    Ok(folder)
}

fn disk_usage_bytes(folder: &Path) -> Result<u64> {
    let printed = Tool::new("du -s --block-size=1").arg(folder).check()?;
    let number = printed.split_whitespace().next().context("du printed nothing")?;
    number.parse().with_context(|| format!("du printed {printed:?}"))
}

fn available_memory_bytes() -> Result<u64> {
    let path = PathBuf::from("/proc/meminfo");
    let text = fs::read_to_string(&path).context("cannot read /proc/meminfo")?;
    let line = text.lines().find(|line| line.starts_with("MemAvailable:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)).context("no MemAvailable")?;
    Ok(kib.parse::<u64>().context("MemAvailable is no number")? << 10)
}

#[expect(clippy::cast_precision_loss, reason = "for people, with one digit")]
fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

fn rounded(rate: f64) -> String {
    let text = format!("{rate:.0}");
    text.parse().map_or(text, thousands)
}
