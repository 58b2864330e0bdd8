//! An engine with its maintenance thread.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use block_device::{BlockDevice, SectorSize};
use maintenance::{IdleCompression, Maintenance};
use model::Random;
use region::{Region, RegionSpec};
use volumes::{Engine, EngineOptions, PoolUsage, VolumeSpec};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = block_device::BLOCK_BYTES as u64;
const BLOCK_COUNT: u64 = 2048;

/// Limit on the duration of background work before a test fails.
const TIME_MAX: Duration = Duration::from_secs(60);

fn open(folder: &tempfile::TempDir) -> Engine {
    let path = folder.path().join("pool");
    let region = Region::open(&RegionSpec { path, size_bytes: 64 * MIB }).expect("it is made");
    let options = EngineOptions { lane_count: 2, fresh_secret: [7; 32] };
    Engine::open(region, options).expect("a fresh region")
}

/// Returns contents of which half is compressible.
fn half_noise(seed: u64) -> [u8; 4096] {
    let mut block = [0; 4096];
    let mut random = Random::new(seed);
    for bytes in block[..2048].as_chunks_mut::<8>().0 {
        *bytes = random.number().to_le_bytes();
    }
    block
}

fn fill(engine: &Engine) {
    let spec = VolumeSpec {
        sector: SectorSize::Bytes4096,
        ..VolumeSpec::new("v".parse().expect("a good name"), BLOCK_COUNT * BLOCK)
    };
    let volume = engine.create_volume(spec).expect("it can be made");
    for block in 0..BLOCK_COUNT {
        volume.write(block * BLOCK, &half_noise(block)).expect("there is room");
    }
}

fn check_contents(engine: &Engine) {
    let volume = engine.volume("v").expect("it is there");
    for block in 0..BLOCK_COUNT {
        let mut found = [0; 4096];
        volume.read(block * BLOCK, &mut found).expect("the read succeeds");
        assert!(found == half_noise(block), "block {block}");
    }
}

/// Starts the thread and waits until it reports a wanted usage.
fn maintain_until(engine: &Arc<Engine>, is_wanted: impl Fn(&PoolUsage) -> bool) -> Maintenance {
    let (report, reports) = mpsc::channel();
    let after_step = move |usage: &PoolUsage| {
        // The receiver is gone once the test has seen enough.
        let _sent = report.send(*usage);
    };
    let maintenance =
        Maintenance::start(Arc::clone(engine), after_step).expect("a thread can be started");
    loop {
        let usage = reports.recv_timeout(TIME_MAX).expect("there are steps");
        if is_wanted(&usage) {
            return maintenance;
        }
    }
}

#[test]
fn what_was_written_is_compressed_when_writers_rest() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = Arc::new(open(&folder));
    fill(&engine);
    assert_eq!(engine.usage().pending_bytes, BLOCK_COUNT * BLOCK);
    // The uncompressed pages are freed once no reader can use them.
    let is_small = |usage: &PoolUsage| usage.page_bytes < BLOCK_COUNT * BLOCK * 3 / 5;
    let _maintenance = maintain_until(&engine, |usage| usage.pending_bytes == 0 && is_small(usage));
    check_contents(&engine);
}

#[test]
fn a_stopped_thread_has_let_go_of_the_engine() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = Arc::new(open(&folder));
    fill(&engine);
    // During its work, or after it.
    drop(maintain_until(&engine, |usage| usage.pending_bytes < BLOCK_COUNT * BLOCK));
    let engine = Arc::try_unwrap(engine).expect("there is no other handle");
    engine.close();
    check_contents(&open(&folder));
}

#[test]
fn leaks_are_collected_after_an_unclean_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = open(&folder);
    fill(&engine);
    drop(engine);
    let engine = Arc::new(open(&folder));
    assert_eq!(engine.recovery(), volumes::Recovery::Sweeping);
    let watched = Arc::clone(&engine);
    let _maintenance =
        maintain_until(&engine, move |_| watched.recovery() == volumes::Recovery::Complete);
    check_contents(&engine);
}

#[test]
fn what_is_idle_is_compressed_once_more() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = Arc::new(open(&folder));
    fill(&engine);
    // LZ4 finds no repetition in it. zstd finds that two bits of each byte are equal.
    let mut random = Random::new(9);
    let letters: [u8; 4096] =
        std::array::from_fn(|_| b"0123456789abcdefghijklmnopqrstuv"[random.index(32)]);
    let volume = engine.volume("v").expect("it is there");
    volume.write(0, &letters).expect("there is room");
    let (report, reports) = mpsc::channel();
    let after_step = move |usage: &PoolUsage| {
        // The receiver is gone once the test has seen enough.
        let _sent = report.send(*usage);
    };
    let idle = IdleCompression { after: Duration::from_millis(200), core_percent: 100 };
    let maintenance = Maintenance::start_with(Arc::clone(&engine), Some(idle), after_step);
    let _maintenance = maintenance.expect("a thread can be started");
    let begun = Instant::now();
    while reports.recv_timeout(TIME_MAX).expect("there are steps").idle_page_count == 0 {
        assert!(begun.elapsed() < TIME_MAX, "nothing was compressed");
    }
    let mut found = [0; 4096];
    volume.read(0, &mut found).expect("the read succeeds");
    assert!(found == letters);
}
