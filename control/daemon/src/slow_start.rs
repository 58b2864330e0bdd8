//! Care for a start that takes long: more time from the service manager while it makes progress,
//! and a warning with its current step, such as a disk or a store that does not answer.

use std::sync::Arc;
use std::time::Duration;

use service_manager::MoreTime;

use crate::http::Readiness;
use crate::ticker::Ticker;

/// Duration of one step after which the log warns, and the interval of further warnings.
const WARNED_AFTER: Duration = Duration::from_secs(10);
const WARNED_INTERVAL: Duration = Duration::from_secs(60);

/// Interval of checks.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Monitors a start until it is dropped.
pub(crate) struct SlowStart {
    _looking: Option<Ticker>,
    _more_time: MoreTime,
}

impl SlowStart {
    pub(crate) fn watch(readiness: &Arc<Readiness>) -> Self {
        let (readiness, mut warnings) = (Arc::clone(readiness), Warnings::default());
        let turn = move || {
            if let Some((doing, waited)) = readiness.start_in_hand()
                && warnings.is_due(waited)
            {
                tracing::warn!(seconds = waited.as_secs(), "still starting: {doing}");
            }
            LOOK_INTERVAL
        };
        let started = Ticker::start("slow-start", LOOK_INTERVAL, turn).inspect_err(|error| {
            tracing::warn!(%error, "cannot start the thread that warns of a slow start");
        });
        Self { _looking: started.ok(), _more_time: MoreTime::ask_while_working() }
    }
}

/// State of the warnings for one step.
#[derive(Debug, Default)]
struct Warnings {
    last: Option<Duration>,
}

impl Warnings {
    /// Returns whether a warning is due. A shorter duration than before belongs to a new step.
    fn is_due(&mut self, waited: Duration) -> bool {
        self.last = self.last.filter(|last| *last <= waited);
        let next = self.last.map_or(WARNED_AFTER, |last| last + WARNED_INTERVAL);
        let is_due = waited >= next;
        if is_due {
            self.last = Some(waited);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_warned_of_after_ten_seconds_at_one_thing_and_then_each_minute() {
        let mut warnings = Warnings::default();
        let mut due = |seconds: &[u64]| -> Vec<u64> {
            let is_due = |it: &u64| warnings.is_due(Duration::from_secs(*it));
            seconds.iter().copied().filter(is_due).collect()
        };
        assert_eq!(due(&[0, 9, 10, 11, 69, 70, 71, 130]), [10, 70, 130]);
        assert_eq!(due(&[0, 9, 10, 11]), [10], "the next thing");
        assert_eq!(due(&[3, 9]), [0_u64; 0]);
    }
}
