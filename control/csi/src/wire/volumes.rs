//! Messages for volumes.

use std::collections::BTreeMap;

use prost::Message;

use super::{Kind, Nothing};

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CreateVolumeRequest {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) capacity_range: Option<CapacityRange>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) volume_capabilities: Vec<VolumeCapability>,
    #[prost(btree_map = "string, string", tag = "4")]
    pub(crate) parameters: BTreeMap<String, String>,
    #[prost(message, optional, tag = "6")]
    pub(crate) volume_content_source: Option<ContentSource>,
    #[prost(message, optional, tag = "7")]
    pub(crate) accessibility_requirements: Option<TopologyRequirement>,
    #[prost(btree_map = "string, string", tag = "8")]
    pub(crate) mutable_parameters: BTreeMap<String, String>,
}

/// Exactly one field is set.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ContentSource {
    #[prost(message, optional, tag = "1")]
    pub(crate) snapshot: Option<SourceId>,
    #[prost(message, optional, tag = "2")]
    pub(crate) volume: Option<SourceId>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SourceId {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct VolumeAnswer {
    #[prost(message, optional, tag = "1")]
    pub(crate) volume: Option<Volume>,
}

/// Either `block` or `mount` is set.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct VolumeCapability {
    #[prost(message, optional, tag = "1")]
    pub(crate) block: Option<Nothing>,
    #[prost(message, optional, tag = "2")]
    pub(crate) mount: Option<MountVolume>,
    #[prost(message, optional, tag = "3")]
    pub(crate) access_mode: Option<Kind>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct MountVolume {
    #[prost(string, tag = "1")]
    pub(crate) fs_type: String,
    #[prost(string, repeated, tag = "2")]
    pub(crate) mount_flags: Vec<String>,
    #[prost(string, tag = "3")]
    pub(crate) volume_mount_group: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CapacityRange {
    #[prost(int64, tag = "1")]
    pub(crate) required_bytes: i64,
    #[prost(int64, tag = "2")]
    pub(crate) limit_bytes: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Volume {
    #[prost(int64, tag = "1")]
    pub(crate) capacity_bytes: i64,
    #[prost(string, tag = "2")]
    pub(crate) volume_id: String,
    #[prost(btree_map = "string, string", tag = "3")]
    pub(crate) volume_context: BTreeMap<String, String>,
    #[prost(message, optional, tag = "4")]
    pub(crate) content_source: Option<ContentSource>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) accessible_topology: Vec<Topology>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TopologyRequirement {
    #[prost(message, repeated, tag = "1")]
    pub(crate) requisite: Vec<Topology>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) preferred: Vec<Topology>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Topology {
    #[prost(btree_map = "string, string", tag = "1")]
    pub(crate) segments: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct VolumeId {
    #[prost(string, tag = "1")]
    pub(crate) volume_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ValidateRequest {
    #[prost(string, tag = "1")]
    pub(crate) volume_id: String,
    #[prost(btree_map = "string, string", tag = "2")]
    pub(crate) volume_context: BTreeMap<String, String>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) volume_capabilities: Vec<VolumeCapability>,
    #[prost(btree_map = "string, string", tag = "4")]
    pub(crate) parameters: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "6")]
    pub(crate) mutable_parameters: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ValidateAnswer {
    #[prost(message, optional, tag = "1")]
    pub(crate) confirmed: Option<Confirmed>,
    #[prost(string, tag = "2")]
    pub(crate) message: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Confirmed {
    #[prost(btree_map = "string, string", tag = "1")]
    pub(crate) volume_context: BTreeMap<String, String>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) volume_capabilities: Vec<VolumeCapability>,
    #[prost(btree_map = "string, string", tag = "3")]
    pub(crate) parameters: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "4")]
    pub(crate) mutable_parameters: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ListVolumesRequest {
    #[prost(int32, tag = "1")]
    pub(crate) max_entries: i32,
    #[prost(string, tag = "2")]
    pub(crate) starting_token: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ListVolumesAnswer {
    #[prost(message, repeated, tag = "1")]
    pub(crate) entries: Vec<VolumeAnswer>,
    #[prost(string, tag = "2")]
    pub(crate) next_token: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct GetCapacityRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) volume_capabilities: Vec<VolumeCapability>,
    #[prost(btree_map = "string, string", tag = "2")]
    pub(crate) parameters: BTreeMap<String, String>,
    #[prost(message, optional, tag = "3")]
    pub(crate) accessible_topology: Option<Topology>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct GetCapacityAnswer {
    #[prost(int64, tag = "1")]
    pub(crate) available_capacity: i64,
    #[prost(message, optional, tag = "2")]
    pub(crate) maximum_volume_size: Option<Number>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Number {
    #[prost(int64, tag = "1")]
    pub(crate) value: i64,
}

/// Capabilities of a service.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Capabilities {
    #[prost(message, repeated, tag = "1")]
    pub(crate) capabilities: Vec<Capability>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Capability {
    #[prost(message, optional, tag = "1")]
    pub(crate) rpc: Option<Kind>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExpandRequest {
    #[prost(string, tag = "1")]
    pub(crate) volume_id: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) capacity_range: Option<CapacityRange>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExpandAnswer {
    #[prost(int64, tag = "1")]
    pub(crate) capacity_bytes: i64,
    #[prost(bool, tag = "2")]
    pub(crate) node_expansion_required: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct HealthAnswer {
    #[prost(message, optional, tag = "1")]
    pub(crate) volume_health: Option<VolumeHealth>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct VolumeHealth {
    #[prost(string, tag = "1")]
    pub(crate) volume_id: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) health_statuses: Vec<HealthStatus>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct HealthStatus {
    #[prost(int32, tag = "1")]
    pub(crate) status: i32,
    #[prost(string, tag = "2")]
    pub(crate) reason: String,
    #[prost(string, tag = "3")]
    pub(crate) message: String,
}
