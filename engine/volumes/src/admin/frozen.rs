//! Frozen copies: volumes as they were at one instant, for a reader that wants them at rest.
//!
//! They give way to writers that find no memory: see `space`.
//!
//! Order of locks: administration, `Space::hold_shortage`, `FrozenCopies::keep`, the list of maps.

use std::sync::Arc;

use crate::admin::copies::{Plan, maps_of};
use crate::admin::engine::Engine;
use crate::device::volume::{SnapshotList, Volume};
use crate::error::{VolumeError, VolumeErrorKind};
use crate::space::find::Space;

/// Copies of volumes at one instant, kept until this is dropped or a writer needs their memory. The
/// thread that drops this must not be pinned or within a request. Requests to copies that were
/// given up fail with `Gone`.
#[derive(Debug)]
#[must_use = "what is not kept is not frozen"]
pub struct Frozen {
    volumes: Vec<Arc<Volume>>,
    space: Arc<Space>,
    manners: Manners,
}

/// What copies do when a writer finds no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manners {
    /// They are given up at once.
    GiveWay,
    /// They stay while they are being read, up to a limit, and the writer waits.
    HoldOn,
}

impl Engine {
    /// Freezes copies of the volumes at this instant. They stay until they are dropped, or given up
    /// for a writer that finds no memory. Volumes of class `guaranteed` claim nothing more for
    /// them.
    pub fn freeze(&self, volumes: &[Arc<Volume>]) -> Result<Frozen, VolumeError> {
        self.freeze_with(volumes, Manners::GiveWay)
    }

    /// Freezes copies like [`Engine::freeze`], but a writer that finds no memory waits while they
    /// are being read, up to a limit, before they are given up.
    pub fn freeze_and_hold_on(&self, volumes: &[Arc<Volume>]) -> Result<Frozen, VolumeError> {
        self.freeze_with(volumes, Manners::HoldOn)
    }

    fn freeze_with(
        &self,
        volumes: &[Arc<Volume>],
        manners: Manners,
    ) -> Result<Frozen, VolumeError> {
        let _administration = self.administrate();
        let gone = volumes.iter().find(|volume| volume.map.is_gone());
        if let Some(gone) = gone {
            return Err(VolumeError::new(VolumeErrorKind::NotFound, gone.name()));
        }
        // Not while a request looks for memory, which would have to have these give way too.
        let _no_other_is_short = self.space.hold_shortage();
        let copies = self.copy_maps(&maps_of(volumes), &Plan::frozen())?;
        self.pool.frozen.note_made(copies.len());
        for (source, copy) in volumes.iter().zip(&copies) {
            copy.set_name(source.name());
            self.space.add_map(copy);
        }
        let volume = |copy| self.volume_of(copy, Arc::<SnapshotList>::default());
        let volumes = copies.into_iter().map(volume).collect();
        // A writer that looks for memory as soon as it may finds the copies as they are to be.
        if manners == Manners::HoldOn {
            self.pool.frozen.hold_on();
        }
        Ok(Frozen { volumes, space: Arc::clone(&self.space), manners })
    }
}

impl Frozen {
    /// The copies, in the order of the volumes that were frozen. [`Volume::origin_id`] is the id of
    /// a copy's volume.
    pub fn volumes(&self) -> &[Arc<Volume>] {
        &self.volumes
    }

    /// Returns whether no copy was given up so far, so that all that was read is of the same
    /// instant.
    pub fn is_whole(&self) -> bool {
        !self.volumes.iter().any(|volume| volume.map.is_gone())
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The process ends, and the next opening drops them.
            return;
        }
        if self.manners == Manners::HoldOn {
            self.space.pool.frozen.end_holding_on();
        }
        self.space.let_go(&maps_of(&self.volumes));
    }
}
