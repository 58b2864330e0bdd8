//! Terminals and displays of running machines.

use std::os::unix::net::UnixStream;

use api::{Problem, ProblemKind};

use super::{Service, libvirt_problem};
use crate::libvirt::{Console, Takeover};

impl Service {
    pub(crate) fn serial(&self, name: &str, takeover: Takeover) -> Result<Console, Problem> {
        let (libvirt, domain) = self.found(name)?;
        libvirt.into_console(&domain, takeover).map_err(|error| match error.is_taken() {
            true => {
                let detail =
                    format!("the terminal of {name:?} is in use by another client: {error}");
                Problem::new(ProblemKind::InUse, detail)
            }
            false => libvirt_problem(name)(error),
        })
    }

    /// Opens a VNC connection to the machine's display.
    pub(crate) fn screen(&self, name: &str) -> Result<UnixStream, Problem> {
        let (mut libvirt, domain) = self.found(name)?;
        if !self.described(&mut libvirt, &domain)?.has_screen {
            let detail = format!("machine {name:?} has no display");
            return Err(Problem::new(ProblemKind::NotSupported, detail));
        }
        let descriptor = libvirt.screen(&domain).map_err(libvirt_problem(name))?;
        Ok(UnixStream::from(descriptor))
    }
}
