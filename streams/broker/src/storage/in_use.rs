//! Volumes of a daemon that the broker has open. Distinguishes volumes that others deleted from
//! those that the broker deleted. Never blocks.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// Maximum number of missing volumes named in a message.
const NAMED_MAX: usize = 8;

/// Number of entries of volumes that are no longer held, beyond one for each that is, up to which
/// they are kept.
const UNHELD_MAX: usize = 64;

const NO_PANIC: &str = "no thread panics with this lock";

/// Open volumes.
#[derive(Debug, Default)]
pub(super) struct VolumesInUse(Mutex<Uses>);

/// Open volumes by id, and their ids by name.
#[derive(Debug, Default)]
struct Uses {
    by_id: BTreeMap<u64, InUse>,
    by_name: BTreeSet<(String, u64)>,
    /// Number of volumes that were held when the list was last searched for others.
    held_count: usize,
}

/// A volume while it is held.
#[derive(Clone, Debug)]
pub(super) struct InUse {
    held: Vec<Weak<()>>,
    id: u64,
    name: String,
}

/// Owners of volumes by volume id, as reported by the daemon.
pub(super) type Owners = BTreeMap<u64, Option<String>>;

impl InUse {
    fn is_held(&self) -> bool {
        self.held.iter().any(|it| it.strong_count() > 0)
    }
}

impl Uses {
    fn insert(&mut self, volume: InUse) {
        self.by_name.insert((volume.name.clone(), volume.id));
        self.by_id.insert(volume.id, volume);
    }

    fn remove(&mut self, id: u64) -> Option<InUse> {
        let removed = self.by_id.remove(&id)?;
        self.by_name.remove(&(removed.name.clone(), id));
        Some(removed)
    }

    /// Removes volumes that are no longer held, once half may be.
    fn forget_unheld(&mut self) {
        if self.by_id.len() <= 2 * self.held_count + UNHELD_MAX {
            return;
        }
        let unheld = self.by_id.values().filter(|it| !it.is_held()).map(|it| it.id);
        for id in unheld.collect::<Vec<_>>() {
            self.remove(id);
        }
        self.held_count = self.by_id.len();
    }
}

impl VolumesInUse {
    /// Registers a volume until the result is dropped.
    pub(super) fn hold(&self, id: u64, name: String) -> Arc<()> {
        let held = Arc::new(());
        let mut uses = self.lock();
        uses.forget_unheld();
        let mut volume =
            uses.remove(id).unwrap_or(InUse { held: Vec::new(), id, name: String::new() });
        volume.held.retain(|it| it.strong_count() > 0);
        volume.held.push(Arc::downgrade(&held));
        volume.name = name;
        uses.insert(volume);
        held
    }

    pub(super) fn rename(&self, id: u64, name: &str) {
        let mut uses = self.lock();
        if let Some(mut volume) = uses.remove(id) {
            name.clone_into(&mut volume.name);
            uses.insert(volume);
        }
    }

    /// Removes a volume that is about to be deleted, even if requests still hold it.
    pub(super) fn take(&self, name: &str) -> Vec<InUse> {
        let mut uses = self.lock();
        let named = (name.to_owned(), 0)..=(name.to_owned(), u64::MAX);
        let ids: Vec<_> = uses.by_name.range(named).map(|(_, id)| *id).collect();
        ids.into_iter().filter_map(|id| uses.remove(id)).collect()
    }

    /// Registers a volume again that was not deleted.
    pub(super) fn put_back(&self, taken: Vec<InUse>) {
        let mut uses = self.lock();
        taken.into_iter().for_each(|volume| uses.insert(volume));
    }

    pub(super) fn all(&self) -> Vec<InUse> {
        self.lock().by_id.values().filter(|it| it.is_held()).cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Uses> {
        self.0.lock().expect(NO_PANIC)
    }

    /// Returns the names of volumes that exist in the daemon without an owner.
    pub(super) fn unowned(&self, owners: &Owners) -> Vec<String> {
        let is_unowned = |it: &InUse| matches!(owners.get(&it.id), Some(None));
        self.all().into_iter().filter(is_unowned).map(|it| it.name).collect()
    }

    /// Returns a warning about volumes that are missing in the daemon, although they were in use
    /// before the request and still are.
    pub(super) fn missing(&self, before: &[InUse], owners: &Owners) -> Option<String> {
        let before: HashSet<_> = before.iter().map(|it| it.id).collect();
        let mut missing = self.all();
        missing.retain(|it| before.contains(&it.id) && !owners.contains_key(&it.id));
        if missing.is_empty() {
            return None;
        }
        let (count, names) = (missing.len(), missing.into_iter().map(|it| it.name));
        Some(format!(
            "{count} volumes of topics are missing, and their records with them: {}; restore the \
             volumes from an image and restart the broker, or delete the topics",
            names.take(NAMED_MAX).collect::<Vec<_>>().join(", ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owners(ids: &[u64]) -> Owners {
        ids.iter().map(|id| (*id, Some("x".to_owned()))).collect()
    }

    #[test]
    fn what_somebody_took_away_is_missing_and_nothing_else() {
        let volumes = VolumesInUse::default();
        let (one, _again) = (volumes.hold(1, "one".to_owned()), volumes.hold(1, "one".to_owned()));
        let _two = volumes.hold(2, "half".to_owned());
        volumes.rename(2, "two");
        let before = volumes.all();
        assert_eq!(volumes.missing(&before, &owners(&[1, 2])), None);
        drop(one);
        let _three = volumes.hold(3, "three".to_owned());
        let said = volumes.missing(&before, &owners(&[])).expect("two are missing");
        assert!(said.starts_with("2 volumes") && said.contains(": one, two;"), "{said}");
        let taken = volumes.take("two");
        assert!(volumes.missing(&before, &owners(&[1])).is_none(), "it is deleted here");
        volumes.put_back(taken);
        assert!(volumes.missing(&before, &owners(&[1])).is_some(), "it was not");
        assert_eq!(volumes.unowned(&[(2, None), (7, None)].into()), ["two"]);
    }
}
