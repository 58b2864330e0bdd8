//! Device that fails and blocks on demand, and records its calls.
#![allow(dead_code, reason = "each program that includes this uses a part of it")]

use std::io::IoSlice;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};

use block_device::{
    Action, BlockDevice, ByteRange, DeviceError, DeviceErrorKind, Extent, Geometry, Zeroes,
};

use crate::support::SparseDevice;

/// Fault in every `action` that touches the byte at `at`.
#[derive(Clone, Copy)]
pub(crate) struct Fault {
    pub(crate) action: Action,
    pub(crate) at: u64,
    pub(crate) kind: DeviceErrorKind,
}

pub(crate) struct FaultyDevice {
    inner: SparseDevice,
    fault: Mutex<Option<Fault>>,
    flush_count: AtomicUsize,
    /// Action that is blocked.
    held: Mutex<Option<Action>>,
    released: Condvar,
    reads: Mutex<Vec<ByteRange>>,
    writes: Mutex<Vec<ByteRange>>,
}

impl FaultyDevice {
    pub(crate) fn new(size_bytes: u64) -> Self {
        Self {
            inner: SparseDevice::new(size_bytes),
            fault: Mutex::default(),
            flush_count: AtomicUsize::new(0),
            held: Mutex::default(),
            released: Condvar::new(),
            reads: Mutex::default(),
            writes: Mutex::default(),
        }
    }

    pub(crate) fn set_fault(&self, fault: Fault) {
        *self.fault.lock().expect("nothing panics") = Some(fault);
    }

    pub(crate) fn clear_fault(&self) {
        *self.fault.lock().expect("nothing panics") = None;
    }

    /// Blocks all flushes, or all writes, until [`FaultyDevice::release`].
    pub(crate) fn hold(&self, action: Action) {
        *self.held.lock().expect("nothing panics") = Some(action);
    }

    pub(crate) fn release(&self) {
        *self.held.lock().expect("nothing panics") = None;
        self.released.notify_all();
    }

    fn wait_while_held(&self, action: Action) {
        let held = self.held.lock().expect("nothing panics");
        let is_held = |held: &mut Option<Action>| *held == Some(action);
        drop(self.released.wait_while(held, is_held).expect("nothing panics"));
    }

    /// Number of flushes that have started.
    pub(crate) fn flush_count(&self) -> usize {
        self.flush_count.load(Ordering::Relaxed)
    }

    /// Ranges that were read, in order.
    pub(crate) fn reads(&self) -> Vec<ByteRange> {
        self.reads.lock().expect("nothing panics").clone()
    }

    /// Clears the recorded reads and writes.
    pub(crate) fn forget(&self) {
        self.reads.lock().expect("nothing panics").clear();
        self.writes.lock().expect("nothing panics").clear();
    }

    /// Ranges that were written, in order.
    pub(crate) fn writes(&self) -> Vec<ByteRange> {
        self.writes.lock().expect("nothing panics").clone()
    }

    fn check(&self, action: Action, range: ByteRange) -> Result<(), DeviceError> {
        match *self.fault.lock().expect("nothing panics") {
            Some(fault)
                if fault.action == action
                    && (range.start..range.start + range.length).contains(&fault.at) =>
            {
                Err(DeviceError::new(fault.kind, action, range))
            }
            _ => Ok(()),
        }
    }
}

impl BlockDevice for FaultyDevice {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let range = ByteRange::new(offset_bytes, into.len() as u64);
        self.check(Action::Read, range)?;
        self.reads.lock().expect("nothing panics").push(range);
        self.inner.read(offset_bytes, into)
    }

    fn read_in_place(
        &self,
        range: ByteRange,
        scratch: &mut [u8],
        visit: &mut dyn FnMut(&[IoSlice<'_>]),
    ) -> Result<(), DeviceError> {
        self.check(Action::Read, range)?;
        self.inner.read_in_place(range, scratch, visit)
    }

    fn write(&self, offset_bytes: u64, from: &[u8]) -> Result<(), DeviceError> {
        let range = ByteRange::new(offset_bytes, from.len() as u64);
        self.check(Action::Write, range)?;
        self.writes.lock().expect("nothing panics").push(range);
        self.wait_while_held(Action::Write);
        self.inner.write(offset_bytes, from)
    }

    fn write_zeroes(&self, range: ByteRange, zeroes: Zeroes) -> Result<(), DeviceError> {
        self.check(Action::WriteZeroes, range)?;
        self.inner.write_zeroes(range, zeroes)
    }

    fn discard(&self, range: ByteRange) -> Result<(), DeviceError> {
        self.check(Action::Discard, range)?;
        self.inner.discard(range)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.flush_count.fetch_add(1, Ordering::Relaxed);
        self.wait_while_held(Action::Flush);
        self.check(Action::Flush, ByteRange::new(0, 1))?;
        self.inner.flush()
    }

    fn extents(&self, range: ByteRange, count_max: usize) -> Result<Vec<Extent>, DeviceError> {
        self.check(Action::ListExtents, range)?;
        self.inner.extents(range, count_max)
    }
}
