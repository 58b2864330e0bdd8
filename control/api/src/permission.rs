//! Permissions of operations: the required role, and the volumes concerned.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Role of a user; each includes the rights of those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Reads only.
    Viewer,
    /// Creates, changes and deletes volumes, snapshots and other objects.
    Operator,
    /// Administers all volumes and the access of users.
    Administrator,
}

impl Role {
    /// Name of the role in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Administrator => "administrator",
        }
    }
    /// Permission that requires at least this role for `reach`.
    pub(crate) const fn on(self, reach: Reach) -> Permission {
        Permission { role: self, reach }
    }
}

/// Permission that an operation requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permission {
    /// Minimum role.
    pub role: Role,
    pub reach: Reach,
}

/// Volumes that an operation concerns. Users of projects are restricted to some volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// All volumes, or the host. Denied to restricted users.
    Everything,
    /// No volume.
    Nothing,
    /// The volume or snapshot in the path.
    Named,
    /// The volume in the path, and the one in the query parameter `to`.
    Compared,
    /// A list, whose entries have the volume in this field.
    Listed(&'static str),
    /// A new volume, with `name` and `size` in the body.
    Created,
    /// The volume in the path, with an optional new `name` and `size` in the body.
    Changed,
    /// The volume in the path, which is cloned to `name` in the body.
    Cloned,
    /// The volume of the snapshot in the path, which gets the snapshot's size.
    Restored,
    /// The volumes in the body's list `volumes`.
    Several,
}
