//! Updating of maps from one image to another. Blocks that are equal in both are kept, so that only
//! changes are fetched.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use volumes::{BlockView, FilledBlock, ImageBase, VolumeErrorKind, VolumeMap};

use crate::error::{ImageError, ImageErrorKind};
use crate::format::manifest::PartRecord;
use crate::format::part::{BlockRef, LEAF_BLOCKS, PART_LEAVES, Part, part_of};
use crate::kept_maps::{ChangedParts, KeptMaps};
use crate::open_image::OpenImage;

/// Known contents of a map.
#[derive(Clone, Copy, Debug)]
pub enum Held<'it> {
    /// Unknown. All blocks are absent afterwards.
    Unknown,
    /// The contents of this volume in this image.
    Other(&'it OpenImage, usize),
    /// Same, except for blocks that have changed since (unsaved blocks).
    Saved(&'it OpenImage, usize),
    /// The desired contents already, from an image that may use other page numbers, or `None` if
    /// the image is unknown.
    Same(Option<(&'it OpenImage, usize)>),
}

/// Update of several maps to an image.
#[derive(Debug)]
pub struct Refill<'it> {
    pub image: &'it OpenImage,
    pub maps: &'it mut KeptMaps,
    /// Parts that may have absent blocks. Changed parts are added.
    pub changed: &'it mut ChangedParts,
}

impl Refill<'_> {
    /// Updates a map to the contents of volume `index` of the image. Blocks with other contents
    /// become absent. Equal blocks are kept. The image becomes the map's base. After a failure or
    /// kill the map has no base and its contents are unknown. The caller sets the map's size, and
    /// must exclude concurrent changes of the map.
    pub fn refill(
        &mut self,
        index: usize,
        map: &VolumeMap,
        held: Held<'_>,
    ) -> Result<(), ImageError> {
        let record = &self.image.volumes()[index];
        let fail = |error| pool_error(&record.name, error);
        map.set_image_base(None);
        let held = self.comparable(held);
        let new = by_number(self.image.parts_of(index));
        let old = match held {
            Held::Other(image, index)
            | Held::Saved(image, index)
            | Held::Same(Some((image, index))) => by_number(image.parts_of(index)),
            Held::Unknown | Held::Same(None) => BTreeMap::new(),
        };
        let mut numbers: BTreeSet<u32> = new.keys().chain(old.keys()).copied().collect();
        if let Held::Unknown | Held::Same(None) | Held::Saved(..) = held {
            numbers.extend(parts_with_leaves(map));
        }
        let may_be_unsaved = matches!(held, Held::Saved(..));
        for number in numbers {
            let (was, now) = (old.get(&number), new.get(&number));
            let is_equal = was.is_some() && was.map(|it| it.chunk) == now.map(|it| it.chunk);
            if is_equal && !may_be_unsaved {
                continue;
            }
            let old = self.old_part(held, was);
            let new = match now {
                Some(record) => self.maps.part(self.image, record)?,
                None => Arc::default(),
            };
            self.changed.add(record.id, number);
            let is_same = matches!(held, Held::Same(_));
            let change = PartChange { old, new, is_same, may_be_unsaved };
            fill_part(map, number, change).map_err(fail)?;
        }
        let base = ImageBase { image: self.image.id().word(), volume_id: record.id };
        map.set_image_base(Some(base));
        Ok(())
    }

    /// Chunk numbers are comparable only within one store.
    fn comparable<'held>(&self, held: Held<'held>) -> Held<'held> {
        let is_of_store = |image: &OpenImage| image.id().salt() == self.image.id().salt();
        match held {
            Held::Other(image, _) | Held::Saved(image, _) if !is_of_store(image) => Held::Unknown,
            Held::Same(Some((image, _))) if !is_of_store(image) => Held::Same(None),
            held => held,
        }
    }

    /// Returns the map part that the map holds, or `None` if unknown or unreadable.
    fn old_part(&mut self, held: Held<'_>, record: Option<&PartRecord>) -> Option<Arc<Part>> {
        match (held, record) {
            (Held::Unknown | Held::Same(_), _) => None,
            (Held::Other(..) | Held::Saved(..), None) => Some(Arc::default()),
            (Held::Other(image, _) | Held::Saved(image, _), Some(record)) => {
                self.maps.part(image, record).ok()
            }
        }
    }
}

/// Old contents of a map part, if known, and new ones.
struct PartChange {
    old: Option<Arc<Part>>,
    new: Arc<Part>,
    /// Set if all blocks that are not absent already have the desired contents.
    is_same: bool,
    /// Set if blocks may differ from the old contents. These are not clean pages.
    may_be_unsaved: bool,
}

fn fill_part(map: &VolumeMap, number: u32, change: PartChange) -> Result<(), volumes::VolumeError> {
    let mut leaves: BTreeSet<u64> = change.new.leaves().collect();
    leaves.extend(change.old.iter().flat_map(|old| old.leaves()));
    if change.old.is_none() || change.may_be_unsaved {
        leaves.extend(leaves_in(map, number));
    }
    for leaf in leaves {
        let now = change.new.refs(leaf);
        let was = change.old.as_ref().map(|old| old.refs(leaf));
        let states = change.may_be_unsaved.then(|| states_of(map, leaf));
        if was.as_ref() == Some(&now) && states.is_none() {
            continue;
        }
        let is_clean = |index: usize| states.is_none_or(|states| is_clean_page(states[index]));
        let is_kept = |index: usize| {
            change.is_same || was.is_some_and(|was| was[index] == now[index]) && is_clean(index)
        };
        let filled = |(index, block): (usize, &BlockRef)| match *block {
            BlockRef::Hole => FilledBlock::Hole,
            BlockRef::Fill(pattern) => FilledBlock::Fill(pattern),
            BlockRef::Page(page) if is_kept(index) => FilledBlock::Kept(page.get()),
            BlockRef::Page(page) => FilledBlock::Absent(page.get()),
            BlockRef::Damaged => FilledBlock::Damaged,
        };
        let blocks: Vec<FilledBlock> = now.iter().enumerate().map(filled).collect();
        // A leaf that another map shares stays shared if nothing changes.
        if !states.is_some_and(|states| is_already(&states, &blocks)) {
            map.fill_leaf(leaf, &blocks)?;
        }
    }
    Ok(())
}

fn states_of(map: &VolumeMap, leaf: u64) -> [BlockView; LEAF_BLOCKS] {
    let mut states = [BlockView::Hole; LEAF_BLOCKS];
    map.view_leaf(leaf, &mut states);
    states
}

fn is_clean_page(state: BlockView) -> bool {
    matches!(state, BlockView::Page { is_unsaved: false, .. })
}

/// Returns whether filling a leaf would change no block.
fn is_already(states: &[BlockView; LEAF_BLOCKS], blocks: &[FilledBlock]) -> bool {
    states.iter().zip(blocks).all(|(state, block)| match (*state, *block) {
        (BlockView::Hole, FilledBlock::Hole)
        | (BlockView::Damaged, FilledBlock::Damaged)
        | (BlockView::Page { .. }, FilledBlock::Kept(_)) => true,
        (BlockView::Fill(has), FilledBlock::Fill(wanted)) => has == wanted,
        (BlockView::Absent(has), FilledBlock::Absent(wanted)) => has == wanted,
        _ => false,
    })
}

fn by_number(parts: &[PartRecord]) -> BTreeMap<u32, PartRecord> {
    parts.iter().map(|record| (record.part, *record)).collect()
}

fn leaves_in(map: &VolumeMap, part: u32) -> Vec<u64> {
    let first = u64::from(part) * PART_LEAVES;
    let next = |leaf: u64| map.next_leaf(leaf).filter(|leaf| *leaf < first + PART_LEAVES);
    std::iter::successors(next(first), |leaf| next(leaf + 1)).collect()
}

fn parts_with_leaves(map: &VolumeMap) -> Vec<u32> {
    let part = |leaf: u64| u32::try_from(part_of(leaf)).expect("parts of volumes are few");
    let first_leaf = map.next_leaf(0);
    let next = |leaf: &u64| map.next_leaf((part_of(*leaf) + 1) * PART_LEAVES);
    std::iter::successors(first_leaf, next).map(part).collect()
}

fn pool_error(name: &str, error: volumes::VolumeError) -> ImageError {
    let kind = match error.kind {
        VolumeErrorKind::NoSpace => ImageErrorKind::PoolFull,
        _ => ImageErrorKind::Invalid,
    };
    ImageError::new(kind, format!("bring volume {name} to another image")).with_source(error)
}
