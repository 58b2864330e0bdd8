//! Implementation of [`StableFile`] on a Linux file.
//!
//! Direct I/O requires block-aligned addresses, offsets and lengths. Unaligned data is copied
//! through a bounded buffer, piece by piece.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, ReadWriteFlags, pwritev2};
use sync::atomic::AtomicU64;
use sync::atomic::Ordering::Relaxed;

use crate::aligned::{AlignedBuffer, is_aligned};
use crate::error::{StorageAction, StorageError, StorageErrorKind};
use crate::folder::{BLOCK_BYTES, StableFile};

/// Maximum length of a piece that is copied for alignment.
const PIECE_BYTES_MAX: usize = 1 << 20;

/// Maximum number of parts in one system call (`IOV_MAX`).
const PARTS_MAX: usize = 1024;

#[derive(Debug)]
pub(crate) struct LinuxFile {
    file: File,
    name: String,
    /// Never decreases.
    size_bytes: AtomicU64,
}

impl LinuxFile {
    pub(crate) fn new(file: File, name: String) -> io::Result<Self> {
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(Errno::ISDIR.into());
        }
        Ok(Self { file, name, size_bytes: AtomicU64::new(metadata.len()) })
    }

    pub(crate) fn set_name(&mut self, name: String) {
        self.name = name;
    }

    /// Extends the file durably to `size_bytes` of written zeros.
    pub(crate) fn write_zeros(&self, size_bytes: u64) -> io::Result<()> {
        let zeros = AlignedBuffer::zeroed(PIECE_BYTES_MAX);
        let mut offset = 0;
        while offset < size_bytes {
            let length = usize::try_from(size_bytes - offset).unwrap_or(usize::MAX);
            let piece = &zeros[..length.min(PIECE_BYTES_MAX)];
            self.write_parts(offset, &[IoSlice::new(piece)], false)?;
            offset += piece.len() as u64;
        }
        self.size_bytes.store(size_bytes, Relaxed);
        self.file.sync_all()
    }

    /// Returns whether the call may be repeated: after an interruption, or without direct I/O if
    /// that was refused. Some file systems accept the flag and refuse the calls.
    fn may_go_on(&self, error: &io::Error) -> bool {
        if error.raw_os_error() != Some(Errno::INVAL.raw_os_error()) {
            return error.kind() == io::ErrorKind::Interrupted;
        }
        match fcntl_getfl(&self.file) {
            Ok(flags) if flags.contains(OFlags::DIRECT) => {
                fcntl_setfl(&self.file, flags - OFlags::DIRECT).is_ok()
            }
            _ => false,
        }
    }

    fn read_in_blocks(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let mut buffer = AlignedBuffer::zeroed(bounce_bytes(offset, into.len()));
        let mut done = 0;
        while done < into.len() {
            let at = offset + done as u64;
            let inside = usize::try_from(at % BLOCK_BYTES as u64).expect("a block is small");
            let length = (into.len() - done).min(buffer.len() - inside);
            let wanted = (inside + length).next_multiple_of(BLOCK_BYTES);
            self.read_at_least(at - inside as u64, &mut buffer[..wanted], inside + length)?;
            into[done..done + length].copy_from_slice(&buffer[inside..inside + length]);
            done += length;
        }
        Ok(())
    }

    /// Fills `into`. The bytes after `needed` may be beyond the end of the file.
    fn read_at_least(&self, offset: u64, into: &mut [u8], needed: usize) -> io::Result<()> {
        let mut done = 0;
        while done < needed {
            match self.file.read_at(&mut into[done..], offset + done as u64) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => done += count,
                Err(error) if self.may_go_on(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn put(
        &self,
        action: StorageAction,
        offset: u64,
        parts: &[IoSlice<'_>],
    ) -> Result<(), StorageError> {
        let total: usize = parts.iter().map(|part| part.len()).sum();
        let invalid = |why| {
            let kind = StorageErrorKind::Invalid(why);
            Err(StorageError::new(kind, action, self.name.clone()))
        };
        if !(offset | total as u64).is_multiple_of(BLOCK_BYTES as u64) {
            return invalid("writes begin and end at multiples of 4096 bytes");
        }
        if offset > self.size_bytes() {
            return invalid("a write begins past the end of the file");
        }
        let is_durable = action == StorageAction::WriteDurably;
        let written = if parts.iter().all(|part| is_aligned(part)) {
            self.write_parts(offset, parts, is_durable)
        } else {
            self.write_copied(offset, parts, is_durable)
        };
        written.map_err(|error| StorageError::from_io(error, action, self.name.clone()))?;
        self.size_bytes.fetch_max(offset + total as u64, Relaxed);
        Ok(())
    }

    fn write_copied(&self, offset: u64, parts: &[IoSlice<'_>], durable: bool) -> io::Result<()> {
        let total: usize = parts.iter().map(|part| part.len()).sum();
        let is_one_piece = total <= PIECE_BYTES_MAX;
        let mut piece = AlignedBuffer::with_capacity(total.min(PIECE_BYTES_MAX));
        let mut at = offset;
        for part in parts {
            let mut rest = &part[..];
            while !rest.is_empty() {
                let (now, later) = rest.split_at(rest.len().min(PIECE_BYTES_MAX - piece.len()));
                piece.extend_from_slice(now);
                rest = later;
                if piece.len() == PIECE_BYTES_MAX && !is_one_piece {
                    self.write_parts(at, &[IoSlice::new(&piece)], false)?;
                    at += piece.len() as u64;
                    piece.clear();
                }
            }
        }
        self.write_parts(at, &[IoSlice::new(&piece)], durable && is_one_piece)?;
        if durable && !is_one_piece { self.file.sync_data() } else { Ok(()) }
    }

    fn write_parts(&self, offset: u64, parts: &[IoSlice<'_>], durable: bool) -> io::Result<()> {
        // The flag covers only the range of its own call.
        let mut by_flag = durable && parts.len() <= PARTS_MAX;
        let mut at = offset;
        for parts in parts.chunks(PARTS_MAX) {
            let mut parts = parts.to_vec();
            let mut rest = &mut parts[..];
            // Skip empty parts, which would otherwise remain at the end.
            IoSlice::advance_slices(&mut rest, 0);
            while !rest.is_empty() {
                let flags = if by_flag { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
                match pwritev2(&self.file, rest, at, flags) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(count) => {
                        at += count as u64;
                        IoSlice::advance_slices(&mut rest, count);
                    }
                    // The file system does not support the flag.
                    Err(Errno::OPNOTSUPP) if by_flag => by_flag = false,
                    Err(error) if self.may_go_on(&error.into()) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        if durable && !by_flag { self.file.sync_data() } else { Ok(()) }
    }
}

/// Length of one read through the buffer, in whole blocks.
fn bounce_bytes(offset: u64, length: usize) -> usize {
    let inside = usize::try_from(offset % BLOCK_BYTES as u64).expect("a block is small");
    (inside + length).next_multiple_of(BLOCK_BYTES).min(PIECE_BYTES_MAX)
}

impl StableFile for LinuxFile {
    fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Relaxed)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), StorageError> {
        let action = StorageAction::Read;
        if offset.checked_add(into.len() as u64).is_none_or(|end| end > self.size_bytes()) {
            let kind = StorageErrorKind::Invalid("the range ends past the end of the file");
            return Err(StorageError::new(kind, action, self.name.clone()));
        }
        let is_direct = is_aligned(into) && offset.is_multiple_of(BLOCK_BYTES as u64);
        let read = if is_direct {
            self.read_at_least(offset, into, into.len())
        } else {
            self.read_in_blocks(offset, into)
        };
        read.map_err(|error| StorageError::from_io(error, action, self.name.clone()))
    }

    fn write(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<(), StorageError> {
        self.put(StorageAction::Write, offset, parts)
    }

    fn write_durably(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<(), StorageError> {
        self.put(StorageAction::WriteDurably, offset, parts)
    }

    fn sync(&self) -> Result<(), StorageError> {
        self.file
            .sync_data()
            .map_err(|error| StorageError::from_io(error, StorageAction::Sync, self.name.clone()))
    }
}
