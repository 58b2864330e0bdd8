//! Usage of volumes, cached for a short time, because computing it walks the whole map.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use volumes::{Volume, VolumeUsage};

/// Maximum age of a cached result.
const AGE_MAX: Duration = Duration::from_secs(1);

/// Maximum CPU time of a walk that is repeated for each request if the volume has changed.
const CHEAP_MAX: Duration = Duration::from_millis(5);

/// A cached result, and the CPU time that it took.
#[derive(Clone, Copy, Debug)]
struct Known {
    usage: VolumeUsage,
    taken: Instant,
    took: Duration,
    /// The volume's change count before the computation.
    changes: u64,
}

#[derive(Debug, Default)]
pub(crate) struct UsageCache {
    usages: Mutex<Usages>,
}

#[derive(Debug, Default)]
struct Usages {
    by_volume_id: HashMap<u64, Known>,
    /// Time at which expired results were last removed. Checking all results for each new one would
    /// be slow with many volumes.
    swept: Option<Instant>,
}

impl UsageCache {
    /// Returns the usage of `volume`. A recent cached result is used if the volume's change count
    /// is the same, or if the volume is so large that the computation is slow.
    pub(super) fn usage(&self, volume: &Volume, changes: u64) -> VolumeUsage {
        let known = self.lock().by_volume_id.get(&volume.id()).copied();
        if let Some(known) = known.filter(|known| known.holds(changes)) {
            return known.usage;
        }
        let begun = processor_time();
        let usage = volume.usage();
        let took = processor_time().saturating_sub(begun);
        self.lock().add(volume.id(), Known { usage, taken: Instant::now(), took, changes });
        usage
    }

    /// Removes the cached result of a volume that was just changed.
    pub(super) fn forget(&self, volume_id: u64) {
        self.lock().by_volume_id.remove(&volume_id);
    }

    fn lock(&self) -> MutexGuard<'_, Usages> {
        self.usages.lock().expect("no thread panics with this lock")
    }
}

impl Usages {
    fn add(&mut self, volume_id: u64, new: Known) {
        if self.swept.is_none_or(|swept| swept.elapsed() >= AGE_MAX) {
            // Removes expired results, also those of deleted volumes.
            self.by_volume_id.retain(|_, known| known.taken.elapsed() < AGE_MAX);
            self.swept = Some(new.taken);
        }
        self.by_volume_id.insert(volume_id, new);
    }
}

impl Known {
    fn holds(&self, changes: u64) -> bool {
        let is_same = self.changes == changes || self.took > CHEAP_MAX;
        is_same && self.taken.elapsed() < AGE_MAX
    }
}

/// CPU time of this thread, so that a busy host does not make a walk seem expensive.
fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(now).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_are_too_old_are_dropped_once_in_a_while() {
        let now = Instant::now();
        let (old, young) = (now.checked_sub(AGE_MAX), now + Duration::from_secs(3600));
        let of = |taken| {
            let (usage, took) = Default::default();
            Known { usage, taken, took, changes: 0 }
        };
        let ids = |usages: &Usages| {
            let mut ids: Vec<_> = usages.by_volume_id.keys().copied().collect();
            ids.sort_unstable();
            ids
        };
        let mut usages = Usages { swept: Some(young), ..Usages::default() };
        usages.add(1, of(old.expect("the machine has run for a second")));
        usages.add(2, of(young));
        assert_eq!(ids(&usages), [1, 2]);
        usages.swept = old;
        usages.add(3, of(young));
        assert_eq!(ids(&usages), [2, 3]);
    }
}
