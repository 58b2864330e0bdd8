//! Plug-in interface of the suite's applications.

use anyhow::Result;
use system::{Ability, Tool, missing};

use super::workdir::{PYTHON, Workdir};

/// Account for a program's processor time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Application,
    /// Only generates load.
    Driver,
}

/// Requirement of an application on its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorksOn {
    /// A file system.
    Folders,
    /// A file system, or a volume's bytes without one.
    WholeVolumes,
}

/// A program with a workload on a target.
pub(super) struct Application {
    pub(super) name: &'static str,
    /// Corresponding application in the paper.
    pub(super) stands_for: &'static str,
    pub(super) part: Part,
    pub(super) programs: &'static [&'static str],
    /// Python modules imported by the embedded programs.
    pub(super) modules: &'static [&'static str],
    pub(super) works_on: WorksOn,
    /// Installation hint.
    pub(super) install_hint: &'static str,
    /// Creates the data from the run's seed.
    pub(super) prepare: fn(&Workdir) -> Result<()>,
    /// The measured work.
    pub(super) run: fn(&Workdir) -> Result<()>,
    /// Verifies the result.
    pub(super) verify: fn(&Workdir) -> Result<()>,
}

/// Template of applications that work in a folder.
pub(super) const ON_FOLDERS: Application = Application {
    name: "",
    stands_for: "",
    part: Part::Application,
    programs: &[],
    modules: &[],
    works_on: WorksOn::Folders,
    install_hint: "",
    prepare: |_| Ok(()),
    run: |_| Ok(()),
    verify: |_| Ok(()),
};

impl Application {
    /// Returns the reason why it cannot run here, or `None`.
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
