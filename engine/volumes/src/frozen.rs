//! Frozen copies: volumes as they were at one instant, for whoever reads them at rest.
//!
//! They take memory as the volumes change, and claim none. Whoever finds no memory has them give
//! way: what only they had comes back, and who reads them finds them gone.
//!
//! ```text
//!  freeze ─▶ frozen ─┬─ dropped by whoever reads them ────────────┬─▶ gone, maps retired
//!                    └─ memory is short ─┬─ given up at once ─────┤
//!                                        └─ held on to: given up ─┘
//!                                           when nobody reads on, or after a while
//! ```
//!
//! Copies that gave way twice may be held on to: then writers wait for a reader who goes on, so
//! that a volume which is always written in a full pool can be read as a whole some time.
//!
//! Order of locks: administration, `Shared::shortage`, `giving_way`, the list.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::time::Duration;

use page_store::ClaimRefused;
use sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::copies::{Plan, retire_map};
use crate::engine::Engine;
use crate::error::{VolumeError, VolumeErrorKind};
use crate::shared::Shared;
use crate::volume::Volume;

/// How often a writer that waits for copies looks whether they are still being read.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// How often it finds that nobody read on before they are given up: 3 seconds.
const IDLE_LOOKS_MAX: usize = 30;

/// How often it looks at all before they are given up: 60 seconds.
const LOOKS_MAX: usize = 600;

/// Volumes as they were at one instant, until this is dropped or somebody needs their memory.
/// Nobody who holds one of the volumes may be pinned or use them when this is dropped. Requests to
/// copies that are gone fail with `Gone`.
#[derive(Debug)]
#[must_use = "what is not kept is not frozen"]
pub struct Frozen {
    volumes: Vec<Arc<Volume>>,
    shared: Arc<Shared>,
    /// Writers that find no memory wait for whoever reads.
    is_held_on: bool,
}

/// The frozen copies of one pool.
#[derive(Debug, Default)]
pub(crate) struct FrozenCopies {
    /// Some of them are gone.
    list: Mutex<Vec<Weak<Volume>>>,
    /// Told when some go.
    gone: Condvar,
    /// Groups of copies that are held on to.
    held_on: AtomicUsize,
    /// Leaves of copies that were looked at, modulo 2^64.
    looks: AtomicU64,
    /// Held while copies go that somebody else reads, and while something relies on their pages.
    giving_way: Mutex<()>,
}

impl Engine {
    /// Copies that stay as the volumes are at this instant until they are dropped, or given up for
    /// somebody who finds no memory. Volumes of class `guaranteed` claim nothing more for them.
    pub fn freeze(&self, volumes: &[Arc<Volume>]) -> Result<Frozen, VolumeError> {
        let _administration = self.administrate();
        let gone = volumes.iter().find(|volume| volume.is_gone());
        if let Some(gone) = gone {
            return Err(VolumeError::new(VolumeErrorKind::NotFound, gone.name()));
        }
        // Not while somebody looks for memory, who would have to have these give way too.
        let _nobody_is_short = self.shared.hold_shortage();
        let copies = self.copy_maps(volumes, &Plan::frozen())?;
        for (source, copy) in volumes.iter().zip(&copies) {
            copy.set_name(source.name());
            self.shared.frozen.add(copy);
        }
        Ok(Frozen { volumes: copies, shared: Arc::clone(&self.shared), is_held_on: false })
    }
}

impl Frozen {
    /// The copies, in the order that was asked for. [`Volume::origin_id`] says what each is of.
    pub fn volumes(&self) -> &[Arc<Volume>] {
        &self.volumes
    }

    /// From now on who finds no memory waits as long as the copies are being read, up to a limit,
    /// before they are given up.
    pub fn hold_on(&mut self) {
        if !self.is_held_on {
            self.is_held_on = true;
            self.shared.frozen.held_on.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether none of the copies was given up so far: what was read of them is of their instant.
    pub fn is_whole(&self) -> bool {
        !self.volumes.iter().any(|volume| volume.is_gone())
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The process ends, and the next opening drops them.
            return;
        }
        if self.is_held_on {
            self.shared.frozen.held_on.fetch_sub(1, Ordering::Relaxed);
        }
        self.shared.let_go(&self.volumes);
    }
}

impl FrozenCopies {
    /// Those that are not gone.
    pub(crate) fn all(&self) -> Vec<Arc<Volume>> {
        present(&self.lock()).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        present(&self.lock()).next().is_none()
    }

    /// Somebody reads on in a copy.
    #[inline]
    pub(crate) fn note_look(&self) {
        self.looks.fetch_add(1, Ordering::Relaxed);
    }

    /// Nobody gives a copy up until the result is dropped.
    pub(crate) fn keep(&self) -> MutexGuard<'_, ()> {
        self.giving_way.lock().expect("a panic in a request ends the process")
    }

    fn add(&self, copy: &Arc<Volume>) {
        let mut list = self.lock();
        list.retain(|volume| volume.strong_count() > 0);
        list.push(Arc::downgrade(copy));
    }

    /// Waits until no copy is left, or none should be waited for.
    fn wait_while_read(&self) {
        let mut list = self.lock();
        let mut looks = self.looks.load(Ordering::Relaxed);
        let mut idle_looks = 0;
        for _ in 0..LOOKS_MAX {
            let is_held_on = self.held_on.load(Ordering::Relaxed) > 0;
            if !is_held_on || idle_looks == IDLE_LOOKS_MAX || present(&list).next().is_none() {
                return;
            }
            let waited = self.gone.wait_timeout(list, LOOK_INTERVAL);
            list = waited.expect("nobody panics with the list locked").0;
            let now = self.looks.load(Ordering::Relaxed);
            idle_looks = if now == looks { idle_looks + 1 } else { 0 };
            looks = now;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Volume>>> {
        self.list.lock().expect("nobody panics with the list locked")
    }
}

fn present(list: &[Weak<Volume>]) -> impl Iterator<Item = Arc<Volume>> {
    list.iter().filter_map(Weak::upgrade).filter(|volume| !volume.is_gone())
}

impl Shared {
    /// Has the frozen copies give way to a caller who finds no memory. Returns whether there were
    /// any: what only they had is on its way to be free. Not to be called while pinned, with a
    /// lane or with a block held.
    pub(crate) fn make_frozen_give_way(&self) -> bool {
        self.frozen.wait_while_read();
        let copies = self.frozen.all();
        self.let_go(&copies);
        !copies.is_empty()
    }

    /// Gives the maps of copies back that are not gone. What went before is on its way too when
    /// this returns.
    fn let_go(&self, copies: &[Arc<Volume>]) {
        {
            let _keep = self.frozen.keep();
            let left: Vec<_> = copies.iter().filter(|copy| copy.begin_going()).collect();
            // Who ends the run waits for this lock: nothing is retired behind it, and the next
            // opening drops what is left.
            if !left.is_empty() && !self.is_closed() {
                self.store.wait_for_readers();
                left.into_iter().for_each(|copy| retire_map(copy));
            }
        }
        self.frozen.gone.notify_all();
    }

    /// Has frozen copies give way, and brings back what only they had. Returns whether there were
    /// any.
    pub(crate) fn take_back_frozen(&self) -> bool {
        let had_some = self.make_frozen_give_way();
        if had_some {
            self.reclaim_all_deferred();
        }
        had_some
    }

    /// Claims slots, those that frozen copies have included.
    pub(crate) fn claim(&self, slots: u64) -> Result<(), ClaimRefused> {
        self.store.claim(slots).or_else(|refused| match self.take_back_frozen() {
            true => self.store.claim(slots),
            false => Err(refused),
        })
    }
}
