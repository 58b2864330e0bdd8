//! Random operations on a file, each compared with the expected result.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, anyhow, ensure};
use rustix::fs::Advice;

use random::Random;

const FILE_BYTES_MAX: usize = 8 << 20;
const OPERATION_BYTES_MAX: usize = 128 << 10;

/// State shared by the checking thread and its owner.
#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    operations: AtomicU64,
}

/// A thread that performs operations on one file until it is stopped.
pub struct FileChecker {
    shared: Arc<Shared>,
    thread: JoinHandle<Result<()>>,
}

impl FileChecker {
    /// Starts operations on a new file at `path`.
    pub fn start(path: &Path, seed: u64) -> Result<Self> {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)
            .with_context(|| format!("cannot create {}", path.display()))?;
        let shared = Arc::new(Shared::default());
        let worker = Worker { file, random: Random::new(seed), expected: Vec::new() };
        let its_shared = Arc::clone(&shared);
        let thread = thread::spawn(move || worker.run(&its_shared));
        Ok(Self { shared, thread })
    }

    /// Number of successful operations so far.
    pub fn operation_count(&self) -> u64 {
        self.shared.operations.load(Ordering::Acquire)
    }

    /// Returns whether the thread has ended before it was stopped, which is a failure.
    pub fn has_failed(&self) -> bool {
        self.thread.is_finished()
    }

    /// Stops the thread after a final comparison of the whole file.
    pub fn finish(self) -> Result<()> {
        self.shared.is_over.store(true, Ordering::Release);
        self.thread.join().map_err(|_| anyhow!("the thread that checks files panicked"))?
    }
}

struct Worker {
    file: File,
    random: Random,
    expected: Vec<u8>,
}

impl Worker {
    fn run(mut self, shared: &Shared) -> Result<()> {
        while !shared.is_over.load(Ordering::Acquire) {
            self.operate().context("an operation on the checked file failed")?;
            shared.operations.fetch_add(1, Ordering::AcqRel);
        }
        self.file.sync_all().context("cannot sync the checked file")?;
        self.forget_cached()?;
        self.compare(0, self.expected.len())
    }

    fn operate(&mut self) -> Result<()> {
        match self.random.below(16) {
            0..7 => self.write(),
            7..11 => {
                let (start, length) = self.draw_range(self.expected.len());
                self.compare(start, length)
            }
            11 => self.set_length(),
            12 => Ok(self.file.sync_data()?),
            13 => {
                self.file.sync_data()?;
                self.forget_cached()
            }
            _ => self.punch(),
        }
    }

    fn write(&mut self) -> Result<()> {
        let (start, length) = self.draw_range(FILE_BYTES_MAX);
        let mut data = vec![0; length];
        // Half of the data is compressible.
        let noise_length = if self.random.below(2) == 0 { length } else { length / 4 };
        self.random.fill(&mut data[..noise_length]);
        self.file.write_all_at(&data, start as u64)?;
        if self.expected.len() < start + length {
            self.expected.resize(start + length, 0);
        }
        self.expected[start..start + length].copy_from_slice(&data);
        Ok(())
    }

    fn set_length(&mut self) -> Result<()> {
        let length = self.random.index(FILE_BYTES_MAX);
        self.file.set_len(length as u64)?;
        self.expected.resize(length, 0);
        Ok(())
    }

    fn punch(&mut self) -> Result<()> {
        let (start, length) = self.draw_range(self.expected.len());
        if length == 0 {
            return Ok(());
        }
        let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&self.file, flags, start as u64, length as u64)?;
        self.expected[start..start + length].fill(0);
        Ok(())
    }

    fn compare(&self, start: usize, length: usize) -> Result<()> {
        let mut found = vec![0; length];
        self.file.read_exact_at(&mut found, start as u64)?;
        let expected = &self.expected[start..start + length];
        let difference = found.iter().zip(expected).position(|(one, other)| one != other);
        ensure!(
            difference.is_none(),
            "byte {:?} of the file is not what was written",
            difference.map(|at| at + start)
        );
        Ok(())
    }

    /// Drops cached pages, so that the next read comes from the device.
    fn forget_cached(&self) -> Result<()> {
        Ok(rustix::fs::fadvise(&self.file, 0, None, Advice::DontNeed)?)
    }

    /// Returns a start below `end` and a length that stays below it.
    fn draw_range(&mut self, end: usize) -> (usize, usize) {
        if end == 0 {
            return (0, 0);
        }
        let start = self.random.index(end);
        let length = self.random.index((end - start).min(OPERATION_BYTES_MAX) + 1);
        (start, length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::wait_for;
    use std::time::Duration;

    #[test]
    fn a_good_file_system_passes() {
        let folder = tempfile::tempdir().expect("there is room for a folder");
        let checker = FileChecker::start(&folder.path().join("f"), 1).expect("the folder is there");
        wait_for("some operations", Duration::from_secs(60), || {
            Ok(checker.operation_count() > 50 || checker.has_failed())
        })
        .expect("the thread works");
        checker.finish().expect("the file system is good");
    }

    #[test]
    fn a_changed_byte_is_found() {
        let file = tempfile::tempfile().expect("there is room for a file");
        let mut worker = Worker { file, random: Random::new(1), expected: Vec::new() };
        while worker.expected.is_empty() {
            worker.write().expect("the file can be written");
        }
        worker.file.write_all_at(&[!worker.expected[0]], 0).expect("the file can be written");
        worker.compare(0, 1).expect_err("the byte was changed");
    }
}
