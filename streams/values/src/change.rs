//! Change notifications of current values.

use record_batch::Record;
use record_log::PinnedLog;

/// Notification of a change of a key's current value.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// The record is the key's new value. `old` is the offset of the previous value.
    Published { record: Record<'a>, old: Option<i64> },
    /// The record is a tombstone, which deleted the key's value at `old`.
    Deleted { record: Record<'a>, old: i64 },
    /// The record was the key's value and has expired. All records before `at` were applied.
    Expired { record: Record<'a>, at: i64 },
    /// The record was the key's value and was deleted with the start of the log. All records before
    /// `at` were applied.
    Retired { record: Record<'a>, at: i64 },
}

/// Callback for each change, in order. The pinned log still contains the record at the old offset:
/// see [`crate::read_record`].
pub type OnChange<'a> = &'a mut dyn FnMut(Change<'_>, &PinnedLog);
