//! Tests of images with the maximum number of durable volumes and snapshots.

#[path = "support/mod.rs"]
mod support;

use block_device::BlockDevice;
use support::{BLOCK, Fixture, long_noise, noise, read};
use volumes::{DURABLE_COUNT_MAX, Durability, VolumeErrorKind, VolumeSpec};

/// Creates a volume with snapshots `at-0` and so on, until the journal's table is full. Returns the
/// number of snapshots.
fn fill_table(fixture: &Fixture) -> u64 {
    let volume = fixture.create("one", Durability::Journal);
    fixture.save();
    for number in 0.. {
        volume.write(number % 16 * BLOCK, &long_noise(number)).expect("there is room");
        let name = format!("at-{number}").parse().expect("a good name");
        if let Err(error) = fixture.engine.create_snapshots(&["one"], &name, 1) {
            assert_eq!(error.kind, VolumeErrorKind::TooManyDurable);
            return number;
        }
    }
    unreachable!("the table fills")
}

fn check(fixture: &Fixture, snapshots: u64) {
    for number in 0..snapshots {
        let snapshot = fixture.volume(&format!("one@at-{number}"));
        let found = read(&snapshot, number % 16).expect("the store is there");
        assert!(found == long_noise(number), "snapshot {number}");
    }
}

/// Checks that nothing else can become durable, and that other operations work.
fn check_refused(fixture: &Fixture) {
    let engine = &fixture.engine;
    let spec = |name: &str| VolumeSpec::new(name.parse().expect("a good name"), BLOCK);
    engine.create_volume(spec("ram")).expect("there are places");
    let image = VolumeSpec { durability: Durability::Image, ..spec("image") };
    let name = "clone".parse().expect("a good name");
    for refused in [
        engine.create_volume(image).map(drop),
        engine.set_durability("ram", Durability::Journal),
        engine.clone_volume("one@at-3", name).map(drop),
    ] {
        let error = refused.expect_err("there are as many as may be");
        assert_eq!(error.kind, VolumeErrorKind::TooManyDurable, "{error}");
    }
    engine.delete_volume("ram").expect("it is there");
}

#[test]
fn an_image_of_a_full_table_is_saved_and_restored() {
    let mut fixture = Fixture::of(96 << 20);
    let snapshots = fill_table(&fixture);
    assert_eq!(snapshots, DURABLE_COUNT_MAX as u64 - 1);
    check_refused(&fixture);
    let all = fixture.engine.snapshots();
    fixture.save();
    assert!(all.iter().all(|it| it.map().unsaved_blocks() == 0), "all is in the image");
    // Later writes go to the journal and into a second image.
    let volume = fixture.volume("one");
    volume.write(20 * BLOCK, &noise(1)).expect("there is room");
    fixture.flush_with_images(&volume);
    fixture.save();
    volume.write(21 * BLOCK, &noise(2)).expect("there is room");
    fixture.flush_with_images(&volume);
    drop((volume, all));
    fixture.lose_memory();
    check(&fixture, snapshots);
    for (block, number) in [(20, 1), (21, 2)] {
        let found = read(&fixture.volume("one"), block).expect("the store is there");
        assert!(found == noise(number), "block {block}");
    }
    fixture.save();
    fixture.kill();
    check(&fixture, snapshots);
}
