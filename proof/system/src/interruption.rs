//! Interruption by the user.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

static INTERRUPTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();
/// Number of guards that are cleaning up.
static CLEANING_UP: AtomicUsize = AtomicUsize::new(0);

/// Request of the user to stop: Ctrl-C or a termination signal. Waits then end with an error, so
/// that guards clean up.
pub struct Interruption;

impl Interruption {
    /// From now on the signals set a flag instead of ending the process.
    pub fn listen() -> Result<()> {
        let flag = INTERRUPTED.get_or_init(Arc::default);
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(flag))
                .context("cannot listen to signals")?;
        }
        Ok(())
    }

    /// While the result exists, waits do not end with an error, so that the clean-up is not
    /// interrupted by the request that caused it.
    pub fn begin_to_clean_up() -> CleaningUp {
        // Relaxed: the count carries no data.
        CLEANING_UP.fetch_add(1, Ordering::Relaxed);
        CleaningUp(())
    }

    /// Returns whether waits must end.
    pub fn is_asked_for() -> bool {
        // Relaxed: the count carries no data.
        Self::was_asked_for() && CLEANING_UP.load(Ordering::Relaxed) == 0
    }

    /// Returns whether the user has requested a stop at any time.
    pub fn was_asked_for() -> bool {
        // Relaxed: the flag carries no data.
        INTERRUPTED.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
    }
}

/// Guard of a clean-up.
#[derive(Debug)]
#[must_use = "cleaning up ends when this is dropped"]
pub struct CleaningUp(());

impl Drop for CleaningUp {
    fn drop(&mut self) {
        // Relaxed: the count carries no data.
        CLEANING_UP.fetch_sub(1, Ordering::Relaxed);
    }
}
