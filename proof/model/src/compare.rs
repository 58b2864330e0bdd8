//! Comparison of a device with models.

use std::collections::BTreeSet;

use block_device::{BLOCK_BYTES, BlockDevice, ByteRange, ExtentKind};

use crate::Block;
use crate::volume::ModelVolume;

/// Number of extents in one request.
const EXTENTS_A_CALL: usize = 1024;

/// Returns the contents of a block of a device, or `None` for a hole.
pub fn observe(device: &dyn BlockDevice, block: u64) -> Option<Block> {
    let start = block * BLOCK_BYTES as u64;
    let range = ByteRange::new(start, BLOCK_BYTES as u64);
    let extents = device.extents(range, 2).expect("the block's extents are listed");
    assert_eq!(extents.len(), 1, "a block is of one kind");
    let mut contents = [0xEE; BLOCK_BYTES];
    device.read(start, &mut contents).expect("the block is read");
    let is_zero = contents == [0; BLOCK_BYTES];
    match extents[0].kind {
        ExtentKind::Hole => {
            assert!(is_zero, "the hole at block {block} reads as zeros");
            None
        }
        ExtentKind::Zero => {
            assert!(is_zero, "the zeros at block {block} read as zeros");
            Some(contents)
        }
        ExtentKind::Data => Some(contents),
    }
}

/// Fails unless the device equals the model: same size, same bytes, same holes.
#[track_caller]
pub fn check_same(device: &dyn BlockDevice, model: &ModelVolume) {
    assert_eq!(device.geometry().size_bytes, model.geometry().size_bytes, "the size");
    for block in all_blocks(device, &[model]) {
        check_same_block(device, model, block);
    }
}

/// Returns whether the device equals the model.
pub fn is_same(device: &dyn BlockDevice, model: &ModelVolume) -> bool {
    device.geometry().size_bytes == model.geometry().size_bytes
        && all_blocks(device, &[model])
            .into_iter()
            .all(|block| observe(device, block) == model.block(block))
}

/// Fails unless one block of the device equals that of the model.
#[track_caller]
pub fn check_same_block(device: &dyn BlockDevice, model: &ModelVolume, block: u64) {
    let (found, expected) = (observe(device, block), model.block(block));
    assert!(found == expected, "block {block}: {}", describe(found, &[expected]));
}

/// Fails unless each block of the device equals that of one of two models.
#[track_caller]
pub fn check_old_or_new(device: &dyn BlockDevice, old: &ModelVolume, new: &ModelVolume) {
    for block in all_blocks(device, &[old, new]) {
        let found = observe(device, block);
        let (old, new) = (old.block(block), new.block(block));
        assert!(found == old || found == new, "block {block}: {}", describe(found, &[old, new]));
    }
}

/// Returns the blocks with contents in the device or in a model.
fn all_blocks(device: &dyn BlockDevice, models: &[&ModelVolume]) -> BTreeSet<u64> {
    let size_bytes = device.geometry().size_bytes;
    let mut blocks: BTreeSet<u64> =
        models.iter().flat_map(|model| model.written_blocks()).collect();
    blocks.retain(|&block| block < size_bytes / BLOCK_BYTES as u64);
    let mut at = 0;
    while at < size_bytes {
        let range = ByteRange::new(at, size_bytes - at);
        let extents = device.extents(range, EXTENTS_A_CALL).expect("extents are listed");
        assert!(!extents.is_empty(), "a range that is not empty has extents");
        for extent in extents {
            assert_eq!(extent.range.start, at, "extents follow each other");
            at += extent.range.length;
            if extent.kind != ExtentKind::Hole {
                blocks.extend(extent.range.start / 4096..at.div_ceil(4096));
            }
        }
    }
    blocks
}

fn describe(found: Option<Block>, expected: &[Option<Block>]) -> String {
    let one = |block: &Option<Block>| match block {
        None => "a hole".to_owned(),
        Some(block) => format!("{:02x?}…", &block[..8]),
    };
    let expected: Vec<_> = expected.iter().map(one).collect();
    format!("{} instead of {}", one(&found), expected.join(" or "))
}
