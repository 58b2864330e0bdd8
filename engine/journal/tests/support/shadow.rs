//! What a journal says, kept as it says it.

use std::collections::BTreeMap;

use journal::{Change, Refusal, Replay, VolumeRecord};

use super::BLOCK;

/// Volumes and blocks that were read back.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Shadow {
    pub(crate) table: Vec<VolumeRecord>,
    /// By volume and block; holes are not there.
    blocks: BTreeMap<(u64, u64), Kept>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kept {
    Contents(Box<[u8; 4096]>),
    Damaged,
}

impl Shadow {
    /// What a block holds, `None` when it is damaged.
    pub(crate) fn block(&self, volume_id: u64, block: u64) -> Option<Vec<u8>> {
        match self.blocks.get(&(volume_id, block)) {
            None => Some(vec![0; 4096]),
            Some(Kept::Contents(contents)) => Some(contents.to_vec()),
            Some(Kept::Damaged) => None,
        }
    }

    pub(crate) fn block_count(&self) -> usize {
        self.blocks.len()
    }

    pub(crate) fn names(&self) -> Vec<&str> {
        self.table.iter().map(|record| record.name.as_str()).collect()
    }
}

impl Replay for Shadow {
    fn volumes(&mut self, table: &[VolumeRecord]) -> Result<(), Refusal> {
        self.table = table.to_vec();
        let size_of = |id| table.iter().find(|it| it.id == id).map_or(0, |it| it.size_bytes);
        self.blocks.retain(|&(id, block), _| block < size_of(id) / BLOCK);
        Ok(())
    }

    fn blocks(&mut self, volume_id: u64, block: u64, change: Change<'_>) -> Result<(), Refusal> {
        let (count, kept) = match change {
            Change::Holes(count) => (count, None),
            Change::Fill { count, pattern } => {
                let mut contents = Box::new([0; 4096]);
                contents.as_chunks_mut().0.fill(pattern.to_le_bytes());
                (count, Some(Kept::Contents(contents)))
            }
            Change::Contents(contents) => (1, Some(Kept::Contents(Box::new(*contents)))),
            Change::Damaged => (1, Some(Kept::Damaged)),
        };
        for block in block..block + u64::from(count) {
            match &kept {
                Some(kept) => self.blocks.insert((volume_id, block), kept.clone()),
                None => self.blocks.remove(&(volume_id, block)),
            };
        }
        Ok(())
    }
}
