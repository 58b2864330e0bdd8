//! The volume table after runs that were killed while it was changed.

use crate::support::{Ended, Points, PoolFile, Scenario, create, delete, operate, snapshot, write};
use block_device::SectorSize;
use model::Texture;
use region::CrashPoints;
use volumes::{Engine, VolumeSpec};

/// Number of volumes that exceeds the room of a table without additional slabs.
const VOLUMES_MAX: usize = 2_000;

/// Returns the number of volumes that fit before the table takes a slab.
fn room(engine: &Engine) -> usize {
    let table_bytes = engine.usage().table_bytes;
    for count in 0..VOLUMES_MAX {
        let spec = VolumeSpec {
            sector: SectorSize::Bytes4096,
            ..VolumeSpec::new(format!("v{count}").parse().expect("a good name"), 4096)
        };
        engine.create_volume(spec).expect("there is memory");
        if engine.usage().table_bytes > table_bytes {
            return count;
        }
    }
    panic!("the table never fills");
}

#[test]
fn no_place_in_the_table_is_lost_by_creating_and_deleting() {
    let file = PoolFile::new(4 << 20);
    let whole = room(&file.open());
    let fresh = PoolFile::new(4 << 20);
    drop(fresh.open());
    let base = fresh.save();
    for end in 0.. {
        fresh.restore(&base);
        let points = CrashPoints::after(end);
        let ended = fresh.run(|| {
            let open = || fresh.open_until(&points);
            let mut engine = open();
            for operation in [create(0, 1 << 20), write(0, 0, 2, Texture::Noise), delete(0)] {
                (engine, _) = operate(engine, &operation, &open);
            }
        });
        let engine = fresh.open();
        let there = engine.volumes().len();
        assert_eq!(room(&engine) + there, whole, "ended before store {end}");
        if ended == Ended::Completed {
            return;
        }
    }
}

#[test]
fn a_table_slab_is_added_as_a_whole_or_not_at_all() {
    let act = [
        create(0, 1 << 20),
        write(0, 0, 2, Texture::Noise),
        create(1, 1 << 20),
        write(1, 1, 2, Texture::Text),
        snapshot([0, 1], 0),
        write(0, 1, 1, Texture::Noise),
        delete(1),
    ];
    let scenario = Scenario { name: "table slab", pool_bytes: 4 << 20, prepare: &[], act: &act };
    scenario.explore_in_table_slabs(Points::Every { double_one_in: 5 });
}

#[test]
fn volumes_in_table_slabs_survive_every_end() {
    let prepare = [create(0, 1 << 20), write(0, 0, 8, Texture::Noise), create(1, 2 << 20)];
    let act = [
        snapshot([0, 1], 0),
        write(0, 2, 3, Texture::Text),
        delete(1),
        create(2, 1 << 20),
        write(2, 0, 1, Texture::Noise),
    ];
    let scenario =
        Scenario { name: "in table slabs", pool_bytes: 4 << 20, prepare: &prepare, act: &act };
    scenario.explore_in_table_slabs(Points::Every { double_one_in: 10 });
}

/// The second name of a table slab, as stored in the region.
const TABLE_SECOND_NAME: [u8; 8] = 0x4D45_4D53_4CC3_0000_u64.to_le_bytes();

/// Returns the state after a kill at which a table slab has only its second name, and the bytes of
/// the tables then.
fn half_named(file: &PoolFile) -> (Vec<u8>, u64) {
    drop(file.open());
    file.take_front_places();
    let (base, before) = (file.save(), file.open().usage().table_bytes);
    for end in 0.. {
        file.restore(&base);
        let points = CrashPoints::after(end);
        let ended = file.run(|| {
            let open = || file.open_until(&points);
            operate(open(), &create(0, 1 << 20), &open);
        });
        assert_eq!(ended, Ended::Killed, "it has it alone before it has both");
        let left = file.save();
        if left.as_chunks().0.contains(&TABLE_SECOND_NAME)
            && file.open().usage().table_bytes == before
        {
            return (left, before);
        }
    }
    unreachable!("each run stores more")
}

#[test]
fn what_a_kill_kept_from_being_a_table_slab_is_none_later() {
    let file = PoolFile::new(4 << 20);
    let (left, table_bytes) = half_named(&file);
    for end in 0.. {
        file.restore(&left);
        file.free_front_place();
        let points = CrashPoints::after(end);
        let ended = file.run(|| {
            let open = || file.open_until(&points);
            let mut engine = open();
            for operation in [create(0, 1 << 20), write(0, 0, 8, Texture::Noise)] {
                (engine, _) = operate(engine, &operation, &open);
            }
        });
        let engine = file.open();
        assert_eq!(engine.usage().table_bytes, table_bytes, "ended before store {end}");
        if ended == Ended::Completed {
            return;
        }
    }
}
