//! Who asks.

use api::Role;

/// Who asks, and what they may do at this moment.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) user: String,
    /// The id of the token that was shown; `None`: a session.
    pub(crate) token: Option<String>,
    pub(crate) role: Role,
    /// The names of projects that all is limited to; none: no limit.
    pub(crate) projects: Vec<String>,
}

impl Caller {
    pub(crate) fn is_limited(&self) -> bool {
        !self.projects.is_empty()
    }
}
