//! Usage of volumes, remembered for a moment: finding out walks the whole map.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use volumes::{Volume, VolumeUsage};

/// How old an answer may be that another one would hardly differ from, or would be dear.
const AGE_MAX: Duration = Duration::from_secs(1);

/// Processor time of a walk that is taken for each answer about a volume that has changed.
const CHEAP_MAX: Duration = Duration::from_millis(5);

/// An answer, and what it took.
#[derive(Clone, Copy, Debug)]
struct Known {
    usage: VolumeUsage,
    taken: Instant,
    took: Duration,
    /// Changes of the volume that were known before.
    changes: u64,
}

#[derive(Debug, Default)]
pub(crate) struct UsageCache {
    by_volume_id: Mutex<HashMap<u64, Known>>,
}

impl UsageCache {
    /// Usage of `volume` now, or a moment ago if it has not changed since by the count of its
    /// changes, or if it is so large that looking takes long.
    pub(super) fn usage(&self, volume: &Volume, changes: u64) -> VolumeUsage {
        let known = self.lock(|usages| usages.get(&volume.id()).copied());
        if let Some(known) = known.filter(|known| known.holds(changes)) {
            return known.usage;
        }
        let begun = processor_time();
        let usage = volume.usage();
        let took = processor_time().saturating_sub(begun);
        self.lock(|usages| {
            // What is too old is of no use, and volumes that are gone leave nothing.
            usages.retain(|_, known| known.taken.elapsed() < AGE_MAX);
            let taken = Instant::now();
            usages.insert(volume.id(), Known { usage, taken, took, changes });
        });
        usage
    }

    /// Forgets what is known of a volume that was just changed.
    pub(super) fn forget(&self, volume_id: u64) {
        self.lock(|usages| usages.remove(&volume_id));
    }

    fn lock<T>(&self, look: impl FnOnce(&mut HashMap<u64, Known>) -> T) -> T {
        look(&mut self.by_volume_id.lock().expect("no thread panics with this lock"))
    }
}

impl Known {
    fn holds(&self, changes: u64) -> bool {
        let is_same = self.changes == changes || self.took > CHEAP_MAX;
        is_same && self.taken.elapsed() < AGE_MAX
    }
}

/// Of this thread, which waits for nothing: a busy machine makes no walk dear.
fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(now).unwrap_or_default()
}
