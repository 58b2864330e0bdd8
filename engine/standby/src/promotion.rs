//! Taking over from the writer of a store: on somebody's command, never by itself.
//!
//! ```text
//!  claim the store ─▶ bring the pool to the newest image ─▶ the pool is a set's own
//!  the old writer can                 what is absent is       one word: from here on the pool
//!  save nothing more                  fetched when touched    is right, and images follow it
//! ```
//!
//! Each step may be done again: a kill before the last leaves a standby, whose next promotion
//! begins anew; after it, a pool that its owner opens as any other.

use std::error::Error;
use std::sync::Arc;

use image::{ClaimedStore, ImageVolumeKind, OpenImage, StoreWriter};
use volumes::{CapacityClass, Durability, PageSource, SetId, VolumeError};

use crate::error::{StandbyError, StandbyErrorKind};
use crate::follower::{Follower, absent_bytes};

/// Failure of an owner to note a promotion.
pub type NoteError = Box<dyn Error + Send + Sync>;

/// Result of a promotion.
#[derive(Debug)]
pub struct Promoted {
    /// The image that the volumes come from: what was written after it is lost.
    pub image_number: u32,
    /// Time at which that was saved, by the clock of the host that saved it.
    pub saved_unix_seconds: u64,
    pub set_id: SetId,
    /// Bytes that are fetched when they are touched.
    pub to_fetch_bytes: u64,
    /// Volumes that could not be guaranteed, and why: they are thin.
    pub guarantees_lost: Vec<(String, VolumeError)>,
}

impl Follower {
    /// Takes the store over from its writer, and makes the pool the right one of its set: the
    /// owner opens it with journal and images next. The pool has the newest image that is whole.
    /// The id of `writer` is drawn at random. `note` is told before the step that cannot be undone:
    /// what it writes down is there when the pool is a set's own. If it fails, the pool is a
    /// standby's still.
    pub fn promote(
        &self,
        writer: impl Into<StoreWriter>,
        note: &mut dyn FnMut(&Promoted) -> Result<(), NoteError>,
    ) -> Result<Promoted, StandbyError> {
        let attempt = "promote the standby";
        let no_image = || StandbyError::new(StandbyErrorKind::NoImage, attempt);
        let mut work = self.lock_work();
        work.check_follows(attempt)?;
        let store = self.open_store()?.ok_or_else(no_image)?;
        // Nothing is claimed for nothing.
        if !self.bring_to_newest(&store, &mut work)? {
            return Err(no_image());
        }
        let claimed = ClaimedStore::claim(Arc::clone(&store), writer);
        drop(claimed.map_err(StandbyError::image(attempt))?);
        // The writer may have saved another just before.
        if !self.bring_to_newest(&store, &mut work)? {
            return Err(no_image());
        }
        let image = work.image.clone().ok_or_else(no_image)?;
        let guarantees_lost = self.guarantee(&image);
        for volume in self.engine.volumes() {
            // There is no journal here that has anything of it.
            if volume.durability() == Durability::Journal {
                volume.map().set_anchored(false);
            }
        }
        let to_fetch_bytes = absent_bytes(&self.engine);
        if self.engine.absent_image().is_some() {
            let pages: Arc<dyn PageSource> = Arc::<OpenImage>::clone(&image);
            self.engine.set_page_source(Some((image.id().word(), pages)));
        }
        let summary = image.summary();
        let promoted = Promoted {
            image_number: image.id().number(),
            saved_unix_seconds: summary.created_seconds,
            set_id: summary.set_id,
            to_fetch_bytes,
            guarantees_lost,
        };
        note(&promoted).map_err(|error| {
            StandbyError::new(StandbyErrorKind::NotNoted, attempt).with_source(error)
        })?;
        self.end_generation();
        self.engine.end_restoring();
        work.is_promoted = true;
        Ok(promoted)
    }

    /// Claims memory for volumes that were guaranteed where they come from.
    fn guarantee(&self, image: &OpenImage) -> Vec<(String, VolumeError)> {
        let mut lost = Vec::new();
        for record in image.volumes() {
            let is_guaranteed = record.kind == ImageVolumeKind::Volume
                && record.capacity == CapacityClass::Guaranteed;
            if is_guaranteed
                && let Err(error) =
                    self.engine.set_capacity(&record.name, CapacityClass::Guaranteed)
            {
                lost.push((record.name.clone(), error));
            }
        }
        lost
    }
}
