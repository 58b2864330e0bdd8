//! Test fixture: a pool on tmpfs, with journal and images on a simulated disk.

#![allow(dead_code, reason = "each test takes what it needs")]

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use block_device::{BlockDevice, DeviceErrorKind};
use durable_set::{
    AcceptedImage, DurableError, DurableSet, DurableSpec, LastKnown, MirrorOptions, Opened,
    Opening, ReportRestore, SaveExtent, SaveRequest,
};
use image::{
    FolderStore, ImageError, ImageErrorKind, ImageStore, ObjectName, PackName, PackWriter, Saved,
    Unwatched, Watch,
};
use journal::{JournalOptions, SystemClock};
use powercut::{Disk, Effect, Fault, Gate};
use region::{Region, RegionSpec};
use storage::StorageAction;
use volumes::{CapacityClass, Durability, Engine, EngineOptions, Volume, VolumeSpec};

pub(crate) const BLOCK: u64 = block_device::BLOCK_BYTES as u64;

const POOL_BYTES: u64 = 32 << 20;
const DISK_BYTES: u64 = 1 << 30;

fn request(extent: SaveExtent) -> SaveRequest {
    SaveRequest {
        extent,
        created_seconds: 1_000_000_000,
        label: String::new(),
        bytes_a_second_max: None,
    }
}

/// A pool with its journal and images.
pub(crate) struct Fixture {
    folder: tempfile::TempDir,
    disk: Disk,
    pub(crate) engine: Arc<Engine>,
    pub(crate) set: DurableSet,
    openings: u8,
    pool_bytes: u64,
    spoils: Arc<Spoils>,
    /// Passed at each opening.
    pub(crate) last_known: Option<LastKnown>,
}

/// Faults of the image store.
#[derive(Debug, Default)]
struct Spoils {
    /// New manifests are damaged.
    manifests: AtomicBool,
    /// Packs disappear when a manifest is created.
    packs: AtomicBool,
    /// Packs that cannot be found.
    hidden: Mutex<Vec<PackName>>,
    /// All reads of packs fail.
    is_down: AtomicBool,
    /// The store does not answer.
    is_silent: AtomicBool,
}

impl Fixture {
    pub(crate) const VOLUME_BYTES: u64 = 16 << 20;
    pub(crate) const SURE_BYTES: u64 = 4 << 20;

    pub(crate) fn new() -> Self {
        Self::of(POOL_BYTES)
    }

    pub(crate) fn of(pool_bytes: u64) -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").expect("tmpfs takes a folder");
        let disk = Disk::new(DISK_BYTES);
        let engine = open_pool(&folder, "region", pool_bytes);
        let spoils = Arc::default();
        let spec = spec_of(&disk, 1, &spoils);
        let (set, opened) = DurableSet::open(&engine, spec).expect("nothing is there");
        assert!(matches!(opened.how, Opened::New), "{opened:?}");
        let openings = 1;
        Self { folder, disk, engine, set, openings, pool_bytes, spoils, last_known: None }
    }

    pub(crate) fn create(&self, name: &str, durability: Durability) -> Arc<Volume> {
        let name = name.parse().expect("a good name");
        let spec = VolumeSpec { durability, ..VolumeSpec::new(name, Self::VOLUME_BYTES) };
        self.engine.create_volume(spec).expect("there is room")
    }

    pub(crate) fn create_guaranteed(&self, name: &str, durability: Durability) -> Arc<Volume> {
        let name = name.parse().expect("a good name");
        let capacity = CapacityClass::Guaranteed;
        let spec = VolumeSpec { durability, capacity, ..VolumeSpec::new(name, Self::SURE_BYTES) };
        self.engine.create_volume(spec).expect("there is room")
    }

    /// Writes to a volume of class `ram` until the pool is full.
    pub(crate) fn fill_pool(&self) {
        let filler = match self.engine.volume("filler") {
            Ok(filler) => filler,
            Err(_) => {
                let spec = VolumeSpec::new("filler".parse().expect("a good name"), POOL_BYTES);
                self.engine.create_volume(spec).expect("there is room")
            }
        };
        let blocks = 0..POOL_BYTES / BLOCK;
        let is_written = |&block: &u64| filler.write(block * BLOCK, &long_noise(block)).is_ok();
        assert!(blocks.take_while(is_written).count() as u64 * BLOCK < POOL_BYTES);
    }

    pub(crate) fn volume(&self, name: &str) -> Arc<Volume> {
        self.engine.volume(name).expect("it is there")
    }

    pub(crate) fn save(&self) -> Saved {
        self.save_with(SaveExtent::Durable)
    }

    pub(crate) fn save_with(&self, extent: SaveExtent) -> Saved {
        self.try_to_save(extent).expect("the disk works")
    }

    pub(crate) fn try_to_save(&self, extent: SaveExtent) -> Result<Saved, DurableError> {
        self.set.save(&request(extent), &Unwatched)
    }

    pub(crate) fn save_watched(&self, watch: &dyn Watch) -> Saved {
        self.set.save(&request(SaveExtent::Durable), watch).expect("the disk works")
    }

    /// Flushes a volume, and saves the images that the flush waits for.
    pub(crate) fn flush_with_images(&self, volume: &Volume) {
        std::thread::scope(|scope| {
            let flush = scope.spawn(|| volume.flush());
            while !flush.is_finished() {
                if self.set.journal().needs_checkpoint() {
                    self.save();
                }
                std::thread::yield_now();
            }
            flush.join().expect("no panic").expect("the disk works");
        });
    }

    /// Flips a bit of an image's manifest. A second call undoes it.
    pub(crate) fn flip_bit_of_image(&self, number: u32) {
        let files = self.disk.files();
        let name = format!("{number:010}");
        let file = files.iter().find(|file| file.name.ends_with(&name));
        self.disk.flip_bit(&file.expect("the image is there").name, 8 * 4200);
    }

    /// Simulates a power failure after all writes have reached the disk: memory is lost.
    pub(crate) fn lose_memory(&mut self) -> Opened {
        let path = self.folder.path().join("region");
        std::fs::remove_file(path).expect("the pool is there");
        self.reopen()
    }

    /// Loses memory, and kills the process while it reports the restore. Returns both reports of
    /// volumes that are left out, that of the killed process and that of the next one.
    pub(crate) fn lose_memory_and_kill_while_reporting(&mut self) -> Vec<Vec<String>> {
        let path = |name: &str| self.folder.path().join(name);
        let (region, killed) = (path("region"), path("killed"));
        std::fs::remove_file(&region).expect("the pool is there");
        let reports = Mutex::new(Vec::new());
        let report = |opened: &Opened, _: Option<&DurableError>| {
            let Opened::Restored { left_out, .. } = opened else { return };
            std::fs::copy(&region, &killed).expect("tmpfs has room");
            reports.lock().expect("no thread panics").push(left_out.clone());
        };
        self.try_to_reopen(None, &report).expect("it opens");
        std::fs::rename(&killed, &region).expect("the copy was made");
        self.try_to_reopen(None, &report).expect("it opens");
        reports.into_inner().expect("no thread panics")
    }

    /// Like `lose_memory`, with a pool of this size afterwards.
    pub(crate) fn lose_memory_but(&mut self, pool_bytes: u64) -> Opened {
        self.pool_bytes = pool_bytes;
        self.lose_memory()
    }

    /// Kills and restarts the process. Memory is intact.
    pub(crate) fn kill(&mut self) -> Opened {
        self.reopen()
    }

    /// Restarts the process with intact memory. Returns the findings of opening.
    pub(crate) fn restart(&mut self) -> Opening {
        self.try_to_reopen(None, &|_, _| {}).expect("it opens")
    }

    /// Makes writes to the journal's disk fail until it is healed.
    pub(crate) fn refuse_writes(&self, effect: Effect) {
        self.disk
            .inject(Fault::always(&[StorageAction::WriteDurably, StorageAction::Create], effect));
    }

    /// Makes the next disk write hang until the gate is opened.
    pub(crate) fn hold_write(&self) -> Gate {
        let gate = Gate::new();
        let effect = Effect::Hold(gate.clone());
        self.disk.inject(Fault::once(&[StorageAction::WriteDurably], 0, effect));
        gate
    }

    /// Loses memory, and kills the process during the restore after these snapshots were created.
    pub(crate) fn begin_restore_and_kill(&mut self, snapshots: &[&str]) {
        let path = self.folder.path().join("region");
        std::fs::remove_file(path).expect("the pool is there");
        let engine = open_pool(&self.folder, "region", self.pool_bytes);
        engine.begin_restoring();
        engine.join_set(self.set.id());
        for name in ["one", "two"] {
            let spec = VolumeSpec::new(name.parse().expect("a good name"), 1 << 20);
            engine.create_volume(spec).expect("there is room");
        }
        for name in snapshots {
            let name = name.parse().expect("a good name");
            engine.create_snapshots(&["one"], &name, 1).expect("there is room");
        }
        drop(engine);
        self.reopen();
    }

    /// Opens journal and images with a pool of another set.
    pub(crate) fn open_with_other_pool(&self) -> Result<(), DurableError> {
        let engine = open_pool(&self.folder, "other", POOL_BYTES);
        engine.join_set([99; 16]);
        open_set(&self.disk, &engine, 77).map(|_| ())
    }

    /// Saves an image of a pool of another set, whose store did not answer when it was opened.
    pub(crate) fn save_other_pool(&self) -> Result<Saved, DurableError> {
        let engine = open_pool(&self.folder, "other", POOL_BYTES);
        engine.join_set([99; 16]);
        let journal = Disk::new(DISK_BYTES).folder().folder("journal").expect("the disk works");
        let spec = DurableSpec { journal, ..spec_of(&self.disk, 77, &Arc::default()) };
        let (set, _) = DurableSet::open_without_images(&engine, spec).expect("memory is intact");
        set.save(&request(SaveExtent::Durable), &Unwatched)
    }

    /// Flips a bit of the first pack that contains these bytes.
    pub(crate) fn damage_pack(&self, wanted: &[u8]) {
        for file in self.disk.files() {
            let contents = self.disk.contents(&file.name);
            let at = contents.windows(wanted.len()).position(|window| window == wanted);
            if let Some(at) = at {
                self.disk.flip_bit(&file.name, at as u64 * 8 + 3);
                return;
            }
        }
        panic!("no file has these bytes");
    }

    /// Flips a bit wherever the pool's memory contains these bytes, including freed memory.
    pub(crate) fn flip_bits_in_memory(&self, wanted: &[u8]) {
        let path = self.folder.path().join("region");
        let bytes = std::fs::read(&path).expect("the file is there");
        let places = bytes.windows(wanted.len()).enumerate();
        let mut places = places.filter(|(_, window)| *window == wanted).peekable();
        assert!(places.peek().is_some(), "the bytes are stored somewhere");
        let file = std::fs::OpenOptions::new().write(true).open(&path).expect("the file opens");
        for (at, _) in places {
            file.write_all_at(&[wanted[0] ^ 4], at as u64).expect("tmpfs has room");
        }
    }

    /// Loses memory. Fails if the set cannot be restored. The disk is then unchanged.
    pub(crate) fn try_to_lose_memory(
        &mut self,
        accepted: Option<AcceptedImage>,
    ) -> Result<Opening, DurableError> {
        let path = self.folder.path().join("region");
        std::fs::remove_file(path).expect("the pool is there");
        self.try_to_reopen(accepted, &|_, _| {})
    }

    /// Damages an image's manifest by flipping a bit.
    pub(crate) fn damage_manifest(&self, number: u32) {
        self.disk.flip_bit(&format!("images/images/{number:010}"), 8 * 4096 + 5);
    }

    /// Flips a bit of a file of the disk.
    pub(crate) fn flip_bit(&self, name: &str, bit: u64) {
        self.disk.flip_bit(name, bit);
    }

    /// Makes removals from the disk fail until it is healed.
    pub(crate) fn keep_files(&self) {
        self.disk.inject(Fault::always(&[StorageAction::Remove], Effect::Io));
    }

    pub(crate) fn heal_disk(&self) {
        self.disk.heal();
    }

    /// Returns the names of all files on the disk.
    pub(crate) fn file_names(&self) -> Vec<String> {
        self.disk.files().into_iter().map(|file| file.name).collect()
    }

    /// Makes new manifests damaged.
    pub(crate) fn spoil_manifests(&self, spoils: bool) {
        self.spoils.manifests.store(spoils, Ordering::Relaxed);
    }

    /// Removes all packs before a manifest is created, as another process might.
    pub(crate) fn spoil_packs(&self, spoils: bool) {
        self.spoils.packs.store(spoils, Ordering::Relaxed);
    }

    /// Hides all current packs.
    pub(crate) fn hide_packs(&self) {
        self.hide(self.packs());
    }

    pub(crate) fn hide(&self, packs: Vec<PackName>) {
        self.spoils.hidden.lock().expect("no thread panics").extend(packs);
    }

    pub(crate) fn packs(&self) -> Vec<PackName> {
        let packs = self.set.images().packs().expect("the disk works");
        packs.into_iter().map(|(name, _)| name).collect()
    }

    /// Makes hidden packs visible again.
    pub(crate) fn show_packs(&self) {
        self.spoils.hidden.lock().expect("no thread panics").clear();
    }

    /// Makes all reads of packs fail while the store is down.
    pub(crate) fn take_store_down(&self, is_down: bool) {
        self.spoils.is_down.store(is_down, Ordering::Relaxed);
    }

    /// Makes the image store fail every call.
    pub(crate) fn silence_store(&self, is_silent: bool) {
        self.spoils.is_silent.store(is_silent, Ordering::Relaxed);
    }

    /// Removes files with this name prefix, as an owner might by mistake.
    pub(crate) fn remove_files(&self, prefix: &str) {
        let names = self.file_names().into_iter().filter(|name| name.starts_with(prefix));
        names.for_each(|name| self.remove_file(&name));
    }

    /// Removes the first file with this name prefix.
    pub(crate) fn remove_first_file(&self, prefix: &str) {
        let name = self.file_names().into_iter().find(|name| name.starts_with(prefix));
        self.remove_file(&name.expect("there is one"));
    }

    fn remove_file(&self, path: &str) {
        let mut folder = self.disk.folder();
        let (folders, name) = path.rsplit_once('/').expect("it is in a folder");
        for part in folders.split('/') {
            folder = folder.folder(part).expect("the disk works");
        }
        folder.remove(name).expect("the disk works");
        folder.sync_names().expect("the disk works");
    }

    fn reopen(&mut self) -> Opened {
        self.restart().how
    }

    fn try_to_reopen(
        &mut self,
        accepted: Option<AcceptedImage>,
        report: &ReportRestore<'_>,
    ) -> Result<Opening, DurableError> {
        self.set.journal().stop();
        self.openings += 1;
        // The old engine releases its region first, because there is no other handle.
        let aside = open_pool(&self.folder, "aside", POOL_BYTES);
        let (aside_set, _) = open_set(&Disk::new(DISK_BYTES), &aside, 200).expect("an empty disk");
        drop(std::mem::replace(&mut self.set, aside_set));
        drop(std::mem::replace(&mut self.engine, aside));
        let engine = open_pool(&self.folder, "region", self.pool_bytes);
        std::fs::remove_file(self.folder.path().join("aside")).expect("it was made above");
        let spec = spec_of(&self.disk, self.openings, &self.spoils);
        let spec = DurableSpec { last_known: self.last_known, ..spec };
        let (set, opening) = DurableSet::open_reporting(&engine, spec, accepted, report)?;
        self.engine = engine;
        self.set = set;
        Ok(opening)
    }
}

/// An image store with injectable faults.
#[derive(Debug)]
struct Spoilable {
    store: FolderStore,
    spoils: Arc<Spoils>,
}

impl Spoilable {
    fn check_answers(&self) -> Result<(), ImageError> {
        match self.spoils.is_silent.load(Ordering::Relaxed) {
            true => Err(ImageError::new(ImageErrorKind::Unavailable, "ask the store")),
            false => Ok(()),
        }
    }

    fn is_hidden(&self, name: PackName) -> bool {
        self.spoils.hidden.lock().expect("no thread panics").contains(&name)
    }
}

impl ImageStore for Spoilable {
    fn begin_pack(&self, name: PackName) -> Result<Box<dyn PackWriter>, ImageError> {
        self.store.begin_pack(name)
    }

    fn create_image(&self, number: u32, manifest: &[u8]) -> Result<(), ImageError> {
        let mut manifest = manifest.to_vec();
        if self.spoils.manifests.load(Ordering::Relaxed)
            && let Some(byte) = manifest.get_mut(4100)
        {
            *byte ^= 4;
        }
        if self.spoils.packs.load(Ordering::Relaxed) {
            for (name, _) in self.store.packs()? {
                self.store.remove(ObjectName::Pack(name))?;
            }
        }
        self.store.create_image(number, &manifest)
    }

    fn read(&self, object: ObjectName, offset: u64, into: &mut [u8]) -> Result<(), ImageError> {
        self.check_answers()?;
        if let ObjectName::Pack(name) = object {
            let kind = match self.spoils.is_down.load(Ordering::Relaxed) {
                true => Some(ImageErrorKind::Unavailable),
                false => self.is_hidden(name).then_some(ImageErrorKind::NotFound),
            };
            if let Some(kind) = kind {
                return Err(ImageError::new(kind, format!("read {object}")));
            }
        }
        self.store.read(object, offset, into)
    }

    fn reads_at_once(&self) -> usize {
        self.store.reads_at_once()
    }

    fn images(&self) -> Result<Vec<(u32, u64)>, ImageError> {
        self.check_answers()?;
        self.store.images()
    }

    fn packs(&self) -> Result<Vec<(PackName, u64)>, ImageError> {
        self.check_answers()?;
        let mut packs = self.store.packs()?;
        packs.retain(|(name, _)| !self.is_hidden(*name));
        Ok(packs)
    }

    fn remove(&self, object: ObjectName) -> Result<(), ImageError> {
        self.store.remove(object)
    }
}

fn open_pool(folder: &tempfile::TempDir, name: &str, size_bytes: u64) -> Arc<Engine> {
    let path = folder.path().join(name);
    let region = Region::open(&RegionSpec { path, size_bytes }).expect("the region opens");
    let options = EngineOptions { lane_count: 2, fresh_secret: [7; 32] };
    Arc::new(Engine::open(region, options).expect("the pool opens"))
}

fn open_set(
    disk: &Disk,
    engine: &Arc<Engine>,
    writer: u8,
) -> Result<(DurableSet, Opening), DurableError> {
    DurableSet::open(engine, spec_of(disk, writer, &Arc::default()))
}

fn spec_of(disk: &Disk, writer: u8, spoils: &Arc<Spoils>) -> DurableSpec {
    let folder = disk.folder();
    let images = FolderStore::new(&*folder.folder("images").expect("the disk works"));
    let store = images.expect("the disk works");
    DurableSpec {
        journal: folder.folder("journal").expect("the disk works"),
        journal_options: JournalOptions {
            length_bytes_max: 16 << 20,
            segment_bytes: 1 << 20,
            ..JournalOptions::default()
        },
        clock: Arc::new(SystemClock::new()),
        images: Arc::new(Spoilable { store, spoils: Arc::clone(spoils) }),
        key: None,
        writer: u128::from(writer).into(),
        mirror: MirrorOptions::default(),
        fresh_id: [writer; 16],
        last_known: None,
    }
}

pub(crate) fn noise(seed: u8) -> Vec<u8> {
    let mut random = model::Random::new(u64::from(seed) + 1);
    (0..BLOCK).map(|_| random.below(256).to_le_bytes()[0]).collect()
}

/// Returns an incompressible block, different for each seed.
pub(crate) fn long_noise(seed: u64) -> Vec<u8> {
    let mut random = model::Random::new(seed + 1000);
    (0..BLOCK / 8).flat_map(|_| random.number().to_le_bytes()).collect()
}

pub(crate) fn read(volume: &Volume, block: u64) -> Result<Vec<u8>, DeviceErrorKind> {
    let mut into = vec![0; 4096];
    volume.read(block * BLOCK, &mut into).map(|()| into).map_err(|error| error.kind)
}
