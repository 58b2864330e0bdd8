//! Writers that make each block durable before writing the next.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use system::{Interruption, NbdClient, Request};

use crate::clock::Random;
use crate::contents::{Contents, Data};
use crate::latency::Latencies;

pub(super) const BLOCK_BYTES: u64 = block_device::BLOCK_BYTES as u64;

/// Access to stable storage for one writer.
pub(super) trait Storage: Send {
    fn write(&mut self, offset_bytes: u64, block: &[u8]) -> Result<()>;

    /// Makes previous writes durable.
    fn flush(&mut self) -> Result<()>;
}

/// A file or block device through the page cache: `write` and `fdatasync`.
impl Storage for File {
    fn write(&mut self, offset_bytes: u64, block: &[u8]) -> Result<()> {
        Ok(self.write_all_at(block, offset_bytes)?)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(self.sync_data()?)
    }
}

impl Storage for NbdClient {
    fn write(&mut self, offset_bytes: u64, block: &[u8]) -> Result<()> {
        self.ask(&Request::Write { offset: offset_bytes, data: block.to_vec() })?;
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.ask(&Request::Flush)?;
        Ok(())
    }
}

/// A writer's storage and its own range.
pub(super) struct Writer {
    pub(super) storage: Box<dyn Storage>,
    pub(super) share: Range<u64>,
}

/// Combined result of all writers.
pub(super) struct Written {
    /// Latency from the start of each write until it was durable.
    pub(super) latencies: Latencies,
    pub(super) elapsed: Duration,
}

/// Runs the writers. Each overwrites random blocks of its range sequentially until the time is
/// over, at least once.
pub(super) fn run(writers: Vec<Writer>, time: Duration, seed: u64) -> Result<Written> {
    let start = Barrier::new(writers.len());
    let begun = Instant::now();
    let all = thread::scope(|scope| {
        let threads: Vec<_> = (1..)
            .zip(writers)
            .map(|(number, writer)| {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    write_until(writer, Instant::now() + time, seed.wrapping_add(number))
                })
            })
            .collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Result<Latencies>>| {
            thread.join().map_err(|_| anyhow!("a writer panicked"))?
        };
        threads.into_iter().map(join).collect::<Result<Vec<_>>>()
    })?;
    let elapsed = begun.elapsed();
    let mut latencies = Latencies::new();
    all.iter().for_each(|own| latencies.add(own));
    Ok(Written { latencies, elapsed })
}

fn write_until(mut writer: Writer, deadline: Instant, seed: u64) -> Result<Latencies> {
    let mut contents = Contents::new(Data::Random, block_bytes(), seed);
    let mut places = Random::new(seed);
    let blocks = (writer.share.end - writer.share.start) / BLOCK_BYTES;
    let mut latencies = Latencies::new();
    loop {
        let begun = Instant::now();
        let offset_bytes = writer.share.start + places.below(blocks) * BLOCK_BYTES;
        writer.storage.write(offset_bytes, contents.next())?;
        writer.storage.flush()?;
        latencies.record_time(begun.elapsed());
        if Instant::now() >= deadline || Interruption::is_asked_for() {
            return Ok(latencies);
        }
    }
}

pub(super) fn block_bytes() -> usize {
    usize::try_from(BLOCK_BYTES).expect("a constant")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_writer_keeps_to_its_share() {
        let file = tempfile::tempfile().expect("there is room for a file");
        file.set_len(8 * BLOCK_BYTES).expect("it can be grown");
        let shares = [2 * BLOCK_BYTES..4 * BLOCK_BYTES, 5 * BLOCK_BYTES..6 * BLOCK_BYTES];
        let writer = |share: &Range<u64>| {
            let storage = Box::new(file.try_clone().expect("it is open"));
            Writer { storage, share: share.clone() }
        };
        let writers = shares.iter().map(writer).collect();
        let written = run(writers, Duration::from_millis(50), 7).expect("the file takes it");
        assert!(written.latencies.count() >= 2, "{} writes", written.latencies.count());
        let mut block = vec![0; block_bytes()];
        for index in 0..8 {
            file.read_exact_at(&mut block, index * BLOCK_BYTES).expect("it is as long");
            let is_shared = shares.iter().any(|share| share.contains(&(index * BLOCK_BYTES)));
            let is_written = block.iter().any(|byte| *byte != 0);
            assert!(is_shared || !is_written, "block {index} is nobody's");
        }
    }
}
