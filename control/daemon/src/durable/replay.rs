//! The journal's answer to what was done since the last image: replayed into the pool.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context;
use block_device::{BLOCK_BYTES, BlockDevice, ByteRange};
use journal::{Change, Refusal, Replay, VolumeRecord};
use volume::{Durability, Engine, ShrinkPolicy, Volume, VolumeName, VolumeSpec};

use crate::durable::restore;

/// The longest range that is written at a time.
const WRITTEN_BYTES_MAX: usize = 1 << 20;

/// Takes what the journal says. Nothing is served yet.
pub(super) struct Restoring<'engine> {
    engine: &'engine Engine,
    /// Volumes of class `journal` and `image` as of the last table, by id.
    volumes: BTreeMap<u64, Arc<Volume>>,
    /// Blocks that are lost: their pages are damaged in the journal.
    pub(super) lost_count: u64,
}

impl<'engine> Restoring<'engine> {
    /// With the volumes that an image had.
    pub(super) fn new(engine: &'engine Engine) -> Self {
        let volumes = engine.volumes().into_iter().map(|volume| (volume.id(), volume)).collect();
        Self { engine, volumes, lost_count: 0 }
    }

    fn take_table(&mut self, table: &[VolumeRecord]) -> anyhow::Result<()> {
        self.drop_missing(table)?;
        self.free_names(table)?;
        for record in table {
            match self.volumes.get(&record.id).cloned() {
                Some(volume) => self.change(&volume, record)?,
                // One of class `image` that no image has is not there either.
                None if record.durability() == Some(Durability::Image) => {}
                None => self.make(record)?,
            }
        }
        Ok(())
    }

    /// Deletes what the table does not have any more.
    fn drop_missing(&mut self, table: &[VolumeRecord]) -> anyhow::Result<()> {
        let is_gone = |volume: &Volume| {
            volume.durability() != Durability::Ram
                && !table.iter().any(|record| record.id == volume.id())
        };
        let gone: Vec<_> = self.volumes.values().filter(|it| is_gone(it)).cloned().collect();
        for volume in gone {
            self.engine.delete_volume(&volume.name())?;
            self.volumes.remove(&volume.id());
        }
        Ok(())
    }

    /// Gives volumes that are to have another name one that nobody wants, so that two of them can
    /// change their names for each other's.
    fn free_names(&self, table: &[VolumeRecord]) -> anyhow::Result<()> {
        for record in table {
            let Some(volume) = self.volumes.get(&record.id) else { continue };
            let name = volume.name();
            if name != record.name {
                let passing = format!("restoring-{}", record.id);
                self.engine.rename_volume(&name, parse(&passing)?)?;
            }
        }
        Ok(())
    }

    fn change(&self, volume: &Arc<Volume>, record: &VolumeRecord) -> anyhow::Result<()> {
        if volume.name() != record.name {
            self.make_way(&record.name)?;
            self.engine.rename_volume(&volume.name(), parse(&record.name)?)?;
        }
        let name = &record.name[..];
        if volume.geometry().size_bytes != record.size_bytes {
            self.engine.resize_volume(name, record.size_bytes, ShrinkPolicy::DropData)?;
        }
        let reduction = record.reduction().context("the journal knows a reduction that is new")?;
        if volume.reduction() != reduction {
            self.engine.set_reduction(name, reduction)?;
        }
        let durability = record.durability().context("the journal knows a class that is new")?;
        if volume.durability() != durability {
            self.engine.set_durability(name, durability)?;
        }
        Ok(())
    }

    /// A volume of another class may have the name: what was done to it since the image is lost,
    /// its new name too.
    fn make_way(&self, name: &str) -> anyhow::Result<()> {
        if let Ok(other) = self.engine.volume(name) {
            let new_name = format!("restored-{}", other.id());
            tracing::warn!(volume = name, new_name, "a volume of the image gives its name away");
            self.engine.rename_volume(name, parse(&new_name)?)?;
        }
        Ok(())
    }

    fn make(&mut self, record: &VolumeRecord) -> anyhow::Result<()> {
        self.make_way(&record.name)?;
        let spec = VolumeSpec {
            sector: record.sector(),
            reduction: record.reduction().context("the journal knows a reduction that is new")?,
            durability: Durability::Journal,
            ..VolumeSpec::new(parse(&record.name)?, record.size_bytes)
        };
        let volume = self.engine.begin_filling(spec, Some(record.id))?;
        self.engine.end_filling(&volume)?;
        self.volumes.insert(record.id, volume);
        Ok(())
    }

    fn take_blocks(&mut self, id: u64, block: u64, change: Change<'_>) -> anyhow::Result<()> {
        let Some(volume) = self.volumes.get(&id) else { return Ok(()) };
        let count = match change {
            Change::Holes(count) | Change::Fill { count, .. } => u64::from(count),
            Change::Contents(_) | Change::Damaged => 1,
        };
        let start = block.saturating_mul(BLOCK_BYTES as u64);
        let size_bytes = volume.geometry().size_bytes;
        let length = count.saturating_mul(BLOCK_BYTES as u64).min(size_bytes.saturating_sub(start));
        if length == 0 {
            return Ok(());
        }
        let range = ByteRange::new(start, length);
        if change == Change::Damaged {
            self.lost_count += 1;
        }
        let done = match change {
            Change::Holes(_) => volume.discard(range).map_err(anyhow::Error::from),
            Change::Fill { pattern, .. } => fill(volume, range, pattern),
            Change::Contents(contents) => volume.write(start, contents).map_err(Into::into),
            Change::Damaged => restore::lose(volume, block),
        };
        done.with_context(|| format!("cannot restore block {block} of {:?}", volume.name()))
    }
}

impl Replay for Restoring<'_> {
    fn volumes(&mut self, table: &[VolumeRecord]) -> Result<(), Refusal> {
        Ok(self.take_table(table)?)
    }

    fn blocks(&mut self, volume_id: u64, block: u64, change: Change<'_>) -> Result<(), Refusal> {
        Ok(self.take_blocks(volume_id, block, change)?)
    }
}

fn fill(volume: &Volume, range: ByteRange, pattern: u32) -> anyhow::Result<()> {
    let bytes = pattern.to_le_bytes().repeat(WRITTEN_BYTES_MAX / 4);
    let end = range.start + range.length;
    let mut at = range.start;
    while at < end {
        let length = (end - at).min(WRITTEN_BYTES_MAX as u64);
        volume.write(at, &bytes[..usize::try_from(length).expect("1 MiB at most")])?;
        at += length;
    }
    Ok(())
}

fn parse(name: &str) -> anyhow::Result<VolumeName> {
    Ok(name.parse::<VolumeName>()?)
}
