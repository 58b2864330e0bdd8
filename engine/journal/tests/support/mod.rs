//! Test fixture: an engine that flushes through a journal on a simulated disk, with functions to
//! read it back.

#![allow(dead_code, reason = "each test takes what it needs")]

mod shadow;

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use block_device::BlockDevice;
use journal::{
    Clock, FailurePolicy, Journal, JournalError, JournalOptions, JournalSpec, Position, Recovered,
    SetId, SystemClock, recover,
};
use powercut::Disk;
use region::{Region, RegionSpec};
use sealing::{DataKey, SetKey, WrappingKey};
use volumes::{Durability, Engine, EngineOptions, Volume, VolumeSpec};

pub(crate) use shadow::Shadow;

pub(crate) const BLOCK: u64 = block_device::BLOCK_BYTES as u64;
pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const SET: SetId = *b"a set of a test.";

/// Maximum time that a test waits for an event.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Options with four short segments.
pub(crate) fn small() -> JournalOptions {
    JournalOptions {
        length_bytes_max: MIB,
        segment_bytes: 256 << 10,
        known_pages_max: 1024,
        policy: FailurePolicy::Wait,
        retry_after: Duration::from_millis(1),
        retry_after_max: Duration::from_millis(4),
        patience: Duration::from_millis(50),
    }
}

/// Options with many short segments.
pub(crate) fn roomy() -> JournalOptions {
    JournalOptions { length_bytes_max: 64 * MIB, ..small() }
}

pub(crate) struct Fixture {
    memory: tempfile::TempDir,
    pub(crate) disk: Disk,
    pub(crate) engine: Arc<Engine>,
    pub(crate) journal: Arc<Journal>,
}

/// Parts of a test fixture without its engine.
pub(crate) struct Parts {
    pub(crate) memory: tempfile::TempDir,
    pub(crate) disk: Disk,
    pub(crate) journal: Arc<Journal>,
}

impl Fixture {
    /// Creates an empty pool, and a journal on an empty disk.
    pub(crate) fn new(options: JournalOptions) -> Self {
        Self::on(Disk::new(1 << 30), Position::START, options)
    }

    /// Creates an empty pool with the journal on this disk, which an image covers up to a position.
    pub(crate) fn on(disk: Disk, covered: Position, options: JournalOptions) -> Self {
        let spec = JournalSpec { covered: Some(covered), ..spec(&disk, options) };
        Self::with(disk, spec)
    }

    /// Creates an empty pool, and a journal on an empty disk that uses this clock.
    pub(crate) fn with_clock(options: JournalOptions, clock: Arc<dyn Clock>) -> Self {
        let disk = Disk::new(1 << 30);
        let spec = JournalSpec { clock, ..spec(&disk, options) };
        Self::with(disk, spec)
    }

    fn with(disk: Disk, spec: JournalSpec) -> Self {
        let memory = tempfile::tempdir_in("/dev/shm").expect("tmpfs takes a folder");
        let engine = Arc::new(open_engine(&memory));
        let journal = Arc::new(Journal::open(spec).expect("the journal is whole"));
        journal.serve(&engine);
        Self { memory, disk, engine, journal }
    }

    /// Kills and restarts the daemon: memory and disk are unchanged. The caller has dropped its
    /// volume handles.
    pub(crate) fn restart(&mut self, options: JournalOptions) {
        self.restart_after(Position::START, options);
    }

    /// Like `restart`, with an image that covers everything before a position.
    pub(crate) fn restart_after(&mut self, covered: Position, options: JournalOptions) {
        let spec = JournalSpec { covered: Some(covered), ..spec(&self.disk, options) };
        let journal = Journal::open(spec).expect("the journal is whole");
        self.journal = Arc::new(journal);
        // The old engine holds the region's lock until it is dropped.
        let nothing = tempfile::tempdir_in("/dev/shm").expect("tmpfs takes a folder");
        self.engine = Arc::new(open_engine(&nothing));
        self.engine = Arc::new(open_engine(&self.memory));
        self.journal.serve(&self.engine);
    }

    /// Drops the engine. Handles to its volumes and the journal remain.
    pub(crate) fn close_engine(self) -> Parts {
        let Self { memory, disk, engine, journal } = self;
        drop(engine);
        Parts { memory, disk, journal }
    }

    pub(crate) fn create(&self, name: &str) -> Arc<Volume> {
        self.create_as(name, Durability::Journal)
    }

    pub(crate) fn create_as(&self, name: &str, durability: Durability) -> Arc<Volume> {
        let name = name.parse().expect("a good name");
        let spec = VolumeSpec { durability, ..VolumeSpec::new(name, 64 * MIB) };
        self.engine.create_volume(spec).expect("there is room")
    }

    /// Reads the journal from its beginning.
    pub(crate) fn recover(&self) -> Shadow {
        read(&self.disk, Position::START).expect("the journal is whole").0
    }
}

thread_local! {
    /// Key for the journals of this thread's test, if encrypted.
    static KEY: RefCell<Option<Arc<SetKey>>> = const { RefCell::new(None) };
}

/// Runs a test with plain and then with encrypted journals.
pub(crate) fn plain_and_sealed(test: impl Fn()) {
    test();
    sealed(test);
}

/// Runs a test with encrypted journals.
pub(crate) fn sealed(test: impl Fn()) {
    let key = SetKey::wrap(DataKey::new([5; 32]), &WrappingKey::new([6; 32]));
    KEY.set(Some(Arc::new(key.expect("Linux has random bytes"))));
    test();
    KEY.set(None);
}

pub(crate) fn key() -> Option<Arc<SetKey>> {
    KEY.with_borrow(Clone::clone)
}

pub(crate) fn spec(disk: &Disk, options: JournalOptions) -> JournalSpec {
    JournalSpec {
        folder: disk.folder(),
        key: key(),
        set_id: SET,
        covered: Some(Position::START),
        options,
        clock: Arc::new(SystemClock::new()),
    }
}

pub(crate) fn read(disk: &Disk, from: Position) -> Result<(Shadow, Recovered), JournalError> {
    let mut shadow = Shadow::default();
    let recovered = recover(&*disk.folder(), key().as_deref(), SET, from, &mut shadow)?;
    Ok((shadow, recovered))
}

fn open_engine(memory: &tempfile::TempDir) -> Engine {
    let path = memory.path().join("region");
    let region = Region::open(&RegionSpec { path, size_bytes: 32 * MIB });
    let options = EngineOptions { lane_count: 2, fresh_secret: [7; 32] };
    Engine::open(region.expect("the region opens"), options).expect("the pool opens")
}

/// Returns an incompressible block.
pub(crate) fn noise(seed: u64) -> Vec<u8> {
    let mut random = model::Random::new(seed);
    (0..BLOCK / 8).flat_map(|_| random.number().to_le_bytes()).collect()
}

pub(crate) fn write(volume: &Volume, block: u64, contents: &[u8]) {
    volume.write(block * BLOCK, contents).expect("there is room");
}

pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < WAIT_MAX, "{what}");
        std::thread::yield_now();
    }
}
