//! Pools that are used before they have taken all of their memory.

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use block_device::{BlockDevice, DeviceErrorKind};
use model::{Contents, Texture};
use region::{Region, RegionSpec};
use support::{Pool, check_sound_when_empty, check_sums, settle};
use volumes::{CapacityClass, Engine, EngineOptions, Reduction, Volume, VolumeSpec};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = block_device::BLOCK_BYTES as u64;

/// Size of a pool that is much larger than the data of these tests.
const LARGE_BYTES: u64 = 1024 * MIB;

/// Maximum memory that the beginning of such a pool may occupy.
const BEGINNING_BYTES_MAX: u64 = 64 * MIB;

fn spec(name: &str, size_bytes: u64) -> VolumeSpec {
    let name = name.parse().expect("a good name");
    VolumeSpec { reduction: Reduction::None, ..VolumeSpec::new(name, size_bytes) }
}

fn noise(seed: u64) -> Vec<u8> {
    Contents::new(Texture::Noise, seed).bytes(4096)
}

fn write_blocks(volume: &Volume, blocks: std::ops::Range<u64>) {
    for block in blocks {
        volume.write(block * BLOCK, &noise(block)).expect("there is memory");
    }
}

#[track_caller]
fn check_blocks(volume: &Volume, blocks: std::ops::Range<u64>) {
    for block in blocks {
        let mut found = [0; 4096];
        volume.read(block * BLOCK, &mut found).expect("it can be read");
        assert!(found[..] == noise(block), "block {block}");
    }
}

/// Takes memory like an owner's threads, until none is left to take.
fn take_all(engine: &Engine) {
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while engine.untaken_bytes() > 0 {
                    engine.take_memory().expect("the host has the memory");
                }
            });
        }
    });
}

#[test]
fn a_pool_serves_before_it_has_its_memory() {
    let pool = Pool::new(LARGE_BYTES, 2);
    let engine = pool.open();
    assert!(pool.held_bytes() < BEGINNING_BYTES_MAX, "{} are held", pool.held_bytes());
    assert!(engine.usage().used_bytes < BEGINNING_BYTES_MAX, "what has no memory yet is free");
    let volume = engine.create_volume(spec("v", 64 * MIB)).expect("it is made");
    write_blocks(&volume, 0..1000);
    assert!(pool.held_bytes() < BEGINNING_BYTES_MAX, "{} are held", pool.held_bytes());
    drop((volume, engine));
    // As after a kill, because nothing was closed.
    let engine = pool.open();
    assert!(pool.held_bytes() < BEGINNING_BYTES_MAX, "{} are held", pool.held_bytes());
    let volume = engine.volume("v").expect("it is there");
    check_blocks(&volume, 0..1000);
    take_all(&engine);
    assert_eq!((pool.held_bytes(), engine.untaken_bytes()), (LARGE_BYTES, 0));
    check_blocks(&volume, 0..1000);
    drop(volume);
    check_sound_when_empty(&engine);
}

#[test]
fn writers_and_takers_of_memory_do_not_get_in_each_others_way() {
    let pool = Pool::new(256 * MIB, 4);
    let engine = Arc::new(pool.open());
    let volumes: Vec<_> = (0..3)
        .map(|index| engine.create_volume(spec(&format!("v{index}"), 64 * MIB)))
        .map(|made| made.expect("it is made"))
        .collect();
    std::thread::scope(|scope| {
        volumes.iter().for_each(|volume| {
            scope.spawn(|| write_blocks(volume, 0..64 * MIB / BLOCK));
        });
        scope.spawn(|| take_all(&engine));
    });
    assert_eq!(engine.untaken_bytes(), 0);
    settle(&engine);
    check_sums(&engine);
    volumes.iter().for_each(|volume| check_blocks(volume, 0..64 * MIB / BLOCK));
}

#[test]
fn what_is_guaranteed_has_memory_when_it_is_made() {
    let pool = Pool::new(256 * MIB, 2);
    let engine = pool.open();
    let sure = VolumeSpec { capacity: CapacityClass::Guaranteed, ..spec("sure", 100 * MIB) };
    engine.create_volume(sure).expect("it fits");
    assert!(pool.held_bytes() > 100 * MIB, "{} are held", pool.held_bytes());
    assert!(engine.untaken_bytes() > 0, "the rest is for later");
    let more = VolumeSpec { capacity: CapacityClass::Guaranteed, ..spec("more", 200 * MIB) };
    engine.create_volume(more).expect_err("that is more than the pool has room for");
}

#[test]
fn a_pool_that_has_not_all_of_its_memory_grows_and_shrinks() {
    let pool = Pool::growable(256 * MIB, 512 * MIB, 2);
    let engine = pool.open();
    let volume = engine.create_volume(spec("v", 64 * MIB)).expect("it is made");
    write_blocks(&volume, 0..2000);
    let go_on = &mut |_| std::ops::ControlFlow::Continue(());
    engine.set_size(128 * MIB, go_on).expect("it shrinks");
    assert!(engine.untaken_bytes() > 0, "shrinking takes no memory");
    take_all(&engine);
    assert!(pool.held_bytes() <= 128 * MIB, "{} are held", pool.held_bytes());
    engine.set_size(64 * MIB, go_on).expect("it shrinks");
    assert!(pool.held_bytes() <= 64 * MIB, "{} are held", pool.held_bytes());
    engine.set_size(384 * MIB, go_on).expect("it grows");
    assert_eq!(engine.untaken_bytes(), 0, "growing takes memory at once");
    check_blocks(&volume, 0..2000);
    drop((volume, engine));
    let engine = pool.open();
    assert_eq!((engine.size_bytes(), engine.untaken_bytes()), (384 * MIB, 0));
    check_blocks(&engine.volume("v").expect("it is there"), 0..2000);
    check_sums(&engine);
}

/// A separate tmpfs, unmounted when dropped.
struct SmallMemory {
    folder: tempfile::TempDir,
}

impl SmallMemory {
    /// Returns `None` if this process may not mount.
    fn mount(size_bytes: u64) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a directory");
        let options = format!("size={size_bytes}");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &options, "memlane-test"]).arg(folder.path());
        let is_mounted = mount.output().is_ok_and(|it| it.status.success());
        is_mounted.then_some(Self { folder })
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for SmallMemory {
    fn drop(&mut self) {
        // A failed unmount is reported as a leftover.
        let _unmounted = Command::new("umount").arg("--lazy").arg(self.folder.path()).status();
    }
}

#[test]
fn memory_that_somebody_else_has_taken_is_no_space_until_it_is_free_again() {
    let Some(memory) = SmallMemory::mount(96 * MIB) else {
        eprintln!("skipped: a small file system takes root");
        return;
    };
    let spec_of = |size_bytes| RegionSpec { path: memory.path().join("region"), size_bytes };
    let open = || {
        let region = Region::open_growable(&spec_of(64 * MIB), 64 * MIB).expect("it opens");
        Engine::open(region, EngineOptions { lane_count: 2, fresh_secret: [7; 32] })
    };
    Region::open_growable(&spec_of(128 * MIB), 128 * MIB).expect_err("a lack shows at once");
    let engine = open().expect("there is memory for 64 MiB");
    let volume = engine.create_volume(spec("v", 256 * MIB)).expect("it is made");
    write_blocks(&volume, 0..100);
    let glutton = memory.path().join("glutton");
    let mut written = 0;
    let piece = vec![1; 1 << 20];
    let mut file = fs::File::create(&glutton).expect("a file");
    while std::io::Write::write_all(&mut file, &piece).is_ok() {
        written += 1;
    }
    drop(file);
    assert!(written > 16, "{written} MiB were left for others");
    let refused = (100..30_000).find_map(|block| volume.write(block * BLOCK, &noise(block)).err());
    let refused = refused.expect("the memory is gone");
    assert_eq!(refused.kind, DeviceErrorKind::NoSpace);
    engine.take_memory().expect_err("it is gone for everybody");
    assert!(engine.memory_shortage().is_some_and(|why| why.contains("are needed")));
    check_blocks(&volume, 0..100);
    write_blocks(&volume, 0..100);
    volume.discard(block_device::ByteRange::new(0, 50 * BLOCK)).expect("a discard works");
    // The pool still opens and serves its contents.
    drop((volume, engine));
    let engine = open().expect("what is there is served");
    let volume = engine.volume("v").expect("it is there");
    check_blocks(&volume, 50..100);
    write_blocks(&volume, 50..100);
    fs::remove_file(&glutton).expect("it is there");
    take_all(&engine);
    assert_eq!(engine.memory_shortage(), None);
    write_blocks(&volume, 100..8000);
    check_blocks(&volume, 100..8000);
}
