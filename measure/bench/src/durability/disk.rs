//! Sequential direct I/O on the disk itself, like `dd` with direct I/O.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::fs::{Advice, OFlags, fadvise};
use system::{Interruption, Random};

use crate::aligned::Aligned;

const PIECE_BYTES: usize = 1 << 20;

/// A file for sequential I/O, removed when dropped.
pub(super) struct DirectFile {
    path: PathBuf,
    size_bytes: u64,
}

impl DirectFile {
    pub(super) fn new(path: PathBuf, size_bytes: u64) -> Self {
        Self { path, size_bytes }
    }

    /// Writes a new file of random data and makes it durable.
    pub(super) fn write(&self, seed: u64) -> Result<Duration> {
        let mut file = self.open(File::options().write(true).create_new(true))?;
        let mut piece = Aligned::new(PIECE_BYTES);
        Random::new(seed).fill(piece.bytes_mut());
        let begun = Instant::now();
        for number in 0..self.pieces() {
            ensure!(!Interruption::is_asked_for(), "interrupted while the disk is written");
            // Makes each piece unique.
            piece.bytes_mut()[..8].copy_from_slice(&number.to_le_bytes());
            file.write_all(piece.bytes()).with_context(|| self.what("write"))?;
        }
        file.sync_data().with_context(|| self.what("sync"))?;
        Ok(begun.elapsed())
    }

    pub(super) fn read(&self) -> Result<Duration> {
        let mut file = self.open(File::options().read(true))?;
        let mut piece = Aligned::new(PIECE_BYTES);
        let begun = Instant::now();
        for _ in 0..self.pieces() {
            ensure!(!Interruption::is_asked_for(), "interrupted while the disk is read");
            file.read_exact(piece.bytes_mut()).with_context(|| self.what("read"))?;
        }
        Ok(begun.elapsed())
    }

    fn pieces(&self) -> u64 {
        self.size_bytes / PIECE_BYTES as u64
    }

    fn open(&self, options: &mut fs::OpenOptions) -> Result<File> {
        let flags = i32::try_from(OFlags::DIRECT.bits()).context("a flag of the kernel")?;
        options.custom_flags(flags).open(&self.path).with_context(|| self.what("open"))
    }

    fn what(&self, action: &str) -> String {
        format!("cannot {action} {} with O_DIRECT", self.path.display())
    }
}

impl Drop for DirectFile {
    fn drop(&mut self) {
        // If this fails, the file is removed with its folder.
        let _ = fs::remove_file(&self.path);
    }
}

/// Returns the total size of all files below a folder.
pub(super) fn stored_bytes(folder: &Path) -> Result<u64> {
    let mut sum = 0;
    each_file(folder, &mut |path| {
        sum += fs::metadata(path)?.len();
        Ok(())
    })?;
    Ok(sum)
}

/// Drops all files of a folder from the page cache, as after a power loss.
pub(super) fn forget_cached(folder: &Path) -> Result<()> {
    each_file(folder, &mut |path| {
        let file = File::open(path)?;
        file.sync_data()?;
        Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
    })
}

fn each_file(folder: &Path, work: &mut dyn FnMut(&Path) -> Result<()>) -> Result<()> {
    let entries = fs::read_dir(folder);
    for entry in entries.with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            each_file(&path, work)?;
        } else {
            work(&path).with_context(|| format!("cannot stat {}", path.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_whole_read_whole_and_removed() {
        let folder = tempfile::tempdir_in("/var/tmp").expect("there is a disk");
        let path = folder.path().join("direct");
        let file = DirectFile::new(path.clone(), 3 << 20);
        file.write(1).expect("the disk takes it");
        assert_eq!(stored_bytes(folder.path()).ok(), Some(3 << 20));
        forget_cached(folder.path()).expect("the kernel forgets");
        file.read().expect("it is whole");
        drop(file);
        assert!(!path.exists());
    }
}
