//! A pool's file that is reset to a known state before each run.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::Once;

use region::{CrashPoints, Crashed, Region, RegionSpec};
use volumes::{Engine, EngineOptions};

/// Outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Completed,
    /// Ended before the store of the crash point.
    Killed,
}

/// A folder with a pool's file, deleted at the end.
pub(crate) struct PoolFile {
    folder: tempfile::TempDir,
    size_bytes: u64,
    capacity_bytes: u64,
}

impl PoolFile {
    pub(crate) fn new(size_bytes: u64) -> Self {
        Self::growable(size_bytes, size_bytes)
    }

    /// Settings of a pool that can grow.
    pub(crate) fn growable(size_bytes: u64, capacity_bytes: u64) -> Self {
        silence_crashes();
        let folder = tempfile::tempdir_in("/dev/shm").expect("tmpfs takes a folder");
        Self { folder, size_bytes, capacity_bytes }
    }

    /// Returns the bytes of the file, or none if there is no file yet.
    pub(crate) fn save(&self) -> Vec<u8> {
        std::fs::read(self.path()).unwrap_or_default()
    }

    /// Resets the file to its saved bytes.
    pub(crate) fn restore(&self, bytes: &[u8]) {
        if bytes.is_empty() {
            let _absent = std::fs::remove_file(self.path());
            return;
        }
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(self.path());
        let mut file = file.expect("the file opens");
        file.write_all(bytes).expect("tmpfs has room");
    }

    /// Marks all records in front of the slabs as neither free nor in use, so that volumes get
    /// their records in table slabs. The pool must exist.
    pub(crate) fn take_front_places(&self) {
        let file = OpenOptions::new().write(true).open(self.path()).expect("the file opens");
        for record in 1..1024 {
            file.write_all_at(&3_u64.to_le_bytes(), 8192 + record * 256).expect("tmpfs has room");
        }
    }

    /// Marks one of these records as free.
    pub(crate) fn free_front_place(&self) {
        let file = OpenOptions::new().write(true).open(self.path()).expect("the file opens");
        file.write_all_at(&[0; 8], 8192 + 256).expect("tmpfs has room");
    }

    pub(crate) fn open(&self) -> Engine {
        self.open_region(self.region())
    }

    /// Opens the pool with crash points.
    pub(crate) fn open_until(&self, points: &CrashPoints) -> Engine {
        let mut region = self.region();
        region.set_crash_points(points.clone());
        self.open_region(region)
    }

    /// Runs `work` until a crash point ends it. Values dropped during the unwinding store nothing:
    /// a second panic would end the test.
    pub(crate) fn run(&self, work: impl FnOnce()) -> Ended {
        let result = catch_unwind(AssertUnwindSafe(work));
        match result {
            Ok(()) => Ended::Completed,
            Err(payload) if payload.is::<Crashed>() => Ended::Killed,
            Err(payload) => resume_unwind(payload),
        }
    }

    fn region(&self) -> Region {
        let spec = RegionSpec { path: self.path(), size_bytes: self.size_bytes };
        Region::open_growable(&spec, self.capacity_bytes).expect("the region opens")
    }

    fn open_region(&self, region: Region) -> Engine {
        // One lane, so that each run of a scenario makes the same stores.
        let options = EngineOptions { lane_count: 1, fresh_secret: [7; 32] };
        Engine::open(region, options).expect("the pool opens")
    }

    /// Memory that the file occupies.
    pub(crate) fn held_bytes(&self) -> u64 {
        let found = std::fs::metadata(self.path()).expect("the file is there");
        std::os::unix::fs::MetadataExt::blocks(&found) * 512
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("region")
    }
}

/// Suppresses the reports of intended panics.
fn silence_crashes() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !info.payload().is::<Crashed>() {
                report(info);
            }
        }));
    });
}
