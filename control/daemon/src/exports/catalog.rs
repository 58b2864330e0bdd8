//! Catalog of the volumes that exports serve.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

use block_device::{BlockDevice, ReadOnly};
use standby::Follower;
use volumes::{Engine, Volume};

use crate::exports::generations::GenerationDevice;
use crate::exports::metered::{Latencies, MeteredVolume, VolumeTraffic};

/// Volumes and snapshots of the engine, by name and id. Looking up an id holds a lock for a few
/// instructions and allocates no memory, so it is suitable for every request.
pub(crate) struct Catalog {
    pub(super) engine: Arc<Engine>,
    by_id: RwLock<HashMap<u64, Arc<MeteredVolume>>>,
    latencies: Arc<Latencies>,
    /// Exclusive users of volumes, by volume id: a device of this host, or a virtual machine.
    holders: RwLock<HashMap<u64, String>>,
    /// Source of the volumes that exports show, if the daemon is a standby.
    follower: Option<Arc<Follower>>,
}

impl Catalog {
    /// Creates a catalog of all current volumes and snapshots. Later changes are announced by
    /// [`Catalog::add`] and [`Catalog::remove`].
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        let all = engine.volumes().into_iter().chain(engine.snapshots());
        let latencies = Arc::<Latencies>::default();
        let metered = |volume| Arc::new(MeteredVolume::new(volume, Arc::clone(&latencies)));
        let by_id = all.map(|volume| (volume.id(), metered(volume))).collect();
        let holders = RwLock::default();
        Self { engine, by_id: RwLock::new(by_id), latencies, holders, follower: None }
    }

    /// Catalog of a standby: read-only volumes of the last complete image.
    pub(crate) fn of_standby(engine: Arc<Engine>, follower: Arc<Follower>) -> Self {
        Self {
            engine,
            by_id: RwLock::default(),
            latencies: Arc::default(),
            holders: RwLock::default(),
            follower: Some(follower),
        }
    }

    pub(crate) fn add(&self, volume: Arc<Volume>) {
        let id = volume.id();
        let metered = Arc::new(MeteredVolume::new(volume, Arc::clone(&self.latencies)));
        self.by_id.write().expect(NO_PANIC).insert(id, metered);
    }

    pub(crate) fn remove(&self, volume_id: u64) {
        self.by_id.write().expect(NO_PANIC).remove(&volume_id);
    }

    pub(crate) fn by_id(&self, volume_id: u64) -> Option<Arc<Volume>> {
        if let Some(follower) = &self.follower {
            let generation = follower.generation()?;
            return generation.volumes().iter().find(|it| it.id() == volume_id).cloned();
        }
        let by_id = self.by_id.read().expect(NO_PANIC);
        by_id.get(&volume_id).map(|metered| Arc::clone(metered.volume()))
    }

    /// Device of a volume by its id. The device counts requests.
    pub(super) fn device_by_id(&self, volume_id: u64) -> Option<Arc<dyn BlockDevice>> {
        let by_id = self.by_id.read().expect(NO_PANIC);
        by_id
            .get(&volume_id)
            .map(|metered| -> Arc<dyn BlockDevice> { Arc::<MeteredVolume>::clone(metered) })
    }

    /// Device of a volume. The requests of a volume that was deleted meanwhile are not counted.
    pub(crate) fn device(&self, volume: &Arc<Volume>) -> Arc<dyn BlockDevice> {
        if let Some(follower) = &self.follower {
            return match GenerationDevice::of(follower, &volume.name()) {
                Some(device) => Arc::new(device),
                // The newest image no longer has this volume.
                None => Arc::new(ReadOnly(Arc::<Volume>::clone(volume))),
            };
        }
        self.device_by_id(volume.id()).unwrap_or_else(|| Arc::<Volume>::clone(volume))
    }

    /// Requests for a volume since the daemon started.
    pub(crate) fn traffic(&self, volume_id: u64) -> VolumeTraffic {
        let by_id = self.by_id.read().expect(NO_PANIC);
        by_id.get(&volume_id).map(|metered| metered.traffic()).unwrap_or_default()
    }

    /// Number of content changes since the daemon started.
    pub(crate) fn changes(&self, volume_id: u64) -> u64 {
        self.metered(volume_id).map(|metered| metered.changes()).unwrap_or_default()
    }

    /// Counts a change that was not made by a client.
    pub(crate) fn note_changed(&self, volume_id: u64) {
        if let Some(metered) = self.metered(volume_id) {
            metered.note_changed();
        }
    }

    pub(crate) fn metered(&self, volume_id: u64) -> Option<Arc<MeteredVolume>> {
        self.by_id.read().expect(NO_PANIC).get(&volume_id).cloned()
    }

    /// Latencies of requests.
    pub(crate) fn latencies(&self) -> &Arc<Latencies> {
        &self.latencies
    }

    /// Records the exclusive user of a volume, or that it has none. While it has one, other clients
    /// can only read the volume.
    pub(crate) fn note_holder(&self, volume_id: u64, holder: Option<String>) {
        let mut holders = self.holders.write().expect(NO_PANIC);
        match holder {
            Some(holder) => holders.insert(volume_id, holder),
            None => holders.remove(&volume_id),
        };
    }

    /// Returns whether the volume has an exclusive user.
    pub(super) fn has_holder(&self, volume_id: u64) -> bool {
        self.holders.read().expect(NO_PANIC).contains_key(&volume_id)
    }

    /// Device for a client other than the exclusive user: read-only if there is an exclusive user.
    pub(crate) fn device_beside(&self, volume: &Arc<Volume>) -> Arc<dyn BlockDevice> {
        match self.holders.read().expect(NO_PANIC).get(&volume.id()) {
            Some(holder) => {
                tracing::debug!(volume = volume.name(), holder, "a volume is opened to be read");
                Arc::new(ReadOnly(self.device(volume)))
            }
            None => self.device(volume),
        }
    }

    /// All volumes and snapshots that the catalog contains.
    pub(super) fn all(&self) -> Vec<Arc<Volume>> {
        let by_id = self.by_id.read().expect(NO_PANIC);
        by_id.values().map(|metered| Arc::clone(metered.volume())).collect()
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<Arc<Volume>> {
        match &self.follower {
            Some(follower) => follower.generation()?.volume(name).cloned(),
            None => self.engine.volume(name).ok(),
        }
    }

    /// Volumes and snapshots that exports show.
    pub(super) fn listed(&self) -> Vec<Arc<Volume>> {
        match &self.follower {
            Some(follower) => {
                follower.generation().map_or_else(Vec::new, |it| it.volumes().to_vec())
            }
            None => [self.engine.volumes(), self.engine.snapshots()].concat(),
        }
    }
}

#[cfg(test)]
impl Catalog {
    /// Catalog of volumes of these names, in a small pool in a folder.
    pub(super) fn in_folder(folder: &std::path::Path, names: &[&str]) -> Self {
        let path = folder.join("region");
        let region = region::Region::open(&region::RegionSpec { path, size_bytes: 8 << 20 });
        let options = volumes::EngineOptions { lane_count: 1, fresh_secret: [7; 32] };
        let engine = Engine::open(region.expect("there is memory"), options).expect("a new pool");
        for name in names {
            let spec = volumes::VolumeSpec::new(name.parse().expect("a good name"), 1 << 20);
            engine.create_volume(spec).expect("there is room");
        }
        Self::new(Arc::new(engine))
    }
}

const NO_PANIC: &str = "no thread panics with this lock";
