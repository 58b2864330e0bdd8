//! A pool with its journal and images on a simulated disk, as in a daemon.

use std::sync::Arc;
use std::time::Duration;

use durable_set::{DurableError, DurableSet, DurableSpec, MirrorOptions, Opened};
use image::{FolderStore, ImageStore};
use journal::{FailurePolicy, JournalOptions, SystemClock};
use powercut::Disk;
use region::{Region, RegionSpec};
use sealing::{DataKey, SetKey, WrappingKey};
use tempfile::TempDir;
use volumes::{Engine, EngineOptions};

use crate::support::objects::RemoteStore;

/// Size sufficient for all volumes of a history at once, each with guaranteed size, unless the
/// history fills the pool. Each recovery takes this memory again, which is most of its time.
pub(crate) const POOL_BYTES: u64 = 16 << 20;

/// Options with small segments, so that segments end and checkpoints become due.
const JOURNAL_OPTIONS: JournalOptions = JournalOptions {
    length_bytes_max: 16 << 20,
    segment_bytes: 256 << 10,
    known_pages_max: 64,
    policy: FailurePolicy::ReadOnly,
    retry_after: Duration::from_micros(1),
    retry_after_max: Duration::from_micros(10),
    patience: Duration::ZERO,
};

/// Location of the images of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Folder,
    /// In a folder, encrypted like the journal.
    SealedFolder,
    /// In an object store, whose failures follow from the seed.
    Objects {
        seed: u64,
    },
    /// In an object store, encrypted like the journal.
    SealedObjects {
        seed: u64,
    },
}

impl Place {
    fn is_sealed(self) -> bool {
        matches!(self, Self::SealedFolder | Self::SealedObjects { .. })
    }
}

/// Memory of a pool, which survives a kill but not a power failure.
struct Memory {
    folder: TempDir,
}

/// A pool that is served.
pub(crate) struct Fixture {
    pub(crate) disk: Disk,
    pub(crate) engine: Arc<Engine>,
    pub(crate) set: DurableSet,
    /// Volumes that were guaranteed, and for which there is not enough memory any more.
    pub(crate) guarantees_lost: Vec<String>,
    pub(crate) place: Place,
    /// Object store of the images, if there is one.
    remote: Option<RemoteStore>,
    memory: Memory,
}

impl Memory {
    fn new() -> Self {
        Self { folder: tempfile::tempdir_in("/dev/shm").expect("tmpfs takes a folder") }
    }

    fn open(&self) -> Arc<Engine> {
        let path = self.folder.path().join("region");
        let region = Region::open(&RegionSpec { path, size_bytes: POOL_BYTES });
        let options = EngineOptions { lane_count: 1, fresh_secret: [7; 32] };
        let engine = Engine::open(region.expect("the region opens"), options);
        Arc::new(engine.expect("the pool opens"))
    }
}

impl Fixture {
    /// Creates a new pool on an empty disk.
    pub(crate) fn new(disk: &Disk, place: Place) -> Self {
        let (fixture, opened) = Self::serve(disk, place, Memory::new()).expect("the disk works");
        assert!(matches!(opened, Opened::New));
        fixture
    }

    /// Restores a pool whose memory is lost from the disk.
    pub(crate) fn recover(disk: &Disk, place: Place) -> Result<Self, DurableError> {
        let (mut fixture, opened) = Self::serve(disk, place, Memory::new())?;
        if let Opened::Restored { guarantees_lost, .. } = opened {
            fixture.guarantees_lost = guarantees_lost.into_iter().map(|(name, _)| name).collect();
        }
        Ok(fixture)
    }

    /// Kills and restarts the daemon: the memory survives.
    pub(crate) fn restart(self) -> Self {
        let Self { disk, engine, set, place, memory, .. } = self;
        drop(set);
        drop(Arc::into_inner(engine).expect("there is no other handle of the pool"));
        let (fixture, opened) = Self::serve(&disk, place, memory).expect("the disk works");
        assert!(!matches!(opened, Opened::Restored { .. }), "memory was there");
        fixture
    }

    /// Removes all faults of the disk and of the object store.
    pub(crate) fn heal(&self) {
        self.disk.heal();
        self.remote.iter().for_each(RemoteStore::heal);
    }

    fn serve(disk: &Disk, place: Place, memory: Memory) -> Result<(Self, Opened), DurableError> {
        let engine = memory.open();
        let folder = |name| disk.folder().folder(name).expect("the disk works");
        let remote = match place {
            Place::Folder | Place::SealedFolder => None,
            Place::Objects { seed } | Place::SealedObjects { seed } => {
                Some(RemoteStore::new(disk, seed))
            }
        };
        let images: Arc<dyn ImageStore> = match &remote {
            None => Arc::new(FolderStore::new(&*folder("images")).expect("the disk works")),
            Some(remote) => Arc::new(remote.clone()),
        };
        // A number that no other opening had, because it is part of the names of packs.
        let packs = images.packs().expect("the disk works");
        let writer = packs.iter().map(|(name, _)| name.writer).max().map_or(1, |last| last + 1);
        let spec = DurableSpec {
            journal: folder("journal"),
            journal_options: JOURNAL_OPTIONS,
            clock: Arc::new(SystemClock::new()),
            images,
            key: place.is_sealed().then(set_key),
            writer: writer.into(),
            mirror: MirrorOptions::default(),
            fresh_id: *b"power-cut proof!",
            last_known: None,
        };
        let (set, opening) = DurableSet::open(&engine, spec)?;
        let (disk, guarantees_lost) = (disk.clone(), Vec::new());
        Ok((Self { disk, engine, set, guarantees_lost, place, remote, memory }, opening.how))
    }
}

/// Returns the key of every encrypted history.
fn set_key() -> Arc<SetKey> {
    let key = SetKey::wrap(DataKey::new([5; 32]), &WrappingKey::new([6; 32]));
    Arc::new(key.expect("Linux has random bytes"))
}
