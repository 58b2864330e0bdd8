//! Volumes of a daemon that the broker has open. Distinguishes volumes that others deleted from
//! those that the broker deleted. Never blocks.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, Weak};

/// Maximum number of missing volumes named in a message.
const NAMED_MAX: usize = 8;

const NO_PANIC: &str = "no thread panics with this lock";

/// Open volumes.
#[derive(Debug, Default)]
pub(super) struct VolumesInUse(Mutex<Vec<InUse>>);

/// A volume while it is held.
#[derive(Clone, Debug)]
pub(super) struct InUse {
    held: Weak<()>,
    id: u64,
    name: String,
}

/// Owners of volumes by volume id, as reported by the daemon.
pub(super) type Owners = BTreeMap<u64, Option<String>>;

impl VolumesInUse {
    /// Registers a volume until the result is dropped.
    pub(super) fn hold(&self, id: u64, name: String) -> Arc<()> {
        let held = Arc::new(());
        let mut volumes = self.0.lock().expect(NO_PANIC);
        volumes.retain(|it| it.held.strong_count() > 0);
        volumes.push(InUse { held: Arc::downgrade(&held), id, name });
        held
    }

    pub(super) fn rename(&self, id: u64, name: &str) {
        let mut volumes = self.0.lock().expect(NO_PANIC);
        volumes.iter_mut().filter(|it| it.id == id).for_each(|it| name.clone_into(&mut it.name));
    }

    /// Removes a volume that is about to be deleted, even if requests still hold it.
    pub(super) fn take(&self, name: &str) -> Vec<InUse> {
        self.0.lock().expect(NO_PANIC).extract_if(.., |it| it.name == name).collect()
    }

    /// Registers a volume again that was not deleted.
    pub(super) fn put_back(&self, taken: Vec<InUse>) {
        self.0.lock().expect(NO_PANIC).extend(taken);
    }

    pub(super) fn all(&self) -> Vec<InUse> {
        let volumes = self.0.lock().expect(NO_PANIC);
        volumes.iter().filter(|it| it.held.strong_count() > 0).cloned().collect()
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
