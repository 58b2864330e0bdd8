//! Pacing of a replay of the log, at the original speed or faster.

/// Determines when each record of a replay is due. The caller passes the time.
#[derive(Clone, Copy, Debug)]
pub struct Replay {
    speed: f64,
    /// Timestamp of the first record, and time of its replay.
    start: Option<(i64, i64)>,
}

impl Replay {
    /// `speed` must be positive; 2.0 takes half the time.
    pub fn new(speed: f64) -> Self {
        Self { speed, start: None }
    }

    /// Returns the milliseconds from `now_ms` until a record with timestamp `record_ms` is due.
    /// Records older than the first one are due immediately.
    pub fn wait_ms(&mut self, record_ms: i64, now_ms: i64) -> u64 {
        let (first_ms, began_ms) = *self.start.get_or_insert((record_ms, now_ms));
        let after_first = u32::try_from(record_ms.saturating_sub(first_ms).max(0));
        let elapsed = u32::try_from(now_ms.saturating_sub(began_ms).max(0));
        // Beyond 49 days: wait an hour and check again.
        let Ok(after_first) = after_first else { return 3_600_000 };
        let due = std::time::Duration::from_millis(u64::from(after_first)).div_f64(self.speed);
        let due_ms = u64::try_from(due.as_millis()).unwrap_or(u64::MAX);
        due_ms.saturating_sub(elapsed.map_or(u64::MAX, u64::from))
    }
}
