//! Filling an empty pool with what stable storage has: the image's maps at once, its contents when
//! they are touched, and the journal behind it.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use image::{ImageVolumeKind, LEAF_BLOCKS, OpenImage};
use journal::{Position, Recovered};
use volume::{
    Durability, Engine, FilledBlock, PageSource, SetId, ShrinkPolicy, Volume, VolumeSpec,
};

use crate::error::DurableError;
use crate::replay::EngineReplay;
use crate::set::{DurableSpec, covered_by};

/// What was read.
#[derive(Debug)]
pub(crate) struct Restored {
    pub(crate) journal: Recovered,
}

/// Fills the pool. A kill in between leaves it marked, to be begun again.
pub(crate) fn restore(
    engine: &Arc<Engine>,
    spec: &DurableSpec,
    id: SetId,
    image: Option<&Arc<OpenImage>>,
) -> Result<Restored, DurableError> {
    engine.begin_restoring();
    engine.join_set(id);
    if let Some(image) = image {
        let pages: Arc<dyn PageSource> = Arc::<OpenImage>::clone(image);
        engine.set_page_source(Some((image.id().word(), pages)));
        for (index, record) in image.volumes().iter().enumerate() {
            if record.kind == ImageVolumeKind::Volume {
                restore_volume(engine, image, index)?;
            }
        }
    }
    let from = image.map_or(Position::START, |image| covered_by(image));
    let mut replay = EngineReplay::new(engine);
    let journal = journal::recover(&*spec.journal, id, from, &mut replay)
        .map_err(DurableError::journal("read the journal"))?;
    replay.settle();
    engine.end_restoring();
    Ok(Restored { journal })
}

/// Makes one volume of the image and its snapshots, with all blocks absent: from the oldest
/// snapshot on, each state a change of the one before, so that they share what is equal.
fn restore_volume(
    engine: &Arc<Engine>,
    image: &OpenImage,
    index: usize,
) -> Result<(), DurableError> {
    let record = &image.volumes()[index];
    let attempt = format!("restore the volume {:?} from {}", record.name, image.id());
    let failed = DurableError::volume(&attempt);
    let states = states_of(image, index);
    let spec = record.spec().map_err(&failed)?;
    let spec = VolumeSpec { size_bytes: image.volumes()[states[0]].size_bytes, ..spec };
    let volume = engine.begin_filling(spec, Some(record.id)).map_err(&failed)?;
    engine.end_filling(&volume).map_err(&failed)?;
    for state in states {
        let of_state = &image.volumes()[state];
        let shrink = ShrinkPolicy::DropData;
        engine.resize_volume(&record.name, of_state.size_bytes, shrink).map_err(&failed)?;
        fill(&volume, image, state, &attempt)?;
        if state != index {
            let own_name = of_state.name.rsplit_once('@').map_or("", |(_, own_name)| own_name);
            let own_name = own_name.parse().map_err(&failed)?;
            let volumes = [&record.name[..]];
            let snapshot = engine.create_snapshots(&volumes, &own_name, of_state.created_seconds);
            snapshot.map_err(&failed)?;
        }
    }
    volume.set_anchored(record.durability == Durability::Journal);
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
fn fill(
    volume: &Volume,
    image: &OpenImage,
    state: usize,
    attempt: &str,
) -> Result<(), DurableError> {
    let mut leaves = HashSet::new();
    let found = image.leaves(state, &mut |leaf, _| {
        leaves.insert(leaf);
        ControlFlow::Continue(())
    });
    found.map_err(DurableError::images(attempt))?;
    let mut from = 0;
    while let Some(leaf) = volume.next_leaf(from) {
        if !leaves.contains(&leaf) {
            let holes = [FilledBlock::Hole; LEAF_BLOCKS];
            volume.fill_leaf(leaf, &holes).map_err(DurableError::volume(attempt))?;
        }
        from = leaf + 1;
    }
    image.fill(state, volume).map_err(DurableError::images(attempt))
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
    let spec = VolumeSpec { name, ..record.spec().map_err(DurableError::volume(&attempt))? };
    let volume = engine.begin_filling(spec, None).map_err(DurableError::volume(&attempt))?;
    let filled = image.fill(index, &volume).map_err(DurableError::images(&attempt));
    let filled =
        filled.and_then(|()| engine.end_filling(&volume).map_err(DurableError::volume(&attempt)));
    match filled {
        Ok(()) => Ok(volume),
        Err(error) => {
            engine.abandon_filling(&volume);
            Err(error)
        }
    }
}
