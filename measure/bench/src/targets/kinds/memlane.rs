//! Volumes, each with its own daemon.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use results::DeviceIo;
use system::{Ability, Daemon, attach, missing, product, product_path};
use tempfile::TempDir;

use super::Place;
use crate::targets::device::kernel_name;
use crate::targets::own_daemon::OwnDaemon;
use crate::targets::target::{Access, AfterKill, Backing, Durability, Traits};

const VOLUME: &str = "bench";

const METRICS_PATH: &str = "/metrics";
/// Exports that count requests. Each request arrives at exactly one.
const EXPORTS: [&str; 4] = ["nbd", "ring", "vhost_user", "device"];
const SECTOR_BYTES: u64 = 512;

const DURABILITY: Durability =
    Durability { after_kill: AfterKill::GoesOn, survives_power_loss: false };
const DURABILITY_OF_JOURNAL: Durability =
    Durability { after_kill: AfterKill::GoesOn, survives_power_loss: true };
const DURABILITY_OF_CONNECTIONS: Durability =
    Durability { after_kill: AfterKill::DataStays, survives_power_loss: false };

/// Returns the size of a pool with space left for a full incompressible volume of this size. Pools
/// are multiples of 2 MiB.
pub(super) fn pool_bytes(size_bytes: u64) -> u64 {
    (size_bytes + size_bytes / 4 + (256 << 20)) >> 21 << 21
}

fn pool_size(place: &Place) -> String {
    format!("{}MiB", pool_bytes(place.size_bytes) >> 20)
}

/// Returns the reason why no daemon can be started, or `None`.
pub fn missing_programs() -> Option<String> {
    let found = ["memlaned", "memlane"].map(|name| product(name).arg("--version").check());
    let error = found.into_iter().find_map(Result::err)?;
    Some(format!("{error:#}; build the programs, or set MEMLANE_BIN_DIR to their directory"))
}

/// Fields are dropped in order.
struct Volume {
    daemon: OwnDaemon,
    starter: Vec<String>,
    /// Folder of the daemon's journal and images.
    _folder: Option<TempDir>,
}

impl Volume {
    fn create(place: &Place) -> Result<(Self, &'static str)> {
        let flags = match missing(&[Ability::BlockDevices]) {
            Some(_) => "--no-fuse",
            None => "",
        };
        let daemon = OwnDaemon::new(Daemon::start_sized(pool_size(place), flags)?);
        let own = Self { daemon, starter: Vec::new(), _folder: None };
        own.make_volume(place, "")?;
        Ok((own, VOLUME))
    }

    /// Creates a volume of class `journal`, with the journal on the disk.
    fn create_durable(place: &Place) -> Result<(Self, &'static str)> {
        let on_disk = &place.disk_folder;
        let folder = tempfile::Builder::new().prefix("memlane-bench-").tempdir_in(on_disk);
        let folder = folder
            .with_context(|| format!("cannot create a directory in {}", on_disk.display()))?;
        let path = folder.path().display().to_string();
        // The daemon's flags are passed as one space-separated line.
        ensure!(!path.contains(char::is_whitespace), "{path} has a blank in its name");
        let flags = format!(
            "--journal-dir {path}/journal --images-store {path}/images \
             --images-save-at-stop false"
        );
        let daemon = OwnDaemon::new(Daemon::start_flagged(pool_size(place), flags)?);
        let own = Self { daemon, starter: Vec::new(), _folder: Some(folder) };
        own.make_volume(place, "--durability journal")?;
        Ok((own, VOLUME))
    }

    fn make_volume(&self, place: &Place, flags: &str) -> Result<()> {
        let Place { size_bytes, sector_bytes, .. } = place;
        let words =
            format!("volume create {VOLUME} --size {size_bytes} --sector {sector_bytes} {flags}");
        self.daemon().memlane(&words).map(|_| ())
    }

    fn daemon(&self) -> &Daemon {
        self.daemon.get()
    }
}

impl Backing for Volume {
    fn used_bytes(&self) -> Result<Option<u64>> {
        Ok(Some(self.daemon().status()?.pool.used_bytes))
    }

    fn pending_bytes(&self) -> Result<u64> {
        Ok(self.daemon().status()?.pool.pending_bytes)
    }

    /// The daemon has only this volume, so its exports' counts are the volume's.
    fn counts(&self) -> Result<Option<DeviceIo>> {
        daemon_counts(self.daemon()).map(Some)
    }

    fn server_ids(&self) -> Vec<u32> {
        self.daemon().id().into_iter().collect()
    }

    fn server_command(&self) -> Option<String> {
        let daemon = self.daemon();
        Some(format!("memlaned --pool-size {} {}", daemon.pool_size(), daemon.flags()))
    }

    fn starter(&self) -> &[String] {
        &self.starter
    }
}

/// Returns requests and sectors of all volumes since the start of the daemon, counted at the
/// exports where they arrived.
pub fn daemon_counts(daemon: &Daemon) -> Result<DeviceIo> {
    parse_counts(&daemon.ask(METRICS_PATH)?)
}

/// Returns the sum over all exports in the daemon's metrics.
fn parse_counts(text: &str) -> Result<DeviceIo> {
    ensure!(
        text.contains("memlane_nbd_read_bytes_total"),
        "the daemon's metrics lack memlane_nbd_read_bytes_total"
    );
    let value = |name: &str| -> Result<u64> {
        let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let Some(found) = found else { return Ok(0) };
        found.trim().parse().with_context(|| format!("{name} is {found:?}"))
    };
    let mut counts = DeviceIo::default();
    for export in EXPORTS {
        let requests =
            |kind: &str| value(&format!("memlane_{export}_requests_total{{kind=\"{kind}\"}}"));
        let sectors = |what: &str| -> Result<u64> {
            Ok(value(&format!("memlane_{export}_{what}_bytes_total"))? / SECTOR_BYTES)
        };
        counts.read_requests += requests("read")?;
        counts.write_requests += requests("write")?;
        counts.flush_requests += requests("flush")?;
        counts.discard_requests += requests("trim")? + requests("discard")? + requests("zero")?;
        counts.read_sectors += sectors("read")?;
        counts.write_sectors += sectors("written")?;
    }
    Ok(counts)
}

pub(super) fn attached(place: &Place) -> Result<(Traits, Box<dyn Backing>)> {
    attach_volume(Volume::create(place)?, DURABILITY)
}

pub(super) fn attached_durable(place: &Place) -> Result<(Traits, Box<dyn Backing>)> {
    attach_volume(Volume::create_durable(place)?, DURABILITY_OF_JOURNAL)
}

fn attach_volume(
    (own, volume): (Volume, &'static str),
    durability: Durability,
) -> Result<(Traits, Box<dyn Backing>)> {
    let path = attach(own.daemon(), volume)?;
    let device = Some(kernel_name(&path)?);
    let access = Access::File { path, direct: true };
    Ok((Traits { access, durability, reduces: true, device }, Box::new(own)))
}

/// Creates a target like [`attached`], for programs whose requests bypass the kernel.
pub(super) fn run(place: &Place) -> Result<(Traits, Box<dyn Backing>)> {
    let (mut own, volume) = Volume::create(place)?;
    let path = attach(own.daemon(), volume)?;
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    let (program, socket) = (text(product_path("memlane")), text(own.daemon().api_socket()));
    let words = [&program, "--socket", &socket, "run", "--quiet", "--volume", volume, "--"];
    own.starter = words.map(str::to_owned).to_vec();
    let access = Access::File { path, direct: true };
    // Requests bypass the device, so there is nothing to count there.
    Ok((Traits { access, durability: DURABILITY, reduces: true, device: None }, Box::new(own)))
}

pub(super) fn file(place: &Place) -> Result<(Traits, Box<dyn Backing>)> {
    let (own, volume) = Volume::create(place)?;
    let path: PathBuf = own.daemon().run_dir().join("volumes").join(volume);
    ensure!(path.exists(), "the daemon serves no file {}", path.display());
    let access = Access::File { path, direct: true };
    Ok((Traits { access, durability: DURABILITY, reduces: true, device: None }, Box::new(own)))
}

pub(super) fn nbd(place: &Place) -> Result<(Traits, Box<dyn Backing>)> {
    let (own, volume) = Volume::create(place)?;
    let access = Access::Nbd { uri: own.daemon().nbd_uri(volume) };
    let durability = DURABILITY_OF_CONNECTIONS;
    Ok((Traits { access, durability, reduces: true, device: None }, Box::new(own)))
}

pub(super) fn vhost_user(place: &Place) -> Result<(Traits, Box<dyn Backing>)> {
    let (own, volume) = Volume::create(place)?;
    own.daemon().memlane(&format!("export vhost-user {volume}"))?;
    let socket = own.daemon().run_dir().join("vhost").join(format!("{volume}.sock"));
    ensure!(socket.exists(), "the daemon serves no socket {}", socket.display());
    let access = Access::VhostUser { socket };
    Ok((Traits { access, durability: DURABILITY, reduces: true, device: None }, Box::new(own)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_of_all_exports_is_summed_up_in_sectors() {
        let text = "memlane_nbd_requests_total{kind=\"read\"} 2\n\
                    memlane_nbd_requests_total{kind=\"trim\"} 4\n\
                    memlane_nbd_read_bytes_total 1024\n\
                    memlane_ring_requests_total{kind=\"write\"} 3\n\
                    memlane_ring_written_bytes_total 512\n\
                    memlane_device_read_bytes_total 4096\n";
        let expected = DeviceIo {
            read_requests: 2,
            read_sectors: 10,
            write_requests: 3,
            write_sectors: 1,
            flush_requests: 0,
            discard_requests: 4,
        };
        assert_eq!(parse_counts(text).expect("it is a page of metrics"), expected);
    }

    #[test]
    fn a_page_without_traffic_and_a_count_that_is_none_are_errors() {
        parse_counts("HTTP/1.1 503 Service Unavailable").expect_err("nothing was counted");
        let error = parse_counts("memlane_nbd_read_bytes_total many").expect_err("is no number");
        assert!(error.to_string().contains("many"), "{error:#}");
    }
}
