//! Storage for tests that fails like a daemon that is unavailable, or dies before it replies.

use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use block_device::{
    Action, BlockDevice, ByteRange, DeviceError, DeviceErrorKind, Extent, Geometry, Zeroes,
};

use super::{Embedded, Storage, StorageError, StorageErrorKind, StoredVolume, VolumeClass};

const NO_PANIC: &str = "no thread panics with this lock";

/// Operations that fail at present.
#[derive(Debug, Default)]
pub(crate) struct Failing {
    pub(crate) flushes: AtomicBool,
    /// All accesses to volumes.
    pub(crate) volumes: AtomicBool,
    /// All management requests, which are not executed.
    pub(crate) requests: AtomicBool,
    answers: Mutex<LostAnswers>,
    asked: Mutex<Asked>,
}

/// Management requests since they were last counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) requests: usize,
    /// Number of volumes in the answers of requests that list them.
    pub(crate) listed: usize,
}

/// Requests that are executed, but whose replies are lost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LostAnswers {
    /// Number of successful requests before.
    pub(crate) after: u32,
    pub(crate) count: u32,
}

impl Failing {
    pub(crate) fn lose_answers(&self, lost: LostAnswers) {
        *self.answers.lock().expect(NO_PANIC) = lost;
    }

    /// Returns the number of requests since the last call.
    pub(crate) fn take_asked(&self) -> Asked {
        std::mem::take(&mut *self.asked.lock().expect(NO_PANIC))
    }

    fn is_answer_lost(&self) -> bool {
        let mut answers = self.answers.lock().expect(NO_PANIC);
        match *answers {
            LostAnswers { after: 0, count: 0 } => false,
            LostAnswers { after: 0, count } => {
                answers.count = count - 1;
                true
            }
            LostAnswers { after, .. } => {
                answers.after = after - 1;
                false
            }
        }
    }

    fn ask<Made>(
        &self,
        make: impl FnOnce() -> Result<Made, StorageError>,
    ) -> Result<Made, StorageError> {
        let gone = || StorageError::new(StorageErrorKind::Failed, "memlaned is not running");
        self.asked.lock().expect(NO_PANIC).requests += 1;
        if self.requests.load(Ordering::Acquire) {
            return Err(gone());
        }
        let made = make();
        match self.is_answer_lost() {
            true => Err(gone()),
            false => made,
        }
    }
}

pub(crate) struct Unreliable {
    pub(crate) pool: Arc<Embedded>,
    pub(crate) failing: Arc<Failing>,
}

impl Unreliable {
    fn wrap(&self, device: Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice> {
        Arc::new(UnreliableVolume { device, failing: Arc::clone(&self.failing) })
    }
}

impl Storage for Unreliable {
    fn volumes(&self) -> Result<Vec<StoredVolume>, StorageError> {
        let volumes = self.failing.ask(|| self.pool.volumes())?;
        self.failing.asked.lock().expect(NO_PANIC).listed += volumes.len();
        Ok(volumes)
    }

    fn create(&self, name: &str, class: VolumeClass) -> Result<Arc<dyn BlockDevice>, StorageError> {
        Ok(self.wrap(self.failing.ask(|| self.pool.create(name, class))?))
    }

    fn open(&self, name: &str) -> Result<Arc<dyn BlockDevice>, StorageError> {
        Ok(self.wrap(self.failing.ask(|| self.pool.open(name))?))
    }

    fn class_of(&self, name: &str) -> Result<VolumeClass, StorageError> {
        self.failing.ask(|| self.pool.class_of(name))
    }

    fn rename(&self, name: &str, new_name: &str) -> Result<(), StorageError> {
        self.failing.ask(|| self.pool.rename(name, new_name))
    }

    fn set_class(&self, name: &str, class: VolumeClass) -> Result<(), StorageError> {
        self.failing.ask(|| self.pool.set_class(name, class))
    }

    fn delete(&self, name: &str) -> Result<(), StorageError> {
        self.failing.ask(|| self.pool.delete(name))
    }

    fn pool_bytes(&self) -> Result<u64, StorageError> {
        self.pool.pool_bytes()
    }

    fn reach(&self) -> Result<(), StorageError> {
        self.failing.ask(|| Ok(()))
    }
}

struct UnreliableVolume {
    device: Arc<dyn BlockDevice>,
    failing: Arc<Failing>,
}

impl UnreliableVolume {
    fn there(&self, action: Action, range: ByteRange) -> Result<&dyn BlockDevice, DeviceError> {
        let is_flush = action == Action::Flush;
        let has_failed = self.failing.volumes.load(Ordering::Acquire)
            || is_flush && self.failing.flushes.load(Ordering::Acquire);
        match has_failed {
            true => Err(DeviceError::new(DeviceErrorKind::Corrupt, action, range)),
            false => Ok(&*self.device),
        }
    }
}

impl BlockDevice for UnreliableVolume {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let range = ByteRange::new(offset_bytes, into.len() as u64);
        self.there(Action::Read, range)?.read(offset_bytes, into)
    }

    fn read_in_place(
        &self,
        range: ByteRange,
        scratch: &mut [u8],
        visit: &mut dyn FnMut(&[IoSlice<'_>]),
    ) -> Result<(), DeviceError> {
        self.there(Action::Read, range)?.read_in_place(range, scratch, visit)
    }

    fn write(&self, offset_bytes: u64, from: &[u8]) -> Result<(), DeviceError> {
        let range = ByteRange::new(offset_bytes, from.len() as u64);
        self.there(Action::Write, range)?.write(offset_bytes, from)
    }

    fn write_zeroes(&self, range: ByteRange, zeroes: Zeroes) -> Result<(), DeviceError> {
        self.there(Action::WriteZeroes, range)?.write_zeroes(range, zeroes)
    }

    fn discard(&self, range: ByteRange) -> Result<(), DeviceError> {
        self.there(Action::Discard, range)?.discard(range)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let range = ByteRange::new(0, self.geometry().size_bytes);
        self.there(Action::Flush, range)?.flush()
    }

    fn extents(&self, range: ByteRange, count_max: usize) -> Result<Vec<Extent>, DeviceError> {
        self.there(Action::ListExtents, range)?.extents(range, count_max)
    }
}
