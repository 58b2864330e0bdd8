//! Creation and changes of volumes of class `guaranteed`, killed before each store.

use crate::support::{
    Ended, PoolFile, check_emptied, create, follow, operate, settle, volume_name, write,
};
use block_device::BlockDevice;
use model::{Contents, ModelPool, Operation, Texture, check_same};
use region::CrashPoints;
use volumes::{CapacityClass, Engine, FilledBlock, VolumeSpec};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = block_device::BLOCK_BYTES as u64;
const SURE: usize = 5;

fn furnished() -> Vec<Operation> {
    vec![
        create(0, 2 * MIB),
        create(1, 2 * MIB),
        write(0, 0, 24, Texture::Mixed),
        write(0, 100, 8, Texture::FewNoises),
        write(1, 0, 24, Texture::Mixed),
        write(1, 100, 8, Texture::Text),
    ]
}

/// Fills the pool, then writes every block of a guaranteed volume.
fn check_guarantee(engine: &Engine, name: &str) {
    let spec = VolumeSpec::new("filler".parse().expect("a good name"), 64 * MIB);
    let filler = engine.create_volume(spec).expect("a volume can be made");
    let noise = |seed| Contents::new(Texture::Noise, seed).bytes(4096);
    let _filled = (0..).take_while(|&n| filler.write(n * BLOCK, &noise(n)).is_ok()).count();
    let sure = engine.volume(name).expect("it is there");
    for block in 0..sure.geometry().size_bytes / BLOCK {
        sure.write(block * BLOCK, &noise(block + 77)).expect("a guaranteed write never fails");
    }
}

/// Kills `act` before each store, and passes the remaining state to `judge`.
fn check(act: &dyn Fn(&Engine), sure: &str, is_new: bool) {
    let file = PoolFile::new(10 * MIB);
    let mut model = ModelPool::default();
    let mut engine = file.open();
    for operation in furnished() {
        let memory;
        (engine, memory) = operate(engine, &operation, &|| file.open());
        follow(&mut model, &operation, &engine, memory);
    }
    settle(&engine);
    drop(engine);
    let base = file.save();
    for end in 0.. {
        file.restore(&base);
        let points = CrashPoints::after(end);
        let ended = file.run(|| act(&file.open_until(&points)));
        let engine = file.open();
        for (name, volume) in model.volumes() {
            check_same(&*engine.volume(name).expect("it was there before"), volume);
        }
        let found = engine.volume(sure).ok();
        assert!(is_new || found.is_some(), "ended before store {end}");
        let class = found.map_or(CapacityClass::Thin, |volume| volume.capacity_class());
        if ended == Ended::Completed {
            assert_eq!(class, CapacityClass::Guaranteed);
        }
        if class == CapacityClass::Guaranteed {
            check_guarantee(&engine, sure);
        }
        settle(&engine);
        assert_eq!(engine.damaged_entries(), 0, "ended before store {end}");
        check_emptied(&engine);
        if ended == Ended::Completed {
            assert!(end > 20, "it takes some stores");
            return;
        }
    }
}

#[test]
fn a_guaranteed_volume_is_made_whole_or_not_at_all() {
    let name = volume_name(SURE);
    let act = |engine: &Engine| {
        let capacity = CapacityClass::Guaranteed;
        let spec = VolumeSpec { capacity, ..VolumeSpec::new(name.clone(), 3 * MIB) };
        engine.create_volume(spec).expect("it fits");
    };
    check(&act, name.as_str(), true);
}

#[test]
fn a_volume_that_becomes_guaranteed_is_of_either_class_and_loses_nothing() {
    let name = volume_name(0);
    let act = |engine: &Engine| {
        settle(engine);
        engine.set_capacity(name.as_str(), CapacityClass::Guaranteed).expect("it fits");
    };
    check(&act, name.as_str(), false);
}

#[test]
fn a_guaranteed_volume_that_comes_back_is_claimed_before_and_while_its_contents_come() {
    let name = volume_name(SURE);
    let act = |engine: &Engine| {
        let capacity = CapacityClass::Guaranteed;
        let spec = VolumeSpec { capacity, ..VolumeSpec::new(name.clone(), 3 * MIB) };
        let volume = engine.begin_filling(spec, Some(500)).expect("it fits");
        let absent: Vec<_> = (1..=40).map(FilledBlock::Absent).collect();
        volume.map().fill_leaf(0, &absent).expect("it fits");
        engine.end_filling(&volume).expect("it fits");
        for block in 0..20 {
            let contents = Contents::new(Texture::Noise, block).bytes(4096);
            let contents = contents[..].try_into().expect("a block");
            volume.bring_in(block, block + 1, contents).expect("it fits");
        }
    };
    check(&act, name.as_str(), true);
}
