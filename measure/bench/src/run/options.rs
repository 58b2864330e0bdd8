//! Options common to all suites.

use std::path::PathBuf;

use super::Profile;

const SEED: u64 = 42;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Duration and number of repeats [default: quick]
    #[arg(long, value_enum)]
    pub(crate) profile: Option<Profile>,
    /// Directory for the results [default: a new one in the current directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Continue the run in --out; requires the same arguments
    #[arg(long, requires = "out")]
    pub(crate) resume: bool,
    /// Show the steps, time and memory of the run and what is skipped, without running it
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Also measure this empty block device; its contents are destroyed
    #[arg(long, value_name = "DEVICE")]
    pub(crate) destroy: Option<PathBuf>,
    /// Seed of random orders, offsets and contents
    #[arg(long, default_value_t = SEED, value_name = "N")]
    pub(crate) seed: u64,
}

impl Default for Options {
    /// Returns the defaults of the command line.
    fn default() -> Self {
        let (profile, out, destroy) = (None, None, None);
        Self { profile, out, resume: false, dry_run: false, destroy, seed: SEED }
    }
}

impl Options {
    pub(crate) fn profile(&self) -> Profile {
        self.profile.unwrap_or(Profile::Quick)
    }

    /// Returns whether any option requests a record.
    pub(crate) fn asks_for_record(&self) -> bool {
        self.profile.is_some() || self.out.is_some() || self.dry_run || self.destroy.is_some()
    }
}
