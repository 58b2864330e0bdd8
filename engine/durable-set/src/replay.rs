//! Replay of a journal into a pool.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use block_device::{BlockDevice, ByteRange, Zeroes};
use codec::BLOCK_BYTES;
use journal::{Change, JournalError, Position, RecordKind, Refusal, Replay, SetId, VolumeRecord};
use sealing::SetKey;
use storage::Folder;
use volumes::{
    CapacityClass, Durability, Engine, ShrinkPolicy, Volume, VolumeError, VolumeErrorKind,
    VolumeName, VolumeSpec,
};

/// Number of pattern blocks per write.
const FILL_BLOCKS: usize = 64;

/// Applies changes to a pool whose volumes are not yet served.
#[derive(Debug)]
pub(crate) struct EngineReplay<'engine> {
    engine: &'engine Arc<Engine>,
    /// Volumes of the latest table.
    volumes: HashMap<u64, Arc<Volume>>,
    /// Volumes that must become guaranteed at the end.
    to_guarantee: HashSet<u64>,
    /// Names by id of volumes that the journal lists but no image has. The journal has at most part
    /// of their contents.
    left_out: BTreeMap<u64, String>,
}

impl<'engine> EngineReplay<'engine> {
    pub(crate) fn new(engine: &'engine Arc<Engine>) -> Self {
        let is_durable = |volume: &Arc<Volume>| volume.durability() != Durability::Ram;
        let volumes = engine.volumes().into_iter().filter(is_durable);
        let volumes = volumes.map(|volume| (volume.id(), volume)).collect();
        Self { engine, volumes, to_guarantee: HashSet::new(), left_out: BTreeMap::new() }
    }

    /// Marks everything replayed as journaled, because it came from the journal.
    pub(crate) fn settle(&self) {
        for volume in self.volumes.values() {
            let Some(mut walk) = volume.walk_unjournaled() else { continue };
            while let Some(capture) = walk.capture(512) {
                capture.settle(u64::MAX);
            }
            walk.end();
        }
    }

    /// Makes the marked volumes guaranteed. Returns those that do not fit.
    pub(crate) fn guarantee(&self) -> Vec<(u64, VolumeError)> {
        let mut lost = Vec::new();
        for id in &self.to_guarantee {
            let Some(volume) = self.volumes.get(id) else { continue };
            let guaranteed = self.engine.set_capacity(&volume.name(), CapacityClass::Guaranteed);
            lost.extend(guaranteed.err().map(|error| (*id, error)));
        }
        lost
    }

    /// Returns the names of volumes in the last table that are not restored.
    pub(crate) fn into_left_out(self) -> Vec<String> {
        self.left_out.into_values().collect()
    }

    /// Deletes volumes that are no longer in the table, and frees names.
    fn clear_names(&mut self, table: &[&VolumeRecord]) -> Result<(), Refusal> {
        let ids: HashSet<u64> = table.iter().map(|record| record.id).collect();
        let gone: Vec<u64> = self.volumes.keys().copied().filter(|id| !ids.contains(id)).collect();
        self.left_out.retain(|id, _| ids.contains(id));
        for id in gone {
            if let Some(volume) = self.volumes.remove(&id) {
                delete_with_snapshots(self.engine, &volume)?;
            }
        }
        for record in table {
            // A volume of class `ram` in the image may have lost its name since.
            if let Ok(volume) = self.engine.volume(&record.name)
                && !ids.contains(&volume.id())
            {
                delete_with_snapshots(self.engine, &volume)?;
            }
            if let Some(volume) = self.volumes.get(&record.id)
                && volume.name() != record.name
            {
                // Two volumes may have swapped names.
                let name = format!("restoring-{}", record.id).parse()?;
                self.engine.rename_volume(&volume.name(), name)?;
            }
        }
        Ok(())
    }

    fn bring_up(&mut self, record: &VolumeRecord) -> Result<(), Refusal> {
        let unknown =
            |what: &str| format!("the volume {:?} has a {what} unknown here", record.name);
        let reduction = record.reduction().ok_or_else(|| unknown("reduction"))?;
        let durability = record.durability().ok_or_else(|| unknown("durability"))?;
        if let Some(volume) = self.volumes.get(&record.id).cloned() {
            if volume.name() != record.name {
                self.engine.rename_volume(&volume.name(), record.name.parse()?)?;
            }
            self.settle_capacity(record)?;
            self.resize(record, &volume)?;
            self.engine.set_reduction(&record.name, reduction)?;
            self.engine.set_durability(&record.name, durability)?;
            self.engine.set_mirror(&record.name, record.mirror())?;
            volume.map().set_anchored(durability == Durability::Journal);
            return Ok(());
        }
        let was_left_out = self.left_out.contains_key(&record.id);
        if durability != Durability::Journal || record.is_unanchored() || was_left_out {
            // It was created after the last image. Its contents are lost, as its class permits, or
            // because no flush of it was acknowledged. A partial volume would look complete.
            self.left_out.insert(record.id, record.name.clone());
            return Ok(());
        }
        let spec = VolumeSpec {
            sector: record.sector(),
            reduction,
            durability,
            capacity: record.capacity().unwrap_or(CapacityClass::Thin),
            mirror: record.mirror(),
            ..VolumeSpec::new(record.name.parse()?, record.size_bytes)
        };
        let volume = self.make(spec, record.id)?;
        volume.map().set_anchored(durability == Durability::Journal);
        self.volumes.insert(record.id, volume);
        Ok(())
    }

    /// Deletes and renames a volume's snapshots to match the table. Unlisted ones were deleted
    /// after the image was saved. Listed ones that are in no image are not restored.
    fn bring_up_snapshots(
        &self,
        record: &VolumeRecord,
        names: &HashMap<u64, &str>,
    ) -> Result<(), Refusal> {
        let Some(volume) = self.volumes.get(&record.id) else { return Ok(()) };
        let mut renamed = Vec::new();
        for snapshot in self.engine.snapshots_of(volume) {
            let own_name = snapshot.snapshot_name();
            match names.get(&snapshot.id()) {
                None => self.engine.delete_snapshot(&record.name, &own_name)?,
                Some(&name) if name != own_name => {
                    // Two snapshots may have swapped names.
                    let between = format!("restoring-{}", snapshot.id());
                    let between: VolumeName = between.parse()?;
                    self.engine.rename_snapshot(&record.name, &own_name, &between)?;
                    renamed.push((between, name));
                }
                Some(_) => {}
            }
        }
        for (between, name) in renamed {
            self.engine.rename_snapshot(&record.name, between.as_str(), &name.parse()?)?;
        }
        Ok(())
    }

    /// Creates a volume, thin for now if it cannot be guaranteed yet.
    fn make(&mut self, spec: VolumeSpec, id: u64) -> Result<Arc<Volume>, VolumeError> {
        let make = |spec| {
            let volume = self.engine.begin_filling(spec, Some(id))?;
            let ended = self.engine.end_filling(&volume);
            ended.inspect_err(|_| self.engine.abandon_filling(&volume))?;
            Ok(volume)
        };
        let made = make(spec.clone());
        match made {
            Err(VolumeError { kind: VolumeErrorKind::NoSpace, .. })
                if spec.capacity == CapacityClass::Guaranteed =>
            {
                self.to_guarantee.insert(id);
                make(VolumeSpec { capacity: CapacityClass::Thin, ..spec })
            }
            made => made,
        }
    }

    /// Sets the capacity class. Guarantees are deferred to the end, because later changes in the
    /// journal may free memory.
    fn settle_capacity(&mut self, record: &VolumeRecord) -> Result<(), VolumeError> {
        // Journals of earlier releases do not record it, so the image's class is kept.
        match record.capacity() {
            Some(CapacityClass::Guaranteed) => {
                self.to_guarantee.insert(record.id);
            }
            Some(CapacityClass::Thin) => {
                self.to_guarantee.remove(&record.id);
                self.engine.set_capacity(&record.name, CapacityClass::Thin)?;
            }
            None => {}
        }
        Ok(())
    }

    fn resize(&mut self, record: &VolumeRecord, volume: &Volume) -> Result<(), VolumeError> {
        if volume.geometry().size_bytes == record.size_bytes {
            return Ok(());
        }
        let resize =
            || self.engine.resize_volume(&record.name, record.size_bytes, ShrinkPolicy::DropData);
        match resize() {
            Err(VolumeError { kind: VolumeErrorKind::NoSpace, .. })
                if volume.capacity_class() == CapacityClass::Guaranteed =>
            {
                self.engine.set_capacity(&record.name, CapacityClass::Thin)?;
                self.to_guarantee.insert(record.id);
                resize()
            }
            resized => resized,
        }
    }
}

impl Replay for EngineReplay<'_> {
    fn volumes(&mut self, table: &[VolumeRecord]) -> Result<(), Refusal> {
        let is_volume = |record: &&VolumeRecord| record.kind == RecordKind::Volume;
        let (volumes, snapshots): (Vec<_>, Vec<_>) = table.iter().partition(is_volume);
        // A volume saved on request as class `ram` may have changed its class since.
        for record in &volumes {
            let of_image = || self.engine.volumes().into_iter().find(|it| it.id() == record.id);
            if !self.volumes.contains_key(&record.id)
                && let Some(volume) = of_image()
            {
                self.volumes.insert(record.id, volume);
            }
        }
        self.clear_names(&volumes)?;
        let snapshots = snapshots.iter().map(|record| (record.id, &record.name[..])).collect();
        for record in volumes {
            self.bring_up(record)?;
            if record.lists_snapshots() {
                self.bring_up_snapshots(record, &snapshots)?;
            }
        }
        Ok(())
    }

    fn blocks(&mut self, volume_id: u64, block: u64, change: Change<'_>) -> Result<(), Refusal> {
        let Some(volume) = self.volumes.get(&volume_id) else { return Ok(()) };
        let block_bytes = BLOCK_BYTES as u64;
        let block_count = volume.geometry().size_bytes / block_bytes;
        let count = change.block_count().min(block_count.saturating_sub(block));
        if count == 0 {
            return Ok(());
        }
        let range = ByteRange::new(block * block_bytes, count * block_bytes);
        match change {
            Change::Holes(_) => volume.write_zeroes(range, Zeroes::Unmap)?,
            Change::Fill { pattern, .. } => fill(volume, range, pattern)?,
            Change::Contents(contents) => volume.write(range.start, contents)?,
            Change::Damaged => volume.declare_lost(block)?,
        }
        Ok(())
    }
}

/// Result of a replay.
#[derive(Debug)]
pub struct Replayed {
    pub transactions: u64,
    /// Number of blocks whose contents are damaged in the journal. Reads of them fail.
    pub damaged_blocks: u64,
    /// Last segment, and the offset in it at which the last transaction ends.
    pub(crate) end: Option<(u32, u32)>,
    /// Error at which the replay ended before the end of the journal. The state is consistent as of
    /// one instant.
    pub ended_early: Option<JournalError>,
    /// Volumes that lost class `guaranteed` because they did not fit, with the error. They are thin
    /// now.
    pub guarantees_lost: Vec<(u64, VolumeError)>,
    /// Volumes that are in no image, and only partially in the journal.
    pub left_out: Vec<String>,
}

/// Applies a journal's changes from `from` on to a pool whose volumes are not served. If the
/// journal is damaged or incomplete, it is replayed up to there. Fails if a change cannot be
/// applied or the folder is unreadable. The pool's state is then undefined.
pub(crate) fn replay_onto(
    engine: &Arc<Engine>,
    folder: &dyn Folder,
    key: Option<&SetKey>,
    set_id: SetId,
    from: Position,
) -> Result<Replayed, JournalError> {
    let mut replay = EngineReplay::new(engine);
    let (recovered, ended_early) =
        journal::recover_until_damage(folder, key, set_id, from, &mut replay)?;
    let guarantees_lost = replay.guarantee();
    Ok(Replayed {
        transactions: recovered.transactions,
        damaged_blocks: recovered.damaged_blocks,
        end: recovered.end,
        ended_early,
        guarantees_lost,
        left_out: replay.into_left_out(),
    })
}

/// Deletes a volume after its snapshots.
pub(crate) fn delete_with_snapshots(engine: &Engine, volume: &Volume) -> Result<(), VolumeError> {
    let name = volume.name();
    for snapshot in engine.snapshots_of(volume) {
        engine.delete_snapshot(&name, &snapshot.snapshot_name())?;
    }
    engine.delete_volume(&name)
}

fn fill(volume: &Volume, range: ByteRange, pattern: u32) -> Result<(), Refusal> {
    let mut blocks = vec![[0; BLOCK_BYTES]; FILL_BLOCKS];
    blocks.iter_mut().for_each(|block| codec::write_fill(pattern, block));
    let bytes = blocks.as_flattened();
    let mut at = range.start;
    let end = range.start + range.length;
    while at < end {
        let length = usize::try_from(end - at).map_or(bytes.len(), |left| left.min(bytes.len()));
        volume.write(at, &bytes[..length])?;
        at += length as u64;
    }
    Ok(())
}
