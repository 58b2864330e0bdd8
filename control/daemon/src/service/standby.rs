//! Status and promotion of a standby.

use api::{Problem, ProblemKind, Promotion, StandbyPromote};

use crate::service::{Role, Service};
use crate::standby::Standby;

impl Service {
    pub(crate) fn show_standby(&self) -> Result<api::Standby, Problem> {
        Ok(self.standby()?.status())
    }

    /// Promotes a standby. If the daemon was not a writer before, it restarts after this returns.
    pub(crate) fn promote_standby(&self, request: &StandbyPromote) -> Result<Promotion, Problem> {
        match (&self.role, &self.promotion) {
            (Role::Primary(_), Some(promotion)) => {
                Ok(Promotion { is_repeated: true, ..promotion.clone() })
            }
            _ => self.standby()?.promote(request),
        }
    }

    fn standby(&self) -> Result<&Standby, Problem> {
        match &self.role {
            Role::Standby(standby) => Ok(standby),
            Role::Primary(_) => {
                let detail = "this daemon is not a standby: it was never one, or was promoted";
                Err(Problem::new(ProblemKind::NotFound, detail))
            }
        }
    }
}
