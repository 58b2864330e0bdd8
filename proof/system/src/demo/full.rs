//! The full demonstration: the same database on a volume as durable as a disk, on the disk, and on
//! tmpfs, with a memory limit for PostgreSQL. The volume's daemon is killed under load, and then
//! everything is verified.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use system::database::{self, Load, Postgres, Rush, Server, ServerOptions};
use system::{
    Ability, Daemon, Interruption, KernelLog, MemoryLimit, Mounted, Tool, attach, missing,
};
use tempfile::TempDir;

use crate::demo::limits::{busy_cores, busy_seconds};
use crate::demo::over_nbd;
use crate::demo::progress::Progress;
use crate::demo::table::{Table, thousands};

const STEPS: usize = 11;

const VOLUME: &str = "volume";
const DISK: &str = "disk";
const TMPFS: &str = "tmpfs";

/// Scale of pgbench: a database of some 300 MiB.
const SCALE: u32 = 20;
const LOAD: Rush = Rush { clients: 4, duration: Duration::from_secs(12) };
const COMPARED_LOAD: Rush = Rush { clients: 4, duration: Duration::from_secs(7) };

/// Time excluded after the start and the restart, while caches are filled.
const SETTLING: Duration = Duration::from_secs(1);

/// Memory limit of PostgreSQL, including its cache and the kernel's cache of its files: less than
/// the database, so that storage matters.
const MEMORY_BYTES: u64 = 192 << 20;
const SETTINGS: [&str; 1] = ["shared_buffers=64MB"];

/// Memory that the pool, the compared tmpfs and PostgreSQL itself need together.
const MEMORY_BYTES_MIN: u64 = 4 << 30;

/// Number of busy cores before the start from which on the results are marked as those of a busy
/// host.
const BUSY_CORES_MAX: f64 = 0.2;

/// Runs the part of the demonstration that this host supports.
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
    let host = Host { limit: MemoryLimit::of(MEMORY_BYTES), busy_cores: busy_cores()?, postgres };
    if let Err(error) = &host.limit {
        eprintln!("PostgreSQL's memory is not limited, as {error:#}: all of it is in caches.");
    }
    let progress = Progress::new(STEPS);
    let disk = on_disk(&host, &progress)?;
    let tmpfs = on_tmpfs(&host, &progress)?;
    let memlane = on_memlane(&host, &progress)?;
    drop(progress);
    print(&host, &memlane, &disk, &tmpfs)
}

/// Common state of all locations.
struct Host {
    postgres: Postgres,
    limit: Result<MemoryLimit>,
    /// Measured before the start.
    busy_cores: f64,
}

impl Host {
    /// Creates a database cluster in the folder of a location.
    fn server(&self, place: &str, folder: &Path) -> Result<Server> {
        let starter = match (&self.limit, place) {
            // Files there count as memory of the process that wrote them.
            (_, TMPFS) | (Err(_), _) => Vec::new(),
            (Ok(limit), _) => limit.starter(),
        };
        let settings = SETTINGS.map(str::to_owned).into();
        Server::create_with(&self.postgres, folder, ServerOptions { settings, starter })
    }
}

/// A run of pgbench, and the processor time of the whole host meanwhile.
struct Measured {
    load: Load,
    processor_s: f64,
}

impl Measured {
    fn run(
        server: &Server,
        rush: Rush,
        in_the_middle: impl FnOnce() -> Result<()>,
    ) -> Result<Self> {
        let before = busy_seconds()?;
        let load = database::run(server, rush, in_the_middle)?;
        Ok(Self { load, processor_s: busy_seconds()? - before })
    }

    /// Formatted in milliseconds.
    #[expect(clippy::cast_precision_loss, reason = "a count of commits is far below 2^53")]
    fn processor_per_transaction(&self) -> Option<String> {
        let ms = self.processor_s * 1e3 / self.load.transaction_count as f64;
        Some(format!("{ms:.2} ms"))
    }
}

/// Results of a location that is only compared.
struct Compared {
    measured: Measured,
    data_bytes: u64,
    /// Duration of a second, equally durable copy of its files.
    copied_in: Duration,
}

/// Results of the database on a volume.
struct OnMemlane {
    measured: Measured,
    device: String,
    /// Duration of a clone of the volume, and the memory that it took.
    cloned_in: Duration,
    clone_bytes: u64,
    killed_at: Duration,
    restarted_at: Duration,
    restart: Duration,
    used_bytes: u64,
    written_bytes: u64,
    ratio: Option<f64>,
    data_bytes: u64,
}

fn on_disk(host: &Host, progress: &Progress) -> Result<Compared> {
    let folder = tempfile::Builder::new().prefix("memlane-disk-").tempdir_in("/var/tmp");
    let folder = open_to_all(folder.context("cannot make a folder on disk")?)?;
    compare(DISK, host, folder.path(), progress)
}

fn on_tmpfs(host: &Host, progress: &Progress) -> Result<Compared> {
    let folder = tempfile::Builder::new().prefix("memlane-tmpfs-").tempdir_in("/var/tmp");
    let folder = open_to_all(folder.context("cannot make a folder for tmpfs")?)?;
    Tool::new("mount -t tmpfs -o size=3g,mode=755 memlane-demo").arg(folder.path()).check()?;
    let mounted = Mounted::existing(folder.path());
    let compared = compare(TMPFS, host, mounted.folder(), progress);
    mounted.unmount()?;
    compared
}

fn compare(place: &str, host: &Host, folder: &Path, progress: &Progress) -> Result<Compared> {
    progress.step(&format!("{place}: make and fill a database"));
    let mut server = host.server(place, folder)?;
    database::fill(&server, SCALE)?;
    progress.step(&format!("{place}: run pgbench"));
    let measured = Measured::run(&server, COMPARED_LOAD, || Ok(()))?;
    let data_bytes = disk_usage_bytes(server.data())?;
    server.stop()?;
    let begun = Instant::now();
    Tool::new("cp -a").arg(server.data()).arg(folder.join("copy")).check()?;
    Tool::new("sync --file-system").arg(folder).check()?;
    Ok(Compared { measured, data_bytes, copied_in: begun.elapsed() })
}

fn on_memlane(host: &Host, progress: &Progress) -> Result<OnMemlane> {
    let kernel_log = KernelLog::follow();
    progress.step("volume: start a daemon; create and attach one of 6 GiB, class journal; ext4");
    // Beside the compared files, because /tmp may be in memory.
    let journal = tempfile::Builder::new().prefix("memlane-journal-").tempdir_in("/var/tmp");
    let journal = journal.context("cannot make a folder for the journal")?;
    let flags = format!("--journal-dir {}", journal.path().display());
    let mut daemon = Daemon::start_flagged("2GiB".to_owned(), flags)?;
    daemon.memlane("volume create pg --size 6GiB --durability journal")?;
    let device = attach(&daemon, "pg")?;
    Tool::new("mkfs.ext4 -q").arg(&device).check()?;
    let mount_point =
        open_to_all(tempfile::Builder::new().prefix("memlane-mnt-").tempdir_in("/var/tmp")?)?;
    let mounted = Mounted::new(&device, mount_point.path(), "noatime,discard")?;
    let mut result = live_through_a_kill(&mut daemon, mounted.folder(), host, progress)?;
    progress.step("volume: unmount, e2fsck -fn");
    mounted.unmount()?;
    Tool::new("e2fsck -fn").arg(&device).check()?;
    progress.step("volume: clone it, detach, stop, look for leftovers");
    let (used_bytes, begun) = (daemon.status()?.pool.used_bytes, Instant::now());
    daemon.memlane("clone pg pg-copy")?;
    result.cloned_in = begun.elapsed();
    result.clone_bytes = daemon.status()?.pool.used_bytes.saturating_sub(used_bytes);
    daemon.memlane("volume delete pg-copy")?;
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
    result.device = device.display().to_string();
    Ok(result)
}

fn live_through_a_kill(
    daemon: &mut Daemon,
    folder: &Path,
    host: &Host,
    progress: &Progress,
) -> Result<OnMemlane> {
    progress.step("volume: make and fill a database");
    let mut server = host.server(VOLUME, folder)?;
    database::fill(&server, SCALE)?;
    progress.step("volume: run pgbench, kill -9 the daemon in the middle");
    let mut killed_at = Duration::ZERO;
    let mut restarted_at = Duration::ZERO;
    let mut restart = Duration::ZERO;
    let measured = Measured::run(&server, LOAD, || {
        killed_at = database::now()?;
        daemon.kill()?;
        restarted_at = database::now()?;
        restart = daemon.start_again()?;
        Ok(())
    })?;
    progress.step("volume: check the books and pg_amcheck");
    database::check_books(&server, measured.load.transaction_count)?;
    let amcheck = ["--all", "--install-missing", "--heapallindexed"];
    server.client("pg_amcheck").args(amcheck).check()?;
    let complaints = server.complaints();
    ensure!(complaints.is_empty(), "PostgreSQL complained: {complaints:#?}");
    let data_bytes = disk_usage_bytes(server.data())?;
    server.stop()?;
    progress.step("volume: pg_checksums");
    host.postgres.tool("pg_checksums").arg("--check").arg("-D").arg(server.data()).check()?;
    let pool = daemon.status()?.pool;
    Ok(OnMemlane {
        measured,
        device: String::new(),
        cloned_in: Duration::ZERO,
        clone_bytes: 0,
        killed_at,
        restarted_at,
        restart,
        used_bytes: pool.used_bytes,
        written_bytes: pool.written_bytes,
        ratio: pool.ratio,
        data_bytes,
    })
}

fn print(host: &Host, memlane: &OnMemlane, disk: &Compared, tmpfs: &Compared) -> Result<()> {
    let load = &memlane.measured.load;
    let commits = &load.commits;
    let back_at = commits
        .first_after(memlane.restarted_at + memlane.restart)
        .context("there was no commit after the restart")?;
    let before = commits.rate(commits.first() + SETTLING, memlane.killed_at);
    let after = commits.rate(back_at + SETTLING, commits.last());
    let rate = |compared: &Compared| {
        let commits = &compared.measured.load.commits;
        Some(rounded(commits.rate(commits.first() + SETTLING, commits.last())))
    };
    let seconds = |duration: Duration| Some(format!("{:.3} s", duration.as_secs_f64()));
    let gap = |compared: &Compared| seconds(compared.measured.load.commits.longest_gap());
    let size = |bytes: u64| Some(format!("{} MiB", thousands(bytes >> 20)));
    let word = |word: &str| Some(word.to_owned());
    let mut table = Table::default();
    table.row("PostgreSQL, pgbench, 4 clients", &[VOLUME, DISK, TMPFS].map(word));
    table.row("survives the death of its daemon", &[word("yes"), None, None]);
    table.row("survives a loss of power", &["yes", "yes", "no"].map(word));
    table.row("transactions/s", &[Some(rounded(before)), rate(disk), rate(tmpfs)]);
    table.row("  after the kill", &[Some(rounded(after)), None, None]);
    let processor = Measured::processor_per_transaction;
    let processors = [&memlane.measured, &disk.measured, &tmpfs.measured].map(processor);
    table.row("processor time of a transaction", &processors);
    let stall = commits.longest_gap();
    table.row("longest time without a commit", &[seconds(stall), gap(disk), gap(tmpfs)]);
    let since_restart = back_at.saturating_sub(memlane.restarted_at);
    table.row("first commit after the restart", &[seconds(since_restart), None, None]);
    table.row("daemon serving after the restart", &[seconds(memlane.restart), None, None]);
    let sizes = [memlane.data_bytes, disk.data_bytes, tmpfs.data_bytes].map(size);
    table.row("files of the database", &sizes);
    table.row("memory that holds them", &[size(memlane.used_bytes), None, size(tmpfs.data_bytes)]);
    let copies = [memlane.cloned_in, disk.copied_in, tmpfs.copied_in].map(seconds);
    table.row("a second, writable copy takes", &copies);
    let copies = [size(memlane.clone_bytes), None, size(tmpfs.data_bytes)];
    table.row("  and memory", &copies);
    table.row("bytes readable on the volume", &[size(memlane.written_bytes), None, None]);
    table.row("ratio", &[memlane.ratio.map(|ratio| format!("{ratio:.2}")), None, None]);
    table.row("", &[]);
    for line in remarks(host, memlane)? {
        table.row(&line, &[]);
    }
    table.print()
}

/// Returns the conditions and meaning of the figures.
fn remarks(host: &Host, memlane: &OnMemlane) -> Result<Vec<String>> {
    let count = thousands(u64::try_from(memlane.measured.load.transaction_count)?);
    let memory = match &host.limit {
        Ok(_) => format!(
            "{} MiB of memory with the cache of its files, but on tmpfs, which is memory",
            MEMORY_BYTES >> 20
        ),
        Err(_) => "memory without a limit, so that files are cached".to_owned(),
    };
    let driver = match memlane.device.contains("ublk") {
        true => "a device of ublk",
        false => "a loop device over FUSE, as this kernel has no ublk",
    };
    let host_was = match host.busy_cores > BUSY_CORES_MAX {
        true => format!(
            "This host was busy: other programs kept {:.1} cores. On a quiet one figures differ.",
            host.busy_cores
        ),
        false => "This host was quiet when it began.".to_owned(),
    };
    Ok(vec![
        format!("All {count} acknowledged transactions are there. No I/O error."),
        "Verified: sums of all tables, pg_amcheck, pg_checksums, e2fsck -fn.".to_owned(),
        format!("PostgreSQL has {memory}."),
        format!("The volume is of class journal: a commit is on the same disk. It is {driver}."),
        host_was,
        "A volume is no gain where all data fits into the memory of the database and commits need \
         no disk: docs/guides/postgresql.md."
            .to_owned(),
    ])
}

/// Lets PostgreSQL's user enter a folder created by root.
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
