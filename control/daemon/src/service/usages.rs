//! What volumes hold, remembered for a moment: finding out walks the whole map.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use volumes::{Volume, VolumeUsage};

/// How old an answer may be.
const AGE_MAX: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct UsageCache {
    by_volume_id: Mutex<HashMap<u64, (Instant, VolumeUsage)>>,
}

impl UsageCache {
    /// What `volume` holds now, or held a moment ago.
    pub(super) fn usage(&self, volume: &Volume) -> VolumeUsage {
        let known = self.lock(|usages| usages.get(&volume.id()).copied());
        if let Some((_, usage)) = known.filter(|(taken, _)| taken.elapsed() < AGE_MAX) {
            return usage;
        }
        let usage = volume.usage();
        self.lock(|usages| {
            // What is too old is of no use, and volumes that are gone leave nothing.
            usages.retain(|_, (taken, _)| taken.elapsed() < AGE_MAX);
            usages.insert(volume.id(), (Instant::now(), usage));
        });
        usage
    }

    /// Forgets what is known of a volume that was just changed.
    pub(super) fn forget(&self, volume_id: u64) {
        self.lock(|usages| usages.remove(&volume_id));
    }

    fn lock<T>(&self, look: impl FnOnce(&mut HashMap<u64, (Instant, VolumeUsage)>) -> T) -> T {
        look(&mut self.by_volume_id.lock().expect("no thread panics with this lock"))
    }
}
