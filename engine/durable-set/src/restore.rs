//! Filling an empty pool from stable storage: the maps of the image at once, its contents when they
//! are first read, and then the journal that follows the image.

use std::sync::Arc;

use image::{ImageError, ImageVolume, ImageVolumeKind, LEAF_BLOCKS, OpenImage};
use journal::{JournalError, Position, Recovered};
use sealing::SetKey;
use storage::Folder;
use volumes::{
    CapacityClass, Durability, Engine, FilledBlock, PageSource, SetId, ShrinkPolicy, Volume,
    VolumeError, VolumeErrorKind, VolumeSpec,
};

use crate::error::{DurableError, causes};
use crate::newest::covered_by;
use crate::reliance::lose_anchors;
use crate::replay::{EngineReplay, Replayed, delete_with_snapshots};
use crate::shipped::ShippedJournal;

/// Contents that were read.
#[derive(Debug)]
pub(crate) struct Restored {
    pub(crate) journal: Recovered,
    /// Volumes that could not be guaranteed again, and why: they are thin.
    pub(crate) guarantees_lost: Vec<(String, VolumeError)>,
    /// Volumes that are in no image, and not as a whole in the journal.
    pub(crate) left_out: Vec<String>,
    /// Why the journal could not be read to its end, if that was accepted.
    pub(crate) journal_failure: Option<JournalError>,
    /// Transactions of the journal in the store of images.
    pub(crate) shipped_transactions: u64,
    /// Where they end although more was shipped.
    pub(crate) shipped_gap: Option<String>,
}

/// Acceptance of what is missing in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gaps {
    Refused,
    Accepted,
}

/// Contents of a set that stable storage has.
#[derive(Debug)]
pub(crate) struct Stored<'it> {
    pub(crate) set_id: SetId,
    pub(crate) image: Option<&'it Arc<OpenImage>>,
    pub(crate) journal: &'it dyn Folder,
    pub(crate) key: Option<&'it SetKey>,
    /// The journal in the store of images, if that is to come before what is on the disk.
    pub(crate) shipped: Option<&'it ShippedJournal>,
    pub(crate) gaps: Gaps,
}

/// Fills the pool. A kill in between leaves it marked, to be begun again.
pub(crate) fn restore(engine: &Arc<Engine>, stored: &Stored<'_>) -> Result<Restored, DurableError> {
    engine.begin_restoring();
    engine.join_set(stored.set_id);
    let mut guarantees_lost = Vec::new();
    if let Some(image) = stored.image {
        let pages: Arc<dyn PageSource> = Arc::<OpenImage>::clone(image);
        engine.set_page_source(Some((image.id().word(), pages)));
        for (index, record) in image.volumes().iter().enumerate() {
            if record.kind == ImageVolumeKind::Volume {
                restore_as_it_fits(engine, image, index, &mut guarantees_lost)?;
            }
        }
    }
    let shipped = replay_shipped(engine, stored)?;
    let from = stored.image.map_or(Position::START, |image| covered_by(image));
    let mut replay = EngineReplay::new(engine);
    let recovered = journal::recover(stored.journal, stored.key, stored.set_id, from, &mut replay);
    let (journal, journal_failure) = match (recovered, stored.gaps) {
        (Ok(journal), _) => (journal, None),
        // What was replayed is of one instant.
        (Err(error), Gaps::Accepted) => (Recovered::default(), Some(error)),
        (Err(error), Gaps::Refused) => {
            return Err(DurableError::journal("read the journal")(error));
        }
    };
    replay.settle();
    if journal_failure.is_some() {
        // What comes next cannot be read after it: an image has to have all first.
        let attempt = "set the journal aside, which cannot be read";
        journal::set_aside(stored.journal).map_err(DurableError::journal(attempt))?;
        lose_anchors(engine);
    }
    guarantees_lost.extend(replay.guarantee());
    let mut restored = Restored {
        journal,
        guarantees_lost: Vec::new(),
        left_out: replay.into_left_out(),
        journal_failure,
        shipped_transactions: 0,
        shipped_gap: None,
    };
    if let Some(shipped) = shipped {
        // No journal here has any of it: flushes wait for an image.
        lose_anchors(engine);
        guarantees_lost.extend(shipped.add_to(&mut restored));
    }
    restored.guarantees_lost = still_thin(engine, guarantees_lost);
    engine.end_restoring();
    Ok(restored)
}

/// Result of a replay of what was shipped, where that is to be, and the gap that it ends at.
#[derive(Debug)]
struct FromStore {
    replayed: Result<Replayed, JournalError>,
    gap: Option<String>,
}

fn replay_shipped(
    engine: &Arc<Engine>,
    stored: &Stored<'_>,
) -> Result<Option<FromStore>, DurableError> {
    let (Some(shipped), Some(image)) = (stored.shipped, stored.image) else { return Ok(None) };
    let replayed = shipped.replay(engine, stored.key, image);
    if stored.gaps == Gaps::Refused
        && let Err(error) = replayed
    {
        return Err(DurableError::journal("replay the journal in the image store")(error));
    }
    let gap = shipped.gap.as_ref().map(|gap| gap.what.clone());
    Ok(Some(FromStore { replayed, gap }))
}

impl FromStore {
    /// Returns the volumes that could not be guaranteed.
    fn add_to(self, restored: &mut Restored) -> Vec<(u64, VolumeError)> {
        match self.replayed {
            Ok(replayed) => {
                restored.shipped_transactions = replayed.transactions;
                restored.journal.damaged_blocks += replayed.damaged_blocks;
                restored.left_out.extend(replayed.left_out);
                let ended_early = replayed.ended_early.map(|error| causes(&error));
                restored.shipped_gap = ended_early.or(self.gap);
                replayed.guarantees_lost
            }
            // It was accepted.
            Err(error) => {
                restored.journal_failure.get_or_insert(error);
                Vec::new()
            }
        }
    }
}

/// The names of volumes, by id, that are not guaranteed: others became so again, or are gone.
fn still_thin(engine: &Engine, mut lost: Vec<(u64, VolumeError)>) -> Vec<(String, VolumeError)> {
    let mut thin = Vec::new();
    for volume in engine.volumes() {
        let place = lost.iter().rposition(|(id, _)| *id == volume.id());
        if let Some(place) = place
            && volume.capacity_class() == CapacityClass::Thin
        {
            thin.push((volume.name(), lost.swap_remove(place).1));
        }
    }
    thin
}

/// Makes a volume of the image with the class that it had. What cannot be guaranteed here comes
/// back thin: what it holds counts for more.
fn restore_as_it_fits(
    engine: &Arc<Engine>,
    image: &OpenImage,
    index: usize,
    guarantees_lost: &mut Vec<(u64, VolumeError)>,
) -> Result<(), DurableError> {
    let record = &image.volumes()[index];
    if record.capacity == CapacityClass::Guaranteed {
        match restore_volume(engine, image, index, record.capacity) {
            Err(RestoreError::Volume(error)) if error.kind == VolumeErrorKind::NoSpace => {
                if let Ok(volume) = engine.volume(&record.name) {
                    let attempt = format!("restore the volume {:?} anew", record.name);
                    delete_with_snapshots(engine, &volume)
                        .map_err(DurableError::volume(&attempt))?;
                }
                guarantees_lost.push((record.id, error));
            }
            restored => return restored.map_err(|error| error.of(record, image)),
        }
    }
    let restored = restore_volume(engine, image, index, CapacityClass::Thin);
    restored.map_err(|error| error.of(record, image))
}

/// Why a volume does not come back.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
enum RestoreError {
    Volume(#[from] VolumeError),
    Image(#[from] ImageError),
}

impl RestoreError {
    fn of(self, record: &ImageVolume, image: &OpenImage) -> DurableError {
        let attempt = format!("restore the volume {:?} from {}", record.name, image.id());
        match self {
            Self::Volume(error) => DurableError::volume(&attempt)(error),
            Self::Image(error) => DurableError::images(&attempt)(error),
        }
    }
}

/// Makes one volume of the image and its snapshots, with all blocks absent: from the oldest
/// snapshot on, each state a change of the one before, so that they share what is equal. What a
/// guaranteed one may come to need is claimed before anything is in it.
fn restore_volume(
    engine: &Arc<Engine>,
    image: &OpenImage,
    index: usize,
    capacity: CapacityClass,
) -> Result<(), RestoreError> {
    let record = &image.volumes()[index];
    let states = states_of(image, index);
    let size_bytes = image.volumes()[states[0]].size_bytes;
    let spec = VolumeSpec { size_bytes, capacity, ..record.spec()? };
    let volume = engine.begin_filling(spec, Some(record.id))?;
    engine.end_filling(&volume).inspect_err(|_| engine.abandon_filling(&volume))?;
    for state in states {
        let of_state = &image.volumes()[state];
        let shrink = ShrinkPolicy::DropData;
        engine.resize_volume(&record.name, of_state.size_bytes, shrink)?;
        fill(&volume, image, state)?;
        if state != index {
            let own_name = of_state.name.rsplit_once('@').map_or("", |(_, own_name)| own_name);
            let own_name = own_name.parse()?;
            // Under its own id: the next one may be that of a volume that is still to come.
            let made = of_state.created_seconds;
            engine.create_snapshot_again(&record.name, &own_name, made, of_state.id)?;
        }
    }
    volume.map().set_anchored(record.durability == Durability::Journal);
    Ok(())
}

/// The states of a volume in an image, oldest first: its snapshots, and itself.
fn states_of(image: &OpenImage, index: usize) -> Vec<usize> {
    let volume = &image.volumes()[index];
    let is_of_volume = |&other: &usize| {
        let other = &image.volumes()[other];
        other.kind == ImageVolumeKind::Snapshot && other.origin == volume.id
    };
    let mut states: Vec<usize> = (0..image.volumes().len()).filter(is_of_volume).collect();
    states.sort_by_key(|&state| image.volumes()[state].id);
    states.push(index);
    states
}

/// Gives a volume what the image has of a state of it.
fn fill(volume: &Volume, image: &OpenImage, state: usize) -> Result<(), RestoreError> {
    let leaves = image.fill(state, volume)?;
    let mut from = 0;
    while let Some(leaf) = volume.map().next_leaf(from) {
        if !leaves.contains(&leaf) {
            let holes = [FilledBlock::Hole; LEAF_BLOCKS];
            volume.map().fill_leaf(leaf, &holes)?;
        }
        from = leaf + 1;
    }
    Ok(())
}

/// Makes a volume of the pool from one in an image, under another name. Its blocks are absent.
pub(crate) fn restore_as(
    engine: &Arc<Engine>,
    image: &OpenImage,
    index: usize,
    name: &str,
) -> Result<Arc<Volume>, DurableError> {
    let record = &image.volumes()[index];
    let attempt = format!("restore {:?} from {} as {name:?}", record.name, image.id());
    let name = name.parse().map_err(DurableError::volume(&attempt))?;
    let volume =
        engine.begin_filling(record.spec_as(name), None).map_err(DurableError::volume(&attempt))?;
    let filled = image.fill(index, &volume).map_err(DurableError::images(&attempt));
    let filled =
        filled.and_then(|_| engine.end_filling(&volume).map_err(DurableError::volume(&attempt)));
    match filled {
        Ok(()) => Ok(volume),
        Err(error) => {
            engine.abandon_filling(&volume);
            Err(error)
        }
    }
}
