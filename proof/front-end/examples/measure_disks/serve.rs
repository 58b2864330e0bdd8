//! An engine of its own with one volume, exported until the input ends.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use adaptive_polling::{SPIN_MAX_DEFAULT, SpinPermits};
use anyhow::{Context, Result};
use region::{Region, RegionSpec};
use vhost_user::{Config, Export, ThreadBudget};
use volumes::{Engine, EngineOptions, VolumeSpec};

pub(crate) fn serve(socket: &Path, size_mib: u64) -> Result<()> {
    let folder = tempfile::tempdir_in("/dev/shm")?;
    let size_bytes = size_mib << 20;
    let spec = RegionSpec {
        path: folder.path().join("region"),
        size_bytes: (size_bytes * 2).next_multiple_of(2 << 20) + (64 << 20),
    };
    let options = EngineOptions { lane_count: 2, fresh_secret: [7; 32] };
    let engine = Engine::open(Region::open(&spec)?, options).context("a new pool")?;
    let volume = engine.create_volume(VolumeSpec::new("disk".parse()?, size_bytes))?;
    let config = Config {
        socket: socket.to_owned(),
        admits: Arc::new(|_| true),
        serial: *b"memlane-measured----",
        queue_count: 1,
        threads: Arc::new(ThreadBudget::new(8)),
        spin_permits: Arc::new(SpinPermits::for_this_machine()),
        spin_max: SPIN_MAX_DEFAULT,
    };
    let export = Export::start(config, volume)?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    export.stop(Duration::from_secs(5));
    Ok(())
}
