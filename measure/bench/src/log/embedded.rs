//! A volume of an engine in this process, maintained as by the daemon.

use std::sync::Arc;

use anyhow::{Context, Result};
use block_device::{BlockDevice, SectorSize};
use maintenance::Maintenance;
use volumes::{Engine, EngineOptions, Volume, VolumeSpec};

use super::medium::Medium;
use crate::pool::Place;

/// A volume with its engine.
pub(crate) struct Embedded {
    volume: Arc<Volume>,
    _maintenance: Maintenance,
    place: Place,
}

impl Embedded {
    /// Creates a volume for `writers` concurrent writer threads.
    pub(crate) fn new(size_bytes: u64, writers: usize) -> Result<Self> {
        let place = Place::new()?;
        let pool_bytes = Self::pool_bytes(size_bytes);
        let options = EngineOptions { lane_count: writers + 1, fresh_secret: [0x5A; 32] };
        let engine = Engine::open(place.region("pool", pool_bytes)?, options)?;
        let volume = engine.create_volume(VolumeSpec {
            sector: SectorSize::Bytes4096,
            ..VolumeSpec::new("log".parse()?, size_bytes)
        })?;
        let maintenance = Maintenance::start(Arc::new(engine), |_| {})
            .context("cannot start the maintenance thread")?;
        Ok(Self { volume, _maintenance: maintenance, place })
    }

    /// Returns the pool size for the data, freed pages and tables.
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
