//! In-memory model of a replayed journal.

use std::collections::BTreeMap;

use journal::{Change, Refusal, Replay, VolumeRecord};

use super::BLOCK;

/// Volumes and blocks read back.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Shadow {
    pub(crate) table: Vec<VolumeRecord>,
    /// By volume and block.
    blocks: BTreeMap<(u64, u64), Kept>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kept {
    Hole,
    Contents(Box<[u8; 4096]>),
    Damaged,
}

impl Shadow {
    /// Returns the contents of a block, or `None` if they are damaged.
    pub(crate) fn block(&self, volume_id: u64, block: u64) -> Option<Vec<u8>> {
        match self.blocks.get(&(volume_id, block)) {
            None | Some(Kept::Hole) => Some(vec![0; 4096]),
            Some(Kept::Contents(contents)) => Some(contents.to_vec()),
            Some(Kept::Damaged) => None,
        }
    }

    /// Returns whether the journal has any record of a block.
    pub(crate) fn knows(&self, volume_id: u64, block: u64) -> bool {
        self.blocks.contains_key(&(volume_id, block))
    }

    /// Returns the number of blocks that are not holes.
    pub(crate) fn block_count(&self) -> usize {
        self.blocks.values().filter(|kept| **kept != Kept::Hole).count()
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
            Change::Holes(count) => (count, Kept::Hole),
            Change::Fill { count, pattern } => {
                let mut contents = Box::new([0; 4096]);
                contents.as_chunks_mut().0.fill(pattern.to_le_bytes());
                (count, Kept::Contents(contents))
            }
            Change::Contents(contents) => (1, Kept::Contents(Box::new(*contents))),
            Change::Damaged => (1, Kept::Damaged),
        };
        for block in block..block + u64::from(count) {
            self.blocks.insert((volume_id, block), kept.clone());
        }
        Ok(())
    }
}
