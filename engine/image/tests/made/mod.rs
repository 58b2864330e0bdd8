//! Test volumes in memory, for saving and comparison.
#![allow(dead_code, reason = "each file of tests uses a part of it")]

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;

use block_device::SectorSize;
use codec::{BLOCK_BYTES, Block, Encoder};
use image::{
    BlockPlace, BlockRef, ChunkNumber, ClaimedStore, DamagedChunk, FolderStore, ImageError,
    ImageId, ImageStore, ImageVolume, ImageVolumeKind, JournalPosition, LEAF_BLOCKS, LeafSource,
    OpenImage, PageNumber, RestoreTarget, SaveOptions, Saved, SourceVolume, Unwatched,
};
use powercut::Disk;
use volumes::{
    BlockView, CapacityClass, Durability, ImageBase, Reduction, SetId, StoredBytes, VolumeMirror,
};

pub(crate) const SET: SetId = [0xED, 0xFE, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
pub(crate) const WRITER: u128 = 0x1234_5678_9ABC_DEF0;

/// Contents of a block of a test volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contents {
    Fill(u32),
    /// Incompressible bytes of this seed.
    Noise(u64),
    /// Compressible bytes of this seed.
    Text(u64),
    Damaged,
    Absent(PageNumber),
}

impl Contents {
    pub(crate) fn bytes(self) -> Block {
        let mut block = [0; BLOCK_BYTES];
        match self {
            Self::Fill(pattern) => codec::write_fill(pattern, &mut block),
            Self::Noise(seed) => {
                let mut noise = blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof();
                noise.fill(&mut block);
            }
            Self::Text(seed) => {
                for (place, piece) in block.chunks_exact_mut(16).enumerate() {
                    let text = format!("{seed:08}-{:07}", place % 9);
                    piece.copy_from_slice(text.as_bytes());
                }
            }
            Self::Damaged | Self::Absent(_) => panic!("its contents are not known"),
        }
        block
    }
}

#[derive(Clone, Copy, Debug)]
struct MadeBlock {
    contents: Contents,
    is_unsaved: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct MadeVolume {
    pub(crate) source: SourceVolume,
    blocks: BTreeMap<u64, MadeBlock>,
}

/// Volumes that can be written and saved, with a record of their contents.
#[derive(Clone, Debug, Default)]
pub(crate) struct Made {
    pub(crate) volumes: Vec<MadeVolume>,
    pub(crate) fetched_from: Option<ImageId>,
    pub(crate) damaged_there: Vec<ChunkNumber>,
}

pub(crate) fn image_volume(id: u64, name: &str, size_bytes: u64) -> ImageVolume {
    ImageVolume {
        name: name.into(),
        id,
        origin: 0,
        created_seconds: 1_700_000_000,
        size_bytes,
        sector: SectorSize::Bytes4096,
        reduction: Reduction::Full,
        durability: Durability::Image,
        capacity: CapacityClass::Thin,
        kind: ImageVolumeKind::Volume,
        mirror: VolumeMirror::Yes,
    }
}

pub(crate) fn options() -> SaveOptions {
    SaveOptions {
        set_id: SET,
        created_seconds: 1_700_000_100,
        journal: JournalPosition { epoch: 3, sequence: 14 },
        label: String::new(),
        bytes_a_second_max: None,
    }
}

impl Made {
    /// Creates one volume `data` of this size.
    pub(crate) fn one(size_bytes: u64) -> Self {
        let mut made = Self::default();
        made.add(image_volume(1, "data", size_bytes));
        made
    }

    pub(crate) fn add(&mut self, volume: ImageVolume) -> usize {
        let source = SourceVolume { volume, base: None };
        self.volumes.push(MadeVolume { source, blocks: BTreeMap::new() });
        self.volumes.len() - 1
    }

    pub(crate) fn write(&mut self, volume: usize, block: u64, contents: Contents) {
        let made = MadeBlock { contents, is_unsaved: true };
        self.volumes[volume].blocks.insert(block, made);
    }

    pub(crate) fn discard(&mut self, volume: usize, block: u64) {
        self.volumes[volume].blocks.remove(&block);
    }

    pub(crate) fn contents(&self, volume: usize, block: u64) -> Contents {
        self.volumes[volume].blocks[&block].contents
    }

    /// Marks the block as unchanged since the base image.
    pub(crate) fn mark_in_base(&mut self, volume: usize, block: u64) {
        let made = self.volumes[volume].blocks.get_mut(&block).expect("it was written");
        made.is_unsaved = false;
    }

    /// Records that an image became durable, as its owner does.
    pub(crate) fn settle(&mut self, id: ImageId) {
        for volume in &mut self.volumes {
            let volume_id = volume.source.volume.id;
            volume.source.base = Some(ImageBase { image: id.word(), volume_id });
            volume.blocks.values_mut().for_each(|block| block.is_unsaved = false);
        }
    }

    /// Saves an image and records it as durable.
    pub(crate) fn save(&mut self, store: &mut ClaimedStore) -> Saved {
        let saved = store.save(&*self, &options(), &Unwatched).expect("the store is sound");
        self.settle(saved.id);
        saved
    }

    /// Compares an image with the expected contents.
    #[track_caller]
    pub(crate) fn check(&self, image: &OpenImage) {
        let names = |volumes: &[ImageVolume]| volumes.to_vec();
        let own: Vec<_> = self.volumes.iter().map(|made| made.source.volume.clone()).collect();
        assert_eq!(names(image.volumes()), own);
        for (index, made) in self.volumes.iter().enumerate() {
            let found = all_refs(image, index);
            let own: Vec<u64> = made.blocks.keys().copied().collect();
            assert_eq!(found.keys().copied().collect::<Vec<_>>(), own, "blocks of volume {index}");
            for (block, found) in found {
                check_block(image, made.blocks[&block].contents, found);
            }
        }
    }
}

fn check_block(image: &OpenImage, expected: Contents, found: BlockRef) {
    match (expected, found) {
        (Contents::Damaged, found) => assert_eq!(found, BlockRef::Damaged),
        (Contents::Absent(page), found) => assert_eq!(found, BlockRef::Page(page)),
        (Contents::Fill(pattern), found) => assert_eq!(found, BlockRef::Fill(pattern)),
        (contents, BlockRef::Page(page)) => {
            let mut bytes = [0; BLOCK_BYTES];
            image.fetch(page, &mut bytes).expect("the image is sound");
            assert!(bytes == contents.bytes(), "page {page:?} is not {contents:?}");
        }
        (contents, found) => panic!("{contents:?} became {found:?}"),
    }
}

/// Returns references of all blocks that are not holes.
pub(crate) fn all_refs(image: &OpenImage, volume: usize) -> BTreeMap<u64, BlockRef> {
    let mut all = BTreeMap::new();
    let read = image.leaves(volume, &mut |leaf, refs| {
        let blocks = (leaf * 512..).zip(refs.iter().copied());
        all.extend(blocks.filter(|(_, found)| *found != BlockRef::Hole));
        ControlFlow::Continue(())
    });
    read.expect("the map is sound");
    all
}

impl LeafSource for Made {
    fn volumes(&self) -> Vec<SourceVolume> {
        self.volumes.iter().map(|made| made.source.clone()).collect()
    }

    fn fetched_from(&self) -> Option<ImageId> {
        self.fetched_from
    }

    fn is_damaged_there(&self, chunk: ChunkNumber) -> bool {
        self.damaged_there.contains(&chunk)
    }

    fn content_bytes(&self) -> u64 {
        self.volumes.iter().map(|made| made.blocks.len() as u64 * 4096).sum()
    }

    fn next_leaf(&self, volume: usize, from: u64) -> Option<u64> {
        let (block, _) = self.volumes[volume].blocks.range(from * 512..).next()?;
        Some(block / 512)
    }

    fn states(&self, volume: usize, leaf: u64, into: &mut [BlockView; LEAF_BLOCKS]) {
        into.fill(BlockView::Hole);
        let blocks = &self.volumes[volume].blocks;
        let mut seen: HashMap<u64, u32> = HashMap::new();
        for volume in &self.volumes {
            for made in volume.blocks.values() {
                if let Contents::Noise(seed) | Contents::Text(seed) = made.contents {
                    *seen.entry(seed).or_default() += 1;
                }
            }
        }
        for (block, made) in blocks.range(leaf * 512..(leaf + 1) * 512) {
            into[place_in_leaf(*block)] = match made.contents {
                Contents::Fill(pattern) => BlockView::Fill(pattern),
                Contents::Noise(seed) | Contents::Text(seed) => {
                    BlockView::Page { is_unsaved: made.is_unsaved, is_shared: seen[&seed] > 1 }
                }
                Contents::Damaged => BlockView::Damaged,
                Contents::Absent(page) => BlockView::Absent(page.get()),
            };
        }
    }

    fn read(
        &self,
        volume: usize,
        leaf: u64,
        wanted: &[u16],
        give: &mut dyn FnMut(u16, StoredBytes<'_>),
    ) {
        let mut encoder = Encoder::new();
        for &place in wanted {
            let made = &self.volumes[volume].blocks[&(leaf * 512 + u64::from(place))];
            let bytes = made.contents.bytes();
            match encoder.encode(&bytes, 3600) {
                Some(encoded) => give(place, StoredBytes::Encoded(encoded)),
                None => give(place, StoredBytes::Raw(&bytes)),
            }
        }
    }
}

fn place_in_leaf(block: u64) -> usize {
    usize::try_from(block % 512).expect("small")
}

/// Creates a store on a simulated disk.
pub(crate) fn store_on(disk: &Disk) -> Arc<dyn ImageStore> {
    Arc::new(FolderStore::new(&*disk.folder()).expect("the disk is sound"))
}

pub(crate) fn disk() -> Disk {
    Disk::new(1 << 30)
}

pub(crate) fn claim(store: &Arc<dyn ImageStore>) -> ClaimedStore {
    // Every claim takes a number, so writer ids in a store are unique.
    let images = store.images().expect("the store can be read");
    let writer = WRITER + images.last().map_or(0, |(number, _)| u128::from(*number));
    ClaimedStore::claim(Arc::clone(store), writer).expect("there is no other writer")
}

pub(crate) fn open(store: &Arc<dyn ImageStore>, id: ImageId) -> OpenImage {
    OpenImage::open(Arc::clone(store), id.number()).expect("the image is whole")
}

/// Opens the newest intact image.
pub(crate) fn newest(store: &Arc<dyn ImageStore>) -> Option<OpenImage> {
    OpenImage::open_newest(Arc::clone(store), &mut |_, _| {}).expect("the store can be read")
}

/// Collects restored pages.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    pub(crate) blocks: BTreeMap<(u32, u64), Block>,
    pub(crate) unwanted: Vec<BlockPlace>,
    pub(crate) damaged: Vec<DamagedChunk>,
}

impl RestoreTarget for Collected {
    fn is_wanted(&mut self, block: BlockPlace, _page: PageNumber) -> bool {
        !self.unwanted.contains(&block)
    }

    fn place(
        &mut self,
        _page: PageNumber,
        blocks: &[BlockPlace],
        contents: StoredBytes<'_>,
    ) -> Result<(), ImageError> {
        let mut bytes = [0; BLOCK_BYTES];
        match contents {
            StoredBytes::Raw(raw) => bytes = *raw,
            StoredBytes::Encoded(encoded) => {
                codec::decode(encoded, &mut bytes).expect("an encoding")
            }
        }
        for place in blocks {
            let before = self.blocks.insert((place.volume, place.block), bytes);
            assert!(before.is_none(), "{place:?} is given once");
        }
        Ok(())
    }

    fn leave(&mut self, chunk: DamagedChunk) {
        self.damaged.push(chunk);
    }
}
