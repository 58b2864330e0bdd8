//! Databases on clones of one volume, which is loaded and stored once and then used by all.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use system::database::{Postgres, Server};
use system::{Ability, Daemon, Mounted, Tool, attach, missing, wait_for};
use tempfile::TempDir;

use super::database::{Database, Engine};
use super::drive::{Load, Measured, drive};
use super::instance_set::{Host, folder_bytes, size_bytes};
use super::load::{Extent, load};
use super::postgresql::Postgresql;
use crate::run::show_part;
use crate::targets::{OwnDaemon, missing_programs};

/// Name in reports.
pub(super) const TARGET: &str = "clones of a volume attached + ext4";

const ORIGINAL: &str = "loaded";
/// Estimate of a clone's own writes.
const OWN_BYTES: u64 = 512 << 20;
/// Maximum time for the daemon to reduce written data.
const REDUCTION_TIME_LIMIT: Duration = Duration::from_secs(120);

/// Memory of clones in addition to their original.
pub(super) struct Shared {
    /// Memory of the loaded volume before cloning.
    pub(super) one_used_bytes: u64,
    /// Size of the loaded database's files.
    pub(super) one_file_bytes: u64,
    /// Memory with all clones mounted and their servers running, before the load.
    pub(super) used_bytes_before: u64,
    pub(super) used_bytes_after: u64,
    /// Size of all clones' files after the run.
    pub(super) file_bytes_after: u64,
    pub(super) measured: Vec<Measured>,
}

pub(super) fn pool_bytes(warehouses: u32, count: u32) -> u64 {
    let loaded = size_bytes(warehouses);
    (loaded + loaded / 4 + (256 << 20) + u64::from(count) * OWN_BYTES) >> 21 << 21
}

/// Returns the reason why clones are unavailable here, or `None`.
pub(super) fn missing_here() -> Option<String> {
    missing(&[Ability::BlockDevices, Ability::Program("mkfs.ext4")]).or_else(missing_programs)
}

/// Loads a volume, clones it and runs the load on all clones at once.
pub(super) fn measure(count: u32, extent: Extent, run: &Load) -> Result<Shared> {
    let postgres = Postgres::find()?;
    let pool_size = format!("{}MiB", pool_bytes(extent.warehouses, count) >> 20);
    let own = OwnDaemon::new(Daemon::start_sized(pool_size, "")?);
    let daemon = own.get();
    let size_bytes = size_bytes(extent.warehouses);
    let words = format!("volume create {ORIGINAL} --size {size_bytes} --sector 4096");
    daemon.memlane(&words)?;
    let one_file_bytes = load_original(daemon, extent)?;
    let one_used_bytes = reduced(daemon)?;
    let mut instances = Vec::new();
    for number in 1..=count {
        show_part(&format!("cloning {number} of {count}"));
        let name = format!("clone-{number}");
        daemon.memlane(&format!("clone {ORIGINAL} {name}"))?;
        let mount = Mount::new(daemon, &name)?;
        let server = Server::open(&postgres, &mount.folder())?;
        instances.push(CloneInstance { server, mount });
    }
    let used_bytes_before = used_bytes(daemon)?;
    let database = |instance: &CloneInstance| -> Box<dyn Database> {
        Box::new(Postgresql::of(&instance.server))
    };
    let databases: Vec<_> = instances.iter().map(database).collect();
    let measured = drive(&databases, run)?;
    let mut file_bytes_after = 0;
    for instance in &instances {
        instance.server.query("postgres", "CHECKPOINT")?;
        file_bytes_after += folder_bytes(&instance.mount.folder())?;
    }
    let used_bytes_after = reduced(daemon)?;
    Ok(Shared {
        one_used_bytes,
        one_file_bytes,
        used_bytes_before,
        used_bytes_after,
        file_bytes_after,
        measured,
    })
}

/// Loads the database onto its volume and stops the server. Returns the size of its files.
fn load_original(daemon: &Daemon, extent: Extent) -> Result<u64> {
    let device = attach(daemon, ORIGINAL)?;
    Tool::new("mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0").arg(&device).check()?;
    let mount = Mount::on(device)?;
    let host = Host::create(Engine::Postgresql, &mount.folder())?;
    load(&*host.database(), extent)?;
    host.stop()?;
    let file_bytes = folder_bytes(&mount.folder())?;
    mount.unmount()?;
    daemon.memlane(&format!("detach {ORIGINAL}"))?;
    Ok(file_bytes)
}

/// A clone in use. Fields are dropped in order.
struct CloneInstance {
    server: Server,
    mount: Mount,
}

/// A volume's mounted file system. Fields are dropped in order.
struct Mount {
    mounted: Mounted,
    _folder: TempDir,
}

impl Mount {
    fn new(daemon: &Daemon, volume: &str) -> Result<Self> {
        Self::on(attach(daemon, volume)?)
    }

    fn on(device: PathBuf) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("memlane-tpcc-").tempdir_in("/var/tmp");
        let folder = folder.context("cannot create a directory to mount on")?;
        rustix::fs::chmod(folder.path(), rustix::fs::Mode::from_raw_mode(0o755))
            .context("cannot change the mode of a directory")?;
        let mounted = Mounted::new(&device, &folder.path().join("mnt"), "noatime")?;
        Ok(Self { mounted, _folder: folder })
    }

    /// Returns the folder for the server's files.
    fn folder(&self) -> PathBuf {
        self.mounted.folder().join("postgres")
    }

    fn unmount(self) -> Result<()> {
        self.mounted.unmount()
    }
}

/// Returns the pool's used memory after all reduction.
fn reduced(daemon: &Daemon) -> Result<u64> {
    show_part("waiting until data reduction is complete");
    wait_for("data reduction to complete", REDUCTION_TIME_LIMIT, || {
        std::thread::sleep(Duration::from_millis(100));
        Ok(daemon.status()?.pool.pending_bytes == 0)
    })?;
    used_bytes(daemon)
}

fn used_bytes(daemon: &Daemon) -> Result<u64> {
    Ok(daemon.status()?.pool.used_bytes)
}
