//! Resizing of the pool, killed before each store, and before memory is taken or freed.

use std::ops::ControlFlow;

use crate::support::{
    Ended, PoolFile, check_emptied, create, discard, follow, operate, settle, write,
};
use model::{ModelPool, Operation, Texture, check_same};
use region::CrashPoints;
use volumes::Engine;

const MIB: u64 = 1 << 20;
const CAPACITY_BYTES: u64 = 16 * MIB;

/// Number of blocks of a leaf.
const LEAF: u64 = 512;

/// Creates two volumes, most of whose pages and nodes lie behind data that was discarded again.
fn furnished() -> Vec<Operation> {
    vec![
        create(0, 8 * MIB),
        create(1, 8 * MIB),
        create(2, 8 * MIB),
        write(0, 0, 230, Texture::Noise),
        write(0, 230, 230, Texture::Noise),
        write(1, 0, 24, Texture::Mixed),
        write(1, LEAF - 4, 8, Texture::Noise),
        write(2, 3 * LEAF, 24, Texture::Mixed),
        write(2, 40, 8, Texture::FewNoises),
        discard(0, 0, LEAF),
        write(0, 3, 5, Texture::Text),
    ]
}

fn set_size(engine: &Engine, size_bytes: u64) {
    let watch = &mut |_| ControlFlow::Continue(());
    engine.set_size(size_bytes, watch).expect("the size can be had");
}

/// Changes the size from `old_bytes` to `new_bytes`, and kills it before each store.
fn check(old_bytes: u64, new_bytes: u64) {
    let file = PoolFile::growable(old_bytes, CAPACITY_BYTES);
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
        let ended = file.run(|| set_size(&file.open_until(&points), new_bytes));
        let engine = file.open();
        let size_bytes = engine.size_bytes();
        assert!([old_bytes, new_bytes].contains(&size_bytes), "store {end}: {size_bytes}");
        assert!(file.held_bytes() <= size_bytes, "store {end}: {} are held", file.held_bytes());
        for (name, volume) in model.volumes() {
            check_same(&*engine.volume(name).expect("it was there before"), volume);
        }
        settle(&engine);
        assert_eq!(engine.damaged_entries(), 0, "ended before store {end}");
        // An interrupted resize can be repeated.
        if end % 7 == 0 || ended == Ended::Completed {
            set_size(&engine, new_bytes);
            for (name, volume) in model.volumes() {
                check_same(&*engine.volume(name).expect("it was there before"), volume);
            }
            check_emptied(&engine);
        }
        if ended == Ended::Completed {
            assert_eq!(size_bytes, new_bytes);
            assert!(end > 20, "it takes some stores");
            return;
        }
    }
}

#[test]
fn a_shrinking_pool_has_the_old_size_or_the_new_one_and_loses_nothing() {
    check(8 * MIB, 6 * MIB);
}

#[test]
fn a_growing_pool_has_the_old_size_or_the_new_one_and_loses_nothing() {
    check(8 * MIB, 12 * MIB);
}
