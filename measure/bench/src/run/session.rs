//! State of a run that is available to suites.

use std::path::PathBuf;

use super::{Options, Profile};

/// A run, as seen by its suites.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) profile: Profile,
    pub(crate) seed: u64,
    /// Device that may be overwritten. Set only after it was found empty.
    pub(crate) destroy: Option<PathBuf>,
    /// Folder for raw output of tools. It exists while steps run, not during planning.
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
