//! The wish of the user to stop.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

static INTERRUPTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();
/// Guards that clean up now.
static CLEANING_UP: AtomicUsize = AtomicUsize::new(0);

/// The user's wish to stop: Ctrl-C or a polite signal. Waits end with an error then, so that guards
/// clean up on the way out.
pub struct Interruption;

impl Interruption {
    /// From now on the signals ask instead of ending the process.
    pub fn listen() -> Result<()> {
        let flag = INTERRUPTED.get_or_init(Arc::default);
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(flag))
                .context("cannot listen to signals")?;
        }
        Ok(())
    }

    /// While what is returned lives, waits do not end with an error: cleaning up is not interrupted
    /// by what began it.
    pub fn begin_to_clean_up() -> CleaningUp {
        // Relaxed: the count carries no data.
        CLEANING_UP.fetch_add(1, Ordering::Relaxed);
        CleaningUp(())
    }

    /// Returns whether waits shall end.
    pub fn is_asked_for() -> bool {
        // Relaxed: the count carries no data.
        Self::was_asked_for() && CLEANING_UP.load(Ordering::Relaxed) == 0
    }

    /// Returns whether the user wished to stop, however long ago.
    pub fn was_asked_for() -> bool {
        // Relaxed: the flag carries no data.
        INTERRUPTED.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
    }
}

/// The time in which what was begun is taken back.
#[derive(Debug)]
#[must_use = "cleaning up ends when this is dropped"]
pub struct CleaningUp(());

impl Drop for CleaningUp {
    fn drop(&mut self) {
        // Relaxed: the count carries no data.
        CLEANING_UP.fetch_sub(1, Ordering::Relaxed);
    }
}
