//! Rights that operations take: a role, and the volumes that are concerned.

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
    /// The right to do something to `reach`, which this role and those after it have.
    pub(crate) const fn on(self, reach: Reach) -> Permission {
        Permission { role: self, reach }
    }
}

/// Rights that an operation takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permission {
    /// The least role.
    pub role: Role,
    pub reach: Reach,
}

/// The volumes that an operation concerns, by which users of projects are limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// All, or the host: refused to who is limited.
    Everything,
    /// No volume.
    Nothing,
    /// The one in the path: `VOLUME`, or `VOLUME@SNAPSHOT`.
    Named,
    /// The one in the path; the query's `to` names another.
    Compared,
    /// A list, each of whose entries has the volume in this field.
    Listed(&'static str),
    /// The body's `name` and `size`: a new volume.
    Created,
    /// The one in the path; the body may have a new `name` and `size`.
    Changed,
    /// The one in the path is copied to the body's `name`.
    Cloned,
    /// The volume of the snapshot in the path, which gets its size.
    Restored,
    /// The body's list `volumes`.
    Several,
}
