//! Targets that are set up on first use.

use std::cell::OnceCell;

use anyhow::{Result, anyhow};

use crate::targets::kinds::{Place, Spec};
use crate::targets::measure::{calibrate, check_contents};
use crate::targets::target::Target;

/// A target that is set up on first use. Measurements share it, and the last one drops it. A
/// failure is not retried.
pub struct LazyTarget {
    spec: Spec,
    place: Place,
    target: OnceCell<Result<Target, String>>,
}

impl LazyTarget {
    pub fn new(spec: Spec, place: Place) -> Self {
        Self { spec, place, target: OnceCell::new() }
    }

    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Returns the target if it is set up.
    pub fn opened(&self) -> Option<&Target> {
        self.target.get()?.as_ref().ok()
    }

    /// Returns the target after its data integrity and its counters were checked.
    pub fn get(&self) -> Result<&Target> {
        let made = self.target.get_or_init(|| self.make().map_err(|error| format!("{error:#}")));
        made.as_ref().map_err(|error| anyhow!("{error}"))
    }

    fn make(&self) -> Result<Target> {
        let target = self.spec.open(&self.place)?;
        check_contents(&target)?;
        calibrate(&target)?;
        Ok(target)
    }
}
