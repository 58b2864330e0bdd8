//! Private memory of a pool, without its region.

use std::sync::Arc;

use block_device::{BlockDevice, ByteRange};
use maintenance::private_bytes;
use region::{Region, RegionSpec};
use volumes::{Engine, EngineOptions, PoolLevel, VolumeSpec};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const VOLUME_COUNT: u64 = 200;
const LANE_COUNT: usize = 8;

/// Private memory that a pool may use under this load, of the 64 MiB limit of a daemon.
const PRIVATE_BYTES_MAX: u64 = 40 * MIB;

/// Returns incompressible bytes.
fn noise(seed: u64) -> [u8; 4096] {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut block = [0; 4096];
    for bytes in block.as_chunks_mut::<8>().0 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *bytes = state.to_le_bytes();
    }
    block
}

/// Writes to all volumes at distant offsets, overwrites, reads and discards.
fn load(engine: &Engine, worker: u64) {
    for (nth, volume) in (0..).zip(engine.volumes()) {
        for turn in 0..12 {
            let block = (turn * 37 + worker) % 1000 * 1000 + nth;
            let contents = noise(block % 400);
            volume.write(block * 4096, &contents).expect("there is room");
            volume.write(block * 4096 + 4096, &[b'x'; 2 * 4096]).expect("there is room");
            let mut found = [0; 4096];
            volume.read(block * 4096, &mut found).expect("a read always works");
            if turn % 3 == 0 {
                let range = ByteRange::new(block * 4096, 4096);
                volume.discard(range).expect("a discard always works");
            }
        }
    }
}

/// Goal: private memory does not grow with volumes, lanes and requests beyond a bound.
/// Method: two hundred large volumes in a pool that can become large, written by more threads than
/// there are processors, with maintenance; then opened again after an unclean end, with a leak
/// check. The kernel's count of private memory is compared with its value at the start.
#[test]
fn two_hundred_volumes_under_load_take_little_memory_beside_the_region() {
    let folder = tempfile::tempdir_in("/dev/shm").expect("tmpfs takes a folder");
    let open = || {
        let path = folder.path().join("region");
        let spec = RegionSpec { path, size_bytes: 256 * MIB };
        let region = Region::open_growable(&spec, 64 * GIB).expect("the region opens");
        let options = EngineOptions { lane_count: LANE_COUNT, fresh_secret: [7; 32] };
        Arc::new(Engine::open(region, options).expect("the pool opens"))
    };
    let before = private_bytes().expect("the kernel tells");
    let check = |moment: &str| {
        let now = private_bytes().expect("the kernel tells").saturating_sub(before);
        assert!(now < PRIVATE_BYTES_MAX, "{moment}: {now} bytes of private memory");
    };
    let engine = open();
    for nth in 0..VOLUME_COUNT {
        let name = format!("v{nth}").parse().expect("a good name");
        engine.create_volume(VolumeSpec::new(name, 64 * GIB)).expect("it can be made");
    }
    check("after 200 volumes were made");
    std::thread::scope(|scope| {
        for worker in 0..LANE_COUNT as u64 {
            let engine = &engine;
            scope.spawn(move || load(engine, worker));
        }
    });
    check("under load");
    for _ in 0..2000 {
        engine.maintain();
    }
    check("after maintenance");
    assert!(engine.usage().level >= PoolLevel::Roomy);
    drop(engine);
    let engine = open();
    check("after a kill");
    load(&engine, 1);
    for _ in 0..2000 {
        engine.maintain();
    }
    check("after the search for leaks");
}
