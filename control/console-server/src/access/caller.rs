//! The authenticated caller.

use api::Role;

/// The authenticated caller, with current rights.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) user: String,
    /// Id of the API token, or `None` for a session.
    pub(crate) token: Option<String>,
    pub(crate) role: Role,
    /// Projects to which the caller is restricted. Empty means unrestricted.
    pub(crate) projects: Vec<String>,
}

impl Caller {
    pub(crate) fn is_limited(&self) -> bool {
        !self.projects.is_empty()
    }
}
