//! A pool with a journal and images on a simulated disk, as a daemon would run it.

use std::sync::Arc;
use std::time::Duration;

use journal::{
    FailurePolicy, Journal, JournalError, JournalOptions, JournalSpec, Position, Recovered,
    SystemClock,
};
use powercut::Disk;
use region::{Region, RegionSpec};
use storage::{Folder, StorageErrorKind};
use tempfile::TempDir;
use volume::{Engine, EngineOptions};

use crate::support::plain_image::PlainImage;
use crate::support::restorer::Restorer;

const POOL_BYTES: u64 = 4 << 20;
const SET_ID: [u8; 16] = *b"power-cut proof!";
const JOURNAL_FOLDER: &str = "journal";

/// Small, so that segments end and checkpoints are due.
pub(crate) const JOURNAL_OPTIONS: JournalOptions = JournalOptions {
    length_bytes_max: 16 << 20,
    segment_bytes: 256 << 10,
    known_pages_max: 64,
    policy: FailurePolicy::ReadOnly,
    retry_after: Duration::from_micros(1),
    retry_after_max: Duration::from_micros(10),
    patience: Duration::ZERO,
};

/// The memory of a pool, which a kill leaves and a loss of power does not.
pub(crate) struct Memory {
    folder: TempDir,
}

/// A pool that is served.
pub(crate) struct Site {
    pub(crate) disk: Disk,
    pub(crate) memory: Memory,
    pub(crate) engine: Arc<Engine>,
    pub(crate) journal: Arc<Journal>,
    /// The last image's position.
    pub(crate) covered: Position,
}

impl Memory {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir_in("/dev/shm").expect("tmpfs takes a folder") }
    }

    pub(crate) fn open(&self) -> Arc<Engine> {
        let path = self.folder.path().join("region");
        let region = Region::open(&RegionSpec { path, size_bytes: POOL_BYTES });
        let options = EngineOptions { lane_count: 1, fresh_secret: [7; 32] };
        let engine = Engine::open(region.expect("the region opens"), options);
        Arc::new(engine.expect("the pool opens"))
    }
}

impl Site {
    /// A new pool on an empty disk.
    pub(crate) fn new(disk: &Disk) -> Self {
        let memory = Memory::new();
        let engine = memory.open();
        Self::serve(disk, memory, engine, Position::START).expect("the disk works")
    }

    /// A pool whose memory is lost, restored from what the disk has.
    pub(crate) fn recover(disk: &Disk) -> Result<(Self, Recovered), RecoveryError> {
        let memory = Memory::new();
        let engine = memory.open();
        let image = PlainImage::load(disk)?;
        let covered = image.as_ref().map_or(Position::START, |image| image.position);
        let mut restorer = Restorer::new(&engine);
        if let Some(image) = image {
            restorer.take_image(image);
        }
        let recovered = journal::recover(&*journal_folder(disk), SET_ID, covered, &mut restorer)?;
        restorer.end();
        let site = Self::serve(disk, memory, engine, covered)?;
        Ok((site, recovered))
    }

    /// The daemon is killed and started again: the memory is as it was.
    pub(crate) fn restart(self) -> Self {
        let Self { disk, memory, engine, journal, covered } = self;
        drop(journal);
        drop(Arc::into_inner(engine).expect("nobody else has the pool"));
        let engine = memory.open();
        Self::serve(&disk, memory, engine, covered).expect("the disk works")
    }

    fn serve(
        disk: &Disk,
        memory: Memory,
        engine: Arc<Engine>,
        covered: Position,
    ) -> Result<Self, JournalError> {
        let spec = JournalSpec {
            folder: journal_folder(disk),
            set_id: SET_ID,
            covered,
            options: JOURNAL_OPTIONS,
            clock: Arc::new(SystemClock::new()),
        };
        let journal = Arc::new(Journal::open(spec)?);
        journal.serve(&engine);
        Ok(Self { disk: disk.clone(), memory, engine, journal, covered })
    }
}

fn journal_folder(disk: &Disk) -> Arc<dyn Folder> {
    disk.folder().folder(JOURNAL_FOLDER).expect("the disk works")
}

/// A loss that was noticed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecoveryError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("the image is damaged")]
    Image,
}

/// Whether there is such a file.
pub(crate) fn is_missing(kind: StorageErrorKind) -> bool {
    kind == StorageErrorKind::NotFound
}
