//! Bytes of a page in the dense form, and counters of such pages.
//!
//! ```text
//! │ class of the slot of the previous form, 1 byte │ zstd frame │
//! ```
//!
//! The class only determines the saving: the contents do not depend on it.

use codec::DecodeError;
use sync::Striped;

use crate::layout::{Class, Slot};

/// Number of bytes before the frame.
pub(crate) const HEAD_BYTES: usize = 1;

/// Counters of pages in the dense form, with a part for each lane.
#[derive(Debug)]
pub(crate) struct DenseCounts {
    pages: Striped,
    saved_bytes: Striped,
}

impl DenseCounts {
    pub(crate) fn new(lane_count: usize) -> Self {
        Self { pages: Striped::new(lane_count), saved_bytes: Striped::new(lane_count) }
    }

    /// Adds (1) or removes (-1) a page that saves this many bytes.
    pub(crate) fn add(&self, lane: usize, pages: i64, saved_bytes: i64) {
        self.pages.add(lane, pages);
        self.saved_bytes.add(lane, pages * saved_bytes);
    }

    pub(crate) fn page_count(&self) -> u64 {
        self.pages.sum()
    }

    pub(crate) fn saved_bytes(&self) -> u64 {
        self.saved_bytes.sum()
    }
}

/// Returns the frame in the bytes of a page.
pub(crate) fn frame_in(bytes: &[u8]) -> Result<&[u8], DecodeError> {
    bytes.get(HEAD_BYTES..).ok_or(DecodeError)
}

/// Returns the number of bytes that a page with this first byte saves in its slot. A damaged byte
/// counts as at most one slot.
pub(crate) fn saving(head: u8, at: Slot) -> i64 {
    let before = Class::from_id(u64::from(head)).filter(|class| class.has_pages());
    let before_bytes = before.map_or(0, |class| class.shape().slot_bytes);
    let saved_bytes = before_bytes.saturating_sub(at.class.shape().slot_bytes);
    i64::try_from(saved_bytes).expect("slots are small")
}
