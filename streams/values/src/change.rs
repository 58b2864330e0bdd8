//! Changes of current values, as they are told.

use record_batch::Record;
use record_log::PinnedLog;

/// Change of a current value, as it is told.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// The record is the key's value now; `old` is the offset of the one before.
    Published { record: Record<'a>, old: Option<i64> },
    /// The record, a tombstone, deleted the key's value, which was at `old`.
    Deleted { record: Record<'a>, old: i64 },
    /// The record was the key's value and has expired, after all before `at` was followed.
    Expired { record: Record<'a>, at: i64 },
    /// The record was the key's value and has gone with the start of the log, after all before `at`
    /// was followed.
    Retired { record: Record<'a>, at: i64 },
}

/// Is told of each change in order, with a log that still holds the record at the old offset: see
/// [`crate::read_record`].
pub type OnChange<'a> = &'a mut dyn FnMut(Change<'_>, &PinnedLog);
