//! A device in memory that can block its callers, and an export of it.
#![allow(dead_code, reason = "each program that includes this uses a part of it")]

use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, RwLock};
use std::time::Duration;

use adaptive_polling::{SPIN_MAX_DEFAULT, SpinPermits};
use block_device::{
    Action, BlockDevice, ByteRange, DeviceError, DeviceErrorKind, Extent, ExtentKind, Geometry,
    SectorSize, WriteCache, Zeroes,
};
use vhost_user::{Config, Export, ThreadBudget};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const SERIAL: [u8; 20] = *b"memlane-test-0000001";

/// Blocks callers while it is closed.
#[derive(Default)]
pub(crate) struct Gate {
    is_closed: Mutex<bool>,
    opened: Condvar,
    waiting: AtomicUsize,
}

impl Gate {
    pub(crate) fn close(&self) {
        *self.is_closed.lock().expect("nothing panics") = true;
    }

    pub(crate) fn open(&self) {
        *self.is_closed.lock().expect("nothing panics") = false;
        self.opened.notify_all();
    }

    fn pass(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let closed = self.is_closed.lock().expect("nothing panics");
        drop(self.opened.wait_while(closed, |closed| *closed).expect("nothing panics"));
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// Waits until a thread is blocked at the gate.
    pub(crate) fn wait_for_somebody(&self) {
        wait_until("a thread waits at the gate", || self.waiting.load(Ordering::SeqCst) > 0);
    }
}

#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while !is_true() {
        assert!(std::time::Instant::now() < deadline, "waited in vain until {what}");
        std::thread::yield_now();
    }
}

/// Device that keeps its bytes in memory.
pub(crate) struct MemoryDevice {
    bytes: RwLock<Vec<u8>>,
    pub(crate) is_read_only: bool,
    pub(crate) has_write_cache: bool,
    pub(crate) flushes: Gate,
    pub(crate) flush_count: AtomicUsize,
    /// While set, data count as not in memory, and reads and writes block at `away`.
    pub(crate) is_away: AtomicBool,
    pub(crate) away: Gate,
}

impl MemoryDevice {
    pub(crate) fn new(size_bytes: usize) -> Self {
        Self {
            bytes: RwLock::new(vec![0; size_bytes]),
            is_read_only: false,
            has_write_cache: true,
            flushes: Gate::default(),
            flush_count: AtomicUsize::new(0),
            is_away: AtomicBool::new(false),
            away: Gate::default(),
        }
    }

    pub(crate) fn resize(&self, size_bytes: usize) {
        self.bytes.write().expect("nothing panics").resize(size_bytes, 0);
    }

    pub(crate) fn contents(&self, range: ByteRange) -> Vec<u8> {
        let mut bytes = vec![0; place(range, usize::MAX).len()];
        self.read(range.start, &mut bytes).expect("it is inside");
        bytes
    }

    fn change(
        &self,
        action: Action,
        range: ByteRange,
        act: impl FnOnce(&mut [u8]),
    ) -> Result<(), DeviceError> {
        if self.is_read_only {
            return Err(DeviceError::new(DeviceErrorKind::ReadOnly, action, range));
        }
        let mut bytes = self.bytes.write().expect("nothing panics");
        if !range.fits(bytes.len() as u64) {
            return Err(DeviceError::new(DeviceErrorKind::OutOfRange, action, range));
        }
        let place = place(range, bytes.len());
        act(&mut bytes[place]);
        Ok(())
    }

    fn fetch(&self) {
        if self.is_away.load(Ordering::SeqCst) {
            self.away.pass();
        }
    }
}

fn place(range: ByteRange, length: usize) -> std::ops::Range<usize> {
    let start = usize::try_from(range.start).expect("it fits memory");
    let bytes = usize::try_from(range.length).expect("it fits memory");
    start..(start + bytes).min(length)
}

impl BlockDevice for MemoryDevice {
    fn geometry(&self) -> Geometry {
        let size_bytes = self.bytes.read().expect("nothing panics").len() as u64;
        Geometry { size_bytes, sector: SectorSize::Bytes512 }
    }

    fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.fetch();
        let range = ByteRange::new(offset_bytes, into.len() as u64);
        let bytes = self.bytes.read().expect("nothing panics");
        if !range.fits(bytes.len() as u64) {
            return Err(DeviceError::new(DeviceErrorKind::OutOfRange, Action::Read, range));
        }
        into.copy_from_slice(&bytes[place(range, bytes.len())]);
        Ok(())
    }

    fn read_in_place(
        &self,
        range: ByteRange,
        scratch: &mut [u8],
        visit: &mut dyn FnMut(&[IoSlice<'_>]),
    ) -> Result<(), DeviceError> {
        let into = &mut scratch[..usize::try_from(range.length).expect("it fits memory")];
        self.read(range.start, into)?;
        // Two slices, as if the data were on two pages.
        let (left, right) = into.split_at(into.len() / 2);
        visit(&[IoSlice::new(left), IoSlice::new(right)]);
        Ok(())
    }

    fn write(&self, offset_bytes: u64, from: &[u8]) -> Result<(), DeviceError> {
        self.fetch();
        let range = ByteRange::new(offset_bytes, from.len() as u64);
        self.change(Action::Write, range, |bytes| bytes.copy_from_slice(from))
    }

    fn write_zeroes(&self, range: ByteRange, _zeroes: Zeroes) -> Result<(), DeviceError> {
        self.change(Action::WriteZeroes, range, |bytes| bytes.fill(0))
    }

    fn discard(&self, range: ByteRange) -> Result<(), DeviceError> {
        if !range.fits(self.geometry().size_bytes) {
            return Err(DeviceError::new(DeviceErrorKind::OutOfRange, Action::Discard, range));
        }
        let start = range.start.next_multiple_of(4096);
        let end = (range.start + range.length) / 4096 * 4096;
        let whole = ByteRange::new(start, end.saturating_sub(start));
        self.change(Action::Discard, whole, |bytes| bytes.fill(0))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.flushes.pass();
        self.flush_count.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn write_cache(&self) -> WriteCache {
        if self.has_write_cache { WriteCache::Volatile } else { WriteCache::Absent }
    }

    fn data_may_be_away(&self) -> bool {
        self.is_away.load(Ordering::SeqCst)
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn extents(&self, range: ByteRange, _count_max: usize) -> Result<Vec<Extent>, DeviceError> {
        Ok(vec![Extent { range, kind: ExtentKind::Data }])
    }
}

/// An export in a temporary folder.
pub(crate) struct Exported {
    pub(crate) export: Option<Export>,
    pub(crate) device: Arc<MemoryDevice>,
    pub(crate) folder: tempfile::TempDir,
}

impl Exported {
    pub(crate) fn new(device: MemoryDevice, queue_count: u16) -> Self {
        let device = Arc::new(device);
        let folder = tempfile::tempdir().expect("a folder");
        let config = config(folder.path(), queue_count);
        let export = Export::start(config, Arc::<MemoryDevice>::clone(&device)).expect("a disk");
        Self { export: Some(export), device, folder }
    }

    pub(crate) fn export(&self) -> &Export {
        self.export.as_ref().expect("it runs")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        socket_in(self.folder.path())
    }

    /// Stops the export and starts another one on the same socket.
    pub(crate) fn start_again(&mut self, queue_count: u16) {
        drop(self.export.take());
        wait_until("the last export is gone", || !self.socket().exists());
        let config = config(self.folder.path(), queue_count);
        let device = Arc::<MemoryDevice>::clone(&self.device);
        self.export = Some(Export::start(config, device).expect("a disk"));
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        self.device.flushes.open();
        self.device.away.open();
    }
}

fn socket_in(folder: &Path) -> PathBuf {
    folder.join("disk.sock")
}

pub(crate) fn config(folder: &Path, queue_count: u16) -> Config {
    Config {
        socket: socket_in(folder),
        admits: Arc::new(|_| true),
        serial: SERIAL,
        queue_count,
        threads: Arc::new(ThreadBudget::new(64)),
        spin_permits: Arc::new(SpinPermits::for_this_machine()),
        spin_max: SPIN_MAX_DEFAULT,
    }
}
