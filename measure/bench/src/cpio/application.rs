//! What an application of the suite is: a plug-in.

use anyhow::Result;
use system::{Ability, missing};

use super::site::Site;

/// Whose processor time a program's is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Application,
    /// It makes load and does nothing else.
    Driver,
}

/// A program with work to do in a folder.
pub(super) struct Application {
    pub(super) name: &'static str,
    /// What it takes the place of in the paper.
    pub(super) stands_for: &'static str,
    pub(super) part: Part,
    pub(super) programs: &'static [&'static str],
    /// How to get them.
    pub(super) install_hint: &'static str,
    /// Makes its data, from the site's seed.
    pub(super) prepare: fn(&Site) -> Result<()>,
    /// The work that is counted.
    pub(super) run: fn(&Site) -> Result<()>,
    /// Whether the result is right.
    pub(super) verify: fn(&Site) -> Result<()>,
}

impl Application {
    /// Why it cannot run here.
    pub(super) fn missing(&self) -> Option<String> {
        let lacking = |program: &&'static str| missing(&[Ability::Program(program)]);
        let reason = self.programs.iter().find_map(lacking)?;
        Some(format!("{reason}; {}", self.install_hint))
    }
}
