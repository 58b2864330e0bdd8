//! A run of an application on a target, and the resulting row.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use results::projection::{APPLICATION, CORES, FREQUENCY_HZ, UTILISATION_SHARE};
use results::{CPIO_CYCLES, Cpu, DeviceIo, Row, Suite, Validity};
use serde_json::json;
use system::Tool;

use super::application::{Application, Part};
use super::bandwidth::Bandwidth;
use super::workdir::{DataLocation, Workdir, drop_page_cache, is_whole};
use crate::fio_step::{BUSY_FLAG, SETTLING_TIME_LIMIT};
use crate::targets::{
    Accounts, Kind, LazyTarget, Spec, Spent, Target, counts_since, wait_until_idle,
};

/// Duration of the idle baseline measurement before each run.
pub(super) const IDLE_WINDOW: Duration = Duration::from_secs(1);

/// Probe for memory traffic, with the reason if it was not counted.
pub(super) const MEMORY_BANDWIDTH: &str = "memory_bandwidth";

const SECONDS_MIN: f64 = 20.0;
const DISAGREEMENT_MAX: f64 = 0.02;
const SECTOR_BYTES: f64 = 512.0;
const OTHERS_RAN: &str = "other programs ran while the idle machine was watched: its baseline is \
                          more than the rest of the machine used during the run";
const SYSTEM_DISK_FLAG: &str = "the disk is the system's: other programs' requests are counted";

/// Parameters of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) bytes: u64,
    pub(super) seconds: u64,
    pub(super) cores: u32,
    pub(super) seed: u64,
    pub(super) repeat: u32,
    pub(super) time_limit: Duration,
}

pub(super) fn case_name(application: &Application, cores: u32) -> String {
    format!("{} cores={cores}", application.name)
}

/// Prepares, runs and verifies the application. Only the run is measured.
pub(super) fn measure(application: &Application, lazy: &LazyTarget, extent: Extent) -> Result<Row> {
    let target = lazy.get()?;
    let is_system_disk = matches!(lazy.spec().kind, Kind::Disk | Kind::Path(_));
    check_counts(target, is_system_disk)?;
    let folder = Folder::new(target, lazy.spec())?;
    let cores = (0..usize::try_from(extent.cores)?).collect();
    let accounts = Accounts::new(target.server_ids(), cores)?;
    let _pinned = Pinned::new(target.server_ids(), extent.cores)?;
    let workdir = workdir(target, &folder, (application, &accounts), extent);
    (application.prepare)(&workdir).context("cannot prepare its data")?;
    drop_page_cache(&workdir.folder)?;
    let is_quiet = wait_until_idle(SETTLING_TIME_LIMIT)?;
    let bandwidth = Bandwidth::find();
    let moved_before = moved(&bandwidth);
    let idle = accounts.idle(IDLE_WINDOW)?;
    let moved_idle = moved(&bandwidth) - moved_before;

    let started = SystemTime::now();
    let requests_before = counts(target)?;
    let before = accounts.open()?;
    let moved_before = moved(&bandwidth);
    (application.run)(&workdir)?;
    workdir.write_back()?;
    let spent = accounts.since(&before)?;
    let moved = moved(&bandwidth) - moved_before - moved_idle * spent.elapsed_s / idle.elapsed_s;
    let requests = counts_since(counts(target)?, requests_before);
    (application.verify)(&workdir).context("wrong result")?;

    let mut row = Row::new(Suite::Cpio, case_name(application, extent.cores), target.name());
    row.repeat = extent.repeat;
    row.time.started_unix_ms = crate::run::unix_ms(started);
    row.time.duration_s = spent.elapsed_s;
    row.add_params([
        (APPLICATION, json!(application.name)),
        ("stands_for", json!(application.stands_for)),
        (CORES, json!(extent.cores)),
        ("bytes", json!(extent.bytes)),
        ("counted_by", json!(accounts.backend().to_string())),
        ("durability", json!(target.durability().to_string())),
        ("ios_counted_at", json!(target.counted_at())),
        (MEMORY_BANDWIDTH, json!(bandwidth_text(&bandwidth))),
    ]);
    fill_in(&mut row, &spent, &idle, requests)?;
    if bandwidth.is_ok() {
        note_bandwidth(&mut row, moved, requests);
    }
    if !is_quiet {
        row.flag(BUSY_FLAG);
    }
    if is_system_disk {
        row.flag(SYSTEM_DISK_FLAG);
    }
    Ok(row)
}

fn unavailable(reason: &str, target: &Target) -> String {
    format!("the count of I/Os is unavailable on {}: {reason}", target.name())
}

/// Checks that I/O is counted exactly. On the system's disk other processes' requests are counted
/// too, which is a flag and not an error.
fn check_counts(target: &Target, is_system_disk: bool) -> Result<()> {
    counts(target)?;
    ensure!(
        is_system_disk || target.counts_exactly() == Some(true),
        unavailable("64 MiB written and read were not counted as 131,072 sectors each", target)
    );
    Ok(())
}

fn counts(target: &Target) -> Result<DeviceIo> {
    target.counts()?.with_context(|| unavailable("its requests are not counted", target))
}

/// Returns the memory traffic so far, or 0 if it is not counted.
fn moved(bandwidth: &Result<Bandwidth>) -> f64 {
    bandwidth.as_ref().ok().and_then(|it| it.bytes().ok()).unwrap_or(0) as f64
}

fn bandwidth_text(bandwidth: &Result<Bandwidth>) -> String {
    match bandwidth {
        Ok(_) => "resctrl, mbm_total_bytes, less that of the idle machine".to_owned(),
        Err(error) => format!("not measurable here: {error:#}"),
    }
}

fn note_bandwidth(row: &mut Row, moved_bytes: f64, requests: DeviceIo) {
    let stored_bytes = (requests.read_sectors + requests.write_sectors) as f64 * SECTOR_BYTES;
    row.add_figures([
        ("memory_bytes_per_s", moved_bytes / row.time.duration_s),
        ("memory_bytes_per_stored_byte", moved_bytes / stored_bytes),
    ]);
}

fn workdir(
    target: &Target,
    folder: &Folder,
    (application, accounts): (&Application, &Accounts),
    extent: Extent,
) -> Workdir {
    let group = match application.part {
        Part::Application => accounts.application(),
        Part::Driver => accounts.driver(),
    };
    let pinned = ["taskset".to_owned(), "-c".to_owned(), core_list(extent.cores)];
    let starter = pinned.iter().cloned().chain(group.starter()).collect();
    let driver = pinned.iter().cloned().chain(accounts.driver().starter()).collect();
    Workdir {
        folder: folder.path.clone(),
        location: folder.location.clone(),
        seed: extent.seed,
        bytes: extent.bytes,
        seconds: extent.seconds,
        cores: extent.cores,
        starter,
        driver,
        way: target.starter().to_vec(),
        time_limit: extent.time_limit,
    }
}

fn fill_in(row: &mut Row, spent: &Spent, idle: &Spent, requests: DeviceIo) -> Result<()> {
    let sectors = requests.read_sectors + requests.write_sectors;
    ensure!(sectors > 0, "nothing was read or written where I/Os are counted");
    let hz = crate::clock::tsc_hz().context("no time stamp counter with a constant rate")?;
    let (hz, sectors) = (hz as f64, sectors as f64);
    let baseline_s = idle.total_s() / idle.elapsed_s * spent.elapsed_s;
    let total_s = spent.total_s() - baseline_s;
    let rest_s = spent.rest_s() - baseline_s;
    let cycles = |seconds: f64| seconds * hz / sectors;
    row.add_figures([
        (CPIO_CYCLES, cycles(total_s)),
        ("cpio_without_driver_cycles", cycles(total_s - spent.driver_s)),
        ("application_cycles", cycles(spent.application_s)),
        ("driver_cycles", cycles(spent.driver_s)),
        ("store_cycles", cycles(spent.store_s)),
        ("rest_cycles", cycles(rest_s)),
        (UTILISATION_SHARE, spent.utilisation),
        (FREQUENCY_HZ, hz),
        ("ios", sectors),
        ("user_s", spent.user_s),
        ("system_s", spent.system_s),
        ("idle_s", spent.idle_s),
        ("io_wait_s", spent.io_wait_s),
        ("steal_s", spent.steal_s),
        ("idle_machine_cores", idle.total_s() / idle.elapsed_s),
        ("idle_store_cores", idle.store_s / idle.elapsed_s),
        ("device_bytes_per_s", sectors * SECTOR_BYTES / spent.elapsed_s),
    ]);
    row.device = Some(requests);
    row.cpu = Some(Cpu {
        user_s: spent.user_s,
        system_s: spent.system_s,
        interrupts_s: 0.0,
        steal_s: spent.steal_s,
        idle_s: spent.idle_s + spent.io_wait_s,
        generator_s: spent.driver_s + spent.application_s,
        server_s: spent.store_s,
    });
    if rest_s < -DISAGREEMENT_MAX * spent.total_s() || total_s <= 0.0 {
        row.validity = Validity::Invalid(OTHERS_RAN.to_owned());
    }
    if spent.elapsed_s < SECONDS_MIN {
        row.flag("shorter than 20 s: not for publication");
    }
    if spent.disagreement().is_some_and(|share| share > DISAGREEMENT_MAX) {
        row.flag("the groups do not add up to the machine's total within 2 %");
    }
    Ok(())
}

/// Formats `0-1` for two cores.
fn core_list(cores: u32) -> String {
    format!("0-{}", cores.saturating_sub(1))
}

/// A folder on the target, or beside one without a file system. Emptied and removed when dropped.
struct Folder {
    path: PathBuf,
    location: DataLocation,
}

impl Folder {
    fn new(target: &Target, spec: &Spec) -> Result<Self> {
        if is_whole(spec) {
            let made = tempfile::Builder::new().prefix("memlane-bench-").tempdir();
            let path = made.context("cannot create a directory to work in")?.keep();
            return Ok(Self { path, location: DataLocation::Whole(target.access().clone()) });
        }
        let path = target.folder()?.join("work");
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self { path, location: DataLocation::Folder })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            eprintln!("cannot remove {}: {error}", self.path.display());
        }
    }
}

/// Pins servers to the cores of a run. Unpins them when dropped.
struct Pinned {
    ids: Vec<u32>,
}

impl Pinned {
    fn new(ids: Vec<u32>, cores: u32) -> Result<Self> {
        let pinned = Self { ids };
        pinned.set(&core_list(cores))?;
        Ok(pinned)
    }

    fn set(&self, cores: &str) -> Result<()> {
        for id in &self.ids {
            Tool::new("taskset -a -c -p").arg(cores).arg(id.to_string()).check()?;
        }
        Ok(())
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let all = std::thread::available_parallelism().map_or(1, usize::from);
        if let Err(error) = self.set(&format!("0-{}", all - 1)) {
            eprintln!("cannot reset the CPU affinity of a server: {error:#}");
        }
    }
}
