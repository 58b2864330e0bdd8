//! Division of requests that are longer than a slot's buffer into pieces.
//!
//! Pieces end at block boundaries, so each block is still read and written atomically.

use shared_ring::{SLOT_BYTES, operation};

const BLOCK_BYTES: u64 = block_device::BLOCK_BYTES as u64;

/// Maximum length of a piece that starts at `offset`.
pub(crate) fn longest_at(offset: u64) -> u64 {
    SLOT_BYTES as u64 - offset % BLOCK_BYTES
}

/// Returns whether a request is inside the volume. The daemon would execute some pieces of one that
/// is not.
pub(crate) fn fits(offset: u64, length: u64, size_bytes: u64) -> bool {
    offset.checked_add(length).is_some_and(|end| end <= size_bytes)
}

/// Error with which the daemon refuses a request beyond the end of the volume.
pub(crate) fn refusal_beyond_end(operation: u32) -> i32 {
    if operation == operation::WRITE { libc::ENOSPC } else { libc::EINVAL }
}
