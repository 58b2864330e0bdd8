//! Tests that saves and restores preserve sharing between maps.

#[path = "support/mod.rs"]
mod support;

use std::sync::Arc;

use block_device::BlockDevice;
use support::{BLOCK, Fixture, long_noise, noise, read};
use volumes::{Durability, Reduction, Volume, VolumeSpec};

const LEAF_BYTES: u64 = 2 << 20;
const LEAVES: u64 = 512;
const SNAPSHOTS: u64 = 20;

/// Creates a volume with a block in each leaf.
fn sparse(fixture: &Fixture, durability: Durability, reduction: Reduction) -> Arc<Volume> {
    let name = "sparse".parse().expect("a good name");
    let spec = VolumeSpec { durability, reduction, ..VolumeSpec::new(name, LEAVES * LEAF_BYTES) };
    let volume = fixture.engine.create_volume(spec).expect("there is room");
    for leaf in 0..LEAVES {
        volume.write(leaf * LEAF_BYTES, &long_noise(leaf)).expect("there is room");
    }
    volume
}

fn snapshot(fixture: &Fixture, name: &str) {
    let name = name.parse().expect("a good name");
    fixture.engine.create_snapshots(&["sparse"], &name, 1).expect("there is room");
}

/// Creates snapshots, each with one block of its own.
fn take_snapshots(fixture: &Fixture, volume: &Volume) {
    for number in 0..SNAPSHOTS {
        snapshot(fixture, &format!("at-{number}"));
        let own = number * LEAF_BYTES + BLOCK;
        volume.write(own, &long_noise(10_000 + number)).expect("there is room");
    }
}

fn map_bytes(fixture: &Fixture) -> u64 {
    while fixture.engine.maintain() {}
    fixture.engine.usage().map_bytes
}

fn assert_kept(before: u64, after: u64, what: &str) {
    assert!(after <= before + before / 10, "{what}: {after} bytes where there were {before}");
}

fn check_sharing(durability: Durability, reduction: Reduction) {
    let mut fixture = Fixture::new();
    let volume = sparse(&fixture, durability, reduction);
    take_snapshots(&fixture, &volume);
    let before = map_bytes(&fixture);
    let pages_before = fixture.engine.usage().page_count;
    fixture.save();
    assert_kept(before, map_bytes(&fixture), "maps after a save");
    let unsaved = volume.map().unsaved_blocks();
    assert_eq!(unsaved, 0, "all is in the image");
    volume.write(5 * LEAF_BYTES, &noise(9)).expect("there is room");
    let second = fixture.save();
    assert!(second.pages_written <= 1, "what the first image has is not written again: {second:?}");
    drop(volume);
    fixture.lose_memory();
    assert_kept(before, map_bytes(&fixture), "restored maps");
    let all = fixture.engine.volumes().into_iter().chain(fixture.engine.snapshots());
    for volume in all.collect::<Vec<_>>() {
        for leaf in 0..LEAVES {
            let wanted = match (leaf, volume.is_snapshot()) {
                (5, false) => noise(9),
                _ => long_noise(leaf),
            };
            assert!(read(&volume, leaf * 512).expect("the store is there") == wanted);
        }
    }
    assert_kept(before, map_bytes(&fixture), "maps that were fetched for");
    let pages = fixture.engine.usage().page_count;
    assert!(pages <= pages_before + 1, "{pages} pages where there were {pages_before}");
}

#[test]
fn snapshots_share_their_maps_after_a_save_and_a_restore() {
    check_sharing(Durability::Image, Reduction::Full);
    check_sharing(Durability::Image, Reduction::None);
    check_sharing(Durability::Journal, Reduction::Compress);
}
