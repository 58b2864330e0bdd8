//! Promotion: takes over from the writer of a store, only on command.
//!
//! ```text
//!  claim the store ─▶ update the pool to the newest image; ─▶ the pool belongs to its set:
//!  (fences the old    absent contents are fetched on          one atomic store, after which
//!  writer)            access; replay the shipped              the pool is authoritative and
//!                     journal                                 images follow it
//! ```
//!
//! Each step is repeatable. A kill before the last step leaves a standby, whose next promotion
//! starts over. A kill after it leaves a pool that its owner opens like any other.

use std::error::Error;
use std::sync::Arc;

use durable_set::{Gap, Verified, causes};
use image::{
    ClaimedStore, Claims, ImageError, ImageErrorKind, ImageStore, ImageVolumeKind, Mirroring,
    OpenImage, StoreWriter, claims_of,
};
use volumes::{CapacityClass, Durability, PageSource, SetId, Volume, VolumeMirror};

use crate::continuation::{Continued, find_shipped, give_back, replay, take_bases};
use crate::error::{StandbyError, StandbyErrorKind};
use crate::follower::{Follower, absent_bytes};

/// Failure of the owner to record a promotion.
pub type NoteError = Box<dyn Error + Send + Sync>;

/// Result of a promotion.
#[derive(Debug)]
pub struct Promoted {
    /// Image from which the volumes come. Later writes that were not replayed are lost.
    pub image_number: u32,
    /// Time at which it was saved, by the clock of its writer's host.
    pub saved_unix_seconds: u64,
    pub set_id: SetId,
    /// Number of bytes that are fetched on access.
    pub to_fetch_bytes: u64,
    /// Volumes that could not be guaranteed, with the reason. They are thin now.
    pub guarantees_lost: Vec<(String, String)>,
    /// True if the volumes that are mirrored have every flush of class `journal` that the writer
    /// acknowledged.
    pub is_complete: bool,
    /// Names of the volumes of class `journal` that are not mirrored. Flushes of them that were not
    /// replayed may be lost.
    pub unmirrored: Vec<String>,
    /// Replayed part of the journal shipped after the image.
    pub continued: Continued,
}

/// Decision about acknowledged flushes that a promotion loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossPolicy {
    /// A promotion fails if acknowledged flushes that the store should have are or may be missing.
    Refuse,
    Accept,
}

impl LossPolicy {
    fn check(
        self,
        mirroring: Mirroring,
        lack: Option<String>,
        skipped: Option<(u32, String)>,
    ) -> Result<(), StandbyError> {
        let why = match (self, mirroring, lack, skipped) {
            (Self::Accept, ..) | (_, Mirroring::Off | Mirroring::Unused, ..) => return Ok(()),
            (_, Mirroring::MayStop, ..) => {
                "with mirror-flushes = \"alone\", the writer may have acknowledged flushes that \
                 the image store does not have"
                    .to_owned()
            }
            (_, Mirroring::Always, Some(lack), _) => lack,
            (_, Mirroring::Always, None, Some((number, cause))) => {
                format!("image {number} is newer, and cannot be used: {cause}")
            }
            (_, Mirroring::Always, None, None) => return Ok(()),
        };
        Err(StandbyError::new(StandbyErrorKind::Loss, "promote the standby").with_source(why))
    }
}

impl Follower {
    /// Takes the store over from its writer, and makes the pool the authoritative one of its set.
    /// The owner then opens it with journal and images. The pool has the newest complete image. The
    /// id of `writer` must be random. `note` is called before the irreversible step, so that its
    /// record exists once the pool belongs to the set. If it fails, the pool is still a standby.
    pub fn promote(
        &self,
        writer: impl Into<StoreWriter>,
        note: &mut dyn FnMut(&Promoted) -> Result<(), NoteError>,
    ) -> Result<Promoted, StandbyError> {
        self.promote_after(writer, LossPolicy::Accept, &mut |_| Ok(()), note)
    }

    /// Promotes like [`Follower::promote`], except if `loss` forbids the loss of flushes. Calls
    /// `approve` before the store is claimed, as [`ClaimedStore::claim_after`] does. Fails if
    /// another daemon has claimed the store since the standby last read its claims: of several
    /// standbys that are promoted at the same time, one is. The writer's guarantee about flushes is
    /// checked before the claim and again after it.
    pub fn promote_after(
        &self,
        writer: impl Into<StoreWriter>,
        loss: LossPolicy,
        approve: &mut dyn FnMut(&Claims) -> Result<(), ImageError>,
        note: &mut dyn FnMut(&Promoted) -> Result<(), NoteError>,
    ) -> Result<Promoted, StandbyError> {
        let attempt = "promote the standby";
        let no_image = || StandbyError::new(StandbyErrorKind::NoImage, attempt);
        let mut work = self.lock_work();
        work.check_follows(attempt)?;
        let (store, key) = self.open_store()?.ok_or_else(no_image)?;
        // Taken, so that a repeated promotion reads the claims again.
        let known = match work.claims.take() {
            Some(known) => known,
            None => claims_of(&*store).map_err(StandbyError::image(attempt))?,
        };
        // Avoids claiming the store in vain.
        if !self.bring_to_newest(&store, &mut work)? {
            return Err(no_image());
        }
        let check = |image: &OpenImage, verified: &mut Verified| {
            let shipped = find_shipped(&store, image, verified)?;
            let claims = claims_of(&*store).map_err(StandbyError::image(attempt))?;
            let lack = shipped.as_ref().and_then(|shipped| shipped.gap.as_ref()).map(early_end);
            let mirroring = claims.mirroring;
            loss.check(mirroring, lack, self.newer_skipped(image))?;
            Ok((mirroring, shipped))
        };
        let image = work.image.clone().ok_or_else(no_image)?;
        check(&image, &mut work.verified)?;
        let writer = StoreWriter { mirroring: Mirroring::Unused, ..writer.into() };
        claim(&store, &known, writer, approve)?;
        // The writer may have saved another image just before.
        if !self.bring_to_newest(&store, &mut work)? {
            return Err(no_image());
        }
        let image = work.image.clone().ok_or_else(no_image)?;
        if self.engine.absent_image().is_some() {
            let pages: Arc<dyn PageSource> = Arc::<OpenImage>::clone(&image);
            self.engine.set_page_source(Some((image.id().word(), pages)));
        }
        let mut guarantees_lost = self.guarantee(&image);
        // Extracts are verified again, because they may have been damaged meanwhile.
        let (mirroring, shipped) = check(&image, &mut Verified::default())?;
        // From here on the pool has no base image, until it belongs to the set.
        let bases = shipped.as_ref().map(|_| take_bases(&self.engine));
        let continued =
            shipped.map(|shipped| replay(&self.engine, &shipped, key.as_deref(), &image));
        let promoted = continued.transpose().and_then(|continued| {
            let continued = continued.unwrap_or_default();
            loss.check(mirroring, lack_of(&continued), None)?;
            guarantees_lost.extend(continued.guarantees_lost.iter().cloned());
            self.conclude(&image, (mirroring, continued), guarantees_lost, note)
        });
        let promoted = promoted.inspect_err(|_| {
            if bases.is_some() {
                self.forget_image(&mut work);
            }
        })?;
        self.end_generation();
        self.engine.end_restoring();
        // After a kill before this, the next image is a full one.
        give_back(&self.engine, &bases.unwrap_or_default());
        work.is_promoted = true;
        Ok(promoted)
    }

    /// Returns an image that is newer than this one and cannot be used, with the reason.
    fn newer_skipped(&self, image: &OpenImage) -> Option<(u32, String)> {
        let skipped = self.progress().skipped;
        skipped.into_iter().find(|(number, _)| *number > image.id().number())
    }

    /// Completes a promotion between the replay and the irreversible step.
    fn conclude(
        &self,
        image: &OpenImage,
        (mirroring, continued): (Mirroring, Continued),
        guarantees_lost: Vec<(String, String)>,
        note: &mut dyn FnMut(&Promoted) -> Result<(), NoteError>,
    ) -> Result<Promoted, StandbyError> {
        for volume in self.engine.volumes() {
            // No local journal has its contents.
            if volume.durability() == Durability::Journal {
                volume.map().set_anchored(false);
            }
        }
        let unmirrored = |volume: &Arc<Volume>| {
            let is_it =
                volume.durability() == Durability::Journal && volume.mirror() == VolumeMirror::No;
            is_it.then(|| volume.name())
        };
        let unmirrored = self.engine.volumes().iter().filter_map(unmirrored).collect();
        let to_fetch_bytes = absent_bytes(&self.engine);
        let summary = image.summary();
        let promoted = Promoted {
            image_number: image.id().number(),
            saved_unix_seconds: summary.created_seconds,
            set_id: summary.set_id,
            to_fetch_bytes,
            guarantees_lost,
            is_complete: mirroring == Mirroring::Always && lack_of(&continued).is_none(),
            unmirrored,
            continued,
        };
        note(&promoted).map_err(|error| {
            StandbyError::new(StandbyErrorKind::NotNoted, "promote the standby").with_source(error)
        })?;
        Ok(promoted)
    }

    /// Claims memory for volumes that are guaranteed in the image. Returns those that do not fit.
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

/// Claims the store, unless a daemon has claimed it that `known` claims do not show.
fn claim(
    store: &Arc<dyn ImageStore>,
    known: &Claims,
    writer: StoreWriter,
    approve: &mut dyn FnMut(&Claims) -> Result<(), ImageError>,
) -> Result<(), StandbyError> {
    let attempt = "promote the standby";
    let own_id = writer.daemon_id;
    let mut newcomer = None;
    let mut approve = |claims: &Claims| {
        newcomer = newcomer_of(known, claims, own_id);
        match newcomer {
            Some(_) => Err(ImageError::new(ImageErrorKind::Fenced, attempt)),
            None => approve(claims),
        }
    };
    let claimed = ClaimedStore::claim_after(Arc::clone(store), writer, &mut approve);
    match (claimed, newcomer) {
        (Ok(_), _) => Ok(()),
        (Err(_), Some((number, other))) => {
            let who = match other.host.as_str() {
                "" => format!("it took number {number}"),
                host => format!("it took number {number} on the host {host}"),
            };
            Err(StandbyError::new(StandbyErrorKind::ClaimedMeanwhile, attempt).with_source(who))
        }
        (Err(error), None) => Err(StandbyError::image(attempt)(error)),
    }
}

/// Returns the newest claim if it is of neither this daemon nor the one that had it before.
fn newcomer_of(known: &Claims, claims: &Claims, own_id: u128) -> Option<(u32, StoreWriter)> {
    let before = known.newest.as_ref().map_or(0, |(_, writer)| writer.daemon_id);
    let newest = claims.newest.as_ref();
    newest.filter(|(_, writer)| ![0, before, own_id].contains(&writer.daemon_id)).cloned()
}

fn early_end(gap: &Gap) -> String {
    format!("the mirrored journal ends early: {}", gap.what)
}

/// Returns the part of the journal that was not replayed, if any.
fn lack_of(continued: &Continued) -> Option<String> {
    let count = continued.damaged_blocks;
    let damage = (count > 0).then(|| format!("damaged blocks in the mirrored journal: {count}"));
    continued.gap.as_ref().map(early_end).or(damage)
}
