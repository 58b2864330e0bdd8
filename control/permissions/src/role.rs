//! Roles.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Role of a user; each includes the rights of those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Looks.
    Viewer,
    /// Makes, changes and deletes volumes, and what goes with them.
    Operator,
    /// Does what concerns all volumes, and says who may do what.
    Administrator,
}

impl Role {
    /// Its word in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Administrator => "administrator",
        }
    }
}
