//! Finds expired values, to notify subscribers and free memory. Readers do not depend on it,
//! because they check the timestamp of each record.

use record_batch::Record;

use super::{Follower, delete};
use crate::change::{Change, OnChange};
use crate::error::ValuesError;
use crate::live::offsets_of_run;
use crate::pick::{Picker, has_expired};

/// State of a sweep over the runs that may contain expired values.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    /// Runs before this one were swept.
    next_run: i64,
    visit: Option<Visit>,
}

impl Sweep {
    /// Returns the run that is being read. Its oldest time is unknown meanwhile.
    pub(super) fn visited_run(&self) -> Option<i64> {
        self.visit.as_ref().map(|visit| visit.run)
    }
}

/// A run that is being read.
#[derive(Debug)]
struct Visit {
    run: i64,
    picker: Picker,
    /// Oldest timestamp of the values that have not expired: Unix milliseconds.
    oldest_ms: i64,
}

/// Result of a step of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepStep {
    More,
    Done,
}

impl Follower {
    /// Reads values that may have expired, up to a mebibyte or one batch, and removes those that
    /// have. An expiry is reported within one sweep of its time. If any value in a run of 65,536
    /// offsets may have expired, all values of the run are read.
    pub fn sweep(
        &mut self,
        now_ms: i64,
        mut on_change: Option<OnChange<'_>>,
    ) -> Result<SweepStep, ValuesError> {
        let Some(ttl_ms) = self.values.ttl_ms() else { return Ok(SweepStep::Done) };
        let is_ready = self.values.ready().is_ok();
        if !is_ready || self.live_from.is_some() || self.is_writing_checkpoint() {
            return Ok(SweepStep::Done);
        }
        let mut visit = match self.sweep.visit.take() {
            Some(visit) => visit,
            None => match self.begin_visit(now_ms.saturating_sub(ttl_ms)) {
                Some(visit) => visit,
                None => return Ok(SweepStep::Done),
            },
        };
        let offsets = offsets_of_run(visit.run);
        let part = self.values.state().live.part(offsets);
        let (values, log, oldest_ms) = (&self.values, self.pinned(), &mut visit.oldest_ms);
        let picked = visit.picker.step(log, &part, &mut |record: &Record<'_>| {
            if !has_expired(record, Some(ttl_ms), now_ms) {
                *oldest_ms = record.timestamp_ms.min(*oldest_ms);
            } else if let Some(at) = delete(values, record)
                && let Some(on_change) = &mut on_change
            {
                on_change(Change::Expired { record: *record, at }, log);
            }
        });
        let is_done = match &picked {
            Ok(picked) => picked.is_done || picked.missing.is_some() && picked.bytes == 0,
            Err(_) => true,
        };
        if !is_done {
            self.sweep.visit = Some(visit);
            return Ok(SweepStep::More);
        }
        // After an error the whole run must be swept again.
        let oldest_ms = if picked.is_ok() { visit.oldest_ms } else { i64::MIN };
        let mut state = self.values.state_to_change();
        state.live.change_oldest(visit.run, |since| since.min(oldest_ms));
        drop(state);
        self.sweep.next_run = visit.run + 1;
        picked.map(|_| SweepStep::More)
    }

    /// Begins the next run with values that are at least this old. After the last run, the next
    /// sweep starts with the first one.
    fn begin_visit(&mut self, unix_ms: i64) -> Option<Visit> {
        let mut state = self.values.state_to_change();
        let Some(run) = state.live.next_run_as_old(self.sweep.next_run, unix_ms) else {
            self.sweep.next_run = 0;
            return None;
        };
        // Collects the oldest time of values that are added while the run is read.
        state.live.change_oldest(run, |_| i64::MAX);
        Some(Visit { run, picker: Picker::new(offsets_of_run(run)), oldest_ms: i64::MAX })
    }
}
