//! Reserved memory of a log, with which it can continue when the pool is full.
//!
//! ```text
//!  in use   header ┃ batches ────────────▶┃ filler ───────────────┃ nothing
//!  spare    header ┃ filler ─────────────────────────────────────┃ nothing
//!                  0                      end                    reserved
//! ```
//!
//! Reserved memory is never freed: a deleted segment becomes the spare one, which becomes the next
//! active segment. A volume that stores pages without reduction can always overwrite them. Filler
//! contains no valid batch at any position.

use std::ops::Range;
use std::sync::LazyLock;

use block_device::{BlockDevice, ByteRange};

use crate::error::{LogError, LogErrorKind};
use crate::layout::{SLOT_BYTES, Slot};

/// Maximum bytes of one write. Overwritten memory is reusable after each write.
const FILLER_BYTES: usize = 32 << 10;

/// Bytes that no volume stores as a pattern, and none of which is the magic of a batch.
static FILLER: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let number = |it: usize| u8::try_from((it * it / 7 + it) % 128).expect("less than 128");
    (0..FILLER_BYTES).map(|it| 128 + number(it)).collect()
});

/// Fills blocks of batches as [`fill`] does, and frees everything behind them. If none is filled,
/// everything behind the start is freed.
pub(crate) fn fill_or_give_back(
    device: &dyn BlockDevice,
    slot: Slot,
    positions: Range<u64>,
) -> Result<u64, LogError> {
    let filled = fill(device, slot, positions)?;
    let after = slot.batches(filled);
    let range = ByteRange::new(after, slot.start() + SLOT_BYTES - after);
    device.discard(range).map_err(|error| {
        LogError::device(format!("cannot discard the end of segment {}", slot.0), error)
    })?;
    Ok(filled)
}

/// Fills blocks of batches while memory is available. Returns the position reached.
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
    written.map_err(|error| LogError::device("cannot reserve memory for new records", error))
}
