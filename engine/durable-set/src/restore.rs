//! Restoring an empty pool from stable storage: maps of the image at once, contents on first read,
//! then the journal after the image.

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

/// Result of a restore.
#[derive(Debug)]
pub(crate) struct Restored {
    pub(crate) journal: Recovered,
    /// Volumes that could not be guaranteed again, with the error. They are thin now.
    pub(crate) guarantees_lost: Vec<(String, VolumeError)>,
    /// Volumes that are in no image, and not completely in the journal.
    pub(crate) left_out: Vec<String>,
    /// Error that ended reading the journal early, if that was accepted.
    pub(crate) journal_failure: Option<JournalError>,
    /// Number of transactions replayed from the image store.
    pub(crate) shipped_transactions: u64,
    /// Point at which they end, if later ones were shipped.
    pub(crate) shipped_gap: Option<String>,
}

/// Policy for an incomplete journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gaps {
    Refused,
    Accepted,
}

/// Contents of stable storage for a set.
#[derive(Debug)]
pub(crate) struct Stored<'it> {
    pub(crate) set_id: SetId,
    pub(crate) image: Option<&'it Arc<OpenImage>>,
    pub(crate) journal: &'it dyn Folder,
    pub(crate) key: Option<&'it SetKey>,
    /// Journal in the image store, if it must be replayed before the one on disk.
    pub(crate) shipped: Option<&'it ShippedJournal>,
    pub(crate) gaps: Gaps,
}

/// Restores the pool, which stays marked as being restored: the caller ends that. After a kill
/// before the end, the restore starts over.
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
        // The replayed part is consistent as of one instant.
        (Err(error), Gaps::Accepted) => (Recovered::default(), Some(error)),
        (Err(error), Gaps::Refused) => {
            return Err(DurableError::journal("read the journal")(error));
        }
    };
    replay.settle();
    if journal_failure.is_some() {
        // Later transactions could not be replayed after a gap. An image must cover everything
        // first.
        let attempt = "rename the files of the unreadable journal";
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
        // No local journal has these changes, so flushes wait for an image.
        lose_anchors(engine);
        guarantees_lost.extend(shipped.add_to(&mut restored));
    }
    restored.guarantees_lost = still_thin(engine, guarantees_lost);
    Ok(restored)
}

/// Result of replaying a shipped journal, and the gap at which it ends.
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
    /// Adds the result to `restored`. Returns the volumes that could not be guaranteed.
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
            // The loss was accepted.
            Err(error) => {
                restored.journal_failure.get_or_insert(error);
                Vec::new()
            }
        }
    }
}

/// Returns those volumes, by name, that exist and are still thin.
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

/// Restores a volume of the image with its capacity class. If it cannot be guaranteed, restores it
/// thin, because its contents matter more.
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

/// Reason why a volume cannot be restored.
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

/// Restores one volume of the image and its snapshots, with all blocks absent. Starts with the
/// oldest snapshot and derives each state from the previous one, so that they share equal blocks.
/// For a guaranteed volume, memory is claimed before it is filled.
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
            // Keeps its id. A new id might be that of a volume that is restored later.
            let made = of_state.created_seconds;
            engine.create_snapshot_again(&record.name, &own_name, made, of_state.id)?;
        }
    }
    volume.map().set_anchored(record.durability == Durability::Journal);
    Ok(())
}

/// Returns the states of a volume in an image, oldest first: its snapshots and the volume.
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

/// Fills a volume with a state from the image.
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

/// Restores a volume of an image under another name, with all blocks absent.
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
