//! The volumes as exports ask for them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, RwLock, Weak};

use block_device::{BlockDevice, ReadOnly};
use volumes::{Engine, Volume};

/// The volumes and snapshots of the engine, also by id. Looking up an id takes a lock for a few
/// instructions and no memory, so that it can be done for every request.
pub(crate) struct Catalog {
    pub(super) engine: Arc<Engine>,
    by_id: RwLock<HashMap<u64, Arc<Volume>>>,
    /// The holder of a volume that is held alone, by its id: a device of this host, or a virtual
    /// machine.
    holders: RwLock<HashMap<u64, String>>,
    /// Devices of clients that may only read, by the id of the volume.
    readers: Mutex<HashMap<u64, Vec<Weak<ReadOnly>>>>,
}

impl Catalog {
    /// All that there are now. Those that come and go are told to [`Catalog::add`] and
    /// [`Catalog::remove`].
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        let all = engine.volumes().into_iter().chain(engine.snapshots());
        let by_id = all.map(|volume| (volume.id(), volume)).collect();
        let by_id = RwLock::new(by_id);
        Self { engine, by_id, holders: RwLock::default(), readers: Mutex::default() }
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

    /// Notes the holder that has a volume for itself from now on, if any. Others that open it may
    /// only read it.
    pub(crate) fn note_holder(&self, volume_id: u64, holder: Option<String>) {
        let mut holders = self.holders.write().expect(NO_PANIC);
        match holder {
            Some(holder) => holders.insert(volume_id, holder),
            None => holders.remove(&volume_id),
        };
    }

    /// The volume as a device for a client that opens it beside its holder.
    pub(super) fn device_beside(&self, volume: &Arc<Volume>) -> Arc<dyn BlockDevice> {
        match self.holders.read().expect(NO_PANIC).get(&volume.id()) {
            Some(holder) => {
                tracing::debug!(volume = volume.name(), holder, "a volume is opened to be read");
                self.device_to_read(volume)
            }
            None => Arc::<Volume>::clone(volume),
        }
    }

    /// The volume as a device for a client that may only read.
    pub(super) fn device_to_read(&self, volume: &Arc<Volume>) -> Arc<dyn BlockDevice> {
        let device = Arc::new(ReadOnly(Arc::<Volume>::clone(volume)));
        let mut readers = self.readers.lock().expect(NO_PANIC);
        // What has gone leaves nothing.
        readers.values_mut().for_each(|own| own.retain(|reader| reader.strong_count() > 0));
        readers.retain(|_, own| !own.is_empty());
        readers.entry(volume.id()).or_default().push(Arc::downgrade(&device));
        device
    }

    /// How many devices there are of clients that may only read.
    pub(crate) fn reader_count(&self, volume_id: u64) -> usize {
        let readers = self.readers.lock().expect(NO_PANIC);
        let own = readers.get(&volume_id).into_iter().flatten();
        own.filter(|reader| reader.strong_count() > 0).count()
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
