//! Limit on the size of a store: of its files, some of which are longer than the objects in them.
//!
//! The size is computed by listing the store, and cached until it is old or the limit is reached.
//! Accepted bytes and begun files are added to the cached size, so uploads to this process never
//! exceed the limit.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use image::{FolderStore, ImageError, ImageErrorKind, ObjectName};
use units::Size;

/// Age at which the size is computed again.
const COUNT_AGE_MAX: Duration = Duration::from_secs(60);

/// Minimum age at which the size is computed again because the limit is reached.
const COUNT_AGE_MIN: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Quota {
    bytes_max: Option<u64>,
    counted: Mutex<Option<Counted>>,
}

#[derive(Clone, Copy, Debug)]
struct Counted {
    at: Instant,
    /// Listed bytes plus the bytes accepted since.
    bytes: u64,
    /// [`FolderStore::begun_bytes`] that are part of them.
    begun_bytes: u64,
    /// True if objects were removed since.
    is_stale: bool,
}

/// An upload that asks for room.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    more: u64,
    /// Bytes of files that it may add.
    room: u64,
    bytes_max: u64,
}

impl Quota {
    pub(crate) fn new(bytes_max: Option<u64>) -> Self {
        Self { bytes_max, counted: Mutex::default() }
    }

    pub(crate) fn bytes_max(&self) -> Option<u64> {
        self.bytes_max
    }

    /// Returns the cached size, if it was computed.
    pub(crate) fn known_bytes(&self) -> Option<u64> {
        self.lock().map(|counted| counted.bytes)
    }

    /// Accepts `more` bytes of an object. Fails with `NoSpace` if its files could exceed the limit.
    /// May list the store.
    pub(crate) fn take(
        &self,
        store: &FolderStore,
        object: ObjectName,
        more: u64,
    ) -> Result<(), ImageError> {
        let Some(bytes_max) = self.bytes_max else { return Ok(()) };
        let wanted = Wanted { more, room: FolderStore::needed_bytes(object, more), bytes_max };
        let age_max = match self.try_take(store, wanted) {
            Ok(()) => return Ok(()),
            Err(age_max) => age_max,
        };
        self.count(store, age_max)?;
        self.try_take(store, wanted).map_err(|_| {
            let (used, bytes_max) = (Size(self.known_bytes().unwrap_or(0)), Size(bytes_max));
            let why = format!(
                "the store has {used}, and its server allows {bytes_max} (max-bytes in \
                 [store-server])"
            );
            let attempt = format!("accept {} more", Size(more));
            ImageError::new(ImageErrorKind::NoSpace, attempt).with_source(why)
        })
    }

    /// Invalidates the cached size after objects were removed.
    pub(crate) fn forget(&self) {
        if let Some(counted) = &mut *self.lock() {
            counted.is_stale = true;
        }
    }

    /// Accepts the bytes by the cached size. Otherwise fails with the maximum age of a cached size
    /// that need not be computed again.
    fn try_take(&self, store: &FolderStore, wanted: Wanted) -> Result<(), Duration> {
        let mut counted = self.lock();
        let Some(known) = &mut *counted else { return Err(Duration::ZERO) };
        if known.is_stale {
            return Err(Duration::ZERO);
        }
        if known.at.elapsed() > COUNT_AGE_MAX {
            return Err(COUNT_AGE_MAX);
        }
        let begun_bytes = store.begun_bytes();
        known.bytes += begun_bytes - known.begun_bytes;
        known.begun_bytes = begun_bytes;
        if known.bytes.saturating_add(wanted.room) > wanted.bytes_max {
            return Err(COUNT_AGE_MIN);
        }
        known.bytes += wanted.more;
        Ok(())
    }

    fn count(&self, store: &FolderStore, age_max: Duration) -> Result<(), ImageError> {
        if self.lock().is_some_and(|counted| counted.at.elapsed() < age_max) {
            return Ok(());
        }
        let begun_bytes = store.begun_bytes();
        // Listed without the lock, because the disk may be slow.
        let bytes = store.file_bytes()?;
        let at = Instant::now();
        *self.lock() = Some(Counted { at, bytes, begun_bytes, is_stale: false });
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Counted>> {
        self.counted.lock().expect("no thread panics with this lock")
    }
}
