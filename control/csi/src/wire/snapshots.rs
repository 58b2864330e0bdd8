//! Messages for snapshots and group snapshots.

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CreateSnapshotRequest {
    #[prost(string, tag = "1")]
    pub(crate) source_volume_id: String,
    #[prost(string, tag = "2")]
    pub(crate) name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SnapshotAnswer {
    #[prost(message, optional, tag = "1")]
    pub(crate) snapshot: Option<Snapshot>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Snapshot {
    #[prost(int64, tag = "1")]
    pub(crate) size_bytes: i64,
    #[prost(string, tag = "2")]
    pub(crate) snapshot_id: String,
    #[prost(string, tag = "3")]
    pub(crate) source_volume_id: String,
    #[prost(message, optional, tag = "4")]
    pub(crate) creation_time: Option<Instant>,
    #[prost(bool, tag = "5")]
    pub(crate) ready_to_use: bool,
    /// Empty if the snapshot is not part of a group.
    #[prost(string, tag = "6")]
    pub(crate) group_snapshot_id: String,
}

/// Timestamp since 1970.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Instant {
    #[prost(int64, tag = "1")]
    pub(crate) seconds: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SnapshotId {
    #[prost(string, tag = "1")]
    pub(crate) snapshot_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ListSnapshotsRequest {
    #[prost(int32, tag = "1")]
    pub(crate) max_entries: i32,
    #[prost(string, tag = "2")]
    pub(crate) starting_token: String,
    #[prost(string, tag = "3")]
    pub(crate) source_volume_id: String,
    #[prost(string, tag = "4")]
    pub(crate) snapshot_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ListSnapshotsAnswer {
    #[prost(message, repeated, tag = "1")]
    pub(crate) entries: Vec<SnapshotAnswer>,
    #[prost(string, tag = "2")]
    pub(crate) next_token: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CreateGroupRequest {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, repeated, tag = "2")]
    pub(crate) source_volume_ids: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct GroupAnswer {
    #[prost(message, optional, tag = "1")]
    pub(crate) group_snapshot: Option<GroupSnapshot>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct GroupSnapshot {
    #[prost(string, tag = "1")]
    pub(crate) group_snapshot_id: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) snapshots: Vec<Snapshot>,
    #[prost(message, optional, tag = "3")]
    pub(crate) creation_time: Option<Instant>,
    #[prost(bool, tag = "4")]
    pub(crate) ready_to_use: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct GroupId {
    #[prost(string, tag = "1")]
    pub(crate) group_snapshot_id: String,
    #[prost(string, repeated, tag = "2")]
    pub(crate) snapshot_ids: Vec<String>,
}
