//! Selection of the image from which a lost pool is restored, if newer images are unreadable.
//!
//! An older image is used only if the journal reaches back to it, and the newer one has no other
//! data: no volume of class `image`, whose contents are only in images. Otherwise acknowledged
//! durable data would be lost, which only the owner may accept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use image::{ImageError, ImageErrorKind, ImageStore, ImageVolume, ImageVolumeKind, OpenImage};
use journal::{Change, Position, RecordKind, Refusal, Replay, VolumeRecord};
use sealing::SetKey;
use storage::Folder;
use volumes::{Durability, Engine, SetId};

use crate::error::{DurableError, DurableErrorKind};

const FIND: &str = "find the newest image";

/// Returns the position up to which an image covers the journal.
pub(crate) fn covered_by(image: &OpenImage) -> Position {
    Position(image.summary().journal.sequence.max(Position::START.0))
}

/// The newest readable image, and newer unreadable ones.
#[derive(Debug)]
pub(crate) struct NewestImage {
    pub(crate) image: Option<Arc<OpenImage>>,
    /// Numbers in descending order, with reasons.
    pub(crate) skipped: Vec<(u32, String)>,
    /// The store failed to return newer images or any at all, which may be temporary.
    pub(crate) failure: Option<DurableError>,
}

/// Number of the image to restore from, accepting the loss of everything that is in neither it nor
/// the journal. It must be the newest readable one, or 0 if there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptedImage(pub u32);

impl NewestImage {
    pub(crate) fn find(store: &Arc<dyn ImageStore>) -> Result<Self, DurableError> {
        let (mut skipped, mut failure) = (Vec::new(), None);
        let newest = OpenImage::open_newest(Arc::clone(store), &mut |number, error| {
            skipped.push((number, error.to_string()));
            if !matches!(error.kind, ImageErrorKind::Damaged | ImageErrorKind::Newer) {
                let again = ImageError::new(error.kind, error.attempt.clone());
                failure.get_or_insert(DurableError::images(FIND)(again));
            }
        });
        let newest = newest.map_err(DurableError::images(FIND))?;
        Ok(Self { image: newest.map(Arc::new), skipped, failure })
    }

    /// Finds the newest image like [`NewestImage::find`], but succeeds if the store does not
    /// answer.
    pub(crate) fn find_if_told(store: &Arc<dyn ImageStore>) -> Self {
        Self::find(store).unwrap_or_else(Self::unknown)
    }

    /// Result for a store known not to answer.
    pub(crate) fn unasked() -> Self {
        let silence = ImageError::new(
            ImageErrorKind::Unavailable,
            "get an answer from the image store in time",
        );
        Self::unknown(DurableError::images(FIND)(silence))
    }

    fn unknown(failure: DurableError) -> Self {
        Self { image: None, skipped: Vec::new(), failure: Some(failure) }
    }

    /// Fails if the images belong to another set.
    pub(crate) fn check_set(&self, id: SetId) -> Result<(), DurableError> {
        match self.set_id().filter(|other| *other != id) {
            Some(other) => Err(DurableError::other_set(id, other)),
            None => Ok(()),
        }
    }

    pub(crate) fn set_id(&self) -> Option<SetId> {
        self.image.as_ref().map(|image| image.summary().set_id)
    }

    /// Returns the position up to which the image covers the journal.
    pub(crate) fn covered(&self) -> Position {
        self.image.as_deref().map_or(Position::START, covered_by)
    }

    /// Checks that this is the image named by the owner.
    pub(crate) fn check_accepted(&self, accepted: AcceptedImage) -> Result<(), DurableError> {
        if self.image.as_ref().map_or(0, |image| image.id().number()) == accepted.0 {
            return Ok(());
        }
        let (accepted, newest) = (accepted.0, self.name());
        let attempt =
            format!("restore from image {accepted}: the newest that can be read is {newest}");
        Err(DurableError::new(DurableErrorKind::NotNewest, attempt))
    }

    /// Returns the number of the newest image in the store, readable or not, or 0.
    pub(crate) fn number_max(&self) -> u32 {
        let readable = self.image.as_ref().map_or(0, |image| image.id().number());
        self.skipped.iter().map(|(number, _)| *number).fold(readable, u32::max)
    }

    /// Fails if acknowledged durable data may be only in an unreadable image.
    pub(crate) fn check_nothing_is_missing(
        &self,
        journal: &dyn Folder,
        key: Option<&SetKey>,
        set_id: Option<SetId>,
    ) -> Result<(), DurableError> {
        let Some((number, why)) = self.skipped.first() else { return Ok(()) };
        let attempt = format!(
            "restore the pool from {}, because image {number} cannot be read ({why})",
            self.name()
        );
        let missing = || DurableError::new(DurableErrorKind::NewestUnreadable, attempt.clone());
        let (Some(set_id), Some(image)) = (set_id, &self.image) else { return Err(missing()) };
        if image.volumes().iter().any(|volume| volume.durability == Durability::Image) {
            return Err(missing());
        }
        let mut classes = Classes::default();
        match journal::recover(journal, key, set_id, self.covered(), &mut classes) {
            Ok(_) if !classes.has_image => Ok(()),
            Ok(_) => Err(missing()),
            Err(error) => Err(DurableError { source: Some(error.into()), ..missing() }),
        }
    }

    /// Returns whether the image has exactly the volumes and snapshots that an image saved now
    /// would have, with the same names, sizes and classes.
    pub(crate) fn lists_all_of(&self, engine: &Engine) -> bool {
        let Some(image) = &self.image else { return false };
        let listed = |id, name: &str, size_bytes, class| (id, (name.to_owned(), size_bytes, class));
        let durable = engine.volumes().into_iter().filter(|it| it.durability() != Durability::Ram);
        let durable: Vec<_> =
            durable.flat_map(|it| [vec![it.clone()], engine.snapshots_of(&it)].concat()).collect();
        let now: BTreeMap<_, _> = durable
            .iter()
            .map(|it| listed(it.id(), &it.name(), it.map().settled_size_bytes(), it.durability()))
            .collect();
        let is_durable = |record: &ImageVolume| match record.kind {
            ImageVolumeKind::Volume => record.durability != Durability::Ram,
            // Snapshots of volumes of class `ram` that were saved on request do not make the image
            // outdated.
            ImageVolumeKind::Snapshot => now.contains_key(&record.origin),
        };
        let records = image.volumes().iter().filter(|record| is_durable(record));
        let saved: BTreeMap<_, _> =
            records.map(|it| listed(it.id, &it.name, it.size_bytes, it.durability)).collect();
        saved == now
    }

    fn name(&self) -> String {
        match &self.image {
            Some(image) => image.id().to_string(),
            None => "no image".to_owned(),
        }
    }
}

/// Returns whether the journal has contents of the image's volumes written after it, or cannot be
/// read far enough to tell.
pub(crate) fn has_contents_after(
    image: &OpenImage,
    journal: &dyn Folder,
    key: Option<&SetKey>,
) -> bool {
    let set_id = image.summary().set_id;
    let volume_ids = image.volumes().iter().map(|record| record.id).collect();
    let mut contents = Contents { volume_ids };
    journal::recover(journal, key, set_id, covered_by(image), &mut contents).is_err()
}

/// Searches a journal for contents of given volumes and stops at the first.
#[derive(Debug)]
struct Contents {
    volume_ids: BTreeSet<u64>,
}

impl Replay for Contents {
    fn volumes(&mut self, _table: &[VolumeRecord]) -> Result<(), Refusal> {
        Ok(())
    }

    fn blocks(&mut self, volume_id: u64, _block: u64, _change: Change<'_>) -> Result<(), Refusal> {
        match self.volume_ids.contains(&volume_id) {
            true => Err("it has contents of the volume".into()),
            false => Ok(()),
        }
    }
}

/// Searches a journal for volumes whose contents are only in images.
#[derive(Debug, Default)]
struct Classes {
    has_image: bool,
}

impl Replay for Classes {
    fn volumes(&mut self, table: &[VolumeRecord]) -> Result<(), Refusal> {
        let is_of_image = |record: &VolumeRecord| {
            let is_saved = record.durability() == Some(Durability::Image) || record.is_unanchored();
            record.kind == RecordKind::Volume && is_saved
        };
        self.has_image |= table.iter().any(is_of_image);
        Ok(())
    }

    fn blocks(&mut self, _volume_id: u64, _block: u64, _change: Change<'_>) -> Result<(), Refusal> {
        Ok(())
    }
}
