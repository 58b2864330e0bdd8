//! Memory that a log keeps for what comes, so that it goes on where others have filled the pool.
//!
//! ```text
//!  in use   header ┃ batches ────────────▶┃ filler ───────────────┃ nothing
//!  spare    header ┃ filler ─────────────────────────────────────┃ nothing
//!                  0                      end                    reserved
//! ```
//!
//! Nothing of it is given back: a segment that was deleted becomes the spare one, and the next
//! segment is made of that. A volume that stores pages as they are finds memory for what overwrites
//! them. Filler is no batch at any byte of it.

use std::ops::Range;
use std::sync::LazyLock;

use block_device::{BlockDevice, ByteRange};

use crate::error::{LogError, LogErrorKind};
use crate::layout::{SLOT_BYTES, Slot};

/// The most that is written at a time: what is overwritten comes back after each.
const FILLER_BYTES: usize = 32 << 10;

/// Bytes that no volume stores as a pattern, and none of which is the version of a batch.
static FILLER: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let number = |it: usize| u8::try_from((it * it / 7 + it) % 128).expect("less than 128");
    (0..FILLER_BYTES).map(|it| 128 + number(it)).collect()
});

/// Fills blocks of batches as [`fill`] does, and gives back all that is behind them. Without any,
/// that is all behind the beginning.
pub(crate) fn fill_or_give_back(
    device: &dyn BlockDevice,
    slot: Slot,
    positions: Range<u64>,
) -> Result<u64, LogError> {
    let filled = fill(device, slot, positions)?;
    let after = slot.batches(filled);
    let range = ByteRange::new(after, slot.start() + SLOT_BYTES - after);
    device.discard(range).map_err(|error| {
        LogError::device(format!("cannot give back the end of segment {}", slot.0), error)
    })?;
    Ok(filled)
}

/// Has blocks of batches hold filler, as far as there is memory. Returns how far.
pub(crate) fn fill(
    device: &dyn BlockDevice,
    slot: Slot,
    positions: Range<u64>,
) -> Result<u64, LogError> {
    let mut filled = positions.start;
    while filled < positions.end {
        let length = (positions.end - filled).min(FILLER_BYTES as u64);
        match write(device, slot.batches(filled), length) {
            Ok(()) => filled += length,
            Err(error) if error.kind == LogErrorKind::NoSpace => break,
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

pub(crate) fn write(device: &dyn BlockDevice, at: u64, length: u64) -> Result<(), LogError> {
    let length = usize::try_from(length).expect("at most all of it");
    let written = device.write(at, &FILLER[..length]);
    written.map_err(|error| LogError::device("cannot take memory for what comes", error))
}
