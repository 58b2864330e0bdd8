//! Estimate of contention for the core between a spinning thread and its clients.
//!
//! The scheduler often keeps a spinning thread, its clients and the kernel's workers on one core
//! while another core is idle, because each runs only for a few microseconds, and because a virtual
//! machine's halted core does not appear idle. They then wait for each other. A spinning thread
//! detects this when it yields its core and a client uses it. It resolves this by moving to another
//! core.

use std::time::Duration;

/// Score from which on the core counts as contended.
const CROWDED_FROM: u32 = 8;

/// Score of a failed spin, when waits are short.
const POINTS_PER_FAILED_SPELL: u32 = 4;

/// Minimum time between two changes of core. It increases while changes do not help.
const STAY_MIN: Duration = Duration::from_millis(2);
const STAY_MAX: Duration = Duration::from_millis(8);

/// A stay longer than this multiple of the current minimum counts as a successful change.
const GOOD_STAY_PER_STAY: u32 = 16;

/// Contention estimate of one waiter.
#[derive(Debug)]
pub(crate) struct Crowd {
    points: u32,
    stay: Duration,
    came: Duration,
}

impl Crowd {
    pub(crate) fn new() -> Self {
        Self { points: 0, stay: STAY_MIN, came: Duration::ZERO }
    }

    /// Records a wait, and whether another thread used the core meanwhile.
    pub(crate) fn saw_wait(&mut self, was_core_used: bool) {
        self.points = match was_core_used {
            true => self.points + 1,
            false => self.points.saturating_sub(1),
        };
    }

    /// Records a failed spin.
    pub(crate) fn spell_failed(&mut self) {
        self.points += POINTS_PER_FAILED_SPELL;
    }

    /// Returns whether to change to another core now. The next change is not advised for some time.
    pub(crate) fn advises_to_leave(&mut self, now: Duration) -> bool {
        let stayed = now.saturating_sub(self.came);
        if self.points < CROWDED_FROM || stayed < self.stay {
            return false;
        }
        let was_good = stayed > self.stay * GOOD_STAY_PER_STAY;
        self.stay = if was_good { STAY_MIN } else { (self.stay * 2).min(STAY_MAX) };
        self.points = 0;
        self.came = now;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    /// Number of advised changes in ten seconds, with this number of contended waits and one
    /// uncontended wait per millisecond.
    fn changes_in_ten_seconds(crowded_waits: u32) -> usize {
        let mut crowd = Crowd::new();
        (0..10_000)
            .filter(|&millisecond| {
                (0..crowded_waits).for_each(|_| crowd.saw_wait(true));
                crowd.saw_wait(false);
                crowd.advises_to_leave(MILLISECOND * millisecond)
            })
            .count()
    }

    #[test]
    fn a_core_that_is_used_now_and_then_is_kept() {
        assert_eq!(changes_in_ten_seconds(1), 0);
    }

    #[test]
    fn where_every_core_is_crowded_changes_become_rare() {
        let changes = changes_in_ten_seconds(20);
        assert!((1000..1400).contains(&changes), "{changes} changes");
    }

    #[test]
    fn a_core_is_left_at_once_when_the_last_change_is_long_ago() {
        let mut crowd = Crowd::new();
        (0..100).for_each(|_| crowd.saw_wait(true));
        assert!(crowd.advises_to_leave(MILLISECOND * 1000));
        (0..100).for_each(|_| crowd.saw_wait(true));
        assert!(!crowd.advises_to_leave(MILLISECOND * 1001));
        assert!(crowd.advises_to_leave(MILLISECOND * 1005));
    }
}
