//! A volume of an engine in this process, kept up as the daemon keeps up its own.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use block_device::{BlockDevice, SectorSize};
use volume::{Engine, EngineOptions, Reduction, Volume, VolumeSpec};

use super::medium::Medium;
use crate::pool::Place;

/// Between two pieces of the engine's own work, as in the daemon.
const IDLE_INTERVAL: Duration = Duration::from_millis(500);
const BUSY_INTERVAL: Duration = Duration::from_millis(1);

/// A volume, and all that it needs.
pub(crate) struct Embedded {
    volume: Arc<Volume>,
    maintenance: Option<(Sender<()>, JoinHandle<()>)>,
    place: Place,
}

impl Embedded {
    /// For `writers` threads that write at the same time.
    pub(crate) fn new(size_bytes: u64, writers: usize) -> Result<Self> {
        let place = Place::new()?;
        let pool_bytes = Self::pool_bytes(size_bytes);
        let options = EngineOptions { lane_count: writers + 1, fresh_secret: [0x5A; 32] };
        let engine = Engine::open(place.region("pool", pool_bytes)?, options)?;
        let volume = engine.create_volume(VolumeSpec {
            name: "log".parse()?,
            size_bytes,
            sector: SectorSize::Bytes4096,
            reduction: Reduction::Full,
        })?;
        let (stop, stopped) = mpsc::channel();
        let maintain = move || {
            let mut interval = Duration::ZERO;
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                interval = if engine.maintain() { BUSY_INTERVAL } else { IDLE_INTERVAL };
            }
        };
        let thread = thread::Builder::new()
            .name("maintenance".to_owned())
            .spawn(maintain)
            .context("cannot start the maintenance thread")?;
        Ok(Self { volume, maintenance: Some((stop, thread)), place })
    }

    /// Room for the data, what is on its way out, and the tables.
    pub(crate) fn pool_bytes(size_bytes: u64) -> u64 {
        (size_bytes + size_bytes / 2 + (64 << 20)).next_multiple_of(2 << 20)
    }
}

impl Medium for Embedded {
    fn append(&self, offset_bytes: u64, batch: &[u8]) -> Result<()> {
        Ok(BlockDevice::write(&*self.volume, offset_bytes, batch)?)
    }

    fn read(&self, offset_bytes: u64, batch: &mut [u8]) -> Result<()> {
        Ok(BlockDevice::read(&*self.volume, offset_bytes, batch)?)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.volume.flush()?)
    }

    fn flags(&self) -> Vec<String> {
        let are_small = !self.place.has_huge_pages();
        are_small.then(|| "no huge pages without root".to_owned()).into_iter().collect()
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.maintenance.take() {
            drop(stop);
            thread.join().expect("the maintenance thread does not panic");
        }
    }
}
