//! Estimate whether spinning pays.
//!
//! It does not when the clients of the next request wait for the very core that the spinning
//! thread keeps busy, which is common on a busy machine: offering the core does not always move
//! them. Then waits are short, and yet spells of spinning fail. After each that fails, more and
//! more waits go by without one; after some that succeed, fewer.

/// Spinning pays as long as it fails less often than once in this many times: a failed spell costs
/// several times what a successful one saves.
const SPELLS_FOUND_PER_FAILED: u32 = 8;

/// The most waits that go by without spinning after spells that failed.
const PAUSE_WAITS_MAX: u32 = 255;

/// Estimate of one waiter about spinning.
#[derive(Debug, Default)]
pub(crate) struct Doubt {
    /// Waits to go by without spinning after the next spell that fails.
    pause_waits: u32,
    /// Those that still have to go by.
    pause_waits_left: u32,
    found_in_a_row: u32,
}

impl Doubt {
    /// Returns whether waits go by without spinning now.
    pub(crate) fn is_pausing(&self) -> bool {
        self.pause_waits_left > 0
    }

    /// Returns whether to spin this time.
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
