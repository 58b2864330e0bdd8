//! Participation of a volume in mirrored flushes. Never waits for an image store: its owner does.
//!
//! ```text
//!  yes ─▶ no, which the image store may not know: still mirrored ─▶ no
//! ```
//!
//! So what the image store has of a volume that is no longer mirrored never promises too much.

use crate::map::table::MirrorState;
use crate::map::volume_map::VolumeMap;
use crate::spec::VolumeMirror;

impl VolumeMap {
    /// Participation in mirrored flushes.
    pub fn mirror(&self) -> VolumeMirror {
        self.mirror_state().setting()
    }

    /// Returns whether flushes are mirrored. True also for a volume that is not to be mirrored,
    /// until [`Engine::complete_leaving`]. Read it after the journal has the flush: a later change
    /// of the setting then comes after the flush in the journal too.
    ///
    /// [`Engine::complete_leaving`]: crate::Engine::complete_leaving
    pub fn is_mirrored(&self) -> bool {
        self.mirror_state() != MirrorState::Excluded
    }
}
