//! Seed of a run: a fresh one, or one to replay.

use std::fs::File;
use std::io::Read;

use anyhow::{Context, Result};

/// Returns the seed in the environment variable `MEMLANE_SEED`, or a fresh one.
pub fn seed() -> Result<u64> {
    if let Ok(text) = std::env::var("MEMLANE_SEED") {
        return text.parse().with_context(|| format!("MEMLANE_SEED is no number: {text}"));
    }
    let mut bytes = [0; 4];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .context("cannot draw a seed")?;
    Ok(u64::from(u32::from_le_bytes(bytes)))
}
