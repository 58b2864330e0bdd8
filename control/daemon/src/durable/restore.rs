//! Volumes of an image in the pool: there at once, their contents fetched while they are used.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context;
use block_device::{BLOCK_BYTES, BlockDevice, ByteRange};
use image::{
    BlockRun, DamagedChunk, EngineTarget, ImageError, ImageErrorKind, ImageVolume, ImageVolumeKind,
    LEAF_BLOCKS, OpenImage, Watch,
};
use volume::{
    CapacityClass, Durability, Engine, FilledBlock, PageSource, ShrinkPolicy, Volume, VolumeName,
    VolumeSpec,
};

use crate::events::EventLog;

/// A volume of an image that is to be in the pool.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// Index among the image's volumes.
    pub(super) index: usize,
    pub(super) name: VolumeName,
    /// The id that it is to have again; `None` for a new one.
    pub(super) id: Option<u64>,
    /// Whether journal and image have all of it, so that flushes need no new image first.
    pub(super) is_anchored: bool,
}

/// Makes the volumes, all or none. They can be served when this returns.
pub(super) fn fill(
    engine: &Engine,
    image: &Arc<OpenImage>,
    wanted: &[Wanted],
) -> anyhow::Result<Vec<Arc<Volume>>> {
    connect(engine, image);
    let mut filled = Vec::new();
    for wanted in wanted {
        match fill_one(engine, image, wanted) {
            Ok(volume) => filled.push(volume),
            Err(error) => {
                filled.iter().for_each(|volume| engine.abandon_filling(volume));
                return Err(error);
            }
        }
    }
    for volume in &filled {
        engine.end_filling(volume)?;
    }
    Ok(filled)
}

/// Lets absent blocks be fetched from the image.
pub(super) fn connect(engine: &Engine, image: &Arc<OpenImage>) {
    let source: Arc<dyn PageSource> = Arc::<OpenImage>::clone(image);
    engine.set_page_source(Some((image.id().word(), source)));
}

fn fill_one(engine: &Engine, image: &OpenImage, wanted: &Wanted) -> anyhow::Result<Arc<Volume>> {
    let record = &image.volumes()[wanted.index];
    let attempt = || format!("cannot restore the volume {:?} from {}", record.name, image.id());
    let spec = spec_of(record, wanted.name.clone());
    let volume = engine.begin_filling(spec, wanted.id).with_context(attempt)?;
    if let Err(error) = image.fill(wanted.index, &volume).with_context(attempt) {
        engine.abandon_filling(&volume);
        return Err(error);
    }
    volume.set_anchored(wanted.is_anchored && record.durability == Durability::Journal);
    Ok(volume)
}

/// As [`ImageVolume::spec`], under another name: those of snapshots are none for volumes. Thin
/// until its contents are in memory.
fn spec_of(record: &ImageVolume, name: VolumeName) -> VolumeSpec {
    VolumeSpec {
        sector: record.sector,
        reduction: record.reduction,
        durability: record.durability,
        ..VolumeSpec::new(name, record.size_bytes)
    }
}

/// Makes everything that the image has, with the ids that volumes had, in a pool that is empty.
pub(super) fn fill_all(engine: &Engine, image: &Arc<OpenImage>) -> anyhow::Result<()> {
    let records = image.volumes();
    for (index, record) in records.iter().enumerate() {
        if record.kind == ImageVolumeKind::Snapshot {
            continue;
        }
        let mut snapshots: Vec<usize> =
            (0..records.len()).filter(|&it| is_snapshot_of(&records[it], record)).collect();
        snapshots.sort_by_key(|&it| (records[it].created_seconds, records[it].id));
        let name = record.name.parse()?;
        let wanted = Wanted { index, name, id: Some(record.id), is_anchored: true };
        match snapshots.is_empty() {
            true => drop(fill(engine, image, &[wanted])?),
            false => fill_with_snapshots(engine, image, (&wanted, &snapshots))?,
        }
    }
    Ok(())
}

fn is_snapshot_of(snapshot: &ImageVolume, volume: &ImageVolume) -> bool {
    snapshot.kind == ImageVolumeKind::Snapshot && snapshot.origin == volume.id
}

/// Lets the volume be what it was at each of its snapshots, one after the other, and then what it
/// was at the end.
fn fill_with_snapshots(
    engine: &Engine,
    image: &Arc<OpenImage>,
    (wanted, snapshots): (&Wanted, &[usize]),
) -> anyhow::Result<()> {
    let records = image.volumes();
    let (record, name) = (&records[wanted.index], wanted.name.as_str());
    let mut spec = spec_of(record, wanted.name.clone());
    spec.durability = Durability::Ram;
    connect(engine, image);
    let volume = engine.begin_filling(spec, wanted.id)?;
    engine.end_filling(&volume)?;
    for &index in snapshots {
        let snapshot = &records[index];
        refill(engine, image, (index, &volume))?;
        let (_, own_name) = snapshot.name.split_once('@').context("a snapshot without a name")?;
        engine.create_snapshots(&[name], &own_name.parse()?, snapshot.created_seconds)?;
    }
    refill(engine, image, (wanted.index, &volume))?;
    engine.set_durability(name, record.durability)?;
    volume.set_anchored(record.durability == Durability::Journal);
    Ok(())
}

fn refill(
    engine: &Engine,
    image: &OpenImage,
    (index, volume): (usize, &Volume),
) -> anyhow::Result<()> {
    let size_bytes = volume.geometry().size_bytes;
    volume.discard(ByteRange::new(0, size_bytes))?;
    let new_bytes = image.volumes()[index].size_bytes;
    engine.resize_volume(&volume.name(), new_bytes, ShrinkPolicy::DropData)?;
    Ok(image.fill(index, volume)?)
}

/// Makes a block one whose contents are lost: reads of it fail until it is overwritten.
pub(super) fn lose(volume: &Volume, block: u64) -> anyhow::Result<()> {
    let block_bytes = BLOCK_BYTES as u64;
    volume.discard(ByteRange::new(block * block_bytes, block_bytes))?;
    let (leaf, place) = (block / LEAF_BLOCKS as u64, block % LEAF_BLOCKS as u64);
    let before = usize::try_from(place).expect("a leaf is short");
    let mut blocks = vec![FilledBlock::Hole; before];
    blocks.push(FilledBlock::Damaged);
    Ok(volume.fill_leaf(leaf, &blocks)?)
}

/// Fetches what is still absent, in the order in which it lies in the image. Returns how many bytes
/// came from the store.
pub(super) fn fetch_rest(
    engine: &Engine,
    image: &OpenImage,
    events: &EventLog,
    watch: &dyn Watch,
) -> Result<u64, ImageError> {
    let all = || engine.volumes().into_iter().chain(engine.snapshots());
    let by_base: BTreeMap<u64, Arc<Volume>> = all()
        .filter_map(|volume| {
            let base = volume.image_base().filter(|base| base.image == image.id().word())?;
            Some((base.volume_id, volume))
        })
        .collect();
    let volumes: Vec<_> =
        image.volumes().iter().map(|record| by_base.get(&record.id).cloned()).collect();
    let mut target = EngineTarget::new(&volumes);
    let restored = image.restore(&mut target, watch);
    target.take_damage().iter().for_each(|damage| tell_damage(events, damage));
    let moved_bytes = restored?.bytes_read;
    for volume in all() {
        bring_in_rest(&volume, watch)?;
    }
    Ok(moved_bytes)
}

/// Volumes that were guaranteed are so again, now that what they hold is in memory and can be
/// stored for them alone. One that does not fit any more stays thin.
pub(super) fn guarantee_again(engine: &Engine, image: &OpenImage, events: &EventLog) {
    for volume in engine.volumes() {
        let base = volume.image_base().filter(|base| base.image == image.id().word());
        let is_guaranteed = |record: &ImageVolume| {
            record.capacity == CapacityClass::Guaranteed
                && base.is_some_and(|base| base.volume_id == record.id)
        };
        if !image.volumes().iter().any(is_guaranteed) {
            continue;
        }
        let name = volume.name();
        if let Err(error) = engine.set_capacity(&name, CapacityClass::Guaranteed) {
            let message = format!("a restored volume could not be guaranteed again: {error}");
            events.warning("guarantee_lost", Some(&name), message);
        }
    }
}

/// Brings in what the walk over the image did not find: blocks of copies that were made meanwhile.
fn bring_in_rest(volume: &Volume, watch: &dyn Watch) -> Result<(), ImageError> {
    const ATTEMPT: &str = "fetch the rest of an image";
    let mut from = 0;
    while volume.absent_blocks() > 0
        && let Some(leaf) = volume.next_leaf(from)
    {
        if watch.is_cancelled() {
            return Err(ImageError::new(ImageErrorKind::Cancelled, ATTEMPT));
        }
        volume.bring_in_leaf(leaf).map_err(|error| {
            ImageError::new(ImageErrorKind::Unavailable, ATTEMPT).with_source(error)
        })?;
        from = leaf + 1;
    }
    Ok(())
}

fn tell_damage(events: &EventLog, damage: &DamagedChunk) {
    let message = format!(
        "an image's chunk is damaged; reads of what it held fail until it is overwritten: {}: {}",
        damage.error,
        name_runs(&damage.blocks)
    );
    events.error("image_damaged", None, message);
}

/// Blocks for people.
pub(crate) fn name_runs(runs: &[BlockRun]) -> String {
    let name = |run: &BlockRun| {
        let last = run.first_block + run.block_count - 1;
        format!("{} blocks {} to {last}", run.volume, run.first_block)
    };
    runs.iter().map(name).collect::<Vec<_>>().join(", ")
}
