//! Measures the write throughput of a store without saving an image.

use std::time::{Duration, Instant};

use storage::AlignedBuffer;

use crate::error::ImageError;
use crate::format::chunk::HEADER_BYTES;
use crate::format::manifest::PACK_BYTES_MAX;
use crate::names::PackName;
use crate::store::{ImageStore, ObjectName};
use crate::watch::{Progress, Watch, bytes_a_second, check_cancelled};

/// A rehearsal ends after this many bytes, or after the first pack that completes past this time.
const BYTES_MAX: u64 = 1 << 30;
const DURATION_MIN: Duration = Duration::from_secs(1);

const APPENDED_BYTES: usize = 4 << 20;

/// Results of a rehearsal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rehearsed {
    pub bytes_written: u64,
    pub took: Duration,
}

impl Rehearsed {
    /// Returns the rate at which data became durable.
    pub fn bytes_a_second(&self) -> u64 {
        bytes_a_second(self.bytes_written, self.took)
    }
}

/// Writes packs of incompressible data, then removes them. `writer` must be random. Packs left by a
/// kill are collected like other unreferenced ones.
pub fn rehearse(
    store: &dyn ImageStore,
    writer: u128,
    watch: &dyn Watch,
) -> Result<Rehearsed, ImageError> {
    let mut bytes = AlignedBuffer::zeroed(APPENDED_BYTES);
    let mut fresh = blake3::Hasher::new().update(&writer.to_le_bytes()).finalize_xof();
    fresh.fill(&mut bytes);
    let mut name = PackName { writer, index: 0 };
    let begun = Instant::now();
    let mut done = Rehearsed { bytes_written: 0, took: Duration::ZERO };
    let mut write_pack = |name, done: &mut Rehearsed| {
        let mut pack = store.begin_pack(name)?;
        for _ in 0..PACK_BYTES_MAX / APPENDED_BYTES as u64 {
            check_cancelled(watch, "rehearse saving an image")?;
            // Makes all blocks distinct, in case the storage deduplicates.
            for block in bytes.chunks_exact_mut(HEADER_BYTES) {
                block[..8].copy_from_slice(&done.bytes_written.to_le_bytes());
            }
            pack.append(&bytes)?;
            done.bytes_written += APPENDED_BYTES as u64;
            watch.on_progress(Progress { done_bytes: done.bytes_written, total_bytes: BYTES_MAX });
        }
        pack.finish()
    };
    let mut result = Ok(());
    while result.is_ok() && done.bytes_written < BYTES_MAX && done.took < DURATION_MIN {
        result = write_pack(name, &mut done);
        done.took = begun.elapsed();
        name.index += 1;
    }
    for index in 0..name.index {
        let removed = store.remove(ObjectName::Pack(PackName { index, ..name }));
        result = result.and(removed);
    }
    result.map(|()| done)
}
