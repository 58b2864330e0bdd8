//! The volumes as exports ask for them.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

use block_device::{BlockDevice, ReadOnly};
use volumes::{Engine, Volume};

/// The volumes and snapshots of the engine, also by id. Looking up an id takes a lock for a few
/// instructions and no memory, so that it can be done for every request.
pub(crate) struct Catalog {
    pub(super) engine: Arc<Engine>,
    by_id: RwLock<HashMap<u64, Arc<Volume>>>,
    /// What has a volume for itself, by its id: a device of this host, or a virtual machine.
    holders: RwLock<HashMap<u64, String>>,
}

impl Catalog {
    /// All that there are now. Those that come and go are told to [`Catalog::add`] and
    /// [`Catalog::remove`].
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        let all = engine.volumes().into_iter().chain(engine.snapshots());
        let by_id = all.map(|volume| (volume.id(), volume)).collect();
        Self { engine, by_id: RwLock::new(by_id), holders: RwLock::default() }
    }

    pub(crate) fn add(&self, volume: Arc<Volume>) {
        self.by_id.write().expect(NO_PANIC).insert(volume.id(), volume);
    }

    pub(crate) fn remove(&self, volume_id: u64) {
        self.by_id.write().expect(NO_PANIC).remove(&volume_id);
    }

    pub(crate) fn by_id(&self, volume_id: u64) -> Option<Arc<Volume>> {
        self.by_id.read().expect(NO_PANIC).get(&volume_id).map(Arc::clone)
    }

    /// Notes what has a volume for itself from now on, or that nothing has. Others that open it may
    /// read it.
    pub(crate) fn note_holder(&self, volume_id: u64, holder: Option<String>) {
        let mut holders = self.holders.write().expect(NO_PANIC);
        match holder {
            Some(holder) => holders.insert(volume_id, holder),
            None => holders.remove(&volume_id),
        };
    }

    /// The volume as a device for a client that opens it beside what has it for itself.
    pub(super) fn device_beside(&self, volume: &Arc<Volume>) -> Arc<dyn BlockDevice> {
        match self.holders.read().expect(NO_PANIC).get(&volume.id()) {
            Some(holder) => {
                tracing::debug!(volume = volume.name(), holder, "a volume is opened to be read");
                Arc::new(ReadOnly(Arc::<Volume>::clone(volume)))
            }
            None => Arc::<Volume>::clone(volume),
        }
    }

    /// Everything that was here when the daemon started or was added since.
    pub(super) fn all(&self) -> Vec<Arc<Volume>> {
        self.by_id.read().expect(NO_PANIC).values().map(Arc::clone).collect()
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<Arc<Volume>> {
        self.engine.volume(name).ok()
    }
}

const NO_PANIC: &str = "no thread panics with this lock";
