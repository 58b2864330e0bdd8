//! Catalog of the chunks known to be in a store, by number and by digest.

use std::collections::HashMap;

use crate::format::chunk::{Built, ChunkPlace, Digest};
use crate::format::manifest::{ChunkRecord, Manifest, PackRecord};
use crate::names::{ChunkNumber, PackName, PackPlace, PageNumber};

/// Inverse of the usage below which a pack is sparse. Blocks in memory are rewritten instead of
/// referring to a sparse pack, so that it can be removed.
const SPARSE_SHARE: u64 = 4;

/// A known chunk.
#[derive(Clone, Copy, Debug)]
struct Known {
    place: ChunkPlace,
    page_count: u16,
    /// Number of blocks and map parts of the image being saved that refer to it.
    use_count: u64,
    /// The pack is sparse or missing, so contents in memory should be rewritten.
    is_to_be_left: bool,
}

/// All chunks that the image being saved may refer to.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    chunks: HashMap<ChunkNumber, Known>,
    numbers: HashMap<Digest, ChunkNumber>,
    packs: HashMap<PackName, u64>,
    /// Packs in the store, if listed.
    stored: Option<HashMap<PackName, u64>>,
}

impl Catalog {
    /// Creates a catalog for a store with these packs.
    pub(crate) fn of(packs: impl IntoIterator<Item = (PackName, u64)>) -> Self {
        Self { stored: Some(packs.into_iter().collect()), ..Self::default() }
    }

    /// Adds the chunks of an image.
    pub(crate) fn add_image(&mut self, manifest: &Manifest) {
        let mut left = sparse_packs(manifest);
        let missing = manifest.packs.iter().filter(|pack| !self.has_pack(pack));
        left.extend(missing.map(|pack| pack.name));
        self.packs.extend(manifest.packs.iter().map(|pack| (pack.name, pack.length_bytes)));
        for chunk in &manifest.chunks {
            let place = manifest.place_of(chunk);
            let is_to_be_left = left.contains(&place.at.pack);
            let page_count = chunk.page_count;
            let known = Known { place, page_count, use_count: 0, is_to_be_left };
            self.chunks.entry(chunk.number).or_insert(known);
            if !is_to_be_left {
                self.numbers.entry(chunk.digest).or_insert(chunk.number);
            }
        }
    }

    /// Adds a newly built chunk with its location.
    pub(crate) fn add_built(&mut self, number: ChunkNumber, built: &Built, at: PackPlace) {
        let &Built { kind, digest, length_bytes, page_count } = built;
        let length_bytes = u32::try_from(length_bytes).expect("chunks are short");
        let end = u64::from(at.offset_bytes) + u64::from(length_bytes);
        let pack_bytes = self.packs.entry(at.pack).or_default();
        *pack_bytes = end.max(*pack_bytes);
        let place = ChunkPlace { number, at, length_bytes, kind, digest };
        let known = Known { place, page_count, use_count: 0, is_to_be_left: false };
        self.chunks.insert(number, known);
        self.numbers.insert(digest, number);
    }

    pub(crate) fn number_of(&self, digest: &Digest) -> Option<ChunkNumber> {
        self.numbers.get(digest).copied()
    }

    fn get(&self, number: ChunkNumber) -> Option<&Known> {
        self.chunks.get(&number)
    }

    pub(crate) fn place(&self, number: ChunkNumber) -> Option<ChunkPlace> {
        self.get(number).map(|known| known.place)
    }

    pub(crate) fn has_page(&self, page: PageNumber) -> bool {
        self.get(page.chunk()).is_some_and(|chunk| page.index() < usize::from(chunk.page_count))
    }

    /// Returns whether a block in memory should be rewritten instead of referring to the chunk.
    pub(crate) fn is_to_be_left(&self, page: PageNumber) -> bool {
        self.get(page.chunk()).is_some_and(|chunk| chunk.is_to_be_left)
    }

    /// Returns whether the store has the complete pack, or the packs were not listed.
    pub(crate) fn has_pack(&self, pack: &PackRecord) -> bool {
        match &self.stored {
            Some(stored) => is_stored(stored, pack),
            None => true,
        }
    }

    /// Adds `count` references to the chunk by the image being saved.
    pub(crate) fn note_uses(&mut self, number: ChunkNumber, count: u64) {
        let known = self.chunks.get_mut(&number);
        known.expect("only known chunks are referred to").use_count += count;
    }

    /// Returns the tables of packs and chunks that the image being saved refers to.
    pub(crate) fn tables(&self) -> (Vec<PackRecord>, Vec<ChunkRecord>) {
        let mut used: Vec<_> = self.chunks.values().filter(|known| known.use_count > 0).collect();
        used.sort_unstable_by_key(|known| known.place.number);
        let mut names: Vec<PackName> = used.iter().map(|known| known.place.at.pack).collect();
        names.sort_unstable();
        names.dedup();
        let record = |&Known { place, page_count, use_count, .. }: &Known| {
            let pack = names.binary_search(&place.at.pack).expect("all packs of used chunks");
            ChunkRecord {
                number: place.number,
                kind: place.kind,
                digest: place.digest,
                pack: u32::try_from(pack).expect("packs are fewer than chunks"),
                offset_bytes: place.at.offset_bytes,
                length_bytes: place.length_bytes,
                page_count,
                use_count: u32::try_from(use_count).unwrap_or(u32::MAX),
            }
        };
        let chunks = used.into_iter().map(record).collect();
        let pack = |name: &PackName| PackRecord { name: *name, length_bytes: self.packs[name] };
        (names.iter().map(pack).collect(), chunks)
    }
}

/// Returns whether the stored packs include this one completely.
pub(crate) fn is_stored(stored: &HashMap<PackName, u64>, pack: &PackRecord) -> bool {
    stored.get(&pack.name).is_some_and(|&length_bytes| length_bytes >= pack.length_bytes)
}

/// Returns packs of which the image uses only a small part.
fn sparse_packs(manifest: &Manifest) -> Vec<PackName> {
    let mut used = vec![0; manifest.packs.len()];
    for chunk in &manifest.chunks {
        used[chunk.pack as usize] += used_bytes(chunk);
    }
    let is_sparse = |(pack, used): (&PackRecord, u64)| {
        (used < pack.length_bytes / SPARSE_SHARE).then_some(pack.name)
    };
    manifest.packs.iter().zip(used).filter_map(is_sparse).collect()
}

/// Returns an upper bound on the chunk's bytes in pages that blocks refer to.
fn used_bytes(chunk: &ChunkRecord) -> u64 {
    let (pages, used) = (u64::from(chunk.page_count), u64::from(chunk.use_count));
    let length = u64::from(chunk.length_bytes);
    (length * used.min(pages)).checked_div(pages).unwrap_or(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::chunk::ChunkKind;
    use crate::names::ImageId;

    fn built(letter: u8, page_count: u16) -> Built {
        Built { kind: ChunkKind::Pages, digest: [letter; 32], length_bytes: 40_960, page_count }
    }

    fn manifest(catalog: &Catalog) -> Manifest {
        let (packs, chunks) = catalog.tables();
        Manifest { packs, chunks, ..Manifest::fence(ImageId::new(1, 1), 100, &0.into()) }
    }

    const PACK: PackName = PackName { writer: 1, index: 0 };
    const AT: PackPlace = PackPlace { pack: PACK, offset_bytes: 0 };

    #[test]
    fn only_what_is_used_gets_into_the_tables() {
        let mut catalog = Catalog::default();
        catalog.add_built(ChunkNumber(1), &built(1, 9), AT);
        let other = PackName { index: 1, ..PACK };
        catalog.add_built(ChunkNumber(2), &built(2, 9), PackPlace { pack: other, ..AT });
        catalog.note_uses(ChunkNumber(2), 1);
        let (packs, chunks) = catalog.tables();
        assert_eq!(packs, [PackRecord { name: other, length_bytes: 40_960 }]);
        assert_eq!(chunks.len(), 1);
        assert_eq!((chunks[0].number, chunks[0].use_count), (ChunkNumber(2), 1));
    }

    #[test]
    fn a_chunk_is_found_by_digest_in_the_next_image_too() {
        let mut catalog = Catalog::default();
        catalog.add_built(ChunkNumber(1), &built(1, 1), AT);
        catalog.note_uses(ChunkNumber(1), 1);
        let mut next = Catalog::default();
        next.add_image(&manifest(&catalog));
        assert_eq!(next.number_of(&[1; 32]), Some(ChunkNumber(1)));
        assert!(next.has_page(ChunkNumber(1).page(0)));
        assert!(!next.has_page(ChunkNumber(1).page(1)));
        assert!(!next.has_page(ChunkNumber(2).page(0)));
    }

    #[test]
    fn what_is_in_a_missing_pack_is_neither_referred_to_nor_found_by_digest() {
        for (length_bytes, is_there) in [(40_960, true), (40_959, false), (0, false)] {
            let mut catalog = Catalog::default();
            catalog.add_built(ChunkNumber(1), &built(1, 1), AT);
            catalog.note_uses(ChunkNumber(1), 1);
            let mut next = Catalog::of([(PACK, length_bytes)]);
            next.add_image(&manifest(&catalog));
            assert!(next.has_page(ChunkNumber(1).page(0)), "it may come back");
            assert_eq!(next.is_to_be_left(ChunkNumber(1).page(0)), !is_there);
            assert_eq!(next.number_of(&[1; 32]).is_some(), is_there);
        }
    }

    #[test]
    fn a_pack_of_which_little_is_used_is_sparse() {
        let page = ChunkNumber(1).page(0);
        for (uses, is_sparse) in [(1, true), (2, true), (3, false), (9, false)] {
            let mut catalog = Catalog::default();
            catalog.add_built(ChunkNumber(1), &built(1, 9), AT);
            catalog.note_uses(ChunkNumber(1), uses);
            let mut next = Catalog::default();
            next.add_image(&manifest(&catalog));
            assert_eq!(next.is_to_be_left(page), is_sparse, "{uses} of 9 pages");
            assert_eq!(next.number_of(&[1; 32]).is_some(), !is_sparse);
        }
    }
}
