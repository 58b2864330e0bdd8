//! Locks for changes of volumes. Changes of one volume and of its snapshots run one at a time;
//! those of other volumes do not wait for them. Volumes are locked by name, so that names which are
//! still free are locked too.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard};

/// Volumes that are being changed.
#[derive(Debug, Default)]
pub(crate) struct ChangeLocks {
    names: Mutex<BTreeSet<String>>,
    unlocked: Condvar,
}

/// Locked volumes. Dropping it unlocks them.
#[derive(Debug)]
pub(super) struct LockedVolumes<'locks> {
    locks: &'locks ChangeLocks,
    names: BTreeSet<String>,
}

impl ChangeLocks {
    /// Locks the volumes of these names, and of these snapshots. Blocks while another change has
    /// locked one of them. A thread that has locked volumes must not lock others.
    pub(super) fn lock<'name>(
        &self,
        names: impl IntoIterator<Item = &'name str>,
    ) -> LockedVolumes<'_> {
        let names: BTreeSet<String> = names.into_iter().map(volume_of).collect();
        let are_locked = |locked: &mut BTreeSet<String>| !locked.is_disjoint(&names);
        let waited = self.unlocked.wait_while(self.names(), are_locked);
        waited.expect(NO_PANIC).extend(names.iter().cloned());
        LockedVolumes { locks: self, names }
    }

    fn names(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.names.lock().expect(NO_PANIC)
    }
}

impl Drop for LockedVolumes<'_> {
    fn drop(&mut self) {
        self.locks.names().retain(|name| !self.names.contains(name));
        self.locks.unlocked.notify_all();
    }
}

/// Returns the name of a volume from its name or that of one of its snapshots.
fn volume_of(name: &str) -> String {
    name.split_once('@').map_or(name, |(volume, _)| volume).to_owned()
}

const NO_PANIC: &str = "no thread panics with this lock";

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    #[test]
    fn changes_wait_for_those_of_the_same_volume_and_its_snapshots_alone() {
        let locks = Arc::new(ChangeLocks::default());
        let first = locks.lock(["a@s", "b"]);
        drop(locks.lock(["c", "a-b"]));
        let others = Arc::clone(&locks);
        let waiting = thread::spawn(move || drop(others.lock(["c", "a"])));
        drop(locks.lock(["c"]));
        assert_eq!(*locks.names(), ["a", "b"].map(str::to_owned).into());
        assert!(!waiting.is_finished(), "a locked volume was locked again");
        drop(first);
        waiting.join().expect("no panic");
        assert!(locks.names().is_empty());
    }
}
