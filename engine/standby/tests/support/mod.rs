//! Test fixture: a writer with pool, journal and images, and a pool that follows its images.

#![allow(dead_code, reason = "each file of tests uses a part of it")]

pub(crate) mod shipping;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use block_device::{BlockDevice, DeviceErrorKind};
use durable_set::{
    DurableError, DurableSet, DurableSpec, MirrorOptions, MirrorPolicy, Opened, Opening,
    SaveExtent, SaveRequest,
};
use image::{
    Claims, ExtractName, FolderStore, ImageError, ImageErrorKind, ImageStore, ObjectName, PackName,
    PackWriter, Unwatched,
};
use journal::{JournalOptions, SystemClock};
use powercut::Disk;
use region::{Region, RegionSpec};
use sealing::{SetKey, WrappingKey};
use standby::{Follower, FollowerSpec, StandbyError, Step};
use storage::{AlignedBuffer, Folder};
use volumes::{Durability, Engine, EngineOptions, Volume, VolumeSpec};

pub(crate) const BLOCK: u64 = 4096;
pub(crate) const VOLUME_BYTES: u64 = 16 << 20;

pub(crate) const POOL_BYTES: u64 = 32 << 20;

/// The writer's side.
pub(crate) struct Writer {
    pub(crate) engine: Arc<Engine>,
    pub(crate) set: Arc<DurableSet>,
    folder: tempfile::TempDir,
}

/// The following side.
pub(crate) struct Standby {
    folder: tempfile::TempDir,
    pool_bytes: u64,
    pub(crate) keys: Vec<WrappingKey>,
    pub(crate) store: Arc<Watched>,
    pub(crate) engine: Option<Arc<Engine>>,
    pub(crate) follower: Option<Follower>,
}

/// Disk shared by both.
pub(crate) struct Shared {
    pub(crate) disk: Disk,
    /// Number of the next writer, which is part of its ids.
    pub(crate) writers: AtomicU64,
    /// Fault injection for uploads of extracts.
    pub(crate) puts: Arc<Puts>,
    /// Mirroring options of writers that are opened later.
    pub(crate) mirror: MirrorOptions,
}

impl Shared {
    pub(crate) fn new() -> Self {
        Self {
            disk: Disk::new(1 << 30),
            writers: AtomicU64::new(1),
            puts: Arc::default(),
            mirror: MirrorOptions::default(),
        }
    }

    /// Creates a disk whose writers mirror flushes.
    pub(crate) fn mirrored(policy: MirrorPolicy, patience: Duration) -> Self {
        Self { mirror: MirrorOptions { policy, patience }, ..Self::new() }
    }

    /// Kills a writer and starts it again.
    pub(crate) fn restart(&self, writer: Writer) -> Writer {
        self.restart_with(writer, None)
    }

    pub(crate) fn restart_with(&self, writer: Writer, wrapping: Option<&WrappingKey>) -> Writer {
        let folder = writer.end();
        let engine = open_pool(&folder, POOL_BYTES);
        let opened = DurableSet::open(&engine, self.spec("journal", self.set_key(wrapping)));
        let (set, _) = opened.expect("memory is intact");
        Writer { engine, set: Arc::new(set), folder }
    }

    fn set_key(&self, wrapping: Option<&WrappingKey>) -> Option<Arc<SetKey>> {
        let (journal, images) = (self.folder("journal"), self.images());
        let open =
            |wrapping| durable_set::open_key(&*journal, &images, std::slice::from_ref(wrapping));
        wrapping.map(|wrapping| open(wrapping).expect("nothing is there, or this key opens it"))
    }

    pub(crate) fn images(&self) -> FolderStore {
        let folder = self.disk.folder().folder("images").expect("the disk works");
        FolderStore::new(&*folder).expect("the disk works")
    }

    fn folder(&self, name: &str) -> Arc<dyn Folder> {
        self.disk.folder().folder(name).expect("the disk works")
    }

    fn spec(&self, journal: &str, key: Option<Arc<SetKey>>) -> DurableSpec {
        let number = self.writers.fetch_add(1, Ordering::Relaxed);
        DurableSpec {
            journal: self.folder(journal),
            journal_options: JournalOptions {
                length_bytes_max: 16 << 20,
                segment_bytes: 1 << 20,
                ..JournalOptions::default()
            },
            clock: Arc::new(SystemClock::new()),
            images: Arc::new(Putting { store: self.images(), puts: Arc::clone(&self.puts) }),
            key,
            writer: (u128::from(number) << 32 | 7).into(),
            mirror: self.mirror,
            fresh_id: [u8::try_from(number).expect("few"); 16],
            last_known: None,
        }
    }

    /// Creates the first writer of the store.
    pub(crate) fn writer(&self) -> Writer {
        self.writer_with(None)
    }

    pub(crate) fn writer_with(&self, wrapping: Option<&WrappingKey>) -> Writer {
        let folder = tempfile::tempdir_in("/dev/shm").expect("tmpfs takes a folder");
        let engine = open_pool(&folder, POOL_BYTES);
        let key = self.set_key(wrapping);
        let opened = DurableSet::open(&engine, self.spec("journal", key));
        let (set, opening) = opened.expect("nothing is there");
        assert!(matches!(opening.how, Opened::New), "{opening:?}");
        Writer { engine, set: Arc::new(set), folder }
    }

    pub(crate) fn standby(&self) -> Standby {
        self.standby_of(POOL_BYTES, Vec::new())
    }

    pub(crate) fn standby_of(&self, pool_bytes: u64, keys: Vec<WrappingKey>) -> Standby {
        let folder = tempfile::tempdir_in("/dev/shm").expect("tmpfs takes a folder");
        let store = Arc::new(Watched::new(self.images()));
        let mut standby = Standby { folder, pool_bytes, keys, store, engine: None, follower: None };
        standby.start().expect("the pool is new");
        standby
    }

    /// Opens a new pool with this journal, like a host that lost its memory.
    pub(crate) fn open_anew(&self, journal: &str) -> (Standby, DurableSet, Opening) {
        let mut host = self.standby();
        host.lose_memory();
        let opened = DurableSet::open(host.engine(), self.spec(journal, None));
        let (set, opening) = opened.expect("the store has a pool");
        (host, set, opening)
    }

    /// Ends a writer, and opens its pool to follow the store that another one has taken over.
    pub(crate) fn rejoin(&self, writer: Writer) -> Standby {
        let standby = self.rejoin_with(writer, &mut |_| true);
        assert!(standby.follower.is_some(), "the store has images of the pool");
        standby
    }

    /// Same, with a judgement of the claims. There is no follower if it is refused.
    pub(crate) fn rejoin_with(
        &self,
        writer: Writer,
        is_taken_over: &mut dyn FnMut(&Claims) -> bool,
    ) -> Standby {
        let mut standby = self.pool_of(writer);
        let _refused = standby.rejoin(is_taken_over);
        standby
    }

    /// Ends a writer. Returns its pool, which nobody has opened.
    pub(crate) fn pool_of(&self, writer: Writer) -> Standby {
        let folder = writer.end();
        let store = Arc::new(Watched::new(self.images()));
        let (pool_bytes, keys) = (POOL_BYTES, Vec::new());
        Standby { folder, pool_bytes, keys, store, engine: None, follower: None }
    }

    /// Opens a promoted pool like its owner.
    pub(crate) fn open_promoted(&self, standby: &mut Standby) -> (DurableSet, Opening) {
        standby.follower = None;
        let engine = standby.engine.as_ref().expect("it runs");
        let opened: Result<_, DurableError> =
            DurableSet::open(engine, self.spec("journal-of-standby", None));
        opened.expect("the pool is a set's own")
    }
}

impl Writer {
    /// Kills the process. Memory is intact. Returns the folder of the pool.
    fn end(self) -> tempfile::TempDir {
        self.set.journal().stop();
        self.set.mirror().stop();
        self.folder
    }

    pub(crate) fn create(&self, name: &str, durability: Durability) -> Arc<Volume> {
        let name = name.parse().expect("a good name");
        let spec = VolumeSpec { durability, ..VolumeSpec::new(name, VOLUME_BYTES) };
        self.engine.create_volume(spec).expect("there is room")
    }

    pub(crate) fn volume(&self, name: &str) -> Arc<Volume> {
        self.engine.volume(name).expect("it is there")
    }

    /// Saves an image. Returns its number.
    pub(crate) fn save(&self) -> u32 {
        self.try_to_save().expect("the disk works")
    }

    pub(crate) fn try_to_save(&self) -> Result<u32, DurableError> {
        save(&self.set)
    }

    pub(crate) fn save_and_keep(&self, newest_count: usize) -> u32 {
        let number = self.save();
        self.set.retain(newest_count).expect("the disk works");
        number
    }
}

impl Standby {
    /// Starts the follower on the existing pool, if any.
    pub(crate) fn start(&mut self) -> Result<(), StandbyError> {
        let spec = self.open_pool();
        self.follower = Some(Follower::open(spec)?);
        Ok(())
    }

    /// Starts the follower on the pool of a former writer.
    pub(crate) fn rejoin(
        &mut self,
        is_taken_over: &mut dyn FnMut(&Claims) -> bool,
    ) -> Result<(), StandbyError> {
        let spec = self.open_pool();
        self.follower = Some(Follower::rejoin(spec, is_taken_over)?);
        Ok(())
    }

    fn open_pool(&mut self) -> FollowerSpec {
        self.kill();
        let engine = open_pool(&self.folder, self.pool_bytes);
        self.engine = Some(Arc::clone(&engine));
        let store: Arc<dyn ImageStore> = Arc::<Watched>::clone(&self.store);
        FollowerSpec { engine, store, keys: self.keys.clone() }
    }

    /// Kills the process. Memory is intact.
    pub(crate) fn kill(&mut self) {
        self.follower = None;
        self.engine = None;
    }

    /// Simulates a power failure: the pool is replaced by an empty one.
    pub(crate) fn lose_memory(&mut self) {
        self.kill();
        std::fs::remove_file(self.folder.path().join("region")).expect("the pool is there");
        self.engine = Some(open_pool(&self.folder, self.pool_bytes));
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        self.engine.as_ref().expect("it runs")
    }

    pub(crate) fn follower(&self) -> &Follower {
        self.follower.as_ref().expect("it runs")
    }

    pub(crate) fn follow(&self) -> Step {
        self.follower().follow(&Unwatched).expect("the store answers")
    }

    /// Follows to an image. Returns the number of bytes read from the store.
    #[track_caller]
    pub(crate) fn follow_to(&self, number: u32) -> u64 {
        match self.follow() {
            Step::Complete { image_number, fetched_bytes } if image_number == number => {
                fetched_bytes
            }
            other => panic!("not image {number}: {other:?}"),
        }
    }

    pub(crate) fn read(&self, name: &str, block: u64) -> Result<Vec<u8>, DeviceErrorKind> {
        let generation = self.follower().generation().expect("an image is complete");
        read(generation.volume(name).expect("the image has it"), block)
    }
}

/// A store that counts reads, and can lose objects or become unreachable.
#[derive(Debug)]
pub(crate) struct Watched {
    store: FolderStore,
    pub(crate) pack_bytes_read: AtomicU64,
    pub(crate) is_away: AtomicBool,
    /// The store answers, but has no images.
    pub(crate) is_empty: AtomicBool,
    /// Number of pack reads until the store becomes unreachable.
    pub(crate) reads_left: Mutex<Option<u64>>,
    /// Number of extract reads until the store becomes unreachable.
    pub(crate) extract_reads_left: Mutex<Option<u64>>,
    pub(crate) hidden: Mutex<Vec<PackName>>,
}

impl Watched {
    pub(crate) fn new(store: FolderStore) -> Self {
        Self {
            store,
            pack_bytes_read: AtomicU64::new(0),
            is_away: AtomicBool::new(false),
            is_empty: AtomicBool::new(false),
            reads_left: Mutex::new(None),
            extract_reads_left: Mutex::new(None),
            hidden: Mutex::default(),
        }
    }

    pub(crate) fn take_bytes_read(&self) -> u64 {
        self.pack_bytes_read.swap(0, Ordering::Relaxed)
    }

    fn check_answers(&self) -> Result<(), ImageError> {
        match self.is_away.load(Ordering::Relaxed) {
            true => Err(ImageError::new(ImageErrorKind::Unavailable, "ask the store")),
            false => Ok(()),
        }
    }
}

impl ImageStore for Watched {
    fn begin_pack(&self, name: PackName) -> Result<Box<dyn PackWriter>, ImageError> {
        self.store.begin_pack(name)
    }

    fn create_image(&self, number: u32, manifest: &[u8]) -> Result<(), ImageError> {
        self.check_answers()?;
        self.store.create_image(number, manifest)
    }

    fn read(&self, object: ObjectName, offset: u64, into: &mut [u8]) -> Result<(), ImageError> {
        self.check_answers()?;
        if let ObjectName::Extract(_) = object {
            let mut left = self.extract_reads_left.lock().expect("no thread panics");
            match &mut *left {
                Some(0) => return Err(ImageError::new(ImageErrorKind::Unavailable, "read")),
                Some(count) => *count -= 1,
                None => {}
            }
        }
        if let ObjectName::Pack(name) = object {
            let mut left = self.reads_left.lock().expect("no thread panics");
            match &mut *left {
                Some(0) => {
                    return Err(ImageError::new(ImageErrorKind::Unavailable, "read a pack"));
                }
                Some(count) => *count -= 1,
                None => {}
            }
            drop(left);
            if self.hidden.lock().expect("no thread panics").contains(&name) {
                return Err(ImageError::new(ImageErrorKind::NotFound, format!("read {object}")));
            }
            self.pack_bytes_read.fetch_add(into.len() as u64, Ordering::Relaxed);
        }
        self.store.read(object, offset, into)
    }

    fn reads_at_once(&self) -> usize {
        1
    }

    fn images(&self) -> Result<Vec<(u32, u64)>, ImageError> {
        self.check_answers()?;
        match self.is_empty.load(Ordering::Relaxed) {
            true => Ok(Vec::new()),
            false => self.store.images(),
        }
    }

    fn packs(&self) -> Result<Vec<(PackName, u64)>, ImageError> {
        self.check_answers()?;
        let hidden = self.hidden.lock().expect("no thread panics").clone();
        let mut packs = self.store.packs()?;
        packs.retain(|(name, _)| !hidden.contains(name));
        Ok(packs)
    }

    fn extracts(&self) -> Result<Vec<(ExtractName, u64)>, ImageError> {
        self.check_answers()?;
        self.store.extracts()
    }

    fn remove(&self, object: ObjectName) -> Result<(), ImageError> {
        panic!("a standby removes {object}");
    }
}

/// Saves an image. Returns its number.
pub(crate) fn save(set: &DurableSet) -> Result<u32, DurableError> {
    let request = SaveRequest {
        extent: SaveExtent::Durable,
        created_seconds: 1_000_000_000,
        label: String::new(),
        bytes_a_second_max: None,
    };
    let number = set.save(&request, &Unwatched)?.id.number();
    set.remove_shipped()?;
    Ok(number)
}

fn open_pool(folder: &tempfile::TempDir, size_bytes: u64) -> Arc<Engine> {
    let path = folder.path().join("region");
    let region = Region::open(&RegionSpec { path, size_bytes }).expect("the region opens");
    let options = EngineOptions { lane_count: 2, fresh_secret: [7; 32] };
    Arc::new(Engine::open(region, options).expect("the pool opens"))
}

/// Returns an incompressible block, different for each seed.
pub(crate) fn noise(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..BLOCK / 8).flat_map(|_| next().to_le_bytes()).collect()
}

pub(crate) fn write(volume: &Volume, block: u64, seed: u64) {
    volume.write(block * BLOCK, &noise(seed)).expect("there is room");
}

pub(crate) fn read(volume: &Volume, block: u64) -> Result<Vec<u8>, DeviceErrorKind> {
    let mut into = vec![0; 4096];
    volume.read(block * BLOCK, &mut into).map(|()| into).map_err(|error| error.kind)
}

/// Checks that readers of the standby see what an engine has in durable volumes.
#[track_caller]
pub(crate) fn check_like(standby: &Standby, engine: &Engine) {
    let generation = standby.follower().generation().expect("an image is complete");
    let mut all = engine.volumes();
    all.extend(engine.snapshots());
    all.retain(|volume| volume.durability() != Durability::Ram);
    let mut names: Vec<_> = generation.volumes().iter().map(|volume| volume.name()).collect();
    names.sort();
    let mut expected: Vec<_> = all.iter().map(|volume| volume.name()).collect();
    expected.sort();
    assert_eq!(names, expected);
    for volume in all {
        let name = volume.name();
        let copy = generation.volume(&name).expect("it was listed");
        let size_bytes = volume.map().settled_size_bytes();
        assert_eq!(copy.map().settled_size_bytes(), size_bytes, "{name}");
        for block in 0..size_bytes / BLOCK {
            assert!(read(copy, block) == read(&volume, block), "{name} {block}");
        }
    }
}

/// Outcome of an upload while the store fails.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PutFate {
    /// The request is lost.
    Lost,
    /// The request succeeds but its response is lost.
    AnswerLost,
}

/// Number of uploads until the store fails, if it should, and how it fails.
#[derive(Debug, Default)]
pub(crate) struct Puts(
    pub(crate) Mutex<Option<(u64, PutFate)>>,
    /// Number of listings of extracts.
    pub(crate) AtomicU64,
    /// Makes removal of extracts fail.
    pub(crate) AtomicBool,
    /// Number of listings of manifests.
    pub(crate) AtomicU64,
);

/// Image store of a writer.
#[derive(Debug)]
struct Putting {
    store: FolderStore,
    puts: Arc<Puts>,
}

impl ImageStore for Putting {
    fn begin_pack(&self, name: PackName) -> Result<Box<dyn PackWriter>, ImageError> {
        self.store.begin_pack(name)
    }

    fn create_image(&self, number: u32, manifest: &[u8]) -> Result<(), ImageError> {
        self.store.create_image(number, manifest)
    }

    fn confirm_image(&self, number: u32) -> Result<(), ImageError> {
        self.store.confirm_image(number)
    }

    fn read(&self, object: ObjectName, offset: u64, into: &mut [u8]) -> Result<(), ImageError> {
        self.store.read(object, offset, into)
    }

    fn reads_at_once(&self) -> usize {
        self.store.reads_at_once()
    }

    fn images(&self) -> Result<Vec<(u32, u64)>, ImageError> {
        self.puts.3.fetch_add(1, Ordering::Relaxed);
        self.store.images()
    }

    fn packs(&self) -> Result<Vec<(PackName, u64)>, ImageError> {
        self.store.packs()
    }

    fn put_extract(&self, name: ExtractName, bytes: &AlignedBuffer) -> Result<(), ImageError> {
        let fate = match &mut *self.puts.0.lock().expect("no thread panics") {
            Some((0, fate)) => Some(*fate),
            Some((left, _)) => {
                *left -= 1;
                None
            }
            None => None,
        };
        if !matches!(fate, Some(PutFate::Lost)) {
            self.store.put_extract(name, bytes)?;
        }
        match fate {
            Some(_) => Err(ImageError::new(ImageErrorKind::Unavailable, "put an extract")),
            None => Ok(()),
        }
    }

    fn extracts(&self) -> Result<Vec<(ExtractName, u64)>, ImageError> {
        self.puts.1.fetch_add(1, Ordering::Relaxed);
        self.store.extracts()
    }

    fn remove(&self, object: ObjectName) -> Result<(), ImageError> {
        let is_extract = matches!(object, ObjectName::Extract(_));
        match is_extract && self.puts.2.load(Ordering::Relaxed) {
            true => Err(ImageError::new(ImageErrorKind::Unavailable, "remove an extract")),
            false => self.store.remove(object),
        }
    }
}
