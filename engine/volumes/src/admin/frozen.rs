//! Frozen copies: the state of volumes at one instant, for a reader that needs it unchanged.
//!
//! They are given up if a writer finds no free memory: see `space`.
//!
//! Order of locks: administration, `Space::hold_shortage`, `FrozenCopies::keep`, the list of maps.

use std::sync::Arc;

use crate::admin::copies::{Plan, maps_of};
use crate::admin::engine::Engine;
use crate::device::volume::{SnapshotList, Volume};
use crate::error::{VolumeError, VolumeErrorKind};
use crate::space::find::Space;

/// Copies of volumes at one instant, kept until this is dropped or a writer needs their memory. The
/// thread that drops this must hold no pin and be in no request. Requests to copies that were given
/// up fail with `Gone`.
#[derive(Debug)]
#[must_use = "what is not kept is not frozen"]
pub struct Frozen {
    volumes: Vec<Arc<Volume>>,
    space: Arc<Space>,
    manners: Manners,
}

/// Policy for frozen copies when a writer finds no free memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manners {
    /// They are given up at once.
    GiveWay,
    /// They stay while they are being read, up to a limit, and the writer waits.
    HoldOn,
}

impl Engine {
    /// Creates frozen copies of the volumes at this instant. They are kept until they are dropped,
    /// or given up for a writer that finds no free memory. Volumes of class `guaranteed` claim no
    /// additional memory for them.
    pub fn freeze(&self, volumes: &[Arc<Volume>]) -> Result<Frozen, VolumeError> {
        self.freeze_with(volumes, Manners::GiveWay)
    }

    /// Creates frozen copies like [`Engine::freeze`], but a writer that finds no free memory waits
    /// while they are being read, up to a limit, before they are given up.
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
        // Excludes requests that look for memory, because they would have to give up these copies
        // too.
        let _no_other_is_short = self.space.hold_shortage();
        let copies = self.copy_maps(&maps_of(volumes), &Plan::frozen())?;
        self.pool.frozen.note_made(copies.len());
        for (source, copy) in volumes.iter().zip(&copies) {
            copy.set_name(source.name());
            self.space.maps.add(copy);
        }
        let volume = |copy| self.volume_of(copy, Arc::<SnapshotList>::default());
        let volumes = copies.into_iter().map(volume).collect();
        // Set under the lock, so that a writer that looks for memory afterwards sees the right
        // policy.
        if manners == Manners::HoldOn {
            self.pool.frozen.hold_on();
        }
        Ok(Frozen { volumes, space: Arc::clone(&self.space), manners })
    }
}

impl Frozen {
    /// Returns the copies, in the order of the frozen volumes. [`Volume::origin_id`] is the id of a
    /// copy's volume.
    pub fn volumes(&self) -> &[Arc<Volume>] {
        &self.volumes
    }

    /// Returns whether no copy has been given up so far. If so, all contents read are of the same
    /// instant.
    pub fn is_whole(&self) -> bool {
        !self.volumes.iter().any(|volume| volume.map.is_gone())
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The process ends, and the next opening deletes them.
            return;
        }
        if self.manners == Manners::HoldOn {
            self.space.pool.frozen.end_holding_on();
        }
        self.space.let_go(&maps_of(&self.volumes));
    }
}
