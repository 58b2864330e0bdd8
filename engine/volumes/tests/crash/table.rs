//! The volume table after runs that ended while it was changed.

use crate::support::{Ended, PoolFile, create, delete, operate, write};
use block_device::SectorSize;
use model::Texture;
use region::CrashPoints;
use volumes::{Engine, VolumeErrorKind, VolumeSpec};

/// More volumes than any table has room for.
const VOLUMES_MAX: usize = 100_000;

/// Volumes that can be made until the table is full.
fn room(engine: &Engine) -> usize {
    for count in 0..VOLUMES_MAX {
        let spec = VolumeSpec {
            sector: SectorSize::Bytes4096,
            ..VolumeSpec::new(format!("v{count}").parse().expect("a good name"), 4096)
        };
        if let Err(error) = engine.create_volume(spec) {
            assert_eq!(error.kind, VolumeErrorKind::TooManyVolumes);
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
