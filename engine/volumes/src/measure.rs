//! What one volume answers for.

use codec::BLOCK_BYTES;
use page_store::NODE_ENTRY_COUNT;

use crate::usage::VolumeUsage;
use crate::volume::Volume;

impl Volume {
    pub(crate) fn measure(&self) -> VolumeUsage {
        let store = &self.shared.store;
        let mut usage = VolumeUsage {
            written_bytes: self.counts.written.sum() * BLOCK_BYTES as u64,
            fill_bytes: self.counts.filled.sum() * BLOCK_BYTES as u64,
            ram_bytes: 0,
        };
        self.map.for_each_shared_inner_node(store, &store.pin(), &mut |_, owners| {
            usage.ram_bytes += BLOCK_BYTES as u64 / owners;
        });
        let mut from = 0;
        loop {
            let pinned = store.pin();
            let next = self.map.next_leaf(store, &pinned, from);
            let Some((leaf, node)) = next.filter(|_| !self.is_gone()) else { return usage };
            let owners = self.map.owners_of_leaf(store, &pinned, leaf);
            usage.ram_bytes += BLOCK_BYTES as u64 / owners;
            for index in 0..NODE_ENTRY_COUNT {
                let entry = store.entry(&pinned, node, index);
                usage.ram_bytes += store.share_bytes(&pinned, entry).unwrap_or(0) / owners;
            }
            from = leaf + 1;
        }
    }
}
