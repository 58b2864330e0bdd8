//! Stores data on a target and measures the memory that it uses there.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use codec::BLOCK_BYTES;
use rustix::fs::{Advice, fadvise};

use super::progress::go_on;
use super::source::Opened;
use crate::targets::{Access, Target};

/// Interval of memory measurements.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Number of successive equal measurements, without pending work, that count as settled.
const ALIKE_LOOKS: u32 = 4;

/// Maximum time for background compression.
const SETTLING_TIME_LIMIT: Duration = Duration::from_secs(120);

/// Data that was stored, with its memory use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stored {
    pub(super) written_bytes: u64,
    /// Memory immediately after writing, and when it had settled.
    pub(super) used_bytes_first: u64,
    pub(super) used_bytes: u64,
    pub(super) settling_s: f64,
    pub(super) has_settled: bool,
    pub(super) writing_s: f64,
}

/// Writes everything, waits until memory use has settled, and measures it.
pub(super) fn store(target: &Target, source: &mut Opened) -> Result<Stored> {
    let begun = Instant::now();
    let path = path_of(target)?;
    let mut file = OpenOptions::new()
        .write(true)
        .open(path)
        .with_context(|| format!("cannot write to {}", target.name()))?;
    let mut written_bytes = 0;
    while let Some(piece) = source.next()? {
        go_on()?;
        let padding = vec![0; piece.len().next_multiple_of(BLOCK_BYTES) - piece.len()];
        file.write_all(piece)
            .and_then(|()| file.write_all(&padding))
            .with_context(|| format!("cannot store all data on {}", target.name()))?;
        written_bytes += (piece.len() + padding.len()) as u64;
    }
    file.sync_all().with_context(|| format!("cannot flush {}", target.name()))?;
    let writing_s = begun.elapsed().as_secs_f64();
    let used_bytes_first = used_bytes(target)?;
    let (used_bytes, settling_s, has_settled) = settle(target)?;
    Ok(Stored { written_bytes, used_bytes_first, used_bytes, settling_s, has_settled, writing_s })
}

/// Reads everything back and compares it with the source.
pub(super) fn check(target: &Target, source: &mut Opened) -> Result<()> {
    let mut file =
        File::open(path_of(target)?).with_context(|| format!("cannot read {}", target.name()))?;
    // The page cache must be bypassed to read what is stored.
    fadvise(&file, 0, None, Advice::DontNeed)
        .with_context(|| format!("cannot drop {} from the page cache", target.name()))?;
    let (mut found, mut place) = (Vec::new(), 0_u64);
    while let Some(piece) = source.next()? {
        go_on()?;
        found.resize(piece.len(), 0);
        file.read_exact(&mut found)
            .with_context(|| format!("cannot read back from {}", target.name()))?;
        if let Some(at) = piece.iter().zip(&found).position(|(expected, found)| expected != found) {
            bail!("{} returned wrong data at byte {}", target.name(), place + at as u64);
        }
        place += piece.len() as u64;
    }
    Ok(())
}

fn path_of(target: &Target) -> Result<&std::path::Path> {
    match target.access() {
        Access::File { path, .. } => Ok(path),
        _ => bail!("{} is not a file or device", target.name()),
    }
}

fn used_bytes(target: &Target) -> Result<u64> {
    let used = target.used_bytes()?;
    used.with_context(|| format!("{} does not report its memory use", target.name()))
}

fn settle(target: &Target) -> Result<(u64, f64, bool)> {
    let begun = Instant::now();
    let (mut last, mut alike, mut settled_s) = (used_bytes(target)?, 0, 0.0);
    while begun.elapsed() < SETTLING_TIME_LIMIT {
        go_on()?;
        std::thread::sleep(LOOK_INTERVAL);
        let now = used_bytes(target)?;
        if now == last && target.pending_bytes()? == 0 {
            alike += 1;
        } else {
            (alike, settled_s) = (0, begun.elapsed().as_secs_f64());
        }
        last = now;
        if alike == ALIKE_LOOKS {
            return Ok((last, settled_s, true));
        }
    }
    ensure!(last > 0, "{} reports a memory use of zero", target.name());
    Ok((last, begun.elapsed().as_secs_f64(), false))
}
