//! Block device in a file on tmpfs: slow, simple, and durable over kills.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;

use block_device::{
    Action, BLOCK_BYTES, BlockDevice, ByteRange, DeviceError, DeviceErrorKind, Extent, ExtentKind,
    Geometry, SectorSize, WriteCache, Zeroes,
};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};

pub(crate) struct FileDevice {
    file: File,
    sector: SectorSize,
    /// While this file exists, flushes and writebacks block.
    gate: PathBuf,
    /// While this file exists, the device has no write cache.
    cacheless: PathBuf,
    /// While this file exists, flushes fail.
    broken: PathBuf,
    /// While this file exists, reads and writes of the first block block.
    away: PathBuf,
    /// If this file exists, each writeback extends it.
    early: PathBuf,
    /// Taken from the mode of the file.
    is_read_only: bool,
}

impl FileDevice {
    pub(crate) fn open(path: &Path, sector: &str) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let sector = if sector == "512" { SectorSize::Bytes512 } else { SectorSize::Bytes4096 };
        let is_read_only = file.metadata()?.permissions().readonly();
        let ends = ["gate", "cacheless", "broken", "away", "early"];
        let [gate, cacheless, broken, away, early] = ends.map(|end| path.with_extension(end));
        Ok(Self { file, sector, gate, cacheless, broken, away, early, is_read_only })
    }

    fn check(&self, action: Action, range: ByteRange) -> Result<(), DeviceError> {
        let moves_data = matches!(action, Action::Read | Action::Write);
        while moves_data && range.start < 4096 && self.away.exists() {
            thread::yield_now();
        }
        let changes = matches!(action, Action::Write | Action::WriteZeroes | Action::Discard);
        let kind = match range.fits(self.geometry().size_bytes) {
            true if changes && self.is_read_only => DeviceErrorKind::ReadOnly,
            true => return Ok(()),
            false => DeviceErrorKind::OutOfRange,
        };
        Err(DeviceError::new(kind, action, range))
    }

    fn wait_at_gate(&self) {
        while self.gate.exists() {
            thread::yield_now();
        }
    }

    fn end_of_run(&self, from: u64, end: u64, holes: bool) -> u64 {
        let whence = if holes { SeekFrom::Data(from) } else { SeekFrom::Hole(from) };
        seek(&self.file, whence).unwrap_or(end).min(end)
    }
}

fn range_of(offset: u64, length: usize) -> ByteRange {
    ByteRange::new(offset, u64::try_from(length).expect("lengths fit"))
}

/// Converts an error of tmpfs: it is full, or the test is wrong.
fn failed(action: Action, range: ByteRange) -> impl Fn(io::Error) -> DeviceError {
    move |error| {
        let full = error.kind() == io::ErrorKind::StorageFull;
        let kind = if full { DeviceErrorKind::NoSpace } else { DeviceErrorKind::Corrupt };
        DeviceError::new(kind, action, range)
    }
}

impl BlockDevice for FileDevice {
    fn geometry(&self) -> Geometry {
        let size_bytes = self.file.metadata().expect("the file is open").len();
        Geometry { size_bytes, sector: self.sector }
    }

    fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let range = range_of(offset_bytes, into.len());
        self.check(Action::Read, range)?;
        self.file.read_exact_at(into, offset_bytes).map_err(failed(Action::Read, range))
    }

    fn read_in_place(
        &self,
        range: ByteRange,
        scratch: &mut [u8],
        visit: &mut dyn FnMut(&[IoSlice<'_>]),
    ) -> Result<(), DeviceError> {
        let bytes = &mut scratch[..usize::try_from(range.length).expect("lengths fit")];
        self.read(range.start, bytes)?;
        let slices: Vec<_> = bytes.chunks(BLOCK_BYTES).map(IoSlice::new).collect();
        visit(&slices);
        Ok(())
    }

    fn write(&self, offset_bytes: u64, from: &[u8]) -> Result<(), DeviceError> {
        let range = range_of(offset_bytes, from.len());
        self.check(Action::Write, range)?;
        self.file.write_all_at(from, offset_bytes).map_err(failed(Action::Write, range))
    }

    fn write_zeroes(&self, range: ByteRange, zeroes: Zeroes) -> Result<(), DeviceError> {
        self.check(Action::WriteZeroes, range)?;
        if zeroes == Zeroes::Unmap {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            return fallocate(&self.file, flags, range.start, range.length)
                .map_err(|error| failed(Action::Discard, range)(error.into()));
        }
        let end = range.end().expect("the range fits the file");
        let mut at = range.start;
        while at < end {
            let length = (end - at).min(1 << 20);
            let zeros = vec![0; usize::try_from(length).expect("a mebibyte at most")];
            self.write(at, &zeros)?;
            at += length;
        }
        Ok(())
    }

    fn discard(&self, range: ByteRange) -> Result<(), DeviceError> {
        self.write_zeroes(range, Zeroes::Unmap)
    }

    fn write_back(&self) {
        if let Ok(mut early) = OpenOptions::new().append(true).open(&self.early) {
            early.write_all(b".").expect("tmpfs takes a byte");
        }
        self.wait_at_gate();
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.wait_at_gate();
        if self.broken.exists() {
            let kind = DeviceErrorKind::NotDurable;
            return Err(DeviceError::new(kind, Action::Flush, ByteRange::new(0, 0)));
        }
        Ok(())
    }

    fn write_cache(&self) -> WriteCache {
        if self.cacheless.exists() { WriteCache::Absent } else { WriteCache::Volatile }
    }

    fn data_may_be_away(&self) -> bool {
        self.away.exists()
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn extents(&self, range: ByteRange, count_max: usize) -> Result<Vec<Extent>, DeviceError> {
        self.check(Action::ListExtents, range)?;
        let end = range.end().expect("the range fits the file");
        let (mut extents, mut at) = (Vec::new(), range.start);
        while at < end && extents.len() < count_max {
            let data = self.end_of_run(at, end, true);
            let (kind, stop) = if data > at {
                (ExtentKind::Hole, data)
            } else {
                (ExtentKind::Data, self.end_of_run(at, end, false))
            };
            extents.push(Extent { range: ByteRange::new(at, stop - at), kind });
            at = stop;
        }
        Ok(extents)
    }
}
