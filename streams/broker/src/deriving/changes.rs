//! Changes of the current values of one partition: first those that are there, then each change.
//!
//! It has a follower of its own rather than that of the topic, so that what is made of a change is
//! in the log before the next one is looked at.

use std::sync::Arc;

use record_batch::Record;
use record_log::Partition;
use values::{
    Change, Follower, ScanStep, Secret, Snapshot, SweepStep, Values, ValuesError, read_record,
};

use crate::clock;
use crate::topics::random_id;

const READ_BYTES: usize = 1 << 20;

/// A value that is in place of another; `new` is none where the key has none any more.
pub(super) struct Changed<'a> {
    pub(super) old: Option<&'a Record<'a>>,
    pub(super) new: Option<&'a Record<'a>>,
    pub(super) key: &'a [u8],
}

pub(super) type Visit<'a> = &'a mut dyn FnMut(&Changed<'_>);

pub(super) struct Changes {
    follower: Follower,
    snapshot: Option<(Snapshot, i64)>,
    is_snapshot_over: bool,
}

impl Changes {
    pub(super) fn open(partition: &Arc<Partition>) -> Result<Self, ValuesError> {
        let (follower, _) = Follower::open(Arc::clone(partition), Secret(random_id()))?;
        Ok(Self { follower, snapshot: None, is_snapshot_over: false })
    }

    /// Returns whether all that was there at the beginning was shown.
    pub(super) fn is_snapshot_over(&self) -> bool {
        self.is_snapshot_over
    }

    /// Values as they are after the last change that was shown.
    pub(super) fn values(&self) -> &Arc<Values> {
        self.follower.values()
    }

    /// Shows a limited number of changes. Returns whether there is more to do at once. Values that
    /// have expired go when `ttl_ms` is looked at.
    pub(super) fn step(
        &mut self,
        ttl_ms: Option<Option<i64>>,
        visit: Visit<'_>,
    ) -> Result<bool, ValuesError> {
        if !self.is_snapshot_over {
            return self.step_snapshot(visit).map(|()| true);
        }
        let mut failed = None;
        let mut buffer = Vec::new();
        let mut on_change = |change: Change<'_>, log: &record_log::PinnedLog| {
            let (record, old, is_new) = match change {
                Change::Published { record, old } => (record, old, true),
                Change::Deleted { record, old } => (record, Some(old), false),
                Change::Expired { record, .. } | Change::Retired { record, .. } => {
                    let key = record.key.unwrap_or_default();
                    visit(&Changed { old: Some(&record), new: None, key });
                    return;
                }
            };
            let new = is_new.then_some(&record);
            let key = record.key.unwrap_or_default();
            let Some(offset) = old else {
                visit(&Changed { old: None, new, key });
                return;
            };
            let shown = read_record(log, offset, &mut buffer, |old| {
                visit(&Changed { old: Some(old), new, key });
            });
            match shown {
                Ok(Some(())) => {}
                Ok(None) => {
                    let partition = log.partition();
                    failed.get_or_insert(ValuesError::Overtaken { partition, offset });
                }
                Err(error) => drop(failed.get_or_insert(error)),
            }
        };
        let mut is_behind = self.follower.follow(READ_BYTES, Some(&mut on_change))?.is_behind;
        if let Some(ttl_ms) = ttl_ms {
            self.follower.values().set_ttl(ttl_ms);
            let swept = self.follower.sweep(clock::unix_ms(), Some(&mut on_change))?;
            is_behind |= swept == SweepStep::More;
        }
        match failed {
            Some(error) => Err(error),
            None => Ok(is_behind),
        }
    }

    fn step_snapshot(&mut self, visit: Visit<'_>) -> Result<(), ValuesError> {
        let Some((snapshot, next)) = &mut self.snapshot else {
            if !self.follower.follow(READ_BYTES, None)?.is_behind {
                let snapshot = self.follower.values().snapshot()?;
                self.snapshot = Some((snapshot, 0));
            }
            return Ok(());
        };
        let mut scan = snapshot.scan(*next..snapshot.applied());
        // Those too that have expired and were not swept yet: the sweep tells of them.
        let step = scan.step(i64::MIN, &mut |record| {
            let key = record.key.unwrap_or_default();
            visit(&Changed { old: None, new: Some(record), key });
        })?;
        *next = scan.position();
        if step == ScanStep::Done {
            self.snapshot = None;
            self.is_snapshot_over = true;
        }
        Ok(())
    }
}

/// The values of a partition that the caller alone appends to, as they are now.
pub(super) fn own_values(partition: &Arc<Partition>) -> Result<Follower, ValuesError> {
    let (mut follower, _) = Follower::open(Arc::clone(partition), Secret(random_id()))?;
    while follower.follow(READ_BYTES, None)?.is_behind {}
    Ok(follower)
}
