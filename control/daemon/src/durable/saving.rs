//! Images: saving, retention, restoring, inspection, and their events.

use std::sync::Arc;

use anyhow::Context;
use block_device::BLOCK_BYTES;
use durable_set::{DurableError, SaveExtent, SaveRequest, Unfetched};
use image::{BlockRun, ListedImage, OpenImage, Watch, list_images};
use volumes::{Durability, GivenUp, Volume};

use crate::durable::encryption::Encryption;
use crate::durable::state::{Durable, Newest, causes, place_of, random_id, tell_missing};
use crate::durable::status::tell_unfetched;
use crate::error_text;
use crate::events::unix_seconds;

/// Result of a saved image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SavedImage {
    pub(crate) number: u64,
    /// Number of volumes and snapshots in it.
    pub(crate) volume_count: u64,
    pub(crate) bytes_written: u64,
    pub(crate) bytes_per_second: u64,
}

impl Durable {
    /// Saves an image of all volumes that are not of class `ram`, and of `also`, at one instant.
    /// Deletes images beyond the number to keep.
    pub(crate) fn save(
        &self,
        also: &[String],
        label: &str,
        watch: &dyn Watch,
    ) -> anyhow::Result<SavedImage> {
        let request = SaveRequest {
            extent: match also {
                [] => SaveExtent::Durable,
                names => SaveExtent::And(names.to_vec()),
            },
            created_seconds: unix_seconds(),
            label: label.to_owned(),
            bytes_a_second_max: None,
        };
        // Requests that arrive during this save are for the next image.
        let was_wanted = std::mem::take(&mut self.known().is_wanted);
        let table_version = self.engine.table_version();
        let saved = match self.set.save(&request, watch) {
            Ok(saved) => saved,
            Err(error) => {
                let error = anyhow::Error::from(error);
                self.known().is_wanted |= was_wanted;
                return Err(self.tell_failure(error));
            }
        };
        let written = api::ByteSize(saved.bytes_written).rounded();
        let message = format!("saved {}; {written} written", saved.id);
        self.events.info("image_saved", None, message);
        self.note_store_key();
        {
            let mut known = self.known();
            known.failure = None;
            let saved_at = request.created_seconds;
            known.newest = Some(Newest::as_of(saved.id.number(), saved_at, saved_at));
            known.table_version = Some(table_version);
            known.measured_unix_seconds = request.created_seconds;
        }
        self.retain();
        Ok(SavedImage {
            number: u64::from(saved.id.number()),
            volume_count: saved.volume_count,
            bytes_written: saved.bytes_written,
            bytes_per_second: saved.bytes_a_second(),
        })
    }

    fn tell_failure(&self, error: anyhow::Error) -> anyhow::Error {
        let cause = error_text::in_one_line(&error);
        let message = error_text::failed("cannot save an image", &cause);
        self.events.error("image_failed", None, message);
        self.known().failure = Some(cause);
        error
    }

    fn retain(&self) {
        if let Err(error) = self.set.retain(self.images_config.keep_count) {
            let cause = format!("{:#}", anyhow::Error::from(error));
            let message = format!("cannot delete old images: {cause}");
            self.events.warning("image_retention_failed", None, message);
        }
        if let Err(error) = self.set.remove_shipped() {
            let cause = causes(&error);
            let message = format!("cannot delete the shipped journal before the image: {cause}");
            self.events.warning("image_retention_failed", None, message);
        }
    }

    /// Requests that an image is saved as soon as possible.
    pub(crate) fn want_image(&self) {
        self.known().is_wanted = true;
    }

    /// Restores volumes of an image. `names` has pairs of a name in the image and the name of the
    /// new volume. Contents are fetched when they are accessed, and by [`Durable::fetch_absent`].
    pub(crate) fn restore(&self, number: u64, names: &[(String, String)]) -> anyhow::Result<()> {
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        let restored = self.set.restore(number, names);
        let are_durable = |volumes: &Vec<Arc<Volume>>| {
            volumes.iter().any(|volume| volume.durability() != Durability::Ram)
        };
        // A power loss must leave the restored volumes, so the newest image must contain them.
        if restored.as_ref().map_or_else(DurableError::is_made, are_durable) {
            self.want_image();
        }
        Ok(restored.map(drop)?)
    }

    /// Fetches all absent blocks. Returns the number of bytes fetched from the store. Objects that
    /// cannot be fetched are reported once.
    pub(crate) fn fetch_absent(&self, watch: &dyn Watch) -> anyhow::Result<u64> {
        let streamed = self.set.stream(watch);
        let failure = streamed.as_ref().err().map(|error| causes(error));
        self.known().fetch_failure = failure.filter(|_| !watch.is_cancelled());
        let streamed = streamed?;
        self.tell_missing(&streamed.unfetched);
        if streamed.is_done && streamed.bytes_read > 0 {
            let message =
                "restore finished: all contents of the restored volumes are in memory".to_owned();
            self.events.info("image_fetched", None, message);
        }
        if streamed.unfetched.blocks > 0 {
            let bytes = api::ByteSize(streamed.unfetched.blocks * BLOCK_BYTES as u64).rounded();
            anyhow::bail!(
                "cannot fetch {bytes} of restored volumes; the daemon retries, and memlane status \
                 shows the cause"
            );
        }
        Ok(streamed.bytes_read)
    }

    fn tell_missing(&self, unfetched: &Unfetched) {
        let missing: Vec<_> = unfetched.objects.iter().map(|object| object.pack).collect();
        let before = std::mem::replace(&mut self.known().missing_packs, missing.clone());
        let place = place_of(&self.images_config.store);
        for object in unfetched.objects.iter().filter(|object| !before.contains(&object.pack)) {
            self.events.error("image_object_missing", None, tell_unfetched(object, &place));
        }
        if missing.is_empty() && !before.is_empty() {
            let message =
                format!("the objects that were missing in {place} are back or no longer needed");
            self.events.info("image_objects_back", None, message);
        }
    }

    /// Gives up blocks of a volume that cannot be fetched because their objects are missing or
    /// damaged.
    pub(crate) fn accept_loss(&self, name: &str) -> anyhow::Result<GivenUp> {
        let given_up = self.set.accept_loss(name)?;
        if given_up.lost > 0 {
            let bytes = api::ByteSize(given_up.lost * BLOCK_BYTES as u64).rounded();
            let message = format!(
                "loss accepted: {bytes} of volume {name} are lost; reads of them fail until \
                 they are overwritten"
            );
            self.events.error("loss_accepted", Some(name), message);
        }
        Ok(given_up)
    }

    /// Looks up the key that wraps the store's newest data key. The store is accessed without the
    /// lock on `Known`.
    pub(super) fn note_store_key(&self) {
        let found = self.encryption.as_ref().and_then(Encryption::find_in_store);
        self.known().store_key = found;
    }

    /// Compares the pool with a store that could not be listed at the start. Missing contents are
    /// saved in a new image.
    pub(crate) fn look_at_images(&self) {
        let looked = self.set.look_at_images();
        let mut known = self.known();
        known.look_failure = looked.as_ref().err().map(|error| causes(error));
        let Ok(looked) = looked else { return };
        known.is_wanted |= !looked.missing.is_empty();
        if known.newest.is_none() {
            known.newest = looked.newest.as_ref().map(Newest::of);
            known.table_version = looked.newest_is_current.then(|| self.engine.table_version());
        }
        drop(known);
        self.note_store_key();
        let place = place_of(&self.images_config.store);
        tell_missing(&self.events, &looked.missing, &self.journal_config.dir, &place);
        let message = format!("the image store {place} responds again");
        self.events.info("image_store_back", None, message);
    }

    /// Lists all images in the store, the oldest first.
    pub(crate) fn list_images(&self) -> anyhow::Result<Vec<ListedImage>> {
        Ok(list_images(self.set.images())?)
    }

    pub(crate) fn open_image(&self, number: u64) -> anyhow::Result<OpenImage> {
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        Ok(OpenImage::open(Arc::clone(self.set.images()), number)?)
    }

    pub(crate) fn delete_image(&self, number: u64) -> anyhow::Result<()> {
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        self.set.delete_image(number)?;
        let newest = OpenImage::open_newest(Arc::clone(self.set.images()), &mut |_, _| {});
        let newest = newest.context("cannot find the newest image")?;
        self.known().newest = newest.map(|image| Newest::of(&image.summary()));
        self.note_store_key();
        Ok(())
    }

    /// Measures the throughput at which the store accepts an image.
    pub(crate) fn rehearse(&self, watch: &dyn Watch) -> anyhow::Result<SavedImage> {
        let writer = u128::from_le_bytes(random_id()?);
        let rehearsed = self.set.rehearse(writer, watch).context("cannot rehearse")?;
        self.known().measured_unix_seconds = unix_seconds();
        let bytes_per_second = rehearsed.bytes_a_second();
        let bytes_written = rehearsed.bytes_written;
        Ok(SavedImage { number: 0, volume_count: 0, bytes_written, bytes_per_second })
    }
}

/// Formats ranges of blocks for messages.
pub(crate) fn name_runs(runs: &[BlockRun]) -> String {
    let name = |run: &BlockRun| {
        let last = run.first_block + run.block_count - 1;
        format!("{} blocks {} to {last}", run.volume, run.first_block)
    };
    runs.iter().map(name).collect::<Vec<_>>().join(", ")
}
