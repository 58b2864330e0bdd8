//! A device accessed as a file of the kernel: an attached device, or a volume's file.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use block_device::{ByteRange, Zeroes};
use rustix::fs::{FallocateFlags, OFlags, fallocate};

use crate::subject::{Abilities, Refusal, Subject};

/// A file or block device opened for direct I/O, so that each call is a request.
#[derive(Debug)]
pub struct FileSubject {
    file: File,
    size_bytes: u64,
    abilities: Abilities,
    is_read_only: bool,
}

impl FileSubject {
    /// Opens a device whose logical sectors have `granularity_bytes`.
    pub fn open(path: &Path, granularity_bytes: usize) -> io::Result<Self> {
        Self::with(path, granularity_bytes, false)
    }

    /// Opens a read-only device. It is opened for writing nevertheless, so that the device rejects
    /// each change. If the kernel rejects it, that counts as well.
    pub fn open_read_only(path: &Path, granularity_bytes: usize) -> io::Result<Self> {
        Self::with(path, granularity_bytes, true)
    }

    fn with(path: &Path, granularity_bytes: usize, is_read_only: bool) -> io::Result<Self> {
        let open = |for_writing: bool| {
            let mut options = OpenOptions::new();
            options.read(true).write(for_writing);
            options.custom_flags(OFlags::DIRECT.bits().cast_signed()).open(path)
        };
        let mut file = match open(true) {
            Err(error) if is_read_only && is_refusal(&error) => open(false)?,
            opened => opened?,
        };
        let size_bytes = file.seek(io::SeekFrom::End(0))?;
        // A kernel shortens a request at the end, and treats discards as hints. Hole punching is
        // not a hint, and is what `write_zeroes` uses.
        let abilities =
            Abilities { granularity_bytes, refuses_whole: false, zeroes: true, discards: false };
        Ok(Self { file, size_bytes, abilities, is_read_only })
    }
}

impl Subject for FileSubject {
    fn abilities(&self) -> Abilities {
        self.abilities
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), Refusal> {
        let mut aligned = Aligned::new(into.len());
        self.file.read_exact_at(aligned.bytes(), offset_bytes).map_err(Refusal::of)?;
        into.copy_from_slice(aligned.bytes());
        Ok(())
    }

    fn write(&self, offset_bytes: u64, from: &[u8]) -> Result<(), Refusal> {
        let mut aligned = Aligned::new(from.len());
        aligned.bytes().copy_from_slice(from);
        self.file.write_all_at(aligned.bytes(), offset_bytes).map_err(Refusal::of)
    }

    fn write_zeroes(&self, range: ByteRange, zeroes: Zeroes) -> Result<(), Refusal> {
        let flags = match zeroes {
            Zeroes::Unmap => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            Zeroes::KeepAllocated => FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
        };
        fallocate(&self.file, flags, range.start, range.length).map_err(Refusal::of)
    }

    fn discard(&self, range: ByteRange) -> Result<(), Refusal> {
        Err(Refusal(format!("a kernel's file cannot be told to discard {range}")))
    }

    fn flush(&self) -> Result<(), Refusal> {
        self.file.sync_data().map_err(Refusal::of)
    }
}

/// Returns whether the error is that of a read-only file or device.
fn is_refusal(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

/// Bytes with the alignment of direct I/O.
struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Aligned {
    fn new(length: usize) -> Self {
        let bytes = vec![0; length + 4096];
        let start = bytes.as_ptr().align_offset(4096);
        Self { bytes, start, length }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}
