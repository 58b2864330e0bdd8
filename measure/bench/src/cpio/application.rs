//! Application of the suite: a plug-in.

use anyhow::Result;
use system::{Ability, Tool, missing};

use super::workdir::{PYTHON, Workdir};

/// Whose processor time a program's is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Application,
    /// It makes load and does nothing else.
    Driver,
}

/// Requirement of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorksOn {
    /// A file system.
    Folders,
    /// That, or the bytes of a volume without one.
    WholeVolumes,
}

/// A program with work to do on a target.
pub(super) struct Application {
    pub(super) name: &'static str,
    /// Application of the paper that it takes the place of.
    pub(super) stands_for: &'static str,
    pub(super) part: Part,
    pub(super) programs: &'static [&'static str],
    /// Modules of Python that programs carried here import.
    pub(super) modules: &'static [&'static str],
    pub(super) works_on: WorksOn,
    /// Advice for installing them.
    pub(super) install_hint: &'static str,
    /// Makes its data, from the run's seed.
    pub(super) prepare: fn(&Workdir) -> Result<()>,
    /// The work that is counted.
    pub(super) run: fn(&Workdir) -> Result<()>,
    /// Check that the result is right.
    pub(super) verify: fn(&Workdir) -> Result<()>,
}

impl Application {
    /// Why it cannot run here.
    pub(super) fn missing(&self) -> Option<String> {
        let lacking = |program: &&'static str| missing(&[Ability::Program(program)]);
        let absent = |module: &&'static str| {
            let imported = Tool::new(PYTHON).arg("-c").arg(format!("import {module}")).check();
            imported.is_err().then(|| format!("{PYTHON} has no module {module}"))
        };
        let program = self.programs.iter().find_map(lacking);
        let reason = program.or_else(|| self.modules.iter().find_map(absent))?;
        Some(format!("{reason}; {}", self.install_hint))
    }
}
