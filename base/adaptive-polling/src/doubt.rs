//! Estimate of the benefit of spinning.
//!
//! Spinning is harmful if the client of the next request waits for the core that the spinning
//! thread occupies, which is common on a busy host: yielding does not always let the client run.
//! Then waits are short, but spins fail. After each failed spin, an increasing number of waits are
//! done without spinning; after some successful ones, a decreasing number.

/// Spinning is beneficial if it fails less often than once in this many times, because a failed
/// spin costs several times as much as a successful one saves.
const SPELLS_FOUND_PER_FAILED: u32 = 8;

/// Maximum number of waits without spinning after failed spins.
const PAUSE_WAITS_MAX: u32 = 255;

/// Estimate of one waiter about spinning.
#[derive(Debug, Default)]
pub(crate) struct Doubt {
    /// Number of waits without spinning after the next failed spin.
    pause_waits: u32,
    /// Remaining number of waits without spinning.
    pause_waits_left: u32,
    found_in_a_row: u32,
}

impl Doubt {
    /// Returns whether waits are currently done without spinning.
    pub(crate) fn is_pausing(&self) -> bool {
        self.pause_waits_left > 0
    }

    /// Returns whether this wait may spin.
    pub(crate) fn allows_spell(&mut self) -> bool {
        let is_pause = self.is_pausing();
        self.pause_waits_left = self.pause_waits_left.saturating_sub(1);
        !is_pause
    }

    pub(crate) fn found(&mut self) {
        self.found_in_a_row += 1;
        if self.found_in_a_row == SPELLS_FOUND_PER_FAILED {
            self.found_in_a_row = 0;
            self.pause_waits /= 2;
        }
    }

    pub(crate) fn failed(&mut self) {
        self.found_in_a_row = 0;
        self.pause_waits = (self.pause_waits * 2 + 1).min(PAUSE_WAITS_MAX);
        self.pause_waits_left = self.pause_waits;
    }
}
