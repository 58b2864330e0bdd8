//! Images of as many volumes and snapshots as a pool can have.

#[path = "support/mod.rs"]
mod support;

use block_device::BlockDevice;
use support::{BLOCK, House, long_noise, noise, read};
use volumes::{Durability, VolumeErrorKind};

/// A volume that is written between snapshots, `at-0` and so on, until the table is full. Returns
/// how many snapshots there are.
fn fill_table(house: &House) -> u64 {
    let volume = house.create("one", Durability::Journal);
    house.save();
    for number in 0.. {
        volume.write(number % 16 * BLOCK, &long_noise(number)).expect("there is room");
        let name = format!("at-{number}").parse().expect("a good name");
        if let Err(error) = house.engine.create_snapshots(&["one"], &name, 1) {
            assert_eq!(error.kind, VolumeErrorKind::TooManyVolumes);
            return number;
        }
    }
    unreachable!("the table fills")
}

fn check(house: &House, snapshots: u64) {
    for number in 0..snapshots {
        let snapshot = house.volume(&format!("one@at-{number}"));
        let found = read(&snapshot, number % 16).expect("the store is there");
        assert!(found == long_noise(number), "snapshot {number}");
    }
}

#[test]
fn an_image_of_a_full_table_is_saved_and_restored() {
    let mut house = House::new();
    let snapshots = fill_table(&house);
    assert!(snapshots > 1000, "{snapshots} snapshots");
    let all = house.engine.snapshots();
    house.save();
    assert!(all.iter().all(|it| it.map().unsaved_blocks() == 0), "all is in the image");
    // What follows goes to the journal, and into a second image.
    let volume = house.volume("one");
    volume.write(20 * BLOCK, &noise(1)).expect("there is room");
    house.flush_with_images(&volume);
    house.save();
    volume.write(21 * BLOCK, &noise(2)).expect("there is room");
    house.flush_with_images(&volume);
    drop((volume, all));
    house.lose_memory();
    check(&house, snapshots);
    for (block, number) in [(20, 1), (21, 2)] {
        let found = read(&house.volume("one"), block).expect("the store is there");
        assert!(found == noise(number), "block {block}");
    }
    house.save();
    house.kill();
    check(&house, snapshots);
}
