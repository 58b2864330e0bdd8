//! Images: saved from a copy of one instant, kept, and looked at.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard};

use anyhow::{Context, bail};
use image::{
    ClaimedStore, CopiedVolume, EngineSource, ImageId, ImageVolume, ImageVolumeKind,
    JournalPosition, ListedImage, OpenImage, Retention, SaveOptions, Saved, Watch, list_images,
};
use journal::Position;
use volume::{Durability, Frozen, Volume};

use crate::durable::restore::{self, Wanted};
use crate::durable::state::{Durable, Newest, Speed};
use crate::events::unix_seconds;

/// Less than this tells nothing about the speed of the store.
const MEASURED_BYTES_MIN: u64 = 16 << 20;

/// The store, once it was claimed for writing.
#[derive(Debug, Default)]
pub(crate) struct Saver {
    claimed: Option<ClaimedStore>,
}

/// What is wanted of an image, beyond all volumes that are not of the class `ram`.
#[derive(Clone, Debug, Default)]
pub(crate) struct SaveWish {
    /// Volumes of the class `ram` to be saved too.
    pub(crate) also: Vec<String>,
    /// Empty for none. An image with a label is kept until it is deleted.
    pub(crate) label: String,
    /// Classes that volumes are about to have, by id: the image says so already.
    pub(crate) classes: BTreeMap<u64, Durability>,
}

/// An image that was saved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SavedImage {
    pub(crate) number: u64,
    pub(crate) bytes_written: u64,
    pub(crate) bytes_per_second: u64,
}

impl Durable {
    /// Saves an image of all volumes at one instant, cuts the journal, and deletes images that are
    /// not to be kept.
    pub(crate) fn save(&self, wish: &SaveWish, watch: &dyn Watch) -> anyhow::Result<SavedImage> {
        let saved = self.save_quietly(wish, watch);
        match &saved {
            Ok(image) => {
                self.known().failure = None;
                let written = api::ByteSize(image.bytes_written).rounded();
                let message = format!("image {} is saved; it took {written}", image.number);
                self.events.info("image_saved", None, message);
            }
            Err(error) => {
                let cause = format!("{error:#}");
                let message = format!("an image could not be saved: {cause}");
                self.events.error("image_failed", None, message);
                self.known().failure = Some(cause);
            }
        }
        saved
    }

    fn save_quietly(&self, wish: &SaveWish, watch: &dyn Watch) -> anyhow::Result<SavedImage> {
        let mut saver = self.saver();
        let claimed = saver.claim(self)?;
        let position = self.journal().map(|journal| journal.begin_checkpoint());
        let saved = self.save_from(claimed, wish, (position, watch));
        if let (Err(_), Some((journal, position))) = (&saved, self.journal().zip(position)) {
            journal.cancel_checkpoint(position);
        }
        let saved = saved?;
        if saved.bytes_written >= MEASURED_BYTES_MIN {
            self.note_speed(saved.bytes_a_second());
        }
        let in_use: Vec<ImageId> =
            self.engine.absent_image().and_then(ImageId::from_word).into_iter().collect();
        let newest_count = self.images_config.keep_count;
        if let Err(error) = claimed.retain(&Retention { newest_count, in_use: &in_use }) {
            let cause = format!("{:#}", anyhow::Error::from(error));
            let message = format!("old images could not be removed: {cause}");
            self.events.warning("image_retention_failed", None, message);
        }
        Ok(SavedImage {
            number: u64::from(saved.id.number()),
            bytes_written: saved.bytes_written,
            bytes_per_second: saved.bytes_a_second(),
        })
    }

    /// Saves, and settles what is in the image now.
    fn save_from(
        &self,
        claimed: &mut ClaimedStore,
        wish: &SaveWish,
        (position, watch): (Option<Position>, &dyn Watch),
    ) -> anyhow::Result<Saved> {
        // Wishes that come while this image is saved are for the next one.
        let was_wanted = std::mem::take(&mut self.known().is_wanted);
        let saved = self.save_copies(claimed, wish, (position, watch));
        if saved.is_err() {
            self.known().is_wanted |= was_wanted;
        }
        saved
    }

    fn save_copies(
        &self,
        claimed: &mut ClaimedStore,
        wish: &SaveWish,
        (position, watch): (Option<Position>, &dyn Watch),
    ) -> anyhow::Result<Saved> {
        let table_version = self.engine.table_version();
        let (live, frozen) = self.freeze(wish)?;
        let source = self.source(&live, &frozen, wish);
        let options = SaveOptions {
            set_id: self.set_id,
            created_seconds: unix_seconds(),
            journal: JournalPosition { epoch: 0, sequence: position.unwrap_or(Position::START).0 },
            label: wish.label.clone(),
            bytes_a_second_max: None,
        };
        let saved = claimed.save(&source, &options, watch)?;
        for (index, (live, copy)) in live.iter().zip(frozen.volumes()).enumerate() {
            source.note_saved(index, live, saved.id);
            // What became of class `journal` meanwhile is in the image as another.
            if copy.durability() == Durability::Journal {
                live.set_anchored(true);
            }
        }
        let mut known = self.known();
        known.newest = Some(Newest {
            id: saved.id,
            saved_unix_seconds: options.created_seconds,
            position: position.unwrap_or(Position::START),
        });
        known.table_version = table_version;
        drop(known);
        if let Some((journal, position)) = self.journal().zip(position) {
            journal.end_checkpoint(position).context("the journal could not be cut")?;
        }
        Ok(saved)
    }

    /// What is to be saved, and copies of it that are all of one instant.
    fn freeze(&self, wish: &SaveWish) -> anyhow::Result<(Vec<Arc<Volume>>, Frozen)> {
        let mut live = self.engine.volumes();
        live.retain(|volume| {
            volume.durability() != Durability::Ram || wish.also.contains(&volume.name())
        });
        let snapshots: Vec<_> = live.iter().flat_map(|volume| volume.snapshot_list()).collect();
        live.extend(snapshots);
        let frozen = self.engine.freeze(&live)?;
        Ok((live, frozen))
    }

    fn source(&self, live: &[Arc<Volume>], frozen: &Frozen, wish: &SaveWish) -> EngineSource {
        let copied = |(live, copy): (&Arc<Volume>, &Arc<Volume>)| CopiedVolume {
            record: record_of(live, copy, wish),
            copy: Arc::clone(copy),
        };
        let volumes = live.iter().zip(frozen.volumes()).map(copied).collect();
        EngineSource::new(volumes, self.engine.absent_image())
    }

    /// An image is saved as soon as possible.
    pub(crate) fn want_image(&self) {
        self.known().is_wanted = true;
    }

    /// Makes volumes of an image, by their indexes there and under these names. Their contents are
    /// fetched as they are touched, and by [`Durable::fetch_absent`].
    pub(crate) fn restore(
        &self,
        image: &Arc<OpenImage>,
        wanted: &[(usize, String)],
    ) -> anyhow::Result<Vec<Arc<Volume>>> {
        let wanted: Vec<Wanted> = wanted
            .iter()
            .map(|(index, name)| {
                let name = name.parse()?;
                Ok(Wanted { index: *index, name, id: None, is_anchored: false })
            })
            .collect::<anyhow::Result<_>>()?;
        let is_journaled =
            |wanted: &Wanted| image.volumes()[wanted.index].durability == Durability::Journal;
        if wanted.iter().any(is_journaled) {
            self.ready_journal()?;
        }
        let _filling = self.filling.lock().expect("nobody panics with this lock");
        if let Some(number) = self.fetching() {
            bail!("the contents of image {number} are still being fetched");
        }
        let volumes = restore::fill(&self.engine, image, &wanted)?;
        // The newest image is what a loss of power leaves.
        if volumes.iter().any(|volume| volume.durability() != Durability::Ram) {
            self.want_image();
        }
        Ok(volumes)
    }

    /// All images in the store, the oldest first.
    pub(crate) fn list_images(&self) -> anyhow::Result<Vec<ListedImage>> {
        Ok(list_images(&self.store)?)
    }

    pub(crate) fn open_image(&self, number: u64) -> anyhow::Result<OpenImage> {
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        Ok(OpenImage::open(Arc::clone(&self.store), number)?)
    }

    pub(crate) fn delete_image(&self, number: u64) -> anyhow::Result<()> {
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        let mut saver = self.saver();
        let claimed = saver.claim(self)?;
        let in_use: Vec<ImageId> =
            self.engine.absent_image().and_then(ImageId::from_word).into_iter().collect();
        claimed.delete(number, &in_use)?;
        claimed.collect()?;
        let newest = self.list_images()?.into_iter().rev().find_map(|listed| match listed {
            ListedImage::Whole(summary) => Some(summary),
            ListedImage::Unreadable { .. } => None,
        });
        self.known().newest = newest.map(|summary| Newest {
            id: summary.id,
            saved_unix_seconds: summary.created_seconds,
            position: Position(summary.journal.sequence.max(Position::START.0)),
        });
        Ok(())
    }

    /// Measures how fast the store takes an image.
    pub(crate) fn rehearse(&self, watch: &dyn Watch) -> anyhow::Result<SavedImage> {
        let _saver = self.saver();
        let rehearsed = image::rehearse(&*self.store, fresh_writer()?, watch)?;
        let bytes_per_second = rehearsed.bytes_a_second();
        self.note_speed(bytes_per_second);
        Ok(SavedImage { number: 0, bytes_written: rehearsed.bytes_written, bytes_per_second })
    }

    fn note_speed(&self, bytes_per_second: u64) {
        self.known().speed =
            Some(Speed { bytes_per_second, measured_unix_seconds: unix_seconds() });
    }

    fn saver(&self) -> MutexGuard<'_, Saver> {
        self.saver.lock().expect("nobody panics with this lock")
    }
}

impl Saver {
    /// The store for writing: nobody else can save to it from now on.
    fn claim(&mut self, durable: &Durable) -> anyhow::Result<&mut ClaimedStore> {
        if self.claimed.is_none() {
            let claimed = ClaimedStore::claim(Arc::clone(&durable.store), fresh_writer()?)?;
            self.claimed = Some(claimed);
        }
        Ok(self.claimed.as_mut().expect("it was just claimed"))
    }
}

/// What the image says of a volume. Its class may be about to change.
fn record_of(live: &Volume, copy: &Volume, wish: &SaveWish) -> ImageVolume {
    let class = wish.classes.get(&live.id()).copied();
    ImageVolume {
        name: live.name(),
        id: live.id(),
        origin: live.origin_id().unwrap_or(0),
        created_seconds: live.created_unix_seconds(),
        durability: class.unwrap_or_else(|| copy.durability()),
        capacity: live.capacity_class(),
        kind: match live.is_snapshot() {
            true => ImageVolumeKind::Snapshot,
            false => ImageVolumeKind::Volume,
        },
        ..ImageVolume::of(copy)
    }
}

fn fresh_writer() -> anyhow::Result<u128> {
    let mut writer = [0; 16];
    getrandom::fill(&mut writer).context("cannot draw a name for what is written")?;
    Ok(u128::from_le_bytes(writer))
}
