//! History of a disk: all operations in order.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum length of a history in written bytes. A test that writes more should use a fresh disk.
const HISTORY_BYTES_MAX: usize = 4 << 30;

/// A point in a history: the number of beginnings and ends of calls so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileId(pub(crate) usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FolderId(pub(crate) usize);

/// Changes of a folder's names: to a file, or to none.
pub(crate) type NameChanges = Vec<(String, Option<FileId>)>;

#[derive(Clone, Debug)]
pub(crate) enum Deed {
    Write { file: FileId, offset: usize, bytes: Arc<[u8]> },
    Names { folder: FolderId, changes: NameChanges },
    Sync { file: FileId },
    SyncNames { folder: FolderId },
}

/// Outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Not ended, or failed: it may have had its effect or not.
    Unknown,
    /// A successful sync, or a change that waits for one.
    Done,
    /// A change that was durable by itself.
    DoneDurably,
    /// A change that no later sync makes durable.
    Forsaken,
}

#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) deed: Deed,
    pub(crate) begun: Moment,
    pub(crate) ended: Moment,
    pub(crate) outcome: Outcome,
}

impl Record {
    /// Returns whether the call had returned successfully at `moment`.
    pub(crate) fn is_done_by(&self, moment: Moment) -> bool {
        self.outcome != Outcome::Unknown && self.ended <= moment
    }

    /// Returns whether the call guaranteed durability by `moment`.
    pub(crate) fn is_barrier_by(&self, moment: Moment) -> bool {
        let is_sync = matches!(self.deed, Deed::Sync { .. } | Deed::SyncNames { .. });
        let promises = is_sync || self.outcome == Outcome::DoneDurably;
        promises && self.is_done_by(moment)
    }
}

#[derive(Debug, Default)]
pub(crate) struct History {
    now: u64,
    pub(crate) records: Vec<Record>,
    bytes: usize,
    /// Records of writes that are not empty.
    writes: Vec<usize>,
    /// Records of writes that no sync has covered yet, by file.
    unsynced: BTreeMap<FileId, Vec<usize>>,
}

impl History {
    pub(crate) fn now(&self) -> Moment {
        Moment(self.now)
    }

    /// Records the beginning of a call, and returns the number of its record.
    pub(crate) fn begin(&mut self, deed: Deed) -> usize {
        let number = self.records.len();
        if let Deed::Write { file, bytes, .. } = &deed {
            self.bytes += bytes.len();
            assert!(self.bytes <= HISTORY_BYTES_MAX, "the history of a disk is too long");
            if !bytes.is_empty() {
                self.writes.push(number);
            }
            self.unsynced.entry(*file).or_default().push(number);
        }
        let begun = self.tick();
        let ended = Moment(u64::MAX);
        self.records.push(Record { deed, begun, ended, outcome: Outcome::Unknown });
        number
    }

    /// Records the end of a call.
    pub(crate) fn end(&mut self, number: usize, outcome: Outcome) {
        let ended = self.tick();
        let record = &mut self.records[number];
        (record.ended, record.outcome) = (ended, outcome);
        let begun = record.begun;
        if let Deed::Sync { file } = record.deed {
            match outcome {
                Outcome::Done => self.forget_unsynced(file, begun),
                _ => self.forsake(file),
            }
        }
    }

    /// Handles a failed sync: unsynced writes to the file never become durable.
    pub(crate) fn forsake(&mut self, file: FileId) {
        for number in self.unsynced.remove(&file).unwrap_or_default() {
            let record = &mut self.records[number];
            if record.outcome == Outcome::Done {
                record.outcome = Outcome::Forsaken;
            }
        }
    }

    /// Returns the bytes of a write that had begun by `moment`. `choice` selects it.
    pub(crate) fn old_bytes(&self, choice: u64, moment: Moment) -> Option<&[u8]> {
        let count = self.writes.partition_point(|&at| self.records[at].begun <= moment);
        let chosen = usize::try_from(choice.checked_rem(count as u64)?).ok()?;
        match &self.records[self.writes[chosen]].deed {
            Deed::Write { bytes, .. } => Some(bytes),
            _ => None,
        }
    }

    fn forget_unsynced(&mut self, file: FileId, sync_begun: Moment) {
        let Some(numbers) = self.unsynced.get_mut(&file) else { return };
        let records = &self.records;
        numbers.retain(|&number| records[number].ended > sync_begun);
    }

    fn tick(&mut self) -> Moment {
        self.now += 1;
        Moment(self.now)
    }
}
