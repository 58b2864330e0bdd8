//! Changes of the current values of one partition: existing values first, then each change.
//!
//! It uses its own follower instead of the topic's, so that the result of a change is appended
//! before the next one is read.

use std::sync::Arc;

use record_batch::Record;
use record_log::Partition;
use values::{
    Change, Follower, ScanStep, Secret, Snapshot, SweepStep, Values, ValuesError, read_record,
};

use crate::clock;
use crate::topics::random_id;

const READ_BYTES: usize = 1 << 20;

/// A changed value. `new` is `None` if the key has no value any more.
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

    /// Returns whether all values that existed at the start were visited.
    pub(super) fn is_snapshot_over(&self) -> bool {
        self.is_snapshot_over
    }

    /// Returns the values after the last change that was visited.
    pub(super) fn values(&self) -> &Arc<Values> {
        self.follower.values()
    }

    /// Visits a limited number of changes. Returns whether more can be done immediately. Expired
    /// values are removed if `ttl_ms` is set.
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
        // Expired values that were not swept yet are included: the sweep reports their removal.
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

/// Loads the current values of a partition to which only the caller appends.
pub(super) fn own_values(partition: &Arc<Partition>) -> Result<Follower, ValuesError> {
    let (mut follower, _) = Follower::open(Arc::clone(partition), Secret(random_id()))?;
    while follower.follow(READ_BYTES, None)?.is_behind {}
    Ok(follower)
}
