//! Enumeration values.

/// Services and capabilities of a plugin.
pub(crate) mod plugin {
    pub(crate) const CONTROLLER_SERVICE: i32 = 1;
    pub(crate) const VOLUME_ACCESSIBILITY_CONSTRAINTS: i32 = 2;
    pub(crate) const GROUP_CONTROLLER_SERVICE: i32 = 3;
    pub(crate) const ONLINE_EXPANSION: i32 = 1;
}

/// Capabilities of the controller service.
pub(crate) mod controller {
    pub(crate) const CREATE_DELETE_VOLUME: i32 = 1;
    pub(crate) const LIST_VOLUMES: i32 = 3;
    pub(crate) const GET_CAPACITY: i32 = 4;
    pub(crate) const CREATE_DELETE_SNAPSHOT: i32 = 5;
    pub(crate) const LIST_SNAPSHOTS: i32 = 6;
    pub(crate) const CLONE_VOLUME: i32 = 7;
    pub(crate) const EXPAND_VOLUME: i32 = 9;
    pub(crate) const GET_VOLUME: i32 = 12;
    pub(crate) const SINGLE_NODE_MULTI_WRITER: i32 = 13;
    pub(crate) const GET_SNAPSHOT: i32 = 15;
    pub(crate) const GET_VOLUME_HEALTH: i32 = 16;
}

/// Capabilities of the group controller service.
pub(crate) mod group {
    pub(crate) const CREATE_DELETE_GET: i32 = 1;
}

/// Capabilities of the node service.
pub(crate) mod node {
    pub(crate) const STAGE_UNSTAGE_VOLUME: i32 = 1;
    pub(crate) const GET_VOLUME_STATS: i32 = 2;
    pub(crate) const EXPAND_VOLUME: i32 = 3;
    pub(crate) const SINGLE_NODE_MULTI_WRITER: i32 = 5;
    pub(crate) const VOLUME_MOUNT_GROUP: i32 = 6;
    pub(crate) const GET_VOLUME_HEALTH: i32 = 7;
}

/// Access modes.
pub(crate) mod access {
    pub(crate) const SINGLE_NODE_WRITER: i32 = 1;
    pub(crate) const SINGLE_NODE_READER_ONLY: i32 = 2;
    pub(crate) const SINGLE_NODE_SINGLE_WRITER: i32 = 6;
    pub(crate) const SINGLE_NODE_MULTI_WRITER: i32 = 7;
}

/// Volume health states.
pub(crate) mod health {
    pub(crate) const DEGRADED: i32 = 1;
    pub(crate) const INACCESSIBLE: i32 = 2;
    pub(crate) const DATA_LOSS: i32 = 3;
}

/// Units of volume usage.
pub(crate) mod unit {
    pub(crate) const BYTES: i32 = 1;
    pub(crate) const INODES: i32 = 2;
}
