//! Volumes, each with a daemon of its own.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use system::{Ability, Daemon, Interruption, attach, missing, product, product_path};

use super::Place;
use crate::targets::device::kernel_name;
use crate::targets::target::{Access, AfterKill, Backing, Durability, Traits};

const VOLUME: &str = "bench";

const DURABILITY: Durability =
    Durability { after_kill: AfterKill::GoesOn, survives_power_loss: false };
const DURABILITY_OF_CONNECTIONS: Durability =
    Durability { after_kill: AfterKill::DataStays, survives_power_loss: false };

/// A pool that a volume of this size, full of what cannot be made smaller, leaves some room in.
/// Pools are multiples of 2 MiB.
pub(super) fn pool_bytes(size_bytes: u64) -> u64 {
    (size_bytes + size_bytes / 4 + (256 << 20)) >> 21 << 21
}

/// Why no daemon can be started.
pub fn missing_programs() -> Option<String> {
    let found = ["memlaned", "memlane"].map(|name| product(name).arg("--version").check());
    let error = found.into_iter().find_map(Result::err)?;
    Some(format!("{error:#}; build the programs, or name their folder in MEMLANE_BIN_DIR"))
}

struct Volume {
    daemon: Option<Daemon>,
    starter: Vec<String>,
}

impl Volume {
    fn create(place: &Place) -> Result<(Self, &'static str)> {
        let flags = match missing(&[Ability::BlockDevices]) {
            Some(_) => "--no-fuse",
            None => "",
        };
        let pool_size = format!("{}MiB", pool_bytes(place.size_bytes) >> 20);
        let daemon = Daemon::start_sized(pool_size, flags)?;
        let own = Self { daemon: Some(daemon), starter: Vec::new() };
        let Place { size_bytes, sector_bytes, .. } = place;
        own.daemon().memlane(&format!(
            "volume create {VOLUME} --size {size_bytes} --sector {sector_bytes}"
        ))?;
        Ok((own, VOLUME))
    }

    fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().expect("it goes only when this is dropped")
    }
}

impl Backing for Volume {
    fn used_bytes(&self) -> Result<Option<u64>> {
        Ok(Some(self.daemon().status()?.pool.used_bytes))
    }

    fn pending_bytes(&self) -> Result<u64> {
        Ok(self.daemon().status()?.pool.pending_bytes)
    }

    fn server_ids(&self) -> Vec<u32> {
        self.daemon().id().into_iter().collect()
    }

    fn starter(&self) -> &[String] {
        &self.starter
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let _cleaning_up = Interruption::begin_to_clean_up();
        if let Some(daemon) = self.daemon.take()
            && let Err(error) = daemon.finish()
        {
            eprintln!("a daemon was not taken down in order: {error:#}");
        }
    }
}

pub(super) fn attached(place: &Place) -> Result<(Traits, Box<dyn Backing>)> {
    let (own, volume) = Volume::create(place)?;
    let path = attach(own.daemon(), volume)?;
    let device = Some(kernel_name(&path)?);
    let access = Access::File { path, direct: true };
    Ok((Traits { access, durability: DURABILITY, reduces: true, device }, Box::new(own)))
}

/// As [`attached`], for programs whose requests go past the kernel.
pub(super) fn run(place: &Place) -> Result<(Traits, Box<dyn Backing>)> {
    let (mut own, volume) = Volume::create(place)?;
    let path = attach(own.daemon(), volume)?;
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    let (program, socket) = (text(product_path("memlane")), text(own.daemon().api_socket()));
    let words = [&program, "--socket", &socket, "run", "--quiet", "--volume", volume, "--"];
    own.starter = words.map(str::to_owned).to_vec();
    let access = Access::File { path, direct: true };
    // Requests do not pass the device: there is nothing to count there.
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
