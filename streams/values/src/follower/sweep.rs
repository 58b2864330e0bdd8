//! Finds values that have expired, so that their changes are told and their memory is given back.
//! Readers do not need it: they look at the time of each record.

use record_batch::Record;

use super::{Follower, delete};
use crate::change::{Change, OnChange};
use crate::error::ValuesError;
use crate::live::offsets_of_run;
use crate::pick::{Picker, has_expired};

/// Where a walk over the runs with values that may have expired is.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    /// Runs before it were looked at.
    next_run: i64,
    visit: Option<Visit>,
}

impl Sweep {
    /// The run that is being read, of which the oldest value is not known.
    pub(super) fn visited_run(&self) -> Option<i64> {
        self.visit.as_ref().map(|visit| visit.run)
    }
}

/// A run that is being read.
#[derive(Debug)]
struct Visit {
    run: i64,
    picker: Picker,
    /// Of what has not expired: Unix milliseconds.
    oldest_ms: i64,
}

/// Decision of a sweep to go on or to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepStep {
    More,
    Done,
}

impl Follower {
    /// Reads values once that may have expired, a mebibyte of them or one batch at most, and takes
    /// those out that have. A value is told as expired within one sweep of its time. For values of
    /// which some in a run of 65,536 offsets have expired, all of the run are read.
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
        // After an error all of the run is looked at again.
        let oldest_ms = if picked.is_ok() { visit.oldest_ms } else { i64::MIN };
        let mut state = self.values.state_to_change();
        state.live.change_oldest(visit.run, |since| since.min(oldest_ms));
        drop(state);
        self.sweep.next_run = visit.run + 1;
        picked.map(|_| SweepStep::More)
    }

    /// Begins with the next run that has values as old as this; after the last one, the next sweep
    /// begins with the first.
    fn begin_visit(&mut self, unix_ms: i64) -> Option<Visit> {
        let mut state = self.values.state_to_change();
        let Some(run) = state.live.next_run_as_old(self.sweep.next_run, unix_ms) else {
            self.sweep.next_run = 0;
            return None;
        };
        // Values that come meanwhile are noted here.
        state.live.change_oldest(run, |_| i64::MAX);
        Some(Visit { run, picker: Picker::new(offsets_of_run(run)), oldest_ms: i64::MAX })
    }
}
