//! Taking over from the writer of a store: on somebody's command, never by itself.
//!
//! ```text
//!  claim the store ─▶ bring the pool to the newest image, ─▶ the pool is a set's own
//!  the old writer can                 what is absent is       one word: from here on the pool
//!  save nothing more                  fetched when touched;   is right, and images follow it
//!                                     replay what was shipped
//! ```
//!
//! Each step may be done again: a kill before the last leaves a standby, whose next promotion
//! begins anew; after it, a pool that its owner opens as any other.

use std::error::Error;
use std::sync::Arc;

use durable_set::{Verified, causes};
use image::{ClaimedStore, ImageVolumeKind, OpenImage, StoreWriter};
use volumes::{CapacityClass, Durability, PageSource, SetId};

use crate::continuation::{Continued, find_shipped, give_back, replay, take_bases};
use crate::error::{StandbyError, StandbyErrorKind};
use crate::follower::{Follower, absent_bytes};

/// Failure of an owner to note a promotion.
pub type NoteError = Box<dyn Error + Send + Sync>;

/// Result of a promotion.
#[derive(Debug)]
pub struct Promoted {
    /// The image that the volumes come from: what was written after it, and is not in what was
    /// replayed, is lost.
    pub image_number: u32,
    /// Time at which that was saved, by the clock of the host that saved it.
    pub saved_unix_seconds: u64,
    pub set_id: SetId,
    /// Bytes that are fetched when they are touched.
    pub to_fetch_bytes: u64,
    /// Volumes that could not be guaranteed, and why: they are thin.
    pub guarantees_lost: Vec<(String, String)>,
    /// The journal that was shipped after the image, as far as it was replayed.
    pub continued: Continued,
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
        let (store, key) = self.open_store()?.ok_or_else(no_image)?;
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
        if self.engine.absent_image().is_some() {
            let pages: Arc<dyn PageSource> = Arc::<OpenImage>::clone(&image);
            self.engine.set_page_source(Some((image.id().word(), pages)));
        }
        let mut guarantees_lost = self.guarantee(&image);
        // Each is read anew: what was right once may be damaged by now.
        let shipped = find_shipped(&store, &image, &mut Verified::default())?;
        // From here on the pool is no image's, until it is a set's own.
        let bases = shipped.as_ref().map(|_| take_bases(&self.engine));
        let continued =
            shipped.map(|shipped| replay(&self.engine, &shipped, key.as_deref(), &image));
        let promoted = continued.transpose().and_then(|continued| {
            let continued = continued.unwrap_or_default();
            guarantees_lost.extend(continued.guarantees_lost.iter().cloned());
            self.conclude(&image, continued, guarantees_lost, note)
        });
        let promoted = promoted.inspect_err(|_| {
            if bases.is_some() {
                self.forget_image(&mut work);
            }
        })?;
        self.end_generation();
        self.engine.end_restoring();
        // A kill in between has the next image be a full one.
        give_back(&self.engine, &bases.unwrap_or_default());
        work.is_promoted = true;
        Ok(promoted)
    }

    /// Everything of a promotion between the replay and the last step.
    fn conclude(
        &self,
        image: &OpenImage,
        continued: Continued,
        guarantees_lost: Vec<(String, String)>,
        note: &mut dyn FnMut(&Promoted) -> Result<(), NoteError>,
    ) -> Result<Promoted, StandbyError> {
        for volume in self.engine.volumes() {
            // There is no journal here that has anything of it.
            if volume.durability() == Durability::Journal {
                volume.map().set_anchored(false);
            }
        }
        let to_fetch_bytes = absent_bytes(&self.engine);
        let summary = image.summary();
        let promoted = Promoted {
            image_number: image.id().number(),
            saved_unix_seconds: summary.created_seconds,
            set_id: summary.set_id,
            to_fetch_bytes,
            guarantees_lost,
            continued,
        };
        note(&promoted).map_err(|error| {
            StandbyError::new(StandbyErrorKind::NotNoted, "promote the standby").with_source(error)
        })?;
        Ok(promoted)
    }

    /// Claims memory for volumes that were guaranteed where they come from.
    fn guarantee(&self, image: &OpenImage) -> Vec<(String, String)> {
        let mut lost = Vec::new();
        for record in image.volumes() {
            let is_guaranteed = record.kind == ImageVolumeKind::Volume
                && record.capacity == CapacityClass::Guaranteed;
            if is_guaranteed
                && let Err(error) =
                    self.engine.set_capacity(&record.name, CapacityClass::Guaranteed)
            {
                lost.push((record.name.clone(), causes(&error)));
            }
        }
        lost
    }
}
