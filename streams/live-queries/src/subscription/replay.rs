//! The pace of a replay: the log as it happened, or some times faster.

/// Says when each record of a replay is due. Time is handed in.
#[derive(Clone, Copy, Debug)]
pub struct Replay {
    speed: f64,
    /// The time of the first record, and when it was replayed.
    start: Option<(i64, i64)>,
}

impl Replay {
    /// `speed` is positive; 2.0 takes half the time.
    pub fn new(speed: f64) -> Self {
        Self { speed, start: None }
    }

    /// Milliseconds until a record of `record_ms` is due, at the time `now_ms`. Records that are
    /// older than the first are due at once.
    pub fn wait_ms(&mut self, record_ms: i64, now_ms: i64) -> u64 {
        let (first_ms, began_ms) = *self.start.get_or_insert((record_ms, now_ms));
        let after_first = u32::try_from(record_ms.saturating_sub(first_ms).max(0));
        let elapsed = u32::try_from(now_ms.saturating_sub(began_ms).max(0));
        // Beyond 49 days at once: wait an hour and ask again.
        let Ok(after_first) = after_first else { return 3_600_000 };
        let due = std::time::Duration::from_millis(u64::from(after_first)).div_f64(self.speed);
        let due_ms = u64::try_from(due.as_millis()).unwrap_or(u64::MAX);
        due_ms.saturating_sub(elapsed.map_or(u64::MAX, u64::from))
    }
}
