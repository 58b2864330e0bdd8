//! Saving of images, which also allows the journal to be truncated.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::Arc;

use image::{
    ClaimedStore, CopiedVolume, EngineSource, ImageError, ImageErrorKind, ImageId, ImageVolume,
    ImageVolumeKind, JournalPosition, OpenImage, Removed, SaveOptions, Saved, Watch,
};
use journal::Position;
use sync::atomic::Ordering::Relaxed;
use volumes::{Durability, Frozen, ImageBase, SavedVolume, Settles, Volume};

use crate::error::{DurableError, DurableErrorKind};
use crate::newest::covered_by;
use crate::set::DurableSet;

/// Minimum size of a save for measuring throughput. Shorter saves measure request latency.
const SPEED_BYTES_MIN: u64 = 64 << 20;

const ATTEMPT: &str = "save an image";
const READ_BACK: &str = "read the new image's manifest again";

/// Maximum number of freezes per image. If a writer in a full pool finds no memory, the frozen
/// copies are given up, except in the last attempt: then such writers wait for the save.
const FREEZES_MAX: usize = 3;

/// Selection of volumes to save. Every image contains those of class `image` and `journal`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Only volumes of class `image` and `journal`, with their snapshots.
    Durable,
    /// These volumes in addition, by name.
    And(Vec<String>),
    All,
}

/// Live volumes with their frozen copies.
#[derive(Debug)]
struct FrozenVolumes {
    live: Vec<Arc<Volume>>,
    /// In the order of `live`.
    copies: Frozen,
}

/// Behaviour when a writer finds no memory during a save.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manners {
    GiveWay,
    /// The writer waits while the copies are read.
    HoldOn,
}

/// Request to save an image.
#[derive(Clone, Debug)]
pub struct SaveRequest {
    pub extent: Extent,
    /// Seconds since 1970.
    pub created_seconds: u64,
    /// A labelled image is kept until it is deleted.
    pub label: String,
    pub bytes_a_second_max: Option<NonZeroU64>,
}

impl DurableSet {
    /// Saves volumes as of one instant. On return the image is durable, and the journal before it
    /// is dropped. Only one save runs at a time.
    ///
    /// A save does not take memory that writers need. If no other memory is left, its frozen copies
    /// are given up, and it starts over with the current state.
    pub fn save(&self, request: &SaveRequest, watch: &dyn Watch) -> Result<Saved, DurableError> {
        self.save_image(request, watch).map_err(|error| self.note_if_fenced(error))
    }

    fn save_image(&self, request: &SaveRequest, watch: &dyn Watch) -> Result<Saved, DurableError> {
        let mut claim = self.claim();
        let claimed = claim.store(self)?;
        let mut freezes = 1;
        let (saved, position) = loop {
            let manners = match freezes {
                FREEZES_MAX => Manners::HoldOn,
                _ => Manners::GiveWay,
            };
            match self.try_to_save(claimed, request, manners, watch) {
                Err(error) if error.kind == DurableErrorKind::GaveWay && freezes < FREEZES_MAX => {
                    freezes += 1;
                }
                other => break other?,
            }
        };
        // The image exists nevertheless. The journal retries truncation by itself.
        let _longer_than_needed = self.journal.end_checkpoint(position);
        self.has_own_image.store(true, Relaxed);
        drop(claim);
        if saved.bytes_written >= SPEED_BYTES_MIN {
            self.save_speed.store(saved.bytes_a_second(), Relaxed);
        }
        Ok(saved)
    }

    /// Saves the current state of volumes, and begins a checkpoint of the journal at it.
    fn try_to_save(
        &self,
        claimed: &mut ClaimedStore,
        request: &SaveRequest,
        manners: Manners,
        watch: &dyn Watch,
    ) -> Result<(Saved, Position), DurableError> {
        // Excludes changes of volumes between the checkpoint's position and the freeze, so that the
        // journal after it continues from the image's state. Waits for flushes before: changes of
        // volumes in memory do not wait for a disk that hangs.
        let turn = self.journal.turn_at_last();
        let guard = self.lock_changes();
        // Determined before the checkpoint: the journal has nothing of these after its position.
        let unanchored = self.unanchored();
        let position = self.journal.begin_checkpoint();
        drop(turn);
        let frozen = self.freeze(&request.extent, manners);
        drop(guard);
        let saved = frozen.and_then(|frozen| {
            let absent_image = self.engine.absent_image();
            let source = EngineSource::new(frozen.to_save(), absent_image, self.open_source());
            let options = SaveOptions {
                set_id: self.id,
                created_seconds: request.created_seconds,
                journal: JournalPosition { epoch: 0, sequence: position.0 },
                label: request.label.clone(),
                bytes_a_second_max: request.bytes_a_second_max,
            };
            let saved = claimed.save(&source, &options, watch).map_err(failed)?;
            self.read_back(claimed, &saved, position)?;
            self.adopt(&frozen, saved.id, &unanchored);
            Ok(saved)
        });
        let saved = saved.inspect_err(|_| self.journal.cancel_checkpoint(position))?;
        Ok((saved, position))
    }

    /// Reads back the manifest of a new image and checks its packs, before the journal and older
    /// images are truncated. A damaged image is deleted if possible, because older ones are then
    /// the better choice.
    fn read_back(
        &self,
        claimed: &mut ClaimedStore,
        saved: &Saved,
        position: Position,
    ) -> Result<(), DurableError> {
        let id = saved.id;
        let read = OpenImage::open(Arc::clone(self.images()), id.number());
        let read = read.and_then(|image| image.check_packs(&saved.packs_missing).map(|()| image));
        let error = match read {
            Ok(image) if image.id() == id && covered_by(&image) == position => return Ok(()),
            Ok(_) => DurableError::new(DurableErrorKind::Images, READ_BACK),
            Err(error) => {
                let is_damaged = error.kind == ImageErrorKind::Damaged;
                let error = DurableError::images(READ_BACK)(error);
                if !is_damaged {
                    return Err(error);
                }
                error
            }
        };
        let _in_use = self.hold_image_use();
        let is_it = |used: &ImageId| *used == id;
        let in_use: Vec<_> = self.images_in_use().into_iter().filter(is_it).collect();
        let _stays = claimed.delete(id.number(), &in_use);
        Err(error)
    }

    /// Deletes all images except the newest `newest_count` and those still needed.
    pub fn retain(&self, newest_count: usize) -> Result<Removed, DurableError> {
        let mut claim = self.claim();
        let claimed = claim.store(self)?;
        let _in_use = self.hold_image_use();
        let in_use = self.images_in_use();
        let removed = claimed.retain(newest_count, &in_use);
        removed.map_err(DurableError::images("delete old images"))
    }

    /// Removes shipped parts of the journal that are covered by an image of this claim. Called
    /// after each save. Accesses the store only if it may have such parts. Parts that remain after
    /// a failure are removed by the next call.
    pub fn remove_shipped(&self) -> Result<(), DurableError> {
        let mut claim = self.claim();
        if !self.has_own_image.load(Relaxed) || !self.may_have_extracts.swap(false, Relaxed) {
            return Ok(());
        }
        let written = self.journal.written();
        let kept: Vec<u32> = written.iter().map(|written| written.segment).collect();
        let removed = claim.store(self).and_then(|claimed| {
            let removed = claimed.remove_extracts(&kept);
            removed.map_err(DurableError::images("remove the shipped journal that an image has"))
        });
        if removed.as_ref().map_or(true, |removed| removed.kept > 0) {
            self.may_have_extracts.store(true, Relaxed);
        }
        removed.map(drop)
    }

    /// Deletes an image and the packs that only it references.
    pub fn delete_image(&self, number: u32) -> Result<Removed, DurableError> {
        let attempt = format!("delete image {number}");
        let mut claim = self.claim();
        let claimed = claim.store(self)?;
        let is_newest = claimed.head().is_some_and(|head| head.number() == number);
        // Applies even if the journal has no volume left: what it dropped is in this image.
        if is_newest && self.has_journal() {
            let kind = DurableErrorKind::StartOfJournal;
            return Err(DurableError::new(kind, attempt));
        }
        let _in_use = self.hold_image_use();
        let in_use = self.images_in_use();
        claimed.delete(number, &in_use).map_err(DurableError::images(&attempt))?;
        claimed.collect().map_err(DurableError::images(&attempt))
    }

    /// Returns images from which blocks are still to be fetched.
    fn images_in_use(&self) -> Vec<ImageId> {
        self.engine.absent_image().and_then(ImageId::from_word).into_iter().collect()
    }

    fn freeze(&self, extent: &Extent, manners: Manners) -> Result<FrozenVolumes, DurableError> {
        let is_wanted = |volume: &Volume| match extent {
            Extent::All => true,
            Extent::And(names) if names.contains(&volume.name()) => true,
            Extent::Durable | Extent::And(_) => volume.durability() != Durability::Ram,
        };
        // A snapshot keeps the class that its volume had then, which may have been `ram`.
        let has_durable_volume = |copy: &Volume| {
            let volume =
                self.engine.volumes().into_iter().find(|it| Some(it.id()) == copy.origin_id());
            volume.is_some_and(|volume| volume.durability() != Durability::Ram)
        };
        if let Extent::And(names) = extent {
            for name in names {
                self.engine.volume(name).map_err(DurableError::volume(ATTEMPT))?;
            }
        }
        let mut live = self.all_volumes();
        live.retain(|one| is_wanted(one) || one.is_snapshot() && has_durable_volume(one));
        let copies = match manners {
            Manners::GiveWay => self.engine.freeze(&live),
            Manners::HoldOn => self.engine.freeze_and_hold_on(&live),
        };
        let copies = copies.map_err(DurableError::volume(ATTEMPT))?;
        Ok(FrozenVolumes { live, copies })
    }

    /// Returns the volumes whose flushes wait for an image, by id, with their generations.
    fn unanchored(&self) -> HashMap<u64, u64> {
        let waits = |volume: &Arc<Volume>| {
            volume.durability() == Durability::Journal && !volume.map().is_anchored()
        };
        let volumes = self.engine.volumes().into_iter().filter(waits);
        volumes.map(|volume| (volume.id(), volume.map().generation())).collect()
    }

    /// Records that an image has the copies' contents.
    fn adopt(&self, frozen: &FrozenVolumes, id: ImageId, unanchored: &HashMap<u64, u64>) {
        let mut saved = Vec::new();
        for (live, copy) in frozen.pairs() {
            let base = ImageBase { image: id.word(), volume_id: live.id() };
            // The image covers its contents, so they need not be journaled.
            let is_first = unanchored.get(&live.id()) == Some(&copy.map().generation());
            let settles = if is_first { Settles::ImageAndJournal } else { Settles::Image };
            // The base is set first: blocks that are not dirty are in the new image as in the old
            // one.
            if self.engine.adopt_image(live, copy, base) {
                let (volume, copy) = (Arc::clone(live), Arc::clone(copy));
                saved.push(SavedVolume { volume, copy, settles });
            }
        }
        self.engine.note_saved(&saved);
        saved.iter().for_each(|it| self.engine.anchor(&it.volume, &it.copy));
    }
}

fn failed(error: ImageError) -> DurableError {
    let kind = match error.kind {
        ImageErrorKind::GaveWay => DurableErrorKind::GaveWay,
        _ => DurableErrorKind::Images,
    };
    DurableError { kind, ..DurableError::images(ATTEMPT)(error) }
}

impl FrozenVolumes {
    /// Iterates over volumes with their copies.
    fn pairs(&self) -> impl Iterator<Item = (&Arc<Volume>, &Arc<Volume>)> {
        self.live.iter().zip(self.copies.volumes())
    }

    fn to_save(&self) -> Vec<CopiedVolume> {
        let copied = |(live, copy): (&Arc<Volume>, &Arc<Volume>)| CopiedVolume {
            record: describe(live, copy),
            copy: Arc::clone(copy),
        };
        self.pairs().map(copied).collect()
    }
}

/// Creates the image's record of a volume that is saved through its copy.
fn describe(live: &Volume, copy: &Volume) -> ImageVolume {
    let kind = match live.is_snapshot() {
        true => ImageVolumeKind::Snapshot,
        false => ImageVolumeKind::Volume,
    };
    ImageVolume {
        id: live.id(),
        origin: live.origin_id().unwrap_or(0),
        created_seconds: live.created_unix_seconds(),
        capacity: live.capacity_class(),
        kind,
        ..ImageVolume::of(copy)
    }
}
