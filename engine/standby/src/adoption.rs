//! Adoption of an image: volumes and snapshots take on its names, sizes, classes and ids.
//!
//! A snapshot never changes. A new one is created while its volume holds the snapshot's contents,
//! so that the two share equal blocks.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use image::{
    ChangedParts, Held, ImageId, ImageStore, ImageVolume, ImageVolumeKind, KeptMaps, OpenImage,
    Refill,
};
use volumes::{CapacityClass, Engine, ImageBase, ShrinkPolicy, Volume, VolumeError, VolumeSpec};

use crate::error::StandbyError;

/// Images whose contents the pool's volumes hold, with cached maps.
#[derive(Debug, Default)]
pub(crate) struct Bases {
    images: HashMap<ImageId, Arc<OpenImage>>,
    maps: KeptMaps,
    saved: SavedIn,
}

/// Images in which a former writer has saved its volumes and snapshots last. Blocks that it changed
/// later are marked as unsaved.
#[derive(Debug, Default)]
pub(crate) struct SavedIn(HashMap<MapKey, ImageBase>);

/// Id of a volume or snapshot, and true for a snapshot.
type MapKey = (u64, bool);

impl SavedIn {
    /// Removes the base images of all volumes and snapshots from the pool. After a kill from here
    /// on, everything is fetched.
    pub(crate) fn take(engine: &Engine) -> Self {
        let mut saved = HashMap::new();
        for volume in engine.volumes().into_iter().chain(engine.snapshots()) {
            saved.extend(volume.map().image_base().map(|base| (key_of(&volume), base)));
            volume.map().set_image_base(None);
        }
        Self(saved)
    }
}

fn key_of(volume: &Volume) -> MapKey {
    (volume.id(), volume.is_snapshot())
}

impl Bases {
    /// Creates the bases of a pool whose maps have none.
    pub(crate) fn of_former_writer(saved: SavedIn) -> Self {
        Self { saved, ..Self::default() }
    }

    /// Records that all volumes hold this image.
    fn settle(&mut self, image: &Arc<OpenImage>) {
        self.images = HashMap::from([(image.id(), Arc::clone(image))]);
        self.maps.retain(&[image]);
        self.saved = SavedIn::default();
    }
}

/// Updates all volumes of the pool to the image. Missing contents are absent afterwards, in the
/// parts that are added to `changed`. After a failure or kill it can be repeated, for this image or
/// another.
pub(crate) fn adopt(
    engine: &Arc<Engine>,
    store: &Arc<dyn ImageStore>,
    image: &Arc<OpenImage>,
    (bases, changed): (&mut Bases, &mut ChangedParts),
) -> Result<(), StandbyError> {
    let attempt = format!("bring the pool to {}", image.id());
    let fail = StandbyError::volume(&attempt);
    delete_others(engine, image).map_err(&fail)?;
    rename_aside(engine, image).map_err(&fail)?;
    find_bases(engine, store, bases);
    let Bases { images, maps, saved } = bases;
    let refill = Refill { image, maps, changed };
    let mut adoption = Adoption { engine, images, saved, refill };
    for (index, record) in image.volumes().iter().enumerate() {
        if record.kind == ImageVolumeKind::Volume {
            adoption.volume(index).map_err(|error| match error {
                Failure::Volume(error) => fail(error),
                Failure::Image(error) => StandbyError::image(&attempt)(error),
            })?;
        }
    }
    bases.settle(image);
    Ok(())
}

#[derive(Debug, thiserror::Error)]
#[error(transparent)]
enum Failure {
    Volume(#[from] VolumeError),
    Image(#[from] image::ImageError),
}

/// Finds the record of an id and kind in an image.
fn find(image: &OpenImage, id: u64, kind: ImageVolumeKind) -> Option<&ImageVolume> {
    image.volumes().iter().find(|record| record.id == id && record.kind == kind)
}

/// Deletes volumes and snapshots that are not in the image.
fn delete_others(engine: &Engine, image: &OpenImage) -> Result<(), VolumeError> {
    let kept: HashSet<(u64, bool)> = image
        .volumes()
        .iter()
        .map(|record| (record.id, record.kind == ImageVolumeKind::Snapshot))
        .collect();
    for volume in engine.volumes() {
        let is_there = kept.contains(&(volume.id(), false));
        for snapshot in engine.snapshots_of(&volume) {
            if !is_there || !kept.contains(&(snapshot.id(), true)) {
                engine.delete_snapshot(&volume.name(), &snapshot.snapshot_name())?;
            }
        }
        if !is_there {
            engine.delete_volume(&volume.name())?;
        }
    }
    Ok(())
}

/// Frees names that the image gives to other volumes, because two may have swapped names.
fn rename_aside(engine: &Engine, image: &OpenImage) -> Result<(), VolumeError> {
    for volume in engine.volumes() {
        let record = find(image, volume.id(), ImageVolumeKind::Volume);
        if record.is_some_and(|record| record.name != volume.name()) {
            let aside = format!("following-{}", volume.id()).parse()?;
            engine.rename_volume(&volume.name(), aside)?;
        }
        for snapshot in engine.snapshots_of(&volume) {
            let record = find(image, snapshot.id(), ImageVolumeKind::Snapshot);
            if record.is_some_and(|record| own_name(record) != snapshot.snapshot_name()) {
                let aside = format!("following-{}", snapshot.id()).parse()?;
                engine.rename_snapshot(&volume.name(), &snapshot.snapshot_name(), &aside)?;
            }
        }
    }
    Ok(())
}

/// Opens base images of volumes that are not yet open, as after a start. Volumes whose base is gone
/// from the store are fetched completely.
fn find_bases(engine: &Engine, store: &Arc<dyn ImageStore>, bases: &mut Bases) {
    let all = engine.volumes().into_iter().chain(engine.snapshots());
    let saved = bases.saved.0.values().filter_map(|base| ImageId::from_word(base.image));
    let ids: HashSet<ImageId> = all.filter_map(|volume| base_of(&volume)).chain(saved).collect();
    for id in ids {
        if bases.images.contains_key(&id) {
            continue;
        }
        let opened = OpenImage::open(Arc::clone(store), id.number());
        if let Some(image) = opened.ok().filter(|image| image.id() == id) {
            bases.images.insert(id, Arc::new(image));
        }
    }
}

fn base_of(volume: &Volume) -> Option<ImageId> {
    ImageId::from_word(volume.map().image_base()?.image)
}

fn own_name(snapshot: &ImageVolume) -> &str {
    snapshot.name.rsplit_once('@').map_or("", |(_, own_name)| own_name)
}

struct Adoption<'it> {
    engine: &'it Arc<Engine>,
    images: &'it HashMap<ImageId, Arc<OpenImage>>,
    saved: &'it SavedIn,
    refill: Refill<'it>,
}

impl<'it> Adoption<'it> {
    /// Updates volume `index` and its snapshots to their states in the image.
    fn volume(&mut self, index: usize) -> Result<(), Failure> {
        let image = self.refill.image;
        let record = &image.volumes()[index];
        let volume = self.find_or_make(index)?;
        let known = self.engine.snapshots_of(&volume);
        for state in snapshots_of(image, record) {
            let of_state = &image.volumes()[state];
            match known.iter().find(|snapshot| snapshot.id() == of_state.id) {
                Some(snapshot) => self.known_snapshot(state, &volume, snapshot)?,
                None => self.new_snapshot(state, &volume)?,
            }
        }
        self.contents(index, &volume)?;
        let name = volume.name();
        if volume.durability() != record.durability {
            self.engine.set_durability(&name, record.durability)?;
        }
        self.engine.set_mirror(&name, record.mirror)?;
        if volume.reduction() != record.reduction {
            self.engine.set_reduction(&name, record.reduction)?;
        }
        Ok(())
    }

    /// Finds or creates a volume. Volumes are thin while they follow, because nothing is written to
    /// them.
    fn find_or_make(&self, index: usize) -> Result<Arc<Volume>, Failure> {
        let record = &self.refill.image.volumes()[index];
        let is_it = |volume: &Arc<Volume>| volume.id() == record.id;
        if let Some(volume) = self.engine.volumes().into_iter().find(is_it) {
            if volume.name() != record.name {
                self.engine.rename_volume(&volume.name(), record.name.parse()?)?;
            }
            return Ok(volume);
        }
        let spec = VolumeSpec { capacity: CapacityClass::Thin, ..record.spec()? };
        let volume = self.engine.begin_filling(spec, Some(record.id))?;
        self.engine.end_filling(&volume).inspect_err(|_| self.engine.abandon_filling(&volume))?;
        Ok(volume)
    }

    /// Gives the volume the size and contents of one of its states.
    fn contents(&mut self, state: usize, volume: &Arc<Volume>) -> Result<(), Failure> {
        let held = match self.base(volume) {
            Some((image, index)) => Held::Other(image, index),
            None => self.saved_state(volume),
        };
        let size_bytes = self.refill.image.volumes()[state].size_bytes;
        if volume.map().settled_size_bytes() != size_bytes {
            let shrink = ShrinkPolicy::DropData;
            self.engine.resize_volume(&volume.name(), size_bytes, shrink)?;
        }
        Ok(self.refill.refill(state, volume.map(), held)?)
    }

    fn new_snapshot(&mut self, state: usize, volume: &Arc<Volume>) -> Result<(), Failure> {
        self.contents(state, volume)?;
        let record = &self.refill.image.volumes()[state];
        let name = own_name(record).parse()?;
        let (made, id) = (record.created_seconds, record.id);
        self.engine.create_snapshot_again(&volume.name(), &name, made, id)?;
        let snapshot = self.engine.snapshot(&volume.name(), name.as_str())?;
        snapshot.map().set_image_base(volume.map().image_base());
        Ok(())
    }

    /// Updates a snapshot. Its contents never change, but the image may refer to them by other page
    /// numbers.
    fn known_snapshot(
        &mut self,
        state: usize,
        volume: &Arc<Volume>,
        snapshot: &Arc<Volume>,
    ) -> Result<(), Failure> {
        let name = own_name(&self.refill.image.volumes()[state]).parse()?;
        let held = match snapshot.map().image_base() {
            Some(_) => Held::Same(self.base(snapshot)),
            None => self.saved_state(snapshot),
        };
        self.refill.refill(state, snapshot.map(), held)?;
        if snapshot.snapshot_name() != own_name(&self.refill.image.volumes()[state]) {
            self.engine.rename_snapshot(&volume.name(), &snapshot.snapshot_name(), &name)?;
        }
        Ok(())
    }

    /// Returns the saved state of a map of a former writer. The contents of other maps without a
    /// base are unknown.
    fn saved_state(&self, volume: &Volume) -> Held<'it> {
        let found = || {
            let base = self.saved.0.get(&key_of(volume))?;
            let image = &**self.images.get(&ImageId::from_word(base.image)?)?;
            let index = image.volumes().iter().position(|it| it.id == base.volume_id)?;
            Some(Held::Saved(image, index))
        };
        match volume.map().image_base() {
            None => found().unwrap_or(Held::Unknown),
            // An image that is no longer in the store.
            Some(_) => Held::Unknown,
        }
    }

    /// Returns the volume of an image whose contents a map holds. If the size differs, a resize was
    /// interrupted by a kill.
    fn base(&self, volume: &Volume) -> Option<(&'it OpenImage, usize)> {
        let base = volume.map().image_base()?;
        let image = &**self.images.get(&ImageId::from_word(base.image)?)?;
        let size_bytes = volume.map().settled_size_bytes();
        let is_it =
            |record: &ImageVolume| record.id == base.volume_id && record.size_bytes == size_bytes;
        Some((image, image.volumes().iter().position(is_it)?))
    }
}

/// Returns the snapshots of a volume in an image, oldest first.
fn snapshots_of(image: &OpenImage, volume: &ImageVolume) -> Vec<usize> {
    let is_of_volume = |&other: &usize| {
        let other = &image.volumes()[other];
        other.kind == ImageVolumeKind::Snapshot && other.origin == volume.id
    };
    let mut states: Vec<usize> = (0..image.volumes().len()).filter(is_of_volume).collect();
    states.sort_by_key(|&state| image.volumes()[state].id);
    states
}
