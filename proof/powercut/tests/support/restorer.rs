//! Puts what image and journal say into a new pool.

use std::collections::BTreeMap;
use std::sync::Arc;

use block_device::{BlockDevice, ByteRange, SectorSize};
use journal::{Change, Refusal, Replay, VolumeRecord};
use volume::{Durability, Engine, Reduction, ShrinkPolicy, Volume, VolumeName, VolumeSpec};

use crate::support::plain_image::PlainImage;

const BLOCK_BYTES: u64 = 4096;

pub(crate) struct Restorer<'engine> {
    engine: &'engine Engine,
    volumes: BTreeMap<u64, Arc<Volume>>,
}

fn name(name: &str) -> VolumeName {
    name.parse().expect("it was a name before")
}

impl<'engine> Restorer<'engine> {
    pub(crate) fn new(engine: &'engine Engine) -> Self {
        Self { engine, volumes: BTreeMap::new() }
    }

    pub(crate) fn take_image(&mut self, image: PlainImage) {
        for (id, listed, blocks) in image.volumes {
            let reduction = Reduction::ALL[listed.reduction];
            let volume = self.make(id, name(&listed.name), listed.size_bytes, reduction);
            for (block, contents) in blocks {
                volume.write(block * BLOCK_BYTES, &contents).expect("there is room");
            }
        }
    }

    /// Everything is restored: what is there is as the journal has it.
    pub(crate) fn end(self) {
        self.volumes.values().for_each(|volume| volume.set_anchored(true));
    }

    fn make(
        &mut self,
        id: u64,
        name: VolumeName,
        size_bytes: u64,
        reduction: Reduction,
    ) -> Arc<Volume> {
        let spec = VolumeSpec {
            sector: SectorSize::Bytes4096,
            reduction,
            durability: Durability::Journal,
            ..VolumeSpec::new(name, size_bytes)
        };
        let volume = self.engine.begin_filling(spec, Some(id)).expect("the pool is new");
        self.engine.end_filling(&volume).expect("the name is free");
        assert_eq!(volume.id(), id);
        self.volumes.insert(id, Arc::clone(&volume));
        volume
    }

    /// Lets no volume be in the way of another that gets its name.
    fn clear_names(&self, table: &[VolumeRecord]) {
        for record in table {
            let Some(volume) = self.volumes.get(&record.id) else { continue };
            if volume.name() != record.name {
                let aside = name(&format!("renamed-{}", record.id));
                self.engine.rename_volume(&volume.name(), aside).expect("the name is free");
            }
        }
    }

    fn adopt(&mut self, record: &VolumeRecord) {
        let reduction = record.reduction().expect("a known policy");
        let Some(volume) = self.volumes.get(&record.id) else {
            self.make(record.id, name(&record.name), record.size_bytes, reduction);
            return;
        };
        if volume.name() != record.name {
            let renamed = self.engine.rename_volume(&volume.name(), name(&record.name));
            renamed.expect("the name is free");
        }
        if volume.geometry().size_bytes != record.size_bytes {
            let shrink = ShrinkPolicy::DropData;
            let resized = self.engine.resize_volume(&record.name, record.size_bytes, shrink);
            resized.expect("the size is possible");
        }
        self.engine.set_reduction(&record.name, reduction).expect("the volume is there");
    }
}

impl Replay for Restorer<'_> {
    fn volumes(&mut self, table: &[VolumeRecord]) -> Result<(), Refusal> {
        let is_gone = |id: &u64| table.iter().all(|record| record.id != *id);
        let gone: Vec<u64> = self.volumes.keys().copied().filter(is_gone).collect();
        for id in gone {
            let volume = self.volumes.remove(&id).expect("it was just seen");
            self.engine.delete_volume(&volume.name())?;
        }
        self.clear_names(table);
        table.iter().for_each(|record| self.adopt(record));
        Ok(())
    }

    fn blocks(&mut self, volume_id: u64, block: u64, change: Change<'_>) -> Result<(), Refusal> {
        let Some(volume) = self.volumes.get(&volume_id) else { return Ok(()) };
        let size_bytes = volume.geometry().size_bytes;
        let start = block * BLOCK_BYTES;
        if start >= size_bytes {
            return Ok(());
        }
        match change {
            Change::Holes(count) => {
                let length = (u64::from(count) * BLOCK_BYTES).min(size_bytes - start);
                volume.discard(ByteRange::new(start, length))?;
            }
            Change::Fill { count, pattern } => {
                let bytes = pattern.to_le_bytes().repeat(1024);
                for at in (0..u64::from(count)).map(|at| start + at * BLOCK_BYTES) {
                    if at < size_bytes {
                        volume.write(at, &bytes)?;
                    }
                }
            }
            Change::Contents(contents) => volume.write(start, contents)?,
            Change::Damaged => return Err("a page is damaged in the journal".into()),
        }
        Ok(())
    }
}
