//! Knowledge of a suite while it plans and measures.

use std::path::PathBuf;

use super::{Options, Profile};

/// A run, as its suites see it.
#[derive(Clone, Debug)]
#[allow(dead_code, reason = "suites that overwrite and record come next")]
pub(crate) struct Session {
    pub(crate) profile: Profile,
    pub(crate) seed: u64,
    /// The one device that may be overwritten; only once it was found empty.
    pub(crate) destroy: Option<PathBuf>,
    /// For what tools said, as they said it. It exists when steps run, not when they are planned.
    pub(crate) raw_path: PathBuf,
    pub(crate) cores: usize,
    pub(crate) memory_available_bytes: u64,
}

impl Session {
    pub(crate) fn new(options: &Options, raw_path: PathBuf) -> Self {
        Self {
            profile: options.profile(),
            seed: options.seed,
            destroy: options.destroy.clone(),
            raw_path,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_available_bytes: super::host::memory_available_bytes(),
        }
    }
}
